"""What the tests of the log and of lines between workers share."""

import pytest

from django_mcp.delivery import layers

from ..postgres import by_postgres, pgbouncer
from .loops import loop

__all__ = ["by_postgres", "loop", "pgbouncer"]


@pytest.fixture
def quick_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """They notice soon, and come back soon."""
    monkeypatch.setattr(layers, "PROBING", 0.2)
    monkeypatch.setattr(layers, "PAUSE", 0.1)
