"""The event loop of a synchronous client."""

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


def test_loop_runs_only_while_the_test_waits(loop):
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


def test_callback_runs_in_the_thread_of_the_test_outside_of_the_loop(loop):
    def job(one: int) -> int:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        assert threading.current_thread() is threading.main_thread()
        return one + 1

    async def work() -> int:
        return sum(await asyncio.gather(loop.call(job, 1), loop.call(job, 2)))

    assert loop.run(work()) == 5


def test_exception_of_a_callback_is_raised_in_the_coroutine(loop):
    async def work() -> str:
        try:
            await loop.call(lambda: 1 / 0)
        except ZeroDivisionError:
            return "seen"
        return "lost"

    assert loop.run(work()) == "seen"


def test_callback_may_run_the_loop(loop):
    async def nothing() -> int:
        return 1

    async def work() -> int:
        found: int = await loop.call(lambda: loop.run(nothing()))
        return found

    assert loop.run(work()) == 1


def test_coroutine_has_the_context_variables_of_the_test(loop):
    async def seen() -> int:
        return value.get()

    for one in (1, 2):
        value.set(one)
        assert loop.run(seen()) == one
    value.set(0)


def test_keyboard_interrupt_cancels_the_coroutine(loop):
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


async def test_running_inside_another_loop_raises(loop):
    with pytest.raises(RuntimeError, match="use AsyncClient"):
        loop.run(asyncio.sleep(0))


def test_loop_waits_for_database_jobs(loop, db):
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


def test_waiting_for_database_jobs_times_out(db):
    held = threading.Event()
    future = threads.log.submit(held.wait)
    begun = time.monotonic()
    wait_for_jobs(seconds=0.05)
    assert time.monotonic() - begun < 5 and not are_connections_free()
    held.set()
    future.result()
