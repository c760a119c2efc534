"""The token and the revocation endpoint, by the letter of RFC 6749, RFC 7009 and OAuth 2.1."""

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


def sent(path: str, *pairs: tuple[str, str], **headers: str) -> Any:
    """A form of just these fields, in their order."""
    return browser().post(path, urlencode(pairs), content_type=FORM, headers=headers)


def basic(name: str, secret: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{secret}".encode()).decode()


# RFC 6749, 3.2 and 5.2: what no request may be.


@pytest.mark.parametrize("name", [
    "grant_type", "code", "redirect_uri", "code_verifier", "client_id", "scope", "anything",
])  # fmt: skip
def test_a_parameter_is_there_once(alice, agent, name):
    """And the code is as good as it was: nothing of the request was looked at."""
    code = code_for(alice, agent)
    said = {
        "grant_type": "authorization_code", "code": code, "redirect_uri": REDIRECT,
        "code_verifier": VERIFIER, "client_id": agent.client_id, "scope": "mcp", "anything": "",
    }  # fmt: skip
    assert error(sent("/oauth/token", *said.items(), (name, said[name]))) == BAD
    assert redeem(code, agent).status_code == 200


def test_only_servers_may_be_named_more_than_once(alice, agent):
    """RFC 8707, 2."""
    said = {
        "grant_type": "authorization_code", "code": code_for(alice, agent),
        "redirect_uri": REDIRECT, "code_verifier": VERIFIER, "client_id": agent.client_id,
    }  # fmt: skip
    assert sent("/oauth/token", *said.items(), *[("resource", MCP)] * 2).status_code == 200


def test_a_refresh_token_comes_alone(alice, agent):
    told = issued(alice, agent)["refresh_token"]
    said = [("grant_type", "refresh_token"), ("client_id", agent.client_id)]
    assert (
        error(sent("/oauth/token", *said, ("refresh_token", "x"), ("refresh_token", told))) == BAD
    )


@pytest.mark.parametrize("said", [{}, {"grant_type": ""}])
def test_without_a_grant_type_it_is_no_request(agent, said):
    assert error(browser().post("/oauth/token", {"client_id": agent.client_id, **said})) == BAD


def test_what_is_no_form_is_no_request(db):
    found = browser().post("/oauth/token", '{"grant_type": "x"}', content_type="application/json")
    assert error(found) == BAD


@pytest.mark.parametrize("more", [("token", "x"), ("client_id", "x"), ("token_type_hint", "x")])
def test_a_revocation_names_one_token(agent, more):
    said = {"token": "x", "client_id": agent.client_id, "token_type_hint": "access_token"}
    assert error(sent("/oauth/revoke", *said.items(), more)) == BAD


def test_a_revocation_is_not_in_a_url(agent):
    assert error(sent("/oauth/revoke?token=x", ("client_id", agent.client_id))) == BAD


def test_a_token_is_good_for_an_hour(alice, agent):
    """Short: what leaks is worth nothing soon."""
    told = issued(alice, agent)
    left = get_access_token_model().objects.get().expires - timezone.now()
    assert told["expires_in"] == 3600
    assert timedelta(minutes=58) < left <= timedelta(hours=1)


def test_a_token_that_is_none_is_revoked_all_the_same(agent):
    """RFC 7009, 2.2."""
    found = sent("/oauth/revoke", ("token", "x"), ("client_id", agent.client_id))
    assert (found.status_code, found.content, found["Cache-Control"]) == (200, b"", "no-store")


# RFC 6749, 5.2: who does not prove who it is.


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("scheme", ["Basic", "basic"])
def test_who_came_by_basic_is_asked_by_basic(db, path, scheme):
    """RFC 6749, 5.2: "matching the authentication scheme used by the client"."""
    header = basic("nobody", "x").replace("Basic", scheme)
    pairs = [("grant_type", "refresh_token"), ("refresh_token", "x"), ("token", "x")]
    found = sent(path, *pairs, Authorization=header)
    assert error(found) == (401, "invalid_client")
    assert found["WWW-Authenticate"] == 'Basic realm="oauth", charset="UTF-8"'


@pytest.mark.parametrize("path", ENDPOINTS)
def test_who_came_otherwise_is_not(db, path):
    """A browser would open a window, and ask whoever sits there for a name and a password."""
    pairs = [("grant_type", "refresh_token"), ("refresh_token", "x"), ("token", "x")]
    found = sent(path, *pairs, ("client_id", "nobody"))
    assert error(found) == (401, "invalid_client")
    assert not found["WWW-Authenticate"].startswith("Basic")


# OAuth 2.1, 4.1.3 and 10.2: where the code was sent need not be said again.


@pytest.mark.parametrize(
    ("known", "used"),
    [
        (f"{REDIRECT} https://agent.example/back", "https://agent.example/back"),
        ("http://127.0.0.1/callback", "http://127.0.0.1:54321/callback"),
    ],
    ids=["of several", "by another port"],
)
def test_a_code_is_redeemed_without_its_redirect_uri(alice, known, used):
    client = registered("dcr", redirect_uris=known)
    code = code_for(alice, client, redirect_uri=used)
    assert redeem(code, client, redirect_uri=None, code_verifier="x" * 64).status_code == 400
    assert redeem(code, client, redirect_uri="http://127.0.0.1:1/callback").status_code == 400
    assert redeem(code, client, redirect_uri=None).status_code == 200


# T25: what a client sends to be revoked is a secret.


def test_what_is_to_be_revoked_is_in_no_report_of_an_error(agent, monkeypatch, caplog):
    def broken(*args, **kwargs):
        raise RuntimeError("a bug")

    monkeypatch.setattr("django_mcp.oauth.refresh_tokens._refresh_tokens_of", broken)
    web, secret = browser(), "nobody-may-see-this"
    web.raise_request_exception = False
    found = web.post("/oauth/revoke", {"token": secret, "client_id": agent.client_id})
    assert found.status_code == 500
    (record,) = (one for one in caplog.records if one.exc_info)
    report = ExceptionReporter(record.request, *record.exc_info, is_email=True)
    text = report.get_traceback_text()
    assert "a bug" in text and secret not in text
