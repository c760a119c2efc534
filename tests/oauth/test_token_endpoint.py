"""The token and revocation endpoints, according to RFC 6749, RFC 7009 and OAuth 2.1."""

from __future__ import annotations

import base64
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from django.test import override_settings
from django.utils import timezone
from django.views.debug import ExceptionReporter
from oauth2_provider.models import get_access_token_model

from .conftest import REDIRECT, VERIFIER
from .flows import MCP, browser, code_for, error, issued, redeem, registered

FORM = "application/x-www-form-urlencoded"
BAD = (400, "invalid_request")
ENDPOINTS = ["/oauth/token", "/oauth/revoke"]


@pytest.fixture(autouse=True)
def _endpoints(in_public):
    with override_settings(ROOT_URLCONF="tests.oauth.tokens_urls"):
        yield


@pytest.fixture
def agent(db):
    return registered("dcr")


def post_pairs(path: str, *pairs: tuple[str, str], **headers: str) -> Any:
    """Post a form with exactly these fields, in this order."""
    return browser().post(path, urlencode(pairs), content_type=FORM, headers=headers)


def basic(name: str, secret: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{secret}".encode()).decode()


# RFC 6749, 3.2 and 5.2: malformed requests.


@pytest.mark.parametrize("name", [
    "grant_type", "code", "redirect_uri", "code_verifier", "client_id", "scope", "anything",
])  # fmt: skip
def test_repeated_parameter_is_an_invalid_request(alice, agent, name):
    """The code stays valid."""
    code = code_for(alice, agent)
    said = {
        "grant_type": "authorization_code", "code": code, "redirect_uri": REDIRECT,
        "code_verifier": VERIFIER, "client_id": agent.client_id, "scope": "mcp", "anything": "",
    }  # fmt: skip
    assert error(post_pairs("/oauth/token", *said.items(), (name, said[name]))) == BAD
    assert redeem(code, agent).status_code == 200


def test_only_resource_may_be_repeated(alice, agent):
    """RFC 8707, 2."""
    said = {
        "grant_type": "authorization_code", "code": code_for(alice, agent),
        "redirect_uri": REDIRECT, "code_verifier": VERIFIER, "client_id": agent.client_id,
    }  # fmt: skip
    assert post_pairs("/oauth/token", *said.items(), *[("resource", MCP)] * 2).status_code == 200


def test_repeated_refresh_token_is_an_invalid_request(alice, agent):
    told = issued(alice, agent)["refresh_token"]
    said = [("grant_type", "refresh_token"), ("client_id", agent.client_id)]
    assert (
        error(post_pairs("/oauth/token", *said, ("refresh_token", "x"), ("refresh_token", told)))
        == BAD
    )


@pytest.mark.parametrize("said", [{}, {"grant_type": ""}])
def test_missing_grant_type_is_an_invalid_request(agent, said):
    assert error(browser().post("/oauth/token", {"client_id": agent.client_id, **said})) == BAD


def test_body_other_than_a_form_is_an_invalid_request(db):
    found = browser().post("/oauth/token", '{"grant_type": "x"}', content_type="application/json")
    assert error(found) == BAD


@pytest.mark.parametrize("more", [("token", "x"), ("client_id", "x"), ("token_type_hint", "x")])
def test_revocation_with_repeated_parameter_is_invalid(agent, more):
    said = {"token": "x", "client_id": agent.client_id, "token_type_hint": "access_token"}
    assert error(post_pairs("/oauth/revoke", *said.items(), more)) == BAD


def test_revocation_with_token_in_the_url_is_invalid(agent):
    assert error(post_pairs("/oauth/revoke?token=x", ("client_id", agent.client_id))) == BAD


def test_access_token_is_valid_for_an_hour(alice, agent):
    """A short lifetime limits the damage of a leaked token."""
    told = issued(alice, agent)
    left = get_access_token_model().objects.get().expires - timezone.now()
    assert told["expires_in"] == 3600
    assert timedelta(minutes=58) < left <= timedelta(hours=1)


def test_revoking_an_unknown_token_succeeds(agent):
    """RFC 7009, 2.2."""
    found = post_pairs("/oauth/revoke", ("token", "x"), ("client_id", agent.client_id))
    assert (found.status_code, found.content, found["Cache-Control"]) == (200, b"", "no-store")


# RFC 6749, 5.2: failed client authentication.


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("scheme", ["Basic", "basic"])
def test_failed_basic_authentication_gets_a_basic_challenge(db, path, scheme):
    """RFC 6749, 5.2: "matching the authentication scheme used by the client"."""
    header = basic("nobody", "x").replace("Basic", scheme)
    pairs = [("grant_type", "refresh_token"), ("refresh_token", "x"), ("token", "x")]
    found = post_pairs(path, *pairs, Authorization=header)
    assert error(found) == (401, "invalid_client")
    assert found["WWW-Authenticate"] == 'Basic realm="oauth", charset="UTF-8"'


@pytest.mark.parametrize("path", ENDPOINTS)
def test_failed_authentication_by_form_gets_no_basic_challenge(db, path):
    """A browser would open a dialog for a name and a password."""
    pairs = [("grant_type", "refresh_token"), ("refresh_token", "x"), ("token", "x")]
    found = post_pairs(path, *pairs, ("client_id", "nobody"))
    assert error(found) == (401, "invalid_client")
    assert not found["WWW-Authenticate"].startswith("Basic")


# OAuth 2.1, 4.1.3 and 10.2: the token request need not repeat the redirect URI.


@pytest.mark.parametrize(
    ("known", "used"),
    [
        (f"{REDIRECT} https://agent.example/back", "https://agent.example/back"),
        ("http://127.0.0.1/callback", "http://127.0.0.1:54321/callback"),
    ],
    ids=["of several", "by another port"],
)
def test_code_is_redeemed_without_repeating_the_redirect_uri(alice, known, used):
    client = registered("dcr", redirect_uris=known)
    code = code_for(alice, client, redirect_uri=used)
    assert redeem(code, client, redirect_uri=None, code_verifier="x" * 64).status_code == 400
    assert redeem(code, client, redirect_uri="http://127.0.0.1:1/callback").status_code == 400
    assert redeem(code, client, redirect_uri=None).status_code == 200


# T25: a token sent for revocation is a secret.


def test_token_to_be_revoked_is_hidden_in_error_reports(agent, monkeypatch, caplog):
    def broken(*args, **kwargs):
        raise RuntimeError("a bug")

    monkeypatch.setattr("django_mcp.oauth.grants._refresh_tokens_of", broken)
    web, secret = browser(), "nobody-may-see-this"
    web.raise_request_exception = False
    found = web.post("/oauth/revoke", {"token": secret, "client_id": agent.client_id})
    assert found.status_code == 500
    (record,) = (one for one in caplog.records if one.exc_info)
    report = ExceptionReporter(record.request, *record.exc_info, is_email=True)
    text = report.get_traceback_text()
    assert "a bug" in text and secret not in text
