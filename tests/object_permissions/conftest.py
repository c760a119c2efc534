"""Fixtures of these tests. With other settings than their own, no tests are collected."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from django.conf import settings

from django_mcp.declarations.server import Server
from django_mcp.testing import Client
from django_mcp.testing.environment import TestEnvironment
from tests.own_settings import allow_all_databases, new_server

IS_OWN_RUN = settings.SETTINGS_MODULE == "tests.object_permissions.settings"
if not IS_OWN_RUN:
    collect_ignore_glob = ["test_*.py"]
elif settings.ABSENT:
    pytest.exit(
        f"These tests need {', '.join(settings.ABSENT)}: pip install -e .[recipe-packages]", 1
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    allow_all_databases(items if IS_OWN_RUN else ())


@pytest.fixture(autouse=True)
def _jobs_on_test_connections(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run jobs on the connections of the test, inside its transaction."""
    request.getfixturevalue("db")
    with TestEnvironment().installed():
        yield


@pytest.fixture
def server() -> Iterator[Server]:
    """Yield a server, and forget it after the test."""
    with new_server("billing") as made:
        yield made


@pytest.fixture
def connect(server: Server) -> Iterator[Callable[[Any], Client]]:
    """Return a function that connects a user, as the database knows the user now."""
    with ExitStack() as stack:

        def made(user: Any) -> Client:
            user = type(user).objects.get(pk=user.pk)  # without cached permissions
            return stack.enter_context(Client(user, server=server))

        yield made


@pytest.fixture
def alice(db: None, django_user_model: Any) -> Any:
    return django_user_model.objects.create_user("alice")


@pytest.fixture
def bob(db: None, django_user_model: Any) -> Any:
    return django_user_model.objects.create_user("bob")
