"""
What is open in this process, and how it ends when the process is told to.

Rule: servers wait for their connections before they tell an application
anything, and a stream would let them wait for ever; so the signal itself is
heard here first, and passed on to whoever heard it before.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .exchanges import Exchange

SIGNALS = ("SIGTERM", "SIGINT", "SIGBREAK")


class Draining:
    """The exchanges being answered; ``ending`` is set when the process is about to end."""

    def __init__(self) -> None:
        self.exchanges: set[Exchange] = set()
        self.ending = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def begun(self, exchange: Exchange) -> None:
        if self._loop is None:
            self._hear_signals()
        self.exchanges.add(exchange)

    def ended(self, exchange: Exchange) -> None:
        self.exchanges.discard(exchange)

    def _hear_signals(self) -> None:
        """Only the main thread may; a server that runs elsewhere tells by its lifespan."""
        self._loop = asyncio.get_running_loop()
        if threading.current_thread() is not threading.main_thread():
            return
        for name in SIGNALS:
            if number := getattr(signal, name, None):
                self._hear(number)

    def _hear(self, number: int) -> None:
        before = signal.getsignal(number)
        if before in (signal.SIG_IGN, None):
            return

        def heard(number: int, frame: Any) -> None:
            self.drain_soon()
            if callable(before):
                before(number, frame)
            elif before is signal.SIG_DFL:
                signal.signal(number, signal.SIG_DFL)
                signal.raise_signal(number)

        signal.signal(number, heard)

    def drain_soon(self) -> None:
        """End what is open; from any thread, or a signal."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.drain)

    def drain(self) -> None:
        """End every listen in words, and every stream that can be resumed."""
        from . import sessions, stateless

        self.ending = True
        for listens in list(stateless.Listens.open):
            listens.end()
        sessions.drain()


draining = Draining()
