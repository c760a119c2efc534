"""
Reader of one stream for one connection: events after a cursor, in order, each once, without gaps.

A ``StreamReader`` registers for wake-ups before it reads the rows, so that it misses no event that
is committed in between. With ``opened`` it reads no rows first: the next poll finds events that
other processes committed before ``__enter__``. A wake-up may contain the events that this process
has committed. If they follow directly on the cursor, they need not be read. All other events are
read from the database.

All methods run in the event loop of the connection. A process has thousands of readers, so none
has a timer or a queue, and a task only while it reads rows: ``poller.Poller`` serves all of them.
"""

from __future__ import annotations

import asyncio
import enum
import time
from collections.abc import Sequence
from types import TracebackType

from . import event_log, streams
from .jobs import run_with_retries
from .poller import poller
from .streams import StreamState
from .wakeups import Event, StreamWakeup, StreamWakeups, stream_wakeups

EVENTS_PER_PAGE = 200
# Limits of the events in memory for a slow reader, in events and characters. Beyond them the reader
# drops what it has in memory and reads the rows.
MAX_BUFFERED_EVENTS, MAX_BUFFERED_SIZE = 512, 262_144


class StreamEnd(enum.Enum):
    """Why a connection gets no more events."""

    FINISHED = "the stream is closed, and all of its events were read"
    TAKEN = "a later connection reads the stream"
    RELEASED = "the client should reconnect for the rest"
    EXPIRED = "the token expired: the client should reconnect with another one"
    GONE = "the stream was deleted, or its client may not read it any more"


# These end the connection at once, even if it has unread events.
IMMEDIATE_ENDS = (StreamEnd.TAKEN, StreamEnd.EXPIRED, StreamEnd.GONE)


class StreamReader:
    """The reader of ``stream`` after the cursor ``after``, for its connection number ``number``.

    It is a context manager, which receives wake-ups inside the block. ``events`` returns the next
    events, or an empty page when the connection must send a keep-alive. ``opened`` is what this
    process has committed when it opened the stream. The rows that it covers are not read.
    """

    __slots__ = (
        "_buffer", "_ending", "_is_keepalive_due", "_last", "_reading", "_waiter", "_wakeups",
        "after", "may_return", "number", "session", "idle_since", "stream",
    )  # fmt: skip

    def __init__(
        self,
        session: int,
        stream: int,
        number: int,
        after: int = 0,
        *,
        may_return: bool = True,
        opened: StreamWakeup | None = None,
    ) -> None:
        self.session, self.stream, self.number, self.after = session, stream, number, after
        self.may_return = may_return  # whether its client reconnects when the connection is closed
        self.idle_since = time.monotonic()  # when ``events`` last returned (monotonic clock)
        self._last: int | None = None  # the number of the latest event; None: read the rows
        self._ending: StreamEnd | None = None
        self._buffer: list[Event] | None = None  # events of wake-ups, which need not be read
        self._is_keepalive_due = False
        self._waiter: asyncio.Future[None] | None = None
        self._reading: asyncio.Future[tuple[StreamState | None, Sequence[Event]]] | None = None
        self._wakeups: StreamWakeups
        if opened is not None:
            self._last = 0
            self.wake(opened)

    def __enter__(self) -> StreamReader:
        self._wakeups = stream_wakeups()
        self._wakeups.register(self)
        poller().poll_often()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._wakeups.forget(self)
        if self._reading is not None:
            self._reading.cancel()
        poller().stop_if_idle()

    # Called by the connection.

    async def events(self) -> Sequence[Event] | StreamEnd:
        """Wait for the next events and return them, or return why there will be none.

        Return an empty page when a keep-alive is due.
        """
        while True:
            found: Sequence[Event] | StreamEnd | None
            if self._ending in IMMEDIATE_ENDS:
                found = self._ending
            # Not during a read: its page follows on the cursor at which it began.
            elif self._reading is None and self._buffer and (buffered := self._take_buffer()):
                found = buffered
            elif self._reading is not None or self._is_behind:
                found = await self._read()
            elif self._is_keepalive_due:
                found, self._is_keepalive_due = (), False
            else:
                found = self._ending
                if found is None:
                    await self._wait()
            if found is not None:
                self.idle_since = time.monotonic()
                return found

    def _take_buffer(self) -> Sequence[Event] | None:
        """Remove and return the events in memory, if they follow directly on the cursor."""
        events, self._buffer = self._buffer or [], None
        while events and events[0][0] <= self.after:  # they were read from the rows meanwhile
            events.pop(0)
        if not events or events[0][0] != self.after + 1:
            return None
        self.after = events[-1][0]
        return events

    @property
    def _is_behind(self) -> bool:
        """Whether there may be rows of events after the cursor."""
        return self._last is None or self._last > self.after

    async def _read(self) -> Sequence[Event] | StreamEnd | None:
        """Read the next page. Return None if there was nothing new.

        Return an empty page if a keep-alive is due before. The next call waits for the same read.
        """
        if self._reading is None:
            # Before the query: a wake-up that arrives while it runs sets ``_last`` to None again,
            # and then the rows are read once more.
            self._last = self.after if self._last is None else self._last
            # A task, because a read waits until the database is back. Meanwhile the connection
            # must send keep-alives, and close when its token expires.
            self._reading = asyncio.ensure_future(self._read_rows())
            self._reading.add_done_callback(lambda reading: self._wake())
        while not self._reading.done():
            if self._ending in IMMEDIATE_ENDS:
                return self._ending
            if self._is_keepalive_due:
                self._is_keepalive_due = False
                return ()
            await self._wait()
        (state, found), self._reading = self._reading.result(), None
        self.update_state(state)
        if state is None or self._ending in IMMEDIATE_ENDS:
            return self._ending
        without_gap = [
            event for number, event in enumerate(found, self.after + 1) if event[0] == number
        ]
        if without_gap:
            self.after = without_gap[-1][0]
            return without_gap
        # Retention deleted the next event before this slow reader came to it.
        return StreamEnd.RELEASED if state.last > self.after else None

    async def _read_rows(self) -> tuple[StreamState | None, Sequence[Event]]:
        async with self._wakeups.reads:
            return await run_with_retries(_read_page, self.stream, self.after)

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    # Called by wake-ups and by the poller.

    def wake(self, wakeup: StreamWakeup) -> None:
        """Take the events of a wake-up, or note that the rows must be read."""
        if wakeup.events:
            self._add_to_buffer(wakeup.events)
            if self._last is not None:
                self._last = max(self._last, wakeup.events[-1][0])
        if wakeup.changed:
            self._last = None
        if wakeup.closed and self._ending not in IMMEDIATE_ENDS:
            self._ending = StreamEnd.FINISHED
        if wakeup.reader > self.number:
            self._ending = StreamEnd.TAKEN
        self._wake()

    def _add_to_buffer(self, events: Sequence[Event]) -> None:
        """Keep events that follow without a gap, up to the limits. Others are read from the rows.

        Wake-ups of two event loops may arrive in another order than their commits.
        """
        kept = self._buffer or []
        end = kept[-1][0] if kept else self.after
        if events[0][0] > end + 1 or events[-1][0] <= end:
            return
        kept = [*kept, *(event for event in events if event[0] > end)]
        is_small = (
            len(kept) <= MAX_BUFFERED_EVENTS
            and sum(len(data) for _, data in kept) <= MAX_BUFFERED_SIZE
        )
        self._buffer = kept if is_small else None

    def update_state(self, state: StreamState | None) -> None:
        """Update from the row of the stream. None: the row was deleted."""
        if state is None:
            self._ending = StreamEnd.GONE
        elif state.reader > self.number:
            self._ending = StreamEnd.TAKEN
        elif self._ending not in IMMEDIATE_ENDS:
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

    def send_keepalive(self) -> None:
        """Make ``events`` return an empty page now, so that the connection sends a keep-alive."""
        self._is_keepalive_due = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _read_page(stream: int, after: int) -> tuple[StreamState | None, Sequence[Event]]:
    """Return the state of a stream, and then a page of its events after a cursor.

    The state must be read first. A stream that is closed by then gets no more events, so the page
    has its last one. In the other order, an event between the two queries could be missed.
    """
    state = streams.states([stream]).get(stream)
    if state is None or state.last <= after:
        return state, ()
    return state, event_log.read(stream, after, EVENTS_PER_PAGE)
