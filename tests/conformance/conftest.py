"""Fixtures of the conformance server. Nothing is collected with other settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from django.conf import settings

verdicts_to_tell: list[Any] = []  # in the end, a line for each

if settings.SETTINGS_MODULE != "tests.conformance.settings":
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture
def connect(db: None) -> Iterator[Callable[..., Any]]:
    """Return a function that makes anonymous clients, which are closed after the test."""
    from django_mcp.testing.environment import TestEnvironment
    from tests.client import Client

    with ExitStack() as stack:
        stack.enter_context(TestEnvironment().installed())
        yield lambda **options: stack.enter_context(Client(**options))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if verdicts_to_tell:
        terminalreporter.section("the official conformance suite")
    for verdict in verdicts_to_tell:
        terminalreporter.write_line("\n".join(verdict.lines()))
