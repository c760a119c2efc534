"""Fixtures of the tests of calls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connections
from django.db.backends.signals import connection_created

from ..storage import loops
from . import around


@pytest.fixture
def opened() -> Iterator[list[Any]]:
    """The connections that are opened during the test."""
    found: list[Any] = []

    def note(sender: Any, connection: Any, **kwargs: Any) -> None:
        found.append(connection)

    connection_created.connect(note)
    yield found
    connection_created.disconnect(note)


@pytest.fixture
def surrounded(settings: Any) -> list[around.Passed]:
    """``AROUND`` is ``around.recorded``; what it saw."""
    around.seen.clear()
    settings.DJANGO_MCP = {"AROUND": ["tests.calls.around.recorded"]}
    return around.seen


@pytest.fixture
def in_transaction() -> Callable[[], bool]:
    """Whether the code that asks is inside a transaction that is not the test's."""

    def asked() -> bool:
        blocks = connections["default"].atomic_blocks
        return any(not getattr(block, "_from_testcase", False) for block in blocks)

    return asked


@pytest.fixture
def real_threads(shared_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads have connections of their own, and a tool may wait for the loop."""
    monkeypatch.setattr(loops, "jobs_ended", lambda *pools: None)


@pytest.fixture
def runs() -> list[str]:
    """What tools have done."""
    return []


@pytest.fixture
def threads_before() -> set[threading.Thread]:
    return set(threading.enumerate())
