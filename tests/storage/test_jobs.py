"""Jobs on the session database: which errors are retried, and which count as an outage."""

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
from django_mcp.storage.jobs import is_away, run_here_with_retries, run_with_retries

from ..unreachable import raised, unreachable


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    monkeypatch.setattr(jobs, "FIRST_PAUSE_SECONDS", 0.001)


def failing(*errors, value="done"):
    """Return a function that raises these errors in turn, and then returns."""
    left = list(errors)

    def function(**options):
        if left:
            raise left.pop(0)
        return value, options

    return function


@pytest.mark.parametrize("error", [OperationalError("gone"), InterfaceError("closed")])
async def test_job_is_retried_after_a_broken_connection(error):
    assert await run_with_retries(failing(error, error)) == ("done", {})


async def test_retried_job_learns_that_it_may_have_been_done():
    assert await run_with_retries(failing(), is_retry=False) == ("done", {"is_retry": False})
    assert await run_with_retries(failing(OperationalError("gone")), is_retry=False) == (
        "done",
        {"is_retry": True},
    )


async def test_other_database_errors_are_raised():
    with pytest.raises(IntegrityError):
        await run_with_retries(failing(IntegrityError("twice")))


async def test_missing_table_is_raised_and_not_retried():
    missing = OperationalError("no such table: django_mcp_session")
    missing.__cause__ = sqlite3.OperationalError("no such table: django_mcp_session")
    missing.__cause__.sqlite_errorname = "SQLITE_ERROR"  # type: ignore[attr-defined]
    with pytest.raises(OperationalError, match="no such table"):
        await run_with_retries(failing(missing))
    assert not is_away(missing)


async def test_sqlite_reports_a_missing_table_as_sqlite_error():
    connection = sqlite3.connect(":memory:")
    with contextlib.closing(connection), pytest.raises(sqlite3.OperationalError) as caught:
        connection.execute("SELECT 1 FROM missing")
    assert caught.value.sqlite_errorname == "SQLITE_ERROR"


def coded(code, error=OperationalError):
    """Return an error as Django raises those of psycopg, or of MySQLdb, which has numbers."""
    if isinstance(code, int):
        return error(code, "words")
    made = error("words")
    made.__cause__ = Exception()
    name = "sqlite_errorname" if code.startswith("SQLITE") else "sqlstate"
    vars(made.__cause__)[name] = code
    return made


def with_sqlstate(error, state):
    """Return an error as some drivers of MariaDB raise it."""
    error.__cause__ = Exception()
    vars(error.__cause__)["sqlstate"] = state
    return error


@pytest.mark.parametrize("code", ["54000", 1153])
async def test_statement_above_the_size_limit_is_not_retried(code):
    with pytest.raises(OperationalError):
        await run_with_retries(failing(coded(code)))


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
        (coded("57014"), False),  # statement timeout of the project
        (coded("25P02", InternalError), False),
        (coded(1153), False),  # a statement that is too long, and the connection is closed
        (with_sqlstate(OperationalError(1153, "words"), "08S01"), False),
    ],
)
def test_error_codes_tell_an_outage_from_a_wrong_statement(error, away):
    assert is_away(raised(error)) is away


def test_database_that_cannot_be_opened_is_an_outage():
    assert is_away(unreachable())


def test_error_without_a_django_connection_is_no_outage():
    assert not is_away(coded("57P01")) and not is_away(OperationalError("gone"))


def while_others_succeed(error, times):
    """Return a function that fails ``times`` times, each after another job has succeeded."""
    work = failing(*[error] * times)

    def function():
        jobs.counts.successes += 1
        return work()

    return function


async def test_job_that_fails_while_others_succeed_is_given_up(monkeypatch):
    monkeypatch.setattr(jobs, "MAX_PAUSE_SECONDS", 0.001)
    lost = coded(2006)
    with pytest.raises(OperationalError):
        await run_with_retries(while_others_succeed(lost, jobs.MAX_FAILURES))
    await run_with_retries(while_others_succeed(lost, jobs.MAX_FAILURES - 1))
    await run_with_retries(failing(*[lost] * 2 * jobs.MAX_FAILURES))


@pytest.mark.parametrize(
    "error",
    [coded("55P03"), coded(1205), coded("25006", InternalError), coded(1290), coded("53300")],
)
async def test_temporary_errors_are_retried_without_limit(monkeypatch, error):
    monkeypatch.setattr(jobs, "MAX_PAUSE_SECONDS", 0.001)
    await run_with_retries(while_others_succeed(error, 2 * jobs.MAX_FAILURES))


@pytest.mark.parametrize(("code", "is_kept"), [("55P03", True), ("25006", False), (1290, False)])
async def test_read_only_connection_is_discarded_before_the_retry(monkeypatch, code, is_kept):
    closed = []
    monkeypatch.setattr(Environment, "discard_connections", lambda self: closed.append(True))
    await run_with_retries(failing(coded(code)))
    assert closed == [True] * (not is_kept)


async def test_busy_from_the_job_itself_is_raised():
    with pytest.raises(Busy, match="too many"):
        await run_with_retries(failing(Busy("too many")))


async def test_full_thread_pool_is_retried(monkeypatch):
    run, refused = threads.log.run, [1, 2, 3]

    async def full(*args, **options):
        if refused:
            refused.pop()
            raise Busy
        return await run(*args, **options)

    monkeypatch.setattr(threads.log, "run", full)
    assert await run_with_retries(failing(), is_retry=False) == ("done", {"is_retry": False})


async def test_cancelled_task_stops_retrying(monkeypatch):
    monkeypatch.setattr(jobs, "FIRST_PAUSE_SECONDS", 60)
    task = asyncio.ensure_future(run_with_retries(failing(OperationalError("gone"))))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_insistently_retries_for_a_limited_time(monkeypatch):
    error = OperationalError("gone")
    assert run_here_with_retries(failing(error, error)) == ("done", {})
    with pytest.raises(IntegrityError):
        run_here_with_retries(failing(IntegrityError("twice")))
    monkeypatch.setattr(jobs, "RETRY_FOR_SECONDS", 0.0)
    with pytest.raises(OperationalError, match="gone"):
        run_here_with_retries(failing(error))


@pytest.mark.parametrize("state", ["53400", "58P01", "58P02"])
def test_resource_errors_of_one_statement_are_no_outage(state):
    assert not is_away(raised(coded(state)))
    assert is_away(raised(coded("58030")))
