"""Fixtures of the tests of fields. With other settings than their own, no tests are collected."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.db.models.signals import pre_migrate

from django_mcp.declarations import server as declared_servers
from django_mcp.declarations.server import Server
from django_mcp.testing.environment import TestEnvironment

IS_OWN_RUN = settings.SETTINGS_MODULE == "tests.fields.settings"
if not IS_OWN_RUN:
    collect_ignore_glob = ["test_*.py"]


def _add_hstore(**_: Any) -> None:
    # Without migrations nothing else creates the extension before the first table needs it.
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("CREATE EXTENSION IF NOT EXISTS hstore")
        signals = import_module("django.contrib.postgres.signals")
        # The connection was opened before the extension existed, and does not know its types.
        signals.get_hstore_oids.cache_clear()
        signals.register_type_handlers(connection)


if IS_OWN_RUN:
    pre_migrate.connect(_add_hstore, dispatch_uid="tests.fields.hstore")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests with a database all databases, because sessions may be stored in another one."""
    for item in items if IS_OWN_RUN else ():
        if item.get_closest_marker("django_db"):
            item.add_marker(pytest.mark.django_db(databases="__all__"), append=False)


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
    known = dict(declared_servers._servers)
    yield Server("fields")
    declared_servers._servers.clear()
    declared_servers._servers.update(known)


@pytest.fixture
def admin(db: None, django_user_model: Any) -> Any:
    """Return a user with all permissions."""
    return django_user_model.objects.create_superuser("admin", "admin@shop.example", "x")
