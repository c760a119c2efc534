"""Helpers for the tests of asynchronous code: an event loop that runs while a test waits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

from django_mcp.runtime import threads
from django_mcp.runtime.thread_pools import ThreadPool
from django_mcp.storage import leases, poller
from django_mcp.storage.stream_reader import StreamEnd, StreamReader
from django_mcp.storage.wakeups import StreamWakeup

T = TypeVar("T")
SECONDS = 30


def jobs_ended(*also: ThreadPool) -> None:
    """Wait until no thread pool of the package runs a job; a tool may still be stuck."""
    end = time.monotonic() + SECONDS
    while any(pool.pending() for pool in (threads.log, threads.polling, threads.lookups, *also)):
        assert time.monotonic() < end
        time.sleep(0.0005)


class Loop:
    """An event loop that runs only while the test waits, so that the test may use the ORM."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self.tasks: list[asyncio.Task[Any]] = []

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the loop, and wait for jobs: they use the connection that the test uses next."""
        try:
            return self._runner.run(work)
        finally:
            jobs_ended(threads.tools)

    def until(self, condition: Callable[[], T], seconds: float = SECONDS) -> T:
        async def waiting() -> T:
            async with asyncio.timeout(seconds):
                while not (found := condition()):  # noqa: ASYNC110 - there is no event to await
                    await asyncio.sleep(0.002)
            return found

        return self.run(waiting())

    def sleep(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))

    def do(self, function: Callable[..., T], *args: Any) -> T:
        """Call ``function`` within the loop."""

        async def called() -> T:
            return function(*args)

        return self.run(called())

    def begin(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        async def begun() -> asyncio.Task[Any]:
            return asyncio.ensure_future(work)

        task = self.run(begun())
        self.tasks.append(task)
        return task

    def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        self.sleep(0)
        self._runner.close()


@contextmanager
def a_loop(monkeypatch: pytest.MonkeyPatch, period: float = 0.02) -> Iterator[Loop]:
    """Create a loop whose poller runs every ``period`` seconds; end the heartbeat with it."""
    monkeypatch.setattr(poller, "POLL_INTERVAL_SECONDS", period)
    loop = Loop()
    try:
        yield loop
    finally:
        loop.close()
        leases.lease.end()


class Reader:
    """One connection to a stream: the events it received, and how it ended."""

    def __init__(
        self,
        loop: Loop,
        stream: Any,
        number: int = 1,
        after: int = 0,
        *,
        stalled: bool = False,
        opened: StreamWakeup | None = None,
    ) -> None:
        self.loop, self.events, self.signs = loop, [], 0
        self.ending: StreamEnd | None = None
        self.open = asyncio.Event()  # while it is cleared, the reader accepts no more events
        if not stalled:
            self.open.set()
        tail = StreamReader(stream.session_id, stream.pk, number, after, opened=opened)
        self.task = loop.begin(self._read(tail))
        loop.sleep(0)

    async def _read(self, tail: StreamReader) -> None:
        with tail:
            while not isinstance(found := await tail.events(), StreamEnd):
                self.signs += not found
                self.events += found
                await self.open.wait()
        self.ending = found

    @property
    def seqs(self) -> list[int]:
        return [seq for seq, _ in self.events]

    def until(self, count: int) -> list[tuple[int, str]]:
        self.loop.until(lambda: len(self.events) >= count)
        return self.events

    def ended(self) -> StreamEnd:
        found: StreamEnd = self.loop.until(lambda: self.ending)
        return found
