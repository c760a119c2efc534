"""
Reader of one stream for one connection: events after a cursor, in order, each once, without gaps.

A ``StreamReader`` registers for wake-ups before it reads the rows, so that it misses no event that
is committed in between. Events that this process wrote come from memory if they follow directly on
the cursor. All others are read from the database.

All methods run in the event loop of the connection. A process has thousands of readers, so none
has a task, a timer or a queue: ``poller.Poller`` serves all of them.
"""

from __future__ import annotations

import asyncio
import enum
import time
from collections.abc import Sequence
from types import TracebackType

from . import event_log, streams
from .jobs import surely
from .poller import poller
from .streams import StreamState
from .wakeups import Event, StreamWakeup, StreamWakeups, stream_wakeups

EVENTS_PER_PAGE = 200  # events
# Limits of the events in memory for a slow reader, in events and characters. Beyond them the reader
# drops what it has in memory and reads the rows.
MAX_BUFFERED_EVENTS, MAX_BUFFERED_SIZE = 512, 262_144


class StreamEnd(enum.Enum):
    """Why a connection gets no more events."""

    FINISHED = "all that the stream had to say was given"
    TAKEN = "another connection has taken the stream over"
    RELEASED = "the client is to come back for the rest"
    EXPIRED = "the same, with another token: this one is told nothing more"
    GONE = "the stream is no more, or no longer its client's"


AT_ONCE = (
    StreamEnd.TAKEN,
    StreamEnd.EXPIRED,
    StreamEnd.GONE,
)  # these end it although events are left


class StreamReader:
    """The reader of ``stream`` after the cursor ``after``, for its connection number ``number``.

    It is a context manager: wake-ups arrive inside of the block. ``events`` returns the next
    events, or an empty page when the connection must send a keep-alive.
    """

    __slots__ = (
        "_wakeups", "_ending", "_fresh", "_last", "_nudged", "_waiter", "after", "may_return",
        "number", "session", "since", "stream",
    )  # fmt: skip

    def __init__(
        self, session: int, stream: int, number: int, after: int = 0, *, may_return: bool = True
    ) -> None:
        self.session, self.stream, self.number, self.after = session, stream, number, after
        self.may_return = may_return  # whether its client reconnects when the connection is closed
        self.since = time.monotonic()  # when ``events`` last returned
        self._last: int | None = None  # the number of the latest event; None: read the rows
        self._ending: StreamEnd | None = None
        self._fresh: list[Event] | None = None
        self._nudged = False
        self._waiter: asyncio.Future[None] | None = None
        self._wakeups: StreamWakeups

    def __enter__(self) -> StreamReader:
        self._wakeups = stream_wakeups()
        self._wakeups.register(self)
        poller().start_if_needed()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._wakeups.forget(self)
        poller().stop_if_idle()

    # Called by the connection.

    async def events(self) -> Sequence[Event] | StreamEnd:
        """Wait for the next events and return them, or return why there will be none."""
        while True:
            found = self._given()
            if found is None and self._is_behind:
                found = await self._looked()
            elif found is None:
                await self._woken()
            if found is not None:
                self.since = time.monotonic()
                return found

    def _given(self) -> Sequence[Event] | StreamEnd | None:
        """Return what is known without reading the rows, or None."""
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

    async def _looked(self) -> Sequence[Event] | StreamEnd | None:
        self._last = self.after if self._last is None else self._last
        async with self._wakeups.reads:
            state, found = await surely(_read_page, self.stream, self.after)
        self.see(state)
        if state is None or self._ending in AT_ONCE:
            return self._ending
        following = [one for number, one in enumerate(found, self.after + 1) if one[0] == number]
        if following:
            self.after = following[-1][0]
            return following
        # The next event was deleted before this slow reader came to it, by retention.
        return StreamEnd.RELEASED if state.last > self.after else None

    async def _woken(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    # Called by wake-ups and by the poller.

    def wake(self, wakeup: StreamWakeup) -> None:
        if wakeup.events:
            self._keep(wakeup.events)
            if self._last is not None:
                self._last = max(self._last, wakeup.events[-1][0])
        if wakeup.changed:
            self._last = None
        if wakeup.reader > self.number:
            self._ending = StreamEnd.TAKEN
        self._wake()

    def _keep(self, given: Sequence[Event]) -> None:
        """Keep events from memory that follow without a gap, up to the limits."""
        kept = self._fresh or []
        end = kept[-1][0] if kept else self.after
        follows = given[0][0] <= end + 1 and given[-1][0] > end
        if follows:
            kept = [*kept, *(event for event in given if event[0] > end)]
            small = (
                len(kept) <= MAX_BUFFERED_EVENTS
                and sum(len(d) for _, d in kept) <= MAX_BUFFERED_SIZE
            )
            self._fresh = kept if small else None

    def see(self, state: StreamState | None) -> None:
        """Update from the row of the stream. None: the row was deleted."""
        if state is None:
            self._ending = StreamEnd.GONE
        elif state.reader > self.number:
            self._ending = StreamEnd.TAKEN
        elif self._ending not in AT_ONCE:
            if self._last is not None:
                self._last = max(self._last, state.last)
            if state.released >= self.number:
                self._ending = StreamEnd.RELEASED
            elif state.closed:
                self._ending = StreamEnd.FINISHED
        if self._ending is not None or self._is_behind:
            self._wake()

    def release(self) -> None:
        """End this connection after the events that are left, so that its client reconnects."""
        self._ending = self._ending or StreamEnd.RELEASED
        self._wake()

    def end(self, why: StreamEnd) -> None:
        """End this connection for the given reason."""
        self._ending = why
        self._wake()

    def nudge(self) -> None:
        """Have the connection send a keep-alive."""
        self._nudged = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _read_page(stream: int, after: int) -> tuple[StreamState | None, Sequence[Event]]:
    """Return the state of a stream, and then a page of its events after a cursor.

    The state is read first: a stream that is closed by then gets no more events.
    """
    state = streams.states([stream]).get(stream)
    if state is None or state.last <= after:
        return state, ()
    return state, event_log.read(stream, after, EVENTS_PER_PAGE)
