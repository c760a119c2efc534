"""The page of connected apps: whose it is, what it shows and ends, and who cannot misuse it."""

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
from django_mcp.oauth.authorize import HEADERS
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


def words(response) -> str:
    """The page as it is read."""
    body = re.sub(r"(?s)<head>.*</head>|<[^>]*>", " ", response.content.decode())
    return " ".join(unescape(body).split())


def opens(tokens) -> bool:
    return OAuthTokens().lookup(tokens["access_token"], default_server) is not None


def did(user, client, name="refund", **fields):
    given = {
        "server": "default", "method": "tools/call", "at": timezone.now(), "count": 1,
        "key": f"{user.pk} {client.client_id} {name}",
    }  # fmt: skip
    return Activity.objects.create(
        user=user, client_id=client.client_id, name=name, **(given | fields)
    )


def personal(user, name="laptop", **fields):
    return Token.make(user, name, **fields)


# Whose it is.


def test_nobody_signs_in_first_and_comes_back(db):
    for method in ("get", "post", "head"):
        response = getattr(browser(), method)(PAGE)
        assert response.status_code == 302
        assert response["Location"] == f"/accounts/login/?next={PAGE}"


@pytest.mark.parametrize("query", ["?next=https://evil.example", "?client=x", "?token=1"])
def test_no_address_leads_elsewhere_or_ends_anything(alice, agent, query):
    tokens = issued(alice, agent)
    assert browser().get(PAGE + query)["Location"] == f"/accounts/login/?next={PAGE}"
    response = browser(alice).get(PAGE + query)
    assert response.status_code == 200 and "evil" not in response.text and opens(tokens)


def test_it_is_so_without_the_middleware_that_knows_people(db, settings):
    settings.MIDDLEWARE = []
    assert browser().get(PAGE).status_code == 302


def test_it_is_so_with_the_middleware_that_lets_nobody_in(alice, settings):
    required = "django.contrib.auth.middleware.LoginRequiredMiddleware"
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, required]
    assert browser().get(PAGE)["Location"] == f"/accounts/login/?next={PAGE}"
    assert browser(alice).get(PAGE).status_code == 200


def test_whom_the_project_does_not_let_in_sees_nothing(alice, agent):
    issued(alice, agent)
    web = browser(alice)
    get_user_model().objects.update(is_active=False)
    backend = "django.contrib.auth.backends.AllowAllUsersModelBackend"
    with override_settings(AUTHENTICATION_BACKENDS=[backend]):
        web.force_login(get_user_model().objects.get(), backend)
        response = web.get(PAGE)
    assert response.status_code == 403 and "Smith" not in response.text


def test_it_is_there_with_a_slash_and_without(alice):
    assert reverse("django_mcp_oauth:connections") == PAGE
    assert [browser(alice).get(path).status_code for path in (PAGE, f"{PAGE}/")] == [200, 200]


# What it shows.


def test_where_nothing_is_connected_it_says_how(alice):
    told = words(browser(alice).get(PAGE))
    assert "No applications are connected" in told and MCP in told and "Disconnect" not in told


def test_a_client_is_shown_with_what_it_may_and_since_when(alice, agent):
    issued(alice, agent)
    (one,) = connections(alice)
    assert one.client.name == "Agent Smith" and list(one.servers) == [MCP]
    assert one.scopes == ["Use it with your permissions"] and not one.activities
    assert timezone.now() - one.since < timedelta(minutes=1) and one.last_used is None
    assert one.redirect_host == "127.0.0.1:7777"
    told = words(browser(alice).get(PAGE))
    for said in (
        "Agent Smith unverified", "Use it with your permissions", MCP, "127.0.0.1:7777",
        "Connected since", "Last used Never", "none", "Signed in as alice",
    ):  # fmt: skip
        assert said in told, said


def test_who_answers_for_a_client_is_shown(alice, public_client):
    document = registered("cimd", client_id="https://bücher.example/client.json", name="Books")
    for client in (document, public_client):
        issued(alice, client)
    told = words(browser(alice).get(PAGE))
    assert (
        "xn--bcher-kva.example described by a document" in told
        and "Its name for itself is “ Books ”" in told
    )
    assert "Agent It was registered by the staff of this site." in told


def test_what_it_did_is_shown_newest_first_and_nobody_elses(alice, bob, agent):
    for user in (alice, bob):
        issued(user, agent)
    now = timezone.now()
    did(alice, agent, "first", at=now - timedelta(hours=1))
    did(alice, agent, "policy://{name}", method="resources/read", count=40)
    did(alice, agent, "greet", method="prompts/get", at=now - timedelta(hours=2))
    did(bob, agent, "of_bob", at=now + timedelta(hours=1))
    Consent.objects.filter(user=bob).update(last_used=now + timedelta(hours=1))
    (one,) = connections(alice)
    assert [doing.name for doing in one.activities] == ["policy://{name}", "first", "greet"]
    assert one.last_used == one.activities[0].at
    told = words(browser(alice).get(PAGE))
    assert "read policy://{name}" in told and "40 times on that day" in told
    assert "used the tool first" in told and "used the prompt greet" in told
    assert "of_bob" not in told


def test_of_all_that_it_did_the_last_is_shown(alice, agent):
    issued(alice, agent)
    for number in range(MAX_SHOWN_ACTIVITIES + 10):
        did(alice, agent, f"tool_{number}", at=timezone.now() - timedelta(minutes=number))
    (one,) = connections(alice)
    assert [doing.name for doing in one.activities] == [
        f"tool_{number}" for number in range(MAX_SHOWN_ACTIVITIES)
    ]


def test_scopes_are_those_of_all_tokens_that_are_good(alice, agent):
    offered = {"read": "Look at it", "write": "Change it", "burn": "Burn it"}
    with override_settings(DJANGO_MCP={"URL": URL, "SCOPES": offered}):
        row, _ = stored(alice, agent, default_server, scope="write")
        stored(alice, agent, default_server, scope="read gone")
        stored(alice, agent, default_server, scope="burn", expires=timezone.now())
        (one,) = connections(alice)
        assert one.scopes == ["Look at it", "Change it", "gone"] and one.since is None
    assert row.pk


def test_an_expired_token_that_can_be_renewed_counts(alice, agent):
    issued(alice, agent)
    get_access_token_model().objects.update(expires=timezone.now() - timedelta(days=1))
    assert connections(alice)[0].scopes
    get_refresh_token_model().objects.update(revoked=timezone.now())
    (one,) = connections(alice)
    assert not one.scopes and "its access has expired" in words(browser(alice).get(PAGE))


def test_clients_of_the_projects_other_apis_are_not_shown(alice, public_client):
    stored(alice, public_client, scope="photos", resource=["https://shop.example/photos"])
    stored(alice, public_client, scope="photos", resource=[])
    assert connections(alice) == []


def test_a_client_that_was_blocked_is_shown_as_that(alice, bob, agent):
    for user in (alice, bob):
        issued(user, agent)
    browser(bob).post(PAGE, {"client": agent.client_id})
    ClientProfile.objects.update_or_create(
        client_id=agent.client_id, defaults={"source": "dcr", "blocked": timezone.now()}
    )
    revoke_client(agent.client_id)
    told = words(browser(alice).get(PAGE))
    assert "Agent Smith blocked" in told and "has no access" in told
    assert "It may Nothing At" in told
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
def test_no_name_speaks_for_the_page(alice, name, shown):
    client = registered("dcr", name=name)
    issued(alice, client)
    web = browser(alice)
    html = web.get(PAGE).text
    assert f'<bdi class="name">{shown}</bdi>' in html and "<script" not in html
    assert not re.search("[\u202a-\u202e\u2066-\u2069]", html)
    ended = web.post(PAGE, {"client": client.client_id}).text
    assert f'<bdi class="name">{shown}</bdi> was disconnected.' in ended and "<script" not in ended
    assert "&amp;" not in ended


def test_a_client_that_is_no_more_is_still_to_be_ended(alice, agent):
    issued(alice, agent)
    for model in (get_refresh_token_model(), get_access_token_model(), get_application_model()):
        model.objects.all()._raw_delete("default")  # no signal tells of it
    (one,) = connections(alice)
    assert one.client.name == agent.client_id
    assert browser(alice).post(PAGE, {"client": agent.client_id}).status_code == 200
    assert connections(alice) == []


def test_however_many_clients_there_are_it_takes_as_many_queries(alice):
    def queries():
        web = browser(alice)
        with CaptureQueriesContext(connection) as captured:
            web.get(PAGE)
        return len(captured)

    def add(number):
        client = registered("dcr", name=f"Agent {number}")
        issued(alice, client)
        did(alice, client)
        personal(alice, f"token {number}")

    add(0)
    few = queries()
    for number in range(1, 12):
        add(number)
    assert queries() == few <= 11


def test_one_that_still_may_something_is_not_hidden_by_many_that_may_not(alice, monkeypatch):
    """Attack: to register again and again pushes off the page what one would end."""
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


# What it ends.


def test_disconnecting_ends_all_that_the_client_may_do(alice, agent):
    tokens, code = issued(alice, agent), code_for(alice, agent)
    assert opens(tokens)
    response = browser(alice).post(PAGE, {"client": agent.client_id})
    assert response.status_code == 200
    assert "Agent Smith was disconnected." in words(response)
    assert "No applications are connected" in words(response)
    assert not opens(tokens)
    assert error(refresh(tokens["refresh_token"], agent)) == (400, "invalid_grant")
    assert error(redeem(code, agent)) == (400, "invalid_grant")
    assert not get_grant_model().objects.exists()
    assert not Consent.objects.filter(revoked=None).exists()


def test_the_other_clients_and_the_other_people_keep_theirs(alice, bob, agent):
    other = registered("dcr", name="Other")
    hers, others, his = issued(alice, agent), issued(alice, other), issued(bob, agent)
    browser(alice).post(PAGE, {"client": agent.client_id})
    assert not opens(hers) and opens(others) and opens(his)


def test_who_was_disconnected_may_ask_again(alice, agent):
    issued(alice, agent)
    browser(alice).post(PAGE, {"client": agent.client_id})
    assert asked(alice, agent).status_code == 200
    assert opens(issued(alice, agent))


@pytest.fixture
def robot(alice):
    """A machine that the project has act as her."""
    return registered(
        "manual", name="Robot", client_type="confidential",
        authorization_grant_type="client-credentials", user=alice, redirect_uris="",
    )  # fmt: skip


def by_itself(machine):
    return token(
        grant_type="client_credentials", client_id=machine.client_id, client_secret="never told",
        resource=MCP, scope="mcp",
    )  # fmt: skip


def test_nothing_is_promised_of_a_machine_that_would_come_back_by_itself(alice, robot):
    tokens, web = by_itself(robot).json(), browser(alice)
    told = words(web.get(PAGE))
    assert "Robot It is registered to act as you without your consent." in told
    assert "Only the staff of this site can end this." in told and "Disconnect" not in told
    response = web.post(PAGE, {"client": robot.client_id})
    assert response.status_code == 404 and "Nothing was changed" in words(response)
    assert "was disconnected" not in words(response) and opens(tokens)


def test_whoever_runs_the_site_ends_a_machine_and_lets_it_in_again(alice, robot):
    tokens, profiles = by_itself(robot).json(), ClientProfile.objects
    profiles.filter(client_id=robot.client_id).update(blocked=timezone.now())
    revoke_client(robot.client_id)
    assert not opens(tokens) and error(by_itself(robot)) == (401, "invalid_client")
    assert connections(alice) == []
    profiles.update(blocked=None)
    assert opens(by_itself(robot).json())


def test_what_a_machine_was_given_before_it_was_anothers_is_theirs_to_end(alice, bob, robot):
    tokens = by_itself(robot).json()
    type(robot).objects.update(user=bob)
    assert browser(alice).post(PAGE, {"client": robot.client_id}).status_code == 200
    assert not opens(tokens) and opens(by_itself(robot).json())
    assert connections(alice) == [] and [one.is_machine for one in connections(bob)] == [True]


@pytest.mark.parametrize("back", ["https://agent.example/back", REDIRECT])
def test_who_comes_back_without_asking_is_told_as_that(alice, public_client, back):
    tokens = issued(alice, public_client)
    type(public_client).objects.update(skip_authorization=True, redirect_uris=back)
    web, may = browser(alice), back != REDIRECT
    assert ("without asking you" in words(web.get(PAGE))) is may
    told = words(web.post(PAGE, {"client": public_client.client_id}))
    assert "was disconnected." in told and not opens(tokens)
    assert ("It can connect again" in told) is may
    assert asked(alice, public_client, redirect_uri=back).status_code == (302 if may else 200)


@pytest.mark.parametrize("named", ["", "unknown", "\x00", "x" * 50_000, "1"])
@pytest.mark.parametrize("field", ["client", "token", "other"])
def test_what_is_not_there_changes_nothing(alice, agent, field, named):
    tokens = issued(alice, agent)
    response = browser(alice).post(PAGE, {field: named})
    assert response.status_code == 404 and "Nothing was changed" in words(response)
    assert opens(tokens)


def test_nobody_ends_or_sees_what_is_anothers(alice, bob, agent):
    hers, (row, secret) = issued(alice, agent), personal(alice)
    web = browser(bob)
    for form in ({"client": agent.client_id}, {"client": str(agent.pk)}, {"token": row.pk},
                 {"token": str(row.pk), "client": agent.client_id, "user": alice.pk}):  # fmt: skip
        response = web.post(PAGE, form)
        assert response.status_code == 404
        assert "Smith" not in response.text and "laptop" not in response.text
    assert opens(hers) and PersonalAccessTokens().lookup(secret, default_server)
    assert connections(bob) == [] and own_tokens(bob) == []


@pytest.mark.parametrize("method", ["get", "head", "put", "delete", "options", "patch"])
def test_only_a_form_ends_anything(alice, agent, method):
    tokens = issued(alice, agent)
    response = getattr(browser(alice), method)(f"{PAGE}?client={agent.client_id}")
    assert response.status_code == (200 if method == "get" else 405)
    assert opens(tokens)


@pytest.mark.parametrize("middleware", [[], ["django.middleware.csrf.CsrfViewMiddleware"]])
def test_only_a_form_of_this_page_ends_anything(alice, agent, settings, middleware):
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, *middleware]
    tokens, web = issued(alice, agent), browser(alice)
    web.handler.enforce_csrf_checks = True
    form = {"client": agent.client_id}
    forged = web.post(PAGE, form, headers={"Origin": "https://evil.example"}, secure=True)
    assert forged.status_code == 403 and opens(tokens)
    if not middleware:  # whose answer it is otherwise
        assert {name: forged[name] for name in HEADERS} == HEADERS
    page = web.get(PAGE, secure=True).text
    own = page.partition('csrfmiddlewaretoken" value="')[2].partition('"')[0]
    given = web.post(
        PAGE, form | {"csrfmiddlewaretoken": own}, headers={"Origin": URL}, secure=True
    )
    assert given.status_code == 200 and not opens(tokens)


def test_it_is_shown_in_no_frame_kept_by_nobody_and_runs_no_script(alice):
    for response in (browser(alice).get(PAGE), browser(alice).post(PAGE), browser().get(PAGE)):
        assert {name: response[name] for name in HEADERS} == HEADERS
        assert "<script" not in response.text


# Personal tokens.


def test_personal_tokens_are_shown_and_revoked(alice, bob):
    row, secret = personal(alice, "laptop\u202e", scopes=["mcp"], server="default")
    personal(alice, "old", expires=timezone.now())
    personal(bob, "of bob")
    response = browser(alice).get(PAGE)
    told = words(response)
    assert "laptop" in told and "\u202e" not in told and f"{row.prefix}…" in told
    assert "old" not in told.split() and "of bob" not in told
    assert secret not in response.text and row.digest not in response.text
    ended = browser(alice).post(PAGE, {"token": row.pk})
    assert "laptop was disconnected." in words(ended)
    assert PersonalAccessTokens().lookup(secret, default_server) is None
    assert own_tokens(alice) == []


# The ways to it.


def test_the_page_of_a_server_leads_to_it(alice, settings):
    assert visitors.connections_url(alice) == PAGE
    assert visitors.connections_url(AnonymousUser()) is None
    settings.ROOT_URLCONF = "tests.oauth.tokens_urls"  # a project without the page
    assert visitors.connections_url(alice) is None


def test_the_page_of_consent_says_that_it_can_be_taken_back(alice, agent):
    page = asked(alice, agent)
    assert "You can disconnect it at any time" in page.text and f'href="{PAGE}"' in page.text


@pytest.mark.slow
def test_a_project_may_have_models_of_its_own():
    done = subprocess.run(
        [sys.executable, "-m", "tests.oauth.swapped"], cwd=ROOT, env=environment(ROOT), text=True,
        capture_output=True, check=False,
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("Client Client Access\n", 0), done.stderr
