"""What a client has when it asks for more: it keeps that, and nobody else's counts."""

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


def read(web, client, **over):
    """The words of the page."""
    html = web.get(url(client, **over)).content.decode()
    return " ".join(unescape(re.sub(r"(?s)<head>.*</head>|<[^>]*>", " ", html)).split())


def allowing(web, client, **over):
    """What the form of the page sends."""
    html = web.get(url(client, **over)).content.decode()
    (shown,) = re.findall(r'<input type="hidden" name="shown" value="([^"]*)">', html)
    return {**ALLOW, "shown": unescape(shown)}


def granted(web, client, **over):
    """The scopes of the code that the client is given."""
    assert told(web.post(url(client, **over), allowing(web, client, **over)))["code"]
    return Grant.objects.latest("pk").scope.split()


def redeemed(web, client, **over):
    """Tokens, by the whole flow."""
    code = told(web.post(url(client, **over), allowing(web, client, **over)))["code"]
    return token(web, client, grant_type="authorization_code", code=code, redirect_uri=REDIRECT,
                 code_verifier=VERIFIER)  # fmt: skip


def refreshed(web, client, given, **over):
    return token(web, client, grant_type="refresh_token", refresh_token=given["refresh_token"],
                 **over)  # fmt: skip


def token(web, client, **given):
    response = web.post("/oauth/token", {"client_id": client.client_id, **given})
    assert response.status_code == 200, response.content
    return response.json()


# What it is given.


@pytest.mark.parametrize(
    ("has", "asks", "gets"),
    [
        ("read", "close", "read close"), ("read", "read close", "read close"),
        ("close", "read", "close read"), ("read close", "write", "read close write"),
        # Nothing new: what is named, which may be less.
        ("read close", "read", "read"), ("read close", "close", "close"),
        ("write", "read", "read"), ("read", "read", "read"),
        # Broader, by what it covers.
        ("read", "write", "read write"), ("write", "close", "write close"),
        ("rest", "close:all", "rest close:all"),
    ],
)  # fmt: skip
def test_who_asks_for_more_keeps_what_it_has(signed_in, alice, agent, has, asks, gets):
    tokens.issued(alice, agent, default_server, scope=has)
    assert granted(signed_in, agent, scope=asks) == gets.split()


def test_who_has_nothing_gets_what_it_asks_for(signed_in, agent):
    assert granted(signed_in, agent, scope="close read") == ["close", "read"]


def test_by_the_whole_flow(signed_in, agent):
    first = redeemed(signed_in, agent, scope="read")
    assert first["scope"] == "read"
    second = redeemed(signed_in, agent, scope="close")
    assert second["scope"].split() == ["read", "close"]
    again = refreshed(signed_in, agent, second)
    assert again["scope"].split() == ["read", "close"]


def test_a_token_of_before_stays_as_it_was(signed_in, agent):
    """What a session was opened with is not widened behind its back."""
    first = redeemed(signed_in, agent, scope="read")
    redeemed(signed_in, agent, scope="close")
    assert AccessToken.objects.order_by("pk").first().scope == "read"
    assert refreshed(signed_in, agent, first)["scope"] == "read"


def test_what_was_narrowed_stays_narrow(signed_in, agent):
    """By a refresh, by asking for less, and by the two together."""
    broad = redeemed(signed_in, agent, scope="read close")
    narrow = refreshed(signed_in, agent, broad, scope="read")
    assert narrow["scope"] == "read"
    assert refreshed(signed_in, agent, narrow)["scope"] == "read"
    assert granted(signed_in, agent, scope="read") == ["read"]


def test_who_gave_something_up_is_asked_for_it_as_for_something_new(signed_in, agent):
    broad = redeemed(signed_in, agent, scope="read close")
    refreshed(signed_in, agent, broad, scope="read")
    words = read(signed_in, agent, scope="close")
    assert (
        "New permissions Close the month Existing permissions Look at things Your answer" in words
    )


def test_a_form_adds_nothing_to_what_is_held(signed_in, alice, agent):
    """Attack: the scopes are of the address, and what is held of the rows."""
    tokens.issued(alice, agent, default_server, scope="read")
    forged = {"scope": "write", "held": "write", "shown": "read write close:all"}
    assert told(signed_in.post(url(agent, scope="close"), {**ALLOW, **forged}))
    assert Grant.objects.get().scope.split() == ["read", "close"]


def test_what_came_after_the_page_is_not_granted_by_it(signed_in, alice, agent):
    """T16: two pages at once. One was read, the other is agreed to."""
    tokens.issued(alice, agent, default_server, scope="read")
    form = allowing(signed_in, agent, scope="close")
    tokens.issued(alice, agent, default_server, scope="rest")
    assert told(signed_in.post(url(agent, scope="close"), form))
    assert Grant.objects.get().scope.split() == ["read", "close"]


def test_what_goes_after_the_page_makes_nothing_new_of_what_was_not(signed_in, alice, agent):
    """T16: nothing was new, so one scope was shown; by the answer all would be granted."""
    broad, _ = tokens.issued(alice, agent, default_server, scope="write")
    tokens.issued(alice, agent, default_server, scope="close")
    form = allowing(signed_in, agent, scope="read")
    assert form["shown"] == "read" and "Close" not in read(signed_in, agent, scope="read")
    broad.delete()
    assert told(signed_in.post(url(agent, scope="read"), form))
    assert Grant.objects.get().scope == "read"


def test_a_form_that_does_not_say_what_was_shown_grants_what_was_asked(signed_in, alice, agent):
    """T16: as of a page that a project has made of its own."""
    tokens.issued(alice, agent, default_server, scope="read")
    assert told(signed_in.post(url(agent, scope="close"), ALLOW))
    assert Grant.objects.get().scope == "close"


def test_who_says_no_changes_nothing(signed_in, alice, agent):
    row, _ = tokens.issued(alice, agent, default_server, scope="read")
    assert told(signed_in.post(url(agent, scope="close"), CANCEL))["error"] == "access_denied"
    row.refresh_from_db()
    assert row.scope == "read" and not Grant.objects.exists()
    assert held_scopes(alice, agent, HERE) == ("read",)


# Whose tokens count.


def another(**fields):
    return get_user_model().objects.create_user("bob", **fields)


def billing():
    made = Server("billing")
    made.tool(lambda: 1)
    return made


NOT_COUNTED = {
    "another user's": lambda alice, agent: tokens.issued(
        another(), agent, default_server, scope="read"),
    "another client's": lambda alice, agent: tokens.issued(
        alice, registered("dcr"), default_server, scope="read"),
    "another server's": lambda alice, agent: tokens.issued(alice, agent, billing(), scope="read"),
    "this and another server's": lambda alice, agent: tokens.issued(
        alice, agent, default_server, billing(), scope="read"),
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
        another(), agent, tokens.issued(
            alice, agent, default_server, scope="read", expires=timezone.now() + YESTERDAY)[0]),
    "revoked": lambda alice, agent: tokens.issued(
        alice, agent, default_server, scope="read")[0].revoke(),
    "of scopes that are not offered": lambda alice, agent: tokens.issued(
        alice, agent, default_server, scope="photos"),
}  # fmt: skip


@pytest.mark.parametrize("whose", NOT_COUNTED)
def test_tokens_that_do_not_count(signed_in, alice, agent, whose):
    NOT_COUNTED[whose](alice, agent)
    assert held_scopes(alice, agent, HERE) == ()
    words = read(signed_in, agent, scope="close")
    assert "It may Close the month Your answer" in words
    assert "already" not in words and "New" not in words
    assert granted(signed_in, agent, scope="close") == ["close"]


def test_an_expired_one_counts_that_can_be_refreshed(signed_in, alice, agent):
    past = timezone.now() + YESTERDAY
    row, _ = tokens.issued(alice, agent, default_server, scope="read", expires=past)
    tokens.refresh(alice, agent, row)
    assert granted(signed_in, agent, scope="close") == ["read", "close"]


def test_of_several_servers_those_of_just_these(signed_in, alice, agent):
    both = [resource(default_server), resource(server := billing())]
    tokens.issued(alice, agent, server, default_server, scope="read")
    assert held_scopes(alice, agent, both) == held_scopes(alice, agent, both[::-1]) == ("read",)
    assert granted(signed_in, agent, scope="close", resource=both) == ["read", "close"]


def test_scopes_of_all_living_tokens_count_in_the_order_of_the_offer(alice, agent):
    for scope in ("close", "write read", "close"):
        tokens.issued(alice, agent, default_server, scope=scope)
    assert held_scopes(alice, agent, HERE) == ("read", "write", "close")


def test_the_newest_are_looked_at_and_no_more(alice, agent, django_assert_num_queries):
    tokens.issued(alice, agent, default_server, scope="read")
    for _ in range(MAX_READ_TOKENS):
        tokens.issued(alice, agent, default_server, scope="close")
    with django_assert_num_queries(2):
        assert held_scopes(alice, agent, HERE) == ("close",)


# What the page says.


def test_the_page_tells_what_is_new_and_what_is_not(signed_in, alice, agent):
    tokens.issued(alice, agent, default_server, scope="read")
    words = read(signed_in, agent, scope="close")
    assert (
        "New permissions Close the month Existing permissions Look at things Your answer" in words
    )


def test_a_broader_scope_is_new_though_part_of_it_is_not(signed_in, alice, agent):
    tokens.issued(alice, agent, default_server, scope="read")
    words = read(signed_in, agent, scope="write")
    assert "New permissions Change things Existing permissions Look at things Your answer" in words


def test_a_scope_that_is_part_of_what_is_held_is_not_new(signed_in, alice, agent):
    tokens.issued(alice, agent, default_server, scope="write")
    words = read(signed_in, agent, scope="read close")
    assert (
        "New permissions Close the month Existing permissions Change things Look at things Your"
        in words
    )


def test_a_scope_is_new_whose_name_alone_is_covered(signed_in, alice, agent):
    """Attack: "rest" covers what is called "close:all", but not what that covers."""
    tokens.issued(alice, agent, default_server, scope="rest")
    words = read(signed_in, agent, scope="close:all read")
    assert (
        "New permissions Close whatever there is Look at things Existing permissions Do the rest"
        in words
    )


def test_where_nothing_is_new_all_that_is_asked_for_is_shown(signed_in, alice, agent):
    tokens.issued(alice, agent, default_server, scope="read close")
    assert "It may Look at things Your answer" in read(signed_in, agent, scope="read")


def test_what_others_may_is_not_on_the_page(web, alice, agent):
    """Two users in one browser: the second sees nothing of what the first agreed to."""
    web.force_login(alice)
    redeemed(web, agent, scope="read")
    web.force_login(another())
    words = read(web, agent, scope="close")
    assert "It may Close the month" in words and "Look at things" not in words
    assert granted(web, agent, scope="close") == ["close"]


# In themselves.


@pytest.mark.parametrize(
    ("asked", "has", "together", "fresh"),
    [
        ("a b", "", "a b", "a b"), ("", "a", "", ""), ("b", "a", "a b", "b"),
        ("read", "write", "read", ""), ("write", "read", "read write", "write"),
        ("read close", "write", "write read close", "close"),
    ],
)  # fmt: skip
def test_what_is_new_and_what_becomes_of_both(asked, has, together, fresh):
    assert join_scopes(asked.split(), has.split()) == tuple(together.split())
    assert new_scopes(asked.split(), has.split()) == tuple(fresh.split())
