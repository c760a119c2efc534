"""Connection methods on the server page, for public, token and OAuth servers."""

from __future__ import annotations

import pytest

import django_mcp as mcp
from django_mcp.web.clients import CLIENTS, connection_methods, is_open, short_name, signs_in

URL = "https://books.example/mcp"


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("billing", "billing"), ("a test's own", "a-test-s-own"), ("Büro 2", "B-ro-2"),
        ("商店", "mcp"), ("-", "mcp"), ("a" * 100, "a" * 64), ("a" * 70 + " b", "a" * 64),
    ],
)  # fmt: skip
def test_server_name_is_shortened_for_clients(server, name, short):
    server.public_name = name
    assert short_name(server) == short
    assert len(connection_methods(server, URL)) == len(CLIENTS)


def test_public_server_needs_no_token_in_snippets(server):
    @server.tool(permission=mcp.PUBLIC)
    def read(request: mcp.Request) -> None: ...

    assert is_open(server)
    for method in connection_methods(server, URL):
        assert "TOKEN" not in method.snippet.text and "Bearer" not in method.snippet.text
        assert "oken" not in (method.link or "")


def test_empty_server_is_not_open(server):
    assert not is_open(server)


def test_snippets_have_a_placeholder_if_a_declaration_needs_a_token(server):
    @server.tool(permission=mcp.PUBLIC)
    def read(request: mcp.Request) -> None: ...

    @server.prompt
    def write(request: mcp.Request) -> str:
        return ""

    assert not is_open(server)
    placed = [
        method.key
        for method in connection_methods(server, URL)
        if "YOUR_TOKEN" in method.snippet.text
    ]
    assert placed == [client.key for client in CLIENTS if client.key != "chatgpt"]


class VerifierWithMetadata:
    """Has a metadata URL, and accepts no token."""

    async def verify(self, token, server):
        return None

    def challenge(self, server):
        return {"resource_metadata": f"{URL}/metadata"}


@pytest.fixture
def oauth_verifier(settings):
    own = getattr(settings, "DJANGO_MCP", {})
    settings.DJANGO_MCP = {**own, "VERIFIERS": [f"{__name__}.VerifierWithMetadata"]}


def test_snippets_have_no_placeholder_if_clients_sign_in_by_oauth(server, oauth_verifier):
    @server.tool
    def read(request: mcp.Request) -> None: ...

    assert signs_in(server) and not is_open(server)
    for method in connection_methods(server, URL):
        assert "TOKEN" not in method.snippet.text and "Bearer" not in method.snippet.text
        assert "oken" not in (method.link or "")


def test_partly_public_server_does_not_make_clients_sign_in(server, oauth_verifier):
    @server.tool(permission=mcp.PUBLIC)
    def read(request: mcp.Request) -> None: ...

    @server.tool
    def write(request: mcp.Request) -> None: ...

    assert not signs_in(server)
    assert any("YOUR_TOKEN" in method.snippet.text for method in connection_methods(server, URL))


def test_personal_access_tokens_do_not_make_clients_sign_in(server):
    @server.tool
    def read(request: mcp.Request) -> None: ...

    assert not signs_in(server)


def test_words_of_a_command_are_those_of_its_snippet(server):
    for method in connection_methods(server, URL):
        is_command = method.snippet.language == "sh"
        assert " ".join(method.words) == (method.snippet.text if is_command else "")
