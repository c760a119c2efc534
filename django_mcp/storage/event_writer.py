"""
Queue of messages that running calls send: written to the event log in batches, in the background.

Each event loop has one ``EventWriter``. ``queue_message`` may be called from any thread and does
not wait for the commit. One job at a time commits what all calls of the loop have queued, and wakes
the stream readers after the commit.

The queue is bounded (backpressure): calls that send faster than the database writes are slowed
down, and beyond the limits ``queue_message`` raises ``OutputTooLarge``. A caller awaits ``flush``
before it writes the response of a call, so that the response comes last.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from ..runtime.runtime import Service
from . import event_log
from .event_log import FULL, AppendResults, EventAddress
from .jobs import run_with_retries
from .wakeups import StreamWakeup, wake_readers

Batch = dict[EventAddress, list[str]]  # the messages of one commit
logger = logging.getLogger("django_mcp.storage")
# Limits of the queue: messages and characters of one call, and characters of all calls of a loop.
MAX_QUEUED_MESSAGES, MAX_QUEUED_SIZE, MAX_TOTAL_QUEUED_SIZE = 20_000, 8_000_000, 64_000_000
# Messages and characters of one call, and characters of all, from which on calls should pause
# (``is_behind``).
PACED_MESSAGES = MAX_QUEUED_MESSAGES // 2
PACED_SIZE, PACED_IN_ALL = MAX_QUEUED_SIZE // 2, MAX_TOTAL_QUEUED_SIZE // 2
TOO_MUCH = (
    "The call sends messages faster than they can be stored. At most "
    f"{MAX_QUEUED_MESSAGES:,} messages or {MAX_QUEUED_SIZE // 1_000_000} MB of a call can wait. "
    "In asynchronous code, use 'await request.aprogress()' and 'await request.alog()'."
)
# Messages and characters of one call in one commit.
MESSAGES_PER_COMMIT, SIZE_PER_COMMIT = 2_000, 4_000_000
# After every 64 queued messages a call sleeps, longer if more messages are queued:
# PAUSE_FACTOR_SECONDS times the square of their number, at most MAX_PAUSE_SECONDS.
MESSAGES_PER_PAUSE, PAUSE_FACTOR_SECONDS, MAX_PAUSE_SECONDS = 64, 5e-8, 0.005


class OutputTooLarge(Exception):
    """A call sends more messages than can be written to the database."""


@dataclass(slots=True)
class CallQueue:
    """The messages of one call that wait to be committed."""

    on_rejected: Callable[[int | None], None]  # called if the log rejects messages
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


def pause_seconds(waiting: int) -> float:
    """Return how long a call with ``waiting`` queued messages sleeps, so that they get written.

    A thread that never waits gives up the GIL only every 5 milliseconds (the switch interval of
    the interpreter). A transaction needs a dozen such switches. An asynchronous call that never
    waits does not let the event loop write at all.
    """
    if waiting % MESSAGES_PER_PAUSE:
        return 0.0
    return min(waiting * waiting * PAUSE_FACTOR_SECONDS, MAX_PAUSE_SECONDS)


class EventWriter:
    """The queue of messages of one event loop, and the task that writes them."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        # Threads of calls queue messages while the event loop takes them. Without the lock a
        # message could be lost, or ``_size`` be wrong for good. It is never held while writing.
        self._lock = threading.Lock()
        self._queues: dict[EventAddress, CallQueue] = {}
        self._size = 0
        self._task: asyncio.Task[None] | None = None
        self._next_commit: asyncio.Future[None] = self._loop.create_future()  # resolved by it
        self._is_scheduled = False  # whether the task runs or will be started

    def queue_message(
        self,
        to: EventAddress,
        text: str,
        on_rejected: Callable[[int | None], None],
        *,
        must: bool = False,
    ) -> int:
        """Queue ``text``, from any thread. Return how many messages of the call are queued.

        ``on_rejected`` is called in the loop if the log rejects it: with None if the call may not
        append any more, with ``FULL`` if its stream is full. Raise ``OutputTooLarge`` if the queue
        is full, unless ``must`` is set because the caller has checked the size before.
        """
        with self._lock:
            queue = self._queues.get(to) or CallQueue(on_rejected)
            is_full = (
                len(queue.waiting) >= MAX_QUEUED_MESSAGES
                or queue.size + len(text) > MAX_QUEUED_SIZE
                or self._size + len(text) > MAX_TOTAL_QUEUED_SIZE
            )
            # An empty queue takes one message of any size, or that message could never be sent.
            if is_full and queue.waiting and not must:
                raise OutputTooLarge(TOO_MUCH)
            self._queues[to] = queue
            queue.waiting.append(text)
            queue.size += len(text)
            self._size += len(text)
            waiting = len(queue.waiting)
            was_scheduled, self._is_scheduled = self._is_scheduled, True
        if not was_scheduled:
            self._loop.call_soon_threadsafe(self._begin)
        return waiting

    @property
    def waiting_size(self) -> int:
        """Return the number of queued characters, without those of the running commit."""
        return self._size

    def is_behind(self, to: EventAddress) -> bool:
        """Whether a call should pause before it sends more. May be called from any thread."""
        queue = self._queues.get(to)
        if queue is None or not queue.size:
            return False
        return (
            len(queue.waiting) >= PACED_MESSAGES
            or queue.size >= PACED_SIZE
            or self._size >= PACED_IN_ALL
        )

    async def flush(self, to: EventAddress) -> None:
        """Wait until all queued messages of this address are committed or rejected."""
        while to in self._queues:
            await asyncio.shield(self._next_commit)  # others wait for the same future

    def _begin(self) -> None:
        self._task = self._loop.create_task(self._write())

    async def _write(self) -> None:
        while batch := self._take_batch():
            outcomes = await self._commit(batch)
            # Only now: an event must be committed before a client gets it.
            self._report(batch, outcomes)
            committed, self._next_commit = self._next_commit, self._loop.create_future()
            committed.set_result(None)

    def _take_batch(self) -> Batch:
        """Remove and return the messages of the next commit.

        Calls with messages in this commit move to the end, so that no call is starved.
        """
        batch: Batch = {}
        size = 0
        with self._lock:
            for to, queue in list(self._queues.items()):
                if size < SIZE_PER_COMMIT:
                    batch[to] = queue.take()
                    size += sum(map(len, batch[to]))
                    self._queues[to] = self._queues.pop(to)
            self._size -= size
            # Under the lock: a message that is added after this starts the task again.
            self._is_scheduled = bool(batch)
        return batch

    async def _commit(self, batch: Batch) -> AppendResults:
        try:
            return await run_with_retries(
                event_log.append_many, batch, uuid.uuid4().hex, is_retry=False
            )
        except Exception:
            if len(batch) == 1:
                logger.exception("Messages of a call could not be stored")
                return dict.fromkeys(batch)
        found: AppendResults = {}
        # The messages of one call made the commit fail. Commit those of each call by themselves, so
        # that the others do not fail with it.
        for to, texts in batch.items():
            found |= await self._commit({to: texts})
        return found

    def _report(self, batch: Batch, ends: AppendResults) -> None:
        """Wake the readers of the streams, and report to calls whose messages were rejected."""
        calls_of = Counter(to.stream for to in batch)
        for to, texts in batch.items():
            end = ends[to]
            if end is None or end == FULL:
                self._reject(to, end)
                continue
            self._remove_if_empty(to)
            # Two calls may append to one stream in a commit (a batch). Then their numbers are not
            # known here, and readers read the rows.
            new = list(enumerate(texts, end - len(texts) + 1)) if calls_of[to.stream] == 1 else []
            wake_readers(StreamWakeup(to.stream, new, changed=not new))

    def _remove_if_empty(self, to: EventAddress) -> None:
        """Remove the queue of a call if it is empty, which ends ``flush``."""
        with self._lock:
            if not self._queues[to].waiting:
                del self._queues[to]

    def _reject(self, to: EventAddress, outcome: int | None) -> None:
        with self._lock:
            queue = self._queues.pop(to)
            self._size -= queue.size
        queue.on_rejected(outcome)


writer = Service(EventWriter)
