"""Asking the log: until it answers, and once for each loop."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3

import pytest
from django.db import IntegrityError, InterfaceError, OperationalError

from django_mcp import threads
from django_mcp.delivery import jobs
from django_mcp.delivery.jobs import PerLoop, surely
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


async def test_sqlite_names_it_so():
    connection = sqlite3.connect(":memory:")
    with contextlib.closing(connection), pytest.raises(sqlite3.OperationalError) as caught:
        connection.execute("SELECT 1 FROM missing")
    assert caught.value.sqlite_errorname == "SQLITE_ERROR"


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


def test_there_is_one_for_each_loop_and_none_for_those_that_ended():
    made = PerLoop(object)

    async def one():
        assert made() is made()
        return made()

    first, second = asyncio.run(one()), asyncio.run(one())
    assert first is not second and [thing for _, thing in made.items()] == [second]
