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
    """Collect the connections that are opened during the test."""
    found: list[Any] = []

    def note(sender: Any, connection: Any, **kwargs: Any) -> None:
        found.append(connection)

    connection_created.connect(note)
    yield found
    connection_created.disconnect(note)


@pytest.fixture
def around_calls(settings: Any) -> list[around.AroundCall]:
    """Set ``AROUND`` to ``around.recorded``, and return its records."""
    around.seen.clear()
    settings.DJANGO_MCP = {"AROUND": ["tests.calls.around.recorded"]}
    return around.seen


@pytest.fixture
def in_transaction() -> Callable[[], bool]:
    """Return a function that tells whether it is called in a transaction besides the test's."""

    def asked() -> bool:
        blocks = connections["default"].atomic_blocks
        return any(not getattr(block, "_from_testcase", False) for block in blocks)

    return asked


@pytest.fixture
def real_threads(shared_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give threads their own connections, and do not wait for jobs after each loop run."""
    monkeypatch.setattr(loops, "jobs_ended", lambda *pools: None)


@pytest.fixture
def runs() -> list[str]:
    """A list in which tools record that they ran."""
    return []


@pytest.fixture
def threads_before() -> set[threading.Thread]:
    return set(threading.enumerate())
