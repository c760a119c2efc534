"""Scopes of a client that asks again: which it keeps, which are new, which tokens count."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape

import pytest
from django.contrib.auth import get_user_model
from django.test import override_settings
from django.utils import timezone
from oauth2_provider.models import get_access_token_model, get_grant_model

import django_mcp as mcp
from django_mcp.declarations.server import Server, default_server
from django_mcp.oauth.scope_grants import MAX_READ_TOKENS, held_scopes, join_scopes, new_scopes
from django_mcp.verifiers.protected_resource import resource

from . import tokens
from .conftest import MCP, REDIRECT, VERIFIER
from .consent import ALLOW, CANCEL, fresh_cores, registered, told, url  # noqa: F401

Grant, AccessToken = get_grant_model(), get_access_token_model()
SCOPES = {
    "read": mcp.Scope("Look at things", covers=["*.view_*"]),
    "write": mcp.Scope("Change things", covers=["read", "*.change_*"]),
    "close": mcp.Scope("Close the month", covers=["tool:close_month"]),
    "rest": mcp.Scope("Do the rest", covers=["close:*"]),
    "close:all": mcp.Scope("Close whatever there is", covers=["*"]),
}
HERE = [f"{MCP['URL']}/mcp"]
DAY = timedelta(days=1)
YESTERDAY = -DAY


@pytest.fixture(autouse=True)
def offered(in_public):
    with override_settings(DJANGO_MCP={**MCP, "SCOPES": SCOPES}):
        yield


@pytest.fixture
def agent(db):
    return registered("dcr")


@pytest.fixture
def signed_in(web, alice):
    web.force_login(alice)
    return web


def page_text(web, client, **over):
    """Return the visible text of the consent page."""
    html = web.get(url(client, **over)).content.decode()
    return " ".join(unescape(re.sub(r"(?s)<head>.*</head>|<[^>]*>", " ", html)).split())


def consent_form(web, client, **over):
    """Return what the form of the page sends when the user allows."""
    html = web.get(url(client, **over)).content.decode()
    (shown,) = re.findall(r'<input type="hidden" name="shown" value="([^"]*)">', html)
    return {**ALLOW, "shown": unescape(shown)}


def granted(web, client, **over):
    """Return the scopes of the code that the client gets."""
    assert told(web.post(url(client, **over), consent_form(web, client, **over)))["code"]
    return Grant.objects.latest("pk").scope.split()


def issue_tokens(web, client, **over):
    """Return tokens, by the whole flow."""
    code = told(web.post(url(client, **over), consent_form(web, client, **over)))["code"]
    return token(web, client, grant_type="authorization_code", code=code, redirect_uri=REDIRECT,
                 code_verifier=VERIFIER)  # fmt: skip


def refresh_tokens(web, client, given, **over):
    return token(web, client, grant_type="refresh_token", refresh_token=given["refresh_token"],
                 **over)  # fmt: skip


def token(web, client, **given):
    response = web.post("/oauth/token", {"client_id": client.client_id, **given})
    assert response.status_code == 200, response.content
    return response.json()


# Granted scopes.


@pytest.mark.parametrize(
    ("has", "asks", "gets"),
    [
        ("read", "close", "read close"), ("read", "read close", "read close"),
        ("close", "read", "close read"), ("read close", "write", "read close write"),
        # Nothing new: only what the request names.
        ("read close", "read", "read"), ("read close", "close", "close"),
        ("write", "read", "read"), ("read", "read", "read"),
        # Broader scopes, which cover others.
        ("read", "write", "read write"), ("write", "close", "write close"),
        ("rest", "close:all", "rest close:all"),
    ],
)  # fmt: skip
def test_request_for_a_new_scope_keeps_the_granted_ones(signed_in, alice, agent, has, asks, gets):
    tokens.issued(alice, agent, default_server, scope=has)
    assert granted(signed_in, agent, scope=asks) == gets.split()


def test_first_request_gets_the_requested_scopes(signed_in, agent):
    assert granted(signed_in, agent, scope="close read") == ["close", "read"]


def test_new_and_kept_scopes_survive_code_and_refresh(signed_in, agent):
    first = issue_tokens(signed_in, agent, scope="read")
    assert first["scope"] == "read"
    second = issue_tokens(signed_in, agent, scope="close")
    assert second["scope"].split() == ["read", "close"]
    again = refresh_tokens(signed_in, agent, second)
    assert again["scope"].split() == ["read", "close"]


def test_older_token_is_not_widened(signed_in, agent):
    """A session keeps the scopes that it was opened with."""
    first = issue_tokens(signed_in, agent, scope="read")
    issue_tokens(signed_in, agent, scope="close")
    assert AccessToken.objects.order_by("pk").first().scope == "read"
    assert refresh_tokens(signed_in, agent, first)["scope"] == "read"


def test_narrowed_scopes_stay_narrow(signed_in, agent):
    """By a refresh, by a narrower request, and by both."""
    broad = issue_tokens(signed_in, agent, scope="read close")
    narrow = refresh_tokens(signed_in, agent, broad, scope="read")
    assert narrow["scope"] == "read"
    assert refresh_tokens(signed_in, agent, narrow)["scope"] == "read"
    assert granted(signed_in, agent, scope="read") == ["read"]


def test_scope_that_was_given_up_counts_as_new(signed_in, agent):
    broad = issue_tokens(signed_in, agent, scope="read close")
    refresh_tokens(signed_in, agent, broad, scope="read")
    words = page_text(signed_in, agent, scope="close")
    assert "New permissions Close the month Existing permissions Look at things You will" in words


def test_posted_form_cannot_add_scopes(signed_in, alice, agent):
    """Attack: the scopes come from the URL and the stored tokens, not from the form."""
    tokens.issued(alice, agent, default_server, scope="read")
    forged = {"scope": "write", "held": "write", "shown": "read write close:all"}
    assert told(signed_in.post(url(agent, scope="close"), {**ALLOW, **forged}))
    assert Grant.objects.get().scope.split() == ["read", "close"]


def test_scope_granted_elsewhere_after_the_page_was_shown_is_not_included(signed_in, alice, agent):
    """T16: two pages at once. The user reads one, and agrees to the other."""
    tokens.issued(alice, agent, default_server, scope="read")
    form = consent_form(signed_in, agent, scope="close")
    tokens.issued(alice, agent, default_server, scope="rest")
    assert told(signed_in.post(url(agent, scope="close"), form))
    assert Grant.objects.get().scope.split() == ["read", "close"]


def test_token_deleted_after_the_page_was_shown_does_not_widen_the_grant(signed_in, alice, agent):
    """T16: only one scope was shown, because the others were not new."""
    broad, _ = tokens.issued(alice, agent, default_server, scope="write")
    tokens.issued(alice, agent, default_server, scope="close")
    form = consent_form(signed_in, agent, scope="read")
    assert form["shown"] == "read" and "Close" not in page_text(signed_in, agent, scope="read")
    broad.delete()
    assert told(signed_in.post(url(agent, scope="read"), form))
    assert Grant.objects.get().scope == "read"


def test_form_without_the_shown_scopes_grants_the_requested_ones(signed_in, alice, agent):
    """T16: a project's own template may omit the field."""
    tokens.issued(alice, agent, default_server, scope="read")
    assert told(signed_in.post(url(agent, scope="close"), ALLOW))
    assert Grant.objects.get().scope == "close"


def test_cancelling_changes_nothing(signed_in, alice, agent):
    row, _ = tokens.issued(alice, agent, default_server, scope="read")
    assert told(signed_in.post(url(agent, scope="close"), CANCEL))["error"] == "access_denied"
    row.refresh_from_db()
    assert row.scope == "read" and not Grant.objects.exists()
    assert held_scopes(alice, agent, HERE) == ("read",)


# Which tokens count.


def other_user(**fields):
    return get_user_model().objects.create_user("bob", **fields)


def billing_server():
    made = Server("billing")
    made.tool(lambda: 1)
    return made


NOT_COUNTED = {
    "another user's": lambda alice, agent: tokens.issued(
        other_user(), agent, default_server, scope="read"),
    "another client's": lambda alice, agent: tokens.issued(
        alice, registered("dcr"), default_server, scope="read"),
    "another server's": lambda alice, agent: tokens.issued(
        alice, agent, billing_server(), scope="read"),
    "this and another server's": lambda alice, agent: tokens.issued(
        alice, agent, default_server, billing_server(), scope="read"),
    "no server's": lambda alice, agent: tokens.issued(alice, agent, scope="read"),
    "expired": lambda alice, agent: tokens.issued(
        alice, agent, default_server, scope="read", expires=timezone.now() + YESTERDAY),
    "expired, its refresh token revoked": lambda alice, agent: tokens.refresh(
        alice, agent, tokens.issued(
            alice, agent, default_server, scope="read", expires=timezone.now() + YESTERDAY,
        )[0], revoked=timezone.now()),
    "expired, the refresh token too": lambda alice, agent: tokens.refresh(
        alice, agent, tokens.issued(
            alice, agent, default_server, scope="read", expires=timezone.now() - 31 * DAY)[0]),
    "expired, the refresh token another's": lambda alice, agent: tokens.refresh(
        other_user(), agent, tokens.issued(
            alice, agent, default_server, scope="read", expires=timezone.now() + YESTERDAY)[0]),
    "revoked": lambda alice, agent: tokens.issued(
        alice, agent, default_server, scope="read")[0].revoke(),
    "of scopes that are not offered": lambda alice, agent: tokens.issued(
        alice, agent, default_server, scope="photos"),
}  # fmt: skip


@pytest.mark.parametrize("token_kind", NOT_COUNTED)
def test_tokens_that_do_not_count(signed_in, alice, agent, token_kind):
    NOT_COUNTED[token_kind](alice, agent)
    assert held_scopes(alice, agent, HERE) == ()
    words = page_text(signed_in, agent, scope="close")
    assert "Allowed actions Close the month You will" in words
    assert "already" not in words and "New" not in words
    assert granted(signed_in, agent, scope="close") == ["close"]


def test_expired_token_counts_while_it_can_be_refreshed(signed_in, alice, agent):
    past = timezone.now() + YESTERDAY
    row, _ = tokens.issued(alice, agent, default_server, scope="read", expires=past)
    tokens.refresh(alice, agent, row)
    assert granted(signed_in, agent, scope="close") == ["read", "close"]


def test_tokens_for_exactly_the_requested_servers_count(signed_in, alice, agent):
    both = [resource(default_server), resource(server := billing_server())]
    tokens.issued(alice, agent, server, default_server, scope="read")
    assert held_scopes(alice, agent, both) == held_scopes(alice, agent, both[::-1]) == ("read",)
    assert granted(signed_in, agent, scope="close", resource=both) == ["read", "close"]


def test_scopes_of_all_valid_tokens_count_in_the_order_of_the_setting(alice, agent):
    for scope in ("close", "write read", "close"):
        tokens.issued(alice, agent, default_server, scope=scope)
    assert held_scopes(alice, agent, HERE) == ("read", "write", "close")


def test_number_of_read_tokens_is_limited(alice, agent, django_assert_num_queries):
    tokens.issued(alice, agent, default_server, scope="read")
    for _ in range(MAX_READ_TOKENS):
        tokens.issued(alice, agent, default_server, scope="close")
    with django_assert_num_queries(2):
        assert held_scopes(alice, agent, HERE) == ("close",)


# What the page shows.


def test_page_separates_new_and_existing_permissions(signed_in, alice, agent):
    tokens.issued(alice, agent, default_server, scope="read")
    words = page_text(signed_in, agent, scope="close")
    assert "New permissions Close the month Existing permissions Look at things You will" in words


def test_broader_scope_is_new_though_it_covers_an_existing_one(signed_in, alice, agent):
    tokens.issued(alice, agent, default_server, scope="read")
    words = page_text(signed_in, agent, scope="write")
    assert "New permissions Change things Existing permissions Look at things You will" in words


def test_scope_covered_by_an_existing_one_is_not_new(signed_in, alice, agent):
    tokens.issued(alice, agent, default_server, scope="write")
    words = page_text(signed_in, agent, scope="read close")
    assert (
        "New permissions Close the month Existing permissions Change things Look at things You"
        in words
    )


def test_scope_whose_name_matches_a_pattern_is_new(signed_in, alice, agent):
    """Attack: "rest" covers the name "close:all", but not what "close:all" covers."""
    tokens.issued(alice, agent, default_server, scope="rest")
    words = page_text(signed_in, agent, scope="close:all read")
    assert (
        "New permissions Close whatever there is Look at things Existing permissions Do the rest"
        in words
    )


def test_page_shows_all_requested_scopes_if_none_is_new(signed_in, alice, agent):
    tokens.issued(alice, agent, default_server, scope="read close")
    assert "Allowed actions Look at things You will" in page_text(signed_in, agent, scope="read")


def test_page_does_not_show_permissions_of_other_users(web, alice, agent):
    """Two users share a browser."""
    web.force_login(alice)
    issue_tokens(web, agent, scope="read")
    web.force_login(other_user())
    words = page_text(web, agent, scope="close")
    assert "Allowed actions Close the month" in words and "Look at things" not in words
    assert granted(web, agent, scope="close") == ["close"]


# Unit tests.


@pytest.mark.parametrize(
    ("asked", "has", "together", "fresh"),
    [
        ("a b", "", "a b", "a b"), ("", "a", "", ""), ("b", "a", "a b", "b"),
        ("read", "write", "read", ""), ("write", "read", "read write", "write"),
        ("read close", "write", "write read close", "close"),
    ],
)  # fmt: skip
def test_new_and_joined_scopes(asked, has, together, fresh):
    assert join_scopes(asked.split(), has.split()) == tuple(together.split())
    assert new_scopes(asked.split(), has.split()) == tuple(fresh.split())
