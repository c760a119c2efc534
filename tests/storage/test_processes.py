"""Processes: a counter each."""

import pytest

from django_mcp.storage import leases

pytestmark = pytest.mark.django_db


def test_a_process_beats_until_it_ends():
    leases.begin("a")
    leases.begin("b")
    assert leases.beats() == {"a": 0, "b": 0}
    assert leases.beat("a") and leases.beat("a") and leases.beats() == {"a": 2, "b": 0}
    leases.end("b")
    leases.end("b")
    assert leases.beats() == {"a": 2}


def test_who_was_declared_dead_learns_it():
    leases.begin("a")
    leases.end("a")
    assert not leases.beat("a") and leases.beats() == {}
