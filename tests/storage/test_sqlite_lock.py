"""The session database in its own SQLite file: its options, and waiting for its one lock."""

from __future__ import annotations

import time
from contextlib import contextmanager
from threading import Thread, Timer

import pytest
from django.db import OperationalError, connections
from django.db.backends.sqlite3.base import DatabaseWrapper

from django_mcp.storage import databases, sqlite
from django_mcp.storage.databases import codes
from django_mcp.storage.jobs import run_here_with_retries

from .rows import given

LOG = "log"


@pytest.fixture
def opened(tmp_path, django_db_blocker):
    """Open connections to one file, with ``options`` that override those of ``sqlite()``."""
    made = []

    def open(alias=LOG, **options):
        entry = connections["default"].settings_dict | sqlite(tmp_path / "log.sqlite3")
        entry["OPTIONS"] |= options
        made.append(DatabaseWrapper(entry, alias))
        made[-1].inc_thread_sharing()
        return made[-1]

    with django_db_blocker.unblock(), given(DATABASE=LOG):
        yield open
        for connection in made:
            connection.close()


@contextmanager
def transaction_on(connection):
    """Begin a transaction as ``atomic`` does, on a connection without an alias."""
    connection.set_autocommit(False, force_begin_transaction_with_broken_autocommit=True)
    try:
        yield
    finally:
        connection.rollback()
        connection.set_autocommit(True)


def recorded_statements(connection):
    """Return the list of statements that this connection tries to execute."""
    tried = []

    def wrapper(execute, sql, *others):
        tried.append(sql)
        return execute(sql, *others)

    connection.ensure_connection()
    connection.execute_wrappers.append(wrapper)
    return tried


def test_waiting_connection_retries_until_the_lock_is_free(opened):
    holding, waiting = opened(), opened()
    tried = recorded_statements(waiting)
    with transaction_on(holding):
        begun = Thread(target=lambda: waiting.set_autocommit(False, True))
        begun.start()
        while len(tried) < 10:
            time.sleep(0.01)
        assert begun.is_alive()
    begun.join(5)
    assert waiting.in_atomic_block is False and not waiting.autocommit
    waiting.rollback()
    assert set(tried) == {"BEGIN IMMEDIATE"}


def test_pause_between_retries_shrinks_with_the_waiting_time():
    first, later, last = (databases._pause(waited) for waited in (0, 0.5, 20))
    assert (
        first == databases.FIRST_PAUSE_SECONDS and databases.MIN_PAUSE_SECONDS < later < first / 5
    )
    assert last == databases.MIN_PAUSE_SECONDS


def test_statement_outside_a_transaction_waits_for_the_lock(opened):
    holding, waiting = opened(), opened()
    with waiting.cursor() as cursor:
        cursor.execute("CREATE TABLE a (b)")
    tried = recorded_statements(waiting)
    with transaction_on(holding):
        writing = Thread(target=lambda: waiting.cursor().execute("INSERT INTO a VALUES (1)"))
        writing.start()
        while len(tried) < 10:
            time.sleep(0.01)
    writing.join(5)
    assert waiting.cursor().execute("SELECT count(*) FROM a").fetchone() == (1,)


def test_waiting_ends_after_the_timeout_of_the_project(opened):
    holding, waiting = opened(), opened(timeout=0.1)
    tried = recorded_statements(waiting)
    with transaction_on(holding), pytest.raises(OperationalError) as caught:
        waiting.set_autocommit(False, True)
    assert "SQLITE_BUSY" in codes(caught.value) and len(tried) > 1


@pytest.mark.parametrize("options", [{"transaction_mode": None}, {"init_command": ""}])
def test_other_transaction_modes_use_the_busy_timeout_of_sqlite(opened, options):
    connection = opened(**options)
    tried = recorded_statements(connection)
    assert connection.cursor().execute("PRAGMA busy_timeout").fetchone() == (20_000,)
    assert databases._retry_while_locked not in connection.execute_wrappers and tried


def test_reconnecting_installs_the_wrapper_once(opened):
    connection = opened()
    for _ in range(3):
        connection.connect()
        connection.close()
    connection.connect()
    assert connection.execute_wrappers.count(databases._retry_while_locked) == 1
    assert connection.cursor().execute("PRAGMA busy_timeout").fetchone() == (0,)


@pytest.mark.parametrize("log", ["default", LOG])
def test_sqlite_files_of_the_project_are_left_alone(opened, log):
    with given(DATABASE=log):
        connection = opened("default")
        connection.connect()
    assert connection.execute_wrappers == []
    assert connection.cursor().execute("PRAGMA busy_timeout").fetchone() == (20_000,)


def test_wrapper_of_the_project_is_removed_after_its_block(opened):
    connection = opened()
    with connection.execute_wrapper(lambda execute, *statement: execute(*statement)):
        connection.connect()
    assert connection.execute_wrappers == [databases._retry_while_locked]


def test_executemany_executes_no_row_twice(opened):
    """Each row is committed by itself, and another connection locks between two of them."""
    holding, writing = opened(), opened()
    with writing.cursor() as cursor:
        cursor.execute("CREATE TABLE a (b)")

    def rows():
        for number in range(6):
            if number == 3:
                holding.set_autocommit(False, True)
                Timer(0.3, lambda: (holding.rollback(), holding.set_autocommit(True))).start()
            yield (number,)

    writing.cursor().executemany("INSERT INTO a VALUES (%s)", rows())
    found = writing.cursor().execute("SELECT b FROM a ORDER BY b").fetchall()
    assert [number for (number,) in found] == list(range(6))


def test_other_errors_are_raised_at_once(opened):
    connection = opened()
    tried = recorded_statements(connection)
    with pytest.raises(OperationalError, match="no such table"):
        connection.cursor().execute("SELECT * FROM nowhere")
    assert len(tried) == 1


def test_insistently_retries_after_the_busy_timeout(opened):
    """A single statement would have failed with the timeout of the file's options."""
    holding, waiting = opened(), opened(timeout=0.05)
    waiting.cursor().execute("CREATE TABLE kept (value)")
    tried = []

    def keep():
        tried.append(time.monotonic())
        waiting.cursor().execute("INSERT INTO kept VALUES (1)")

    with transaction_on(holding):
        writing = Thread(target=lambda: run_here_with_retries(keep))
        writing.start()
        while len(tried) < 3:
            time.sleep(0.01)
    writing.join(30)
    assert waiting.cursor().execute("SELECT value FROM kept").fetchall() == [(1,)]


def test_sqlite_options_set_wal_mode_and_immediate_transactions(tmp_path, django_db_blocker):
    alias = "a test's own"
    connections.settings[alias] = connections.settings["default"] | sqlite(tmp_path / "a.sqlite3")
    connection = connections.create_connection(alias)
    try:
        with django_db_blocker.unblock(), connection.cursor() as cursor:
            found = [
                cursor.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("journal_mode", "synchronous", "busy_timeout")
            ]
        assert found == ["wal", 1, 20_000] and connection.transaction_mode == "IMMEDIATE"
    finally:
        connection.close()
        del connections.settings[alias]
