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

A secret that is not remembered yet, as after a restart with a cache in memory, is compared like a
wrong one. So a network's first comparison is limited apart from its further ones: a few networks
that send many wrong secrets leave the first comparison of other networks free. What remains: wrong
secrets from ``MAX_NETWORKS`` networks within a window keep an unremembered secret from being
compared for that window. No limit on the cost prevents that, because nothing but the comparison
tells a right secret from a wrong one. A cache that outlives restarts and is shared by all processes
makes the case rare.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeGuard
from urllib.parse import urlsplit

from django.contrib.auth.hashers import identify_hasher
from django.core.cache import cache
from django.utils.crypto import constant_time_compare, salted_hmac
from jwcrypto.common import JWException, base64url_decode
from jwcrypto.jwk import JWK
from jwcrypto.jws import JWS
from oauth2_provider.cimd import CIMDError, _fetch_slot

from ..verifiers.protected_resource import endpoint
from . import client_metadata, registration_rates
from .client_registry import KnownClients, profile
from .conf import issuer
from .fetching import fetch_slot, fetcher

MAX_KEYS_DOCUMENT_BYTES = 65_536  # bytes of a document
MAX_KEYS = 64  # keys of a document that are read
MAX_KEYS_PER_SIGNATURE = 4  # keys that one signature is verified with
KEYS_REFRESH_SECONDS = 3600  # maximum seconds for which keys are used without a new fetch
KEYS_MAX_AGE_SECONDS = 86_400  # use of old keys, if they cannot be fetched
FETCH_INTERVAL_SECONDS = 60  # seconds between two fetches
BITS = range(2048, 8193)  # size of an RSA modulus
# The accepted algorithms, and the members that their keys must have.
ALGORITHMS: dict[str, dict[str, str]] = {
    "RS256": {"kty": "RSA"},
    "PS256": {"kty": "RSA"},
    "ES256": {"kty": "EC", "crv": "P-256"},
    "EdDSA": {"kty": "OKP", "crv": "Ed25519"},
}
PUBLIC = ("kty", "kid", "n", "e", "crv", "x", "y")
logger = logging.getLogger("django_mcp")
# One fetch per URI: threads that need the same keys wait for it. URIs share locks by their hash.
_locks = [threading.Lock() for _ in range(64)]


def matching(
    uri: str, algorithm: str, kid: str | None, *, was_authorized: bool = False
) -> list[JWK]:
    """Return the keys at ``uri`` that fit a signature; maybe none. May fetch them, and block.

    ``algorithm`` is a key of ``ALGORITHMS``. Clients that a user has authorized have fetch slots of
    their own.
    """
    keys = _keys(uri, was_authorized=was_authorized)
    if found := _fitting(keys, algorithm, kid):
        return found
    again = _keys(uri, other_than=keys, was_authorized=was_authorized)
    return _fitting(again, algorithm, kid)


def _fitting(keys: list[Any], algorithm: str, kid: str | None) -> list[JWK]:
    fit = (key for key in keys if isinstance(key, dict) and _fits(key, algorithm, kid))
    read = (_read(key) for key in fit)
    return [key for key in read if key is not None][:MAX_KEYS_PER_SIGNATURE]


def _fits(key: dict[str, Any], algorithm: str, kid: str | None) -> bool:
    return (
        all(key.get(name) == value for name, value in ALGORITHMS[algorithm].items())
        and key.get("use") in (None, "sig")
        and key.get("alg") in (None, algorithm)
        and (kid is None or key.get("kid") == kid)
    )


def _read(key: dict[str, Any]) -> JWK | None:
    """Return the public key; None if it is invalid, weak, or so big that it is slow to use."""
    try:
        if key["kty"] == "RSA" and not _is_decent(key):
            return None
        return JWK(**{name: key[name] for name in PUBLIC if name in key})
    except Exception as error:  # libraries raise many types for invalid numbers
        logger.info("A client's key cannot be read: %s", type(error).__name__)
        return None


def _is_decent(key: dict[str, Any]) -> bool:
    modulus = int.from_bytes(base64url_decode(key["n"]), "big")
    return modulus.bit_length() in BITS and len(key["e"]) <= 6


# Fetching keys, and the cache.


def _keys(
    uri: str, other_than: list[Any] | None = None, *, was_authorized: bool = False
) -> list[Any]:
    """Return the cached keys. Fetch them if they are old, or equal to ``other_than``."""
    place = f"django_mcp.oauth.client_authentication:{hashlib.sha256(uri.encode()).hexdigest()}"
    kept = cache.get(place)
    if kept and kept["until"] > time.time() and kept["keys"] != other_than:
        return list(kept["keys"])
    host = urlsplit(uri).hostname or ""
    # Take the slots before the lock: a request that waits for the lock occupies a thread too.
    with _fetch_slot() as free, fetch_slot(host, was_authorized=was_authorized) as also_free:
        if free and also_free:
            with _locks[hash(uri) % len(_locks)]:
                _ask(uri, place)
    kept = cache.get(place)
    return list(kept["keys"]) if kept else []


def _ask(uri: str, place: str) -> None:
    """Fetch and cache the keys, at most once in ``FETCH_INTERVAL_SECONDS``."""
    if not cache.get(f"{place}:asked"):
        _fetch(uri, place)
        cache.set(f"{place}:asked", True, FETCH_INTERVAL_SECONDS)


def _fetch(uri: str, place: str) -> None:
    try:
        document, seconds = fetcher().retrieve(uri, MAX_KEYS_DOCUMENT_BYTES)
    except CIMDError as error:
        logger.info("The keys at %r cannot be had: %s", uri, error)
        return
    keys = document.get("keys")
    found = keys[:MAX_KEYS] if isinstance(keys, list) else []
    cache.set(
        place,
        {"keys": found, "until": time.time() + min(seconds, KEYS_REFRESH_SECONDS)},
        KEYS_MAX_AGE_SECONDS,
    )


TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
SENT = {"client_assertion", "client_assertion_type"}
MAX_ASSERTION_LENGTH = 8192  # characters
MAX_ID_LENGTH = 255  # characters of a jti, or of a kid
MAX_LIFETIME_SECONDS = 600  # maximum seconds from now to the expiry
CLOCK_SKEW_SECONDS = 30  # seconds by which clocks may differ
TOKEN_PATHS = ("oauth/token", "token")
COMPACT = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")


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


class PrivateKeyJWT(KnownClients):
    """Mixin for an ``OAuth2Validator``: authenticate clients by ``private_key_jwt``."""

    def client_authentication_required(self, request: Any, *args: Any, **kwargs: Any) -> bool:
        if _sent(request) or super().client_authentication_required(request, *args, **kwargs):
            return True
        return _has_key(request)

    def authenticate_client(self, request: Any, *args: Any, **kwargs: Any) -> bool:
        if not (sent := _sent(request)):
            return super().authenticate_client(request, *args, **kwargs) and not _has_key(request)
        try:
            self._authenticate_by(sent, request)
        except AssertionRejected as reason:
            request.client = None
            logger.info("A client assertion was refused: %s", reason)
            return False
        return True

    def authenticate_client_id(
        self, client_id: Any, request: Any, *args: Any, **kwargs: Any
    ) -> bool:
        known = super().authenticate_client_id(client_id, request, *args, **kwargs)
        return known and not _has_key(request)

    def _authenticate_by(self, sent: dict[str, str], request: Any) -> None:
        """Verify the assertion, or raise ``AssertionRejected``.

        A request must use one authentication method only (RFC 6749, 2.3).
        """
        if sent.get("client_assertion_type") != TYPE:
            raise AssertionRejected("it is of a type that is not known")
        if self._extract_basic_auth(request) or request.client_secret:
            raise AssertionRejected("a secret came with it")
        found = read(sent.get("client_assertion", ""))
        if request.client_id not in (None, "", found.client_id):
            raise AssertionRejected("it is of another client")
        if self._load_application(found.client_id, request) is None or not _has_key(request):
            raise AssertionRejected("it is of a client that has no key")
        verify(found, request)


def _sent(request: Any) -> dict[str, str]:
    """Return the assertion's parameters, from the body only: servers write URLs into logs."""
    return {name: value for name, value in request.decoded_body or () if name in SENT}


def _has_key(request: Any) -> bool:
    """Whether the loaded client must authenticate by its key."""
    found = profile(request)
    return found is not None and found.auth_method == client_metadata.KEY


# Reading an assertion.


def read(text: str) -> Assertion:
    """Parse an assertion and check its claims, without the signature.

    Raise ``AssertionRejected``.
    """
    if len(text) > MAX_ASSERTION_LENGTH or not COMPACT.fullmatch(text):
        raise AssertionRejected("it is no JWT")
    header, claims = (_part(part) for part in text.split(".")[:2])
    if header.get("alg") not in list(ALGORITHMS) or "crit" in header:
        raise AssertionRejected("it is signed in a way that is not taken")
    for check in CLAIMS:
        if reason := check(claims, time.time()):
            raise AssertionRejected(reason)
    return Assertion(text, header, claims)


def _part(text: str) -> dict[str, Any]:
    try:
        found = json.loads(base64url_decode(text), parse_constant=_no_number)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise AssertionRejected("it is no JWT")
    return found


def _no_number(name: str) -> None:
    raise ValueError(name)


def _about(claims: dict[str, Any], now: float) -> str | None:
    client = claims.get("sub")
    fine = isinstance(client, str) and client and claims.get("iss") == client
    return None if fine else "iss and sub are not the client"


def _addressed(claims: dict[str, Any], now: float) -> str | None:
    to = claims.get("aud")
    names = to if isinstance(to, list) else [to]
    ours = [issuer(), f"{issuer()}/", *map(endpoint, TOKEN_PATHS)]
    return None if any(name in ours for name in names) else "it is for another server"


def _timely(claims: dict[str, Any], now: float) -> str | None:
    ends, begins, made = claims.get("exp"), claims.get("nbf", now), claims.get("iat", now)
    if not (_is_time(ends) and _is_time(begins) and _is_time(made)):
        return "it has no times"
    if not now - CLOCK_SKEW_SECONDS < ends <= now + MAX_LIFETIME_SECONDS + CLOCK_SKEW_SECONDS:
        return "it has expired, or is good for too long"
    if not (
        begins <= now + CLOCK_SKEW_SECONDS
        and now - MAX_LIFETIME_SECONDS - CLOCK_SKEW_SECONDS <= made <= now + CLOCK_SKEW_SECONDS
    ):
        return "it is old, or of the future"
    return None


def _is_time(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _once(claims: dict[str, Any], now: float) -> str | None:
    jti = claims.get("jti")
    fine = isinstance(jti, str) and 0 < len(jti) <= MAX_ID_LENGTH
    return None if fine else "it has no jti"


CLAIMS = (_about, _addressed, _timely, _once)


# Verifying an assertion.


def verify(found: Assertion, request: Any) -> None:
    """Raise ``AssertionRejected`` unless a key of the client has signed it, and it is unused.

    The key may have to be fetched. The signature comes first, so that nobody else can use up a
    client's ``jti``.
    """
    known, kid = profile(request), found.header.get("kid")
    if kid is not None and not (isinstance(kid, str) and len(kid) <= MAX_ID_LENGTH):
        raise AssertionRejected("its key has no name")
    assert known is not None
    was_authorized = known.last_authorized is not None
    its = matching(known.jwks_uri, found.algorithm, kid, was_authorized=was_authorized)
    if not any(_is_signed(found, key) for key in its):
        raise AssertionRejected("it is signed by nobody who is known")
    if not _is_first(found):
        raise AssertionRejected("it was used before")


def _is_signed(found: Assertion, key: Any) -> bool:
    signed = JWS()
    signed.allowed_algs = [found.algorithm]
    try:
        signed.deserialize(found.text, key)
    except (JWException, ValueError, TypeError):
        return False
    return bool(signed.is_valid)


def _is_first(found: Assertion) -> bool:
    """Whether the assertion was not used before. Store its ``jti`` in the cache until it expires.

    Return False if the cache stores nothing. All processes must share the cache.
    """
    what = json.dumps([found.client_id, found.claims["jti"]])
    place = f"django_mcp.oauth.jti:{hashlib.sha256(what.encode()).hexdigest()}"
    seconds = int(found.claims["exp"] - time.time()) + 2 * CLOCK_SKEW_SECONDS
    return bool(cache.add(place, True, seconds)) and cache.get(place) is not None


MAX_PER_NETWORK, MAX_PER_CLIENT = 5, 30  # comparisons in the window
MAX_NETWORKS = 25  # share of MAX_PER_CLIENT for the first comparison of each network
WINDOW_SECONDS = 60
REMEMBERED_SECONDS = 86_400


class TooManyAttempts(Exception):
    """The secret was not compared: too many wrong ones were sent in the last window."""


def is_right(provided: str, stored: str, network: str, compare: Callable[[], bool]) -> bool:
    """Return what ``compare`` returns for these secrets, or True if the secret is remembered.

    Raise ``TooManyAttempts`` if the limit on comparisons is reached.
    """
    try:
        identify_hasher(stored)
    except ValueError:  # not hashed: comparing it is fast and needs no limit
        return compare()
    # Keyed with SECRET_KEY, because caches are less guarded than the database.
    made = salted_hmac("django_mcp.oauth.secret", f"{stored}\0{provided}", algorithm="sha256")
    remembered = f"django_mcp.oauth.secret:{made.hexdigest()}"
    if cache.touch(remembered, REMEMBERED_SECONDS):  # a client in use stays remembered
        return True
    client = hashlib.sha256(stored.encode()).hexdigest()  # the salt makes it unique
    if not _may_compare(f"secrets:{client}", network):
        raise TooManyAttempts
    if not compare():
        return False
    cache.set(remembered, True, REMEMBERED_SECONDS)
    return True


def _may_compare(client: str, network: str) -> bool:
    # The network's limit first: a network over its limit must not use up the client's.
    if not registration_rates.take_slot(f"{client}:{network}", MAX_PER_NETWORK, WINDOW_SECONDS):
        return False
    if registration_rates.take_slot(f"{client}:{network}:first", 1, WINDOW_SECONDS):
        return registration_rates.take_slot(f"{client}:first", MAX_NETWORKS, WINDOW_SECONDS)
    most = MAX_PER_CLIENT - MAX_NETWORKS
    return registration_rates.take_slot(f"{client}:again", most, WINDOW_SECONDS)


HASH_PREFIX = "sha256:"  # no hasher of Django writes this prefix


def kept(secret: str) -> str:
    """Return the digest to store for a random secret.

    A slow hash is not needed, because a random secret cannot be guessed. It would only let wrong
    secrets cost CPU time.
    """
    return HASH_PREFIX + hashlib.sha256(secret.encode()).hexdigest()


def is_kept(stored: str) -> bool:
    """Whether the stored value of a secret was made by ``kept``."""
    return stored.startswith(HASH_PREFIX)


def is_same(provided: str, stored: str) -> bool:
    return constant_time_compare(kept(provided), stored)
