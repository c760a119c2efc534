"""
Following a stream, for one connection.

Rule: a tail is registered before it looks, and gives each event once, in order,
without a gap. What this process wrote may come from memory, if it follows
directly on what was given; everything else is read from the rows. A tail is
small, for there are thousands: no task, timer or queue of its own.
"""

from __future__ import annotations

import asyncio
import enum
import time
from collections.abc import Sequence
from types import TracebackType

from . import events, streams
from .doorbell import Doorbell, Event, Ring, doorbell
from .jobs import surely
from .streams import StreamState

PAGE = 200
# Of what this process wrote, what is kept for a tail that does not come to take it.
MOST_KEPT, MOST_KEPT_SIZE = 512, 262_144


class Ending(enum.Enum):
    """Why there is nothing more for a connection."""

    FINISHED = "all that the stream had to say was given"
    TAKEN = "another connection has taken the stream over"
    RELEASED = "the client is to come back for the rest"
    EXPIRED = "the same, with another token: this one is told nothing more"
    GONE = "the stream is no more, or no longer its client's"


AT_ONCE = (Ending.TAKEN, Ending.EXPIRED, Ending.GONE)  # whatever there is still to give


class Tail:
    """The events of ``stream`` after a cursor, for its connection number ``number``.

    ``events()`` gives what there is; an empty page is a sign of life to pass on.
    """

    __slots__ = (
        "_bell", "_ending", "_fresh", "_last", "_nudged", "_waiter", "after", "may_return",
        "number", "session", "since", "stream",
    )  # fmt: skip

    def __init__(
        self, session: int, stream: int, number: int, after: int = 0, *, may_return: bool = True
    ) -> None:
        self.session, self.stream, self.number, self.after = session, stream, number, after
        self.may_return = may_return  # whether its client comes back when it is let go
        self.since = time.monotonic()  # when something was last passed on
        self._last: int | None = None  # how far the stream is; None: look
        self._ending: Ending | None = None
        self._fresh: list[Event] | None = None
        self._nudged = False
        self._waiter: asyncio.Future[None] | None = None
        self._bell: Doorbell

    def __enter__(self) -> Tail:
        from .poller import poller

        self._bell = doorbell()
        self._bell.register(self)
        poller().wake()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        from .poller import poller

        self._bell.forget(self)
        poller().rest()

    # For the connection.

    async def events(self) -> Sequence[Event] | Ending:
        """What follows, as soon as something does; or why nothing will."""
        while True:
            found = self._given()
            if found is None and self._is_behind:
                found = await self._looked()
            elif found is None:
                await self._woken()
            if found is not None:
                self.since = time.monotonic()
                return found

    def _given(self) -> Sequence[Event] | Ending | None:
        """What is known without a look at the rows."""
        if self._ending in AT_ONCE:
            return self._ending
        if fresh := self._taken():
            return fresh
        if self._is_behind:
            return None
        if self._nudged:
            self._nudged = False
            return ()
        return self._ending

    def _taken(self) -> Sequence[Event] | None:
        fresh, self._fresh = self._fresh, None
        while fresh and fresh[0][0] <= self.after:
            fresh.pop(0)
        if not fresh or fresh[0][0] != self.after + 1:
            return None
        self.after = fresh[-1][0]
        return fresh

    @property
    def _is_behind(self) -> bool:
        return self._last is None or self._last > self.after

    async def _looked(self) -> Sequence[Event] | Ending | None:
        self._last = self.after if self._last is None else self._last
        async with self._bell.looking:
            state, found = await surely(_look, self.stream, self.after)
        self.see(state)
        if state is None or self._ending in AT_ONCE:
            return self._ending
        following = [one for number, one in enumerate(found, self.after + 1) if one[0] == number]
        if following:
            self.after = following[-1][0]
            return following
        # What should follow is no more: it was trimmed under a reader this slow.
        return Ending.RELEASED if state.last > self.after else None

    async def _woken(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    # For whoever knows more.

    def hear(self, ring: Ring) -> None:
        if ring.events:
            self._keep(ring.events)
            if self._last is not None:
                self._last = max(self._last, ring.events[-1][0])
        if ring.changed:
            self._last = None
        if ring.reader > self.number:
            self._ending = Ending.TAKEN
        self._wake()

    def _keep(self, given: Sequence[Event]) -> None:
        """Of events from memory, those that follow on what there is, up to a bound."""
        kept = self._fresh or []
        end = kept[-1][0] if kept else self.after
        follows = given[0][0] <= end + 1 and given[-1][0] > end
        if follows:
            kept = [*kept, *(event for event in given if event[0] > end)]
            small = len(kept) <= MOST_KEPT and sum(len(d) for _, d in kept) <= MOST_KEPT_SIZE
            self._fresh = kept if small else None

    def see(self, state: StreamState | None) -> None:
        """Take note of what the stream's row says."""
        if state is None:
            self._ending = Ending.GONE
        elif state.reader > self.number:
            self._ending = Ending.TAKEN
        elif self._ending not in AT_ONCE:
            if self._last is not None:
                self._last = max(self._last, state.last)
            if state.released >= self.number:
                self._ending = Ending.RELEASED
            elif state.closed:
                self._ending = Ending.FINISHED
        if self._ending is not None or self._is_behind:
            self._wake()

    def release(self) -> None:
        """Let this connection go; its client comes back for the rest, here or elsewhere."""
        self._ending = self._ending or Ending.RELEASED
        self._wake()

    def end(self, why: Ending) -> None:
        """Give nothing more."""
        self._ending = why
        self._wake()

    def nudge(self) -> None:
        """Have the connection show that it lives."""
        self._nudged = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _look(stream: int, after: int) -> tuple[StreamState | None, Sequence[Event]]:
    """How a stream is, and a page of what follows. What was closed then has no more to come."""
    state = streams.states([stream]).get(stream)
    if state is None or state.last <= after:
        return state, ()
    return state, events.read(stream, after, PAGE)
