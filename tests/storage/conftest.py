"""What the tests of the log and of lines between workers share."""

import pytest

from django_mcp.storage import wakeups

from ..postgres import by_postgres, pgbouncer

__all__ = ["by_postgres", "pgbouncer"]


@pytest.fixture
def quick_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """They notice soon, and come back soon."""
    monkeypatch.setattr(wakeups, "PROBE_INTERVAL_SECONDS", 0.2)
    monkeypatch.setattr(wakeups, "RECONNECT_SECONDS", 0.1)
