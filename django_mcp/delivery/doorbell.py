"""
Who in this process follows which stream, and how they are woken.

Rule: a ring says what was committed; it is never the truth. Who missed one is
late, and loses nothing: the poller compares with the rows. Rings come from any
thread; each event loop hears them in its own, and other processes by the
project's channel layer, if there is one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from . import layers
from .jobs import PerLoop
from .streams import StreamState

Event = tuple[int, str]  # its number in the stream, and its message
DOORBELL = 0  # as whose stream changes of the project's rows are rung


@dataclass(frozen=True, slots=True)
class Ring:
    """What became of a stream: its new events, or what else is now true of it."""

    stream: int
    events: Sequence[Event] = ()
    changed: bool = False  # there is more to know than the events: look
    reader: int = 0  # the number of its latest connection


class Follows(Protocol):
    """Who is to be woken: see ``Tail``."""

    session: int
    stream: int
    since: float
    may_return: bool

    def hear(self, ring: Ring) -> None: ...

    def see(self, state: StreamState | None) -> None: ...

    def nudge(self) -> None: ...

    def release(self) -> None: ...


class Doorbell:
    """Those that one event loop wakes."""

    def __init__(self) -> None:
        self._at: dict[int, tuple[Follows, ...]] = {}
        self.looking = asyncio.Semaphore(3)  # at the rows, at once: of four threads one writes

    def __bool__(self) -> bool:
        return bool(self._at)

    def __iter__(self) -> Iterator[Follows]:
        return (one for listed in list(self._at.values()) for one in listed)

    def streams(self) -> list[int]:
        return list(self._at)

    def register(self, one: Follows) -> None:
        self._at[one.stream] = (*self._at.get(one.stream, ()), one)

    def forget(self, one: Follows) -> None:
        left = tuple(other for other in self._at.get(one.stream, ()) if other is not one)
        if left:
            self._at[one.stream] = left
        else:
            self._at.pop(one.stream, None)

    def at(self, stream: int) -> tuple[Follows, ...]:
        return self._at.get(stream, ())

    def rung(self, rings: Sequence[Ring]) -> None:
        for ring in rings:
            for one in self.at(ring.stream):
                one.hear(ring)


doorbell = PerLoop(Doorbell)


def ring(*rings: Ring) -> None:
    """Wake who follows these streams, in whichever loop, here or elsewhere; from any thread."""
    try:
        here: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
    except RuntimeError:
        here = None
    for loop, bell in doorbell.items():
        if loop is here:
            bell.rung(rings)
        elif bell:
            with suppress(RuntimeError):  # that loop has ended
                loop.call_soon_threadsafe(bell.rung, rings)
    layers.tell([ring.stream for ring in rings], here)


def ring_for_changes() -> None:
    """The same for who follows what the project saves."""
    from .watch import watch

    for loop, one in watch.items():
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(one.wake)
    ring(Ring(DOORBELL, changed=True))
