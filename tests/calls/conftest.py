"""What the tests of dispatch share: jobs counted, surroundings recorded, one run made by hand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.test.utils import CaptureQueriesContext

from django_mcp.changes import feed
from django_mcp.declarations.server import Server
from django_mcp.models import Change
from django_mcp.runtime import threads
from django_mcp.storage import change_log, poller
from django_mcp.storage.change_log import watched
from tests.shop.models import Badge

from ..storage import loops
from ..storage.loops import loop
from . import around, shops

__all__ = ["loop"]


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
def unwatched(shared_db: None) -> Iterator[None]:
    """Nobody has asked before what is watched."""
    watched.__init__()  # type: ignore[misc]
    yield
    watched.__init__()  # type: ignore[misc]


@pytest.fixture
def at_once(unwatched: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What changes is told at once, and what is watched is asked every time."""
    monkeypatch.setattr(change_log, "INTERESTS_CACHE_SECONDS", 0.0)
    monkeypatch.setattr(change_log, "CACHE_MARGIN_SECONDS", 0.0)
    monkeypatch.setattr(feed, "LISTING_INTERVAL_SECONDS", 0.0)
    monkeypatch.setattr(poller, "MAX_POLL_INTERVAL_SECONDS", 0.02)


@pytest.fixture
def shop(server: Server) -> Server:
    return shops.exposed(server)


@pytest.fixture
def people() -> Callable[..., Any]:
    """Companies and the user of each, by their number."""
    return shops.members


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


def connected(self: Any) -> None:
    """Django's own, in whose place is one that knows of no database that came after the test."""
    if self.connection is None:
        with self.wrap_database_errors:
            self.connect()


class Away:
    """A database that cannot be opened, until it is ``back``: that of badges."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()

    def db_for_read(self, model: type[Any], **hints: Any) -> str | None:
        return "away" if model is Badge else None

    db_for_write = db_for_read

    def back(self) -> None:
        self.path.rmdir()
        self.path.touch()
        with connections["away"].schema_editor() as editor:
            for model in (Badge, Change):
                editor.create_model(model)


@pytest.fixture
def away(shared_db: None, settings: Any, tmp_path: Path, monkeypatch: Any) -> Iterator[Away]:
    made = Away(tmp_path / "away.sqlite3")
    connections.settings["away"] = connections.configure_settings(
        {"default": {}, "away": {"ENGINE": "django.db.backends.sqlite3", "NAME": made.path}}
    )["away"]
    settings.DATABASE_ROUTERS = [made, *settings.DATABASE_ROUTERS]
    monkeypatch.setattr(BaseDatabaseWrapper, "ensure_connection", connected)
    for pause in ("UNREACHABLE_RETRY_SECONDS", "MISSING_TABLE_RETRY_SECONDS"):
        monkeypatch.setattr(change_log, pause, 0.05)
    yield made
    for pool in threads.all():
        pool.shutdown()
    connections["away"].close()
    del connections["away"], connections.settings["away"]
    for known in (change_log._ready, change_log._away):
        known.pop("away", None)
    change_log._lacking.discard("away")
