"""Asking the log: until it answers, and once for each loop."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3

import pytest
from django.db import IntegrityError, InterfaceError, InternalError, OperationalError

from django_mcp.exceptions import Busy
from django_mcp.runtime import threads
from django_mcp.runtime.runtime import Environment
from django_mcp.storage import jobs
from django_mcp.storage.jobs import insistently, is_away, surely

from ..unreachable import raised, unreachable


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    monkeypatch.setattr(jobs, "FIRST_PAUSE_SECONDS", 0.001)


def failing(*errors, value="done"):
    """A function that raises these, one after the other, and then returns."""
    left = list(errors)

    def function(**options):
        if left:
            raise left.pop(0)
        return value, options

    return function


@pytest.mark.parametrize("error", [OperationalError("gone"), InterfaceError("closed")])
async def test_a_broken_connection_is_tried_again(error):
    assert await surely(failing(error, error)) == ("done", {})


async def test_a_job_that_may_have_been_done_is_told_so():
    assert await surely(failing(), again=False) == ("done", {"again": False})
    assert await surely(failing(OperationalError("gone")), again=False) == ("done", {"again": True})


async def test_any_other_error_is_the_callers():
    with pytest.raises(IntegrityError):
        await surely(failing(IntegrityError("twice")))


async def test_a_table_that_is_missing_is_not_waited_for():
    missing = OperationalError("no such table: django_mcp_session")
    missing.__cause__ = sqlite3.OperationalError("no such table: django_mcp_session")
    missing.__cause__.sqlite_errorname = "SQLITE_ERROR"  # type: ignore[attr-defined]
    with pytest.raises(OperationalError, match="no such table"):
        await surely(failing(missing))
    assert not is_away(missing)


async def test_sqlite_names_it_so():
    connection = sqlite3.connect(":memory:")
    with contextlib.closing(connection), pytest.raises(sqlite3.OperationalError) as caught:
        connection.execute("SELECT 1 FROM missing")
    assert caught.value.sqlite_errorname == "SQLITE_ERROR"


def coded(code, error=OperationalError):
    """As Django raises what psycopg does; or MySQLdb, which numbers it."""
    if isinstance(code, int):
        return error(code, "words")
    made = error("words")
    made.__cause__ = Exception()
    name = "sqlite_errorname" if code.startswith("SQLITE") else "sqlstate"
    vars(made.__cause__)[name] = code
    return made


def with_sqlstate(error, state):
    """As some drivers of MariaDB raise it."""
    error.__cause__ = Exception()
    vars(error.__cause__)["sqlstate"] = state
    return error


@pytest.mark.parametrize("code", ["54000", 1153])
async def test_what_is_more_than_the_log_can_take_is_not_tried_again(code):
    with pytest.raises(OperationalError):
        await surely(failing(coded(code)))


@pytest.mark.parametrize(
    ("error", "away"),
    [
        (OperationalError("the connection is closed"), False),  # and the connection works
        (InterfaceError("the cursor is closed"), False),
        (coded("SQLITE_CANTOPEN"), True),  # a file of the journal
        (coded("SQLITE_CANTOPEN_ISDIR"), True),
        (coded("SQLITE_BUSY"), True),
        (coded("SQLITE_IOERR"), False),
        (OperationalError(1927, "Connection was killed"), True),  # of MariaDB
        (InterfaceError(0, ""), False),
        (coded(2006), False),
        (coded(1213), True),
        (coded(1054), False),  # no such column
        (coded("57P01"), True),
        (coded("08006"), True),
        (coded("57014"), False),  # it takes longer than the project allows
        (coded("25P02", InternalError), False),
        (coded(1153), False),  # a statement that is too long, and the connection is closed
        (with_sqlstate(OperationalError(1153, "words"), "08S01"), False),
    ],
)
def test_what_is_away_and_what_was_wrong(error, away):
    assert is_away(raised(error)) is away


def test_database_that_cannot_be_opened_is_away():
    assert is_away(unreachable())


def test_error_that_no_connection_of_djangos_raised_says_nothing_of_a_database():
    assert not is_away(coded("57P01")) and not is_away(OperationalError("gone"))


def while_others_succeed(error, times):
    """It fails so often, each time after another job has succeeded."""
    work = failing(*[error] * times)

    def function():
        jobs.counts.successes += 1
        return work()

    return function


async def test_what_breaks_off_one_job_alone_is_not_tried_for_ever(monkeypatch):
    monkeypatch.setattr(jobs, "MAX_PAUSE_SECONDS", 0.001)
    lost = coded(2006)
    with pytest.raises(OperationalError):
        await surely(while_others_succeed(lost, jobs.MAX_FAILURES))
    await surely(while_others_succeed(lost, jobs.MAX_FAILURES - 1))
    await surely(failing(*[lost] * 2 * jobs.MAX_FAILURES))


@pytest.mark.parametrize(
    "error",
    [coded("55P03"), coded(1205), coded("25006", InternalError), coded(1290), coded("53300")],
)
async def test_what_time_mends_is_tried_as_long_as_it_takes(monkeypatch, error):
    monkeypatch.setattr(jobs, "MAX_PAUSE_SECONDS", 0.001)
    await surely(while_others_succeed(error, 2 * jobs.MAX_FAILURES))


@pytest.mark.parametrize(("code", "is_kept"), [("55P03", True), ("25006", False), (1290, False)])
async def test_who_cannot_write_here_connects_anew(monkeypatch, code, is_kept):
    closed = []
    monkeypatch.setattr(Environment, "discard_connections", lambda self: closed.append(True))
    await surely(failing(coded(code)))
    assert closed == [True] * (not is_kept)


async def test_what_the_function_refuses_is_refused():
    with pytest.raises(Busy, match="too many"):
        await surely(failing(Busy("too many")))


async def test_a_full_queue_is_waited_for(monkeypatch):
    run, refused = threads.log.run, [1, 2, 3]

    async def full(*args, **options):
        if refused:
            refused.pop()
            raise Busy
        return await run(*args, **options)

    monkeypatch.setattr(threads.log, "run", full)
    assert await surely(failing(), again=False) == ("done", {"again": False})


async def test_who_no_longer_waits_is_let_go(monkeypatch):
    monkeypatch.setattr(jobs, "FIRST_PAUSE_SECONDS", 60)
    task = asyncio.ensure_future(surely(failing(OperationalError("gone"))))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_thread_insists_and_not_for_ever(monkeypatch):
    error = OperationalError("gone")
    assert insistently(failing(error, error)) == ("done", {})
    with pytest.raises(IntegrityError):
        insistently(failing(IntegrityError("twice")))
    monkeypatch.setattr(jobs, "RETRY_FOR_SECONDS", 0.0)
    with pytest.raises(OperationalError, match="gone"):
        insistently(failing(error))


@pytest.mark.parametrize("state", ["53400", "58P01", "58P02"])
def test_error_that_a_statement_causes_is_no_outage(state):
    assert not is_away(raised(coded(state)))
    assert is_away(raised(coded("58030")))
