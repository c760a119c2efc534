"""Threads: contexts, bounds, connections; and the test's own connections."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError as FutureCancelled
from contextlib import contextmanager
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.conf import settings as django_settings
from django.db import Error as DatabaseError
from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.test import TestCase, TransactionTestCase, override_settings
from django.utils import timezone, translation

from django_mcp import adoption, threads
from django_mcp.exceptions import Asked, Busy, Stopped, Unwound

from .shop.models import Note, Tag

SECONDS = 60  # to wait for what comes at once, however busy the machine is


@pytest.fixture
def pool() -> Iterator[threads.Pool]:
    """A pool of one thread."""
    made = threads.Pool("test", lambda: 1)
    yield made
    made.shutdown()


@pytest.fixture
def opened() -> Iterator[list[BaseDatabaseWrapper]]:
    """The connections that were opened during the test."""
    found: list[BaseDatabaseWrapper] = []

    def note(sender: Any, connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
        found.append(connection)

    connection_created.connect(note)
    yield found
    connection_created.disconnect(note)


def gone(prefix: str) -> bool:
    """Whether the threads of that name have ended, after a moment if need be."""
    for thread in threading.enumerate():
        if thread.name.startswith(prefix):
            thread.join(SECONDS)
    return not any(thread.name.startswith(prefix) for thread in threading.enumerate())


# Jobs.


async def test_a_job_runs_in_a_thread_of_the_pool(pool):
    name = await pool.run(lambda: threading.current_thread().name)
    assert name.startswith("mcp-test")
    assert await pool.run(lambda a, *, b: a + b, 1, b=2) == 3


async def test_what_a_job_raises_is_raised(pool):
    for error in (KeyError("x"), TimeoutError("x"), Asked({}), Stopped()):
        with pytest.raises(type(error)) as raised:
            await pool.run(_raise, error)
        assert raised.value is error


def _raise(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    "error", [StopIteration, SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError,
              FutureCancelled],
)  # fmt: skip
async def test_no_error_of_a_job_means_something_to_the_loop(pool, error):
    with pytest.raises(RuntimeError, match=error.__name__):
        await asyncio.wait_for(pool.run(_raise, error()), SECONDS)


VARIABLE = contextvars.ContextVar("VARIABLE", default="unset")


async def test_a_job_sees_the_context_of_its_caller_and_leaves_none(pool):
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


# Bounds.


@contextmanager
def held(pool: threads.Pool) -> Iterator[asyncio.Task[None]]:
    """The pool's only thread is busy until the end of the block."""
    let_go, begun = threading.Event(), threading.Event()

    def job() -> None:
        begun.set()
        assert let_go.wait(SECONDS)

    task = asyncio.ensure_future(pool.run(job))
    try:
        yield task
    finally:
        let_go.set()


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110 - what threads do sets no asyncio.Event
            await asyncio.sleep(0.001)


@override_settings(DJANGO_MCP={"QUEUE": 1})
async def test_beyond_the_queue_nothing_happens(pool):
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


@override_settings(DJANGO_MCP={"QUEUE": 1})
async def test_giving_up_frees_no_place_before_its_time(pool):
    """Or whoever cancels and calls again would queue without bound."""
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
    await until(lambda: not pool._pending)
    await pool.run(done.append, 3)
    assert done == [3]


async def test_who_gives_up_a_running_job_waits_for_its_end(pool):
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


async def test_who_gives_up_twice_waits_for_nothing(pool):
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


async def test_a_pool_that_is_shut_down_refuses_what_waits_and_begins_anew(pool):
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
    assert gone("mcp-test") and not pool._pending


async def test_a_job_that_nobody_waits_for(pool, caplog):
    ran: list[str] = []

    def fail() -> None:
        raise OSError("nobody hears of it")

    for job in (fail, lambda: ran.append(threading.current_thread().name)):
        pool.begin(job)
    await pool.run(lambda: None)
    assert ran == ["mcp-test_0"] and "nobody hears of it" in caplog.text


def test_jobs_that_nobody_waits_for_are_bounded_too(pool):
    released = threading.Event()
    try:
        with override_settings(DJANGO_MCP={"QUEUE": 1}):
            pool.begin(released.wait)
            pool.begin(released.wait)
            with pytest.raises(Busy):
                pool.begin(released.wait)
    finally:
        released.set()


def test_a_test_gets_no_job_that_nobody_waits_for(pool, db):
    ran: list[int] = []
    pool.begin(lambda: ran.append(1))
    pool.shutdown()
    assert ran == []


def test_what_a_test_began_is_not_done_when_it_is_over(pool):
    ran: list[int] = []
    released = threading.Event()
    pool.begin(released.wait)
    with threads.adopt():
        pool.begin(lambda: ran.append(1))
    released.set()
    pool.wait(lambda: None, SECONDS)
    assert ran == []


async def test_look_ups_have_threads_of_their_own():
    names = {await pool.run(_thread_name) for pool in (threads.lookups, threads.tools)}
    assert len(names) == 2


def _thread_name() -> str:
    return threading.current_thread().name


# Connections of jobs.


async def test_a_broken_connection_is_closed(pool, shared_db, opened):
    def broken() -> str:
        Note.objects.count()
        connections["default"].connection.close()
        with pytest.raises(DatabaseError):
            Note.objects.count()
        return "done"

    assert await pool.run(broken) == "done"
    assert await pool.run(Note.objects.count) == 0
    assert len(set(opened)) > 1 or opened[0].connection is None


async def test_a_connection_that_cannot_be_closed_is_forgotten(pool, shared_db, caplog):
    def broken() -> BaseDatabaseWrapper:
        mine = connections["default"]
        transaction.atomic().__enter__()
        mine.connection.close()
        mine._close = lambda: _raise(DatabaseError("Already closed"))
        return mine

    wrapper = await pool.run(broken)
    assert "could not be closed" in caplog.text
    assert await pool.run(lambda: connections["default"]) is not wrapper


async def test_a_connection_that_grew_old_while_idle_is_not_used(pool, shared_db):
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
    await pool.run(threads.discard_connections)


async def test_a_transaction_left_open_is_undone(pool, shared_db):
    def left_open() -> int:
        transaction.atomic().__enter__()
        return Note.objects.create(text="lost").text == "lost"

    assert await pool.run(left_open)
    assert await pool.run(lambda: connections["default"].in_atomic_block) is False
    assert await pool.run(Note.objects.count) == 0


async def test_connections_in_doubt_are_discarded(pool, shared_db, opened):
    def job() -> Any:
        Note.objects.count()
        before = connections["default"].connection
        threads.discard_connections()
        return before, connections["default"].connection

    before, after = await pool.run(job)
    assert before is not None and after is None


# The ORM of asynchronous code.


async def test_ten_queries_at_once_run_in_ten_threads_that_end(shared_db, opened):
    note = await threads.tools.run(Note.objects.create, text="hello")
    together = threading.Barrier(10)

    def meet(sender: Any, connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
        together.wait(SECONDS)

    async def one() -> str:
        async with threads.sensitive():
            return (await Note.objects.aget(pk=note.pk)).text

    opened.clear()
    connection_created.connect(meet)
    try:
        assert await asyncio.gather(*(one() for _ in range(10))) == ["hello"] * 10
    finally:
        connection_created.disconnect(meet)
    assert len(set(opened)) == 10 and all(one.connection is None for one in opened)
    assert gone("mcp-async")


async def test_a_call_that_touches_no_database_has_no_thread():
    before = threading.active_count()
    async with threads.sensitive():
        assert threading.active_count() == before
    assert threading.active_count() == before


async def test_all_awaits_of_a_call_share_a_thread():
    async with threads.sensitive():
        idents = {await sync_to_async(threading.get_ident)() for _ in range(3)}
        assert len(idents) == 1 and threading.get_ident() not in idents
        with pytest.raises(RuntimeError, match="StopIteration"):
            await sync_to_async(_raise)(StopIteration())
    assert gone("mcp-async")


def test_under_async_to_sync_it_is_the_calls_own_thread_too():
    async def call() -> str:
        async with threads.sensitive():
            inside = await sync_to_async(_thread_name)()
        assert await sync_to_async(_thread_name)() == "MainThread"
        return inside

    assert async_to_sync(call)().startswith("mcp-async")


async def test_a_cancelled_call_closes_its_connections_after_its_query(shared_db, opened):
    begun, let_go = threading.Event(), threading.Event()

    def slow() -> int:
        begun.set()
        assert let_go.wait(SECONDS)
        return Note.objects.count()

    async def call() -> None:
        async with threads.sensitive():
            await sync_to_async(slow)()

    opened.clear()
    task = asyncio.ensure_future(call())
    await until(begun.is_set)
    task.cancel()
    let_go.set()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, SECONDS)
    assert gone("mcp-async")
    assert len(opened) == 1 and opened[0].connection is None


# Tests see their own rows.


def count(text: str) -> int:
    return Tag.objects.filter(label=text).count()


async def both_ways(text: str) -> tuple[int, int]:
    """What a job sees, and what an asynchronous call does."""
    async with threads.sensitive():
        return await threads.tools.run(count, text), await Tag.objects.filter(label=text).acount()


def test_a_test_sees_its_own_rows(db):
    Tag.objects.create(label="mine")
    assert asyncio.run(both_ways("mine")) == (1, 1)


async def test_an_async_test_sees_its_own_rows(db):
    await Tag.objects.acreate(label="mine")
    assert await both_ways("mine") == (1, 1)


def test_what_a_job_writes_the_test_sees(db):
    asyncio.run(threads.tools.run(Tag.objects.create, label="theirs"))
    assert count("theirs") == 1


class TestsOfDjango(TestCase):
    """Each method begins with no row, so rows of jobs are rolled back too."""

    def setUp(self) -> None:
        self.enterContext(threads.adopt())
        Tag.objects.create(label="mine")

    def test_sync(self) -> None:
        self.assertEqual(asyncio.run(both_ways("mine")), (1, 1))
        asyncio.run(threads.tools.run(Tag.objects.create, label="theirs"))

    async def test_async(self) -> None:
        self.assertEqual(await both_ways("mine"), (1, 1))
        self.assertEqual(await Tag.objects.acount(), 1)
        await threads.tools.run(Tag.objects.create, label="theirs")

    async def test_async_again(self) -> None:
        self.assertEqual(await Tag.objects.acount(), 1)
        await threads.tools.run(Tag.objects.create, label="theirs")


class TransactionTestsOfDjango(TransactionTestCase):
    def setUp(self) -> None:
        self.enterContext(threads.adopt())
        Tag.objects.create(label="mine")

    def test_sync(self) -> None:
        self.assertEqual(asyncio.run(both_ways("mine")), (1, 1))

    async def test_async(self) -> None:
        self.assertEqual(await both_ways("mine"), (1, 1))

    def test_hooks_run_at_the_commit(self) -> None:
        said: list[str] = []

        def job() -> None:
            with transaction.atomic():
                transaction.on_commit(lambda: said.append("committed"))
                self.assertEqual(said, [])
            said.append("job over")

        asyncio.run(threads.tools.run(job))
        self.assertEqual(said, ["committed", "job over"])


async def test_one_job_at_a_time(db):
    running, most = [0], [0]

    def job() -> None:
        running[0] += 1
        most[0] = max(most[0], running[0])
        list(Tag.objects.all())
        time.sleep(0.001)
        running[0] -= 1

    async def asynchronous() -> None:
        async with threads.sensitive():
            await sync_to_async(job)()

    jobs = [threads.tools.run(job) for _ in range(10)]
    await asyncio.gather(*jobs, *(asynchronous() for _ in range(10)))
    assert most == [1]


async def test_an_asynchronous_call_that_waits_keeps_nobody_from_working(db):
    let_go = asyncio.Event()

    async def waiting() -> int:
        async with threads.sensitive():
            await Tag.objects.acreate(label="one")
            await let_go.wait()
            return await Tag.objects.acount()

    task = asyncio.ensure_future(waiting())
    async with asyncio.timeout(SECONDS):
        while not await threads.tools.run(count, "one"):
            pass
        await threads.tools.run(Tag.objects.create, label="two")
        let_go.set()
        assert await task == 2


def test_commit_hooks_run_after_each_job(db):
    said: list[str] = []

    def job() -> None:
        with transaction.atomic():
            transaction.on_commit(lambda: said.append("first"))
            transaction.on_commit(another)
        said.append("job")

    def another() -> None:
        transaction.on_commit(lambda: said.append("of a hook"))

    transaction.on_commit(lambda: said.append("the test's own, which waits for ever"))
    asyncio.run(threads.tools.run(job))
    assert said == ["job", "first", "of a hook"]


def test_hooks_of_what_was_rolled_back_do_not_run(db):
    said: list[str] = []

    def job() -> None:
        transaction.on_commit(lambda: said.append("committed"))
        with transaction.atomic():
            transaction.on_commit(lambda: said.append("rolled back"))
            raise ValueError

    with pytest.raises(ValueError):
        asyncio.run(threads.tools.run(job))
    assert said == ["committed"]


def test_a_hook_that_fails_fails_the_job_unless_it_is_robust(db, caplog):
    said: list[str] = []

    def job(robust: bool) -> str:
        transaction.on_commit(lambda: _raise(ValueError("hook")), robust=robust)
        transaction.on_commit(lambda: said.append("next"))
        return "done"

    assert asyncio.run(threads.tools.run(job, True)) == "done"
    assert said == ["next"] and "A robust commit hook failed" in caplog.text
    with pytest.raises(ValueError, match="hook"):
        asyncio.run(threads.tools.run(job, False))


def test_a_thread_gets_its_own_connection_back(pool, shared_db):
    def job() -> BaseDatabaseWrapper:
        return connections["default"]

    own = asyncio.run(pool.run(job))
    with threads.adopt([connections["default"]]):
        assert Note.objects.count() == 0
        assert asyncio.run(pool.run(job)) is connections["default"]
        asyncio.run(pool.run(threads.discard_connections))
        assert connections["default"].connection is not None
    assert asyncio.run(pool.run(job)) is own is not connections["default"]


def test_adopting_twice_ends_twice(db):
    with threads.adopt():
        pass
    assert asyncio.run(threads.tools.run(lambda: connections["default"])) is connections["default"]


def test_a_test_must_not_end_before_its_jobs(pool, transactional_db, monkeypatch):
    monkeypatch.setattr(adoption, "PATIENCE", 0.01)
    begun, let_go = threading.Event(), threading.Event()

    def job() -> None:
        begun.set()
        assert let_go.wait(SECONDS)

    async def outlived() -> None:
        task = asyncio.ensure_future(pool.run(job))
        await until(begun.is_set)
        with pytest.raises(RuntimeError, match="still running at the end of the test"):
            adopted.__exit__(None, None, None)
        let_go.set()
        await task

    adopted = threads.adopt()
    adopted.__enter__()
    asyncio.run(outlived())


def test_unwinding_is_no_exception():
    assert not issubclass(Unwound, Exception)
    assert django_settings.TIME_ZONE == "America/Chicago"
