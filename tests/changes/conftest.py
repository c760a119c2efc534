"""Fixtures of the tests of change notifications."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_mcp.changes import feed
from django_mcp.declarations.server import Server
from django_mcp.models import Change
from django_mcp.runtime import threads
from django_mcp.storage import change_log, poller
from django_mcp.storage.change_log import watched
from tests.shop.models import Badge

from . import shops


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
