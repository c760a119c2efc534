"""What the tests of the specification share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import pytest

from tests.http import HttpClient


@pytest.fixture
def committed(django_capture_on_commit_callbacks: Any) -> AbstractContextManager[Any]:
    """A block whose end is a commit to what waits for one."""
    made: AbstractContextManager[Any] = django_capture_on_commit_callbacks(execute=True)
    return made


@pytest.fixture
def http(db: None) -> Iterator[Callable[..., HttpClient]]:
    """Makes clients that come over HTTP, and closes them."""
    with ExitStack() as stack:

        def made(*args: Any, **options: Any) -> HttpClient:
            return stack.enter_context(HttpClient(*args, **options))

        yield made
