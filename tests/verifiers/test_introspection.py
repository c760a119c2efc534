"""Verifying opaque tokens by introspection: requests to the issuer, caching and outages."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import time
import uuid
from datetime import timedelta
from typing import Any
from urllib.parse import unquote_plus

import pytest
from asgiref.sync import sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone
from oauth2_provider.models import (
    get_access_token_model,
    get_application_model,
    get_device_grant_model,
    get_grant_model,
    get_refresh_token_model,
)

from django_mcp.auth.principal import ChallengingVerifier, IssuingVerifier
from django_mcp.exceptions import Busy
from django_mcp.oauth.models import RedeemedCode
from django_mcp.oauth.verifier import OAuthTokens
from django_mcp.verifiers import IntrospectedTokens, introspection
from django_mcp.verifiers.protected_resource import resource
from tests.storage.rows import given

from .issuer import CLIENT, HOUR, SECRET, say, unsigned

pytestmark = pytest.mark.django_db
INTROSPECTION_PATH = "/introspect"
TOKEN = "2YotnFZFEjr1zCsicMWpAA"


@pytest.fixture(autouse=True)
def in_public():
    with given(URL="https://shop.example"):
        yield


@pytest.fixture
def aud(server):
    return resource(server)


@pytest.fixture
def cache_clock(monkeypatch):
    """A clock of the cache that a test can move forward."""

    class Clock:
        ahead = 0.0

        def monotonic(self) -> float:
            return time.monotonic() + self.ahead

    made = Clock()
    monkeypatch.setattr(introspection, "time", made)
    return made


async def is_accepted(verifier: Any, token: str, server: Any) -> bool:
    return await verifier.verify(token, server) is not None


async def test_token_gives_the_principal_of_the_found_user(
    issuer, introspected, server, alice, aud
):
    verifier, token = introspected(), issuer.opaque(TOKEN, aud)
    principal = await verifier.verify(token, server)
    assert principal.user == alice and principal.auth.scopes == {"mcp"}
    assert isinstance(verifier, ChallengingVerifier) and isinstance(verifier, IssuingVerifier)
    again = await verifier.verify(issuer.opaque("the-next", aud), server)
    other = await verifier.verify(issuer.opaque("another", aud, client_id="other"), server)
    assert principal.key == again.key != other.key and TOKEN not in principal.key


async def test_token_is_sent_in_the_body_with_client_credentials(
    issuer, introspected, server, alice, aud
):
    await introspected().verify(issuer.opaque(TOKEN, aud), server)
    assert issuer.forms == [{"token": TOKEN, "token_type_hint": "access_token"}]
    assert not any(TOKEN in path for path in issuer.paths)
    asking = issuer.authorizations[issuer.paths.index(INTROSPECTION_PATH)]
    name, secret = base64.b64decode(asking.removeprefix("Basic ")).decode().split(":")
    assert (unquote_plus(name), unquote_plus(secret)) == (CLIENT, SECRET)
    assert issuer.authorizations[0] is None  # of the metadata


async def test_response_format_of_django_oauth_toolkit_is_supported(
    issuer, introspected, server, alice, aud
):
    issuer.opaque(TOKEN, [aud], sub=None, iss=None, username="alice", token_type="Bearer")
    assert await is_accepted(introspected(), TOKEN, server)


WRONG: dict[str, dict[str, Any]] = {
    "not active": {"active": False},
    "active in a word": {"active": "true"},
    "active in a number": {"active": 1},
    "of another server": {"aud": "https://shop.example/mcp/other"},
    "of no server": {"aud": None},
    "expired": {"exp": int(time.time()) - 1},
    "an end that is none": {"exp": "soon"},
    "an end that is nothing": {"exp": None},
    "another issuer's": {"iss": "https://other.example"},
    "nobody's": {"sub": None},
    "of somebody unknown": {"sub": "mallory"},
    "a refresh token": {"token_type": "refresh_token"},
    "a refresh token of Keycloak": {"typ": "Refresh"},
    "bound to a key": {"cnf": {"x5t#S256": "x"}},
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
async def test_inactive_or_wrong_token_is_rejected(
    issuer, introspected, server, alice, aud, wrong, caplog
):
    caplog.set_level(logging.DEBUG)
    issuer.opaque(TOKEN, aud)
    issuer.tokens[TOKEN] |= wrong
    assert not await is_accepted(introspected(), TOKEN, server)
    assert TOKEN not in caplog.text and SECRET not in caplog.text


async def test_concurrent_requests_introspect_a_token_once(
    issuer, introspected, server, alice, aud
):
    verifier = introspected()
    issuer.opaque(TOKEN, aud)
    issuer.gate.clear()
    many = [asyncio.ensure_future(verifier.verify(TOKEN, server)) for _ in range(20)]
    while not issuer.asked:  # noqa: ASYNC110 - another thread counts
        await asyncio.sleep(0.01)
    issuer.gate.set()
    assert all(await asyncio.gather(*many)) and issuer.asked[INTROSPECTION_PATH] == 1


async def test_response_cached_during_the_local_lookup_is_used(
    issuer, introspected, server, alice, aud, monkeypatch
):
    verifier, token = introspected(), issuer.opaque(TOKEN, aud)

    def answered_meanwhile(token: str, digest: str) -> bool:
        verifier._memory.store(digest, {"active": True, **issuer.tokens[token]}, time.monotonic())
        return False

    monkeypatch.setattr(introspection, "is_issued_here", answered_meanwhile)
    assert await is_accepted(verifier, token, server) and issuer.asked[INTROSPECTION_PATH] == 0


async def test_revoked_token_is_accepted_until_the_cache_expires(
    issuer, introspected, server, alice, aud, cache_clock
):
    verifier = introspected(memory=5)
    assert await is_accepted(verifier, issuer.opaque(TOKEN, aud), server)
    issuer.tokens.clear()
    cache_clock.ahead = 4
    assert await is_accepted(verifier, TOKEN, server) and issuer.asked[INTROSPECTION_PATH] == 1
    cache_clock.ahead = 5
    assert not await is_accepted(verifier, TOKEN, server) and issuer.asked[INTROSPECTION_PATH] == 2


async def test_every_request_introspects_without_a_cache(issuer, introspected, server, alice, aud):
    verifier = introspected(memory=0)
    assert await is_accepted(verifier, issuer.opaque(TOKEN, aud), server)
    issuer.tokens.clear()
    assert not await is_accepted(verifier, TOKEN, server) and issuer.asked[INTROSPECTION_PATH] == 2


async def test_principal_expires_soon_so_that_streams_are_rechecked(
    issuer, introspected, server, alice, aud
):
    """The token of a stream is not stored, so it cannot be introspected again."""
    ends = (await introspected().verify(issuer.opaque(TOKEN, aud), server)).auth.expires
    assert ends <= timezone.now() + introspection.RECHECK_INTERVAL
    soon = int(time.time()) + 30
    ends = (await introspected().verify(issuer.opaque("b", aud, exp=soon), server)).auth.expires
    assert ends.timestamp() == soon
    del issuer.tokens["b"]["exp"]
    ends = (await introspected().verify("b", server)).auth.expires
    assert timedelta() < ends - timezone.now() <= introspection.RECHECK_INTERVAL


@pytest.mark.slow
async def test_cache_is_bounded_and_contains_no_tokens(
    issuer, introspected, server, alice, aud, monkeypatch
):
    monkeypatch.setattr(introspection, "MAX_CACHED_RESPONSES", 3)
    verifier = introspected()
    for number in range(10):
        assert await is_accepted(verifier, issuer.opaque(f"{TOKEN}{number}", aud), server)
    kept = verifier._memory._responses
    assert len(kept) == 3 and not any(TOKEN in repr(one) for one in kept.items())
    assert TOKEN not in repr(vars(verifier)) and not verifier._requests._tasks()
    assert (
        await is_accepted(verifier, f"{TOKEN}9", server) and issuer.asked[INTROSPECTION_PATH] == 10
    )


async def test_cached_claims_cannot_be_changed_by_the_project(
    issuer, introspected, server, alice, aud
):
    def find(claims: dict[str, Any]) -> Any:
        assert claims.pop("sub") == "alice"
        claims["scope"] = "everything"
        return alice

    verifier = introspected(user=find)
    issuer.opaque(TOKEN, aud)
    found = [await verifier.verify(TOKEN, server) for _ in range(2)]
    assert [one.auth.scopes for one in found] == [{"mcp"}, {"mcp"}] and issuer.asked[
        INTROSPECTION_PATH
    ] == 1


DOWN = {
    "an error": lambda handler, path: say(handler, 500, {}),
    "no client of its": lambda handler, path: say(handler, 401, {"active": True}),
    "a redirect": lambda handler, path: say(handler, 307, {}, Location="/elsewhere"),
    "no JSON": lambda handler, path: say(handler, 200, b"active"),
    "a page": lambda handler, path: say(handler, 200, {"active": True}, Content_Type="text/html"),
    "a list": lambda handler, path: say(handler, 200, [{"active": True}]),
}


@pytest.mark.parametrize("behave", DOWN.values(), ids=DOWN)
async def test_failed_introspection_raises_busy(
    issuer, introspected, server, alice, aud, behave, caplog
):
    issuer.opaque(TOKEN, aud)
    issuer.behave = behave
    verifier = introspected(endpoint=f"{issuer.name}{INTROSPECTION_PATH}")
    with pytest.raises(Busy):
        await verifier.verify(TOKEN, server)
    assert set(issuer.asked) == {INTROSPECTION_PATH}
    assert "Token introspection failed: issuer=" in caplog.text
    assert TOKEN not in caplog.text and SECRET not in caplog.text
    issuer.behave = lambda handler, path: False
    assert await is_accepted(verifier, TOKEN, server)


async def test_unreachable_issuer_raises_busy(issuer, introspected, server, aud):
    issuer.down()
    with pytest.raises(Busy):
        await introspected().verify(TOKEN, server)
    issuer.down = lambda: None


async def test_number_of_concurrent_introspections_is_limited(
    issuer, introspected, server, alice, aud, monkeypatch
):
    monkeypatch.setattr("django_mcp.verifiers.fetching.MAX_CONCURRENT_REQUESTS", 3)
    verifier = introspected()
    issuer.opaque(TOKEN, aud)
    issuer.gate.clear()
    many = [asyncio.ensure_future(verifier.verify(f"{n}", server)) for n in range(3)]
    while len(verifier._requests._tasks()) < 3:  # noqa: ASYNC110 - no bell rings
        await asyncio.sleep(0.01)
    with pytest.raises(Busy):
        await verifier.verify(TOKEN, server)
    issuer.gate.set()
    await asyncio.gather(*many)
    assert await is_accepted(verifier, TOKEN, server)


async def test_wait_for_an_introspection_is_limited(issuer, introspected, server, aud, monkeypatch):
    monkeypatch.setattr("django_mcp.verifiers.fetching.WAIT_SECONDS", 0.1)
    verifier = introspected()
    issuer.gate.clear()
    with pytest.raises(Busy):
        await verifier.verify(TOKEN, server)
    issuer.gate.set()
    while verifier._requests._tasks():  # noqa: ASYNC110 - no bell rings
        await asyncio.sleep(0.01)


async def test_tokens_of_other_issuers_are_not_sent(issuer, introspected, server):
    others = unsigned({"alg": "RS256"}, {"iss": "https://other.example"}, b"x")
    for token in ("mcp_" + "a" * 43, others, "", "a b", "é", 'a"', "a\n"):
        assert not await is_accepted(introspected(), token, server)
    assert not issuer.asked


async def test_jwt_of_the_issuer_is_introspected(issuer, introspected, server, alice, aud):
    token = issuer.token(aud, exp=int(time.time()) + HOUR)
    issuer.opaque(token, aud)
    assert await is_accepted(introspected(), token, server)


@pytest.mark.parametrize(
    "wrong",
    [{"client_secret": ""}, {"client_id": ""}, {"memory": -1}, {"memory": 61},
     {"endpoint": "http://issuer.example/introspect"}, {"issuer": "http://issuer.example"}],
    ids=str,
)  # fmt: skip
def test_unsafe_configuration_raises_without_the_secret(wrong):
    options = {"issuer": "https://issuer.example", "user": lambda claims: None,
               "client_id": CLIENT, "client_secret": SECRET}  # fmt: skip
    with pytest.raises(ImproperlyConfigured) as raised:
        IntrospectedTokens(**options | wrong)
    assert SECRET not in str(raised.value)


# Tokens that this site issued.


@pytest.fixture
def locally_issued_tokens(alice):
    """Each kind of secret that django-oauth-toolkit stores, and a redeemed code."""
    application = get_application_model().objects.create(client_type="public")
    ends = timezone.now() + timedelta(hours=1)
    fields = {"user": alice, "application": application}
    access = get_access_token_model().objects.create(
        token="our-own-access", expires=ends, scope="mcp", **fields
    )
    get_refresh_token_model().objects.create(token="our-own-refresh", access_token=access, **fields)
    get_grant_model().objects.create(code="our-own-code", expires=ends, **fields)
    get_device_grant_model().objects.create(
        device_code="our-own-device", user_code="word", client_id="some", expires=ends
    )
    digest = hashlib.sha256(b"our-own-redeemed-code").hexdigest()
    RedeemedCode.objects.create(digest=digest, family=uuid.uuid4(), expires=ends)
    return [
        "our-own-access", "our-own-refresh", "our-own-code", "our-own-device",
        "our-own-redeemed-code",
    ]  # fmt: skip


@pytest.mark.parametrize("verifiers", ["introspection alone", "after our own"])
async def test_tokens_that_this_site_issued_are_not_sent_to_the_issuer(
    issuer, introspected, server, aud, locally_issued_tokens, verifiers
):
    verifier = introspected()
    for token in locally_issued_tokens:
        issuer.opaque(token, aud)  # it would say that it is good
        if verifiers == "after our own":
            assert await OAuthTokens().verify(token, server) is None
        assert not await is_accepted(verifier, token, server)
    assert issuer.forms == []


async def test_client_secret_that_this_site_issued_is_not_sent_to_the_issuer(
    issuer, introspected, server, aud, client
):
    body = {
        "redirect_uris": ["https://app.example/back"],
        "token_endpoint_auth_method": "client_secret_post",
    }
    response = await sync_to_async(client.post)(
        "/oauth/register", body, content_type="application/json"
    )
    secret = response.json()["client_secret"]
    issuer.opaque(secret, aud)
    assert not await is_accepted(introspected(), secret, server)
    assert issuer.forms == []
