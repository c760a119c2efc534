"""Thread pools: context, limits and connections of jobs, shares of owners, stuck threads."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError as FutureCancelled
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import Error as DatabaseError
from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test import override_settings
from django.utils import timezone, translation

from django_mcp.exceptions import Busy, InputRequired, Stopped
from django_mcp.runtime import thread_pools, threads
from django_mcp.runtime.runtime import environment
from django_mcp.runtime.thread_pools import ThreadPool

from ..shop.models import Note
from .jobs import SECONDS, have_ended, raise_error, thread_name, until

# Jobs.


async def test_job_runs_in_a_thread_of_the_pool(pool):
    name = await pool.run(lambda: threading.current_thread().name)
    assert name.startswith("mcp-test")
    assert await pool.run(lambda a, *, b: a + b, 1, b=2) == 3


async def test_run_raises_the_exception_of_the_job(pool):
    for error in (KeyError("x"), TimeoutError("x"), InputRequired({}), Stopped()):
        with pytest.raises(type(error)) as raised:
            await pool.run(raise_error, error)
        assert raised.value is error


@pytest.mark.parametrize(
    "error", [StopIteration, SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError,
              FutureCancelled],
)  # fmt: skip
async def test_exceptions_that_would_stop_the_loop_become_runtime_errors(pool, error):
    with pytest.raises(RuntimeError, match=error.__name__):
        await asyncio.wait_for(pool.run(raise_error, error()), SECONDS)


VARIABLE = contextvars.ContextVar("VARIABLE", default="unset")


async def test_job_runs_in_a_copy_of_the_context_of_its_caller(pool):
    VARIABLE.set("the caller's")

    def job() -> tuple[str, str, str]:
        seen = VARIABLE.get(), translation.get_language(), timezone.get_current_timezone_name()
        VARIABLE.set("the job's")
        translation.activate("de")
        timezone.activate("Asia/Tokyo")
        return seen

    first, second = await pool.run(job), await pool.run(job)
    assert first == second == ("the caller's", "en-us", "America/Chicago")
    assert translation.get_language() == "en-us" and VARIABLE.get() == "the caller's"
    with translation.override("fr"), timezone.override("Europe/Paris"):
        assert await pool.run(job) == ("the caller's", "fr", "Europe/Paris")


# Limits.


@contextmanager
def held(pool: ThreadPool) -> Iterator[asyncio.Task[None]]:
    """Keep the pool's only thread busy until the end of the block."""
    let_go, begun = threading.Event(), threading.Event()

    def job() -> None:
        begun.set()
        assert let_go.wait(SECONDS)

    task = asyncio.ensure_future(pool.run(job))
    try:
        yield task
    finally:
        let_go.set()


@override_settings(DJANGO_MCP={"QUEUE": 1})
async def test_full_queue_raises_busy_and_runs_nothing(pool):
    done: list[int] = []
    with held(pool) as first:
        await asyncio.sleep(0)
        queued = asyncio.ensure_future(pool.run(done.append, 1))
        await asyncio.sleep(0)
        with pytest.raises(Busy, match="more work than it accepts"):
            await pool.run(done.append, 2)
    await asyncio.gather(first, queued)
    await pool.run(done.append, 3)
    assert done == [1, 3]


async def test_lookups_of_many_reconnecting_clients_are_queued():
    """All clients reconnect when a worker has ended: here 250 with two lookups each."""
    with held(threads.lookups) as first:
        await asyncio.sleep(0)
        waiting = [asyncio.ensure_future(threads.lookups.run(lambda: 1)) for _ in range(500)]
        await asyncio.sleep(0)
    await first
    assert sum(await asyncio.gather(*waiting)) == 500


@override_settings(DJANGO_MCP={"QUEUE": 1})
async def test_cancelled_job_counts_for_the_queue_until_it_is_removed(pool):
    """Otherwise a client that cancels and calls again could fill the queue without limit."""
    done: list[int] = []
    with held(pool) as first:
        await asyncio.sleep(0)
        queued = asyncio.ensure_future(pool.run(done.append, 1))
        await asyncio.sleep(0)
        queued.cancel()
        with pytest.raises(asyncio.CancelledError):
            await queued
        with pytest.raises(Busy):
            await pool.run(done.append, 2)
    await first
    await until(lambda: not pool.pending())
    await pool.run(done.append, 3)
    assert done == [3]


@pytest.mark.slow
async def test_cancelled_caller_waits_for_the_end_of_a_running_job(pool):
    begun, let_go, ended = threading.Event(), threading.Event(), threading.Event()

    def job() -> None:
        begun.set()
        assert let_go.wait(SECONDS)
        ended.set()
        raise ValueError("looked at, or the loop would complain")

    task = asyncio.ensure_future(pool.run(job))
    await until(begun.is_set)
    task.cancel()
    _, waiting = await asyncio.wait([task], timeout=0.05)
    assert waiting
    let_go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()
    gc.collect()


async def test_failed_thread_start_does_not_use_up_the_share_of_an_owner(pool, monkeypatch):
    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    ran: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        for _ in range(pool.size):
            with pytest.raises(RuntimeError, match="new thread"):
                await pool.run_for("owner", lambda: ran.append("rejected"))
    assert await asyncio.wait_for(pool.run_for("owner", int), SECONDS) == 0
    assert not ran  # the executor had queued the jobs


async def test_second_cancel_stops_the_waiting(pool):
    begun, let_go = threading.Event(), threading.Event()

    def job() -> None:
        begun.set()
        assert let_go.wait(SECONDS)

    task = asyncio.ensure_future(pool.run(job))
    await until(begun.is_set)
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    try:
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(asyncio.shield(task), 1)
    finally:
        let_go.set()


async def test_shutdown_cancels_waiting_jobs_and_the_next_job_starts_threads(pool):
    with held(pool) as first:
        await asyncio.sleep(0)
        queued = asyncio.ensure_future(pool.run(int))
        await asyncio.sleep(0)
        pool.shutdown(wait=False)
        with pytest.raises(asyncio.CancelledError):
            await queued
    await first
    assert await pool.run(lambda: 7) == 7
    pool.shutdown()
    pool.shutdown()
    assert have_ended("mcp-test") and not pool.pending()


async def test_background_job_logs_its_error(pool, caplog):
    ran: list[str] = []

    def fail() -> None:
        raise OSError("nobody hears of it")

    for job in (fail, lambda: ran.append(threading.current_thread().name)):
        pool.run_in_background(job)
    await pool.run(lambda: None)
    assert ran == ["mcp-test_0"] and "nobody hears of it" in caplog.text


def test_background_jobs_count_for_the_queue(pool):
    released = threading.Event()
    try:
        with override_settings(DJANGO_MCP={"QUEUE": 1}):
            pool.run_in_background(released.wait)
            pool.run_in_background(released.wait)
            with pytest.raises(Busy):
                pool.run_in_background(released.wait)
    finally:
        released.set()


async def test_lookups_have_their_own_threads():
    names = {await pool.run(thread_name) for pool in (threads.lookups, threads.tools)}
    assert len(names) == 2


# Connections of jobs.


async def test_broken_connection_is_closed(pool, shared_db, opened):
    def broken() -> str:
        Note.objects.count()
        connections["default"].connection.close()
        with pytest.raises(DatabaseError):
            Note.objects.count()
        return "done"

    assert await pool.run(broken) == "done"
    assert await pool.run(Note.objects.count) == 0
    assert len(set(opened)) > 1 or opened[0].connection is None


async def test_connection_that_cannot_be_closed_is_forgotten(pool, shared_db, caplog):
    def broken() -> BaseDatabaseWrapper:
        mine = connections["default"]
        transaction.atomic().__enter__()
        mine.connection.close()
        mine._close = lambda: raise_error(DatabaseError("Already closed"))
        return mine

    wrapper = await pool.run(broken)
    assert "could not be closed" in caplog.text
    assert await pool.run(lambda: connections["default"]) is not wrapper


async def test_connection_beyond_its_maximum_age_is_not_used(pool, shared_db):
    def job() -> tuple[BaseDatabaseWrapper, Any]:
        mine = connections["default"]
        mine.settings_dict = mine.settings_dict | {"CONN_MAX_AGE": 60}
        Note.objects.count()
        return mine, mine.connection

    wrapper, first = await pool.run(job)
    assert wrapper.connection is first
    assert (await pool.run(job))[1] is first
    wrapper.close_at = time.monotonic() - 1
    assert (await pool.run(job))[1] is not first
    await pool.run(environment().discard_connections)


async def test_transaction_left_open_is_rolled_back(pool, shared_db):
    def left_open() -> int:
        transaction.atomic().__enter__()
        return Note.objects.create(text="lost").text == "lost"

    assert await pool.run(left_open)
    assert await pool.run(lambda: connections["default"].in_atomic_block) is False
    assert await pool.run(Note.objects.count) == 0


async def test_discard_connections_closes_them(pool, shared_db, opened):
    def job() -> Any:
        Note.objects.count()
        before = connections["default"].connection
        environment().discard_connections()
        return before, connections["default"].connection

    before, after = await pool.run(job)
    assert before is not None and after is None


@pytest.fixture
def wide_pool():
    pool = ThreadPool("test", 4)
    yield pool
    pool.shutdown()


@pytest.fixture
def queue(settings):
    def given(number):
        settings.DJANGO_MCP = {"QUEUE": number}

    return given


def start(pool, owner, function, times=1):
    return [asyncio.ensure_future(pool.run_for(owner, function)) for _ in range(times)]


# Shares.


async def test_one_owner_gets_three_quarters_of_the_threads(wide_pool, gate):
    mine = start(wide_pool, "me", lambda: gate.wait(SECONDS), 20)
    await until(lambda: len(wide_pool._start_times) == 3)  # of four
    assert await asyncio.wait_for(wide_pool.run_for("you", lambda: "here"), SECONDS) == "here"
    assert await asyncio.wait_for(wide_pool.run(lambda: "ours"), SECONDS) == "ours"
    assert len(wide_pool._start_times) == 3
    gate.set()
    assert all(await asyncio.gather(*mine))
    await until(
        lambda: (
            not (
                wide_pool.pending()
                or wide_pool._jobs_by_owner
                or wide_pool._waiting
                or wide_pool._start_times
            )
        )
    )


async def test_jobs_of_one_owner_keep_their_order(wide_pool):
    found = []
    await asyncio.gather(*(wide_pool.run_for("me", lambda n=n: found.append(n)) for n in range(3)))
    single = ThreadPool("one", 1)
    done = [single.run_for("me", lambda n=n: found.append(n)) for n in range(10, 30)]
    await asyncio.gather(*done)
    assert found[3:] == list(range(10, 30))
    single.shutdown()


async def test_nested_owner_leaves_threads_for_others_of_its_group(wide_pool, gate):
    group, here, there = "group", "here", "there"
    mine = start(wide_pool, (group, here), lambda: gate.wait(SECONDS), 5)
    await until(lambda: len(wide_pool._start_times) == 2)  # of the three that the group may have
    assert await wide_pool.run_for((group, there), lambda: 1) == 1
    others = start(wide_pool, (group, there), lambda: gate.wait(SECONDS), 5)
    await until(lambda: len(wide_pool._start_times) == 3)
    assert await wide_pool.run_for("you", lambda: 1) == 1  # the group leaves one thread
    gate.set()
    await asyncio.gather(*mine, *others)
    assert not wide_pool._waiting
    await until(lambda: not wide_pool.pending())
    assert not (wide_pool._started_by_owner or wide_pool._jobs_by_owner)


async def test_nested_owner_leaves_queue_places_for_others_of_its_group(wide_pool, gate, queue):
    queue(12)  # of 16 places the group may have 12, and each within it 9
    mine = start(wide_pool, ("group", "here"), lambda: gate.wait(SECONDS), 9)
    await asyncio.sleep(0)
    with pytest.raises(Busy):
        await wide_pool.run_for(("group", "here"), lambda: 1)
    assert await wide_pool.run_for(("group", "there"), lambda: 1) == 1
    gate.set()
    await asyncio.gather(*mine)


async def test_one_owner_does_not_fill_the_queue(wide_pool, gate, queue):
    queue(4)
    mine = start(wide_pool, "me", lambda: gate.wait(SECONDS), 6)  # three run, three wait
    await asyncio.sleep(0)
    with pytest.raises(Busy):
        await wide_pool.run_for("me", lambda: 1)
    assert await wide_pool.run_for("you", lambda: 1) == 1
    gate.set()
    await asyncio.gather(*mine)
    assert await wide_pool.run_for("me", lambda: 1) == 1


async def test_job_cancelled_while_it_waits_does_not_run(wide_pool, gate):
    ran = []
    mine = start(wide_pool, "me", lambda: gate.wait(SECONDS), 3)
    (late,) = start(wide_pool, "me", lambda: ran.append(1))
    await until(lambda: len(wide_pool._start_times) == 3)
    late.cancel()
    with pytest.raises(asyncio.CancelledError):
        await late
    gate.set()
    await asyncio.gather(*mine)
    await until(lambda: not wide_pool.pending())
    assert ran == [] and not wide_pool._jobs_by_owner


async def test_exception_of_a_job_that_waited_is_raised(wide_pool, gate):
    mine = start(wide_pool, "me", lambda: gate.wait(SECONDS), 3)
    (late,) = start(wide_pool, "me", lambda: 1 // 0)
    await until(lambda: len(wide_pool._start_times) == 3)
    gate.set()
    with pytest.raises(ZeroDivisionError):
        await late
    await asyncio.gather(*mine)


async def test_shutdown_cancels_a_waiting_job_that_was_just_submitted(gate):
    pool, first = ThreadPool("test", 2), threading.Event()
    mine = start(pool, "me", lambda: first.wait(SECONDS))
    others = start(pool, "you", lambda: gate.wait(SECONDS))
    await until(lambda: len(pool._start_times) == 2)
    others += start(pool, "they", lambda: gate.wait(SECONDS))
    mine += start(pool, "me", lambda: 1)
    await until(lambda: pool.pending() == 4)
    first.set()
    # The job of "me" is queued after that of "they", which has begun.
    await until(lambda: not pool._waiting and len(pool._start_times) == 2)
    pool.shutdown(wait=False)
    gate.set()
    found = await asyncio.gather(*mine, return_exceptions=True)
    assert isinstance(found[1], asyncio.CancelledError)
    await asyncio.gather(*others)
    await until(lambda: not pool.pending())
    assert not pool._jobs_by_owner


async def test_shutdown_cancels_jobs_that_wait_for_their_owners_share(gate):
    pool = ThreadPool("test", 4)
    mine = start(pool, "me", lambda: gate.wait(SECONDS), 5)
    await until(lambda: len(pool._start_times) == 3)
    pool.shutdown(wait=False)
    gate.set()
    found = await asyncio.gather(*mine, return_exceptions=True)
    assert [isinstance(one, asyncio.CancelledError) for one in found] == [False] * 3 + [True] * 2
    await until(lambda: not pool.pending())
    assert not pool._jobs_by_owner and await pool.run_for("me", lambda: 1) == 1
    pool.shutdown()


# Stuck threads.


async def test_stuck_threads_are_counted_and_logged_once(wide_pool, gate, monkeypatch, caplog):
    monkeypatch.setattr(thread_pools, "STUCK_SECONDS", 0.05)
    first = start(wide_pool, "a", lambda: gate.wait(SECONDS))
    await asyncio.sleep(0.1)
    assert wide_pool.stuck() == 1 and wide_pool.is_ready()  # a quarter
    first += start(wide_pool, "b", lambda: gate.wait(SECONDS))
    await asyncio.sleep(0.1)
    assert wide_pool.stuck() == 2 and not wide_pool.is_ready()
    for _ in range(3):
        await wide_pool.run(time.monotonic)
    assert caplog.text.count("Threads are stuck: threads=2 pool=test") == 1
    gate.set()
    await asyncio.gather(*first)
    await until(lambda: not wide_pool._start_times)
    assert wide_pool.stuck() == 0 and wide_pool.is_ready()


def test_stuck_lookups_make_the_process_unready(monkeypatch):
    names = {pool.name for pool in threads.serving()}
    assert threads.is_ready() and set(threads.stuck()) == names
    monkeypatch.setattr(
        threads.lookups, "_start_times", {1: time.monotonic() - thread_pools.STUCK_SECONDS - 1}
    )
    assert threads.stuck()["lookup"] == 1 and not threads.is_ready()


# Forked children.

FORK = """
import asyncio, os, threading
from django.conf import settings
settings.configure(DATABASES={})
import django
django.setup()
from django_mcp.runtime import threads

asyncio.run(threads.log.run(int))
if child := os.fork():
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
threading.Timer(20, os._exit, [1]).start()
asyncio.run(threads.log.run(int))
os._exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_forked_child_starts_its_own_threads():
    """Otherwise its jobs would wait forever for threads that only the parent has."""
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORK], check=True, timeout=SECONDS)
