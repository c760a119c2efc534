"""What the tests of dispatch share: jobs counted, surroundings recorded, one run made by hand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection, connections
from django.db.backends.signals import connection_created
from django.test.utils import CaptureQueriesContext

from . import around


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every hop to a thread of any pool, by the name of the function."""
    hops: list[str] = []
    submit = ThreadPoolExecutor.submit

    def counted(self: Any, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        hops.append(getattr(function, "__name__", repr(function)))
        return submit(self, function, *args, **kwargs)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", counted)
    return hops


@pytest.fixture
def queries(db: None) -> Iterator[CaptureQueriesContext]:
    """The queries of the test's connection, on which every job runs."""
    with CaptureQueriesContext(connection) as captured:
        yield captured


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
    settings.DJANGO_MCP = {"AROUND": ["tests.dispatch.around.recorded"]}
    return around.seen


@pytest.fixture
def in_transaction() -> Callable[[], bool]:
    """Whether the code that asks is inside a transaction that is not the test's."""

    def asked() -> bool:
        blocks = connections["default"].atomic_blocks
        return any(not getattr(block, "_from_testcase", False) for block in blocks)

    return asked


@pytest.fixture
def threads_before() -> set[threading.Thread]:
    return set(threading.enumerate())
