"""
Queue of messages that running calls send: written to the event log in batches, in the background.

Each event loop has one ``EventWriter``. ``say`` may be called from any thread and does not wait for
the commit. One job at a time commits what all calls of the loop have queued, and wakes the stream
readers after the commit.

The queue is bounded (backpressure): calls that send faster than the database writes are slowed
down, and beyond the limits ``say`` raises ``OutputTooLarge``. A caller awaits ``flush`` before it
writes the response of a call, so that the response comes last.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from ..runtime.runtime import Service
from . import event_log
from .event_log import FULL, EventAddress, Outcomes
from .jobs import surely
from .wakeups import StreamWakeup, wake_readers

Said = dict[EventAddress, list[str]]
logger = logging.getLogger("django_mcp")
# Limits of the queue: messages and characters of one call, and characters of all calls of a loop.
MAX_QUEUED_MESSAGES, MAX_QUEUED_SIZE, MAX_TOTAL_QUEUED_SIZE = 20_000, 8_000_000, 64_000_000
# Characters, of one call and of all, from which on calls should pause (``is_behind``).
PACED_SIZE, PACED_IN_ALL = MAX_QUEUED_SIZE // 2, MAX_TOTAL_QUEUED_SIZE // 2
TOO_MUCH = (
    f"The call said more than {MAX_QUEUED_SIZE // 1_000_000} MB that could not be written yet. "
    "Asynchronous code awaits aprogress() and alog()."
)
MESSAGES_PER_COMMIT, SIZE_PER_COMMIT = (
    2_000,
    4_000_000,
)  # messages and characters of one call in one commit
# After every 64 queued messages a thread sleeps: PAUSE seconds times the square of the number of
# queued messages, at most LONGEST_PAUSE seconds.
TURN, PAUSE, LONGEST_PAUSE = 64, 5e-8, 0.005


class OutputTooLarge(Exception):
    """A call sends more messages than can be written to the database."""


@dataclass(slots=True)
class CallQueue:
    """The queue of one call: messages that are not committed."""

    refused: Callable[[int | None], None]  # called with the outcome if the log rejects messages
    waiting: list[str] = field(default_factory=list)
    size: int = 0

    def take(self) -> list[str]:
        """Remove and return the messages of the next commit, at least one."""
        size = count = 0
        for text in self.waiting[:MESSAGES_PER_COMMIT]:
            size += len(text)
            if count and size > SIZE_PER_COMMIT:
                break
            count += 1
        taken, self.waiting = self.waiting[:count], self.waiting[count:]
        self.size -= sum(map(len, taken))
        return taken


def pace(waiting: int) -> None:
    """Sleep in the thread of a call with ``waiting`` queued messages, so that they get written.

    A thread that never waits gives up the GIL only every 5 milliseconds (the switch interval of
    the interpreter). A transaction needs a dozen such switches.
    """
    if waiting and waiting % TURN == 0:
        time.sleep(min(waiting * waiting * PAUSE, LONGEST_PAUSE))


class EventWriter:
    """The queue of messages of one event loop, and the task that writes them."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        # Threads of calls queue messages while the event loop takes them. Without the lock a
        # message could be lost, or ``_size`` be wrong for good. It is never held while writing.
        self._lock = threading.Lock()
        self._lanes: dict[EventAddress, CallQueue] = {}
        self._size = 0
        self._task: asyncio.Task[None] | None = None
        self._told: asyncio.Future[None] = self._loop.create_future()  # resolved at each commit
        self._is_called = False

    def say(
        self,
        to: EventAddress,
        text: str,
        refused: Callable[[int | None], None],
        *,
        must: bool = False,
    ) -> int:
        """Queue ``text``, from any thread. Return how many messages of the call are queued.

        ``refused`` is called in the loop if the log rejects it: with None if the call may not
        append any more, with ``FULL`` if its stream is full. Raise ``OutputTooLarge`` if the queue
        is full, unless ``must`` is set because the caller has checked the size before.
        """
        with self._lock:
            lane = self._lanes.get(to) or CallQueue(refused)
            full = (
                len(lane.waiting) >= MAX_QUEUED_MESSAGES or lane.size + len(text) > MAX_QUEUED_SIZE
            )
            if (
                lane.waiting
                and not must
                and (full or self._size + len(text) > MAX_TOTAL_QUEUED_SIZE)
            ):
                raise OutputTooLarge(TOO_MUCH)
            self._lanes[to] = lane
            lane.waiting.append(text)
            lane.size += len(text)
            self._size += len(text)
            waiting = len(lane.waiting)
            called, self._is_called = self._is_called, True
        if not called:
            self._loop.call_soon_threadsafe(self._begin)
        return waiting

    @property
    def waiting_size(self) -> int:
        """Return the number of queued characters, without those of the running commit."""
        return self._size

    def is_behind(self, to: EventAddress) -> bool:
        """Whether a call should pause before it sends more. May be called from any thread."""
        lane = self._lanes.get(to)
        mine = 0 if lane is None else lane.size
        return bool(mine) and (mine >= PACED_SIZE or self._size >= PACED_IN_ALL)

    async def flush(self, to: EventAddress) -> None:
        """Wait until all queued messages of this address are committed or rejected."""
        while to in self._lanes:
            await asyncio.shield(self._told)

    def _begin(self) -> None:
        self._task = self._loop.create_task(self._write())

    async def _write(self) -> None:
        while said := self._taken():
            self._tell(said, await self._committed(said))
            told, self._told = self._told, self._loop.create_future()
            told.set_result(None)

    def _taken(self) -> Said:
        """Remove and return the messages of the next commit.

        Calls with messages in this commit move to the end, so that no call is starved.
        """
        said: dict[EventAddress, list[str]] = {}
        size = 0
        with self._lock:
            for to, lane in list(self._lanes.items()):
                if size < SIZE_PER_COMMIT:
                    said[to] = lane.take()
                    size += sum(map(len, said[to]))
                    self._lanes[to] = self._lanes.pop(to)
            self._size -= size
            self._is_called = bool(said)
        return said

    async def _committed(self, said: Said) -> Outcomes:
        try:
            return await surely(event_log.append_many, said, uuid.uuid4().hex, again=False)
        except Exception:
            if len(said) == 1:
                logger.exception("Messages of a call could not be stored")
                return dict.fromkeys(said)
        found: Outcomes = {}
        # One call's messages made the commit fail: write each call's by themselves.
        for to, texts in said.items():
            found |= await self._committed({to: texts})
        return found

    def _tell(self, said: Said, ends: Outcomes) -> None:
        speakers = Counter(to.stream for to in said)
        for to, texts in said.items():
            end = ends[to]
            if end is None or end == FULL:
                self._refuse(to, end)
                continue
            self._settle(to)
            # Two calls may append to one stream in a commit (a batch). Then their numbers are not
            # known here, and readers read the rows.
            new = list(enumerate(texts, end - len(texts) + 1)) if speakers[to.stream] == 1 else []
            wake_readers(StreamWakeup(to.stream, new, changed=not new))

    def _settle(self, to: EventAddress) -> None:
        """Remove the lane of a call if nothing is queued, which ends ``flush``."""
        with self._lock:
            if not self._lanes[to].waiting:
                del self._lanes[to]

    def _refuse(self, to: EventAddress, outcome: int | None) -> None:
        with self._lock:
            lane = self._lanes.pop(to)
            self._size -= lane.size
        lane.refused(outcome)


writer = Service(EventWriter)
