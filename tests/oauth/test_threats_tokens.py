"""Attacks on codes, tokens, audiences, grants and scopes, over the real endpoints."""

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
from django_mcp.declarations.server import Server, default_server
from django_mcp.oauth import grants
from django_mcp.oauth.grants import (
    MAX_SIBLINGS,
    CodeRedemption,
    RefreshTokenRotation,
    delete_old_codes,
)
from django_mcp.oauth.models import ClientProfile, RedeemedCode
from django_mcp.oauth.revocation import revoke_client, revoke_user
from django_mcp.oauth.verifier import OAuthTokens
from django_mcp.storage.change_log import ALL_USERS, CREDENTIALS

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


def is_accepted(secret: str, server=default_server) -> bool:
    return OAuthTokens().lookup(secret, server) is not None


def age_revocations(by: timedelta) -> None:
    """Move all revocations into the past."""
    for row in RefreshToken.objects.exclude(revoked=None):
        RefreshToken.objects.filter(pk=row.pk).update(revoked=row.revoked - by)


# T2: code injection, PKCE downgrade.


@pytest.mark.parametrize(
    ("params", "code"),
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
def test_weak_challenge_is_rejected_before_the_consent(alice, source, params, code):
    """T2: no challenge, ``plain``, no method, and values that fit no column."""
    assert answer(asked(alice, registered(source), **params))["error"] == code


def test_posted_form_cannot_weaken_the_challenge(alice, agent):
    """T2: the browser sends another method than the one of the request."""
    page = asked(alice, agent)
    form = {k: v for k, v in page.context_data["form"].initial.items() if v is not None}
    form |= {"allow": "on", "code_challenge_method": "plain"}
    sent = browser(alice).post(page.wsgi_request.get_full_path(), form)
    assert answer(sent)["error"] == "invalid_request" and not Grant.objects.exists()


@pytest.mark.parametrize("verifier", [None, "", "x" * 64, CHALLENGE, "é" * 50, "\0"])
def test_code_needs_its_verifier(alice, agent, verifier):
    """T2: a code that was stolen on its way."""
    code = code_for(alice, agent)
    assert redeem(code, agent, code_verifier=verifier).status_code == 400
    assert redeem(code, agent).status_code == 200


@pytest.mark.parametrize("method", ["plain", ""])
@pytest.mark.parametrize("challenge", [VERIFIER, ""])
def test_code_with_a_weak_challenge_is_rejected(alice, agent, method, challenge):
    """T2: a row of another view, or of an older release."""
    code = code_for(alice, agent)
    Grant.objects.update(code_challenge=challenge, code_challenge_method=method)
    assert redeem(code, agent).status_code == 400


def test_code_of_another_client_is_rejected(alice, agent):
    """T2: and the client that it belongs to can still redeem it."""
    code, other = code_for(alice, agent), registered("dcr")
    assert error(redeem(code, other)) == REFUSED
    tokens = redeem(code, agent).json()
    assert error(redeem(code, other)) == REFUSED
    assert is_accepted(tokens["access_token"])


def test_code_with_another_redirect_uri_is_rejected(alice):
    """T2: it was sent to one redirect URI, and is redeemed with another of the same client."""
    client = registered("dcr", redirect_uris=f"{REDIRECT} https://agent.example/back")
    code = code_for(alice, client)
    found = redeem(code, client, redirect_uri="https://agent.example/back")
    assert found.status_code == 400 and redeem(code, client).status_code == 200


# T3: code reuse.


def test_replayed_code_revokes_its_tokens(alice, agent):
    """T3: one of the two senders is an attacker."""
    code = code_for(alice, agent)
    tokens = redeem(code, agent).json()
    rotated = refresh(tokens["refresh_token"], agent).json()
    assert is_accepted(rotated["access_token"])
    assert error(redeem(code, agent)) == REFUSED
    assert not is_accepted(rotated["access_token"])
    assert error(refresh(rotated["refresh_token"], agent)) == REFUSED


@pytest.fixture
def checked_users(monkeypatch):
    """Collect the users whose permissions every process is told to check."""
    found: list[str] = []

    def record(kind, keys, using):
        found.extend(key for key in keys if kind == CREDENTIALS)

    monkeypatch.setattr(permission_changes, "_record", record)
    return found


def test_replaying_a_revoked_token_does_not_check_its_user_again(alice, agent, checked_users):
    """T3, T23: however often it is replayed; the first time, the user is checked."""
    code = code_for(alice, agent)
    tokens = redeem(code, agent).json()
    assert error(redeem(code, agent)) == REFUSED and checked_users == [str(alice.pk)]
    for _ in range(2):
        assert error(redeem(code, agent)) == REFUSED
        assert error(refresh(tokens["refresh_token"], agent)) == REFUSED
        given = {"token": tokens["refresh_token"], "client_id": agent.client_id}
        assert browser().post("/oauth/revoke", given).status_code == 200
    assert checked_users == [str(alice.pk)]


def test_revoking_a_refresh_token_checks_its_user_once(alice, agent, checked_users):
    """T23: by its client, and by a replay after the grace."""
    first, second = issued(alice, agent), issued(alice, agent)
    for _ in range(2):
        given = {"token": first["refresh_token"], "client_id": agent.client_id}
        assert browser().post("/oauth/revoke", given).status_code == 200
    assert checked_users == [str(alice.pk)]
    rotated = refresh(second["refresh_token"], agent).json()
    age_revocations(FOREVER)
    for _ in range(2):
        assert error(refresh(second["refresh_token"], agent)) == REFUSED
    assert checked_users == [str(alice.pk)] * 2 and not is_accepted(rotated["access_token"])


def test_revoking_a_client_again_checks_no_users(alice, agent, checked_users):
    """T23: somebody has it blocked and revoked again and again."""
    issued(alice, agent)
    for _ in range(2):
        revoke_client(agent.client_id)
        assert checked_users == [ALL_USERS]
    issued(alice, agent)
    for _ in range(2):
        revoke_user(alice)
        assert checked_users == [ALL_USERS, str(alice.pk)]


@pytest.mark.slow
@pytest.mark.usefixtures("shared_db")
@pytest.mark.django_db(transaction=True)
def test_code_is_redeemed_once_by_concurrent_requests():
    """T3: one is first, and no race is a server error."""
    alice, agent = get_user_model().objects.create_user("alice"), registered("dcr")
    for _ in range(3):
        code = code_for(alice, agent)
        found = at_once(8, lambda index, code=code: redeem(code, agent))
        statuses = sorted(response.status_code for response in found)
        # One request gets its tokens, unless they were revoked before it was answered.
        assert statuses in ([200] + [400] * 7, [400] * 8)
        assert not AccessToken.objects.exists()
        assert not RefreshToken.objects.filter(revoked=None).exists()
        assert RefreshToken.objects.count() == 1 and RedeemedCode.objects.count() == 1
        RefreshToken.objects.all().delete()
        RedeemedCode.objects.all().delete()


def test_losing_request_for_a_code_issues_nothing_and_revokes_the_tokens(alice, agent, monkeypatch):
    """T3: it found the code while the other request was still redeeming it."""
    code = code_for(alice, agent)
    stale = Grant.objects.select_related("user").get()
    first = redeem(code, agent).json()
    monkeypatch.setattr("django_mcp.oauth.grants._grant", lambda code, client: stale)
    monkeypatch.setattr(
        "oauth2_provider.oauth2_validators.OAuth2Validator.validate_code",
        lambda self, client_id, code, client, request: (
            vars(request).update(scopes=["mcp"], user=alice) or True
        ),
    )
    assert error(redeem(code, agent)) == REFUSED
    assert not is_accepted(first["access_token"]) and not RefreshToken.objects.filter(revoked=None)


def test_tokens_revoked_before_the_response_are_no_server_error(alice, agent, monkeypatch):
    """T3: the replay ends the family while the first request is still being answered."""
    monkeypatch.setattr(
        "django_mcp.oauth.grants.CodeRedemption.invalidate_authorization_code",
        lambda self, client_id, code, request: revoke_user(alice),
    )
    assert error(redeem(code_for(alice, agent), agent)) == REFUSED


def test_code_deleted_during_the_request_is_rejected(alice, agent, monkeypatch):
    """T3: between the first and the second read of its row."""
    code, look = code_for(alice, agent), CodeRedemption.validate_code

    def meanwhile(self, *args, **kwargs):
        found = look(self, *args, **kwargs)
        Grant.objects.all().delete()
        return found

    monkeypatch.setattr(CodeRedemption, "validate_code", meanwhile)
    assert error(redeem(code, agent)) == REFUSED and not AccessToken.objects.exists()


def test_redeemed_codes_are_stored_by_digest_until_they_expire(alice, agent):
    """T3: the number of stored codes is bounded in time."""
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
def test_malformed_code_is_rejected(db, agent, code):
    """T3: and is no server error."""
    assert redeem(code, agent).status_code == 400


def test_expired_code_is_rejected(alice, agent):
    """T3: after its lifetime."""
    code = code_for(alice, agent)
    Grant.objects.update(expires=timezone.now())
    assert error(redeem(code, agent)) == REFUSED


# T5: audience confusion.


def test_token_without_a_requested_resource_is_for_the_only_server(alice, agent):
    """T5: in its normalized spelling."""
    tokens = issued(alice, agent, resource=None)
    assert AccessToken.objects.get().resource == [RESOURCE]
    assert RefreshToken.objects.get().resource == [RESOURCE]
    assert is_accepted(tokens["access_token"])


def test_resource_is_required_if_there_are_several_servers(alice, agent, second_server):
    """T5: none is guessed, and a token for one is not accepted by the other."""
    code = code_for(alice, agent, resource=None)
    assert error(redeem(code, agent)) == (400, "invalid_target")
    tokens = redeem(code, agent, resource="https://shop.example/mcp/billing").json()
    assert is_accepted(tokens["access_token"], second_server) and not is_accepted(
        tokens["access_token"]
    )


def test_default_server_applies_to_token_requests_without_resource(alice, agent, second_server):
    """T5: not only at the consent page."""
    code = code_for(alice, agent, resource=None)
    with oauth(DEFAULT_SERVER="billing"):
        found = redeem(code, agent).json()
    assert is_accepted(found["access_token"], second_server) and not is_accepted(
        found["access_token"]
    )


@pytest.mark.parametrize(
    "resource",
    ["https://shop.example", "https://shop.example/", "https://shop.example/mcp2",
     "https://evil.example/mcp", "http://shop.example/mcp", "https://shop.example/mcp?x=1",
     "https://shop.example/mcp#", "https://u@shop.example/mcp", "https://shop.example/mcp/..",
     "urn:mcp", "mcp", "http://[", "http://[::1", "https://shop.example:99999/mcp", " ", "\0"],
)  # fmt: skip
def test_token_request_for_an_unknown_resource_is_an_invalid_target(alice, agent, resource):
    """T5, T6: the origin, another host, another scheme, or a malformed URI."""
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


def test_token_for_another_api_is_rejected_by_servers(alice):
    """T5: a manual client of another API asks only for the scope of that API."""
    client = registered("manual")
    for resource in (None, "https://shop.example/api"):
        tokens = issued(alice, client, scope="read", resource=resource)
        assert AccessToken.objects.get().resource == ([resource] if resource else [])
        assert not is_accepted(tokens["access_token"])
        AccessToken.objects.all().delete()
    code = code_for(alice, client, scope="read", resource=None)
    assert error(redeem(code, client, resource="http://[")) == (400, "invalid_target")


@pytest.fixture
def server_above(db):
    """A server whose path is a prefix of another API's path."""
    server = Server("above", path="api")
    server.tool(lambda: 1)
    return server


def get_photos(secret):
    shown = {"Authorization": f"Bearer {secret}"}
    found = browser().get("/api/photos", headers=shown, secure=True)
    return found.status_code, found.text


@pytest.mark.parametrize("source", ["dcr", "cimd", "manual"])
def test_token_for_a_server_is_rejected_by_other_apis(alice, server_above, source):
    """T5: not even by one whose path is below the server's, as a prefix match would allow."""
    secret = issued(alice, registered(source), resource=f"{MCP['URL']}/api")["access_token"]
    assert get_photos(secret)[0] == 403


def test_tokens_of_another_api_still_work_there(alice, machine_client, server_above):
    """T5: while their user may sign in, and if they have no user."""
    row = AccessToken.objects.create(
        user=alice, application=registered("manual"), token="other", scope="read",
        expires=timezone.now() + FOREVER,
    )  # fmt: skip
    assert get_photos("other") == (200, "of alice")
    type(alice).objects.update(is_active=False)
    assert get_photos("other")[0] == 403
    AccessToken.objects.filter(pk=row.pk).update(user=None)
    assert get_photos("other") == (200, "of nobody")
    AccessToken.objects.filter(pk=row.pk).update(application=None)
    assert get_photos("other") == (200, "of nobody")


# T6: resource escalation.


def test_grant_for_one_server_cannot_be_used_for_another(alice, agent, second_server):
    """T6: authorized for one, redeemed or refreshed for the other."""
    billing = "https://shop.example/mcp/billing"
    code = code_for(alice, agent)
    assert error(redeem(code, agent, resource=billing)) == (400, "invalid_target")
    for both in ([RESOURCE, billing], [billing, RESOURCE]):
        assert error(redeem(code, agent, resource=both)) == (400, "invalid_target")
    tokens = redeem(code, agent).json()
    found = refresh(tokens["refresh_token"], agent, resource=billing)
    assert error(found) == (400, "invalid_target")
    assert not is_accepted(
        refresh(tokens["refresh_token"], agent).json()["access_token"], second_server
    )


def test_grant_for_two_servers_can_be_narrowed_but_not_widened_again(alice, agent, second_server):
    """T6: narrowing is permanent."""
    both = [RESOURCE, "https://shop.example/mcp/billing"]
    tokens = issued(alice, agent, resource=both)
    assert is_accepted(tokens["access_token"]) and is_accepted(
        tokens["access_token"], second_server
    )
    tokens = refresh(tokens["refresh_token"], agent, resource=both[1]).json()
    assert not is_accepted(tokens["access_token"]) and is_accepted(
        tokens["access_token"], second_server
    )
    found = refresh(tokens["refresh_token"], agent, resource=both)
    assert error(found) == (400, "invalid_target")


@pytest.mark.parametrize(
    "spelled", ["https://shop.example/mcp/", "HTTPS://SHOP.example:443/mcp", "https://shop.example:443/mcp"]
)  # fmt: skip
def test_resource_is_normalized_at_the_token_endpoint(alice, agent, spelled):
    """T6: a client that spells it differently each time gets what it was granted."""
    code = code_for(alice, agent, resource=spelled)
    found = redeem(code, agent, resource=spelled)
    assert found.status_code == 200 and is_accepted((tokens := found.json())["access_token"])
    assert AccessToken.objects.get().resource == [RESOURCE]
    assert refresh(tokens["refresh_token"], agent, resource=spelled).status_code == 200


def test_grant_for_a_removed_server_is_an_invalid_target(alice, agent):
    """T6: it does not become one for the remaining server."""
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
def test_self_registered_client_can_use_only_the_code_grant(alice, source, grant_type, stored):
    """T13: whatever its row says."""
    kinds = {"client_type": "confidential", "client_secret": "s3cret", "user": alice}
    client = registered(source, authorization_grant_type=stored, **kinds)
    found = token(
        grant_type=grant_type, client_id=client.client_id, client_secret="s3cret",
        username="alice", password="secret", code="x", resource=RESOURCE, device_code="x",
    )  # fmt: skip
    assert found.status_code == 400 and not AccessToken.objects.exists()


@pytest.mark.parametrize("kind", ["token", "none", "code token", "id_token"])
def test_self_registered_client_cannot_use_the_implicit_grant(alice, kind):
    """T13: the implicit grant and its relatives."""
    client = registered("dcr", authorization_grant_type="implicit")
    found = asked(alice, client, response_type=kind)
    assert found.status_code == 302 and "error=" in found["Location"]
    assert not AccessToken.objects.exists()


@pytest.fixture
def machine_client(db):
    user = get_user_model().objects.create_user("robot")
    return registered(
        "manual", client_type="confidential", authorization_grant_type="client-credentials",
        client_secret="s3cret", user=user,
    )  # fmt: skip


def get_machine_token(client, **params):
    return token(
        grant_type="client_credentials", client_id=client.client_id,
        **{"client_secret": "s3cret"} | params,
    )  # fmt: skip


def test_machine_client_acts_as_its_service_user(machine_client):
    """T13: every token has a user."""
    found = get_machine_token(machine_client).json()
    assert OAuthTokens().lookup(found["access_token"], default_server).user == machine_client.user
    assert AccessToken.objects.get().user == machine_client.user and "refresh_token" not in found
    machine_client.user.is_active = False
    machine_client.user.save()
    assert not is_accepted(found["access_token"]) and not AccessToken.objects.exists()
    assert error(get_machine_token(machine_client)) == (400, "unauthorized_client")


@pytest.mark.parametrize(
    "change", [{"user": None}, {"client_type": "public"}, {"registration_source": "dcr"}]
)
def test_machine_client_without_service_user_or_secret_gets_no_token(machine_client, change):
    """T13: nor one that registered itself."""
    type(machine_client).objects.update(**change)
    assert error(get_machine_token(machine_client)) == (400, "unauthorized_client")


def test_machine_client_of_a_user_who_may_not_authorize_gets_no_token(machine_client):
    """T13: MAY_AUTHORIZE applies to machine clients, too."""
    with oauth(MAY_AUTHORIZE="tests.oauth.test_authorize.allow_nobody"):
        assert error(get_machine_token(machine_client)) == (400, "unauthorized_client")
        assert error(get_machine_token(machine_client, resource=RESOURCE)) == (
            400,
            "unauthorized_client",
        )
    assert not AccessToken.objects.exists()
    assert error(get_machine_token(machine_client, resource="https://evil.example")) == (
        400,
        "invalid_target",
    )


def test_empty_secret_never_authenticates(machine_client):
    """T13: everybody would know the secret of a row without one."""
    type(machine_client).objects.update(client_secret="")
    for secret in ("", None):
        assert error(get_machine_token(machine_client, client_secret=secret)) == (
            401,
            "invalid_client",
        )


def test_machine_client_of_another_api_still_works_there(machine_client):
    """T13: it may have no user, and no server accepts its tokens, even if it names one."""
    type(machine_client).objects.update(user=None)
    found = get_machine_token(machine_client, scope="read", resource=RESOURCE)
    assert found.status_code == 200 and not is_accepted(found.json()["access_token"])
    assert error(get_machine_token(machine_client, scope="read mcp"))[0] == 400


@pytest.mark.parametrize("source", ["dcr", "cimd"])
def test_second_authorization_view_rejects_self_registered_clients(alice, source):
    """T13: the project also mounts django-oauth-toolkit's view, or a header claims to be ours."""
    client = registered(source, cimd_expires_at=timezone.now() + FOREVER)
    assert asked(alice, client).status_code == 200
    assert asked(alice, client, path="/second-view").status_code == 400
    path = asked(alice, client, path="/second-view").wsgi_request.get_full_path()
    header = {"HTTP_MCP.OAUTH.VIEW": "1", "HTTP_MCP_OAUTH_VIEW": "1"}
    assert browser(alice).get(path, **header).status_code == 400


@pytest.mark.parametrize("more", [{}, {"approval_prompt": "auto"}, {"grant_type": "password"}])
def test_second_authorization_view_rejects_our_scopes(alice, more):
    """T13: also for a manual client, which a valid token would let skip the consent."""
    client = registered("manual")
    issued(alice, client)
    assert asked(alice, client).status_code == 200
    found = asked(alice, client, path="/second-view", **more)
    assert found.status_code == 302 and "error=invalid_scope" in found["location"]


def test_blocked_client_is_rejected_at_every_endpoint(alice, agent):
    """T13: at the consent page, at the token endpoint with whatever it has, and at revocation."""
    tokens, code = issued(alice, agent), code_for(alice, agent)
    ClientProfile.objects.create(client_id=agent.client_id, source="dcr", blocked=timezone.now())
    assert asked(alice, agent).status_code == 400
    assert error(redeem(code, agent)) == (401, "invalid_client")
    assert error(refresh(tokens["refresh_token"], agent)) == (401, "invalid_client")
    assert not is_accepted(tokens["access_token"])
    found = browser().post(
        "/oauth/revoke", {"token": tokens["refresh_token"], "client_id": agent.client_id}
    )
    assert found.status_code == 401


@pytest.mark.parametrize("client_id", ["nobody", "\0", "x" * 300, "", None, "é"])
def test_unknown_client_gets_invalid_client(db, client_id):
    """T13: so that it registers again."""
    for path in ("/oauth/token", "/stock-token"):
        found = token(path=path, grant_type="refresh_token", refresh_token="x", client_id=client_id)
        assert (found.status_code, found.json()["error"]) == (401, "invalid_client")


@pytest.mark.parametrize("header", ["Basic é", "Basic !", "Basic " + "A" * 5, "Basic", "Bearer x"])
def test_malformed_credentials_are_no_server_error(machine_client, header):
    """T13: 401 instead of 500."""
    params = {"grant_type": "client_credentials"}
    found = browser().post("/oauth/token", params, HTTP_AUTHORIZATION=header)
    assert error(found) == (401, "invalid_client")


@pytest.mark.parametrize(
    "name", ["refresh_token_instance", "_mcp_notes", "grant", "family", "client", "user", "scopes",
             "extra_credentials", "code_challenge", "claims", "id_token"],
)  # fmt: skip
def test_request_parameters_cannot_replace_internal_attributes(alice, agent, name):
    """T13: oauthlib makes parameters attributes of the request."""
    params = {"code": code_for(alice, agent), "client_id": agent.client_id}
    params |= {"redirect_uri": REDIRECT, "code_verifier": VERIFIER, name: "x"}
    found = browser().post("/oauth/token", {"grant_type": "authorization_code", **params})
    assert found.status_code == 200
    assert AccessToken.objects.get().user == alice and RefreshToken.objects.get().user == alice


@pytest.mark.parametrize("query", ["%GG", "resource=x", "code=1"])
def test_token_request_with_a_query_is_invalid(db, agent, query):
    """T13: a query would be logged, and oauthlib fails on malformed ones."""
    found = token(
        path=f"/oauth/token?{query}", grant_type="refresh_token", client_id=agent.client_id
    )
    assert error(found) == (400, "invalid_request")


# T16: scope escalation.


def test_refresh_cannot_widen_the_scopes(alice, agent):
    """T16: neither by asking for more, nor by asking again after narrowing."""
    with override_settings(DJANGO_MCP={**MCP, "SCOPES": TWO}):
        tokens = issued(alice, agent, scope="mcp")
        found = refresh(tokens["refresh_token"], agent, scope="mcp mcp:write")
        assert error(found) == (400, "invalid_scope")
        tokens = issued(alice, agent, scope="mcp mcp:write")
        tokens = refresh(tokens["refresh_token"], agent, scope="mcp").json()
        assert tokens["scope"] == "mcp"
        found = refresh(tokens["refresh_token"], agent, scope="mcp:write")
        assert error(found) == (400, "invalid_scope")


def test_second_refresh_within_the_grace_gets_no_wider_scopes(alice, agent):
    """T16: scopes that the first refresh gave up do not come back."""
    with override_settings(DJANGO_MCP={**MCP, "SCOPES": TWO}):
        tokens = issued(alice, agent, scope="mcp mcp:write")
        assert refresh(tokens["refresh_token"], agent, scope="mcp").json()["scope"] == "mcp"
        assert refresh(tokens["refresh_token"], agent).json()["scope"] == "mcp"


@pytest.mark.parametrize(
    ("scope", "kept"),
    [("mcp nonsense offline_access", "mcp"), ("mcp mcp", "mcp"), ("", "mcp"), (None, "mcp"),
     ("read mcp", "mcp")],
)  # fmt: skip
def test_unknown_and_foreign_scopes_are_ignored(alice, agent, scope, kept):
    """T16: unknown ones, and those of other APIs of the project."""
    assert issued(alice, agent, scope=scope)["scope"] == kept


@pytest.mark.parametrize("scope", ["nonsense", "read write", "openid"])
def test_request_without_any_known_scope_is_rejected(alice, agent, scope):
    """T16: it does not get the default scope instead."""
    assert answer(asked(alice, agent, scope=scope))["error"] == "invalid_scope"


# T22: inactive or removed user.


def test_deactivating_a_user_revokes_codes_and_tokens(alice, agent):
    """T22: at once, and they stay revoked when the user is activated again."""
    tokens, code = issued(alice, agent), code_for(alice, agent)
    alice.is_active = False
    alice.save()
    assert not is_accepted(tokens["access_token"])
    assert error(refresh(tokens["refresh_token"], agent)) == REFUSED
    assert error(redeem(code, agent)) == REFUSED
    alice.is_active = True
    alice.save()
    assert not is_accepted(tokens["access_token"])
    assert error(refresh(tokens["refresh_token"], agent)) == REFUSED
    assert error(redeem(code, agent)) == REFUSED


def test_user_deactivated_without_a_signal_is_rejected(alice, agent):
    """T22: ``QuerySet.update()`` sends no signal."""
    tokens, code = issued(alice, agent), code_for(alice, agent)
    get_user_model().objects.update(is_active=False)
    assert not is_accepted(tokens["access_token"])
    assert error(refresh(tokens["refresh_token"], agent)) == REFUSED
    assert error(redeem(code, agent)) == REFUSED
    assert not AccessToken.objects.exclude(pk=AccessToken.objects.get().pk)


def all_but_alice(user, server):
    return user.username != "alice"


def test_may_authorize_setting_applies_to_codes_and_refreshes(alice, agent):
    """T22: it is called at each code and each refresh."""
    tokens, code = issued(alice, agent), code_for(alice, agent)
    with oauth(MAY_AUTHORIZE=f"{__name__}.all_but_alice"):
        assert error(refresh(tokens["refresh_token"], agent)) == REFUSED
        assert error(redeem(code, agent)) == REFUSED
    assert refresh(tokens["refresh_token"], agent).status_code == 200


def test_deleting_a_user_deletes_codes_and_tokens(alice, agent):
    """T22: the rows are deleted with the user."""
    tokens, _ = issued(alice, agent), code_for(alice, agent)
    alice.delete()
    assert not is_accepted(tokens["access_token"])
    assert error(refresh(tokens["refresh_token"], agent)) == REFUSED
    assert not any(m.objects.exists() for m in (AccessToken, RefreshToken, Grant))


def set_another_hash(user):
    user.password = "md5$x$y"
    user.save()


def set_unusable(user):
    user.set_unusable_password()
    user.save(update_fields=["password"])


def set_another(user):
    user.set_password("another")
    user.save()


def set_another_by_update_fields(user):
    user.set_password("another")
    user.save(update_fields=["password"])


PASSWORD_CHANGES = [set_another, set_another_by_update_fields, set_another_hash, set_unusable]


@pytest.mark.parametrize("change", PASSWORD_CHANGES)
def test_password_change_revokes_codes_and_tokens(alice, agent, change):
    """T22: the old password may be known to an attacker."""
    tokens, code = issued(alice, agent), code_for(alice, agent)
    change(get_user_model().objects.get())
    assert not is_accepted(tokens["access_token"])
    assert error(refresh(tokens["refresh_token"], agent)) == REFUSED
    assert error(redeem(code, agent)) == REFUSED


# T23: refresh theft.


def test_replayed_refresh_token_after_the_grace_revokes_its_family(alice, agent):
    """T23: including the tokens that the first refresh led to."""
    first = issued(alice, agent)
    second = refresh(first["refresh_token"], agent).json()
    third = refresh(second["refresh_token"], agent).json()
    age_revocations(timedelta(seconds=61))
    assert error(refresh(first["refresh_token"], agent)) == REFUSED
    assert error(refresh(third["refresh_token"], agent)) == REFUSED
    assert not is_accepted(third["access_token"])


def test_refresh_token_replayed_by_another_client_revokes_nothing(alice, agent):
    """T23: and the other client learns nothing."""
    first, other = issued(alice, agent), registered("dcr")
    second = refresh(first["refresh_token"], agent).json()
    age_revocations(timedelta(seconds=61))
    for tokens in (first, second):
        assert error(refresh(tokens["refresh_token"], other)) == REFUSED
    assert is_accepted(second["access_token"])


def test_refresh_token_can_be_reused_within_the_grace(alice, agent):
    """T23: for a client that did not get the response; all pairs are valid."""
    first = issued(alice, agent)
    found = [refresh(first["refresh_token"], agent) for _ in range(3)]
    assert [response.status_code for response in found] == [200] * 3
    pairs = [response.json() for response in found]
    assert len({pair["refresh_token"] for pair in pairs}) == 3
    assert all(is_accepted(pair["access_token"]) for pair in pairs)
    assert len(set(RefreshToken.objects.values_list("token_family", flat=True))) == 1
    again = [refresh(pair["refresh_token"], agent) for pair in pairs]
    assert all(response.status_code == 200 for response in again)


def test_number_of_refreshes_within_the_grace_is_limited(alice, agent):
    """T23: a client that does not stop is rejected, and keeps what it has."""
    first = issued(alice, agent)
    found = [refresh(first["refresh_token"], agent) for _ in range(MAX_SIBLINGS + 2)]
    assert [response.status_code for response in found] == [200] * MAX_SIBLINGS + [400] * 2
    assert all(is_accepted(response.json()["access_token"]) for response in found[:MAX_SIBLINGS])


def test_refreshes_of_other_families_do_not_count(alice, agent):
    """T23: other clients do not use up the limit."""
    first = issued(alice, agent)
    refresh(first["refresh_token"], agent)
    for number in range(MAX_SIBLINGS):
        RefreshToken.objects.create(
            user=alice, application=agent, token=str(number), token_family=uuid.uuid4()
        )
    assert refresh(first["refresh_token"], agent).status_code == 200


def test_revoked_refresh_token_has_no_grace(alice, agent):
    """T23: with its siblings, and with the tokens that it was refreshed to."""
    first = issued(alice, agent)
    second, sibling = (refresh(first["refresh_token"], agent).json() for _ in range(2))
    params = {"token": sibling["refresh_token"], "client_id": agent.client_id}
    assert browser().post("/oauth/revoke", params).status_code == 200
    for tokens in (first, second, sibling):
        assert error(refresh(tokens["refresh_token"], agent)) == REFUSED
    assert not is_accepted(second["access_token"]) and not is_accepted(sibling["access_token"])


def test_revoking_an_access_token_revokes_its_family(alice, agent):
    """T23: unless another client asks for it."""
    first = issued(alice, agent)
    second, sibling = (refresh(first["refresh_token"], agent).json() for _ in range(2))
    for client, stands in ((registered("dcr"), True), (agent, False)):
        params = {"token": second["access_token"], "client_id": client.client_id}
        assert browser().post("/oauth/revoke", params).status_code == 200
        assert is_accepted(second["access_token"]) == is_accepted(sibling["access_token"]) == stands
    assert error(refresh(sibling["refresh_token"], agent)) == REFUSED


@pytest.mark.parametrize("end", [lambda user, agent: revoke_user(user),
                                 lambda user, agent: revoke_client(agent.client_id)])  # fmt: skip
def test_revoked_user_or_client_has_no_grace(alice, agent, end):
    """T23: a refresh token that was just used brings nothing back."""
    first = issued(alice, agent)
    second, code = refresh(first["refresh_token"], agent).json(), code_for(alice, agent)
    assert end(alice, agent) == 1
    for tokens in (first, second):
        assert error(refresh(tokens["refresh_token"], agent)) == REFUSED
    assert error(redeem(code, agent)) == REFUSED and not is_accepted(second["access_token"])


def test_reuse_without_a_grace_revokes_the_family(alice, agent):
    """T23: REFRESH_GRACE is 0."""
    with oauth(REFRESH_GRACE=0):
        first = issued(alice, agent)
        second = refresh(first["refresh_token"], agent).json()
        assert error(refresh(first["refresh_token"], agent)) == REFUSED
        assert not is_accepted(second["access_token"])


def test_reuse_after_the_successor_was_used_revokes_the_family(alice, agent):
    """T23: the client did get the response."""
    first = issued(alice, agent)
    second = refresh(first["refresh_token"], agent).json()
    third = refresh(second["refresh_token"], agent).json()
    assert error(refresh(first["refresh_token"], agent)) == REFUSED
    assert not is_accepted(third["access_token"])


def test_refresh_token_expires_a_month_after_its_access_token(alice, agent):
    """T23: an unused token does not stay valid."""
    tokens = issued(alice, agent)
    AccessToken.objects.update(expires=timezone.now() - timedelta(days=30))
    assert error(refresh(tokens["refresh_token"], agent)) == REFUSED


@pytest.mark.slow
@pytest.mark.usefixtures("shared_db")
@pytest.mark.django_db(transaction=True)
def test_concurrent_refreshes_get_a_pair_each():
    """T23: such as of a client that runs twice; no response is empty or a server error."""
    alice, agent = get_user_model().objects.create_user("alice"), registered("dcr")
    first = issued(alice, agent)
    found = at_once(4, lambda index: refresh(first["refresh_token"], agent))
    assert [response.status_code for response in found] == [200] * 4
    pairs = [response.json() for response in found]
    assert len({pair["access_token"] for pair in pairs}) == 4
    assert all(is_accepted(pair["access_token"]) for pair in pairs)
    assert all(refresh(pair["refresh_token"], agent).status_code == 200 for pair in pairs)


@pytest.mark.slow
@pytest.mark.usefixtures("shared_db")
@pytest.mark.django_db(transaction=True)
def test_concurrent_refreshes_do_not_exceed_the_limit(monkeypatch):
    """T23: they are counted under a lock."""
    monkeypatch.setattr(grants, "MAX_SIBLINGS", 4)
    alice, agent = get_user_model().objects.create_user("alice"), registered("dcr")
    first = issued(alice, agent)
    found = at_once(6, lambda index: refresh(first["refresh_token"], agent))
    assert sorted(response.status_code for response in found) == [200] * 4 + [400] * 2
    assert RefreshToken.objects.filter(revoked=None).count() == 4


@pytest.mark.slow
@pytest.mark.usefixtures("shared_db")
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("end", ["user", "client", "family"])
def test_tokens_issued_during_a_revocation_are_revoked(end):
    """T23: refreshes that are under way when a family is ended."""
    alice, agent = get_user_model().objects.create_user("alice"), registered("dcr")
    for _ in range(3):
        first = issued(alice, agent)
        second = refresh(first["refresh_token"], agent).json()

        def one(index, first=first, second=second):
            if index == 3:
                return _revoke(end, alice, agent, second)
            return refresh((first, second)[index % 2]["refresh_token"], agent)

        statuses = [response.status_code for response in at_once(7, one) if response is not None]
        assert set(statuses) <= {200, 400}
        assert not AccessToken.objects.exists()
        assert not RefreshToken.objects.filter(revoked=None).exists()


@pytest.mark.usefixtures("shared_db")
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("end", ["user", "client", "family"])
def test_revocation_waits_for_a_refresh_in_progress(end, monkeypatch):
    """T23: the family ends between the last check and the new pair."""
    alice, agent = get_user_model().objects.create_user("alice"), registered("dcr")
    first = issued(alice, agent)
    second = refresh(first["refresh_token"], agent).json()
    ends = threading.Thread(target=_revoke_in_thread, args=(end, alice, agent, second))
    mint = RefreshTokenRotation._save_sibling

    def meanwhile(self, token, request, row):
        ends.start()
        _wait_until_blocked(ends)
        mint(self, token, request, row)

    monkeypatch.setattr(RefreshTokenRotation, "_save_sibling", meanwhile)
    sibling = refresh(first["refresh_token"], agent)
    ends.join()
    assert sibling.status_code in (200, 400)
    assert not AccessToken.objects.exists()
    assert not RefreshToken.objects.filter(revoked=None).exists()


def _wait_until_blocked(thread):
    """Wait until the thread waits for a lock, or is over. SQLite has one writer at a time."""
    waiting = (
        "SELECT count(*) FROM pg_locks"
        " WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))"
    )
    while connection.vendor == "postgresql" and thread.is_alive():
        with connection.cursor() as cursor:
            cursor.execute(waiting)
            if cursor.fetchone()[0]:
                break


def _revoke_in_thread(*args):
    try:
        _revoke(*args)
    finally:
        connections.close_all()


def _revoke(end, alice, agent, tokens):
    if end == "user":
        revoke_user(alice)
    elif end == "client":
        revoke_client(agent.client_id)
    else:
        params = {"token": tokens["refresh_token"], "client_id": agent.client_id}
        assert browser().post("/oauth/revoke", params).status_code == 200


# T25: storage and logs.


def test_tokens_are_neither_stored_nor_logged(alice, caplog):
    """T25: not at DEBUG, not of rejected requests, and not in an error report."""
    root, client = logging.getLogger(), registered("dcr")
    with caplog.at_level(logging.DEBUG):
        assert root.isEnabledFor(logging.DEBUG)
        code = code_for(alice, client)
        redeem(code, client, code_verifier="w" * 64)
        first = redeem(code, client).json()
        second = refresh(first["refresh_token"], client).json()
        refresh(first["refresh_token"], client)
        refresh(second["refresh_token"], client, scope="nonsense")
        is_accepted(second["access_token"])
        redeem(code, client)
    secrets = {code, VERIFIER, "w" * 64}
    secrets |= {t[kind] for t in (first, second) for kind in ("access_token", "refresh_token")}
    for row in (*AccessToken.objects.values(), *RefreshToken.objects.values()):
        assert not secrets & {str(value) for value in row.values()}
    assert not [secret for secret in secrets if secret in caplog.text]
    assert not Grant.objects.exists()


def test_code_and_verifier_are_hidden_in_error_reports(alice, agent, monkeypatch, caplog):
    """T25: a bug must not reveal the secrets of a request."""
    code = code_for(alice, agent)

    def broken(*args, **kwargs):
        raise RuntimeError("a bug")

    monkeypatch.setattr("django_mcp.oauth.grants.may_use", broken)
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


def test_revoked_token_is_hidden_in_error_reports(alice, agent, monkeypatch, caplog):
    """T25: the same at the revocation endpoint."""

    def broken(*args, **kwargs):
        raise RuntimeError("a bug")

    monkeypatch.setattr("django_mcp.oauth.grants._refresh_tokens_of", broken)
    web, secret = browser(), issued(alice, agent)["refresh_token"]
    web.raise_request_exception = False
    body = {"token": secret, "client_id": agent.client_id}
    with override_settings(ROOT_URLCONF="tests.oauth.urls"):
        assert web.post("/oauth/revoke", body).status_code == 500
    (record,) = (one for one in caplog.records if one.exc_info)
    report = ExceptionReporter(record.request, *record.exc_info, is_email=True)
    text = report.get_traceback_text()
    assert "a bug" in text and secret not in text
