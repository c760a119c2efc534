"""How each client is connected, as the page shows it."""

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
def test_a_name_that_every_client_takes(server, name, short):
    server.public_name = name
    assert short_name(server) == short
    assert len(connection_methods(server, URL)) == len(CLIENTS)


def test_where_nobody_needs_a_token_none_is_asked_for(server):
    @server.tool(permission=mcp.PUBLIC)
    def read(request: mcp.Request) -> None: ...

    assert is_open(server)
    for method in connection_methods(server, URL):
        assert "TOKEN" not in method.snippet.text and "Bearer" not in method.snippet.text
        assert "oken" not in (method.link or "")


def test_where_there_is_nothing_nobody_is_let_in_without(server):
    assert not is_open(server)


def test_where_somebody_needs_one_there_is_a_place_for_it(server):
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


class Elsewhere:
    """Tells where its tokens are to be had, and knows none."""

    async def verify(self, token, server):
        return None

    def challenge(self, server):
        return {"resource_metadata": f"{URL}/metadata"}


@pytest.fixture
def signing_in(settings):
    own = getattr(settings, "DJANGO_MCP", {})
    settings.DJANGO_MCP = {**own, "VERIFIERS": [f"{__name__}.Elsewhere"]}


def test_where_clients_are_told_where_to_sign_in_there_is_no_place_for_a_token(server, signing_in):
    @server.tool
    def read(request: mcp.Request) -> None: ...

    assert signs_in(server) and not is_open(server)
    for method in connection_methods(server, URL):
        assert "TOKEN" not in method.snippet.text and "Bearer" not in method.snippet.text
        assert "oken" not in (method.link or "")


def test_who_is_let_in_as_nobody_is_not_told_where_to_sign_in(server, signing_in):
    @server.tool(permission=mcp.PUBLIC)
    def read(request: mcp.Request) -> None: ...

    @server.tool
    def write(request: mcp.Request) -> None: ...

    assert not signs_in(server)
    assert any("YOUR_TOKEN" in method.snippet.text for method in connection_methods(server, URL))


def test_access_tokens_are_signed_in_for_nowhere(server):
    @server.tool
    def read(request: mcp.Request) -> None: ...

    assert not signs_in(server)


def test_a_command_is_read_word_by_word(server):
    for method in connection_methods(server, URL):
        is_command = method.snippet.language == "sh"
        assert " ".join(method.words) == (method.snippet.text if is_command else "")
