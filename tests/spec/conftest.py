"""What the tests of the specification share."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import pytest


@pytest.fixture
def committed(django_capture_on_commit_callbacks: Any) -> AbstractContextManager[Any]:
    """A block whose end is a commit to what waits for one."""
    made: AbstractContextManager[Any] = django_capture_on_commit_callbacks(execute=True)
    return made
