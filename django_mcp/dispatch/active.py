"""
Calls being worked on, and what may still be said in their name.

Rule: a call is answered once; what it says comes before its answer, and after
a cancel nothing comes at all - from whatever thread it is said.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..protocol.events import Call
from ..protocol.jsonrpc import ProtocolError

JSON = dict[str, Any]


class Stop:
    """Set once, from any thread; looked at, and never waited for."""

    __slots__ = ("_set",)

    def __init__(self) -> None:
        self._set = False

    def set(self) -> None:
        self._set = True

    def is_set(self) -> bool:
        return self._set


def _unheard(message: JSON) -> None: ...


def _nothing() -> None: ...


@dataclass(eq=False)
class Batch:
    """Calls that are answered together."""

    open: int
    messages: list[JSON]


@dataclass(eq=False)
class Active:
    """A call being worked on; ``stop`` is set when nobody waits for it any more."""

    call: Call
    send: Callable[[JSON], None]
    batch: Batch | None = None
    stop: Stop = field(default_factory=Stop)
    over: bool = False
    task: asyncio.Task[JSON | None] | None = None
    let_go: Callable[[], None] = _nothing  # of the connection that waits for the answer
    interrupt: Callable[[], object] | None = None  # how to stop it, where that takes more
    refusal: ProtocolError | None = None  # by which it is answered, though it was stopped
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def say(self, message: JSON) -> None:
        """Send what belongs before the answer, unless that is too late."""
        with self._lock:
            if not (self.over or self.stop.is_set()):
                self.send(message)

    def release(self) -> None:
        """Have the client come back for the answer, where it can."""
        with self._lock:
            if not (self.over or self.stop.is_set()):
                self.let_go()

    def end(self) -> None:
        """From now on nothing is said: the answer comes next."""
        with self._lock:
            self.over = True
            # They often know this object, and a circle would keep all of the call in memory.
            self.send, self.let_go, self.interrupt = _unheard, _nothing, _nothing

    def refuse(self, error: ProtocolError) -> None:
        """Stop it, and have it answered by ``error``; not where its answer is known."""
        if not (self.over or self.stop.is_set()):
            self.refusal = error
            (self.interrupt or self.cancel)()

    def cancel(self) -> None:
        """Stop it, once: a second cancel would interrupt its tidying up."""
        if self.stop.is_set():
            return
        self.stop.set()
        if self.task is not None:
            self.task.cancel()
