"""Processes that are killed within a transaction: what was written and what is told are one."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import pytest
from django.db import connection

from django_mcp.calls.recovery import UNDONE

from .wire import SECONDS, text

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        connection.vendor == "sqlite", reason="SQLite's one writer is the tool: its outcome follows"
    ),
]


@pytest.fixture
def begin(begin, database):
    return partial(begin, RESTARTS_DATABASE=database)


@pytest.fixture
def killed(begin, connect):
    """The message that a client gets whose tool is killed, and how often what it wrote is there."""

    def run(tool: str, name: str, written: str) -> tuple[dict[str, Any], int]:
        first = begin(lease=3)
        client = connect(first.port)
        cursor = client.call(tool, name=name).primed()
        second = begin(lease=3)
        client.port = second.port
        _until(lambda: _found(client, written))
        first.kill()
        (*_, answer) = client.get(cursor)
        return answer, _found(client, name)

    return run


def _found(client, name: str) -> int:
    return int(client.call("find", name=name).said())


def _until(condition) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_what_a_killed_tool_wrote_is_undone_and_said_to_be(killed):
    answer, count = killed("write", "a", "a was begun")
    assert text(answer) == UNDONE and count == 0


def test_what_is_all_in_its_transaction_runs_again(killed):
    answer, count = killed("pure", "b", "b was begun")
    assert text(answer) == "written" and count == 1


def test_a_step_that_was_cut_off_is_done_by_the_next_run(killed):
    answer, count = killed("in_steps", "c", "c was begun")
    assert text(answer) == "written" and count == 1


def test_what_was_committed_is_told_by_another(killed):
    answer, count = killed("hook", "d", "d")
    assert text(answer) == "written" and count == 1
