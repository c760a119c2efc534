"""The example of the page about the audit log works."""

from __future__ import annotations

import pytest

import django_mcp as mcp
from django_mcp.models import AuditEntry

from .pages import DOCS, blocks

PAGE = "docs/how-to/audit.md"


@pytest.mark.django_db
def test_tools_of_the_page_are_audited_unless_they_say_no(connect, server, alice, monkeypatch):
    (code,) = blocks(DOCS.parent / PAGE, "python")
    monkeypatch.setattr(mcp, "server", server, raising=False)
    monkeypatch.setattr(mcp, "tool", server.tool, raising=False)
    exec(code, {})

    @server.tool
    def refund(request: mcp.Request) -> str:
        return "refunded"

    client = connect(alice, server=server)
    client.request("tools/call", name="opening_hours")
    client.request("tools/call", name="refund")
    assert list(AuditEntry.objects.values_list("name", flat=True)) == ["refund"]
