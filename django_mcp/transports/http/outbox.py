"""
What one call says over HTTP, where nothing is kept: a stream if it says anything, else JSON.

Rule: the answer is JSON until something must be said before it; from then on
it is a stream, which ends with the answer. What is said comes from any thread
and waits for no reader: beyond a bound, nothing more is taken.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...conf import settings
from ...protocol import sse
from ...protocol.jsonrpc import JSON, encode
from .exchanges import Left

if TYPE_CHECKING:
    from .exchanges import Exchange

logger = logging.getLogger("django_mcp")
MAX_WAITING = 1_000_000  # bytes, for a reader that does not keep up
LAST_WORDS = 10_000  # more, for the end


class Outbox:
    """Made in the loop; ``say`` may be called from any thread.

    ``when_full`` is called once there was too much, in the loop, and may say a
    last word; without it, what is too much is left out.
    """

    def __init__(self, exchange: Exchange, when_full: Callable[[], object] | None = None) -> None:
        self._exchange, self.when_full = exchange, when_full
        self._loop = asyncio.get_running_loop()
        self._home = threading.get_ident()
        self._waiting: list[bytes] = []
        self._size = 0
        # Some servers take whatever is written, and keep it: what is said in all is bounded too.
        self._left = int(settings.RESULT_SIZE)
        self._room = MAX_WAITING
        self._writer: asyncio.Task[None] | None = None
        self._spoken = self._is_closed = False

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
        if self._is_closed:
            return
        if self._size + len(data) > self._room or len(data) > self._left:
            self._full()
            return
        self._waiting.append(data)
        self._size += len(data)
        self._left -= len(data)
        if self._writer is None or self._writer.done():
            self._writer = self._loop.create_task(self._write())

    def _full(self) -> None:
        when_full, self.when_full = self.when_full, None
        if when_full is None:
            logger.debug("A reader that does not keep up misses a notification")
            return
        self._room += LAST_WORDS
        self._left += LAST_WORDS
        when_full()

    async def _write(self) -> None:
        try:
            if not self._exchange.begun:
                await self._exchange.start_sse()
            while self._waiting:
                data, self._waiting, self._size = b"".join(self._waiting), [], 0
                await self._exchange.write(data)
        except Left:
            self.close()

    async def settle(self) -> None:
        """Wait until all that was said is written, from other threads too.

        A loop calls back in the order in which it was asked to, and threads ask before ``say``
        returns: who comes back from one turn of the loop comes after all that was said before.
        """
        if self._spoken:
            await asyncio.sleep(0)
        while self._writer is not None and not self._writer.done():
            await self._writer

    async def answer(self, text: str) -> None:
        """End the stream by the answer."""
        self.close()
        await self._exchange.write(sse.event(text))
        await self._exchange.end()

    def close(self) -> None:
        """From now on nothing is taken."""
        self._is_closed, self._waiting = True, []

    def drop(self) -> None:
        """Nobody reads any more."""
        self.close()
        if self._writer is not None:
            self._writer.cancel()
