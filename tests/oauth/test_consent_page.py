"""The consent page: how it shows the client, the servers, the scopes and the redirect."""

from __future__ import annotations

import re
from html import unescape

import pytest
from django.test import override_settings
from hypothesis import given
from hypothesis import strategies as st
from oauth2_provider.models import get_application_model

from django_mcp.declarations.server import Server, default_server
from django_mcp.oauth.authorization_request import (
    APP,
    DEVICE,
    MAX_SHOWN_NAME_LENGTH,
    SITE,
    ConsentClient,
    Destination,
    consent_client,
    destination,
    displayable,
    in_ascii,
)
from django_mcp.oauth.models import Source
from django_mcp.oauth.scope_grants import may_authorize

from .conftest import MCP, URL
from .consent import SITE as CALLBACK
from .consent import fresh_cores, registered, url  # noqa: F401

CIMD = "https://agent.example/client.json"
CURSOR = "cursor://anysphere.cursor-mcp/oauth/callback"


def page_text(web, alice, application, **over):
    """Return the visible text of the consent page."""
    web.force_login(alice)
    html = web.get(url(application, **over)).content.decode()
    body = re.sub(r"(?s)<head>.*</head>|<[^>]*>", " ", html)
    return " ".join(unescape(body).split())


def allow_only_bob(user, server):
    return user.username == "bob"


def allow_only_the_shop(user, server):
    return server.name == "default"


def fail_if_called(user, server):
    raise AssertionError


def settings(**oauth):
    return override_settings(DJANGO_MCP={**MCP, "OAUTH": oauth})


# Names.


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("Claude Code", "Claude Code"),
        ("Zoë's größtes Programm", "Zoë's größtes Programm"),
        ("مساعد", "مساعد"),
        ("a\nb\tc\x00d", "a b c d"),
        ("\u202egnimalc\u202c", "gnimalc"),
        ("in\u200bvisi\u2060ble\ufeff", "invisible"),
        ("\u3164\u2800\u115f", ""),
        ("line\u2028break\u2029s", "line break s"),
        ("  much   room  ", "much room"),
        ("e\u0301", "é"),
        ("x" * 300, "x" * MAX_SHOWN_NAME_LENGTH),
        ("y" * 59 + " z", "y" * 59),
        ("", ""),
    ],
)
def test_client_name_is_cleaned(said, shown):
    assert displayable(said) == shown


@given(st.text(max_size=200))
def test_cleaned_name_is_short_and_has_no_control_characters(said):
    shown = displayable(said)
    assert len(shown) <= MAX_SHOWN_NAME_LENGTH and shown == " ".join(shown.split())
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]", shown)


# Hosts and addresses.


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        ("agent.example", "agent.example"),
        ("AGENT.example", "agent.example"),
        ("gооgle.example", "xn--ggle-55da.example"),
        ("straße.example", "xn--strae-oqa.example"),
        ("agent。example", "agent.example"),
        ("::1", "[::1]"),
        ("", ""),
    ],
)
def test_host_is_shown_in_ascii(host, shown):
    assert in_ascii(host) == shown


@pytest.mark.parametrize(
    ("uri", "kind", "name"),
    [
        ("https://agent.example/callback", SITE, "agent.example"),
        ("https://agent.example:443/callback", SITE, "agent.example"),
        ("https://agent.example:8443/callback", SITE, "agent.example:8443"),
        ("https://gооgle.example/", SITE, "xn--ggle-55da.example"),
        ("http://127.0.0.1:7777/callback", DEVICE, "127.0.0.1:7777"),
        ("http://localhost/callback", DEVICE, "localhost"),
        ("http://[::1]:80/callback", DEVICE, "[::1]"),
        ("https://localhost:1234/callback", DEVICE, "localhost:1234"),
        (CURSOR, APP, "cursor://anysphere.cursor-mcp"),
        ("cursor:callback", APP, "cursor:"),
    ],
)
def test_destination_of_a_redirect_uri(uri, kind, name):
    assert destination(uri) == Destination(kind, name)


@pytest.mark.parametrize(
    "uri",
    [
        "http://agent.example/callback", "http://0.0.0.0/", "http://127.0.0.1.example/",
        "http://127.0.0.1:port/", "http://127.0.0.1:99999/", "http://[::1", "https:///callback",
        "javascript:alert(1)", "data:text/html,x", "file:///etc/passwd", "myapp://callback", "",
        "/",
    ],
)  # fmt: skip
def test_disallowed_redirect_uri_has_no_destination(uri):
    assert destination(uri) is None


def test_redirect_schemes_setting_replaces_the_default_schemes():
    with settings(REDIRECT_SCHEMES=["myapp"]):
        assert destination("myapp://callback") == Destination(APP, "myapp://callback")
        assert destination(CURSOR) is None


# Clients.


@pytest.mark.parametrize(
    ("source", "client_id", "found"),
    [
        ("manual", "abc", ConsentClient("Agent", Source.MANUAL)),
        ("dcr", "abc", ConsentClient("Agent", Source.DCR)),
        ("dcr", CIMD, ConsentClient("Agent", Source.DCR)),
        ("cimd", CIMD, ConsentClient("Agent", Source.CIMD, "agent.example")),
        ("another", "abc", ConsentClient("Agent", Source.DCR)),
    ],
)
def test_source_and_host_of_a_client(source, client_id, found):
    made = get_application_model()(name="Agent", client_id=client_id, registration_source=source)
    assert consent_client(made) == found


# MAY_AUTHORIZE.


def test_active_users_may_authorize_by_default(alice, server):
    assert may_authorize(alice, [server])
    alice.is_active = False
    assert not may_authorize(alice, [server])


def test_may_authorize_setting_decides_by_user(alice, django_user_model, server):
    bob = django_user_model.objects.create_user("bob")
    with settings(MAY_AUTHORIZE="tests.oauth.test_consent_page.allow_only_bob"):
        assert may_authorize(bob, [server]) and not may_authorize(alice, [server])


def test_may_authorize_setting_decides_for_each_server(alice, server):
    with settings(MAY_AUTHORIZE="tests.oauth.test_consent_page.allow_only_the_shop"):
        assert may_authorize(alice, [default_server])
        assert not may_authorize(alice, [default_server, server])


def test_may_authorize_setting_is_not_called_for_inactive_users(alice, server):
    alice.is_active = False
    with settings(MAY_AUTHORIZE="tests.oauth.test_consent_page.fail_if_called"):
        assert not may_authorize(alice, [server])


# The page.


def test_page_shows_client_server_scopes_and_destination(web, alice, public_client):
    words = page_text(web, alice, public_client)
    assert (
        "Connect Agent to your account?" in words
        and "was registered by the staff of this site" in words
    )
    assert f"Requests access to The shop {URL}/mcp" in words
    assert "Allowed actions Use it with your permissions" in words
    assert "a program on this device 127.0.0.1:7777" in words
    assert "Signed in as alice Sign in as another user" in words
    assert words.startswith("shop.example")


def test_self_registered_client_is_shown_as_unverified(web, alice):
    words = page_text(web, alice, registered("dcr"), redirect_uri=CALLBACK)
    assert "Agent unverified It chose this name itself." in words
    assert "Connect an application to your account?" in words and "Let Agent" not in words
    assert "You will be redirected to agent.example" in words and "Continue only" not in words


def test_client_with_a_metadata_document_is_shown_by_its_host(web, alice):
    words = page_text(web, alice, registered("cimd", client_id=CIMD), redirect_uri=CALLBACK)
    assert "Application agent.example verified It calls itself “ Agent ”." in words


def test_client_with_a_loopback_redirect_is_not_shown_as_verified(web, alice):
    words = page_text(web, alice, registered("cimd", client_id=CIMD))
    assert (
        "described by a document at agent.example, but another program" in words
        and "verified" not in words
    )


@pytest.mark.parametrize("over", [{}, {"redirect_uri": CURSOR}], ids=["program", "app"])
def test_redirect_to_the_device_has_a_warning(web, alice, over):
    made = registered("dcr", redirect_uris=f"http://127.0.0.1:7777/callback {CURSOR}")
    assert "Continue only if you have just started this yourself" in page_text(
        web, alice, made, **over
    )


def test_client_without_a_name_gets_a_description(web, alice):
    assert "An application without a name unverified" in page_text(
        web, alice, registered("dcr", name="\u3164")
    )


def test_every_server_and_scope_is_shown_once(web, alice):
    books = Server("books", path="books", title="The books")
    books.tool(lambda: 1)
    two = {"mcp": "Look", "mcp:write": "Change things"}
    with override_settings(DJANGO_MCP={**MCP, "SCOPES": two}):
        words = page_text(
            web, alice, registered("dcr"), scope="mcp mcp:write mcp",
            resource=[f"{URL}/books/", "HTTPS://SHOP.example:443/mcp"],
        )  # fmt: skip
    assert "Allowed actions Look Change things You will" in words
    assert f"The books {URL}/books The shop {URL}/mcp" in words


def test_user_who_may_not_authorize_can_only_cancel(web, alice):
    made = registered("dcr")
    with settings(MAY_AUTHORIZE="tests.oauth.test_consent_page.allow_only_bob"):
        words = page_text(web, alice, made)
        response = web.get(url(made))
    assert "You are not allowed to connect applications here." in words
    assert response.status_code == 403
    assert b">Allow<" not in response.content and b">Cancel<" in response.content


def test_page_has_no_script(web, alice, public_client):
    web.force_login(alice)
    html = web.get(url(public_client)).content.decode()
    assert "<script" not in html and " on" not in re.sub(r">[^<]*<", "><", html.split("<body>")[1])


def test_page_declares_the_language_of_its_text(web, alice, public_client):
    web.force_login(alice)
    html = web.get(url(public_client), headers={"Accept-Language": "de"}).content.decode()
    assert '<html lang="en">' in html  # the texts exist in English only
