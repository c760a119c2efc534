"""The page on scopes: its example needs what its table says, and its promises hold."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.core.management import call_command
from django.test import override_settings

import django_mcp as mcp
from django_mcp.auth.principal import Auth, Principal
from django_mcp.checks import check_settings
from django_mcp.declarations import decorators
from django_mcp.declarations.permissions import decide
from django_mcp.declarations.request import Request
from django_mcp.models import Token
from tests.http import HttpClient

from .pages import ROOT, blocks, text

PAGE = ROOT / "docs/how-to/scopes.md"
SETTINGS, DECLARED = blocks(PAGE, "python")
ROW = re.compile(r"^\| `(\w+)` \| (.*?) ?\| (.*?) ?\|$", re.M)
TOLD = {
    name: tuple(tuple(re.findall("`(.+?)`", cell)) for cell in cells)
    for name, *cells in ROW.findall(text(PAGE))
}


def run(code: str) -> dict[str, Any]:
    namespace: dict[str, Any] = {"__name__": "tests.shop.shown", "__package__": "tests.shop"}
    exec(compile(code, str(PAGE), "exec", dont_inherit=True), namespace)
    return namespace


@pytest.fixture
def shop(monkeypatch, server, settings):
    """The page's settings, and its declarations on a server of their own."""
    monkeypatch.setattr(decorators, "default_server", server)
    settings.DJANGO_MCP = {**settings.DJANGO_MCP, **run(SETTINGS)["DJANGO_MCP"]}
    run(DECLARED)
    return server


@pytest.fixture
def carol(alice):
    """Somebody who may do all of it."""
    alice.user_permissions.set(Permission.objects.filter(content_type__app_label="shop"))
    return type(alice).objects.get(pk=alice.pk)


def of(user, shop, *scopes, application=True):
    given = SimpleNamespace(pk=1) if application else None
    return Request(Principal(user, Auth(frozenset(scopes), given, key="" if given else "t")), shop)


def test_nothing_is_wrong_with_it(shop):
    assert check_settings() == [] and shop.ready()


def test_the_table_is_of_every_tool(shop):
    assert set(TOLD) == set(shop.ready().tools)


@pytest.mark.parametrize("name", TOLD)
def test_what_a_token_needs_and_what_is_asked_for(shop, carol, name):
    needs, asks = TOLD[name]
    tool = shop.ready().tools[name]
    assert tool._scopes == needs
    found = decide(tool, of(carol, shop, "profile"))
    assert found.missing_scopes == asks and found.allowed == (not asks)
    assert decide(tool, of(carol, shop, *asks)).allowed
    assert decide(tool, of(carol, shop, "shop")).allowed
    assert decide(tool, of(carol, shop)).allowed


def test_who_may_not_is_told_nothing(shop, bob):
    tools = shop.ready().tools
    for scope in ("shop", "shop:read", "profile"):
        assert not decide(tools["remind"], of(bob, shop, scope)).is_listed


def test_a_star_in_a_token_is_a_name(shop, carol):
    assert decide(shop.ready().tools["whoami"], of(carol, shop, "*")).missing_scopes == ("shop",)


def test_a_personal_token_is_narrowed_by_what_it_names(shop, carol):
    tools = shop.ready().tools
    request = of(carol, shop, "shop.view_invoice", "tool:close_month", application=False)
    usable = {name for name, tool in tools.items() if decide(tool, request).allowed}
    assert usable == {"search_invoice", "close_month", "hours"}
    assert {name for name, tool in tools.items() if decide(tool, request).is_listed} == usable


def test_the_command_makes_such_a_token(shop, carol, capsys):
    call_command("mcp_token", "create", "--user", "alice", "--name", "ci", "--scope", "shop:read")
    assert Token.objects.get().scopes == ["shop:read"]
    with HttpClient(capsys.readouterr().out.strip(), server=shop) as client:
        shown = {tool["name"] for tool in client.request("tools/list")["tools"]}
        assert shown == {"search_invoice", "hours"}
        assert client.start("tools/call", name="remind").wait().status != 403


def test_a_token_of_scopes_that_nothing_covers_may_do_nothing(shop, carol):
    """As of an issuer elsewhere, by the settings that a project begins with."""
    tools = shop.ready().tools
    request = of(carol, shop, "api", "openid", application=False)
    with override_settings(DJANGO_MCP={}):
        assert [name for name, one in tools.items() if decide(one, request).is_listed] == ["hours"]
    api = mcp.Scope("The shop", covers=["*"])
    with override_settings(DJANGO_MCP={"SCOPES": {"api": api}}):
        assert all(decide(one, request).allowed for one in tools.values())
