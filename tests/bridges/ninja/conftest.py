"""Fixtures of the tests of ninja operations: registration and calls."""

from __future__ import annotations

import pytest
from django.core.cache import cache

from django_mcp.bridges.ninja import NinjaTools

from . import api


@pytest.fixture(autouse=True)
def project(settings):
    settings.ALLOWED_HOSTS = [*settings.ALLOWED_HOSTS, "shop.example"]
    cache.clear()


@pytest.fixture
def expose(server):
    """Return a function that registers operations of an API, and returns the server."""

    def exposed(*operations, subject=api.api, **attributes):
        kind = type("Exposed", (NinjaTools,), {"operations": operations} | attributes)
        server.register(subject, kind)
        return server

    return exposed


@pytest.fixture
def call(server, expose, connect, alice):
    """Return a function that calls an operation as a user, and exposes it before the first call."""

    def called(operation, /, user=alice, *, attributes=None, subject=api.api, **arguments):
        if not server._records:
            expose(operation, subject=subject, **(attributes or {}))
        return connect(user, server=server).call(operation, **arguments)

    return called
