"""Fixtures of these tests. With other settings than their own, no tests are collected."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from django.conf import settings
from django.db import connection

from django_mcp.declarations.server import Server
from django_mcp.routing import as_asgi
from django_mcp.testing import Client
from django_mcp.testing.environment import TestEnvironment
from tests.own_settings import new_server

if settings.SETTINGS_MODULE != "tests.tenants.settings":
    collect_ignore_glob = ["test_*.py"]
elif settings.ABSENT:
    pytest.exit(f"{settings.ABSENT}.", 1)


@pytest.fixture(autouse=True)
def _jobs_on_test_connections(db: None) -> Iterator[None]:
    """Run jobs on the connections of the test, inside its transaction, in the public schema."""
    connection.set_schema_to_public()
    with TestEnvironment().installed():
        yield
    connection.set_schema_to_public()


@pytest.fixture
def server() -> Iterator[Server]:
    """Yield a server, and forget it after the test."""
    with new_server("billing") as made:
        yield made


@pytest.fixture
def connect(server: Server) -> Iterator[Callable[..., Client]]:
    """Return a function that connects a user, over HTTP with the ``Host`` header if it is given."""
    with ExitStack() as stack:

        def made(user: Any, host: str | None = None) -> Client:
            options: dict[str, Any] = {}
            if host is not None:
                options = {"transport": "http", "application": with_host(as_asgi(server), host)}
            return stack.enter_context(Client(user, server=server, **options))

        yield made


def with_host(application: Any, host: str) -> Any:
    """Return an ASGI application that replaces the ``Host`` header of requests."""

    async def replaced(scope: Any, receive: Any, send: Any) -> None:
        others = [header for header in scope["headers"] if header[0] != b"host"]
        headers = [*others, (b"host", host.encode())]
        await application({**scope, "headers": headers}, receive, send)

    return replaced


@pytest.fixture
def make_tenant(django_user_model: Any) -> Callable[[str], Any]:
    """Return a function that makes a tenant with a user, a domain and one invoice."""
    from django_tenants.utils import tenant_context

    from .billing.models import Invoice
    from .models import Domain, Tenant

    def made(name: str) -> Any:
        tenant = Tenant(schema_name=name, name=name)
        tenant.save(verbosity=0)
        Domain.objects.create(domain=f"{name}.shop.example", tenant=tenant)
        tenant.users.add(django_user_model.objects.create_user(f"user of {name}"))
        with tenant_context(tenant):
            Invoice.objects.create(number=f"{name}-1")
        return tenant

    return made
