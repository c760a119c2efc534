"""The page on user interfaces: its tools can be called, and their pages can be read."""

from __future__ import annotations

import re

import pytest

import django_mcp as mcp
from django_mcp.declarations import server as servers
from django_mcp.templatetags.mcp_ui import SCRIPT
from tests.shop.models import Invoice

from .pages import ROOT, blocks

PAGE = ROOT / "docs/how-to/user-interfaces.md"


@pytest.mark.django_db
def test_tools_of_the_page_can_be_used(
    monkeypatch, server, settings, tmp_path, connect, alice, invoice
):
    (html,) = blocks(PAGE, "html")
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop/invoice_card.html").write_text(html, "utf-8")
    settings.TEMPLATES = [{**settings.TEMPLATES[0], "DIRS": [tmp_path]}]

    class Invoices(mcp.ModelResource):
        permission = mcp.AUTHENTICATED
        fields = ["number"]

        def get_queryset(self, request):
            return super().get_queryset(request).filter(company__members=request.user)

    server.register(Invoice, Invoices)
    server.public_name = "shop"
    monkeypatch.setattr(servers, "default_server", server)
    # Dataclasses look up their module, which must exist.
    namespace = {"__name__": "tests.shop.models", "__package__": "tests.shop"}
    for code in blocks(PAGE, "python"):
        exec(compile(code, str(PAGE), "exec", dont_inherit=True), namespace)
    client = connect(alice, server=server)
    tools = {one["name"]: one for one in client.request("tools/list")["tools"]}
    assert tools["mark_paid"]["_meta"] == {"ui": {"visibility": ["app"]}}
    result = client.call("invoice_card", invoice=str(invoice.pk))
    assert result["structuredContent"] == {"number": "A-1", "customer": "Carla", "total": "12.50"}
    for name in ("invoice_card", "invoice_chart"):
        (page,) = client.request("resources/read", uri=tools[name]["_meta"]["ui"]["resourceUri"])[
            "contents"
        ]
        assert SCRIPT.read_text("utf-8") in page["text"]
        # The script of the page fills the elements that the page has.
        assert all(f'id="{part}"' in page["text"] for part in result["structuredContent"])
    assert page["_meta"]["ui"]["csp"]["resourceDomains"] == ["https://static.shop.example"]


def test_every_name_of_the_script_is_on_the_page():
    script, page = SCRIPT.read_text("utf-8"), PAGE.read_text("utf-8")
    events = {*re.findall(r'\["(\w+)", params', script), *re.findall(r'emit\("(\w+)"', script)}
    returned = script[script.rindex("return {") :]
    names = {*re.findall(r"^    (\w+):", returned, re.M), "ready", "on", "request"}
    assert "    ready, on, request,\n" in returned
    assert {*re.findall(r'^\| `mcp\.on\("(\w+)"', page, re.M)} == events
    assert {*re.findall(r"^\| `mcp\.(\w+)", page, re.M)} == names
