"""Dynamic client registration: real clients, invalid metadata, limits and expiry."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.test import override_settings
from django.utils import timezone
from oauth2_provider.models import (
    get_access_token_model,
    get_application_model,
    get_grant_model,
    get_refresh_token_model,
)

from django_mcp.oauth import registration_limits
from django_mcp.oauth.models import ClientProfile, Consent

from .clients import REGISTRATIONS, Untouchable, authorize, granted, our_toolkit, register, toolkit
from .conftest import MCP

__all__ = ["our_toolkit"]
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("our_toolkit")]
Application = get_application_model()
INSPECTOR = REGISTRATIONS["MCP Inspector"]
SECRET = INSPECTOR | {"token_endpoint_auth_method": "client_secret_post"}


def given(**options):
    return override_settings(DJANGO_MCP={**MCP, "OAUTH": options})


def make_older(seconds: int, **which) -> None:
    then = timezone.now() - timedelta(seconds=seconds)
    ClientProfile.objects.filter(**which).update(created=then)


# Real clients.


@pytest.mark.parametrize("body", REGISTRATIONS.values(), ids=list(REGISTRATIONS))
def test_registration_of_a_real_client_succeeds(web, body):
    response = register(web, body)
    assert response.status_code == 201, response.content
    found = response.json()
    for name in ("client_name", "redirect_uris", "grant_types", "response_types"):
        assert found[name] == body[name]
    assert found["token_endpoint_auth_method"] == "none" and "client_secret" not in found
    assert found.get("application_type") == body.get("application_type")
    assert found.get("client_uri") == body.get("client_uri")
    assert "scope" not in found and response["Cache-Control"] == "no-store"


@pytest.mark.parametrize("body", REGISTRATIONS.values(), ids=list(REGISTRATIONS))
def test_consent_page_works_for_each_redirect_uri_of_a_real_client(web, alice, body):
    client_id = register(web, body).json()["client_id"]
    web.force_login(alice)
    for uri in body["redirect_uris"]:
        response = authorize(web, client_id, uri)
        assert response.status_code == 200 and body["client_name"] in response.text


@pytest.mark.parametrize("body", REGISTRATIONS.values(), ids=list(REGISTRATIONS))
def test_real_client_gets_a_token_without_a_secret(web, alice, body):
    client_id = register(web, body).json()["client_id"]
    sent = granted(client_id, alice) | {"client_id": client_id}
    response = web.post("/oauth/token", sent)
    assert response.status_code == 200 and response.json()["refresh_token"]


def test_stored_application_passes_model_validation(web):
    for body in REGISTRATIONS.values():
        register(web, body)
    for application in Application.objects.all():
        application.full_clean()


@override_settings(ROOT_URLCONF="tests.oauth.urls_with_fallback")
def test_registration_works_at_every_path_that_clients_use(web):
    for path in ("/register", "/oauth/register", "/oauth/register/"):
        response = web.post(path, json.dumps(INSPECTOR), content_type="application/json")
        assert response.status_code == 201


# Secrets.


def test_confidential_client_gets_its_secret_once(web, alice):
    found = register(web, SECRET).json()
    assert found["client_secret_expires_at"] == 0 and found["client_id_issued_at"] > 0
    row = Application.objects.get(client_id=found["client_id"])
    assert row.client_type == "confidential" and row.client_secret != found["client_secret"]
    sent = granted(row.client_id, alice) | {"client_id": row.client_id}
    assert web.post("/oauth/token", sent).status_code == 401
    sent |= {"client_secret": found["client_secret"]}
    assert web.post("/oauth/token", sent).status_code == 200


def test_default_authentication_method_is_client_secret_basic(web):
    body = {name: value for name, value in SECRET.items() if "method" not in name}
    found = register(web, body).json()
    assert found["token_endpoint_auth_method"] == "client_secret_basic" and found["client_secret"]


def test_public_client_gets_a_random_secret_without_hashing(web):
    """T10: a slow hash for each registration would be a denial of service."""
    with override_settings(PASSWORD_HASHERS=[f"{__name__}.{Untouchable.__name__}"]):
        found = register(web, INSPECTOR).json()
    row = Application.objects.get(client_id=found["client_id"])
    assert len(row.client_secret) > 60 and row.client_secret not in json.dumps(found)


def test_private_key_jwt_client_needs_a_jwks_uri(web):
    body = INSPECTOR | {"token_endpoint_auth_method": "private_key_jwt"}
    assert register(web, body).json()["error"] == "invalid_client_metadata"
    found = register(web, body | {"jwks_uri": "https://app.example/keys"}).json()
    assert found["jwks_uri"] == "https://app.example/keys" and "client_secret" not in found
    row = Application.objects.get(client_id=found["client_id"])
    assert row.client_type == "confidential"  # for code that knows only of secrets


# Metadata.


def test_unsupported_metadata_is_ignored(web):
    body = INSPECTOR | {
        "grant_types": ["authorization_code", "client_credentials", "password", "made up"],
        "response_types": ["code", "token"], "contacts": [1], "software_statement": {},
        "application_type": "toaster", "logo_uri": "javascript:alert(1)", "client_uri": 7,
    }  # fmt: skip
    found = register(web, body).json()
    assert found["grant_types"] == ["authorization_code", "refresh_token"]
    assert found["response_types"] == ["code"]
    assert not {"application_type", "logo_uri", "client_uri", "contacts"} & set(found)


def test_null_counts_as_absent(web):
    body = dict.fromkeys((*INSPECTOR, "jwks_uri", "contacts"))
    found = register(web, body | {"redirect_uris": INSPECTOR["redirect_uris"]}).json()
    assert found["token_endpoint_auth_method"] == "client_secret_basic"
    assert None not in found.values() and "client_name" not in found
    assert register(web, INSPECTOR | {"redirect_uris": None}).status_code == 400


WRONG = {
    "no JSON": "{",
    "deep JSON": "[" * 16_000,
    "a list": "[]",
    "no redirects": {"client_name": "x"},
    "no code": INSPECTOR | {"grant_types": ["client_credentials"]},
    "no code back": INSPECTOR | {"response_types": ["token"]},
    "odd grants": INSPECTOR | {"grant_types": "authorization_code"},
    "odd method": INSPECTOR | {"token_endpoint_auth_method": ["none"]},
    "another method": INSPECTOR | {"token_endpoint_auth_method": "tls_client_auth"},
    "an odd name": INSPECTOR | {"client_name": {}},
}


@pytest.mark.parametrize("body", WRONG.values(), ids=list(WRONG))
def test_invalid_metadata_is_rejected_with_json(web, body):
    response = register(web, body)
    assert response.status_code == 400 and response.json()["error"].startswith("invalid_")
    assert not Application.objects.exists()


def test_body_must_be_json(web):
    response = web.post("/oauth/register", INSPECTOR)
    assert response.status_code == 400
    assert web.get("/oauth/register").status_code == 405


def test_registration_can_be_switched_off(web):
    for closed in ("off", "", None, "closed"):
        with given(REGISTRATION=closed):
            response = register(web, INSPECTOR)
            assert response.status_code == 403 and response.json()["error"] == "access_denied"
    assert not ClientProfile.objects.exists()


# Repeated registrations.


def test_repeated_registration_returns_the_same_client(web):
    first, again = register(web, INSPECTOR).json(), register(web, INSPECTOR)
    assert again.status_code == 201 and again.json()["client_id"] == first["client_id"]
    assert Application.objects.count() == ClientProfile.objects.count() == 1


def test_registration_with_other_metadata_network_or_secret_is_a_new_client(web):
    ids = {
        register(web, body, REMOTE_ADDR=address).json()["client_id"]
        for body in (INSPECTOR, INSPECTOR | {"client_name": "Another"}, SECRET, SECRET)
        for address in ("192.0.2.1", "192.0.2.2")
    }
    assert len(ids) == 8


@pytest.mark.parametrize("what", ["last_authorized", "last_used", "blocked"])
def test_authorized_or_blocked_client_is_not_returned_again(web, what):
    first = register(web, INSPECTOR).json()["client_id"]
    ClientProfile.objects.update(**{what: timezone.now()})
    assert register(web, INSPECTOR).json()["client_id"] != first


def test_repeated_registration_restarts_the_expiry(web):
    first = register(web, INSPECTOR).json()["client_id"]
    make_older(86_000)
    assert register(web, INSPECTOR).json()["client_id"] == first
    assert ClientProfile.objects.get().created > timezone.now() - timedelta(seconds=60)
    make_older(86_500)
    assert register(web, INSPECTOR).json()["client_id"] != first


def test_registration_after_deletion_is_a_new_client(web):
    first = register(web, INSPECTOR).json()["client_id"]
    Application.objects.all().delete()
    assert register(web, INSPECTOR).json()["client_id"] != first


# Clients that were never authorized.


def _registered(web, name: str) -> str:
    return register(web, INSPECTOR | {"client_name": name}).json()["client_id"]


def test_registration_deletes_clients_unused_for_a_day(web):
    """T10: unused registrations are deleted."""
    _registered(web, "old")
    make_older(86_500)
    _registered(web, "new")
    assert [row.name for row in ClientProfile.objects.all()] == ["new"]
    assert [row.name for row in Application.objects.all()] == ["new"]


def test_mcp_clear_clients_deletes_clients_unused_for_a_day(web, capsys):
    """T10: after a day, and not earlier."""
    _registered(web, "old")
    fresh = _registered(web, "fresh")
    make_older(86_500, name="old")
    call_command("mcp_clear_clients", "--dry-run")
    assert "1 clients" in capsys.readouterr().out and Application.objects.count() == 2
    call_command("mcp_clear_clients")
    assert "1 clients" in capsys.readouterr().out
    assert [row.client_id for row in Application.objects.all()] == [fresh]


def test_client_with_code_token_consent_or_block_is_not_deleted(web, alice):
    """T10: a flood of other registrations does not delete a client in use."""
    names = ["code", "token", "consent", "authorized", "used", "blocked"]
    ids = {name: _registered(web, name) for name in names}
    granted(ids["code"], alice)
    web.post("/oauth/token", granted(ids["token"], alice) | {"client_id": ids["token"]})
    Consent.objects.create(user=alice, client_id=ids["consent"], resource="x", redirect_host="y")
    for name, column in zip(names[3:], ("last_authorized", "last_used", "blocked"), strict=True):
        ClientProfile.objects.filter(name=name).update(**{column: timezone.now()})
    make_older(10 * 86_400)
    call_command("mcp_clear_clients")
    _registered(web, "another")
    assert set(Application.objects.values_list("name", flat=True)) == {*names, "another"}
    assert get_grant_model().objects.exists() and get_access_token_model().objects.exists()


# Clients that were authorized once.


def _unused_client(web, alice, name: str, days: int = 91) -> str:
    """A client that was last authorized and used so long ago, without a valid token."""
    client_id, then = _registered(web, name), timezone.now() - timedelta(days=days)
    web.post("/oauth/token", granted(client_id, alice) | {"client_id": client_id})
    Consent.objects.create(user=alice, client_id=client_id, resource="x", redirect_host="y")
    of_it = ClientProfile.objects.filter(client_id=client_id)
    of_it.update(created=then, last_authorized=then, last_used=then)
    tokens = get_access_token_model().objects.filter(application__client_id=client_id)
    tokens.update(expires=then)
    return client_id


def _remaining_names() -> set[str]:
    return set(ClientProfile.objects.values_list("name", flat=True))


def test_client_unused_for_90_days_is_deleted_with_its_consents(web, alice, capsys):
    """T10: the number of registrations stays bounded."""
    _unused_client(web, alice, "old"), _unused_client(web, alice, "newer", days=89)
    call_command("mcp_clear_clients", "--dry-run")
    assert "1 clients" in capsys.readouterr().out and len(_remaining_names()) == 2
    call_command("mcp_clear_clients")
    assert "1 clients" in capsys.readouterr().out and _remaining_names() == {"newer"}
    assert list(Application.objects.values_list("name", flat=True)) == ["newer"]
    assert Consent.objects.count() == get_access_token_model().objects.count() == 1


LATELY = timedelta(days=89)


@pytest.mark.parametrize("what", ["last_used", "last_authorized", "blocked"])
def test_recently_used_authorized_or_blocked_client_is_not_deleted(web, alice, what):
    client_id = _unused_client(web, alice, "one")
    ClientProfile.objects.filter(client_id=client_id).update(**{what: timezone.now() - LATELY})
    call_command("mcp_clear_clients")
    assert _remaining_names() == {"one"} and Consent.objects.exists()


def test_client_with_a_valid_token_is_not_deleted(web, alice):
    """T10: nor is one with a refresh token or a code, however long it was unused."""
    access, refresh = _unused_client(web, alice, "access"), _unused_client(web, alice, "refresh")
    code, revoked = _unused_client(web, alice, "code"), _unused_client(web, alice, "revoked")
    tokens, now = get_access_token_model().objects.all(), timezone.now()
    tokens.filter(application__client_id=access).update(expires=now + timedelta(days=1))
    renewed = tokens.filter(application__client_id__in=[refresh, revoked])
    renewed.update(expires=now - timedelta(days=29))  # a refresh token is good for 30 longer
    ended = get_refresh_token_model().objects.filter(application__client_id__in=[access, revoked])
    ended.update(revoked=now)
    granted(code, alice)
    call_command("mcp_clear_clients")
    assert _remaining_names() == {"access", "refresh", "code"}


def test_client_with_a_refresh_token_that_never_expires_is_not_deleted(web, alice):
    _unused_client(web, alice, "one")
    with toolkit(REFRESH_TOKEN_EXPIRE_SECONDS=None):
        call_command("mcp_clear_clients")
    assert _remaining_names() == {"one"}


@pytest.mark.parametrize("source", ["manual", "cimd"])
def test_manual_and_document_clients_are_not_deleted(web, alice, source):
    client_id = _unused_client(web, alice, "one")
    ClientProfile.objects.update(source=source)
    Application.objects.update(registration_source=source)
    call_command("mcp_clear_clients")
    registration_limits.delete_if_stale([client_id])
    assert _remaining_names() == {"one"} and Application.objects.exists()


def test_registration_deletes_clients_unused_for_90_days(web, alice, monkeypatch):
    """T10: now and then a registration deletes them, if the command is not run."""
    _unused_client(web, alice, "old")
    _registered(web, "soon")
    monkeypatch.setattr(registration_limits, "_last_search", float("-inf"))
    _registered(web, "later"), _unused_client(web, alice, "another"), _registered(web, "at once")
    assert _remaining_names() == {"soon", "later", "another", "at once"}


# Limits.


def test_number_of_queries_of_a_registration_is_limited(
    web, django_assert_max_num_queries, monkeypatch
):
    monkeypatch.setattr(registration_limits, "_last_search", float("-inf"))
    with django_assert_max_num_queries(11):
        register(web, INSPECTOR)


def names():
    return set(Application.objects.values_list("name", flat=True))


def test_full_table_evicts_the_oldest_client_of_the_busiest_network(web, monkeypatch):
    """T10: whoever fills the table is evicted, and others are not rejected."""
    monkeypatch.setattr(registration_limits, "MAX_UNAUTHORIZED_CLIENTS", 4)
    for name, address in [
        ("hers", "198.51.100.7"), ("flood 1", "2001:db8:1:1::5"), ("flood 2", "2001:db8:1:2::5"),
        ("flood 3", "2001:db8:1:3::5"),
    ]:  # fmt: skip
        register(web, INSPECTOR | {"client_name": name}, REMOTE_ADDR=address)
    assert register(web, INSPECTOR).status_code == 201
    assert names() == {"hers", "flood 2", "flood 3", "MCP Inspector"}


def test_blocked_clients_do_not_fill_the_table(web, monkeypatch):
    """They cannot be evicted: an administrator who blocks a flood would keep others out."""
    monkeypatch.setattr(registration_limits, "MAX_UNAUTHORIZED_CLIENTS", 2)
    for name in ("flood 1", "flood 2"):
        register(web, INSPECTOR | {"client_name": name})
    ClientProfile.objects.update(blocked=timezone.now())
    assert register(web, INSPECTOR, REMOTE_ADDR="198.51.100.7").status_code == 201
    assert names() == {"flood 1", "flood 2", "MCP Inspector"}


def test_full_table_does_not_evict_a_client_with_a_code(web, alice, monkeypatch):
    monkeypatch.setattr(registration_limits, "MAX_UNAUTHORIZED_CLIENTS", 2)
    for name in ("agreed", "waiting"):
        made = register(web, INSPECTOR | {"client_name": name}).json()["client_id"]
        if name == "agreed":
            granted(made, alice)
            ClientProfile.objects.update(last_authorized=None)
    assert register(web, INSPECTOR, REMOTE_ADDR="198.51.100.7").status_code == 201
    assert names() == {"agreed", "MCP Inspector"}


def test_full_table_without_an_evictable_client_answers_503(web, alice, monkeypatch):
    monkeypatch.setattr(registration_limits, "MAX_UNAUTHORIZED_CLIENTS", 1)
    granted(register(web, INSPECTOR | {"client_name": "agreed"}).json()["client_id"], alice)
    ClientProfile.objects.update(last_authorized=None)
    response = register(web, INSPECTOR)
    assert response.status_code == 503 and int(response["Retry-After"]) > 0
