"""A deployment with other tools, prompts or resources sends one list notification."""

from __future__ import annotations

import pytest

import django_mcp as mcp
from django_mcp.changes import api, capture
from django_mcp.declarations import server as servers
from django_mcp.declarations.server import Server
from django_mcp.models import BroadcastCursor

pytestmark = pytest.mark.django_db


@pytest.fixture
def recorded(monkeypatch):
    found = []
    monkeypatch.setattr(capture, "record_after_commit", lambda *changes: found.extend(changes))
    return found


@pytest.fixture
def deployed():
    """Return the server with this description of its one tool."""

    def made(description):
        servers._servers.pop("deployed", None)
        server = Server("deployed")

        @server.tool(permission=mcp.PUBLIC)
        def add(request, a: int) -> int:
            return a

        server._catalog.tools["add"].description = description
        return server

    yield made
    servers._servers.pop("deployed", None)


def test_unchanged_catalog_sends_no_notification(recorded, deployed):
    for _ in range(2):
        api.announce_changed_lists(deployed("Add."))
    assert recorded == [] and BroadcastCursor.objects.count() == 3


def test_changed_catalog_sends_one_list_notification(recorded, deployed):
    api.announce_changed_lists(deployed("Add."))
    for _ in range(2):
        api.announce_changed_lists(deployed("Add one."))
    assert recorded == [("list", {"what": "tools", "server": "deployed"})]
