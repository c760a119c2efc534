"""Fixtures of the tests of REST framework views: registration and calls."""

from __future__ import annotations

import pytest
from django.core.cache import cache

from django_mcp.bridges.rest_framework import APIViewTools, ViewSetTools

from . import api


@pytest.fixture(autouse=True)
def project(settings):
    settings.ALLOWED_HOSTS = [*settings.ALLOWED_HOSTS, "shop.example"]
    cache.clear()


@pytest.fixture
def expose(server):
    """Return a function that registers a viewset or view with attributes, and returns the server.

    Actions are those of the view unless they are given.
    """

    def exposed(view, listed=None, **attributes):
        is_viewset = hasattr(getattr(view, "cls", view), "get_extra_actions")
        base, name = (ViewSetTools, "actions") if is_viewset else (APIViewTools, "methods")
        given = {name: listed} if listed is not None else {}
        server.register(view, type("Exposed", (base,), given | attributes))
        return server

    return exposed


@pytest.fixture
def call(server, expose, connect, alice):
    """Return a function that calls an action as a user, and exposes it before the first call."""

    def called(view, action, /, user=alice, *, attributes=None, **arguments):
        if not server._records:
            expose(view, [action], **(attributes or {}))
        (tool,) = [tool for tool in server.ready().tools.values() if tool._entry == action]
        return connect(user, server=server).call(tool.name, **arguments)

    return called


ALL = ["list", "retrieve", "create", "update", "partial_update", "destroy"]


@pytest.fixture
def invoices(expose, connect, server):
    """Return a function that returns a client of a user for all actions of the invoices."""

    def client(user):
        if not server._records:
            expose(api.InvoiceViewSet, ALL)
        return connect(user, server=server)

    return client
