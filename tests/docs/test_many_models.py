"""The page on many models: its declarations can be served, and its calls work."""

from __future__ import annotations

import json
from typing import Any

from django_mcp.declarations import server as servers
from tests.shop.models import Invoice

from .pages import ROOT, blocks

PAGE = ROOT / "docs/how-to/many-models.md"


def run(code: str, server: Any) -> None:
    namespace: dict[str, Any] = {"__name__": "tests.shop.shown", "__package__": "tests.shop"}
    exec(compile(code, str(PAGE), "exec", dont_inherit=True), namespace)
    assert [str(message) for message in server.check()] == []


def test_calls_of_the_page_work(monkeypatch, server, connect, alice, invoice):
    monkeypatch.setattr(servers, "default_server", server)
    code, _ = blocks(PAGE, "python")
    run(code, server)
    client = connect(alice, server=server)
    models = client.call("list_models")["structuredContent"]["models"]
    assert [one["name"] for one in models] == ["company", "invoice"]
    assert models[1]["description"].startswith("What customers owe")
    searched, written = (json.loads(call) for call in blocks(PAGE, "json"))
    found = client.call("search_rows", **searched)["structuredContent"]["results"]
    assert [row["number"] for row in found] == ["A-1"]
    written["arguments"]["invoice"] = invoice.pk
    client.text("write_row", **written)
    assert Invoice.objects.get().status == "paid"


def test_excluded_model_of_the_page_has_its_own_tools(monkeypatch, server):
    monkeypatch.setattr(servers, "default_server", server)
    code, other = blocks(PAGE, "python")
    serving = 'mcp.register_models("shop", generic=True)'
    assert serving in code
    run(code.replace(serving, other), server)
    assert {"search_invoice", "update_invoice", "search_rows"} < server._catalog.tools.keys()
