"""Issuers elsewhere at the endpoint: challenges, metadata, and what a client is told meanwhile."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from django.test import override_settings
from django.urls import include, path

import django_mcp as mcp
from django_mcp.models import Token
from django_mcp.oauth.verifier import OAuthTokens
from django_mcp.verifiers import jwt_tokens as keys
from django_mcp.verifiers.personal_tokens import PersonalAccessTokens
from django_mcp.verifiers.protected_resource import resource
from tests.http import HttpClient

pytestmark = pytest.mark.django_db
URLS = ["django_mcp.verifiers.urls", "django_mcp.oauth.urls"]


@pytest.fixture
def server(server):
    @server.tool
    def whoami(request) -> str:
        return f"{request.user.get_username()} {sorted(request.auth.scopes)}"

    return server


@pytest.fixture
def aud(server):
    return resource(server)


@pytest.fixture
def comes(http, server):
    def made(token: str | None, **options: Any) -> HttpClient:
        found: HttpClient = http(token, **{"server": server} | options)
        return found

    return made


def challenged(client) -> dict[str, str]:
    talk = client.start("tools/call", name="whoami", arguments={}).wait()
    assert talk.refused == (401, -32600), talk
    return dict(re.findall(r'([a-z_]+)="([^"]*)"', talk.headers["www-authenticate"]))


def test_whoever_has_a_token_is_who_it_says(issuer, tokens, asked, comes, alice, aud):
    asked(tokens())
    assert comes(issuer.token(aud)).text("whoami") == "alice ['mcp']"


def test_a_session_is_its_users_and_clients(issuer, tokens, asked, comes, alice, bob, aud):
    asked(tokens())
    client = comes(issuer.token(aud), revision="2025-06-18")
    assert client.session
    for token, status in (
        (issuer.token(aud, jti="2"), 200), (issuer.token(aud, client_id="other"), 404),
        (issuer.token(aud, sub="bob"), 404), (issuer.token("x"), 401),
    ):  # fmt: skip
        client.token = token
        assert client.start("ping").wait().status == status


def test_whoever_has_none_is_told_where_to_get_one(issuer, tokens, asked, comes, aud, server, web):
    asked(tokens(scopes=["mcp"]))
    for token in (None, issuer.token("x")):
        said = challenged(comes(token, initialize=False))
        assert said["scope"] == "mcp" and said["realm"] == server.name
        assert web(said["resource_metadata"]) == {
            "resource": aud, "authorization_servers": [issuer.name],
            "scopes_supported": ["mcp"], "bearer_methods_supported": ["header"],
            "resource_name": server.public_name,
        }  # fmt: skip


@pytest.mark.parametrize("ask", [None, ["api://shop/read"], []])
def test_whoever_lacks_a_scope_alone_is_told_which(
    issuer, tokens, asked, comes, alice, aud, revision, ask
):
    asked(tokens(scopes=["mcp", "read"], ask=ask))
    client = comes(issuer.token(aud, scope="mcp"), revision=revision, initialize=False)
    talk = client.start("tools/call", name="whoami", arguments={}).wait()
    said = dict(re.findall(r'([a-z_]+)="([^"]*)"', talk.headers["www-authenticate"]))
    assert talk.status == 403 and said["error"] == "insufficient_scope"
    assert said["scope"] == " ".join(ask or ["mcp", "read"])
    assert said["resource_metadata"].startswith("https://shop.example/.well-known/")
    for worse in ({"aud": "https://evil.example"}, {"exp": 1}, {"scope": ""}):
        client.token = issuer.token(**{"aud": aud, "scope": "mcp"} | worse)
        assert challenged(client)["error"] == "invalid_token"


@pytest.fixture(params=URLS)
def web(request, client, server):
    """Documents at the shop's own host, whichever URLs are there."""

    class Included:
        urlpatterns = [path("", include(request.param))]

    def get(url: str) -> Any:
        with override_settings(ROOT_URLCONF=Included, ALLOWED_HOSTS=["testserver"]):
            response = client.get(url.removeprefix("https://shop.example"))
        assert response.status_code == 200, response
        return json.loads(response.content)

    return get


def test_two_issuers_are_both_named_and_the_first_is_whom_clients_ask(
    issuer, tokens, introspected, asked, comes, server, web
):
    asked(OAuthTokens(), tokens(scopes=["offline_access", "read", "mcp"]))
    said = challenged(comes(None, initialize=False))
    assert said["scope"] == "mcp"
    found = web(said["resource_metadata"])
    assert found["authorization_servers"] == ["https://shop.example", issuer.name]
    assert found["scopes_supported"] == ["mcp", "read"]


def test_who_asks_for_no_scopes_tells_of_none(issuer, tokens, asked, comes, web):
    asked(tokens())
    said = challenged(comes(None, initialize=False))
    assert "scope" not in said and "scopes_supported" not in web(said["resource_metadata"])


def test_what_cannot_be_told_is_neither_yes_nor_no(issuer, tokens, asked, comes, alice, aud, clock):
    asked(tokens(), PersonalAccessTokens())
    issuer.publish()
    issuer.behave = lambda handler, path: bool(handler.send_error(500)) or True
    client = comes(issuer.token(aud), initialize=False)
    talk = client.start("tools/call", name="whoami", arguments={}).wait()
    assert talk.status == 503 and talk.headers["retry-after"] == "1"
    assert issuer.name not in str(talk.messages) and "www-authenticate" not in talk.headers
    issuer.behave = lambda handler, path: False
    clock.ahead += keys.FETCH_INTERVAL_SECONDS
    assert challenged(client)["error"] == "invalid_token"


def test_other_tokens_go_on_while_an_issuer_is_away(issuer, tokens, asked, comes, alice, server):
    issuer.down()
    asked(tokens(), PersonalAccessTokens())
    _, secret = Token.make(alice, "laptop")
    assert comes(secret).text("whoami") == "alice []"
    issuer.down = lambda: None


@pytest.mark.slow
def test_a_stream_ends_with_its_token(issuer, tokens, asked, comes, alice, aud):
    asked(tokens())
    token = issuer.token(aud, exp=int(time.time()) + 2)
    client = comes(token, revision="2025-06-18")
    began = time.monotonic()
    client.listen().wait()
    assert time.monotonic() - began < 30


def test_a_token_is_for_one_server(issuer, tokens, asked, comes, alice, aud):
    asked(tokens())
    other = mcp.Server("other", path="mcp/other")
    other.tool(lambda request: "x", name="whoami")
    assert challenged(comes(issuer.token(aud), server=other, initialize=False))
