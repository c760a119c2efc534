"""Fixtures of the tests of fields. With other settings than their own, no tests are collected."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib import import_module
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.db.models.signals import pre_migrate

from django_mcp.declarations.server import Server
from django_mcp.testing import Client
from django_mcp.testing.environment import TestEnvironment
from tests.own_settings import allow_all_databases, new_server

from .packages import has_vector_extension

IS_OWN_RUN = settings.SETTINGS_MODULE == "tests.fields.settings"
if not IS_OWN_RUN:
    collect_ignore_glob = ["test_*.py"]
else:
    collect_ignore = [
        *([] if connection.vendor == "postgresql" else ["test_postgres.py"]),
        *([] if has_vector_extension() else ["test_vectors.py"]),
    ]


def _add_extensions(**_: Any) -> None:
    # Without migrations nothing else creates the extensions before the first table needs it.
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("CREATE EXTENSION IF NOT EXISTS hstore")
            if has_vector_extension():
                cursor.execute("CREATE EXTENSION IF NOT EXISTS vector")
        signals = import_module("django.contrib.postgres.signals")
        # The connection was opened before hstore existed, and does not know its types.
        signals.get_hstore_oids.cache_clear()
        signals.register_type_handlers(connection)


if IS_OWN_RUN:
    pre_migrate.connect(_add_extensions, dispatch_uid="tests.fields.extensions")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    allow_all_databases(items if IS_OWN_RUN else ())


@pytest.fixture(autouse=True)
def _jobs_on_test_connections(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run jobs on the connections of the test, inside its transaction."""
    if not request.node.get_closest_marker("django_db"):
        yield
        return
    request.getfixturevalue("db")
    with TestEnvironment().installed():
        yield


@pytest.fixture
def server() -> Iterator[Server]:
    """Yield a server, and forget it after the test."""
    with new_server("fields") as made:
        yield made


@pytest.fixture
def connect(server: Server) -> Iterator[Callable[[Any], Client]]:
    """Return a function that connects a user. Its clients are closed after the test."""
    with ExitStack() as stack:

        def made(user: Any) -> Client:
            return stack.enter_context(Client(user, server=server))

        yield made


@pytest.fixture
def admin(db: None, django_user_model: Any) -> Any:
    """Return a user with all permissions."""
    return django_user_model.objects.create_superuser("admin", "admin@shop.example", "x")
