"""The two addresses for those who watch a process: what they say, and what they cost."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager

import pytest
from django.db import OperationalError, connection, connections
from django.db.migrations.recorder import MigrationRecorder
from django.test.utils import CaptureQueriesContext

from django_mcp.conf import settings as ours
from django_mcp.routing import mount
from django_mcp.runtime import thread_pools, threads
from django_mcp.runtime.thread_pools import ThreadPool
from django_mcp.storage.leases import lease
from django_mcp.transports.http.shutdown import draining
from django_mcp.web import health
from tests.http import ELSEWHERE, Site, elsewhere

pytestmark = pytest.mark.django_db
ALIASES = {"default", ours.DATABASE}


@pytest.fixture
def site():
    with Site(mount(elsewhere, health="/health/")) as made:
        yield made


@pytest.fixture
def fresh(monkeypatch):
    """Every request is answered by a look of its own."""
    monkeypatch.setattr(health, "CACHE_SECONDS", 0)


def asked(site, which, method="GET", **more):
    talk = site.open(method, f"/health/{which}", **more).wait()
    return talk.status, talk.body.decode().rstrip("\n")


@contextmanager
def counted():
    """The queries of all databases, in the end."""
    found: list[int] = []
    captured = [CaptureQueriesContext(connections[alias]) for alias in ALIASES]
    for one in captured:
        one.__enter__()
    yield found
    for one in captured:
        one.__exit__(None, None, None)
    found.append(sum(len(one) for one in captured))


def test_a_process_that_serves_is_alive_and_ready(site):
    assert asked(site, "live") == (200, "alive")
    assert asked(site, "ready") == (200, "ready")


def test_nobody_is_asked_whether_it_is_alive(site):
    with counted() as queries:
        asked(site, "live")
    assert queries == [0]


def test_a_database_is_asked_one_question_a_second_however_often_it_is_asked(site, monkeypatch):
    monkeypatch.setattr(health, "CACHE_SECONDS", 0.2)
    with counted() as queries:
        talks = [site.open("GET", "/health/ready") for _ in range(50)]
        assert {talk.wait().status for talk in talks} == {200}
    with counted() as no_more:
        asked(site, "ready")
    site.sleep(0.25)
    with counted() as later:
        asked(site, "ready")
    assert (queries, later) == ([len(ALIASES)], [len(ALIASES)]) and no_more[0] <= len(ALIASES)


@pytest.mark.parametrize("which", ["live", "ready"])
def test_no_host_and_no_token_are_needed_and_nothing_may_keep_it(site, which):
    talk = site.open("GET", f"/health/{which}", headers={"host": "10.0.0.7:8000"}).wait()
    assert talk.status == 200
    assert talk.headers["cache-control"] == "no-store"
    assert asked(site, which, "HEAD") == (200, "")
    assert asked(site, which, "POST", body=b"x") == (405, "GET or HEAD")


def test_nothing_is_there_unless_it_is_asked_for():
    with Site() as site:
        assert site.open("GET", "/health/live").wait().status == ELSEWHERE
    with Site(mount(elsewhere, health="health")) as site:
        assert site.open("GET", "/health").wait().status == ELSEWHERE


# What keeps clients away.


@pytest.mark.parametrize("alias", sorted(ALIASES))
def test_a_migration_is_lacking(site, fresh, alias):
    applied = MigrationRecorder(connections[alias]).migration_qs.filter(app="django_mcp")
    row = applied.order_by("name").last()
    applied.filter(pk=row.pk).delete()
    assert asked(site, "ready") == (503, "not ready: migrations")
    assert asked(site, "live") == (200, "alive")
    row.save(using=alias, force_insert=True)
    assert asked(site, "ready") == (200, "ready")


def test_a_database_that_fails(site, fresh, caplog):
    caplog.set_level("INFO", "django_mcp")

    def gone(*args):
        raise OperationalError("FATAL: no pg_hba.conf entry for host 10.0.0.7, user secret")

    with connection.execute_wrapper(gone):
        assert asked(site, "ready") == (503, "not ready: database")
        assert asked(site, "ready") == (503, "not ready: database")
        assert asked(site, "live") == (200, "alive")
    assert asked(site, "ready") == (200, "ready")
    said = [one.getMessage() for one in caplog.records]
    assert said.count("Not ready: database") == 1 and said[-1] == "Ready"


def test_a_database_that_hangs_holds_one_thread_and_nobody_for_long(site, fresh, monkeypatch):
    monkeypatch.setattr(health, "TIMEOUT_SECONDS", 0.1)
    released, entered = threading.Event(), []

    def hanging(execute, *args):
        entered.append(1)
        released.wait(20)
        return execute(*args)

    async def many():
        async def one():
            said = []

            async def send(message):
                said.append(message)

            await health.ready({"method": "GET"}, None, send)
            return said[0]["status"], said[1]["body"]

        found = await asyncio.gather(*(one() for _ in range(20)))
        assert threads.lookups._pending == 1
        released.set()
        while threads.lookups._pending:  # noqa: ASYNC110 - threads tell nobody
            await asyncio.sleep(0.01)
        return found

    with connection.execute_wrapper(hanging):
        assert set(site.run(many())) == {(503, b"not ready: database\n")}
    assert len(entered) == 1
    assert asked(site, "ready") == (200, "ready")


def test_a_process_that_ends(site):
    async def end():
        draining().ending = True

    site.run(end())
    with counted() as queries:
        assert asked(site, "ready") == (503, "not ready: ending")
    assert queries == [0] and asked(site, "live") == (200, "alive")


def test_a_pool_full_of_what_is_stuck(site, monkeypatch):
    monkeypatch.setattr(thread_pools, "STUCK_SECONDS", 0.0)
    released = threading.Event()
    pool = ThreadPool("stuck", 1)
    monkeypatch.setattr(threads, "serving", lambda: (pool,))
    pool._submit(lambda: released.wait(20))
    try:
        site.until(lambda: pool.stuck())
        assert asked(site, "ready") == (503, "not ready: threads")
    finally:
        released.set()
        pool.shutdown()


def test_a_process_that_may_be_taken_for_dead(site, monkeypatch):
    monkeypatch.setattr(lease, "_id", "somebody")
    monkeypatch.setattr(lease, "_thread", threading.current_thread())
    monkeypatch.setattr(lease, "_beaten_at", -1e9)
    assert asked(site, "ready") == (503, "not ready: heartbeat")


def test_where_the_tables_are_made_without_migrations_none_is_lacking(site, fresh, settings):
    health._migration_names.cache_clear()
    settings.MIGRATION_MODULES = {"django_mcp": None}
    for alias in ALIASES:
        MigrationRecorder(connections[alias]).migration_qs.filter(app="django_mcp").delete()
    try:
        assert asked(site, "ready") == (200, "ready")
    finally:
        health._migration_names.cache_clear()
