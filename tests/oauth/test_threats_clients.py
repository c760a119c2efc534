"""Attacks by unknown clients: registration, metadata documents and client authentication."""

from __future__ import annotations

import base64
import json
import threading
import time
import uuid
from collections import Counter
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.auth import get_user_model
from django.core.cache import cache
from django.core.cache.backends.locmem import LocMemCache
from django.core.management import call_command
from django.db import connections
from django.test import Client, override_settings
from django.utils import timezone
from hypothesis import given as example
from hypothesis import strategies as st
from jwcrypto import jwk
from oauth2_provider.cimd import CIMDError, _fetch_slot
from oauth2_provider.models import (
    get_access_token_model,
    get_application_model,
    get_grant_model,
    get_refresh_token_model,
)
from oauth2_provider.settings import oauth2_settings

from django_mcp.oauth import (
    authorization_request,
    client_metadata,
    registration_limits,
)
from django_mcp.oauth import client_authentication as keys_of
from django_mcp.oauth.client_metadata_documents import split_client_id
from django_mcp.oauth.grants import CodeRedemption
from django_mcp.oauth.metadata import authorization_server_metadata
from django_mcp.oauth.models import ClientProfile, Consent

from . import flows
from .clients import (
    CHATGPT,
    CLAUDE_AI,
    DOCUMENTS,
    JWKS,
    PUBLIC_ADDRESS,
    REGISTRATIONS,
    VS_CODE,
    Fetcher,
    assertion,
    authorize,
    certificate,
    granted,
    internet,
    keys,
    our_toolkit,
    register,
    toolkit,
)
from .conftest import CHALLENGE, MCP, URL, VERIFIER
from .flows import at_once, browser

__all__ = ["certificate", "internet", "our_toolkit"]
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("our_toolkit")]
Application, Grant = get_application_model(), get_grant_model()
AccessToken, RefreshToken = get_access_token_model(), get_refresh_token_model()
INSPECTOR = REGISTRATIONS["MCP Inspector"]
EVIL = "https://app.example/evil.json"
CALLBACK = "https://claude.ai/api/mcp/auth_callback"


def given(**options):
    return override_settings(DJANGO_MCP={**MCP, "OAUTH": options})


# T10: floods.


def test_registrations_per_address_are_limited(web):
    """T10: the 21st in an hour is rejected before anything is written or hashed."""
    for number in range(20):
        assert register(web, INSPECTOR | {"client_name": f"{number}"}).status_code == 201
    secret = INSPECTOR | {"token_endpoint_auth_method": "client_secret_post"}
    with override_settings(PASSWORD_HASHERS=["tests.oauth.clients.Untouchable"]):
        response = register(web, secret)
    assert response.status_code == 429 and 3590 < int(response["Retry-After"]) <= 3601
    assert Application.objects.count() == ClientProfile.objects.count() == 20
    assert register(web, INSPECTOR, REMOTE_ADDR="192.0.2.7").status_code == 201


@pytest.mark.parametrize("method", ["client_secret_post", "client_secret_basic"])
def test_secret_of_a_self_registered_client_is_not_hashed_slowly(web, alice, settings, method):
    """T10: the token endpoint would compute a slow hash as often as the client likes."""
    settings.PASSWORD_HASHERS = ["tests.oauth.clients.Untouchable"]
    found = register(web, INSPECTOR | {"token_endpoint_auth_method": method}).json()
    row, secret = Application.objects.get(), found["client_secret"]
    assert secret not in row.client_secret
    sent = granted(row.client_id, alice) | {"client_id": row.client_id}
    for wrong in ("x", row.client_secret, secret[:-1], ""):
        response = web.post("/oauth/token", sent | {"client_secret": wrong})
        assert response.status_code == 401
    assert web.post("/oauth/token", sent | {"client_secret": secret}).status_code == 200


def test_registration_is_allowed_again_after_retry_after(web):
    """T10: a client that waited may go on."""
    with given(REGISTRATION_RATE="1/60"):
        register(web, INSPECTOR)
        other = INSPECTOR | {"client_name": "another"}
        wait = int(register(web, other)["Retry-After"])
        ClientProfile.objects.update(created=timezone.now() - timedelta(seconds=wait))
        assert register(web, other).status_code == 201


def test_forwarding_headers_do_not_change_the_limited_address(web):
    """T10: any client can send a forwarded address."""
    with given(REGISTRATION_RATE="1/3600"):
        register(web, INSPECTOR)
        for name in ("X_FORWARDED_FOR", "X_REAL_IP", "FORWARDED", "REMOTE_ADDR", "CLIENT_IP"):
            body = INSPECTOR | {"client_name": name}
            assert register(web, body, **{f"HTTP_{name}": "192.0.2.9"}).status_code == 429


def test_ipv6_addresses_of_one_subnet_share_a_digest():
    """T10: one subscriber has 2^64 addresses."""
    same = {
        registration_limits.address_digest(f"2001:db8::{end}") for end in ("1", "ffff", "1:2:3:4")
    }
    others = {
        registration_limits.address_digest(one)
        for one in ("2001:db8:0:1::1", "192.0.2.1", "", "junk")
    }
    assert len(same) == 1 and len(others - same) == 4
    assert registration_limits.address_digest(
        "::ffff:192.0.2.1"
    ) == registration_limits.address_digest("192.0.2.1")


def test_registrations_from_ipv6_are_limited_by_subnet_and_by_site(web):
    """T10: whoever has a /48 has 65,536 subnets."""

    def told(subnets, site="2001:db8:1"):
        bodies = (INSPECTOR | {"client_name": subnet} for subnet in subnets)
        return [
            register(web, one, REMOTE_ADDR=f"{site}:{one['client_name']}::1").status_code
            for one in bodies
        ]

    with given(REGISTRATION_RATE="1/3600"):
        assert told(["1", "2", "3", "4", "5", "6"]) == [201] * 4 + [429] * 2
        assert told(["7"], site="2001:db8:2") == [201]
        different = INSPECTOR | {"client_name": "again"}
        assert register(web, different, REMOTE_ADDR="2001:db8:2:7::9").status_code == 429


def test_documents_for_ipv6_are_limited_by_subnet_and_by_site():
    """T10: the same for what is fetched on behalf of a network."""

    def allowed(remote):
        return registration_limits.may_fetch(registration_limits.address_digest(remote))

    with given(REGISTRATION_RATE="1/3600"):
        assert allowed("2001:db8:9:1::1") and not allowed("2001:db8:9:1::2")
        assert [allowed(f"2001:db8:9:{n}::1") for n in "2345"] == [True, True, True, False]
        assert allowed("2001:db8:a::1")


def test_addresses_are_stored_as_keyed_digests(web):
    """T10: the database does not reveal the addresses."""
    register(web, INSPECTOR, REMOTE_ADDR="192.0.2.1")
    kept = ClientProfile.objects.get().address
    with override_settings(SECRET_KEY="another"):
        assert kept != registration_limits.address_digest("192.0.2.1")
    assert len(kept) == 64


def test_repeated_registration_is_one_row_and_not_limited(web):
    """T10: a client that registers at every start is never rejected."""
    with given(REGISTRATION_RATE="1/3600"):
        assert {register(web, INSPECTOR).status_code for _ in range(30)} == {201}
    assert Application.objects.count() == 1


def make_slow(monkeypatch, module, name: str) -> None:
    """Delay the result of a function, so that it may be out of date when it is used."""
    found = getattr(module, name)

    def late(*args):
        try:
            return found(*args)
        finally:
            time.sleep(0.03)

    monkeypatch.setattr(module, name, late)


@pytest.mark.slow
@pytest.mark.usefixtures("shared_db")
@pytest.mark.django_db(transaction=True)
def test_concurrent_registrations_of_one_address_are_limited(monkeypatch):
    """T10: 40 at the same moment, each of which could count before the others are stored."""
    make_slow(monkeypatch, registration_limits, "wait_to_register")

    def one(index: int) -> int:
        return register(browser(), INSPECTOR | {"client_name": f"{index}"}).status_code

    assert Counter(at_once(40, one)) == {201: 20, 429: 20}
    assert Application.objects.count() == ClientProfile.objects.count() == 20


@pytest.mark.slow
@pytest.mark.usefixtures("shared_db")
@pytest.mark.django_db(transaction=True)
def test_concurrent_registrations_do_not_exceed_the_total_limit(monkeypatch):
    """T10: the total number of unauthorized clients is limited, too."""
    monkeypatch.setattr(registration_limits, "MAX_UNAUTHORIZED_CLIENTS", 3)
    make_slow(monkeypatch, registration_limits, "_is_full")

    def one(index: int) -> int:
        return register(browser(), INSPECTOR, REMOTE_ADDR=f"192.0.2.{index}").status_code

    assert at_once(12, one) == [201] * 12  # each evicts the one before
    assert Application.objects.count() == ClientProfile.objects.count() == 3


@pytest.fixture
def flood_of_registrations(web):
    """Registrations over the limit, from each of three addresses, two days ago."""
    for address in ("192.0.2.1", "192.0.2.2", "192.0.2.3"):
        bodies = (INSPECTOR | {"client_name": f"{number}"} for number in range(30))
        told = Counter(register(web, one, REMOTE_ADDR=address).status_code for one in bodies)
        assert told == {201: 20, 429: 10}
    assert Application.objects.count() == ClientProfile.objects.count() == 60
    ClientProfile.objects.update(created=timezone.now() - timedelta(days=2))


def test_mcp_clear_clients_deletes_a_flood_of_registrations(flood_of_registrations, capsys):
    """T10: the daily command deletes all of them after UNUSED seconds."""
    call_command("mcp_clear_clients")
    assert capsys.readouterr().out == ("Deleted 60 clients.\nDeleted 0 records of activity.\n")
    assert not Application.objects.exists() and not ClientProfile.objects.exists()


def test_later_registrations_delete_a_flood_of_registrations(flood_of_registrations, web):
    """T10: each later registration deletes a part, and succeeds."""
    ids = {
        register(web, INSPECTOR | {"client_name": f"later {number}"}).json()["client_id"]
        for number in range(3)
    }
    for model in (Application, ClientProfile):
        assert set(model.objects.values_list("client_id", flat=True)) == ids


def test_client_is_not_deleted_while_it_is_authorized(shared_db, web):
    """T10: deletion and authorization at the same moment leave a whole client or none."""
    alice = get_user_model().objects.create_user("alice")
    ids = [
        register(web, INSPECTOR | {"client_name": f"{number}"}).json()["client_id"]
        for number in range(4)
    ]
    ClientProfile.objects.update(created=timezone.now() - timedelta(days=2))
    ready, errors = threading.Barrier(5), []

    def in_thread(work):
        ready.wait()
        try:
            work()
        except Exception as error:
            errors.append(error)
        finally:
            connections.close_all()

    def grant(client_id):
        with suppress(Application.DoesNotExist):
            granted(client_id, alice)

    def reap():
        registration_limits.delete_unused(registration_limits.unused_cutoff())

    works = [lambda one=one: grant(one) for one in ids] + [reap]
    threads = [threading.Thread(target=in_thread, args=[work]) for work in works]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert all("foreign key" in str(error).lower() for error in errors)
    left = set(Application.objects.values_list("client_id", flat=True))
    assert left == set(Grant.objects.values_list("application__client_id", flat=True))
    assert left == set(ClientProfile.objects.values_list("client_id", flat=True))


MACHINE = {
    "client_type": "confidential", "authorization_grant_type": "client-credentials",
    "client_secret": "s3cret",
}  # fmt: skip
GRANT_TYPES = ["authorization_code", "refresh_token", "client_credentials"]
UNKNOWN_CLIENT = [(400, "invalid_grant"), (401, "invalid_client")]


def authorize_and_redeem(client, person):
    """Return the status of the consent, and that of the token request with the code."""
    (redirect_uri,) = client.redirect_uris.split()
    page = f"/oauth/authorize?{flows.query(client, redirect_uri=redirect_uri)}"
    agreed = flows.browser(person).post(page, {"allow": "true"})
    if agreed.status_code != 302:
        return agreed.status_code, None
    code = flows.answer(agreed)["code"]
    return 302, flows.redeem(code, client, redirect_uri=redirect_uri).status_code


def test_consent_during_deletion_of_the_client_is_no_server_error(shared_db, web):
    """T10: the client is authorized as a whole, or it is unknown."""
    alice = get_user_model().objects.create_user("alice")
    for number in range(3):
        bodies = (INSPECTOR | {"client_name": f"{number} {one}"} for one in range(4))
        ids = [register(web, body).json()["client_id"] for body in bodies]
        clients = [Application.objects.get(client_id=one) for one in ids]
        old = timezone.now() - timedelta(days=2)
        ClientProfile.objects.filter(client_id__in=ids).update(created=old)
        works = [lambda one=one: authorize_and_redeem(one, alice) for one in clients]
        works.append(lambda: registration_limits.delete_unused(registration_limits.unused_cutoff()))
        new = INSPECTOR | {"client_name": f"{number} new"}  # a registration deletes clients too
        works.append(lambda new=new: register(Client(), new).status_code)
        told = flows.at_once(len(works), lambda index, works=works: (index, works[index]()))
        said = {ids[index]: answer for index, answer in told if index < len(ids)}
        assert set(said.values()) <= {(302, 200), (400, None)}
        assert dict(told)[len(works) - 1] == 201
        left = {client_id for client_id, answer in said.items() if answer[0] == 302}
        for rows in (Application.objects, ClientProfile.objects):
            known = rows.filter(client_id__in=ids).values_list("client_id", flat=True)
            assert set(known) == left
        held = AccessToken.objects.filter(application__client_id__in=ids)
        assert set(held.values_list("application__client_id", flat=True)) == left


def test_client_deleted_during_the_request_is_an_error_page(web, alice, monkeypatch):
    """T10: between the first and the second read of its row."""
    id = register(web, INSPECTOR).json()["client_id"]
    client, look = Application.objects.get(client_id=id), authorization_request._run_validation

    def meanwhile(*args):
        found = look(*args)
        assert registration_limits.delete_if_stale([id]) == [id]
        return found

    monkeypatch.setattr(authorization_request, "_run_validation", meanwhile)
    assert authorize_and_redeem(client, alice) == (400, None)


@pytest.mark.parametrize("grant_type", GRANT_TYPES)
def test_client_deleted_during_the_token_request_gets_no_token(shared_db, monkeypatch, grant_type):
    """T10: deleted by another request, after it was authenticated."""
    alice, save = get_user_model().objects.create_user("alice"), CodeRedemption.save_bearer_token
    is_machine = grant_type == "client_credentials"
    client = flows.registered("manual", **(MACHINE | {"user": alice} if is_machine else {}))
    secret = {"client_secret": "s3cret"} if is_machine else {}
    if grant_type == "authorization_code":
        secret = {"code": flows.code_for(alice, client), "code_verifier": VERIFIER}
    elif grant_type == "refresh_token":
        secret = {"refresh_token": flows.issued(alice, client)["refresh_token"]}

    def meanwhile(self, *args, **kwargs):
        Application.objects.get().delete()
        return save(self, *args, **kwargs)

    monkeypatch.setattr(CodeRedemption, "save_bearer_token", meanwhile)
    told = flows.token(grant_type=grant_type, client_id=client.client_id, **secret)
    assert flows.error(told) in UNKNOWN_CLIENT and not AccessToken.objects.exists()


# T11: redirect URIs.

BAD_REDIRECT_URIS = [
    "javascript:alert(1)", "javascript://x/%0aalert(1)", "JavaScript://x/", "data:text/html,x",
    "file:///etc/passwd", "vbscript:x", "about:blank", "blob:https://x/y", "intent://x/#y",
    "http://evil.example/cb", "http://0.0.0.0/cb", "https://0.0.0.0/cb", "https://0/cb",
    "https://0x0/cb", "https://[::]/cb", "https://[::ffff:0.0.0.0]/", "http://0/",
    "http://127.1/cb", "http://2130706433/", "http://localhost.evil.example/",
    "http://localhost@evil.example/", "http://127.0.0.1.evil.example/", "http://[::1].evil/",
    "https://user@host.example/", "https://user:pw@host.example/", "https://@host.example/",
    "https://host.example/#", "https://host.example/#frag", "https://*.example.com/",
    "https://*/", "https://host.example/*", "https://a.example/ https://b.example/",
    "https://a.example/\thttps://b.example/", "https://a.example/\n", "\thttps://a.example/",
    "https://a.example/\0", "https://a.example\\@evil.example/", "https://a.example/\u202e",
    "https://ex\u0430mple.com/", "https:///cb", "https:/cb", "https:cb", "//host.example/cb",
    "/cb", "cb", "", "https://", "https://host.example:99999/", "https://host.example:x/",
    "https://host.example:/", "https://[::1/", "https://-a.example/", "https://a..example/",
    "https://a.example/%", "https://a.example/%0", "https://a.example/<script>", "cursor:opaque",
    "cursor:///x", "cursor://", "cursor://user@x/", "vscode://x/", "https://a.example/" + "a" * 512,
    None, 7, ["https://a.example/"], {"a": 1}, True,
]  # fmt: skip
GOOD_REDIRECT_URIS = [
    "https://host.example/cb", "https://host.example", "https://host.example:8443/cb?a=b&c=%20",
    "HTTPS://host.example/cb", "http://localhost/", "http://localhost:8787/callback",
    "http://127.0.0.1/", "http://127.0.0.1:33418/", "http://[::1]:7777/cb", "https://xn--e1a.com/",
    "https://192.0.2.1/cb", "https://[2001:db8::1]/cb", "cursor://anysphere.cursor-mcp/oauth/cb",
    "cursor:/oauth/cb", "https://host.example/@me/cb;v=1",
]  # fmt: skip


@pytest.mark.parametrize("uri", BAD_REDIRECT_URIS, ids=repr)
def test_registration_with_a_bad_redirect_uri_is_rejected(web, uri):
    """T11: one bad URI rejects the registration, and nothing is stored."""
    response = register(web, INSPECTOR | {"redirect_uris": ["https://fine.example/", uri]})
    assert response.status_code == 400 and response.json()["error"] == "invalid_redirect_uri"
    assert not Application.objects.exists()


@pytest.mark.parametrize("uri", GOOD_REDIRECT_URIS)
def test_registration_with_a_good_redirect_uri_is_accepted(web, uri):
    """T11: only bad URIs are rejected."""
    response = register(web, INSPECTOR | {"redirect_uris": [uri]})
    assert response.status_code == 201 and response.json()["redirect_uris"] == [uri]
    Application.objects.get().full_clean()


def test_custom_scheme_must_be_in_both_settings():
    """T11: a scheme that django-oauth-toolkit allows to other APIs is not allowed here."""
    with toolkit(ALLOWED_REDIRECT_URI_SCHEMES=["https", "http", "cursor", "app"]):
        assert client_metadata.redirect_uri_problem(
            "app:/x"
        ) and not client_metadata.redirect_uri_problem("cursor:/x")
    with given(REDIRECT_SCHEMES=["app"]):
        assert client_metadata.redirect_uri_problem(
            "app:/x"
        ) and client_metadata.redirect_uri_problem("cursor:/x")


def test_script_schemes_are_rejected_whatever_the_settings_say():
    """T11: a scheme that browsers execute."""
    with (
        given(REDIRECT_SCHEMES=["javascript", "data", "http", "App"]),
        toolkit(ALLOWED_REDIRECT_URI_SCHEMES=["https", "http", "javascript", "data", "app"]),
    ):
        assert client_metadata.redirect_uri_problem(
            "javascript://x/"
        ) and client_metadata.redirect_uri_problem("data:/x")
        assert client_metadata.redirect_uri_problem(
            "http://evil.example/"
        ) and not client_metadata.redirect_uri_problem("app:/x")


TEXTS = (
    st.text(max_size=40)
    | st.from_regex(r"https?://[ -~]{0,30}", fullmatch=True)
    | st.from_regex(r"(https|cursor)://a\.example/[\x00-\xff]{0,9}", fullmatch=True)
)


@pytest.mark.slow
@example(TEXTS)
def test_accepted_redirect_uri_is_a_single_printable_uri(text):
    """T11: no accepted text could be read as two URIs, or has characters that no URI has."""
    if not client_metadata.redirect_uri_problem(text):
        assert text.isascii() and text.isprintable() and not set(text) & set(' #*\\<>"')
        assert text.split(":")[0].lower() in ("https", "http", "cursor")


@pytest.mark.parametrize(
    "uris", [[], ["https://a.example/"] * 11, "https://a.example/", {}, None, [None]], ids=repr
)
def test_redirect_uris_must_be_a_list_of_at_most_ten(web, uris):
    """T11: at most ten, and a list."""
    assert register(web, INSPECTOR | {"redirect_uris": uris}).status_code == 400
    assert not Application.objects.exists()


def test_large_registration_is_rejected(web):
    """T11: 5000 URIs, 2 MB: rejected by size, whatever the length header says."""
    many = INSPECTOR | {"redirect_uris": [f"https://a.example/{n}" for n in range(5000)]}
    assert register(web, many).status_code == 413
    big = json.dumps(INSPECTOR | {"client_name": "x" * 2_000_000})
    assert register(web, big).status_code == 413
    padded = json.dumps(INSPECTOR) + " " * 16_384
    assert register(web, padded).status_code == 400
    assert not Application.objects.exists()


# T12: names.

NAMES = {
    "Google": "Google",
    "<b>Google</b>": "<b>Google</b>",
    "a\u202eelgooG": "aelgooG",
    "a\u2066b\u2069\u200e\u200b\ufeffc": "abc",
    "a\x00b\x1b[31mc\x7f": "ab[31mc",
    "  many\n\n\tlines \u2028 here ": "many lines here",
    "x" * 300: "x" * 100,
    "\ud800alone": "alone",
    "\u202e": "",
    "e\u0301": "é",
}


@pytest.mark.parametrize(("name", "kept"), NAMES.items(), ids=map(ascii, NAMES))
def test_client_name_is_stored_as_one_short_printable_line(web, name, kept):
    """T12: direction marks and invisible characters are removed before the name is stored."""
    response = register(web, INSPECTOR | {"client_name": name})
    assert response.status_code == 201
    assert response.json().get("client_name", "") == kept
    assert Application.objects.get().name == ClientProfile.objects.get().name == kept


@pytest.mark.parametrize(
    "uri", ["javascript:alert(1)", "http://evil.example/", "https://a@b.example/", "data:,x", 7]
)
def test_unsafe_links_of_a_client_are_not_stored(web, uri):
    """T12: a page or a logo whose URL is executed, or hides its host."""
    register(web, INSPECTOR | {"client_uri": uri, "logo_uri": uri})
    profile = ClientProfile.objects.get()
    assert (profile.client_uri, profile.logo_uri) == ("", "")


def test_document_url_must_have_an_ascii_host(internet):
    """T12: the host is shown as it is looked up, so only ASCII is accepted."""
    for url in ("https://\u0441laude.ai/x.json", "https://claude.ai\u3002evil/x", "https://a b/x"):
        with pytest.raises(CIMDError):
            split_client_id(url)
    assert split_client_id("https://xn--laude-2of.ai/x.json").hostname == "xn--laude-2of.ai"


# T13 and T18: grants and owners of registered clients.


@pytest.mark.parametrize(
    "grant",
    ["client_credentials", "password", "implicit", "urn:ietf:params:oauth:grant-type:device_code"],
)
def test_registered_client_gets_only_the_code_grant(web, grant):
    """T13: no grant without a user, neither instead of the code nor in addition."""
    assert register(web, INSPECTOR | {"grant_types": [grant]}).status_code == 400
    secret = {"token_endpoint_auth_method": "client_secret_post"}
    both = INSPECTOR | secret | {"grant_types": ["authorization_code", grant]}
    found = register(web, both).json()
    assert grant not in found["grant_types"]
    if grant.startswith("urn:"):
        return  # there is no device authorization endpoint
    sent = {
        "grant_type": grant, "client_id": found["client_id"], "scope": "mcp", "username": "a",
        "client_secret": found["client_secret"], "password": "b",
    }  # fmt: skip
    assert web.post("/oauth/token", sent).status_code in (400, 401)
    assert not AccessToken.objects.exists()


def test_registration_cannot_be_read_or_changed(web):
    """T13: no token or URL for it (RFC 7592), and no other method."""
    found = register(web, INSPECTOR).json()
    assert not {"registration_access_token", "registration_client_uri"} & set(found)
    assert not AccessToken.objects.exists()
    for verb in (web.get, web.put, web.delete, web.patch):
        assert verb("/oauth/register").status_code == 405
        assert verb(f"/oauth/register/{found['client_id']}").status_code == 404


def test_registration_with_a_session_cookie_has_no_owner(web, alice):
    """T18: the client does not belong to the user who is signed in."""
    web.force_login(alice)
    strict = Client(enforce_csrf_checks=True, **web.defaults)
    strict.cookies = web.cookies
    assert register(strict, INSPECTOR).status_code == 201
    assert Application.objects.get().user is None


# T14: documents.


def token_status(web, client_id: str) -> int:
    """Return the status of a token request: 400 (invalid code) for a client that is known."""
    sent = {"grant_type": "authorization_code", "code": "x", "client_id": client_id}
    return web.post("/oauth/token", sent).status_code


@pytest.mark.parametrize("client_id", DOCUMENTS)
def test_documents_of_real_clients_are_accepted(internet, web, alice, client_id):
    """T14: only bad documents are rejected."""
    web.force_login(alice)
    document = DOCUMENTS[client_id]
    uris = [uri.replace("localhost/", "localhost:4711/") for uri in document["redirect_uris"]]
    for uri in uris:
        response = authorize(web, client_id, uri)
        assert response.status_code == 200 and document["client_name"] in response.text
    assert internet.asked == [client_id]
    profile = ClientProfile.objects.get(client_id=client_id)
    assert profile.auth_method == document["token_endpoint_auth_method"]
    assert profile.source == "cimd" and profile.fetched and profile.digest


INTERNAL_ADDRESSES = [
    "127.0.0.1", "127.8.8.8", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254",
    "100.64.0.1", "0.0.0.0", "224.0.0.1", "255.255.255.255", "::1", "fe80::1", "fc00::1", "::",
    "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::",
    "2001:0:4136:e378:8000:63bf:f5ff:fffe", "64:ff9b:1::a9fe:a9fe", "::10.0.0.1",
    "::ffff:0:10.0.0.1", "fec0::1", "5f00::1", "192.0.0.1", "192.0.0.9", "192.0.0.10",
    "192.0.0.171", "192.88.99.1", "3fff::1", "3fff:fff::1", "2001:1::1", "2001:30::1",
    "::ffff:192.0.0.9", "64:ff9b::c000:9", "2002:a00:1::", "2002:808:808::1", "::ffff:a9fe:a9fe",
    "64:ff9b:1::808:808", "2001:0:808:808:0:ffff:f7f7:f7f7", "2001:10::1", "2001:20::1",
    "::8.8.8.8", "::ffff:0:8.8.8.8", "100::1", "100:0:0:1::1", "5f00:ffff::1", "2001:db8::1",
]  # fmt: skip


@pytest.mark.parametrize("address", INTERNAL_ADDRESSES)
def test_document_at_an_internal_address_is_not_fetched(internet, web, address):
    """T14: nor if only one of the addresses of the host is internal."""
    for found in ([address], [PUBLIC_ADDRESS, address]):
        cache.clear()
        internet.names["app.example"] = found
        assert token_status(web, EVIL) == 401
    assert Fetcher.lines == [] and not Application.objects.exists()


@pytest.mark.parametrize(
    "url",
    ["https://2130706433/x", "https://0x7f.1/x", "https://0177.0.0.1/x", "https://127.1/x",
     "https://[::1]/x", "https://[::ffff:7f00:1]/x", "https://localhost/x"],
)  # fmt: skip
def test_internal_address_in_another_notation_is_not_fetched(monkeypatch, web, url):
    """T14: as the resolver of the machine reads it."""
    monkeypatch.setattr(Fetcher, "lines", [])
    assert token_status(web, url) == 401
    assert Fetcher.lines == []


ODD_URLS = [
    "https://app.example:25/x", "https://app.example:8443/x", "https://app.example:0/x",
    "https://app.example:99999/x", "https://app.example", "https://u@app.example/x",
    "https://u:p@app.example/x", "https://app.example/x#f", "https://app.example/a/../x",
    "https://app.example/./x", "https://app.example/%2e%2e/x", "https://[::1/x", "https://[/x",
    "https://app.example/" + "x" * 255, "https://app.example/x y", "https://app.example/x\r\nA: b",
    "https:///x", "https://./x", "https://..example/x", "https://" + "a" * 64 + ".example/x",
    "https://app.example/\u00e9", "https://app.example\\@evil.example/x",
]  # fmt: skip


@pytest.mark.parametrize("url", ODD_URLS, ids=ascii)
def test_unusual_document_url_is_an_unknown_client(internet, web, url):
    """T14: other ports, credentials, dot segments: rejected, and never a 500."""
    assert token_status(web, url) == 401
    assert Fetcher.lines == [] and internet.asked == []


def test_host_of_a_document_is_looked_up_once(internet, web):
    """T14: the connection goes to the checked address, whatever a second look-up would return."""
    internet.documents[EVIL] = DOCUMENTS[CLAUDE_AI] | {"client_id": EVIL}
    internet.names["app.example"] = [PUBLIC_ADDRESS]
    assert token_status(web, EVIL) == 400
    assert internet.lookups == ["app.example"] and Fetcher.lines == [(PUBLIC_ADDRESS, 443)]


def raw_response(*parts: bytes, pause: float = 0.0):
    """Return a function that sends these bytes."""

    def answer(line):
        for part in parts:
            line.sendall(part)
            time.sleep(pause)

    return answer


def slow_headers(line) -> None:
    """Send one byte of a header now and then, for longer than the client should wait."""
    line.sendall(b"HTTP/1.1 200 OK\r\nA: ")
    send_slowly(line, b"b")


def slow_body(line) -> None:
    line.sendall(OK + b"\r\n")
    send_slowly(line, b" ")


def send_slowly(line, byte: bytes) -> None:
    for _ in range(100):
        line.sendall(byte)
        time.sleep(0.05)


def no_response(line) -> None:
    with suppress(OSError):
        line.recv(1)


ENDLESS = (slow_headers, slow_body, no_response)
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
TYPE = b"Content-Type: application/json\r\n\r\n"
VALID_DOCUMENT = {
    "client_id": EVIL,
    "client_name": "Evil",
    "redirect_uris": ["https://app.example/cb"],
}
BODY = json.dumps(VALID_DOCUMENT).encode()
REDIRECT_RESPONSE = b"HTTP/1.1 302 Found\r\nLocation: https://claude.ai/x\r\n" + TYPE
REFUSED = {
    "a redirect": raw_response(REDIRECT_RESPONSE + BODY),
    "a redirect inside": raw_response(
        b"HTTP/1.1 307 X\r\nLocation: https://127.0.0.1/x\r\n" + TYPE + BODY
    ),
    "17 KB": VALID_DOCUMENT | {"x": "x" * 17_000},
    "more than 5 KB": VALID_DOCUMENT | {"x": "x" * 5_200},
    "a packed body": raw_response(OK + b"Content-Encoding: gzip\r\n\r\n\x1f\x8b"),
    "slow headers": slow_headers,
    "a slow body": slow_body,
    "no answer": no_response,
    "no HTTP": raw_response(b"220 mail.example ESMTP\r\n"),
    "no body": raw_response(OK + b"Content-Length: 100\r\n\r\n{"),
    "no JSON": b"hello",
    "a list": b"[]",
    "deep JSON": b"[" * 5_000,
    "HTML": raw_response(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + BODY),
    "an error": raw_response(b"HTTP/1.1 500 X\r\n" + TYPE + BODY),
    "another client": VALID_DOCUMENT | {"client_id": CLAUDE_AI},
    "nearly its id": VALID_DOCUMENT | {"client_id": EVIL + "/"},
    "no id": {"client_name": "Evil"},
    "no name": {name: value for name, value in VALID_DOCUMENT.items() if name != "client_name"},
    "an empty name": VALID_DOCUMENT | {"client_name": "\u202e \u200b"},
    "a secret": VALID_DOCUMENT | {"client_secret": None},
    "a secret method": VALID_DOCUMENT | {"token_endpoint_auth_method": "client_secret_post"},
    "a key, but none": VALID_DOCUMENT | {"token_endpoint_auth_method": "private_key_jwt"},
    "no code": VALID_DOCUMENT | {"grant_types": ["client_credentials"]},
    "no redirects": VALID_DOCUMENT | {"redirect_uris": []},
    "no good redirects": VALID_DOCUMENT
    | {"redirect_uris": ["http://evil.example/", "javascript:x"]},
    "odd redirects": VALID_DOCUMENT | {"redirect_uris": [7]},
}


@pytest.mark.parametrize("document", REFUSED.values(), ids=list(REFUSED))
def test_invalid_document_is_an_unknown_client(internet, web, document):
    """T14: the fetch ends whatever the server does, and the failure is remembered for a while."""
    internet.documents[EVIL] = document
    with toolkit(CIMD_FETCH_TIMEOUT_SECONDS=1 if document in ENDLESS else 5):
        assert token_status(web, EVIL) == 401
        assert token_status(web, EVIL) == 401
    assert internet.asked == [EVIL]
    assert not Application.objects.exists() and not ClientProfile.objects.exists()


@pytest.mark.slow
@pytest.mark.parametrize("slow", ENDLESS)
def test_slow_document_times_out(internet, web, slow):
    """T14: five seconds for the whole fetch, however slowly it arrives; here it is one."""
    with toolkit():
        assert oauth2_settings.CIMD_FETCH_TIMEOUT_SECONDS == 5
    internet.documents[EVIL] = slow
    with toolkit(CIMD_FETCH_TIMEOUT_SECONDS=1), within(3):
        assert token_status(web, EVIL) == 401


@contextmanager
def within(seconds: float):
    began = time.monotonic()
    yield
    assert time.monotonic() - began < seconds


def test_valid_document_of_the_same_host_is_accepted(internet, web):
    """T14: the documents above are rejected for their own defects."""
    internet.documents[EVIL] = VALID_DOCUMENT
    assert token_status(web, EVIL) == 400 and Application.objects.get().client_id == EVIL


def test_certificate_of_another_host_is_rejected(internet, web):
    """T14: the address is pinned, and the certificate must still be that of the host."""
    url = "https://other.example/x"
    internet.documents[url] = VALID_DOCUMENT | {"client_id": url}
    assert token_status(web, url) == 401 and internet.asked == []


def test_bad_redirect_uris_of_a_document_are_ignored(internet, web, alice):
    """T14: the others are accepted, and nothing redirects to the ignored ones."""
    bad = ["http://evil.example/", "javascript:alert(1)", "https://a.example/ https://b.example/"]
    internet.documents[EVIL] = VALID_DOCUMENT | {"redirect_uris": [*bad, "https://app.example/cb"]}
    web.force_login(alice)
    assert authorize(web, EVIL, "https://app.example/cb").status_code == 200
    for uri in [*bad, "https://b.example/"]:
        assert authorize(web, EVIL, uri).status_code == 400
    assert Application.objects.get().redirect_uris == "https://app.example/cb"


def test_client_hosts_setting_limits_the_hosts_of_documents(internet, web):
    """T14: an allow list like ALLOWED_HOSTS; clients of a removed host become unknown."""
    with given(CLIENT_HOSTS=["claude.ai", ".vscode.dev"]):
        assert (
            token_status(web, CLAUDE_AI),
            token_status(web, VS_CODE),
            token_status(web, CHATGPT),
        ) == (400, 400, 401)
    with given(CLIENT_HOSTS=["vscode.dev"]):
        assert (token_status(web, CLAUDE_AI), token_status(web, VS_CODE)) == (401, 400)
    with given(CLIENT_HOSTS=[]):
        assert token_status(web, VS_CODE) == 401
    assert internet.asked == [CLAUDE_AI, VS_CODE]


def test_fetches_of_unknown_documents_are_rate_limited(internet, web):
    """T14: failed fetches count, too."""
    with given(REGISTRATION_RATE="3/3600"):
        for number in range(6):
            token_status(web, f"https://app.example/{number}")
        assert len(internet.asked) == 3
        assert token_status(web, CLAUDE_AI) == 401


def test_rate_limit_of_fetches_has_its_own_timeout_in_every_cache(internet, web, tmp_path):
    """T14: file and database caches reset the timeout of a key when it is incremented."""
    files = {"BACKEND": "django.core.cache.backends.filebased.FileBasedCache",
             "LOCATION": str(tmp_path), "TIMEOUT": 0}  # fmt: skip
    with given(REGISTRATION_RATE="3/3600"), override_settings(CACHES={"default": files}):
        for number in range(6):
            token_status(web, f"https://app.example/{number}")
        assert len(internet.asked) == 3


def test_blocked_client_with_a_document_stays_unknown(internet, web, alice):
    """T14: also if its row is old or deleted, and at every endpoint."""
    token_status(web, CLAUDE_AI)
    ClientProfile.objects.update(blocked=timezone.now())
    web.force_login(alice)
    assert (
        token_status(web, CLAUDE_AI) == 401
        and authorize(web, CLAUDE_AI, CALLBACK).status_code == 400
    )
    Application.objects.all().delete()
    assert token_status(web, CLAUDE_AI) == 401 and internet.asked == [CLAUDE_AI]


def test_document_does_not_take_over_a_manual_client(internet, web):
    """T14: the id of a manual client may look like a URL."""
    ClientProfile.objects.create(client_id=CLAUDE_AI, source="manual", name="Mine")
    assert token_status(web, CLAUDE_AI) == 401
    assert ClientProfile.objects.get().name == "Mine"


@pytest.mark.parametrize("stored", ["the client", "its application", "its profile"])
def test_document_does_not_take_over_a_client_with_the_same_id_in_other_case(
    internet, web, alice, stored
):
    """T14: a collation that ignores case finds the rows of the other client."""
    token_status(web, CLAUDE_AI)
    make_connection(alice)
    if stored == "its application":
        ClientProfile.objects.all().delete()
    if stored == "its profile":
        Application.objects.all().delete()
    before = {
        model: list(model.objects.values()) for model in (Application, ClientProfile, Consent)
    }
    other = CLAUDE_AI.replace("oauth", "OAuth")
    internet.documents[other] = DOCUMENTS[CLAUDE_AI] | {
        "client_id": other, "client_name": "Evil", "redirect_uris": ["https://evil.example/cb"],
    }  # fmt: skip
    token_status(web, other)
    for model, rows in before.items():
        assert list(model.objects.filter(pk__in=[row["id"] for row in rows]).values()) == rows


# T15: documents that change.


def make_connection(user, client_id: str = CLAUDE_AI) -> None:
    """Give the client the user's consent, a code and a pair of tokens."""
    application = Application.objects.get(client_id=client_id)
    Consent.objects.create(
        user=user, client_id=client_id, resource=f"{URL}/mcp", redirect_host="claude.ai"
    )
    then = timezone.now() + timedelta(hours=1)
    access = AccessToken.objects.create(
        user=user, application=application, token="a", expires=then, scope="mcp"
    )
    RefreshToken.objects.create(
        user=user, application=application, token="r", access_token=access,
        token_family=uuid.uuid4(),
    )  # fmt: skip
    granted(client_id, user)


def expire_documents() -> None:
    """Make all fetched documents due for a new fetch."""
    Application.objects.update(cimd_expires_at=timezone.now() - timedelta(seconds=1))
    cache.clear()


def valid_consent_and_tokens() -> tuple[bool, bool]:
    """Return whether the consent is valid, and whether the tokens are."""
    tokens = {
        RefreshToken.objects.filter(revoked=None).exists(),
        AccessToken.objects.exists(),
        Grant.objects.exists(),
    }
    assert len(tokens) == 1
    return Consent.objects.filter(revoked=None).exists(), tokens.pop()


KEYS = {"token_endpoint_auth_method": "private_key_jwt", "jwks_uri": JWKS}
CHANGES = {
    "nothing": ({}, (True, True)),
    "what we do not read": ({"tos_uri": "https://claude.ai/tos"}, (True, True)),
    "the order of redirects": (
        {"redirect_uris": DOCUMENTS[CLAUDE_AI]["redirect_uris"][::-1]}, (True, True)
    ),
    "its name": ({"client_name": "Shop support"}, (False, True)),
    "a redirect more": (
        {"redirect_uris": [*DOCUMENTS[CLAUDE_AI]["redirect_uris"], "https://claude.ai/new"]},
        (False, False),
    ),
    "a redirect less": ({"redirect_uris": [CALLBACK]}, (False, False)),
    "its keys": (KEYS, (False, False)),
}  # fmt: skip


@pytest.mark.parametrize(("change", "expected"), CHANGES.values(), ids=list(CHANGES))
def test_changed_document_revokes_consent_or_tokens(internet, web, alice, change, expected):
    """T15: another name ends the consent; other redirect URIs or keys end the tokens, too."""
    token_status(web, CLAUDE_AI)
    make_connection(alice)
    internet.documents[CLAUDE_AI] |= change
    expire_documents()
    token_status(web, CLAUDE_AI)
    assert internet.asked == [CLAUDE_AI] * 2 and valid_consent_and_tokens() == expected


def test_changed_keys_revoke_consent_and_tokens(internet, web, alice):
    """T15: whoever took over the document has other keys."""
    token_status(web, CHATGPT)
    ClientProfile.objects.filter(client_id=CHATGPT).update(jwks_uri="https://chatgpt.com/old.json")
    ClientProfile.objects.filter(client_id=CHATGPT).update(digest="of that")
    make_connection(alice, CHATGPT)
    expire_documents()
    token_status(web, CHATGPT)
    assert valid_consent_and_tokens() == (False, False)


def test_changed_document_keeps_tokens_of_other_clients(internet, web, alice):
    """T15: only the one client loses its tokens."""
    token_status(web, CLAUDE_AI), token_status(web, VS_CODE)
    make_connection(alice, VS_CODE)
    internet.documents[CLAUDE_AI]["redirect_uris"] = ["https://claude.ai/new"]
    expire_documents()
    token_status(web, CLAUDE_AI)
    assert valid_consent_and_tokens() == (True, True)


def test_missing_document_stays_valid_for_a_week(internet, web):
    """T15: then the client is unknown until the document exists again."""
    token_status(web, CLAUDE_AI)
    kept = internet.documents.pop(CLAUDE_AI)
    expire_documents()
    assert token_status(web, CLAUDE_AI) == 400
    ClientProfile.objects.update(fetched=timezone.now() - timedelta(days=7, seconds=1))
    assert token_status(web, CLAUDE_AI) == 401
    internet.documents[CLAUDE_AI] = kept
    cache.clear()
    assert token_status(web, CLAUDE_AI) == 400


def test_stale_setting_limits_the_age_of_a_document(internet, web):
    """T15: whatever its headers say."""
    internet.headers["Cache-Control"] = "max-age=86400"
    with given(STALE=3600):
        token_status(web, CLAUDE_AI)
    limit = timezone.now() + timedelta(seconds=3601)
    assert Application.objects.get().cimd_expires_at < limit


@pytest.mark.parametrize(
    ("said", "kept"),
    [("max-age=600", 600), ("max-age=1", 300), ("no-store", 300), ("max-age=9999999", 86400)],
)
def test_document_is_cached_as_its_headers_say_within_limits(internet, web, said, kept):
    """T15: five minutes at least, so that nobody can cause many fetches, and a day at most."""
    internet.headers["Cache-Control"] = said
    token_status(web, CLAUDE_AI)
    left = Application.objects.get().cimd_expires_at - timezone.now()
    assert kept - 60 < left.total_seconds() <= kept
    token_status(web, CLAUDE_AI)
    assert internet.asked == [CLAUDE_AI]


def test_client_without_a_profile_is_fetched_again(internet, web):
    """T15: only the profile has the authentication method: it must not become public."""
    token_status(web, CHATGPT)
    ClientProfile.objects.all().delete()
    assert token_status(web, CHATGPT) == 401
    assert ClientProfile.objects.get().auth_method == "private_key_jwt"
    ClientProfile.objects.all().delete()
    del internet.documents[CHATGPT]
    cache.clear()
    assert token_status(web, CHATGPT) == 401


def test_code_is_sent_only_to_the_redirect_uri_that_was_shown(internet, web, alice):
    """T15: the only redirect URI of the document changes before the user allows."""
    internet.documents[EVIL] = VALID_DOCUMENT
    asked = {
        "client_id": EVIL, "response_type": "code", "code_challenge": CHALLENGE,
        "code_challenge_method": "S256",
    }  # fmt: skip
    web.force_login(alice)
    address = "/oauth/authorize?" + urlencode(asked)
    page = web.get(address)
    internet.documents[EVIL] = VALID_DOCUMENT | {"redirect_uris": ["https://evil.app.example/cb"]}
    Application.objects.update(cimd_expires_at=timezone.now())
    response = web.post(address, {"allow": "true"})
    assert "evil.app.example" not in response.get("Location", "")
    assert page.status_code == 400 and not Grant.objects.exists()


# private_key_jwt.

BEARER = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


@pytest.fixture(scope="module")
def rsa():
    return jwk.JWK.generate(kty="RSA", size=2048, kid="one")


@pytest.fixture
def chatgpt(internet, web, rsa):
    """ChatGPT's client, known with its key."""
    internet.documents[JWKS] = keys(rsa)
    token_status(web, CHATGPT)
    internet.asked.clear()
    return Application.objects.get(client_id=CHATGPT)


def redeem(web, user, text: str | None, kind: str = BEARER, **over) -> int:
    """The status of a request for a token that would be fine but for the assertion."""
    sent = granted(CHATGPT, user) | {"client_id": CHATGPT} | over
    if text is not None:
        sent |= {"client_assertion": text, "client_assertion_type": kind}
    response = web.post("/oauth/token", {name: value for name, value in sent.items() if value})
    if response.status_code != 200:
        assert response.json() == {"error": "invalid_client"} or response.status_code == 400
        assert text is None or text not in response.text
    return response.status_code


def test_chatgpt_gets_a_token_by_its_key(web, chatgpt, alice, rsa, internet):
    """private_key_jwt: the audience is the issuer or the token endpoint; client_id is optional."""
    for audience in (URL, f"{URL}/oauth/token", f"{URL}/token", [URL]):
        assert redeem(web, alice, assertion(rsa, aud=audience)) == 200
    assert redeem(web, alice, assertion(rsa), client_id="") == 200
    assert redeem(web, alice, assertion(rsa, iat=None)) == 200
    assert internet.asked == [JWKS]


def test_token_endpoint_with_script_name_is_an_audience(web, chatgpt, alice, rsa):
    """private_key_jwt: the URL without the script name belongs to another application."""
    with override_settings(FORCE_SCRIPT_NAME="/site"):
        named = authorization_server_metadata()["token_endpoint"]
        assert named == f"{URL}/site/oauth/token"
        assert redeem(web, alice, assertion(rsa, aud=named)) == 200
        assert redeem(web, alice, assertion(rsa, aud=f"{URL}/oauth/token")) == 401


def test_client_refreshes_and_revokes_by_its_key(web, chatgpt, alice, rsa):
    """private_key_jwt: at every endpoint where a client authenticates."""
    sent = granted(CHATGPT, alice) | {"client_assertion_type": BEARER}
    found = web.post("/oauth/token", sent | {"client_assertion": assertion(rsa)}).json()
    refresh = {"grant_type": "refresh_token", "refresh_token": found["refresh_token"]}
    assert web.post("/oauth/token", refresh | {"client_id": CHATGPT}).status_code == 401
    sent = refresh | {"client_assertion_type": BEARER, "client_assertion": assertion(rsa)}
    found = web.post("/oauth/token", sent).json()
    revoke = {"token": found["refresh_token"], "client_id": CHATGPT}
    assert web.post("/oauth/revoke", revoke).status_code == 401
    sent = revoke | {"client_assertion_type": BEARER, "client_assertion": assertion(rsa)}
    assert web.post("/oauth/revoke", sent).status_code == 200


ELLIPTIC = {"ES256": ("EC", "P-256"), "EdDSA": ("OKP", "Ed25519")}


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", *ELLIPTIC])
def test_supported_algorithms_are_accepted(web, chatgpt, alice, rsa, internet, algorithm):
    """private_key_jwt: four of them."""
    kty, crv = ELLIPTIC.get(algorithm, ("", ""))
    key = jwk.JWK.generate(kty=kty, crv=crv, kid="two") if kty else rsa
    internet.documents[JWKS] = keys(key)
    assert redeem(web, alice, assertion(key, algorithm)) == 200


def test_client_with_a_key_cannot_authenticate_otherwise(web, chatgpt, alice):
    """private_key_jwt: not as a public client, and not by the secret in its row."""
    assert redeem(web, alice, None) == 401
    assert redeem(web, alice, None, client_secret=chatgpt.client_secret) == 401
    plain = CHATGPT.replace(":", "%3A") + ":" + chatgpt.client_secret
    basic = base64.b64encode(plain.encode()).decode()
    assert (
        web.post(
            "/oauth/token", granted(CHATGPT, alice), headers={"Authorization": f"Basic {basic}"}
        ).status_code
        == 401
    )
    assert not AccessToken.objects.exists()


def test_assertion_together_with_a_secret_is_rejected(web, chatgpt, alice, rsa):
    """private_key_jwt: RFC 6749, 2.3."""
    assert redeem(web, alice, assertion(rsa), client_secret="x") == 401
    sent = granted(CHATGPT, alice) | {
        "client_assertion": assertion(rsa), "client_assertion_type": BEARER
    }  # fmt: skip
    response = web.post("/oauth/token", sent, headers={"Authorization": "Basic eDp5"})
    assert response.status_code == 401


def test_public_client_with_an_assertion_is_rejected(web, internet, chatgpt, alice, rsa):
    """private_key_jwt: a client authenticates only by the method that it registered."""
    token_status(web, CLAUDE_AI)
    text = assertion(rsa, iss=CLAUDE_AI, sub=CLAUDE_AI)
    sent = granted(CLAUDE_AI, alice, CALLBACK) | {"client_id": CLAUDE_AI}
    proof = {"client_assertion": text, "client_assertion_type": BEARER}
    assert web.post("/oauth/token", sent | proof).status_code == 401
    assert web.post("/oauth/token", sent).status_code == 200


NOW = time.time
CLAIMS = {
    "another issuer": lambda: {"iss": CLAUDE_AI},
    "another subject": lambda: {"sub": CLAUDE_AI},
    "nobody": lambda: {"iss": None, "sub": None},
    "an odd subject": lambda: {"iss": [CHATGPT], "sub": [CHATGPT]},
    "another server": lambda: {"aud": "https://evil.example"},
    "nobody to read it": lambda: {"aud": None},
    "no list to read it": lambda: {"aud": []},
    "a server named alike": lambda: {"aud": f"{URL}.evil.example"},
    "the MCP server": lambda: {"aud": f"{URL}/mcp"},
    "expired": lambda: {"exp": int(NOW()) - 60},
    "no end": lambda: {"exp": None},
    "an end in words": lambda: {"exp": "never"},
    "an end that is true": lambda: {"exp": True},
    "no end in sight": lambda: {"exp": float("inf")},
    "an end that is no number": lambda: {"exp": float("nan")},
    "good for an hour": lambda: {"exp": int(NOW()) + 3600},
    "not yet good": lambda: {"nbf": int(NOW()) + 120},
    "of the future": lambda: {"iat": int(NOW()) + 120},
    "old": lambda: {"iat": int(NOW()) - 3600},
    "no jti": lambda: {"jti": None},
    "an empty jti": lambda: {"jti": ""},
    "a long jti": lambda: {"jti": "x" * 256},
    "an odd jti": lambda: {"jti": 7},
}


@pytest.mark.parametrize("claims", CLAIMS.values(), ids=list(CLAIMS))
def test_assertion_with_wrong_claims_is_rejected(web, chatgpt, alice, rsa, claims, internet):
    """private_key_jwt: before any keys are fetched."""
    assert redeem(web, alice, assertion(rsa, **claims())) == 401
    assert internet.asked == []


def _parts(text: str) -> list[str]:
    return text.split(".")


def _b64(value) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def unsigned(rsa) -> str:
    return f"{_b64({'alg': 'none'})}.{_parts(assertion(rsa))[1]}."


def unsigned_with_a_signature_part(rsa) -> str:
    return f"{_b64({'alg': 'none'})}.{_parts(assertion(rsa))[1]}.AA"


def signed_with_the_public_key(rsa) -> str:
    """HS256, with the public key as the secret."""
    pem = base64.urlsafe_b64encode(rsa.export_to_pem()).decode().rstrip("=")
    return assertion(jwk.JWK(kty="oct", k=pem, kid="one"), "HS256")


def signed_with_another_key(rsa) -> str:
    return assertion(jwk.JWK.generate(kty="RSA", size=2048, kid="one"))


def signed_with_a_key_in_the_header(rsa) -> str:
    mine = jwk.JWK.generate(kty="RSA", size=2048, kid="one")
    return assertion(mine, header={"jwk": mine.export_public(as_dict=True)})


def signed_with_a_key_at_a_url(rsa) -> str:
    mine = jwk.JWK.generate(kty="RSA", size=2048, kid="one")
    return assertion(mine, header={"jku": "https://app.example/keys"})


def with_other_claims(rsa) -> str:
    (header, _, signature), (_, claims, _) = _parts(assertion(rsa)), _parts(assertion(rsa))
    return f"{header}.{claims}.{signature}"


def signed_with_an_unknown_algorithm(rsa) -> str:
    return assertion(rsa, "RS512")


def in_json_serialization(rsa) -> str:
    header, claims, signature = _parts(assertion(rsa))
    return json.dumps({"protected": header, "payload": claims, "signature": signature})


FORGED = [
    unsigned, unsigned_with_a_signature_part, signed_with_the_public_key, signed_with_another_key,
    with_other_claims,
    signed_with_a_key_in_the_header, signed_with_a_key_at_a_url, signed_with_an_unknown_algorithm,
    in_json_serialization,
    lambda rsa: assertion(rsa, header={"kid": "x" * 300}),
    lambda rsa: assertion(rsa) + "A" * 8192,
    lambda rsa: f"{_b64({'alg': ['RS256']})}.{_parts(assertion(rsa))[1]}.AA",
    lambda rsa: f"{_b64({'alg': 'RS256', 'crit': ['b64'], 'b64': False})}.e30.AA",
    lambda rsa: "e30.e30.e30", lambda rsa: "x", lambda rsa: "..", lambda rsa: "W10.W10.W10",
    lambda rsa: base64.urlsafe_b64encode(b"[" * 5000).decode().rstrip("=") + ".e30.AA",
]  # fmt: skip


@pytest.mark.parametrize("forge", FORGED, ids=lambda forge: forge.__name__)
def test_forged_assertion_is_rejected(web, chatgpt, alice, rsa, forge):
    """private_key_jwt: alg none, HS256 with the public key, keys in the header, other claims."""
    assert redeem(web, alice, forge(rsa)) == 401
    assert not AccessToken.objects.exists()


def test_assertion_of_another_type_or_in_the_url_is_rejected(web, chatgpt, alice, rsa):
    """private_key_jwt: an unknown type, no type, or an assertion in the URL."""
    assert redeem(web, alice, assertion(rsa), kind="urn:x") == 401
    sent = granted(CHATGPT, alice) | {"client_id": CHATGPT}
    assert web.post("/oauth/token", sent | {"client_assertion": assertion(rsa)}).status_code == 401
    query = f"?client_assertion={assertion(rsa)}&client_assertion_type={BEARER}"
    assert web.post(f"/oauth/token{query}", sent).status_code in (400, 401)


def test_replayed_assertion_is_rejected(web, chatgpt, alice, rsa):
    """private_key_jwt: the same assertion, or another with the same jti."""
    text = assertion(rsa, jti="once")
    assert [redeem(web, alice, text) for _ in range(2)] == [200, 401]
    assert redeem(web, alice, assertion(rsa, jti="once")) == 401
    assert redeem(web, alice, assertion(rsa, jti="twice")) == 200


def test_assertion_with_a_wrong_signature_does_not_use_up_its_jti(web, chatgpt, alice, rsa):
    """private_key_jwt: an attacker cannot invalidate the client's assertions."""
    other = jwk.JWK.generate(kty="RSA", size=2048, kid="one")
    assert redeem(web, alice, assertion(other, jti="mine")) == 401
    assert redeem(web, alice, assertion(rsa, jti="mine")) == 200


class CacheWithoutAdd(LocMemCache):
    """A cache that stores keys and no uses of assertions, as one that is full."""

    def add(self, *args: Any, **kwargs: Any) -> bool:
        return True


def test_assertion_is_rejected_if_the_cache_cannot_detect_replays(web, chatgpt, alice, rsa):
    """private_key_jwt: the cache stores keys, but not used assertions."""
    backend = f"{__name__}.{CacheWithoutAdd.__name__}"
    with override_settings(CACHES={"default": {"BACKEND": backend}}):
        assert redeem(web, alice, assertion(rsa)) == 401


def test_request_parameters_cannot_replace_the_profile(web, chatgpt, alice, rsa):
    """private_key_jwt: parameters become attributes of the request, and must not be trusted."""
    assert redeem(web, alice, None, _mcp_profile="x", profile="y", client="z") == 401


# Keys of clients.


def test_unknown_key_id_fetches_the_keys_again_but_not_each_time(
    web, chatgpt, alice, rsa, internet
):
    """T14: unknown key ids cause a fetch only once in a while."""
    assert redeem(web, alice, assertion(rsa)) == 200
    new = jwk.JWK.generate(kty="RSA", size=2048, kid="new")
    for _ in range(3):
        assert redeem(web, alice, assertion(new)) == 401
    internet.documents[JWKS] = keys(rsa, new)
    forget_pauses()
    assert [redeem(web, alice, assertion(new)) for _ in range(2)] == [200, 200]
    assert internet.asked == [JWKS] * 2


def forget_pauses() -> None:
    cache.delete_many([name for name in names_in_cache() if name.endswith(":asked")])


def names_in_cache() -> list[str]:
    return [name.split(":", 2)[2] for name in cache._cache]


def test_known_keys_stay_valid_if_they_cannot_be_fetched(
    web, chatgpt, alice, rsa, internet, age_keys
):
    """private_key_jwt: for a while; and they are not fetched at every request."""
    assert redeem(web, alice, assertion(rsa)) == 200
    del internet.documents[JWKS]
    age_keys(7200)
    forget_pauses()
    assert [redeem(web, alice, assertion(rsa)) for _ in range(2)] == [200, 200]
    assert internet.asked == [JWKS] * 2


@pytest.fixture
def age_keys():
    """Return a function that makes the cached keys older."""

    def older(seconds):
        for name in names_in_cache():
            if name.startswith("django_mcp.oauth.client_authentication") and isinstance(
                kept := cache.get(name), dict
            ):
                cache.set(name, kept | {"until": kept["until"] - seconds}, 3600)

    return older


def test_keys_at_an_internal_address_are_not_fetched(web, chatgpt, alice, rsa, internet):
    """T14: an attacker chooses jwks_uri like any other URL."""
    Fetcher.lines.clear()
    for inner in ("127.0.0.1", "169.254.169.254", "::1"):
        cache.clear()
        internet.names["chatgpt.com"] = [inner]
        assert redeem(web, alice, assertion(rsa)) == 401
    assert Fetcher.lines == []


@pytest.mark.parametrize(
    "uri",
    ["http://chatgpt.com/k", "https://chatgpt.com:25/k", "https://u@chatgpt.com/k", "file:///k",
     "https://chatgpt.com/k#f", 7, None],
)  # fmt: skip
def test_unusual_jwks_uri_is_rejected(internet, web, uri):
    """T14: jwks_uri, in a document and in a registration."""
    internet.documents[CHATGPT]["jwks_uri"] = uri
    assert token_status(web, CHATGPT) == 401 and not ClientProfile.objects.exists()
    body = INSPECTOR | {"token_endpoint_auth_method": "private_key_jwt", "jwks_uri": uri}
    assert register(web, body).status_code == 400


def test_client_hosts_setting_limits_the_hosts_of_keys(internet, web):
    """T14: the allow list applies to jwks_uri, too."""
    internet.documents[CHATGPT]["jwks_uri"] = "https://app.example/keys"
    body = INSPECTOR | {
        "token_endpoint_auth_method": "private_key_jwt", "jwks_uri": "https://app.example/keys"
    }  # fmt: skip
    with given(CLIENT_HOSTS=["chatgpt.com"]):
        assert token_status(web, CHATGPT) == 401
        assert register(web, body).status_code == 400
    assert not ClientProfile.objects.exists()


@pytest.mark.parametrize(
    "document",
    [REFUSED["a redirect"], slow_headers, no_response, b"[]", b"{}", {"keys": {}}, {"keys": [7,
     {}, None]},
     b"[" * 5_000,
     {"keys": [{"kty": "RSA", "n": 7, "e": []}]}, {"keys": [{"kty": "RSA", "n": "!", "e": "AQAB"}]},
     b" " * 70_000],
)  # fmt: skip
def test_invalid_keys_reject_the_assertion(web, chatgpt, alice, rsa, internet, document):
    """T14: the fetch ends in a rejection, whatever the server does."""
    internet.documents[JWKS] = document
    with toolkit(CIMD_FETCH_TIMEOUT_SECONDS=1 if document in ENDLESS else 5):
        assert redeem(web, alice, assertion(rsa)) == 401


@pytest.mark.slow
def test_slow_keys_block_only_a_few_threads(chatgpt, internet, rsa):
    """T14: a server of keys that does not respond blocks a few threads, however many ask."""
    internet.documents[JWKS] = no_response
    with toolkit(CIMD_MAX_CONCURRENT_FETCHES=2, CIMD_FETCH_TIMEOUT_SECONDS=3):
        began, took = time.monotonic(), []

        def one() -> None:
            assert keys_of.find_keys(JWKS, "RS256", "one") == []
            took.append(time.monotonic() - began)

        threads = [threading.Thread(target=one) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(took) == 8 and sum(seconds > 2 for seconds in took) == 2


def test_keys_count_as_fetched_only_if_a_slot_was_free(chatgpt, internet, rsa):
    """T14: without a free slot, the next request fetches the keys."""
    with toolkit(CIMD_MAX_CONCURRENT_FETCHES=1):
        with _fetch_slot() as free:
            assert free and keys_of.find_keys(JWKS, "RS256", "one") == []
        assert len(keys_of.find_keys(JWKS, "RS256", "one")) == 1


def test_redirected_keys_are_rejected(web, chatgpt, alice, rsa, internet):
    """T14: neither the target of the redirect nor the body of the redirect is used."""
    internet.documents["https://claude.ai/x"] = keys(rsa)
    internet.documents[JWKS] = raw_response(REDIRECT_RESPONSE + json.dumps(keys(rsa)).encode())
    assert redeem(web, alice, assertion(rsa)) == 401 and internet.asked == [JWKS]


def test_large_key_set_is_rejected(web, chatgpt, alice, rsa, internet):
    """T14: jwks_uri must not fill the memory."""
    internet.documents[JWKS] = keys(rsa) | {"x": "x" * 70_000}
    assert redeem(web, alice, assertion(rsa)) == 401


@pytest.mark.slow
@pytest.mark.parametrize("slow", ENDLESS)
def test_slow_keys_time_out(web, chatgpt, alice, rsa, internet, slow):
    """T14: jwks_uri has the same timeout as a document."""
    internet.documents[JWKS] = slow
    with toolkit(CIMD_FETCH_TIMEOUT_SECONDS=1), within(3):
        assert redeem(web, alice, assertion(rsa)) == 401


def test_weak_keys_and_keys_for_other_uses_are_rejected(web, chatgpt, alice, rsa, internet):
    """private_key_jwt: short, huge, for encryption, for another algorithm, symmetric."""
    public = rsa.export_public(as_dict=True)
    weak = jwk.JWK.generate(kty="RSA", size=1024, kid="one")
    secret = {"kty": "oct", "k": "AAAA", "kid": "one"}
    wrong = [
        (weak, weak.export_public(as_dict=True)), (rsa, public | {"use": "enc"}),
        (rsa, public | {"alg": "RS512"}), (rsa, public | {"e": public["n"]}),
        (rsa, public | {"n": "A" * 20_000}), (rsa, secret),
    ]  # fmt: skip
    for key, published in wrong:
        cache.clear()
        internet.documents[JWKS] = {"keys": [published]}
        assert redeem(web, alice, assertion(key)) == 401


def test_registered_client_can_use_a_key(web, internet, alice, rsa):
    """private_key_jwt: and cannot authenticate otherwise, either."""
    internet.documents[JWKS] = keys(rsa)
    body = INSPECTOR | {"token_endpoint_auth_method": "private_key_jwt", "jwks_uri": JWKS}
    client_id = register(web, body).json()["client_id"]
    sent = granted(client_id, alice)
    assert web.post("/oauth/token", sent | {"client_id": client_id}).status_code == 401
    text = assertion(rsa, iss=client_id, sub=client_id)
    sent |= {"client_assertion": text, "client_assertion_type": BEARER}
    assert web.post("/oauth/token", sent).status_code == 200


def test_log_contains_no_assertion(web, chatgpt, alice, rsa, caplog):
    """private_key_jwt: only the reason of the rejection."""
    caplog.set_level("DEBUG")
    text = assertion(rsa, exp=1)
    assert redeem(web, alice, text) == 401
    assert "rejected" in caplog.text and not any(part in caplog.text for part in _parts(text))
