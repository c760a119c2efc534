"""What a deployment brings: lists that are no longer what they were are told, once."""

from __future__ import annotations

import pytest

import django_mcp as mcp
from django_mcp.changes import api, capture
from django_mcp.declarations import server as servers
from django_mcp.declarations.server import Server
from django_mcp.models import BroadcastCursor

pytestmark = pytest.mark.django_db


@pytest.fixture
def said(monkeypatch):
    found = []
    monkeypatch.setattr(capture, "say", lambda *changes: found.extend(changes))
    return found


@pytest.fixture
def deployed():
    """The server as it is with these words of its one tool."""

    def made(words):
        servers._servers.pop("deployed", None)
        server = Server("deployed")

        @server.tool(permission=mcp.PUBLIC)
        def add(request, a: int) -> int:
            return a

        server._catalog.tools["add"].description = words
        return server

    yield made
    servers._servers.pop("deployed", None)


def test_what_is_as_it_was_is_not_told(said, deployed):
    for _ in range(2):
        api.tell(deployed("Add."))
    assert said == [] and BroadcastCursor.objects.count() == 3


def test_what_has_changed_is_told_once(said, deployed):
    api.tell(deployed("Add."))
    for _ in range(2):
        api.tell(deployed("Add one."))
    assert said == [("list", {"what": "tools", "server": "deployed"})]
