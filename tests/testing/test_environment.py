"""``TestEnvironment``: code in all threads uses the database connections of the test."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest
from asgiref.sync import sync_to_async
from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test import TestCase, TransactionTestCase

from django_mcp.runtime import threads
from django_mcp.runtime.async_orm import orm_in_own_thread
from django_mcp.runtime.runtime import environment
from django_mcp.runtime.thread_pools import ThreadPool
from django_mcp.storage.leases import lease
from django_mcp.testing import environment as test_environment
from django_mcp.testing.environment import TestEnvironment

from ..runtime.jobs import SECONDS, raise_error, until
from ..shop.models import Note, Tag


@pytest.fixture
def pool() -> Iterator[ThreadPool]:
    """Yield a pool of one thread."""
    pool = ThreadPool("test", 1)
    yield pool
    pool.shutdown()


def count(text: str) -> int:
    return Tag.objects.filter(label=text).count()


async def count_in_job_and_async(text: str) -> tuple[int, int]:
    """Return the number of rows that a job and an asynchronous query find."""
    async with orm_in_own_thread():
        return await threads.tools.run(count, text), await Tag.objects.filter(label=text).acount()


def test_jobs_see_the_rows_of_the_test(db):
    Tag.objects.create(label="mine")
    assert asyncio.run(count_in_job_and_async("mine")) == (1, 1)


async def test_jobs_see_the_rows_of_an_async_test(db):
    await Tag.objects.acreate(label="mine")
    assert await count_in_job_and_async("mine") == (1, 1)


def test_test_sees_what_a_job_writes(db):
    asyncio.run(threads.tools.run(Tag.objects.create, label="theirs"))
    assert count("theirs") == 1


class TestsOfDjango(TestCase):
    """Rows that jobs create are rolled back, so each method begins without them."""

    def setUp(self) -> None:
        self.enterContext(TestEnvironment().installed())
        Tag.objects.create(label="mine")

    def test_sync(self) -> None:
        self.assertEqual(asyncio.run(count_in_job_and_async("mine")), (1, 1))
        asyncio.run(threads.tools.run(Tag.objects.create, label="theirs"))

    async def test_async(self) -> None:
        self.assertEqual(await count_in_job_and_async("mine"), (1, 1))
        self.assertEqual(await Tag.objects.acount(), 1)
        await threads.tools.run(Tag.objects.create, label="theirs")

    async def test_async_again(self) -> None:
        self.assertEqual(await Tag.objects.acount(), 1)
        await threads.tools.run(Tag.objects.create, label="theirs")


class TransactionTestsOfDjango(TransactionTestCase):
    def setUp(self) -> None:
        self.enterContext(TestEnvironment().installed())
        Tag.objects.create(label="mine")

    def test_sync(self) -> None:
        self.assertEqual(asyncio.run(count_in_job_and_async("mine")), (1, 1))

    async def test_async(self) -> None:
        self.assertEqual(await count_in_job_and_async("mine"), (1, 1))

    def test_hooks_run_at_the_commit(self) -> None:
        events: list[str] = []

        def job() -> None:
            with transaction.atomic():
                transaction.on_commit(lambda: events.append("committed"))
                self.assertEqual(events, [])
            events.append("job over")

        asyncio.run(threads.tools.run(job))
        self.assertEqual(events, ["committed", "job over"])


async def test_jobs_run_one_at_a_time(db):
    running, most = [0], [0]

    def job() -> None:
        running[0] += 1
        most[0] = max(most[0], running[0])
        list(Tag.objects.all())
        time.sleep(0.001)
        running[0] -= 1

    async def asynchronous() -> None:
        async with orm_in_own_thread():
            await sync_to_async(job)()

    jobs = [threads.tools.run(job) for _ in range(10)]
    await asyncio.gather(*jobs, *(asynchronous() for _ in range(10)))
    assert most == [1]


async def test_waiting_asynchronous_call_does_not_block_jobs(db):
    released = asyncio.Event()

    async def waiting() -> int:
        async with orm_in_own_thread():
            await Tag.objects.acreate(label="one")
            await released.wait()
            return await Tag.objects.acount()

    task = asyncio.ensure_future(waiting())
    async with asyncio.timeout(SECONDS):
        while not await threads.tools.run(count, "one"):
            pass
        await threads.tools.run(Tag.objects.create, label="two")
        released.set()
        assert await task == 2


def test_commit_hooks_run_after_each_job(db):
    events: list[str] = []

    def job() -> None:
        with transaction.atomic():
            transaction.on_commit(lambda: events.append("first"))
            transaction.on_commit(another)
        events.append("job")

    def another() -> None:
        transaction.on_commit(lambda: events.append("of a hook"))

    transaction.on_commit(lambda: events.append("hook of the test, which never runs"))
    asyncio.run(threads.tools.run(job))
    assert events == ["job", "first", "of a hook"]


def test_commit_hooks_of_a_rolled_back_transaction_do_not_run(db):
    events: list[str] = []

    def job() -> None:
        transaction.on_commit(lambda: events.append("committed"))
        with transaction.atomic():
            transaction.on_commit(lambda: events.append("rolled back"))
            raise ValueError

    with pytest.raises(ValueError):
        asyncio.run(threads.tools.run(job))
    assert events == ["committed"]


def test_failing_commit_hook_fails_the_job_unless_it_is_robust(db, caplog):
    events: list[str] = []

    def job(robust: bool) -> str:
        transaction.on_commit(lambda: raise_error(ValueError("hook")), robust=robust)
        transaction.on_commit(lambda: events.append("next"))
        return "done"

    assert asyncio.run(threads.tools.run(job, True)) == "done"
    assert events == ["next"] and "A robust commit hook failed" in caplog.text
    with pytest.raises(ValueError, match="hook"):
        asyncio.run(threads.tools.run(job, False))


def test_thread_gets_its_own_connection_back(pool, shared_db):
    def job() -> BaseDatabaseWrapper:
        return connections["default"]

    own = asyncio.run(pool.run(job))
    with TestEnvironment([connections["default"]]).installed():
        assert Note.objects.count() == 0
        assert asyncio.run(pool.run(job)) is connections["default"]
        asyncio.run(pool.run(environment().discard_connections))
        assert connections["default"].connection is not None
    assert asyncio.run(pool.run(job)) is own is not connections["default"]


def test_environments_can_be_nested(db):
    with TestEnvironment().installed():
        pass
    assert asyncio.run(threads.tools.run(lambda: connections["default"])) is connections["default"]


def test_each_environment_has_a_lease_of_its_own(db):
    """The row of a lease is rolled back with the test that began it."""
    with TestEnvironment().installed():
        first = lease.hold()
        assert lease.hold() == first
    with TestEnvironment().installed():
        assert lease.hold() != first


def test_job_that_outlives_the_test_is_an_error(pool, transactional_db, monkeypatch):
    monkeypatch.setattr(test_environment, "LAST_JOB_TIMEOUT_SECONDS", 0.01)
    begun, released = threading.Event(), threading.Event()

    def job() -> None:
        begun.set()
        assert released.wait(SECONDS)

    async def outlived() -> None:
        task = asyncio.ensure_future(pool.run(job))
        await until(begun.is_set)
        with pytest.raises(RuntimeError, match="still running at the end of the test"):
            adopted.__exit__(None, None, None)
        released.set()
        await task

    adopted = TestEnvironment().installed()
    adopted.__enter__()
    asyncio.run(outlived())


def test_background_jobs_do_not_run(pool, db):
    ran: list[int] = []
    pool.run_in_background(lambda: ran.append(1))
    pool.shutdown()
    assert ran == []


def test_background_job_of_a_test_does_not_run_after_it(pool):
    ran: list[int] = []
    released = threading.Event()
    pool.run_in_background(released.wait)
    with TestEnvironment().installed():
        pool.run_in_background(lambda: ran.append(1))
    released.set()
    pool.wait(lambda: None, SECONDS)
    assert ran == []
