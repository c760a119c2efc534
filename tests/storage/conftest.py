"""Fixtures for the tests of the session database and of wake-ups between workers."""

import pytest

from django_mcp.storage import wakeups

from ..postgres import by_postgres, pgbouncer

__all__ = ["by_postgres", "pgbouncer"]


@pytest.fixture
def short_reconnect_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the intervals at which a lost connection is noticed and made again."""
    monkeypatch.setattr(wakeups, "PROBE_INTERVAL_SECONDS", 0.2)
    monkeypatch.setattr(wakeups, "RECONNECT_SECONDS", 0.1)
