"""
What is open in this process, and how it ends when the process is told to.

Rule: some servers wait for their connections before they tell an application
anything, and a stream would let them wait for ever; others cut them at once. So
a signal is heard here first: streams end in words, calls get a while to finish,
and then the signal goes on to whoever heard it before. At a second one both go on
at once, and calls get no more time; no signal is ever lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol

from ...delivery.jobs import PerLoop
from ...dispatch.revocations import revocations
from ...protocol.jsonrpc import Id, InternalError, Overloaded
from .exchanges import CLOSE, Refused

# Seconds for calls to finish: what is sent by a keyboard has somebody who waits for it, and what
# is sent by a program is followed by a kill, after ten seconds as a rule.
GRACE = {"SIGTERM": 8.0, "SIGINT": 0.8, "SIGBREAK": 0.8}
ANSWER = 1.0  # seconds more, in which who cannot come back is answered
CUT = 0.2  # and more, for each of two attempts to cut short what is left
LAST_WORDS = 0.2  # seconds for streams to end where there is no grace
RETRY_AFTER = ((b"retry-after", b"1"),)
ENDING = Overloaded("The server is about to end. Try again.", data={"retryAfter": 1})
UNKNOWN = InternalError("The server ended. This may or may not have been accepted.")


class Work(Protocol):
    """An answer that is being made; its owner's right to go on may be taken back."""

    @property
    def owner(self) -> str: ...

    def revoke(self) -> None: ...

    def end(self) -> None:
        """The process is about to end: say what there is to say."""

    def late(self) -> None:
        """Calls have had their time: say the last word, or stop."""

    def cut(self) -> None:
        """Stop now."""


class Draining:
    """Of one loop: what is being answered; ``ending`` once the process is about to end.

    ``is_late`` once calls have had their time: whatever is begun then has none.
    """

    def __init__(self) -> None:
        self.open: set[Work] = set()
        self.ending = self.is_late = self.is_told = False
        self.held: Callable[[], object] | None = None  # passes on the signal that began it
        self._until = math.inf  # the time of the loop until which calls may finish
        self._changed = asyncio.Event()
        revocations().sources.append(lambda: self.open)
        hear(self)

    @contextlib.contextmanager
    def working(self, work: Work) -> Iterator[None]:
        self.begin(work)
        try:
            yield
        finally:
            self.done(work)

    def begin(self, work: Work) -> None:
        self.open.add(work)

    def done(self, work: Work) -> None:
        self.open.discard(work)
        if self.ending and not self.open:
            self._changed.set()

    def check(self, about: Id | None = None) -> None:
        """Raises ``Refused`` where it is too late to begin anything, such as that request."""
        if self.ending:
            error = Overloaded(str(ENDING), data=ENDING.data, about=about)
            raise Refused(503, error, (*RETRY_AFTER, *CLOSE))

    async def finish(self, grace: float = GRACE["SIGTERM"]) -> None:
        """End what is open: in words, or after a while without."""
        from . import sessions

        self._until = min(self._until, asyncio.get_running_loop().time() + grace)
        if not self.ending:
            self.ending = True
            for work in list(self.open):
                work.end()
            sessions.drain()
        await self._rest()
        self.is_late = True
        # A cut that comes while a thread is waited for ends the wait.
        for last, seconds in (("late", ANSWER), ("cut", CUT), ("cut", CUT)):
            for work in list(self.open):
                getattr(work, last)()
            self._until = asyncio.get_running_loop().time() + seconds
            await self._rest()

    def hurry(self) -> None:
        """Let calls have no more time to finish, and streams only that for their last words."""
        self._until = min(self._until, asyncio.get_running_loop().time() + LAST_WORDS)
        self._changed.set()

    async def _rest(self) -> None:
        """Wait until nothing is open, but not longer than that may take."""
        loop = asyncio.get_running_loop()
        while self.open and loop.time() < self._until:
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(self._until):
                    await self._changed.wait()

    def let_go(self) -> None:
        """Pass on the signal that began the end, unless that was done."""
        held, self.held = self.held, None
        if held is not None:
            held()


draining = PerLoop(Draining)


# Signals.


class Heard:
    """A handler in front of ``before``, which was there first."""

    def __init__(self, ending: Draining, before: Any, grace: float) -> None:
        self.before, self._ending, self._grace = before, ending, grace
        self._loop, self._process = asyncio.get_running_loop(), os.getpid()
        self._task: asyncio.Task[None] | None = None

    def __call__(self, number: int, frame: Any) -> None:
        """In the main thread, between any two of its instructions."""
        ending = self._ending
        # A child that was forked has our handler, and a loop that nobody runs.
        is_ours = os.getpid() == self._process and self._loop.is_running()
        if is_ours and not ending.is_told:
            ending.is_told, ending.held = True, partial(self._pass_on, number, None)
            self._loop.call_soon_threadsafe(self._drain)
        else:
            if is_ours:
                self._loop.call_soon_threadsafe(ending.hurry)
            ending.let_go()
            self._pass_on(number, frame)

    def _drain(self) -> None:
        self._task = self._loop.create_task(self._ending.finish(self._grace))
        self._task.add_done_callback(lambda task: self._ending.let_go())

    def _pass_on(self, number: int, frame: Any) -> None:
        if callable(self.before):
            self.before(number, frame)
        else:
            signal.signal(number, self.before)
            signal.raise_signal(number)


def hear(ending: Draining) -> None:
    """Hear of the process's end. Only the main thread may; elsewhere, lifespans tell of it."""
    if threading.current_thread() is not threading.main_thread():
        return
    for name, grace in GRACE.items():
        if (number := getattr(signal, name, None)) is not None:
            before = signal.getsignal(number)
            if isinstance(before, Heard):
                before = before.before
            if before not in (signal.SIG_IGN, None):
                signal.signal(number, Heard(ending, before, grace))
