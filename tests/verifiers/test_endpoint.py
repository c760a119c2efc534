"""Tokens of other issuers at the MCP endpoint: challenges, metadata, sessions and outages."""

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
def connect(http, server):
    def made(token: str | None, **options: Any) -> HttpClient:
        found: HttpClient = http(token, **{"server": server} | options)
        return found

    return made


def challenge_of(client) -> dict[str, str]:
    exchange = client.start("tools/call", name="whoami", arguments={}).wait()
    assert exchange.refused == (401, -32600), exchange
    return dict(re.findall(r'([a-z_]+)="([^"]*)"', exchange.headers["www-authenticate"]))


def test_token_gives_the_user_and_the_scopes(issuer, tokens, asked, connect, alice, aud):
    asked(tokens())
    assert connect(issuer.token(aud)).text("whoami") == "alice ['mcp']"


def test_session_of_another_user_or_client_is_not_found(
    issuer, tokens, asked, connect, alice, bob, aud
):
    asked(tokens())
    client = connect(issuer.token(aud), revision="2025-06-18")
    assert client.session
    for token, status in (
        (issuer.token(aud, jti="2"), 200), (issuer.token(aud, client_id="other"), 404),
        (issuer.token(aud, sub="bob"), 404), (issuer.token("x"), 401),
    ):  # fmt: skip
        client.token = token
        assert client.start("ping").wait().status == status


def test_challenge_leads_to_metadata_with_the_issuer(
    issuer, tokens, asked, connect, aud, server, web
):
    asked(tokens(scopes=["mcp"]))
    for token in (None, issuer.token("x")):
        said = challenge_of(connect(token, initialize=False))
        assert said["scope"] == "mcp" and said["realm"] == server.name
        assert web(said["resource_metadata"]) == {
            "resource": aud, "authorization_servers": [issuer.name],
            "scopes_supported": ["mcp"], "bearer_methods_supported": ["header"],
            "resource_name": server.public_name,
        }  # fmt: skip


@pytest.mark.parametrize("advertised", [None, ["api://shop/read"], []])
def test_missing_scope_is_a_403_with_the_needed_scopes(
    issuer, tokens, asked, connect, alice, aud, revision, advertised
):
    asked(tokens(scopes=["mcp", "read"], advertised_scopes=advertised))
    client = connect(issuer.token(aud, scope="mcp"), revision=revision, initialize=False)
    exchange = client.start("tools/call", name="whoami", arguments={}).wait()
    said = dict(re.findall(r'([a-z_]+)="([^"]*)"', exchange.headers["www-authenticate"]))
    assert exchange.status == 403 and said["error"] == "insufficient_scope"
    assert said["scope"] == " ".join(advertised or ["mcp", "read"])
    assert said["resource_metadata"].startswith("https://shop.example/.well-known/")
    for worse in ({"aud": "https://evil.example"}, {"exp": 1}, {"scope": ""}):
        client.token = issuer.token(**{"aud": aud, "scope": "mcp"} | worse)
        assert challenge_of(client)["error"] == "invalid_token"


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


def test_metadata_lists_all_issuers_in_order(
    issuer, tokens, introspected, asked, connect, server, web
):
    asked(OAuthTokens(), tokens(scopes=["offline_access", "read", "mcp"]))
    said = challenge_of(connect(None, initialize=False))
    assert said["scope"] == "mcp"
    found = web(said["resource_metadata"])
    assert found["authorization_servers"] == ["https://shop.example", issuer.name]
    assert found["scopes_supported"] == ["mcp", "read"]


def test_verifier_without_scopes_lists_none(issuer, tokens, asked, connect, web):
    asked(tokens())
    said = challenge_of(connect(None, initialize=False))
    assert "scope" not in said and "scopes_supported" not in web(said["resource_metadata"])


def test_unreachable_issuer_leads_to_503(issuer, tokens, asked, connect, alice, aud, clock):
    asked(tokens(), PersonalAccessTokens())
    issuer.publish()
    issuer.behave = lambda handler, path: bool(handler.send_error(500)) or True
    client = connect(issuer.token(aud), initialize=False)
    exchange = client.start("tools/call", name="whoami", arguments={}).wait()
    assert exchange.status == 503 and exchange.headers["retry-after"] == "1"
    assert issuer.name not in str(exchange.messages) and "www-authenticate" not in exchange.headers
    issuer.behave = lambda handler, path: False
    clock.ahead += keys.FETCH_INTERVAL_SECONDS
    assert challenge_of(client)["error"] == "invalid_token"


def test_other_tokens_work_while_an_issuer_is_down(issuer, tokens, asked, connect, alice, server):
    issuer.down()
    asked(tokens(), PersonalAccessTokens())
    _, secret = Token.make(alice, "laptop")
    assert connect(secret).text("whoami") == "alice []"
    issuer.down = lambda: None


@pytest.mark.slow
def test_stream_ends_when_its_token_expires(issuer, tokens, asked, connect, alice, aud):
    asked(tokens())
    token = issuer.token(aud, exp=int(time.time()) + 2)
    client = connect(token, revision="2025-06-18")
    began = time.monotonic()
    client.listen().wait()
    assert time.monotonic() - began < 30


def test_token_for_another_server_is_rejected(issuer, tokens, asked, connect, alice, aud):
    asked(tokens())
    other = mcp.Server("other", path="mcp/other")
    other.tool(lambda request: "x", name="whoami")
    assert challenge_of(connect(issuer.token(aud), server=other, initialize=False))
