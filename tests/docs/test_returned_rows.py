"""The page on returned rows: its tool returns a row that the caller cannot read."""

from __future__ import annotations

import pytest

import django_mcp as mcp
from django_mcp.declarations import server as servers
from tests.shop.mcp import InvoiceResource
from tests.shop.models import Company, Invoice

from .pages import ROOT, blocks

PAGE = ROOT / "docs/reference/returned-rows.md"


class Companies(mcp.ModelResource):
    permission = mcp.AUTHENTICATED
    fields = ["name"]

    def get_queryset(self, request):
        return super().get_queryset(request).all()


@pytest.mark.parametrize("trusting", [True, False])
def test_tool_returns_an_unreadable_row_only_if_it_is_trusted(
    monkeypatch, server, connect, alice, bob, invoice, trusting
):
    monkeypatch.setattr(servers, "default_server", server)
    (code,) = blocks(PAGE, "python")
    code = code.replace("billing.refund_invoice", "shop.change_invoice")
    code = code if trusting else code.replace("mcp.trusted(invoice)", "invoice")
    exec(compile(code, str(PAGE), "exec", dont_inherit=True), globals() | {"Invoice": Invoice})
    server.register(Invoice, InvoiceResource)
    server.register(Company, Companies)
    company = Company.objects.get(name="Bolts")
    client = connect(alice, server=server)
    result = client.call("hand_over", invoice="A-1", to=company.pk)
    assert result["isError"] is not trusting
    assert (Invoice.objects.get().company == company) is trusting
