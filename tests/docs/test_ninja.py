"""The page on django-ninja: its classes can be served and called."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.urls import path
from ninja import NinjaAPI, Router, Schema

from django_mcp.declarations import server as servers
from tests.bridges.ninja import api
from tests.bridges.ninja.api import ApiKey

from .pages import ROOT, blocks

pytestmark = pytest.mark.django_db
FIRST, REPLACED = blocks(ROOT / "docs/how-to/ninja.md", "python")


class Report(Schema):
    month: str
    user: str
    auth: str


@pytest.fixture
def declared(monkeypatch, server, settings):
    """Return a function that runs code of the page in a module beside an API."""
    partners, reports = NinjaAPI(urls_namespace="partners"), Router(auth=ApiKey())

    @reports.get("/months/{month}", response=Report)
    def monthly_report(request, month: str):
        return {"month": month, "user": str(request.user), "auth": str(request.auth)}

    partners.add_router("", reports)
    urls, shop = ModuleType("urls_of_test"), ModuleType("tests.shop.api")
    urls.urlpatterns = [*api.urlpatterns, path("partners/", partners.urls)]  # type: ignore[attr-defined]
    shop.api, shop.reports = api.api, reports  # type: ignore[attr-defined]
    settings.ROOT_URLCONF, settings.ALLOWED_HOSTS = urls, ["*"]
    monkeypatch.setattr(servers, "default_server", server)
    monkeypatch.setitem(sys.modules, "tests.shop.api", shop)

    def run(code):
        namespace: dict[str, Any] = {"__name__": "tests.shop.mcp", "__package__": "tests.shop"}
        exec(compile(code, "<ninja.md>", "exec", dont_inherit=True), namespace)

    return run


def test_tools_of_the_page_can_be_called(declared, server, connect, alice, invoice):
    declared(FIRST)
    assert [str(message) for message in server.check()] == []
    assert list(server._catalog.tools) == ["list_invoices", "create_invoice", "delete_invoice"]
    found = connect(alice, server=server).call("list_invoices")["structuredContent"]
    assert [one["number"] for one in found["items"]] == ["A-1"]


def test_error_of_the_page_names_the_argument(declared, server, connect, alice, invoice):
    declared(FIRST)
    given = {"number": "A-9", "customer_id": 1, "total": 1, "lines": [{"price": "-1"}]}
    told = connect(alice, server=server).call("create_invoice", **given)["content"][0]["text"]
    assert told == "lines.0.price: Input should be greater than 0"


def test_replaced_auth_of_the_page_needs_the_permission(declared, server, connect, alice):
    declared(REPLACED)
    assert [str(message) for message in server.check()] == []
    (tool,) = server._catalog.tools.values()
    assert (tool.name, tool.description) == ("sales_of_a_month", "Show the sales of one month.")
    alice.user_permissions.add(Permission.objects.get(codename="view_invoice"))
    client = connect(type(alice).objects.get(pk=alice.pk), server=server)
    found = client.call("sales_of_a_month", month="2026-01")["structuredContent"]
    assert found == {"month": "2026-01", "user": "alice", "auth": "alice"}
