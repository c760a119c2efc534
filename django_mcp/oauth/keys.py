"""
The public keys of clients, at their ``jwks_uri`` (RFC 7517).

Rule: only keys that can verify a signature that is taken, and none that is weak or costs time.
However many unknown keys are named, they are asked for once in a while; what was known is good for
a while where they cannot be had.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from typing import Any

from django.core.cache import cache
from jwcrypto.common import base64url_decode
from jwcrypto.jwk import JWK
from oauth2_provider.cimd import CIMDError, _fetch_slot

from .fetching import fetcher

LONGEST = 65_536  # bytes of a document
AT_MOST = 64  # keys in it that are looked at
TRIED = 4  # keys that one signature is tried with
FRESH = 3600  # seconds, at most
KEPT = 86_400  # seconds, where no others can be had
PAUSE = 60  # seconds between two attempts
BITS = range(2048, 8193)  # of an RSA modulus
# The algorithms that are taken, and what their keys have.
ALGORITHMS: dict[str, dict[str, str]] = {
    "RS256": {"kty": "RSA"},
    "PS256": {"kty": "RSA"},
    "ES256": {"kty": "EC", "crv": "P-256"},
    "EdDSA": {"kty": "OKP", "crv": "Ed25519"},
}
PUBLIC = ("kty", "kid", "n", "e", "crv", "x", "y")
logger = logging.getLogger("django_mcp")
# Who asks for keys that another thread is asking for waits for those; by the URI, more or less.
_locks = [threading.Lock() for _ in range(64)]


def matching(uri: str, algorithm: str, kid: str | None) -> list[JWK]:
    """The keys there by which such a signature may be; maybe none. ``algorithm`` is one of ours."""
    keys = _keys(uri)
    found = _fitting(keys, algorithm, kid)
    return found or _fitting(_keys(uri, other_than=keys), algorithm, kid)


def _fitting(keys: list[Any], algorithm: str, kid: str | None) -> list[JWK]:
    fit = (key for key in keys if isinstance(key, dict) and _fits(key, algorithm, kid))
    read = (_read(key) for key in fit)
    return [key for key in read if key is not None][:TRIED]


def _fits(key: dict[str, Any], algorithm: str, kid: str | None) -> bool:
    return (
        all(key.get(name) == value for name, value in ALGORITHMS[algorithm].items())
        and key.get("use") in (None, "sig")
        and key.get("alg") in (None, algorithm)
        and (kid is None or key.get("kid") == kid)
    )


def _read(key: dict[str, Any]) -> JWK | None:
    """Its public part; None where that is none, or weak, or so big that it would take long."""
    try:
        if key["kty"] == "RSA" and not _is_decent(key):
            return None
        return JWK(**{name: key[name] for name in PUBLIC if name in key})
    except Exception as error:  # whatever a library makes of a stranger's numbers
        logger.info("A client's key cannot be read: %s", type(error).__name__)
        return None


def _is_decent(key: dict[str, Any]) -> bool:
    modulus = int.from_bytes(base64url_decode(key["n"]), "big")
    return modulus.bit_length() in BITS and len(key["e"]) <= 6


# Fetched, and kept.


def _keys(uri: str, other_than: list[Any] | None = None) -> list[Any]:
    """What is kept, or what is there now if that is old, or not what was wanted."""
    place = f"django_mcp.oauth.keys:{hashlib.sha256(uri.encode()).hexdigest()}"
    kept = cache.get(place)
    if kept and kept["until"] > time.time() and kept["keys"] != other_than:
        return list(kept["keys"])
    with _fetch_slot() as free:  # around the lock: who waits there has a thread as well
        if free:
            with _locks[hash(uri) % len(_locks)]:
                _ask(uri, place)
    kept = cache.get(place)
    return list(kept["keys"]) if kept else []


def _ask(uri: str, place: str) -> None:
    """Keep what is there now, if nobody asked a moment ago."""
    if not cache.get(f"{place}:asked"):
        _fetch(uri, place)
        cache.set(f"{place}:asked", True, PAUSE)


def _fetch(uri: str, place: str) -> None:
    try:
        document, seconds = fetcher().retrieve(uri, LONGEST)
    except CIMDError as error:
        logger.info("The keys at %r cannot be had: %s", uri, error)
        return
    keys = document.get("keys")
    found = keys[:AT_MOST] if isinstance(keys, list) else []
    cache.set(place, {"keys": found, "until": time.time() + min(seconds, FRESH)}, KEPT)
