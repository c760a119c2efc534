"""
Clients that authenticate by a key of theirs: ``private_key_jwt`` (RFC 7523, 2.2 and 3).

Rule: a client that has a key has no other way. An assertion is for this server, for a few minutes,
and for once; what is cheap to see is looked at first, and before the signature is right nothing is
kept. Why one is refused is for the log alone, which never has the assertion.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import time
from dataclasses import dataclass
from typing import Any, TypeGuard

from django.core.cache import cache
from jwcrypto.common import JWException, base64url_decode
from jwcrypto.jws import JWS

from ..protected.names import endpoint
from . import clients, keys
from .conf import issuer
from .known import KnownClients, profile

TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
SENT = {"client_assertion", "client_assertion_type"}
LONGEST = 8192  # characters
LONGEST_NAME = 255  # characters of a jti, or of a kid
LIFETIME = 600  # seconds that one may have to go
LEEWAY = 30  # seconds by which clocks differ
TOKEN_PATHS = ("oauth/token", "token")
COMPACT = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
logger = logging.getLogger("django_mcp")


class Refused(Exception):
    """An assertion that proves nothing."""


@dataclass(frozen=True, slots=True)
class Assertion:
    """What an assertion says, before it is known whose it is."""

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
    """To be put in front of an ``OAuth2Validator``."""

    def client_authentication_required(self, request: Any, *args: Any, **kwargs: Any) -> bool:
        if _sent(request) or super().client_authentication_required(request, *args, **kwargs):
            return True
        return _has_key(request)

    def authenticate_client(self, request: Any, *args: Any, **kwargs: Any) -> bool:
        if not (sent := _sent(request)):
            return super().authenticate_client(request, *args, **kwargs) and not _has_key(request)
        try:
            self._authenticate_by(sent, request)
        except Refused as reason:
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
        """RFC 6749, 2.3: a client has one method in each request."""
        if sent.get("client_assertion_type") != TYPE:
            raise Refused("it is of a type that is not known")
        if self._extract_basic_auth(request) or request.client_secret:
            raise Refused("a secret came with it")
        found = read(sent.get("client_assertion", ""))
        if request.client_id not in (None, "", found.client_id):
            raise Refused("it is of another client")
        if self._load_application(found.client_id, request) is None or not _has_key(request):
            raise Refused("it is of a client that has no key")
        verify(found, request)


def _sent(request: Any) -> dict[str, str]:
    """In the body alone: a URL is written into logs."""
    return {name: value for name, value in request.decoded_body or () if name in SENT}


def _has_key(request: Any) -> bool:
    """Whether the client that was loaded is one that authenticates by its key alone."""
    found = profile(request)
    return found is not None and found.auth_method == clients.KEY


# What an assertion says.


def read(text: str) -> Assertion:
    """An assertion that says what one should, to this server and at this time; or ``Refused``."""
    if len(text) > LONGEST or not COMPACT.fullmatch(text):
        raise Refused("it is no JWT")
    header, claims = (_part(part) for part in text.split(".")[:2])
    if header.get("alg") not in list(keys.ALGORITHMS) or "crit" in header:
        raise Refused("it is signed in a way that is not taken")
    for check in CLAIMS:
        if reason := check(claims, time.time()):
            raise Refused(reason)
    return Assertion(text, header, claims)


def _part(text: str) -> dict[str, Any]:
    try:
        found = json.loads(base64url_decode(text), parse_constant=_no_number)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Refused("it is no JWT")
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
    if not now - LEEWAY < ends <= now + LIFETIME + LEEWAY:
        return "it has expired, or is good for too long"
    if not (begins <= now + LEEWAY and now - LIFETIME - LEEWAY <= made <= now + LEEWAY):
        return "it is old, or of the future"
    return None


def _is_time(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _once(claims: dict[str, Any], now: float) -> str | None:
    jti = claims.get("jti")
    fine = isinstance(jti, str) and 0 < len(jti) <= LONGEST_NAME
    return None if fine else "it has no jti"


CLAIMS = (_about, _addressed, _timely, _once)


# Whether it is so.


def verify(found: Assertion, request: Any) -> None:
    """It is signed by a key of the client that was loaded, and new; or ``Refused``."""
    known, kid = profile(request), found.header.get("kid")
    if kid is not None and not (isinstance(kid, str) and len(kid) <= LONGEST_NAME):
        raise Refused("its key has no name")
    assert known is not None
    its = keys.matching(known.jwks_uri, found.algorithm, kid)
    if not any(_is_signed(found, key) for key in its):
        raise Refused("it is signed by nobody who is known")
    if not _is_first(found):
        raise Refused("it was used before")


def _is_signed(found: Assertion, key: Any) -> bool:
    signed = JWS()
    signed.allowed_algs = [found.algorithm]
    try:
        signed.deserialize(found.text, key)
    except (JWException, ValueError, TypeError):
        return False
    return bool(signed.is_valid)


def _is_first(found: Assertion) -> bool:
    """Refused as well where the cache keeps nothing. It is to be one that all processes share."""
    what = json.dumps([found.client_id, found.claims["jti"]])
    place = f"django_mcp.oauth.jti:{hashlib.sha256(what.encode()).hexdigest()}"
    seconds = int(found.claims["exp"] - time.time()) + 2 * LEEWAY
    return bool(cache.add(place, True, seconds)) and cache.get(place) is not None
