"""
What one call says over HTTP, where nothing is kept: a stream if it says anything, else JSON.

Rule: the answer is JSON until something must be said before it; from then on
it is a stream, which ends with the answer. What is said comes from any thread
and waits for no reader: beyond a bound, it is left out.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING

from ...protocol import sse
from ...protocol.jsonrpc import JSON, encode

if TYPE_CHECKING:
    from .exchanges import Exchange

logger = logging.getLogger("django_mcp")
MAX_WAITING = 1_000_000  # bytes, for a reader that does not keep up


class Outbox:
    """Made in the loop; ``say`` may be called from any thread."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._loop = asyncio.get_running_loop()
        self._home = threading.get_ident()
        self._waiting: list[bytes] = []
        self._size = 0
        self._writer: asyncio.Task[None] | None = None
        self._spoken = False

    @property
    def begun(self) -> bool:
        return self._writer is not None

    def say(self, message: JSON) -> None:
        """Send ``message`` before the answer."""
        self._spoken = True
        data = sse.event(encode(message))
        if threading.get_ident() == self._home:
            self._put(data)
        else:
            self._loop.call_soon_threadsafe(self._put, data)

    def pulse(self) -> None:
        """Show that the connection lives; begin the stream for that."""
        if not self._waiting:
            self._put(sse.comment())

    def _put(self, data: bytes) -> None:
        if self._size + len(data) > MAX_WAITING:
            logger.debug("A slow reader misses a notification")
            return
        self._waiting.append(data)
        self._size += len(data)
        if self._writer is None or self._writer.done():
            self._writer = self._loop.create_task(self._write())

    async def _write(self) -> None:
        if not self._exchange.begun:
            await self._exchange.start_sse()
        while self._waiting:
            data, self._waiting, self._size = b"".join(self._waiting), [], 0
            await self._exchange.write(data)

    async def settle(self) -> None:
        """Wait until all that was said is written, from other threads too."""
        if self._spoken:
            await asyncio.sleep(0)  # what they said is in the loop's queue by now
        while self._writer is not None and not self._writer.done():
            await self._writer

    async def answer(self, message: JSON) -> None:
        """End the stream by the answer."""
        await self._exchange.write(sse.event(encode(message)))
        await self._exchange.end()

    def drop(self) -> None:
        """Nobody reads any more."""
        if self._writer is not None:
            self._writer.cancel()
