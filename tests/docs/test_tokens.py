"""The page on access tokens: its code runs, and its promises hold."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.core import signing
from django.core.management import call_command
from django.utils import timezone

import django_mcp as mcp
from django_mcp.auth.principal import Auth, Principal
from django_mcp.declarations import server as servers

from .pages import ROOT, blocks

PAGE = ROOT / "docs/how-to/tokens.md"


@pytest.fixture
def page_code(monkeypatch, server):
    """The names that the code of the page defines, on its own server."""
    monkeypatch.setattr(servers, "default_server", server)
    namespace: dict[str, Any] = {"__name__": "tests.shop.shown"}
    for code in blocks(PAGE, "python"):
        exec(compile(code, str(PAGE), "exec", dont_inherit=True), namespace)
    return namespace


def test_permission_function_checks_the_scope(page_code, server, alice):
    assert server.ready().tools["rename"]
    may_write = page_code["may_write"]
    scopes = {None: True, frozenset(): False, frozenset({"write"}): True}
    for given, allowed in scopes.items():
        auth = None if given is None else Auth(given)
        request = mcp.Request(Principal(alice, auth), server)
        assert may_write(request) == allowed


def signed(user, server, seconds: float) -> str:
    return signing.dumps([user.pk, time.time() + seconds], salt=f"mcp {server.name}")


async def test_custom_verifier_of_the_page(page_code, server, alice):
    verifier = page_code["SignedTokens"]()
    assert isinstance(verifier, mcp.TokenVerifier)
    token, old = signed(alice, server, 600), signed(alice, server, -1)
    principal = await verifier.verify(token, server)
    assert principal.user == alice and principal.key == f"{alice.pk}::signed"
    assert principal.auth.expires > timezone.now()
    assert await verifier.verify(old, server) is None
    other = mcp.Server("another", path="another")
    assert await verifier.verify(token, other) is None
    assert await verifier.verify("mcp_" + "a" * 43, server) is None
    alice.is_active = False
    await alice.asave()
    assert await verifier.verify(token, server) is None


@pytest.mark.django_db
def test_custom_verifier_of_the_reference(server, alice):
    namespace: dict[str, Any] = {"__name__": "tests.shop.shown"}
    (code,) = blocks(ROOT / "docs/reference/authentication.md", "python")
    exec(compile(code, "authentication.md", "exec", dont_inherit=True), namespace)
    verifier = namespace["SignedTokens"]()
    token, old = signed(alice, server, 600), signed(alice, server, -1)
    principal = verifier.lookup(token, server)
    assert principal.key == f"{alice.pk}::signed" and principal.auth.expires > timezone.now()
    assert verifier.lookup(old, server) is None
    assert verifier.lookup(token, mcp.server) is None
    alice.is_active = False
    alice.save()
    assert verifier.lookup(token, server) is None


def test_output_of_mcp_token_is_that_of_the_page(alice, capsys):
    call_command("mcp_token", "create", "--user", "alice", "--name", "my laptop")
    said = capsys.readouterr()
    words = said.err.partition(" expires ")
    told = PAGE.read_text("utf-8")
    assert f"{words[0].partition(' ')[2].partition(' ')[2]} expires" in told
    assert "It is not shown again:" in said.err and "It is not shown again:" in told
    call_command("mcp_token", "revoke", "--user", "alice")
    assert "Revoked: 1" in capsys.readouterr().err
