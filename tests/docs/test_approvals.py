"""The page on approvals: its tool waits for an approval, and its code approves the call."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

from django.contrib.auth.models import Permission, User

from django_mcp.calls.approvals import DEFAULTS
from django_mcp.checks import check_settings
from django_mcp.declarations import server as servers
from django_mcp.models import Approval

from .pages import ROOT, blocks

PAGE = ROOT / "docs/how-to/approvals.md"
TOOL, DECIDE, FUNCTION, NAMED, SETTINGS = blocks(PAGE, "python")


def run(code: str) -> dict[str, Any]:
    namespace: dict[str, Any] = {"__name__": "tests.shop.shown", "__package__": "tests.shop"}
    exec(compile(code, str(PAGE), "exec", dont_inherit=True), namespace)
    return namespace


def test_call_of_the_page_waits_and_runs(monkeypatch, server, connect, alice, invoice):
    monkeypatch.setattr(servers, "default_server", server)
    monkeypatch.setattr(type(invoice), "refund", lambda self, reason: None, raising=False)
    run(TOOL)
    assert [str(message) for message in server.check()] == []
    client, arguments = connect(alice, server=server), {"invoice": "A-1", "reason": "broken"}
    arguments["invoice"] = invoice.pk
    message = client.failure("refund_invoice", **arguments)
    shown = (
        "This call must be approved by somebody with the permission shop.delete_invoice "
        "(request 1)."
    )
    assert shown in PAGE.read_text()
    assert message.partition("(")[0] == shown.partition("(")[0]
    carol = User.objects.create_user("carol")
    carol.user_permissions.add(Permission.objects.get(codename="delete_invoice"))
    request = SimpleNamespace(user=User.objects.get(pk=carol.pk))
    assert run(DECIDE)["approve"](request, Approval.objects.get().pk).status_code == 200
    assert run(DECIDE)["approve"](request, Approval.objects.get().pk).status_code == 409
    assert client.text("refund_invoice", **arguments) == "Refunded A-1: broken"


def test_function_of_the_page_hides_calls_of_other_companies(settings):
    written = (ROOT / "tests/shop/approvals.py").read_text()
    assert FUNCTION.strip() in written
    path = run(NAMED)["DJANGO_MCP"]["APPROVALS"]["QUERYSET"]
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"APPROVALS": {"QUERYSET": f"tests.{path}"}}
    assert [*check_settings()] == []


def test_settings_of_the_page_are_valid(settings):
    given = run(SETTINGS)["DJANGO_MCP"]
    settings.DJANGO_MCP = settings.DJANGO_MCP | given
    assert [*check_settings()] == []
    assert given["APPROVALS"].keys() <= DEFAULTS.keys()
    assert {*re.findall(r"^\| `([A-Z]+)` \|", PAGE.read_text(), re.M)} == DEFAULTS.keys()
