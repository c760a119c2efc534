"""Commands and the admin show the own tools of models that generic tools serve."""

from __future__ import annotations

import json

import pytest
from django.core.management import call_command

import django_mcp as mcp
from django_mcp.admin.switches import switch_choices
from tests.declarations.test_generic_tools import Companies, Members
from tests.shop.models import Company, Invoice


@pytest.fixture
def output(capsys, db, server):
    server.register(Invoice, Members)
    server.register(Company, Companies)
    mcp.register_models("shop", generic=True, server=server)

    def run(command, *arguments):
        call_command(command, *arguments, "--server", server.name)
        return capsys.readouterr().out

    return run


def test_inspect_lists_the_own_tools_under_a_heading_of_their_own(output):
    out = output("mcp_inspect")
    listed, own = out.split("Model tools")
    assert "search_rows" in listed and "search_invoice" not in listed
    assert "search_invoice" in own and "update_invoice" in own


def test_inspect_shows_only_the_own_tools_that_a_user_may_use(output, bob):
    out = output("mcp_inspect", "--user", "bob")
    shown = {line.split()[0] for line in out.splitlines() if line.startswith("  ")}
    assert {"search_rows", "search_invoice"} < shown
    assert shown.isdisjoint({"write_row", "update_invoice"})


def test_inspect_tells_by_which_tool_an_own_tool_is_called(output):
    out = output("mcp_inspect", "update_invoice")
    assert any(line.split() == ["called", "by", "write_row"] for line in out.splitlines())
    assert "shop.change_invoice" in out


def test_snapshot_changes_with_an_own_tool(output):
    found = json.loads(output("mcp_inspect", "--format", "snapshot"))
    (update,) = (tool for tool in found["model_tools"] if tool["name"] == "update_invoice")
    assert "shop.change_invoice" in update["permission"] and "total" in str(update["inputSchema"])


def test_explain_decides_the_generic_and_the_own_tools(output, alice, bob):
    assert "alice may use the model tool update_invoice" in output(
        "mcp_explain", "alice", "update_invoice"
    )
    out = output("mcp_explain", "bob", "update_invoice")
    assert "bob may not use" in out and "lacks shop.change_invoice" in out
    out = output("mcp_explain", "alice", "search_rows")
    assert "search_invoice: mcp.AUTHENTICATED: every authenticated user may use it" in out
    out = output("mcp_explain", "bob", "write_row")
    assert "the caller may use it for no model" in out


def test_admin_can_switch_off_own_and_generic_tools(output, server):
    choices = dict(switch_choices())[server.name]
    marks = {label for _, label in choices}
    assert {"tool:search_rows", "tool:search_invoice", "resource:invoice"} < marks
