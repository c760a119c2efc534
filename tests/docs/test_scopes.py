"""The page on scopes: its example needs the scopes of its table, and its promises hold."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission
from django.core.management import call_command
from django.test import override_settings

import django_mcp as mcp
from django_mcp.auth.principal import Auth, Principal
from django_mcp.checks import check_settings
from django_mcp.declarations import server as servers
from django_mcp.declarations.declaration import decide
from django_mcp.declarations.request import Request
from django_mcp.models import Token
from tests.http import HttpClient

from .pages import ROOT, blocks, text

PAGE = ROOT / "docs/how-to/scopes.md"
SETTINGS, DECLARED = blocks(PAGE, "python")
ROW = re.compile(r"^\| `(\w+)` \| (.*?) ?\| (.*?) ?\|$", re.M)
SCOPES_OF_TABLE = {
    name: tuple(tuple(re.findall("`(.+?)`", cell)) for cell in cells)
    for name, *cells in ROW.findall(text(PAGE))
}


def run(code: str) -> dict[str, Any]:
    namespace: dict[str, Any] = {"__name__": "tests.shop.shown", "__package__": "tests.shop"}
    exec(compile(code, str(PAGE), "exec", dont_inherit=True), namespace)
    return namespace


@pytest.fixture
def shop(monkeypatch, server, settings):
    """The settings of the page, and its declarations on their own server."""
    monkeypatch.setattr(servers, "default_server", server)
    settings.DJANGO_MCP = {**settings.DJANGO_MCP, **run(SETTINGS)["DJANGO_MCP"]}
    run(DECLARED)
    return server


@pytest.fixture
def user_with_all_permissions(alice):
    """Somebody who may do all of it."""
    alice.user_permissions.set(Permission.objects.filter(content_type__app_label="shop"))
    alice.groups.add(Group.objects.create(name="accounting"))
    return type(alice).objects.get(pk=alice.pk)


def request_with_scopes(user, shop, *scopes, application=True):
    given = SimpleNamespace(pk=1) if application else None
    return Request(Principal(user, Auth(frozenset(scopes), given, key="" if given else "t")), shop)


def test_system_checks_pass(shop):
    assert check_settings() == [] and shop.ready()


def test_table_lists_every_tool(shop):
    assert set(SCOPES_OF_TABLE) == set(shop.ready().tools)


@pytest.mark.parametrize("name", SCOPES_OF_TABLE)
def test_needed_and_missing_scopes_match_the_table(shop, user_with_all_permissions, name):
    needs, asks = SCOPES_OF_TABLE[name]
    tool = shop.ready().tools[name]
    assert tool._scopes == needs
    found = decide(tool, request_with_scopes(user_with_all_permissions, shop, "profile"))
    assert found.missing_scopes == asks and found.allowed == (not asks)
    assert decide(tool, request_with_scopes(user_with_all_permissions, shop, *asks)).allowed
    assert decide(tool, request_with_scopes(user_with_all_permissions, shop, "shop")).allowed
    assert decide(tool, request_with_scopes(user_with_all_permissions, shop)).allowed


def test_user_without_the_permission_sees_no_scope(shop, bob):
    tools = shop.ready().tools
    for scope in ("shop", "shop:read", "profile"):
        assert not decide(tools["remind"], request_with_scopes(bob, shop, scope)).is_listed


def test_star_in_a_token_is_not_a_wildcard(shop, user_with_all_permissions):
    assert decide(
        shop.ready().tools["whoami"], request_with_scopes(user_with_all_permissions, shop, "*")
    ).missing_scopes == ("shop",)


def test_personal_token_is_limited_by_its_scopes(shop, user_with_all_permissions):
    tools = shop.ready().tools
    request = request_with_scopes(
        user_with_all_permissions, shop, "shop.view_invoice", "tool:close_month", application=False
    )
    usable = {name for name, tool in tools.items() if decide(tool, request).allowed}
    assert usable == {"search_invoice", "close_month", "hours"}
    assert {name for name, tool in tools.items() if decide(tool, request).is_listed} == usable


def test_mcp_token_creates_a_token_with_scopes(shop, user_with_all_permissions, capsys):
    call_command("mcp_token", "create", "--user", "alice", "--name", "ci", "--scope", "shop:read")
    assert Token.objects.get().scopes == ["shop:read"]
    with HttpClient(capsys.readouterr().out.strip(), server=shop) as client:
        shown = {tool["name"] for tool in client.request("tools/list")["tools"]}
        assert shown == {"search_invoice", "hours"}
        assert client.start("tools/call", name="remind").wait().status != 403


def test_token_with_unknown_scopes_may_do_nothing(shop, user_with_all_permissions):
    """Such as of another issuer, with the default settings."""
    tools = shop.ready().tools
    request = request_with_scopes(
        user_with_all_permissions, shop, "api", "openid", application=False
    )
    with override_settings(DJANGO_MCP={}):
        assert [name for name, one in tools.items() if decide(one, request).is_listed] == ["hours"]
    api = mcp.Scope("The shop", covers=["*"])
    with override_settings(DJANGO_MCP={"SCOPES": {"api": api}}):
        assert all(decide(one, request).allowed for one in tools.values())
