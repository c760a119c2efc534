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

from . import shop_server


@pytest.fixture
def no_cached_interests(shared_db: None) -> Iterator[None]:
    """Forget which models are followed, before and after the test."""
    watched.__init__()  # type: ignore[misc]
    yield
    watched.__init__()  # type: ignore[misc]


@pytest.fixture
def immediate_delivery(no_cached_interests: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deliver changes without throttling, and read the followed models every time."""
    monkeypatch.setattr(change_log, "INTERESTS_CACHE_SECONDS", 0.0)
    monkeypatch.setattr(change_log, "CACHE_MARGIN_SECONDS", 0.0)
    monkeypatch.setattr(feed, "LISTING_INTERVAL_SECONDS", 0.0)
    monkeypatch.setattr(poller, "MAX_POLL_INTERVAL_SECONDS", 0.02)


@pytest.fixture
def shop(server: Server) -> Server:
    return shop_server.register_models(server)


@pytest.fixture
def create_companies() -> Callable[..., Any]:
    """Create a number of companies, and the one user of each."""
    return shop_server.create_companies


def connect_without_checks(self: Any) -> None:
    """Connect as Django does; pytest-django's version rejects databases added during a test."""
    if self.connection is None:
        with self.wrap_database_errors:
            self.connect()


class UnreachableDatabase:
    """The database of badges, which cannot be opened until ``restore`` is called."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()

    def db_for_read(self, model: type[Any], **hints: Any) -> str | None:
        return "away" if model is Badge else None

    db_for_write = db_for_read

    def restore(self) -> None:
        self.path.rmdir()
        self.path.touch()
        with connections["away"].schema_editor() as editor:
            for model in (Badge, Change):
                editor.create_model(model)


@pytest.fixture
def unreachable_database(
    shared_db: None, settings: Any, tmp_path: Path, monkeypatch: Any
) -> Iterator[UnreachableDatabase]:
    """Route badges to a database that cannot be opened."""
    made = UnreachableDatabase(tmp_path / "away.sqlite3")
    connections.settings["away"] = connections.configure_settings(
        {"default": {}, "away": {"ENGINE": "django.db.backends.sqlite3", "NAME": made.path}}
    )["away"]
    settings.DATABASE_ROUTERS = [made, *settings.DATABASE_ROUTERS]
    monkeypatch.setattr(BaseDatabaseWrapper, "ensure_connection", connect_without_checks)
    for pause in ("UNREACHABLE_RETRY_SECONDS", "MISSING_TABLE_RETRY_SECONDS"):
        monkeypatch.setattr(change_log, pause, 0.05)
    yield made
    for pool in threads.pools():
        pool.shutdown()
    connections["away"].close()
    del connections["away"], connections.settings["away"]
    for known in (change_log._ready, change_log._away):
        known.pop("away", None)
    change_log._lacking.discard("away")
