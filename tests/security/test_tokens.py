"""Attacks on personal access tokens over HTTP, with and without sessions."""

from __future__ import annotations

import json
import logging
from datetime import timedelta

import pytest
from django.contrib.auth import get_user_model
from django.utils import timezone

import django_mcp as mcp
from django_mcp.declarations import server as declared
from django_mcp.models import Session, Token
from django_mcp.storage.databases import rows
from django_mcp.verifiers.personal_tokens import revoke
from tests.http import HttpClient
from tests.verifiers.test_personal_tokens import everything_stored

REVISIONS = ["2025-11-25", "2026-07-28"]
ELSEWHERE = "mcp_" + "a" * 43


@pytest.fixture(params=REVISIONS)
def revision(request):
    return request.param


@pytest.fixture
def shop(db):
    """A server with a public tool and one that returns who is calling."""
    made = mcp.Server("tokens", path="mcp/tokens")

    @made.tool(permission=mcp.PUBLIC, read_only=True)
    def hello(request) -> str:
        return "hello"

    @made.tool(permission=mcp.AUTHENTICATED, read_only=True)
    def me(request) -> str:
        return (
            f"{request.user.username} {sorted(request.auth.scopes)} {visible_attributes(request)}"
        )

    yield made
    declared._servers.pop("tokens", None)


def visible_attributes(request) -> str:
    """Return everything that a tool can find in its request."""
    meta = {str(key): str(value) for key, value in request.http.META.items()}
    return f"{request.auth!r} {request.principal!r} {request.principal.key} {meta}"


@pytest.fixture
def client(shop, revision):
    made = []

    def client(token=None, **options):
        made.append(HttpClient(token, server=shop, revision=revision, **options))
        return made[-1].__enter__()

    yield client
    for one in made:
        one.__exit__(None, None, None)


def status(one, tool="me", **changed):
    """Return the response to a call, with some headers changed."""
    return one.post(one.message("tools/call", {"name": tool, "arguments": {}}), **changed).wait()


def test_token_authenticates_its_user(client, alice):
    _, secret = Token.make(alice, "x", scopes=["tool:me"])
    assert client(secret).text("me").startswith("alice ['tool:me']")


def test_tool_does_not_get_the_token(client, alice):
    """A tool could pass it on, or a model could read it."""
    token, secret = Token.make(alice, "x")
    told = client(secret).text("me")
    assert secret[4:] not in told and token.digest not in told


@pytest.mark.parametrize("tool", ["hello", "me"])
def test_request_without_a_token_is_anonymous(client, tool):
    one = client()
    assert status(one, tool).status == (200 if tool == "hello" else 401)


@pytest.mark.parametrize("header", [
    f"Bearer {ELSEWHERE}", "Bearer", "Bearer ", "Bearer mcp_", "Bearer " + "x" * 5_000,
    "Bearer \xe9", "bearer null", f"Bearer {ELSEWHERE} {ELSEWHERE}",
])  # fmt: skip
@pytest.mark.parametrize("tool", ["hello", "me"])
def test_invalid_token_is_rejected_even_by_public_tools(client, tool, header):
    exchange = status(client(), tool, authorization=header)
    assert (
        exchange.status == 401 and 'error="invalid_token"' in exchange.headers["www-authenticate"]
    )
    assert ELSEWHERE not in exchange.body.decode() + str(exchange.headers)


def test_token_outside_the_header_is_ignored(client, alice):
    """URLs, forms and cookies end up in logs, or are sent without intent."""
    _, secret = Token.make(alice, "x")
    one = client()
    for where in (
        {"scope": {"query_string": f"access_token={secret}&token={secret}".encode()}},
        {"cookie": f"access_token={secret}; token={secret}; Authorization=Bearer {secret}"},
        {"x_access_token": secret},
        {"proxy_authorization": f"Bearer {secret}"},
        {"authorization": f"Token {secret}"},
        {"authorization": f"Basic {secret}"},
        {"authorization": secret},
    ):
        assert status(one, **where).status == 401, where
    message = one.message("tools/call", {"name": "me", "arguments": {}})
    assert one.post(message | {"access_token": secret}).wait().status in (400, 401)


def test_token_is_rejected_after_revocation(client, alice):
    _, secret = Token.make(alice, "x")
    one = client(secret)
    assert status(one).status == 200
    revoke(Token.objects.all())
    assert status(one).status == 401 and status(one, "hello").status == 401


def test_token_is_rejected_after_expiry(client, alice):
    _, secret = Token.make(alice, "x", expires=timezone.now() + timedelta(minutes=5))
    one = client(secret)
    assert status(one).status == 200
    Token.objects.update(expires=timezone.now() - timedelta(seconds=1))
    assert status(one).status == 401


def test_token_of_a_deactivated_user_is_rejected(client, alice):
    _, secret = Token.make(alice, "x")
    one = client(secret)
    assert status(one).status == 200
    get_user_model().objects.update(is_active=False)
    assert status(one).status == 401


def test_token_of_another_server_is_rejected(client, alice):
    _, secret = Token.make(alice, "x", server="default")
    assert status(client(), authorization=f"Bearer {secret}").status == 401


def test_request_with_two_tokens_is_rejected(client, alice, bob):
    """Proxies and servers disagree which of two headers counts."""
    secrets = [Token.make(user, "x")[1] for user in (alice, bob)]
    one = client()
    message = one.message("tools/call", {"name": "me", "arguments": {}})
    headers = [(k.encode(), v.encode()) for k, v in one.headers(message).items() if v is not None]
    headers += [(b"authorization", f"Bearer {secret}".encode()) for secret in secrets]
    body = json.dumps(message).encode()
    assert one.send("POST", one.path, body, headers).status in (400, 401)


def test_token_is_neither_logged_nor_stored_nor_repeated(client, alice, caplog):
    caplog.set_level(logging.DEBUG)
    token, secret = Token.make(alice, "x")
    one = client(secret)
    one.text("me")
    revoke(Token.objects.all())
    refused = status(one)
    assert "reason=revoked" in caplog.text
    for text in (caplog.text, refused.body.decode(), str(refused.headers), everything_stored()):
        assert secret[8:] not in text
    assert token.digest not in caplog.text + refused.body.decode()


# Sessions.


def with_session_of(one, shop, secret):
    """Return a client with the session id of another and its own token."""
    thief = HttpClient(secret, server=shop, revision="2025-11-25", initialize=False)
    thief.session = one.session
    return thief


@pytest.mark.parametrize("revision", ["2025-11-25"], indirect=True)
def test_session_of_another_user_or_token_is_not_found(client, shop, alice, bob):
    _, secret = Token.make(alice, "x")
    one = client(secret)
    for stolen in (Token.make(bob, "x")[1], Token.make(alice, "another")[1]):
        with with_session_of(one, shop, stolen) as thief:
            assert status(thief).status == 404 and status(thief, "hello").status == 404
            assert thief.send("DELETE", thief.path, headers=thief.headers()).status == 404
    with with_session_of(one, shop, None) as thief:
        assert status(thief, "hello").status == 401
    assert rows(Session).get().owner == f"{alice.pk}::token-{Token.objects.earliest('pk').pk}"
    assert status(one).status == 200


@pytest.mark.parametrize("revision", ["2025-11-25"], indirect=True)
def test_anonymous_session_cannot_be_used_with_a_token(client, shop, alice):
    """The id of an anonymous session may be known to others."""
    one = client()
    with with_session_of(one, shop, Token.make(alice, "x")[1]) as other:
        assert status(other).status == 404


@pytest.mark.parametrize("revision", ["2025-11-25"], indirect=True)
def test_session_of_a_revoked_token_cannot_be_used_with_a_new_one(client, shop, alice):
    _, secret = Token.make(alice, "x")
    one = client(secret)
    revoke(Token.objects.all())
    fresh = Token.make(alice, "fresh")[1]
    with with_session_of(one, shop, fresh) as other:
        assert status(other).status == 404
