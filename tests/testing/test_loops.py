"""The loop of a synchronous client."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar

import pytest

from django_mcp.runtime import threads
from django_mcp.testing.client import Loop
from django_mcp.testing.environment import are_connections_free, wait_for_jobs

value: ContextVar[int] = ContextVar("value", default=0)


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.close()


def test_it_runs_while_somebody_waits(loop):
    ticks = []

    async def tick() -> None:
        while True:
            ticks.append(1)
            await asyncio.sleep(0)

    async def begin() -> asyncio.Task[None]:
        return asyncio.ensure_future(tick())

    task = loop.run(begin())
    before = len(ticks)
    time.sleep(0.01)
    assert len(ticks) == before
    loop.run(asyncio.sleep(0.001))
    assert len(ticks) > before
    task.cancel()
    loop.run(asyncio.sleep(0))


def test_errands_are_done_by_the_tests_thread_outside_of_the_loop(loop):
    def errand(one: int) -> int:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        assert threading.current_thread() is threading.main_thread()
        return one + 1

    async def work() -> int:
        return sum(await asyncio.gather(loop.call(errand, 1), loop.call(errand, 2)))

    assert loop.run(work()) == 5


def test_what_an_errand_raises_is_raised_where_it_was_wanted(loop):
    async def work() -> str:
        try:
            await loop.call(lambda: 1 / 0)
        except ZeroDivisionError:
            return "seen"
        return "lost"

    assert loop.run(work()) == "seen"


def test_an_errand_may_use_the_loop_which_stands_still(loop):
    async def nothing() -> int:
        return 1

    async def work() -> int:
        found: int = await loop.call(lambda: loop.run(nothing()))
        return found

    assert loop.run(work()) == 1


def test_work_sees_the_context_of_the_test(loop):
    async def seen() -> int:
        return value.get()

    for one in (1, 2):
        value.set(one)
        assert loop.run(seen()) == one
    value.set(0)


def test_what_is_interrupted_is_cancelled(loop):
    cancelled = []

    async def work() -> None:
        try:
            await loop.call(interrupt)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        loop.run(work())
    loop.run(asyncio.sleep(0))
    assert cancelled


async def test_where_a_loop_runs_it_says_so(loop):
    with pytest.raises(RuntimeError, match="use AsyncClient"):
        loop.run(asyncio.sleep(0))


def test_jobs_are_waited_for(loop, db):
    done = []

    def job() -> None:
        time.sleep(0.02)
        done.append(1)

    async def begin() -> None:
        loop.background = asyncio.ensure_future(threads.log.run(job))
        await asyncio.sleep(0)

    loop.run(begin())
    assert done and are_connections_free()
    loop.run(asyncio.wait_for(loop.background, 30))


def test_but_not_for_ever(db):
    held = threading.Event()
    future = threads.log._submit(held.wait)
    begun = time.monotonic()
    wait_for_jobs(seconds=0.05)
    assert time.monotonic() - begun < 5 and not are_connections_free()
    held.set()
    future.result()
