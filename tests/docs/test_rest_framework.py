"""The page on Django REST framework: its classes can be served and called."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.urls import clear_url_caches

from django_mcp.declarations import server as servers
from tests.bridges.rest_framework import api

from .pages import ROOT, blocks

pytestmark = [pytest.mark.urls("tests.bridges.rest_framework.api"), pytest.mark.django_db]
PAGE = ROOT / "docs/how-to/rest-framework.md"
FIRST, PERMISSION, CHOSEN = blocks(PAGE, "python")


@pytest.fixture
def declared(monkeypatch, server, settings):
    """Return a function that runs code of the page in a module beside an API."""
    settings.ALLOWED_HOSTS = ["*"]
    monkeypatch.setattr(servers, "default_server", server)
    monkeypatch.setitem(sys.modules, "tests.shop.api", api)
    clear_url_caches()

    def run(code):
        namespace: dict[str, Any] = {"__name__": "tests.shop.mcp", "__package__": "tests.shop"}
        exec(compile(code, "<rest-framework.md>", "exec", dont_inherit=True), namespace)
        return namespace

    return run


def test_tools_of_the_page_can_be_called(declared, server, connect, alice, invoice):
    declared(FIRST)
    assert [str(message) for message in server.check()] == []
    names = "list_invoice retrieve_invoice create_invoice remind_invoice get_report post_report"
    assert list(server._catalog.tools) == names.split()
    client = connect(alice, server=server)
    assert client.call("list_invoice")["structuredContent"]["count"] == 1
    assert client.call("get_report", year=2026)["structuredContent"]["query"] == {"year": "2026"}


def test_permission_of_the_page_accepts_tools_and_tokens(declared, alice):
    may_read = declared(PERMISSION)["MayRead"]()
    token = SimpleNamespace(scope="read write")
    for request, allowed in (
        (SimpleNamespace(user=alice, auth=None, mcp=None), True),
        (SimpleNamespace(user=alice, auth=token), True),
        (SimpleNamespace(user=alice, auth=None), False),
    ):
        assert may_read.has_permission(request, None) is allowed


def test_chosen_url_and_texts_of_the_page(declared, server, connect, alice, invoice):
    declared(CHOSEN)
    (tool,) = server.ready().tools.values()
    assert (tool.name, tool.description) == ("invoices", "List the invoices of your company.")
    alice.user_permissions.add(Permission.objects.get(codename="view_invoice"))
    client = connect(type(alice).objects.get(pk=alice.pk), server=server)
    assert client.call("invoices")["structuredContent"]["count"] == 1
