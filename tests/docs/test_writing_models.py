"""The page on writing models: its declarations can be served and used."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import Permission

import django_mcp as mcp
from django_mcp.declarations import server as servers
from tests.shop.models import Company, Invoice

from .pages import ROOT, blocks

PAGE = ROOT / "docs/how-to/writing-models.md"


@pytest.fixture
def declared_server(monkeypatch, server):
    """The server with the declarations of the page."""
    monkeypatch.setattr(servers, "default_server", server)
    *whole, method = blocks(PAGE, "python")
    namespace: dict[str, Any] = {"__name__": "tests.shop.shown", "__package__": "tests.shop"}
    for code in whole:
        exec(compile(code, str(PAGE), "exec", dont_inherit=True), namespace)
    exec(f"class Parts(mcp.ModelResource):\n{method}", namespace | {"Line": Company})
    return server


def test_rows_are_written_as_described(declared_server, connect, alice, invoice):
    assert {"create_invoice", "update_invoice", "create_draft", "delete_draft"} == set(
        declared_server.ready().tools
    )
    client = connect(alice, server=declared_server)
    new = {"number": "A-2", "total": "7.50", "issued": "2026-03-01"}
    made = json.loads(client.text("create_draft", customer=invoice.customer_id, **new))
    row = Invoice.objects.get(number="A-2")
    assert made["_uri"] == f"draft://{row.pk}" and row.metadata == {"by": "alice"}
    assert row.company == invoice.company
    client.text("delete_draft", draft=made["_uri"])
    with pytest.raises(Exception, match="Unknown tool"):
        client.call("create_invoice", customer=invoice.customer_id, **new)
    alice.user_permissions.add(Permission.objects.get(codename="add_invoice"))
    client = connect(type(alice).objects.get(pk=alice.pk), server=declared_server)
    client.text("create_invoice", customer=invoice.customer_id, **new)
    words = client.failure("create_draft", customer=invoice.customer_id, **new)
    assert words == "number: Invoice with this Number already exists."


def test_cascade_permission_method_of_the_page():
    (code,) = [code for code in blocks(PAGE, "python") if "has_cascade_permission" in code]
    namespace: dict[str, Any] = {"mcp": mcp, "Line": Company}
    exec(f"class Parts(mcp.ModelResource):\n{code}", namespace)
    assert namespace["Parts"]().has_cascade_permission(None, Company)
