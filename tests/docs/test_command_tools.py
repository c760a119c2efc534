"""The page on management commands: its tools can be called."""

from __future__ import annotations

import pytest

from django_mcp.declarations import server as servers
from tests.shop.models import Company, Invoice

from .pages import ROOT, blocks

PAGE = ROOT / "docs/how-to/command-tools.md"
pytestmark = pytest.mark.django_db


@pytest.fixture
def declared(monkeypatch, server):
    """Declare the code of the page on a server, as in an ``mcp.py``."""
    monkeypatch.setattr(servers, "default_server", server)
    namespace = {"__name__": "tests.shop.mcp"}
    for code in blocks(PAGE, "python"):
        exec(compile(code, str(PAGE), "exec", dont_inherit=True), namespace)
    assert [str(message) for message in server.check()] == []
    return server


@pytest.fixture
def foreign_invoice(invoice):
    """Return an open invoice of another company, in the same month."""
    other = Company.objects.create(name="Other")
    return Invoice.objects.create(
        company=other, customer=invoice.customer, number="X-1", total=1, issued="2026-01-03",
        status="open",
    )  # fmt: skip


def test_staff_can_run_the_command(declared, connect, alice, foreign_invoice):
    alice.is_staff = True
    alice.save()
    client = connect(alice, server=declared)
    shown = client.text("close_month", month="2026-01-01", dry_run=True)
    assert shown == "A-1: 12.50\nX-1: 1.00"
    assert "X-1: 1.00" in client.text("close_month", month="2026-01-01")
    assert {*Invoice.objects.values_list("status", flat=True)} == {"paid"}
    assert "unknown argument" in client.failure("close_month", month="2026-01-01", company="Acme")
    assert client.failure("close_month", month="2026-01-02").startswith(
        "close_month failed with exit code 1. 2026-01-02 is not the first day"
    )


def test_user_can_close_only_their_own_month(declared, connect, alice, bob, foreign_invoice):
    client = connect(alice, server=declared)
    names = {tool["name"] for tool in client.request("tools/list")["tools"]}
    assert names == {"close_own_month"}
    assert client.text("close_own_month", month="2026-01-01") == "A-1: 12.50"
    foreign_invoice.refresh_from_db()
    assert foreign_invoice.status == "open"
    assert connect(bob, server=declared).request("tools/list")["tools"] == []
