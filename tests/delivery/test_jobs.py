"""Asking the log: until it answers, and once for each loop."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3

import pytest
from django.db import IntegrityError, InterfaceError, InternalError, OperationalError

from django_mcp import threads
from django_mcp.delivery import jobs
from django_mcp.delivery.jobs import PerLoop, insistently, is_away, surely
from django_mcp.exceptions import Busy


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    monkeypatch.setattr(jobs, "FIRST_PAUSE", 0.001)


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
    raised = error("words")
    raised.__cause__ = Exception()
    raised.__cause__.sqlstate = code  # type: ignore[attr-defined]
    return raised


@pytest.mark.parametrize("code", ["54000", 1153])
async def test_what_is_more_than_the_log_can_take_is_not_tried_again(code):
    with pytest.raises(OperationalError):
        await surely(failing(coded(code)))


@pytest.mark.parametrize(
    ("error", "away"),
    [
        (OperationalError("connection refused"), True),
        (InterfaceError(0, ""), True),
        (coded(2006), True),
        (coded(1213), True),
        (coded(1054), False),  # no such column
        (coded("57P01"), True),
        (coded("08006"), True),
        (coded("57014"), False),  # it takes longer than the project allows
        (coded("25P02", InternalError), False),
        (ValueError("connection refused"), False),
    ],
)
def test_what_is_away_and_what_was_wrong(error, away):
    assert is_away(error) is away


def while_others_succeed(error, times):
    """It fails so often, each time after another job has succeeded."""
    work = failing(*[error] * times)

    def function():
        jobs._successes += 1
        return work()

    return function


async def test_what_breaks_off_one_job_alone_is_not_tried_for_ever(monkeypatch):
    monkeypatch.setattr(jobs, "LONGEST_PAUSE", 0.001)
    lost = coded(2006)
    with pytest.raises(OperationalError):
        await surely(while_others_succeed(lost, jobs.ATTEMPTS))
    await surely(while_others_succeed(lost, jobs.ATTEMPTS - 1))
    await surely(failing(*[lost] * 2 * jobs.ATTEMPTS))


@pytest.mark.parametrize(
    "error",
    [coded("55P03"), coded(1205), coded("25006", InternalError), coded(1290), coded("53300")],
)
async def test_what_time_mends_is_tried_as_long_as_it_takes(monkeypatch, error):
    monkeypatch.setattr(jobs, "LONGEST_PAUSE", 0.001)
    await surely(while_others_succeed(error, 2 * jobs.ATTEMPTS))


@pytest.mark.parametrize(("code", "is_kept"), [("55P03", True), ("25006", False), (1290, False)])
async def test_who_cannot_write_here_connects_anew(monkeypatch, code, is_kept):
    closed = []
    monkeypatch.setattr(threads, "discard_connections", lambda: closed.append(True))
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
    monkeypatch.setattr(jobs, "FIRST_PAUSE", 60)
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
    monkeypatch.setattr(jobs, "INSISTS", 0.0)
    with pytest.raises(OperationalError, match="gone"):
        insistently(failing(error))


def test_there_is_one_for_each_loop_and_none_for_those_that_ended():
    made = PerLoop(object)

    async def one():
        assert made() is made()
        return made()

    first, second = asyncio.run(one()), asyncio.run(one())
    assert first is not second and [thing for _, thing in made.items()] == [second]
