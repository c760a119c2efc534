"""The page of connected apps: what it shows a user, what it revokes, and attacks on it."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import timedelta
from html import unescape

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import AnonymousUser
from django.db import connection
from django.test import override_settings
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone
from oauth2_provider.models import (
    get_access_token_model,
    get_application_model,
    get_grant_model,
    get_refresh_token_model,
)

from django_mcp.declarations.server import default_server
from django_mcp.models import Token
from django_mcp.oauth import connected_apps as connected
from django_mcp.oauth.authorize import PAGE_HEADERS
from django_mcp.oauth.connected_apps import MAX_SHOWN_ACTIVITIES, connections, own_tokens
from django_mcp.oauth.models import Activity, ClientProfile, Consent
from django_mcp.oauth.revocation import revoke_client
from django_mcp.oauth.verifier import OAuthTokens
from django_mcp.verifiers.personal_tokens import PersonalAccessTokens
from django_mcp.web import page as visitors
from tests.servers import ROOT, environment

from .conftest import REDIRECT, URL
from .flows import (
    asked,
    browser,
    code_for,
    error,
    issued,
    redeem,
    refresh,
    registered,
    token,
)
from .tokens import issued as stored

PAGE = "/oauth/connections"
MCP = f"{URL}/mcp"


@pytest.fixture
def bob(db):
    return get_user_model().objects.create_user("bob", password="secret")


@pytest.fixture
def agent(db):
    return registered("dcr", name="Agent Smith")


def visible_text(response) -> str:
    """Return the visible text of the page."""
    body = re.sub(r"(?s)<head>.*</head>|<[^>]*>", " ", response.content.decode())
    return " ".join(unescape(body).split())


def is_accepted(tokens) -> bool:
    return OAuthTokens().lookup(tokens["access_token"], default_server) is not None


def activity_of(user, client, name="refund", **fields):
    given = {
        "server": "default", "method": "tools/call", "at": timezone.now(), "count": 1,
        "key": f"{user.pk} {client.client_id} {name}",
    }  # fmt: skip
    return Activity.objects.create(
        user=user, client_id=client.client_id, name=name, **(given | fields)
    )


def make_personal_token(user, name="laptop", **fields):
    return Token.make(user, name, **fields)


# Access.


def test_anonymous_user_is_redirected_to_the_login(db):
    for method in ("get", "post", "head"):
        response = getattr(browser(), method)(PAGE)
        assert response.status_code == 302
        assert response["Location"] == f"/accounts/login/?next={PAGE}"


@pytest.mark.parametrize("query", ["?next=https://evil.example", "?client=x", "?token=1"])
def test_query_parameters_neither_redirect_nor_disconnect(alice, agent, query):
    tokens = issued(alice, agent)
    assert browser().get(PAGE + query)["Location"] == f"/accounts/login/?next={PAGE}"
    response = browser(alice).get(PAGE + query)
    assert response.status_code == 200 and "evil" not in response.text and is_accepted(tokens)


def test_login_is_required_without_authentication_middleware(db, settings):
    settings.MIDDLEWARE = []
    assert browser().get(PAGE).status_code == 302


def test_page_works_with_login_required_middleware(alice, settings):
    required = "django.contrib.auth.middleware.LoginRequiredMiddleware"
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, required]
    assert browser().get(PAGE)["Location"] == f"/accounts/login/?next={PAGE}"
    assert browser(alice).get(PAGE).status_code == 200


def test_inactive_user_gets_403(alice, agent):
    issued(alice, agent)
    web = browser(alice)
    get_user_model().objects.update(is_active=False)
    backend = "django.contrib.auth.backends.AllowAllUsersModelBackend"
    with override_settings(AUTHENTICATION_BACKENDS=[backend]):
        web.force_login(get_user_model().objects.get(), backend)
        response = web.get(PAGE)
    assert response.status_code == 403 and "Smith" not in response.text


def test_page_is_served_with_and_without_a_slash(alice):
    assert reverse("django_mcp_oauth:connections") == PAGE
    assert [browser(alice).get(path).status_code for path in (PAGE, f"{PAGE}/")] == [200, 200]


# Listed clients.


def test_empty_page_explains_how_to_connect(alice):
    told = visible_text(browser(alice).get(PAGE))
    assert "No applications are connected" in told and MCP in told and "Disconnect" not in told


def test_client_is_shown_with_scopes_servers_and_dates(alice, agent):
    issued(alice, agent)
    (one,) = connections(alice)
    assert one.client.name == "Agent Smith" and list(one.servers) == [MCP]
    assert one.scopes == ["Use it with your permissions"] and not one.activities
    assert timezone.now() - one.since < timedelta(minutes=1) and one.last_used is None
    assert one.redirect_host == "127.0.0.1:7777"
    told = visible_text(browser(alice).get(PAGE))
    for said in (
        "Agent Smith unverified", "Use it with your permissions", MCP, "127.0.0.1:7777",
        "Connected since", "Last used Never", "none", "Signed in as alice",
    ):  # fmt: skip
        assert said in told, said


def test_page_shows_how_a_client_is_verified(alice, public_client):
    document = registered("cimd", client_id="https://bücher.example/client.json", name="Books")
    for client in (document, public_client):
        issued(alice, client)
    told = visible_text(browser(alice).get(PAGE))
    assert (
        "xn--bcher-kva.example described by a document" in told
        and "It calls itself “ Books ”" in told
    )
    assert "Agent It was registered by the staff of this site." in told


def test_own_activity_of_a_client_is_shown_newest_first(alice, bob, agent):
    for user in (alice, bob):
        issued(user, agent)
    now = timezone.now()
    activity_of(alice, agent, "first", at=now - timedelta(hours=1))
    activity_of(alice, agent, "policy://{name}", method="resources/read", count=40)
    activity_of(alice, agent, "greet", method="prompts/get", at=now - timedelta(hours=2))
    activity_of(bob, agent, "of_bob", at=now + timedelta(hours=1))
    Consent.objects.filter(user=bob).update(last_used=now + timedelta(hours=1))
    (one,) = connections(alice)
    assert [doing.name for doing in one.activities] == ["policy://{name}", "first", "greet"]
    assert one.last_used == one.activities[0].at
    told = visible_text(browser(alice).get(PAGE))
    assert "read policy://{name}" in told and "40 times on that day" in told
    assert "used the tool first" in told and "used the prompt greet" in told
    assert "of_bob" not in told


def test_only_the_latest_activities_are_shown(alice, agent):
    issued(alice, agent)
    for number in range(MAX_SHOWN_ACTIVITIES + 10):
        activity_of(alice, agent, f"tool_{number}", at=timezone.now() - timedelta(minutes=number))
    (one,) = connections(alice)
    assert [doing.name for doing in one.activities] == [
        f"tool_{number}" for number in range(MAX_SHOWN_ACTIVITIES)
    ]


def test_scopes_of_all_valid_tokens_are_shown(alice, agent):
    offered = {"read": "Look at it", "write": "Change it", "burn": "Burn it"}
    with override_settings(DJANGO_MCP={"URL": URL, "SCOPES": offered}):
        row, _ = stored(alice, agent, default_server, scope="write")
        stored(alice, agent, default_server, scope="read gone")
        stored(alice, agent, default_server, scope="burn", expires=timezone.now())
        (one,) = connections(alice)
        assert one.scopes == ["Look at it", "Change it", "gone"] and one.since is None
    assert row.pk


def test_expired_token_counts_while_it_can_be_refreshed(alice, agent):
    issued(alice, agent)
    get_access_token_model().objects.update(expires=timezone.now() - timedelta(days=1))
    assert connections(alice)[0].scopes
    get_refresh_token_model().objects.update(revoked=timezone.now())
    (one,) = connections(alice)
    assert not one.scopes and "its access has expired" in visible_text(browser(alice).get(PAGE))


def test_clients_of_other_apis_are_not_shown(alice, public_client):
    stored(alice, public_client, scope="photos", resource=["https://shop.example/photos"])
    stored(alice, public_client, scope="photos", resource=[])
    assert connections(alice) == []


def test_blocked_client_is_shown_as_blocked(alice, bob, agent):
    for user in (alice, bob):
        issued(user, agent)
    browser(bob).post(PAGE, {"client": agent.client_id})
    ClientProfile.objects.update_or_create(
        client_id=agent.client_id, defaults={"source": "dcr", "blocked": timezone.now()}
    )
    revoke_client(agent.client_id)
    told = visible_text(browser(alice).get(PAGE))
    assert "Agent Smith blocked" in told and "has no access" in told
    assert "Allowed actions Nothing Servers" in told
    assert connections(bob) == []  # who had ended it before


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
        ("\u202egnp.tnega", "gnp.tnega"),
        ("a\nb\u2066", "a b"),
        ("", "An application without a name"),
        ('"><img src=x>', "&quot;&gt;&lt;img src=x&gt;"),
    ],
)
def test_client_name_is_escaped_and_cleaned(alice, name, shown):
    client = registered("dcr", name=name)
    issued(alice, client)
    web = browser(alice)
    html = web.get(PAGE).text
    assert f'<bdi class="name">{shown}</bdi>' in html and "<script" not in html
    assert not re.search("[\u202a-\u202e\u2066-\u2069]", html)
    ended = web.post(PAGE, {"client": client.client_id}).text
    assert f'<bdi class="name">{shown}</bdi> was disconnected.' in ended and "<script" not in ended
    assert "&amp;" not in ended


def test_deleted_client_can_still_be_disconnected(alice, agent):
    issued(alice, agent)
    for model in (get_refresh_token_model(), get_access_token_model(), get_application_model()):
        model.objects.all()._raw_delete("default")  # no signal tells of it
    (one,) = connections(alice)
    assert one.client.name == agent.client_id
    assert browser(alice).post(PAGE, {"client": agent.client_id}).status_code == 200
    assert connections(alice) == []


def test_number_of_queries_does_not_grow_with_clients(alice):
    def queries():
        web = browser(alice)
        with CaptureQueriesContext(connection) as captured:
            web.get(PAGE)
        return len(captured)

    def add(number):
        client = registered("dcr", name=f"Agent {number}")
        issued(alice, client)
        activity_of(alice, client)
        make_personal_token(alice, f"token {number}")

    add(0)
    few = queries()
    for number in range(1, 12):
        add(number)
    assert queries() == few <= 11


def test_expired_clients_do_not_hide_an_active_one(alice, monkeypatch):
    """Attack: register many clients so that the active one is no longer listed."""
    monkeypatch.setattr(connected, "MAX_SHOWN_CLIENTS", 2)
    living = registered("dcr", name="Living")
    issued(alice, living)
    for number in range(3):
        issued(alice, registered("dcr", name=f"Dead {number}"))
    others = get_application_model().objects.exclude(pk=living.pk)
    get_refresh_token_model().objects.filter(application__in=others).delete()
    get_access_token_model().objects.filter(application__in=others).delete()
    assert [one.client.name for one in connections(alice)] == ["Dead 2", "Living"]
    assert browser(alice).post(PAGE, {"client": living.client_id}).status_code == 200
    assert living.client_id not in [one.client_id for one in connections(alice)]


# Disconnecting.


def test_disconnecting_revokes_tokens_codes_and_consents(alice, agent):
    tokens, code = issued(alice, agent), code_for(alice, agent)
    assert is_accepted(tokens)
    response = browser(alice).post(PAGE, {"client": agent.client_id})
    assert response.status_code == 200
    assert "Agent Smith was disconnected." in visible_text(response)
    assert "No applications are connected" in visible_text(response)
    assert not is_accepted(tokens)
    assert error(refresh(tokens["refresh_token"], agent)) == (400, "invalid_grant")
    assert error(redeem(code, agent)) == (400, "invalid_grant")
    assert not get_grant_model().objects.exists()
    assert not Consent.objects.filter(revoked=None).exists()


def test_disconnecting_keeps_other_clients_and_other_users(alice, bob, agent):
    other = registered("dcr", name="Other")
    hers, others, his = issued(alice, agent), issued(alice, other), issued(bob, agent)
    browser(alice).post(PAGE, {"client": agent.client_id})
    assert not is_accepted(hers) and is_accepted(others) and is_accepted(his)


def test_disconnected_client_can_ask_for_consent_again(alice, agent):
    issued(alice, agent)
    browser(alice).post(PAGE, {"client": agent.client_id})
    assert asked(alice, agent).status_code == 200
    assert is_accepted(issued(alice, agent))


@pytest.fixture
def machine_client(alice):
    """A machine client that acts as Alice."""
    return registered(
        "manual", name="Robot", client_type="confidential",
        authorization_grant_type="client-credentials", user=alice, redirect_uris="",
    )  # fmt: skip


def get_machine_token(machine):
    return token(
        grant_type="client_credentials", client_id=machine.client_id, client_secret="never told",
        resource=MCP, scope="mcp",
    )  # fmt: skip


def test_machine_client_cannot_be_disconnected_by_its_user(alice, machine_client):
    tokens, web = get_machine_token(machine_client).json(), browser(alice)
    told = visible_text(web.get(PAGE))
    assert "Robot The staff of this site registered it to act as you without asking you." in told
    assert "Only they can revoke it." in told and "Disconnect" not in told
    response = web.post(PAGE, {"client": machine_client.client_id})
    assert response.status_code == 404 and "Nothing was changed" in visible_text(response)
    assert "was disconnected" not in visible_text(response) and is_accepted(tokens)


def test_staff_can_block_and_unblock_a_machine_client(alice, machine_client):
    tokens, profiles = get_machine_token(machine_client).json(), ClientProfile.objects
    profiles.filter(client_id=machine_client.client_id).update(blocked=timezone.now())
    revoke_client(machine_client.client_id)
    assert not is_accepted(tokens) and error(get_machine_token(machine_client)) == (
        401,
        "invalid_client",
    )
    assert connections(alice) == []
    profiles.update(blocked=None)
    assert is_accepted(get_machine_token(machine_client).json())


def test_user_can_disconnect_a_machine_client_that_now_has_another_user(alice, bob, machine_client):
    tokens = get_machine_token(machine_client).json()
    type(machine_client).objects.update(user=bob)
    assert browser(alice).post(PAGE, {"client": machine_client.client_id}).status_code == 200
    assert not is_accepted(tokens) and is_accepted(get_machine_token(machine_client).json())
    assert connections(alice) == [] and [one.is_machine for one in connections(bob)] == [True]


@pytest.mark.parametrize("back", ["https://agent.example/back", REDIRECT])
def test_page_says_if_a_client_can_reconnect_without_consent(alice, public_client, back):
    tokens = issued(alice, public_client)
    type(public_client).objects.update(skip_authorization=True, redirect_uris=back)
    web, may = browser(alice), back != REDIRECT
    assert ("without asking you" in visible_text(web.get(PAGE))) is may
    told = visible_text(web.post(PAGE, {"client": public_client.client_id}))
    assert "was disconnected." in told and not is_accepted(tokens)
    assert ("It can connect again" in told) is may
    assert asked(alice, public_client, redirect_uri=back).status_code == (302 if may else 200)


@pytest.mark.parametrize("named", ["", "unknown", "\x00", "x" * 50_000, "1"])
@pytest.mark.parametrize("field", ["client", "token", "other"])
def test_unknown_client_or_token_is_404_and_changes_nothing(alice, agent, field, named):
    tokens = issued(alice, agent)
    response = browser(alice).post(PAGE, {field: named})
    assert response.status_code == 404 and "Nothing was changed" in visible_text(response)
    assert is_accepted(tokens)


def test_user_cannot_see_or_disconnect_what_belongs_to_another(alice, bob, agent):
    hers, (row, secret) = issued(alice, agent), make_personal_token(alice)
    web = browser(bob)
    for form in ({"client": agent.client_id}, {"client": str(agent.pk)}, {"token": row.pk},
                 {"token": str(row.pk), "client": agent.client_id, "user": alice.pk}):  # fmt: skip
        response = web.post(PAGE, form)
        assert response.status_code == 404
        assert "Smith" not in response.text and "laptop" not in response.text
    assert is_accepted(hers) and PersonalAccessTokens().lookup(secret, default_server)
    assert connections(bob) == [] and own_tokens(bob) == []


@pytest.mark.parametrize("method", ["get", "head", "put", "delete", "options", "patch"])
def test_only_post_disconnects(alice, agent, method):
    tokens = issued(alice, agent)
    response = getattr(browser(alice), method)(f"{PAGE}?client={agent.client_id}")
    assert response.status_code == (200 if method == "get" else 405)
    assert is_accepted(tokens)


@pytest.mark.parametrize("middleware", [[], ["django.middleware.csrf.CsrfViewMiddleware"]])
def test_disconnecting_needs_the_csrf_token_of_the_page(alice, agent, settings, middleware):
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, *middleware]
    tokens, web = issued(alice, agent), browser(alice)
    web.handler.enforce_csrf_checks = True
    form = {"client": agent.client_id}
    forged = web.post(PAGE, form, headers={"Origin": "https://evil.example"}, secure=True)
    assert forged.status_code == 403 and is_accepted(tokens)
    if not middleware:  # whose answer it is otherwise
        assert {name: forged[name] for name in PAGE_HEADERS} == PAGE_HEADERS
    page = web.get(PAGE, secure=True).text
    own = page.partition('csrfmiddlewaretoken" value="')[2].partition('"')[0]
    given = web.post(
        PAGE, form | {"csrfmiddlewaretoken": own}, headers={"Origin": URL}, secure=True
    )
    assert given.status_code == 200 and not is_accepted(tokens)


def test_page_forbids_frames_caching_and_scripts(alice):
    for response in (browser(alice).get(PAGE), browser(alice).post(PAGE), browser().get(PAGE)):
        assert {name: response[name] for name in PAGE_HEADERS} == PAGE_HEADERS
        assert "<script" not in response.text


# Personal tokens.


def test_personal_tokens_are_shown_and_revoked(alice, bob):
    row, secret = make_personal_token(alice, "laptop\u202e", scopes=["mcp"], server="default")
    make_personal_token(alice, "old", expires=timezone.now())
    make_personal_token(bob, "of bob")
    response = browser(alice).get(PAGE)
    told = visible_text(response)
    assert "laptop" in told and "\u202e" not in told and f"{row.prefix}…" in told
    assert "old" not in told.split() and "of bob" not in told
    assert secret not in response.text and row.digest not in response.text
    ended = browser(alice).post(PAGE, {"token": row.pk})
    assert "laptop was disconnected." in visible_text(ended)
    assert PersonalAccessTokens().lookup(secret, default_server) is None
    assert own_tokens(alice) == []


# Links to the page.


def test_page_of_a_server_links_to_connected_apps(alice, settings):
    assert visitors.connections_url(alice) == PAGE
    assert visitors.connections_url(AnonymousUser()) is None
    settings.ROOT_URLCONF = "tests.oauth.tokens_urls"  # a project without the page
    assert visitors.connections_url(alice) is None


def test_consent_page_links_to_connected_apps(alice, agent):
    page = asked(alice, agent)
    assert "You can disconnect it at any time" in page.text and f'href="{PAGE}"' in page.text


@pytest.mark.slow
def test_swapped_models_are_supported():
    done = subprocess.run(
        [sys.executable, "-m", "tests.oauth.swapped"], cwd=ROOT, env=environment(ROOT), text=True,
        capture_output=True, check=False,
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("Client Client Access\n", 0), done.stderr
