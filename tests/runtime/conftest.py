"""Fixtures of the tests of thread pools."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from django_mcp.runtime.thread_pools import ThreadPool


@pytest.fixture
def pool() -> Iterator[ThreadPool]:
    """A pool of one thread."""
    pool = ThreadPool("test", 1)
    yield pool
    pool.shutdown()


@pytest.fixture
def opened() -> Iterator[list[BaseDatabaseWrapper]]:
    """The connections that were opened during the test."""
    found: list[BaseDatabaseWrapper] = []

    def note(sender: Any, connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
        found.append(connection)

    connection_created.connect(note)
    yield found
    connection_created.disconnect(note)
