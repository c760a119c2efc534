"""Attacks on codes, tokens and what they are for, by way of the real endpoints."""

from __future__ import annotations

import hashlib
import logging
import threading
import uuid
from datetime import timedelta

import pytest
from django.contrib.auth import get_user_model
from django.db import connection, connections
from django.test import override_settings
from django.utils import timezone
from django.views.debug import ExceptionReporter
from oauth2_provider.models import get_access_token_model, get_grant_model, get_refresh_token_model

import django_mcp
from django_mcp.changes import permission_changes
from django_mcp.changes.permission_changes import EVERYBODY
from django_mcp.declarations.server import Server, default_server
from django_mcp.oauth import refresh_tokens
from django_mcp.oauth.authorization_codes import CodeRedemption, delete_old_codes
from django_mcp.oauth.models import ClientProfile, RedeemedCode
from django_mcp.oauth.refresh_tokens import MAX_SIBLINGS, RefreshTokenRotation
from django_mcp.oauth.revocation import revoke_client, revoke_user
from django_mcp.oauth.verifier import OAuthTokens
from django_mcp.storage.change_log import CREDENTIALS

from .conftest import CHALLENGE, MCP, REDIRECT, VERIFIER
from .flows import (
    MCP as RESOURCE,
)
from .flows import (
    answer,
    asked,
    at_once,
    browser,
    code_for,
    error,
    issued,
    redeem,
    refresh,
    registered,
    token,
)

AccessToken, RefreshToken = get_access_token_model(), get_refresh_token_model()
Grant = get_grant_model()
REFUSED = (400, "invalid_grant")
FOREVER = timedelta(days=365)


@pytest.fixture(autouse=True)
def _endpoints(in_public):
    with override_settings(ROOT_URLCONF="tests.oauth.tokens_urls"):
        yield


@pytest.fixture
def agent(db):
    return registered("dcr")


@pytest.fixture
def second_server(db):
    server = Server("billing")

    @server.tool(permission=django_mcp.PUBLIC)
    def pay(request) -> str:
        """Pay."""
        return "paid"

    return server


TWO = {"mcp": "Use it", "mcp:write": "Change it"}


def oauth(**options):
    """The settings of the authorization server, otherwise."""
    return override_settings(DJANGO_MCP={**MCP, "OAUTH": options})


def opens(secret: str, server=default_server) -> bool:
    return OAuthTokens().lookup(secret, server) is not None


def aged(by: timedelta) -> None:
    """As if what was revoked had been so long before."""
    for row in RefreshToken.objects.exclude(revoked=None):
        RefreshToken.objects.filter(pk=row.pk).update(revoked=row.revoked - by)


# T2: code injection, PKCE downgrade.


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"code_challenge": None, "code_challenge_method": None}, "invalid_request"),
        ({"code_challenge": None}, "invalid_request"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"code_challenge_method": None}, "invalid_request"),
        ({"code_challenge_method": "S512"}, "invalid_request"),
        ({"code_challenge": "short"}, "invalid_request"),
        ({"code_challenge": "c" * 300}, "invalid_request"),
        ({"nonce": "n" * 300}, "invalid_request"),
        ({"nonce": "\0"}, "invalid_request"),
    ],
)
@pytest.mark.parametrize("source", ["dcr", "manual"])
def test_a_weak_challenge_is_refused_before_anybody_is_asked(alice, source, params, told):
    """T2: no challenge, ``plain``, no method, and what no column takes."""
    assert answer(asked(alice, registered(source), **params))["error"] == told


def test_a_challenge_cannot_be_weakened_by_the_form(alice, agent):
    """T2: the person's browser is made to send another method than the one that was shown."""
    page = asked(alice, agent)
    form = {k: v for k, v in page.context_data["form"].initial.items() if v is not None}
    form |= {"allow": "on", "code_challenge_method": "plain"}
    sent = browser(alice).post(page.wsgi_request.get_full_path(), form)
    assert answer(sent)["error"] == "invalid_request" and not Grant.objects.exists()


@pytest.mark.parametrize("verifier", [None, "", "x" * 64, CHALLENGE, "é" * 50, "\0"])
def test_a_code_is_good_with_its_verifier_alone(alice, agent, verifier):
    """T2: a code that was stolen on its way."""
    code = code_for(alice, agent)
    assert redeem(code, agent, code_verifier=verifier).status_code == 400
    assert redeem(code, agent).status_code == 200


@pytest.mark.parametrize("method", ["plain", ""])
@pytest.mark.parametrize("challenge", [VERIFIER, ""])
def test_a_code_of_a_weak_challenge_is_no_code(alice, agent, method, challenge):
    """T2: a row that another door, or an older release, has left."""
    code = code_for(alice, agent)
    Grant.objects.update(code_challenge=challenge, code_challenge_method=method)
    assert redeem(code, agent).status_code == 400


def test_a_code_is_its_clients_own(alice, agent):
    """T2: a client brings the code that was given to another, which does not suffer from it."""
    code, other = code_for(alice, agent), registered("dcr")
    assert error(redeem(code, other)) == REFUSED
    tokens = redeem(code, agent).json()
    assert error(redeem(code, other)) == REFUSED
    assert opens(tokens["access_token"])


def test_a_code_goes_with_its_redirect_uri(alice):
    """T2: it was sent to one place, and is brought from another of the same client."""
    client = registered("dcr", redirect_uris=f"{REDIRECT} https://agent.example/back")
    code = code_for(alice, client)
    found = redeem(code, client, redirect_uri="https://agent.example/back")
    assert found.status_code == 400 and redeem(code, client).status_code == 200


# T3: code reuse.


def test_a_code_that_comes_twice_ends_what_it_was_good_for(alice, agent):
    """T3: whoever was first, one of the two is a thief."""
    code = code_for(alice, agent)
    tokens = redeem(code, agent).json()
    rotated = refresh(tokens["refresh_token"], agent).json()
    assert opens(rotated["access_token"])
    assert error(redeem(code, agent)) == REFUSED
    assert not opens(rotated["access_token"])
    assert error(refresh(rotated["refresh_token"], agent)) == REFUSED


@pytest.fixture
def told(monkeypatch):
    """Whose rights every process is told to look at."""
    found: list[str] = []

    def say(kind, those, using):
        found.extend(str(getattr(one, "pk", one)) for one in those if kind == CREDENTIALS)

    monkeypatch.setattr(permission_changes, "_say", say)
    return found


def test_what_is_ended_already_has_nobody_looked_at_again(alice, agent, told):
    """T3, T23: by whoever replays it, as often as they like; the first time it is its user."""
    code = code_for(alice, agent)
    tokens = redeem(code, agent).json()
    assert error(redeem(code, agent)) == REFUSED and told == [str(alice.pk)]
    for _ in range(2):
        assert error(redeem(code, agent)) == REFUSED
        assert error(refresh(tokens["refresh_token"], agent)) == REFUSED
        given = {"token": tokens["refresh_token"], "client_id": agent.client_id}
        assert browser().post("/oauth/revoke", given).status_code == 200
    assert told == [str(alice.pk)]


def test_a_refresh_token_that_is_revoked_has_its_user_looked_at_once(alice, agent, told):
    """T23: by its client, and by whoever brings it after the grace."""
    first, second = issued(alice, agent), issued(alice, agent)
    for _ in range(2):
        given = {"token": first["refresh_token"], "client_id": agent.client_id}
        assert browser().post("/oauth/revoke", given).status_code == 200
    assert told == [str(alice.pk)]
    rotated = refresh(second["refresh_token"], agent).json()
    aged(FOREVER)
    for _ in range(2):
        assert error(refresh(second["refresh_token"], agent)) == REFUSED
    assert told == [str(alice.pk)] * 2 and not opens(rotated["access_token"])


def test_of_a_client_that_may_nothing_any_more_nobody_is_told(alice, agent, told):
    """T23: whoever has it blocked and revoked again and again."""
    issued(alice, agent)
    for _ in range(2):
        revoke_client(agent.client_id)
        assert told == [EVERYBODY]
    issued(alice, agent)
    for _ in range(2):
        revoke_user(alice)
        assert told == [EVERYBODY, str(alice.pk)]


@pytest.mark.slow
@pytest.mark.usefixtures("shared_db")
@pytest.mark.django_db(transaction=True)
def test_a_code_is_redeemed_once_by_eight_at_once():
    """T3: one is first, and no race shows as an error of ours."""
    alice, agent = get_user_model().objects.create_user("alice"), registered("dcr")
    for _ in range(3):
        code = code_for(alice, agent)
        found = at_once(8, lambda index, code=code: redeem(code, agent))
        told = sorted(response.status_code for response in found)
        # One is told of its tokens, unless they were revoked before that could be said.
        assert told in ([200] + [400] * 7, [400] * 8)
        assert not AccessToken.objects.exists()
        assert not RefreshToken.objects.filter(revoked=None).exists()
        assert RefreshToken.objects.count() == 1 and RedeemedCode.objects.count() == 1
        RefreshToken.objects.all().delete()
        RedeemedCode.objects.all().delete()


def test_who_loses_the_race_issues_nothing_and_ends_what_was_issued(alice, agent, monkeypatch):
    """T3: a second request found the code while the first was still redeeming it."""
    code = code_for(alice, agent)
    stale = Grant.objects.select_related("user").get()
    first = redeem(code, agent).json()
    monkeypatch.setattr("django_mcp.oauth.authorization_codes._grant", lambda code, client: stale)
    monkeypatch.setattr(
        "oauth2_provider.oauth2_validators.OAuth2Validator.validate_code",
        lambda self, client_id, code, client, request: (
            vars(request).update(scopes=["mcp"], user=alice) or True
        ),
    )
    assert error(redeem(code, agent)) == REFUSED
    assert not opens(first["access_token"]) and not RefreshToken.objects.filter(revoked=None)


def test_tokens_that_were_revoked_before_they_were_told_are_no_error(alice, agent, monkeypatch):
    """T3: the code's second use ends the family while the first is still being answered."""
    monkeypatch.setattr(
        "django_mcp.oauth.authorization_codes.CodeRedemption.invalidate_authorization_code",
        lambda self, client_id, code, request: revoke_user(alice),
    )
    assert error(redeem(code_for(alice, agent), agent)) == REFUSED


def test_a_code_that_is_gone_while_it_is_redeemed_is_refused(alice, agent, monkeypatch):
    """T3: between the first look at its row and the second somebody else was quicker."""
    code, look = code_for(alice, agent), CodeRedemption.validate_code

    def meanwhile(self, *args, **kwargs):
        found = look(self, *args, **kwargs)
        Grant.objects.all().delete()
        return found

    monkeypatch.setattr(CodeRedemption, "validate_code", meanwhile)
    assert error(redeem(code, agent)) == REFUSED and not AccessToken.objects.exists()


def test_codes_are_remembered_by_digest_and_not_for_ever(alice, agent):
    """T3: what a client makes us remember is bounded in time."""
    code = code_for(alice, agent)
    assert redeem(code, agent).status_code == 200
    row = RedeemedCode.objects.get()
    assert row.digest == hashlib.sha256(code.encode()).hexdigest()
    assert row.expires < timezone.now() + timedelta(days=2)
    RedeemedCode.objects.update(expires=timezone.now())
    assert redeem(code_for(alice, agent), agent).status_code == 200
    assert RedeemedCode.objects.exclude(pk=row.pk).count() == RedeemedCode.objects.count() == 1
    assert delete_old_codes() == 0


@pytest.mark.parametrize("code", ["\0", "é", "x" * 5000, ""])
def test_what_is_no_code_is_refused(db, agent, code):
    """T3: no code is an error of ours."""
    assert redeem(code, agent).status_code == 400


def test_a_code_that_has_expired_is_refused(alice, agent):
    """T3: late is too late."""
    code = code_for(alice, agent)
    Grant.objects.update(expires=timezone.now())
    assert error(redeem(code, agent)) == REFUSED


# T5: audience confusion.


def test_a_token_always_names_its_server(alice, agent):
    """T5: a client that names none gets the one that there is, in its one spelling."""
    tokens = issued(alice, agent, resource=None)
    assert AccessToken.objects.get().resource == [RESOURCE]
    assert RefreshToken.objects.get().resource == [RESOURCE]
    assert opens(tokens["access_token"])


def test_of_several_servers_one_must_be_named(alice, agent, second_server):
    """T5: nobody guesses which one was meant, and a token for one does not open the other."""
    code = code_for(alice, agent, resource=None)
    assert error(redeem(code, agent)) == (400, "invalid_target")
    tokens = redeem(code, agent, resource="https://shop.example/mcp/billing").json()
    assert opens(tokens["access_token"], second_server) and not opens(tokens["access_token"])


def test_default_server_is_meant_where_none_is_named(alice, agent, second_server):
    """T5: not only at the consent, but for grants and machines that name none."""
    code = code_for(alice, agent, resource=None)
    with oauth(DEFAULT_SERVER="billing"):
        found = redeem(code, agent).json()
    assert opens(found["access_token"], second_server) and not opens(found["access_token"])


@pytest.mark.parametrize(
    "resource",
    ["https://shop.example", "https://shop.example/", "https://shop.example/mcp2",
     "https://evil.example/mcp", "http://shop.example/mcp", "https://shop.example/mcp?x=1",
     "https://shop.example/mcp#", "https://u@shop.example/mcp", "https://shop.example/mcp/..",
     "urn:mcp", "mcp", "http://[", "http://[::1", "https://shop.example:99999/mcp", " ", "\0"],
)  # fmt: skip
def test_no_token_is_for_what_is_no_server_of_ours(alice, agent, resource):
    """T5, T6: the origin, another host, another scheme, or what can be no name."""
    code = code_for(alice, agent)
    found = redeem(code, agent, resource=resource)
    assert error(found) == (400, "invalid_target")
    assert resource.strip("\0 ") == "" or resource not in found.json()["error_description"]
    tokens = redeem(code, agent).json()
    assert error(refresh(tokens["refresh_token"], agent, resource=resource)) == (
        400, "invalid_target",
    )  # fmt: skip
    assert refresh(tokens["refresh_token"], agent).status_code == 200
    bare = code_for(alice, agent, resource=None)
    assert error(redeem(bare, agent, resource=resource)) == (400, "invalid_target")


def test_a_token_for_nothing_or_for_another_api_opens_no_server(alice):
    """T5: a client of another API of the project, registered by hand, asks for its scope alone."""
    client = registered("manual")
    for resource in (None, "https://shop.example/api"):
        tokens = issued(alice, client, scope="read", resource=resource)
        assert AccessToken.objects.get().resource == ([resource] if resource else [])
        assert not opens(tokens["access_token"])
        AccessToken.objects.all().delete()
    code = code_for(alice, client, scope="read", resource=None)
    assert error(redeem(code, client, resource="http://[")) == (400, "invalid_target")


@pytest.fixture
def above(db):
    """A server whose path begins that of another API."""
    server = Server("above", path="api")
    server.tool(lambda: 1)
    return server


def photos(secret):
    shown = {"Authorization": f"Bearer {secret}"}
    found = browser().get("/api/photos", headers=shown, secure=True)
    return found.status_code, found.text


@pytest.mark.parametrize("source", ["dcr", "cimd", "manual"])
def test_a_token_for_a_server_opens_no_other_api(alice, above, source):
    """T5: not even one whose path is below the server's, which a prefix would allow."""
    secret = issued(alice, registered(source), resource=f"{MCP['URL']}/api")["access_token"]
    assert photos(secret)[0] == 403


def test_the_tokens_of_another_api_open_it_as_before(alice, robot, above):
    """T5: while their user may sign in, and where they have none."""
    row = AccessToken.objects.create(
        user=alice, application=registered("manual"), token="other", scope="read",
        expires=timezone.now() + FOREVER,
    )  # fmt: skip
    assert photos("other") == (200, "of alice")
    type(alice).objects.update(is_active=False)
    assert photos("other")[0] == 403
    AccessToken.objects.filter(pk=row.pk).update(user=None)
    assert photos("other") == (200, "of nobody")
    AccessToken.objects.filter(pk=row.pk).update(application=None)
    assert photos("other") == (200, "of nobody")


# T6: resource escalation.


def test_what_was_granted_for_one_server_is_not_for_another(alice, agent, second_server):
    """T6: authorized for one, redeemed or refreshed for the other."""
    billing = "https://shop.example/mcp/billing"
    code = code_for(alice, agent)
    assert error(redeem(code, agent, resource=billing)) == (400, "invalid_target")
    for both in ([RESOURCE, billing], [billing, RESOURCE]):
        assert error(redeem(code, agent, resource=both)) == (400, "invalid_target")
    tokens = redeem(code, agent).json()
    found = refresh(tokens["refresh_token"], agent, resource=billing)
    assert error(found) == (400, "invalid_target")
    assert not opens(refresh(tokens["refresh_token"], agent).json()["access_token"], second_server)


def test_what_was_granted_for_two_servers_can_be_narrowed_and_not_widened_again(
    alice, agent, second_server
):
    """T6: narrowing is for good."""
    both = [RESOURCE, "https://shop.example/mcp/billing"]
    tokens = issued(alice, agent, resource=both)
    assert opens(tokens["access_token"]) and opens(tokens["access_token"], second_server)
    tokens = refresh(tokens["refresh_token"], agent, resource=both[1]).json()
    assert not opens(tokens["access_token"]) and opens(tokens["access_token"], second_server)
    found = refresh(tokens["refresh_token"], agent, resource=both)
    assert error(found) == (400, "invalid_target")


@pytest.mark.parametrize(
    "spelled", ["https://shop.example/mcp/", "HTTPS://SHOP.example:443/mcp", "https://shop.example:443/mcp"]
)  # fmt: skip
def test_spellings_of_one_name_are_one(alice, agent, spelled):
    """T6: a client that spells it otherwise each time gets what it was granted."""
    code = code_for(alice, agent, resource=spelled)
    found = redeem(code, agent, resource=spelled)
    assert found.status_code == 200 and opens((tokens := found.json())["access_token"])
    assert AccessToken.objects.get().resource == [RESOURCE]
    assert refresh(tokens["refresh_token"], agent, resource=spelled).status_code == 200


def test_a_grant_for_a_server_that_is_no_more_is_for_none(alice, agent):
    """T6: it does not become one for the server that is left."""
    code = code_for(alice, agent)
    Grant.objects.update(resource=["https://shop.example/gone"])
    assert error(redeem(code, agent)) == (400, "invalid_target")


# T13: grant abuse.


@pytest.mark.parametrize("source", ["dcr", "cimd"])
@pytest.mark.parametrize(
    ("grant_type", "stored"),
    [("client_credentials", "client-credentials"), ("password", "password"),
     ("client_credentials", "authorization-code"), ("password", "authorization-code"),
     ("urn:ietf:params:oauth:grant-type:device_code",
      "urn:ietf:params:oauth:grant-type:device_code"),
     ("openid", "authorization-code"), ("nonsense", "authorization-code")],
)  # fmt: skip
def test_a_client_that_registered_itself_has_one_grant(alice, source, grant_type, stored):
    """T13: whatever its row was made to say."""
    kinds = {"client_type": "confidential", "client_secret": "s3cret", "user": alice}
    client = registered(source, authorization_grant_type=stored, **kinds)
    found = token(
        grant_type=grant_type, client_id=client.client_id, client_secret="s3cret",
        username="alice", password="secret", code="x", resource=RESOURCE, device_code="x",
    )  # fmt: skip
    assert found.status_code == 400 and not AccessToken.objects.exists()


@pytest.mark.parametrize("kind", ["token", "none", "code token", "id_token"])
def test_a_client_that_registered_itself_gets_codes_alone(alice, kind):
    """T13: the implicit grant, and its relatives."""
    client = registered("dcr", authorization_grant_type="implicit")
    found = asked(alice, client, response_type=kind)
    assert found.status_code == 302 and "error=" in found["Location"]
    assert not AccessToken.objects.exists()


@pytest.fixture
def robot(db):
    user = get_user_model().objects.create_user("robot")
    return registered(
        "manual", client_type="confidential", authorization_grant_type="client-credentials",
        client_secret="s3cret", user=user,
    )  # fmt: skip


def machine(client, **params):
    return token(
        grant_type="client_credentials", client_id=client.client_id,
        **{"client_secret": "s3cret"} | params,
    )  # fmt: skip


def test_a_machine_acts_as_its_service_user(robot):
    """T13: no token is nobody's."""
    found = machine(robot).json()
    assert OAuthTokens().lookup(found["access_token"], default_server).user == robot.user
    assert AccessToken.objects.get().user == robot.user and "refresh_token" not in found
    robot.user.is_active = False
    robot.user.save()
    assert not opens(found["access_token"]) and not AccessToken.objects.exists()
    assert error(machine(robot)) == (400, "unauthorized_client")


@pytest.mark.parametrize(
    "change", [{"user": None}, {"client_type": "public"}, {"registration_source": "dcr"}]
)
def test_a_machine_without_a_service_user_gets_nothing(robot, change):
    """T13: nor one without a secret, nor one that nobody registered."""
    type(robot).objects.update(**change)
    assert error(machine(robot)) == (400, "unauthorized_client")


def test_a_machine_whose_user_may_not_let_clients_in_gets_nothing(robot):
    """T13: the project's own rule is for those who act as a user without asking one, too."""
    with oauth(MAY_AUTHORIZE="tests.oauth.test_authorize.nobody"):
        assert error(machine(robot)) == (400, "unauthorized_client")
        assert error(machine(robot, resource=RESOURCE)) == (400, "unauthorized_client")
    assert not AccessToken.objects.exists()
    assert error(machine(robot, resource="https://evil.example")) == (400, "invalid_target")


def test_a_secret_that_is_not_there_is_none(robot):
    """T13: of a row without a secret, everybody would know it."""
    type(robot).objects.update(client_secret="")
    for secret in ("", None):
        assert error(machine(robot, client_secret=secret)) == (401, "invalid_client")


def test_a_machine_of_another_api_stays_what_it_was(robot):
    """T13: it may have no user, and opens no server, even if it names one."""
    type(robot).objects.update(user=None)
    found = machine(robot, scope="read", resource=RESOURCE)
    assert found.status_code == 200 and not opens(found.json()["access_token"])
    assert error(machine(robot, scope="read mcp"))[0] == 400


@pytest.mark.parametrize("source", ["dcr", "cimd"])
def test_another_door_is_shut_to_clients_that_registered_themselves(alice, source):
    """T13: the project mounts django-oauth-toolkit's own page too, or a header claims it."""
    client = registered(source, cimd_expires_at=timezone.now() + FOREVER)
    assert asked(alice, client).status_code == 200
    assert asked(alice, client, door="/second-door").status_code == 400
    path = asked(alice, client, door="/second-door").wsgi_request.get_full_path()
    header = {"HTTP_MCP.OAUTH.VIEW": "1", "HTTP_MCP_OAUTH_VIEW": "1"}
    assert browser(alice).get(path, **header).status_code == 400


@pytest.mark.parametrize("more", [{}, {"approval_prompt": "auto"}, {"grant_type": "password"}])
def test_another_door_is_shut_to_what_is_ours(alice, more):
    """T13: also to a client of the project's own, which a living token would let in unasked."""
    client = registered("manual")
    issued(alice, client)
    assert asked(alice, client).status_code == 200
    found = asked(alice, client, door="/second-door", **more)
    assert found.status_code == 302 and "error=invalid_scope" in found["location"]


def test_a_blocked_client_is_refused_everywhere(alice, agent):
    """T13: at the page, at the token endpoint with whatever it has, and at revocation."""
    tokens, code = issued(alice, agent), code_for(alice, agent)
    ClientProfile.objects.create(client_id=agent.client_id, source="dcr", blocked=timezone.now())
    assert asked(alice, agent).status_code == 400
    assert error(redeem(code, agent)) == (401, "invalid_client")
    assert error(refresh(tokens["refresh_token"], agent)) == (401, "invalid_client")
    assert not opens(tokens["access_token"])
    found = browser().post(
        "/oauth/revoke", {"token": tokens["refresh_token"], "client_id": agent.client_id}
    )
    assert found.status_code == 401


@pytest.mark.parametrize("client_id", ["nobody", "\0", "x" * 300, "", None, "é"])
def test_an_unknown_client_is_told_so(db, client_id):
    """T13: and registers again."""
    for path in ("/oauth/token", "/stock-token"):
        found = token(path=path, grant_type="refresh_token", refresh_token="x", client_id=client_id)
        assert (found.status_code, found.json()["error"]) == (401, "invalid_client")


@pytest.mark.parametrize("header", ["Basic é", "Basic !", "Basic " + "A" * 5, "Basic", "Bearer x"])
def test_credentials_that_cannot_be_read_are_no_error_of_ours(robot, header):
    """T13: no 500 for what a client sends."""
    params = {"grant_type": "client_credentials"}
    found = browser().post("/oauth/token", params, HTTP_AUTHORIZATION=header)
    assert error(found) == (401, "invalid_client")


@pytest.mark.parametrize(
    "name", ["refresh_token_instance", "_mcp_notes", "grant", "family", "client", "user", "scopes",
             "extra_credentials", "code_challenge", "claims", "id_token"],
)  # fmt: skip
def test_parameters_are_not_taken_for_what_we_know(alice, agent, name):
    """T13: oauthlib gives parameters as attributes."""
    params = {"code": code_for(alice, agent), "client_id": agent.client_id}
    params |= {"redirect_uri": REDIRECT, "code_verifier": VERIFIER, name: "x"}
    found = browser().post("/oauth/token", {"grant_type": "authorization_code", **params})
    assert found.status_code == 200
    assert AccessToken.objects.get().user == alice and RefreshToken.objects.get().user == alice


@pytest.mark.parametrize("query", ["%GG", "resource=x", "code=1"])
def test_the_token_endpoint_takes_no_query(db, agent, query):
    """T13: where it would be logged, and where oauthlib stumbles."""
    found = token(
        path=f"/oauth/token?{query}", grant_type="refresh_token", client_id=agent.client_id
    )
    assert error(found) == (400, "invalid_request")


# T16: scope escalation.


def test_a_refresh_cannot_widen_what_was_granted(alice, agent):
    """T16: neither by asking for more, nor by asking again after it was narrowed."""
    with override_settings(DJANGO_MCP={**MCP, "SCOPES": TWO}):
        tokens = issued(alice, agent, scope="mcp")
        found = refresh(tokens["refresh_token"], agent, scope="mcp mcp:write")
        assert error(found) == (400, "invalid_scope")
        tokens = issued(alice, agent, scope="mcp mcp:write")
        tokens = refresh(tokens["refresh_token"], agent, scope="mcp").json()
        assert tokens["scope"] == "mcp"
        found = refresh(tokens["refresh_token"], agent, scope="mcp:write")
        assert error(found) == (400, "invalid_scope")


def test_a_sibling_has_no_more_than_the_first(alice, agent):
    """T16: what the first rotation gave up, a second within the grace does not bring back."""
    with override_settings(DJANGO_MCP={**MCP, "SCOPES": TWO}):
        tokens = issued(alice, agent, scope="mcp mcp:write")
        assert refresh(tokens["refresh_token"], agent, scope="mcp").json()["scope"] == "mcp"
        assert refresh(tokens["refresh_token"], agent).json()["scope"] == "mcp"


@pytest.mark.parametrize(
    ("scope", "kept"),
    [("mcp nonsense offline_access", "mcp"), ("mcp mcp", "mcp"), ("", "mcp"), (None, "mcp"),
     ("read mcp", "mcp")],
)  # fmt: skip
def test_scopes_that_are_not_for_it_are_left_out(alice, agent, scope, kept):
    """T16: unknown ones, and those of the project's other APIs."""
    assert issued(alice, agent, scope=scope)["scope"] == kept


@pytest.mark.parametrize("scope", ["nonsense", "read write", "openid"])
def test_something_must_be_left_of_what_was_asked_for(alice, agent, scope):
    """T16: nobody gets the default who asked for something else."""
    assert answer(asked(alice, agent, scope=scope))["error"] == "invalid_scope"


# T22: inactive or removed user.


def test_a_user_who_is_not_active_any_more_has_no_client(alice, agent):
    """T22: at once, and neither code nor token stands again when they are let in again."""
    tokens, code = issued(alice, agent), code_for(alice, agent)
    alice.is_active = False
    alice.save()
    assert not opens(tokens["access_token"])
    assert error(refresh(tokens["refresh_token"], agent)) == REFUSED
    assert error(redeem(code, agent)) == REFUSED
    alice.is_active = True
    alice.save()
    assert not opens(tokens["access_token"])
    assert error(refresh(tokens["refresh_token"], agent)) == REFUSED
    assert error(redeem(code, agent)) == REFUSED


def test_a_user_who_was_made_inactive_behind_our_back_is_refused(alice, agent):
    """T22: no signal tells of ``QuerySet.update()``."""
    tokens, code = issued(alice, agent), code_for(alice, agent)
    get_user_model().objects.update(is_active=False)
    assert not opens(tokens["access_token"])
    assert error(refresh(tokens["refresh_token"], agent)) == REFUSED
    assert error(redeem(code, agent)) == REFUSED
    assert not AccessToken.objects.exclude(pk=AccessToken.objects.get().pk)


def nobody(user, server):
    return user.username != "alice"


def test_whom_the_project_does_not_let_has_no_client(alice, agent):
    """T22: its own rule is asked at each code and each refresh."""
    tokens, code = issued(alice, agent), code_for(alice, agent)
    with oauth(MAY_AUTHORIZE=f"{__name__}.nobody"):
        assert error(refresh(tokens["refresh_token"], agent)) == REFUSED
        assert error(redeem(code, agent)) == REFUSED
    assert refresh(tokens["refresh_token"], agent).status_code == 200


def test_a_user_who_is_no_more_takes_everything_along(alice, agent):
    """T22: rows go with the user."""
    tokens, _ = issued(alice, agent), code_for(alice, agent)
    alice.delete()
    assert not opens(tokens["access_token"])
    assert error(refresh(tokens["refresh_token"], agent)) == REFUSED
    assert not any(m.objects.exists() for m in (AccessToken, RefreshToken, Grant))


def another_hash(user):
    user.password = "md5$x$y"
    user.save()


def unusable(user):
    user.set_unusable_password()
    user.save(update_fields=["password"])


def another(user):
    user.set_password("another")
    user.save()


def another_alone(user):
    user.set_password("another")
    user.save(update_fields=["password"])


CHANGES = [another, another_alone, another_hash, unusable]


@pytest.mark.parametrize("change", CHANGES)
def test_another_password_ends_what_clients_may_do(alice, agent, change):
    """T22: so does who fears that the old one is known."""
    tokens, code = issued(alice, agent), code_for(alice, agent)
    change(get_user_model().objects.get())
    assert not opens(tokens["access_token"])
    assert error(refresh(tokens["refresh_token"], agent)) == REFUSED
    assert error(redeem(code, agent)) == REFUSED


# T23: refresh theft.


def test_a_token_that_comes_again_after_the_grace_ends_its_family(alice, agent):
    """T23: and the children of whoever was first."""
    first = issued(alice, agent)
    second = refresh(first["refresh_token"], agent).json()
    third = refresh(second["refresh_token"], agent).json()
    aged(timedelta(seconds=61))
    assert error(refresh(first["refresh_token"], agent)) == REFUSED
    assert error(refresh(third["refresh_token"], agent)) == REFUSED
    assert not opens(third["access_token"])


def test_another_client_cannot_end_a_family(alice, agent):
    """T23: nor is it told anything, by a token that is not its own."""
    first, other = issued(alice, agent), registered("dcr")
    second = refresh(first["refresh_token"], agent).json()
    aged(timedelta(seconds=61))
    for tokens in (first, second):
        assert error(refresh(tokens["refresh_token"], other)) == REFUSED
    assert opens(second["access_token"])


def test_who_did_not_hear_the_answer_gets_a_pair_of_its_own(alice, agent):
    """T23: within the grace, and all of them are good."""
    first = issued(alice, agent)
    found = [refresh(first["refresh_token"], agent) for _ in range(3)]
    assert [response.status_code for response in found] == [200] * 3
    pairs = [response.json() for response in found]
    assert len({pair["refresh_token"] for pair in pairs}) == 3
    assert all(opens(pair["access_token"]) for pair in pairs)
    assert len(set(RefreshToken.objects.values_list("token_family", flat=True))) == 1
    again = [refresh(pair["refresh_token"], agent) for pair in pairs]
    assert all(response.status_code == 200 for response in again)


def test_there_are_no_more_than_so_many_siblings(alice, agent):
    """T23: a client that does not stop is refused, and keeps what it has."""
    first = issued(alice, agent)
    found = [refresh(first["refresh_token"], agent) for _ in range(MAX_SIBLINGS + 2)]
    assert [response.status_code for response in found] == [200] * MAX_SIBLINGS + [400] * 2
    assert all(opens(response.json()["access_token"]) for response in found[:MAX_SIBLINGS])


def test_siblings_of_another_family_are_none(alice, agent):
    """T23: what others do is nothing to a client."""
    first = issued(alice, agent)
    refresh(first["refresh_token"], agent)
    for number in range(MAX_SIBLINGS):
        RefreshToken.objects.create(
            user=alice, application=agent, token=str(number), token_family=uuid.uuid4()
        )
    assert refresh(first["refresh_token"], agent).status_code == 200


def test_a_revoked_token_is_dead_within_the_grace(alice, agent):
    """T23: with its siblings, and with what it was rotated to."""
    first = issued(alice, agent)
    second, sibling = (refresh(first["refresh_token"], agent).json() for _ in range(2))
    params = {"token": sibling["refresh_token"], "client_id": agent.client_id}
    assert browser().post("/oauth/revoke", params).status_code == 200
    for tokens in (first, second, sibling):
        assert error(refresh(tokens["refresh_token"], agent)) == REFUSED
    assert not opens(second["access_token"]) and not opens(sibling["access_token"])


def test_an_access_token_that_is_revoked_takes_its_family_along(alice, agent):
    """T23: unless it is another client that wants it to."""
    first = issued(alice, agent)
    second, sibling = (refresh(first["refresh_token"], agent).json() for _ in range(2))
    for client, stands in ((registered("dcr"), True), (agent, False)):
        params = {"token": second["access_token"], "client_id": client.client_id}
        assert browser().post("/oauth/revoke", params).status_code == 200
        assert opens(second["access_token"]) == opens(sibling["access_token"]) == stands
    assert error(refresh(sibling["refresh_token"], agent)) == REFUSED


@pytest.mark.parametrize("end", [lambda user, agent: revoke_user(user),
                                 lambda user, agent: revoke_client(agent.client_id)])  # fmt: skip
def test_what_was_revoked_has_no_grace(alice, agent, end):
    """T23: a parent that was just rotated brings nothing back."""
    first = issued(alice, agent)
    second, code = refresh(first["refresh_token"], agent).json(), code_for(alice, agent)
    assert end(alice, agent) == 1
    for tokens in (first, second):
        assert error(refresh(tokens["refresh_token"], agent)) == REFUSED
    assert error(redeem(code, agent)) == REFUSED and not opens(second["access_token"])


def test_without_a_grace_there_are_no_siblings(alice, agent):
    """T23: a project that wants it strict."""
    with oauth(REFRESH_GRACE=0):
        first = issued(alice, agent)
        second = refresh(first["refresh_token"], agent).json()
        assert error(refresh(first["refresh_token"], agent)) == REFUSED
        assert not opens(second["access_token"])


def test_a_token_whose_successor_was_used_is_stolen(alice, agent):
    """T23: its client has had the answer."""
    first = issued(alice, agent)
    second = refresh(first["refresh_token"], agent).json()
    third = refresh(second["refresh_token"], agent).json()
    assert error(refresh(first["refresh_token"], agent)) == REFUSED
    assert not opens(third["access_token"])


def test_a_refresh_token_ends_some_time_after_its_access_token(alice, agent):
    """T23: what nobody used for a month is good for nothing."""
    tokens = issued(alice, agent)
    AccessToken.objects.update(expires=timezone.now() - timedelta(days=30))
    assert error(refresh(tokens["refresh_token"], agent)) == REFUSED


@pytest.mark.slow
@pytest.mark.usefixtures("shared_db")
@pytest.mark.django_db(transaction=True)
def test_four_at_once_get_a_pair_each():
    """T23: as clients do that run twice; no answer is empty, and none an error of ours."""
    alice, agent = get_user_model().objects.create_user("alice"), registered("dcr")
    first = issued(alice, agent)
    found = at_once(4, lambda index: refresh(first["refresh_token"], agent))
    assert [response.status_code for response in found] == [200] * 4
    pairs = [response.json() for response in found]
    assert len({pair["access_token"] for pair in pairs}) == 4
    assert all(opens(pair["access_token"]) for pair in pairs)
    assert all(refresh(pair["refresh_token"], agent).status_code == 200 for pair in pairs)


@pytest.mark.slow
@pytest.mark.usefixtures("shared_db")
@pytest.mark.django_db(transaction=True)
def test_many_at_once_get_no_more_siblings_than_there_may_be(monkeypatch):
    """T23: they are counted under a lock."""
    monkeypatch.setattr(refresh_tokens, "MAX_SIBLINGS", 4)
    alice, agent = get_user_model().objects.create_user("alice"), registered("dcr")
    first = issued(alice, agent)
    found = at_once(6, lambda index: refresh(first["refresh_token"], agent))
    assert sorted(response.status_code for response in found) == [200] * 4 + [400] * 2
    assert RefreshToken.objects.filter(revoked=None).count() == 4


@pytest.mark.slow
@pytest.mark.usefixtures("shared_db")
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("end", ["user", "client", "family"])
def test_nothing_survives_that_is_issued_while_all_is_revoked(end):
    """T23: rotations and siblings that are under way when a family is ended."""
    alice, agent = get_user_model().objects.create_user("alice"), registered("dcr")
    for _ in range(3):
        first = issued(alice, agent)
        second = refresh(first["refresh_token"], agent).json()

        def one(index, first=first, second=second):
            if index == 3:
                return _ended(end, alice, agent, second)
            return refresh((first, second)[index % 2]["refresh_token"], agent)

        told = [response.status_code for response in at_once(7, one) if response is not None]
        assert set(told) <= {200, 400}
        assert not AccessToken.objects.exists()
        assert not RefreshToken.objects.filter(revoked=None).exists()


@pytest.mark.usefixtures("shared_db")
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("end", ["user", "client", "family"])
def test_who_ends_a_family_waits_for_the_sibling_that_is_being_made(end, monkeypatch):
    """T23: the family ends between the last look at it and the new pair."""
    alice, agent = get_user_model().objects.create_user("alice"), registered("dcr")
    first = issued(alice, agent)
    second = refresh(first["refresh_token"], agent).json()
    ends = threading.Thread(target=_ended_apart, args=(end, alice, agent, second))
    mint = RefreshTokenRotation._save_sibling

    def meanwhile(self, token, request, row):
        ends.start()
        _until_it_waits(ends)
        mint(self, token, request, row)

    monkeypatch.setattr(RefreshTokenRotation, "_save_sibling", meanwhile)
    sibling = refresh(first["refresh_token"], agent)
    ends.join()
    assert sibling.status_code in (200, 400)
    assert not AccessToken.objects.exists()
    assert not RefreshToken.objects.filter(revoked=None).exists()


def _until_it_waits(thread):
    """For a lock, or is over. Of SQLite it is known: one writes at a time."""
    waiting = (
        "SELECT count(*) FROM pg_locks"
        " WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))"
    )
    while connection.vendor == "postgresql" and thread.is_alive():
        with connection.cursor() as cursor:
            cursor.execute(waiting)
            if cursor.fetchone()[0]:
                break


def _ended_apart(*args):
    try:
        _ended(*args)
    finally:
        connections.close_all()


def _ended(end, alice, agent, tokens):
    if end == "user":
        revoke_user(alice)
    elif end == "client":
        revoke_client(agent.client_id)
    else:
        params = {"token": tokens["refresh_token"], "client_id": agent.client_id}
        assert browser().post("/oauth/revoke", params).status_code == 200


# T25: storage and logs.


def test_no_token_is_stored_or_logged(alice, caplog):
    """T25: not at DEBUG either, not of what is refused, and not in the report of an error."""
    root, client = logging.getLogger(), registered("dcr")
    with caplog.at_level(logging.DEBUG):
        assert root.isEnabledFor(logging.DEBUG)
        code = code_for(alice, client)
        redeem(code, client, code_verifier="w" * 64)
        first = redeem(code, client).json()
        second = refresh(first["refresh_token"], client).json()
        refresh(first["refresh_token"], client)
        refresh(second["refresh_token"], client, scope="nonsense")
        opens(second["access_token"])
        redeem(code, client)
    secrets = {code, VERIFIER, "w" * 64}
    secrets |= {t[kind] for t in (first, second) for kind in ("access_token", "refresh_token")}
    for row in (*AccessToken.objects.values(), *RefreshToken.objects.values()):
        assert not secrets & {str(value) for value in row.values()}
    assert not [secret for secret in secrets if secret in caplog.text]
    assert not Grant.objects.exists()


def test_what_was_sent_is_in_no_report_of_an_error(alice, agent, monkeypatch, caplog):
    """T25: should there be a bug, it is not told with the secret."""
    code = code_for(alice, agent)

    def broken(*args, **kwargs):
        raise RuntimeError("a bug")

    monkeypatch.setattr("django_mcp.oauth.authorization_codes.may_use", broken)
    web = browser()
    web.raise_request_exception = False
    found = web.post(
        "/oauth/token",
        {"grant_type": "authorization_code", "code": code, "client_id": agent.client_id,
         "redirect_uri": REDIRECT, "code_verifier": VERIFIER},
    )  # fmt: skip
    assert found.status_code == 500 and code.encode() not in found.content
    (record,) = (one for one in caplog.records if one.exc_info)
    report = ExceptionReporter(record.request, *record.exc_info, is_email=True)
    text = report.get_traceback_text()
    assert "a bug" in text and code not in text and VERIFIER not in text


def test_a_token_that_is_revoked_is_in_no_report_of_an_error(alice, agent, monkeypatch, caplog):
    """T25: the same where a client hands a token in."""

    def broken(*args, **kwargs):
        raise RuntimeError("a bug")

    monkeypatch.setattr("django_mcp.oauth.refresh_tokens._refresh_tokens_of", broken)
    web, secret = browser(), issued(alice, agent)["refresh_token"]
    web.raise_request_exception = False
    body = {"token": secret, "client_id": agent.client_id}
    with override_settings(ROOT_URLCONF="tests.oauth.urls"):
        assert web.post("/oauth/revoke", body).status_code == 500
    (record,) = (one for one in caplog.records if one.exc_info)
    report = ExceptionReporter(record.request, *record.exc_info, is_email=True)
    text = report.get_traceback_text()
    assert "a bug" in text and secret not in text
