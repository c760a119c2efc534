"""Client authentication: ``private_key_jwt`` assertions, clients' public keys, client secrets.

*Assertions* (RFC 7523, 2.2 and 3). A client that has a key cannot authenticate in another way. An
assertion is for this server, is valid for a few minutes, and can be used once. Cheap checks come
first, and nothing is stored before the signature is verified. The reason of a rejection is logged,
without the assertion, and not sent.

*Public keys* (RFC 7517) are fetched from the client's ``jwks_uri``. Weak keys, and keys that are
slow to use, are ignored. The keys at a URI are fetched at most once in ``FETCH_INTERVAL_SECONDS``
seconds, however many unknown key ids clients send. If they cannot be fetched, the last ones stay
valid for ``KEYS_MAX_AGE_SECONDS``.

*Secrets.* The secrets of self-registered clients are random, so a fast digest is enough. Clients
that are registered by hand have secrets with Django's password hashers, which take about a third of
a second of CPU time even for a wrong secret. Client ids are public, so wrong attempts are limited.
A right secret is remembered in the cache, so that attackers cannot lock out a client in use.

After a restart with a cache in memory, no secret is remembered, and a right one is limited like a
wrong one. So the first comparison of each network has a limit of its own: a few networks that send
many wrong secrets cannot use up the first comparisons of other networks. But wrong secrets from
``MAX_NETWORKS`` networks in one window prevent the comparison of a right secret until the window
ends, because only the comparison shows which secret is right. This is rare if all processes share a
cache that is not lost at a restart.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from django.contrib.auth.hashers import identify_hasher
from django.core.cache import cache
from django.utils.crypto import constant_time_compare, salted_hmac
from oauth2_provider.cimd import CIMDError, _fetch_slot

from ..verifiers.jose import (
    CLOCK_SKEW_SECONDS,
    MAX_KEYS_IN_SET,
    MAX_KEYS_PER_SIGNATURE,
    InvalidJWT,
    fits,
    is_signed,
    is_time,
    read_key,
    read_unverified,
)
from ..verifiers.protected_resource import endpoint
from . import client_metadata, registration_limits
from .client_metadata_documents import fetch_slot, fetcher
from .client_registry import ClientLookup, profile
from .conf import ASSERTION_ALGORITHMS, issuer

if TYPE_CHECKING:
    from jwcrypto.jwk import JWK

MAX_KEYS_DOCUMENT_BYTES = 65_536
KEYS_REFRESH_SECONDS = 3600  # maximum seconds for which keys are used without a new fetch
KEYS_MAX_AGE_SECONDS = 86_400  # use of old keys, if they cannot be fetched
FETCH_INTERVAL_SECONDS = 60
logger = logging.getLogger("django_mcp.oauth")
# One fetch per URI: threads that need the same keys wait for it. URIs share locks by their hash.
_locks = [threading.Lock() for _ in range(64)]


def find_keys(
    uri: str, algorithm: str, kid: str | None, *, was_authorized: bool = False
) -> list[JWK]:
    """Return the keys at ``uri`` that fit a signature; maybe none. May fetch them, and block.

    ``algorithm`` is one of ``ASSERTION_ALGORITHMS``. Clients that a user has authorized have fetch
    slots of their own.
    """
    keys = _load_keys(uri, was_authorized=was_authorized)
    if found := _keys_for(keys, algorithm, kid):
        return found
    # The client may have rotated its keys since they were cached.
    newer = _load_keys(uri, other_than=keys, was_authorized=was_authorized)
    return _keys_for(newer, algorithm, kid)


def _keys_for(keys: list[Any], algorithm: str, kid: str | None) -> list[JWK]:
    fitting = (key for key in keys if isinstance(key, dict) and fits(key, algorithm, kid))
    parsed = [read_key(key) for key in islice(fitting, MAX_KEYS_PER_SIGNATURE)]
    return [key for key in parsed if key is not None]


# Fetching keys, and the cache.


def _load_keys(
    uri: str, other_than: list[Any] | None = None, *, was_authorized: bool = False
) -> list[Any]:
    """Return the cached keys. Fetch them if they are old, or equal to ``other_than``."""
    cache_key = f"django_mcp.oauth.client_authentication:{hashlib.sha256(uri.encode()).hexdigest()}"
    cached = cache.get(cache_key)
    if cached and cached["until"] > time.time() and cached["keys"] != other_than:
        return list(cached["keys"])
    host = urlsplit(uri).hostname or ""
    # Take the slots before the lock: a request that waits for the lock occupies a thread too.
    with (
        _fetch_slot() as has_toolkit_slot,
        fetch_slot(host, was_authorized=was_authorized) as has_slot,
    ):
        if has_toolkit_slot and has_slot:
            with _locks[hash(uri) % len(_locks)]:
                _fetch_if_due(uri, cache_key)
    cached = cache.get(cache_key)
    return list(cached["keys"]) if cached else []


def _fetch_if_due(uri: str, cache_key: str) -> None:
    """Fetch and cache the keys, at most once in ``FETCH_INTERVAL_SECONDS``.

    Processes that ask at the same moment fetch once each.
    """
    if not cache.get(f"{cache_key}:asked"):
        _fetch(uri, cache_key)
        cache.set(f"{cache_key}:asked", True, FETCH_INTERVAL_SECONDS)


def _fetch(uri: str, cache_key: str) -> None:
    try:
        document, seconds = fetcher().retrieve(uri, MAX_KEYS_DOCUMENT_BYTES)
    except CIMDError as error:
        logger.info("Keys of a client unavailable: jwks_uri=%r error=%s", uri, error)
        return
    keys = document.get("keys")
    usable = keys[:MAX_KEYS_IN_SET] if isinstance(keys, list) else []
    cache.set(
        cache_key,
        {"keys": usable, "until": time.time() + min(seconds, KEYS_REFRESH_SECONDS)},
        KEYS_MAX_AGE_SECONDS,
    )


ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
PARAMETERS = {"client_assertion", "client_assertion_type"}
MAX_ASSERTION_LENGTH = 8192  # characters
MAX_JTI_LENGTH = 255  # characters of a jti
MAX_LIFETIME_SECONDS = 600  # maximum seconds from now to the expiry
TOKEN_PATHS = ("oauth/token", "token")


class AssertionRejected(Exception):
    """The assertion is not valid. The message is for the log."""


@dataclass(frozen=True, slots=True)
class Assertion:
    """The content of an assertion, before its signature is verified."""

    text: str
    header: dict[str, Any]
    claims: dict[str, Any]

    @property
    def client_id(self) -> str:
        return str(self.claims["sub"])

    @property
    def algorithm(self) -> str:
        return str(self.header["alg"])


class PrivateKeyJWT(ClientLookup):
    """Mixin for an ``OAuth2Validator``: authenticate clients by ``private_key_jwt``."""

    def client_authentication_required(self, request: Any, *args: Any, **kwargs: Any) -> bool:
        if _sent_assertion(request):
            return True
        required = super().client_authentication_required(request, *args, **kwargs)
        return required or _needs_key(request)

    def authenticate_client(self, request: Any, *args: Any, **kwargs: Any) -> bool:
        if not (sent := _sent_assertion(request)):
            return super().authenticate_client(request, *args, **kwargs) and not _needs_key(request)
        try:
            self._authenticate_by(sent, request)
        except AssertionRejected as reason:
            request.client = None
            logger.info("Client assertion rejected: %s", reason)
            return False
        return True

    def authenticate_client_id(
        self, client_id: Any, request: Any, *args: Any, **kwargs: Any
    ) -> bool:
        known = super().authenticate_client_id(client_id, request, *args, **kwargs)
        return known and not _needs_key(request)

    def _authenticate_by(self, sent: dict[str, str], request: Any) -> None:
        """Verify the assertion, or raise ``AssertionRejected``.

        A request must use one authentication method only (RFC 6749, 2.3).
        """
        if sent.get("client_assertion_type") != ASSERTION_TYPE:
            raise AssertionRejected("its type is unknown")
        if self._extract_basic_auth(request) or request.client_secret:
            raise AssertionRejected("the request also has a secret")
        assertion = parse_assertion(sent.get("client_assertion", ""))
        if request.client_id not in (None, "", assertion.client_id):
            raise AssertionRejected("it is another client's")
        if self._load_application(assertion.client_id, request) is None or not _needs_key(request):
            raise AssertionRejected("the client is unknown or has no key")
        verify(assertion, request)


def _sent_assertion(request: Any) -> dict[str, str]:
    """Return the assertion's parameters, from the body only: servers write URLs into logs."""
    return {name: value for name, value in request.decoded_body or () if name in PARAMETERS}


def _needs_key(request: Any) -> bool:
    """Whether the loaded client must authenticate by its key."""
    found = profile(request)
    return found is not None and found.auth_method == client_metadata.AUTH_METHOD_PRIVATE_KEY


# Reading an assertion.


def parse_assertion(text: str) -> Assertion:
    """Parse an assertion and check its claims, without the signature.

    Raise ``AssertionRejected``.
    """
    if len(text) > MAX_ASSERTION_LENGTH:
        raise AssertionRejected("it is too long")
    try:
        header, claims = read_unverified(text)
    except InvalidJWT as error:
        raise AssertionRejected(str(error)) from None
    if header.get("alg") not in ASSERTION_ALGORITHMS:
        raise AssertionRejected("its signature algorithm is not accepted")
    for problem in CLAIM_CHECKS:
        if reason := problem(claims, time.time()):
            raise AssertionRejected(reason)
    return Assertion(text, header, claims)


def _subject_problem(claims: dict[str, Any], now: float) -> str | None:
    client = claims.get("sub")
    is_valid = isinstance(client, str) and client and claims.get("iss") == client
    return None if is_valid else "iss and sub are not the client"


def _audience_problem(claims: dict[str, Any], now: float) -> str | None:
    audience = claims.get("aud")
    names = audience if isinstance(audience, list) else [audience]
    ours = [issuer(), f"{issuer()}/", *map(endpoint, TOKEN_PATHS)]
    return None if any(name in ours for name in names) else "it is for another server"


def _time_problem(claims: dict[str, Any], now: float) -> str | None:
    ends, begins, issued = claims.get("exp"), claims.get("nbf", now), claims.get("iat", now)
    if not (is_time(ends) and is_time(begins) and is_time(issued)):
        return "exp is missing, or a time is not a number"
    if not now - CLOCK_SKEW_SECONDS < ends <= now + MAX_LIFETIME_SECONDS + CLOCK_SKEW_SECONDS:
        return "it has expired, or is valid for too long"
    if not (
        begins <= now + CLOCK_SKEW_SECONDS
        and now - MAX_LIFETIME_SECONDS - CLOCK_SKEW_SECONDS <= issued <= now + CLOCK_SKEW_SECONDS
    ):
        return "it is too old, or not valid yet"
    return None


def _id_problem(claims: dict[str, Any], now: float) -> str | None:
    jti = claims.get("jti")
    is_valid = isinstance(jti, str) and 0 < len(jti) <= MAX_JTI_LENGTH
    return None if is_valid else "jti is missing or too long"


CLAIM_CHECKS = (_subject_problem, _audience_problem, _time_problem, _id_problem)


# Verifying an assertion.


def verify(assertion: Assertion, request: Any) -> None:
    """Raise ``AssertionRejected`` unless a key of the client has signed it, and it is unused.

    The key may have to be fetched. The signature comes first, so that nobody else can use up a
    client's ``jti``.
    """
    client_profile, kid = profile(request), assertion.header.get("kid")
    assert client_profile is not None
    was_authorized = client_profile.last_authorized is not None
    jwks_uri = client_profile.jwks_uri
    keys = find_keys(jwks_uri, assertion.algorithm, kid, was_authorized=was_authorized)
    if not is_signed(assertion.text, keys, assertion.algorithm):
        raise AssertionRejected("its signature is not by a key of the client")
    if not _mark_used(assertion):
        raise AssertionRejected("its jti was used before")


def _mark_used(assertion: Assertion) -> bool:
    """Store the assertion's ``jti`` in the cache until it expires. Return False if it was there.

    Return False also if the cache stores nothing. All processes must share the cache.
    """
    identity = json.dumps([assertion.client_id, assertion.claims["jti"]])
    cache_key = f"django_mcp.oauth.jti:{hashlib.sha256(identity.encode()).hexdigest()}"
    seconds = int(assertion.claims["exp"] - time.time()) + 2 * CLOCK_SKEW_SECONDS
    return bool(cache.add(cache_key, True, seconds)) and cache.get(cache_key) is not None


MAX_PER_NETWORK, MAX_PER_CLIENT = 5, 30  # comparisons in the window
MAX_NETWORKS = 25  # share of MAX_PER_CLIENT for the first comparison of each network
WINDOW_SECONDS = 60
REMEMBERED_SECONDS = 86_400


class TooManyAttempts(Exception):
    """The secret was not compared: too many wrong ones were sent in the last window."""


def check_hashed_secret(
    provided: str, stored: str, network: str, compare: Callable[[], bool]
) -> bool:
    """Return what ``compare`` returns for these secrets, or True if the secret is remembered.

    Raise ``TooManyAttempts`` if the limit on comparisons is reached.
    """
    try:
        identify_hasher(stored)
    except ValueError:  # not hashed: comparing it is fast and needs no limit
        return compare()
    # Keyed with SECRET_KEY, because caches are less protected than the database.
    digest = salted_hmac("django_mcp.oauth.secret", f"{stored}\0{provided}", algorithm="sha256")
    remembered = f"django_mcp.oauth.secret:{digest.hexdigest()}"
    if cache.touch(remembered, REMEMBERED_SECONDS):  # a client in use stays remembered
        return True
    client_key = hashlib.sha256(stored.encode()).hexdigest()  # the salt makes it unique
    if not _may_compare(f"secrets:{client_key}", network):
        raise TooManyAttempts
    if not compare():
        return False
    cache.set(remembered, True, REMEMBERED_SECONDS)
    return True


def _may_compare(client_key: str, network: str) -> bool:
    # The network's limit comes first: a network over its limit must not use up the client's.
    if not registration_limits.take_slot(
        f"{client_key}:{network}", MAX_PER_NETWORK, WINDOW_SECONDS
    ):
        return False
    if registration_limits.take_slot(f"{client_key}:{network}:first", 1, WINDOW_SECONDS):
        return registration_limits.take_slot(f"{client_key}:first", MAX_NETWORKS, WINDOW_SECONDS)
    further = MAX_PER_CLIENT - MAX_NETWORKS
    return registration_limits.take_slot(f"{client_key}:again", further, WINDOW_SECONDS)


HASH_PREFIX = "sha256:"  # no hasher of Django writes this prefix


def secret_digest(secret: str) -> str:
    """Return the digest to store for a random secret.

    A slow hash is not needed, because a random secret cannot be guessed. It would only let wrong
    secrets cost CPU time.
    """
    return HASH_PREFIX + hashlib.sha256(secret.encode()).hexdigest()


def is_digest(stored: str) -> bool:
    """Whether the stored value of a secret was made by ``secret_digest``."""
    return stored.startswith(HASH_PREFIX)


def matches_digest(provided: str, stored: str) -> bool:
    # In constant time, so that the response time does not tell how many characters are right.
    return constant_time_compare(secret_digest(provided), stored)
