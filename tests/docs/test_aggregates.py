"""The page on aggregates: its declaration can be served, and its call has the result it shows."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from typing import Any

from django_mcp.declarations import server as servers
from tests.shop.models import Invoice

from .pages import ROOT, blocks

PAGE = ROOT / "docs/how-to/aggregates.md"


def test_call_of_the_page_has_the_result_of_the_page(monkeypatch, server, connect, alice, invoice):
    monkeypatch.setattr(servers, "default_server", server)
    (code,) = blocks(PAGE, "python")
    asked, shown = (json.loads(code) for code in blocks(PAGE, "json"))
    for number, total, issued in (
        ("A-2", "20.10", date(2026, 1, 20)),
        ("A-3", "30.20", date(2026, 2, 1)),
        ("A-4", "99", date(2025, 12, 31)),
    ):
        Invoice.objects.create(
            company=invoice.company, customer=invoice.customer, number=number,
            total=Decimal(total), issued=issued,
        )  # fmt: skip
    namespace: dict[str, Any] = {"__name__": "tests.shop.shown", "__package__": "tests.shop"}
    exec(compile(code, str(PAGE), "exec", dont_inherit=True), namespace)
    assert [str(message) for message in server.check()] == []
    client = connect(alice, server=server)
    assert client.call("aggregate_invoice", **asked)["structuredContent"] == shown
    both = ["customer", "customer__name"]
    found = client.call("aggregate_invoice", group_by=both)["structuredContent"]["groups"]
    assert found == [{"customer": invoice.customer_id, "customer__name": "Carla", "count": 4}]
