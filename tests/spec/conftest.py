"""Fixtures of the tests of the specification."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import pytest


@pytest.fixture
def committed(django_capture_on_commit_callbacks: Any) -> AbstractContextManager[Any]:
    """Return a context manager that runs the functions of ``on_commit`` at its end."""
    made: AbstractContextManager[Any] = django_capture_on_commit_callbacks(execute=True)
    return made
