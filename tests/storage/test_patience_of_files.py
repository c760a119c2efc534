"""Waiting for the one lock of a SQLite file that is the log's own."""

from __future__ import annotations

import time
from contextlib import contextmanager
from threading import Thread, Timer

import pytest
from django.db import OperationalError, connections
from django.db.backends.sqlite3.base import DatabaseWrapper

from django_mcp.storage import databases, sqlite
from django_mcp.storage.databases import codes
from django_mcp.storage.jobs import insistently

from .rows import given

LOG = "log"


@pytest.fixture
def opened(tmp_path, django_db_blocker):
    """Opens connections to one file, by the options that differ from those of ``sqlite()``."""
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
def beginning(connection):
    """As ``atomic`` begins, for a connection that has no name."""
    connection.set_autocommit(False, force_begin_transaction_with_broken_autocommit=True)
    try:
        yield
    finally:
        connection.rollback()
        connection.set_autocommit(True)


def counted(connection):
    """The statements that this connection has tried to execute."""
    tried = []

    def wrapper(execute, sql, *others):
        tried.append(sql)
        return execute(sql, *others)

    connection.ensure_connection()
    connection.execute_wrappers.append(wrapper)
    return tried


def test_the_lock_is_asked_for_often_and_had_once_it_is_free(opened):
    holding, waiting = opened(), opened()
    tried = counted(waiting)
    with beginning(holding):
        begun = Thread(target=lambda: waiting.set_autocommit(False, True))
        begun.start()
        while len(tried) < 10:
            time.sleep(0.01)
        assert begun.is_alive()
    begun.join(5)
    assert waiting.in_atomic_block is False and not waiting.autocommit
    waiting.rollback()
    assert set(tried) == {"BEGIN IMMEDIATE"}


def test_who_has_waited_longer_asks_more_often():
    first, later, last = (databases._pause(waited) for waited in (0, 0.5, 20))
    assert (
        first == databases.FIRST_PAUSE_SECONDS and databases.MIN_PAUSE_SECONDS < later < first / 5
    )
    assert last == databases.MIN_PAUSE_SECONDS


def test_a_statement_of_its_own_waits_too(opened):
    holding, waiting = opened(), opened()
    with waiting.cursor() as cursor:
        cursor.execute("CREATE TABLE a (b)")
    tried = counted(waiting)
    with beginning(holding):
        writing = Thread(target=lambda: waiting.cursor().execute("INSERT INTO a VALUES (1)"))
        writing.start()
        while len(tried) < 10:
            time.sleep(0.01)
    writing.join(5)
    assert waiting.cursor().execute("SELECT count(*) FROM a").fetchone() == (1,)


def test_nobody_waits_longer_than_the_project_says(opened):
    holding, waiting = opened(), opened(timeout=0.1)
    tried = counted(waiting)
    with beginning(holding), pytest.raises(OperationalError) as caught:
        waiting.set_autocommit(False, True)
    assert "SQLITE_BUSY" in codes(caught.value) and len(tried) > 1


@pytest.mark.parametrize("options", [{"transaction_mode": None}, {"init_command": ""}])
def test_what_may_wait_within_a_transaction_is_left_to_sqlite(opened, options):
    connection = opened(**options)
    tried = counted(connection)
    assert connection.cursor().execute("PRAGMA busy_timeout").fetchone() == (20_000,)
    assert databases._in_turn not in connection.execute_wrappers and tried


def test_a_connection_that_is_made_anew_waits_once(opened):
    connection = opened()
    for _ in range(3):
        connection.connect()
        connection.close()
    connection.connect()
    assert connection.execute_wrappers.count(databases._in_turn) == 1
    assert connection.cursor().execute("PRAGMA busy_timeout").fetchone() == (0,)


@pytest.mark.parametrize("log", ["default", LOG])
def test_the_projects_own_files_are_left_alone(opened, log):
    with given(DATABASE=log):
        connection = opened("default")
        connection.connect()
    assert connection.execute_wrappers == []
    assert connection.cursor().execute("PRAGMA busy_timeout").fetchone() == (20_000,)


def test_a_wrapper_of_the_projects_own_goes_when_it_is_over(opened):
    connection = opened()
    with connection.execute_wrapper(lambda execute, *statement: execute(*statement)):
        connection.connect()
    assert connection.execute_wrappers == [databases._in_turn]


def test_of_several_statements_none_is_done_twice(opened):
    """Each is committed by itself, and another has the lock between two of them."""
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


def test_other_errors_come_at_once(opened):
    connection = opened()
    tried = counted(connection)
    with pytest.raises(OperationalError, match="no such table"):
        connection.cursor().execute("SELECT * FROM nowhere")
    assert len(tried) == 1


def test_a_thread_insists_where_the_lock_is_held_for_longer(opened):
    """With the patience that the file's options give to one statement it would have failed."""
    holding, waiting = opened(), opened(timeout=0.05)
    waiting.cursor().execute("CREATE TABLE kept (value)")
    tried = []

    def keep():
        tried.append(time.monotonic())
        waiting.cursor().execute("INSERT INTO kept VALUES (1)")

    with beginning(holding):
        writing = Thread(target=lambda: insistently(keep))
        writing.start()
        while len(tried) < 3:
            time.sleep(0.01)
    writing.join(30)
    assert waiting.cursor().execute("SELECT value FROM kept").fetchall() == [(1,)]
