"""Processes killed within a transaction: the response agrees with what was committed."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import pytest
from django.db import connection

from django_mcp.calls.recovery import UNDONE

from .processes import SECONDS, text

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        connection.vendor == "sqlite", reason="SQLite has one writer, which is the tool"
    ),
]


@pytest.fixture
def begin(begin, database):
    return partial(begin, RESTARTS_DATABASE=database)


@pytest.fixture
def killed(begin, connect):
    """Kill a tool. Return the message that its client gets, and how often its row exists."""

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
    return int(client.call("find", name=name).tool_text())


def _until(condition) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_writes_of_a_killed_tool_are_rolled_back_and_reported(killed):
    answer, count = killed("write", "a", "a was begun")
    assert text(answer) == UNDONE and count == 0


def test_killed_transactional_tool_runs_again(killed):
    answer, count = killed("pure", "b", "b was begun")
    assert text(answer) == "written" and count == 1


def test_interrupted_step_is_done_by_the_next_run(killed):
    answer, count = killed("in_steps", "c", "c was begun")
    assert text(answer) == "written" and count == 1


def test_committed_result_is_sent_by_another_process(killed):
    answer, count = killed("hook", "d", "d")
    assert text(answer) == "written" and count == 1
