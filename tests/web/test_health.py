"""The liveness and readiness endpoints: responses, queries and reasons for 503."""

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
def no_cache(monkeypatch):
    """Every request makes its own checks."""
    monkeypatch.setattr(health, "CACHE_SECONDS", 0)


def get_health(site, which, method="GET", **more):
    exchange = site.open(method, f"/health/{which}", **more).wait()
    return exchange.status, exchange.body.decode().rstrip("\n")


@contextmanager
def count_queries():
    """Count the queries of all databases."""
    found: list[int] = []
    captured = [CaptureQueriesContext(connections[alias]) for alias in ALIASES]
    for one in captured:
        one.__enter__()
    yield found
    for one in captured:
        one.__exit__(None, None, None)
    found.append(sum(len(one) for one in captured))


def test_serving_process_is_alive_and_ready(site):
    assert get_health(site, "live") == (200, "alive")
    assert get_health(site, "ready") == (200, "ready")


def test_liveness_makes_no_query(site):
    with count_queries() as queries:
        get_health(site, "live")
    assert queries == [0]


def test_readiness_makes_one_query_per_database_and_interval(site, monkeypatch):
    monkeypatch.setattr(health, "CACHE_SECONDS", 3600)
    with count_queries() as queries:
        exchanges = [site.open("GET", "/health/ready") for _ in range(50)]
        assert {exchange.wait().status for exchange in exchanges} == {200}
        get_health(site, "ready")
    monkeypatch.setattr(health, "CACHE_SECONDS", 0)  # the interval is over
    with count_queries() as later:
        get_health(site, "ready")
    assert (queries, later) == ([len(ALIASES)], [len(ALIASES)])


@pytest.mark.parametrize("which", ["live", "ready"])
def test_endpoints_need_no_host_or_token_and_are_not_cached(site, which):
    exchange = site.open("GET", f"/health/{which}", headers={"host": "10.0.0.7:8000"}).wait()
    assert exchange.status == 200
    assert exchange.headers["cache-control"] == "no-store"
    assert get_health(site, which, "HEAD") == (200, "")
    assert get_health(site, which, "POST", body=b"x") == (405, "GET or HEAD")


def test_endpoints_are_served_only_if_configured():
    with Site() as site:
        assert site.open("GET", "/health/live").wait().status == ELSEWHERE
    with Site(mount(elsewhere, health="health")) as site:
        assert site.open("GET", "/health").wait().status == ELSEWHERE


# Reasons for 503.


@pytest.mark.parametrize("alias", sorted(ALIASES))
def test_missing_migration_is_not_ready(site, no_cache, alias):
    applied = MigrationRecorder(connections[alias]).migration_qs.filter(app="django_mcp")
    row = applied.order_by("name").last()
    applied.filter(pk=row.pk).delete()
    assert get_health(site, "ready") == (503, "not ready: migrations")
    assert get_health(site, "live") == (200, "alive")
    row.save(using=alias, force_insert=True)
    assert get_health(site, "ready") == (200, "ready")


def test_failing_database_is_not_ready(site, no_cache, caplog):
    caplog.set_level("INFO", "django_mcp")

    def gone(*args):
        raise OperationalError("FATAL: no pg_hba.conf entry for host 10.0.0.7, user secret")

    with connection.execute_wrapper(gone):
        assert get_health(site, "ready") == (503, "not ready: database")
        assert get_health(site, "ready") == (503, "not ready: database")
        assert get_health(site, "live") == (200, "alive")
    assert get_health(site, "ready") == (200, "ready")
    said = [one.getMessage() for one in caplog.records]
    assert said.count("Not ready: database") == 1 and said[-1] == "Ready"


def test_hanging_database_blocks_one_thread_and_times_out(site, no_cache, monkeypatch):
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
        assert threads.lookups.pending() == 1
        released.set()
        while threads.lookups.pending():  # noqa: ASYNC110 - threads tell nobody
            await asyncio.sleep(0.01)
        return found

    with connection.execute_wrapper(hanging):
        assert set(site.run(many())) == {(503, b"not ready: database\n")}
    assert len(entered) == 1
    assert get_health(site, "ready") == (200, "ready")


def test_shutting_down_process_is_not_ready(site):
    async def end():
        draining().is_shutting_down = True

    site.run(end())
    with count_queries() as queries:
        assert get_health(site, "ready") == (503, "not ready: shutdown")
    assert queries == [0] and get_health(site, "live") == (200, "alive")


def test_stuck_thread_pool_is_not_ready(site, monkeypatch):
    monkeypatch.setattr(thread_pools, "STUCK_SECONDS", 0.0)
    released = threading.Event()
    pool = ThreadPool("stuck", 1)
    monkeypatch.setattr(threads, "serving", lambda: (pool,))
    pool.submit(lambda: released.wait(20))
    try:
        site.until(lambda: pool.stuck())
        assert get_health(site, "ready") == (503, "not ready: threads")
    finally:
        released.set()
        pool.shutdown()


def test_late_heartbeat_is_not_ready(site, monkeypatch):
    monkeypatch.setattr(lease, "_id", "somebody")
    monkeypatch.setattr(lease, "_thread", threading.current_thread())
    monkeypatch.setattr(lease, "_beaten_at", -1e9)
    assert get_health(site, "ready") == (503, "not ready: heartbeat")


def test_disabled_migrations_are_ready(site, no_cache, settings):
    health._migration_names.cache_clear()
    settings.MIGRATION_MODULES = {"django_mcp": None}
    for alias in ALIASES:
        MigrationRecorder(connections[alias]).migration_qs.filter(app="django_mcp").delete()
    try:
        assert get_health(site, "ready") == (200, "ready")
    finally:
        health._migration_names.cache_clear()
