"""Processes: a counter each."""

import pytest

from django_mcp.delivery import processes

pytestmark = pytest.mark.django_db


def test_a_process_beats_until_it_ends():
    processes.begin("a")
    processes.begin("b")
    assert processes.beats() == {"a": 0, "b": 0}
    assert processes.beat("a") and processes.beat("a") and processes.beats() == {"a": 2, "b": 0}
    processes.end("b")
    processes.end("b")
    assert processes.beats() == {"a": 2}


def test_who_was_declared_dead_learns_it():
    processes.begin("a")
    processes.end("a")
    assert not processes.beat("a") and processes.beats() == {}
