"""Lock and idle timeouts: a process that hangs in a transaction does not stop the others."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from django.db import DatabaseError, OperationalError, connections, transaction
from django.db.models import F

from django_mcp.conf import settings
from django_mcp.exceptions import TooLarge
from django_mcp.models import Call, Session, Stream
from django_mcp.runtime import threads
from django_mcp.storage import calls, databases, event_log, leases, poller, sessions, streams
from django_mcp.storage import leases as processes
from django_mcp.storage.databases import LOCKS, codes, one_transaction, rows
from django_mcp.storage.jobs import BROKEN, run_with_retries

from .loops import a_loop
from .rows import call, session
from .test_poller import FakeCallRunner

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _many_writers():
    if connections[settings.DATABASE].vendor == "sqlite":
        pytest.skip("SQLite has one lock for all rows")


@contextmanager
def locked_rows(found):
    """Simulate another process that hangs in a transaction that has changed these rows."""
    with ThreadPoolExecutor(1) as pool:

        def begin():
            transaction.set_autocommit(False, using=settings.DATABASE)
            found.update(id=F("id"))

        def end():
            """Roll back explicitly: a server notices a closed connection only later."""
            transaction.rollback(using=settings.DATABASE)
            connections.close_all()

        pool.submit(begin).result()
        try:
            yield
        finally:
            pool.submit(end).result()


def in_log_thread(function, *args) -> Future:
    return threads.log.submit(lambda: function(*args))


@pytest.mark.parametrize("model", [Call, Stream])
def test_locked_call_does_not_prevent_takeover_of_others(model):
    processes.begin("mine")
    made = session()
    held, free = (
        streams.open(made, calls=[call(id, process="dead")]).call_set.get() for id in (1, 2)
    )
    pk = held.pk if model is Call else held.stream_id
    with locked_rows(rows(model).filter(pk=pk)):
        began = time.monotonic()
        assert [one.pk for one in calls.take_over_orphans("mine")] == [free.pk]
        assert time.monotonic() - began < databases.LOCK_TIMEOUT_SECONDS
    assert [one.pk for one in calls.take_over_orphans("mine")] == [held.pk]


def test_poller_skips_locked_calls_and_takes_them_over_later(monkeypatch):
    monkeypatch.setattr(leases, "LEASE_SECONDS", 1.5)
    processes.begin("dead")
    made = session()
    held, free = (
        streams.open(made, calls=[call(id, process="dead")]).call_set.get() for id in (1, 2)
    )
    with a_loop(monkeypatch) as loop:
        runner = FakeCallRunner()
        with locked_rows(rows(Stream).filter(pk=held.stream_id)):
            loop.do(lambda: setattr(poller.poller(), "call_manager", runner))
            loop.until(lambda: [one.pk for one in runner.taken] == [free.pk])
        loop.until(lambda: [one.pk for one in runner.taken] == [free.pk, held.pk])
        loop.do(lambda: setattr(poller.poller(), "call_manager", None))


def test_waiting_for_a_lock_times_out():
    made = session()
    with locked_rows(rows(Session).filter(pk=made.pk)):
        with pytest.raises(BROKEN) as caught:
            in_log_thread(sessions.lock, made.pk).result(timeout=databases.LOCK_TIMEOUT_SECONDS + 5)
        assert codes(caught.value) & LOCKS
        sessions.touch_connected([made.pk])
    in_log_thread(sessions.lock, made.pk).result()


def test_idle_transaction_is_ended_by_the_database(monkeypatch):
    monkeypatch.setattr(databases, "IDLE_TIMEOUT_SECONDS", 1)
    threads.log.shutdown()
    made, stands = session(), 3

    @one_transaction
    def stand_still():
        sessions.lock(made.pk)
        time.sleep(stands)
        sessions.lock(made.pk)

    standing = in_log_thread(stand_still)
    time.sleep(stands / 2)
    began = time.monotonic()
    sessions.lock(made.pk)
    assert time.monotonic() - began < 1.4
    with pytest.raises(BROKEN):
        standing.result()
    in_log_thread(sessions.lock, made.pk).result()
    threads.log.shutdown()


def test_connections_of_the_project_keep_their_timeouts():
    assert _limits() == _limits(threads.tools) != _limits(threads.log)


def test_pooled_connection_is_limited_for_one_transaction(monkeypatch):
    connection = connections[settings.DATABASE]
    if connection.vendor != "postgresql":
        pytest.skip("only PostgreSQL sets this for one transaction")
    before = _limits()
    monkeypatch.setitem(connection.settings_dict, "DISABLE_SERVER_SIDE_CURSORS", True)
    assert _limits() == before != one_transaction(_limits)() and _limits() == before


def _limits(pool=None):
    if pool is not None:
        return pool.submit(_limits).result()
    connection = connections[settings.DATABASE]
    names = {
        "postgresql": "current_setting('lock_timeout'),"
        " current_setting('idle_in_transaction_session_timeout')",
        "mysql": "@@innodb_lock_wait_timeout, @@idle_transaction_timeout",
    }
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {names[connection.vendor]}")
        return cursor.fetchone()


def test_response_above_the_packet_limit_of_mariadb_is_not_retried():
    connection = connections[settings.DATABASE]
    if connection.vendor != "mysql":
        pytest.skip("accepts a gigabyte")
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@max_allowed_packet")
        (most,) = cursor.fetchone()
    stream = streams.open(session(), calls=[one := call()])
    answer = '"' * (most // 2 + 1)  # each is escaped
    began = time.monotonic()
    with pytest.raises(TooLarge, match="Ask for less"):
        asyncio.run(run_with_retries(event_log.finish, one.pk, 0, answer, stream.pk))
    assert time.monotonic() - began < 5  # nothing was sent, and nothing is retried
    assert event_log.finish(one.pk, 0, "{}", stream.pk)


def test_error_code_of_a_lock_timeout_is_recognized():
    error = OperationalError(1205, "Lock wait timeout exceeded")
    assert codes(error) == {1205} and codes(DatabaseError()) == set()
