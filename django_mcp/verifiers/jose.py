"""JSON Web Keys and JWS signatures of other parties (RFC 7515, 7517, 7519, 8725), with jwcrypto.

The keys come from a URL that the project or a client named. Only algorithms with a public key are
supported: with a symmetric one, everybody who can verify a signature could also make it. A token
can only choose among the algorithms that its verifier accepts, and keys and key URLs in its header
are ignored. Weak keys, and keys so big that they are slow, are not used.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Collection, Mapping
from typing import Any, TypeGuard

from django.core.exceptions import ImproperlyConfigured

try:
    from jwcrypto.common import JWException, base64url_decode
    from jwcrypto.jwk import JWK
    from jwcrypto.jws import JWS
except ImportError as error:
    install = 'pip install "django-modelcontext[jwt]"'
    raise ImproperlyConfigured(f"jwcrypto is not installed: {install}") from error

CLOCK_SKEW_SECONDS = 30  # seconds by which the clocks of two servers may differ
MAX_KEYS_IN_SET = 64  # keys of a document that are read
MAX_KEYS_PER_SIGNATURE = 4  # keys that one signature is verified with
MAX_KEY_ID_LENGTH = 255  # characters of a kid
RSA_BITS = range(2048, 8193)  # size of an RSA modulus
MAX_MEMBER_LENGTHS = {"n": 1366, "e": 6}  # characters
# The supported algorithms, and the members that their keys must have.
ALGORITHMS: dict[str, dict[str, str]] = {
    **{name: {"kty": "RSA"} for name in ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")},
    "ES256": {"kty": "EC", "crv": "P-256"},
    "ES384": {"kty": "EC", "crv": "P-384"},
    "ES512": {"kty": "EC", "crv": "P-521"},
    "EdDSA": {"kty": "OKP", "crv": "Ed25519"},
}
PUBLIC_MEMBERS = ("kty", "crv", "n", "e", "x", "y")  # private members of a key are never used
COMPACT = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.[A-Za-z0-9_-]+")
logger = logging.getLogger("django_mcp.oauth")


class InvalidJWT(Exception):
    """The token is not a valid JWT. The message is for the log, and contains no part of it."""


# Keys.


def read_key(jwk: Any) -> JWK | None:
    """Return the public key of a JWK.

    Return None if it is not for signatures, or invalid, weak or too big.
    """
    if not isinstance(jwk, dict) or not _is_for_signatures(jwk) or _is_long(jwk):
        return None
    try:
        key = JWK(**{name: jwk[name] for name in PUBLIC_MEMBERS if name in jwk})
        public = key.get_op_key("verify")
    except Exception as error:  # libraries raise many types for invalid numbers
        logger.info("Public key ignored: error=%s", type(error).__name__)
        return None
    return None if jwk["kty"] == "RSA" and public.key_size not in RSA_BITS else key


def fits(jwk: Mapping[str, Any], algorithm: str, kid: str | None) -> bool:
    """Whether a JWK may have made a signature with this algorithm and key id."""
    return (
        all(jwk.get(name) == value for name, value in ALGORITHMS[algorithm].items())
        and jwk.get("alg") in (None, algorithm)
        and (kid is None or jwk.get("kid") == kid)
    )


def _is_for_signatures(jwk: dict[str, Any]) -> bool:
    if jwk.get("kty") not in ("RSA", "EC", "OKP"):
        return False
    operations = jwk.get("key_ops", ["verify"])
    return (
        jwk.get("use") in (None, "sig") and isinstance(operations, list) and "verify" in operations
    )


def _is_long(jwk: dict[str, Any]) -> bool:
    return any(
        len(str(jwk.get(name, ""))) > max_length for name, max_length in MAX_MEMBER_LENGTHS.items()
    )


# Tokens.


def read_unverified(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the header and the claims of a JWT, whose signature is not verified yet.

    Raise ``InvalidJWT``. A token with critical header parameters is invalid, because none is
    supported (RFC 7515, 4.1.11).
    """
    found = COMPACT.fullmatch(token)
    if not found:
        raise InvalidJWT("it is not a signed JWT")
    header, claims = (_decode_part(part) for part in found.groups())
    kid = header.get("kid")
    if "crit" in header:
        raise InvalidJWT("its header has critical parameters")
    if not (kid is None or (isinstance(kid, str) and 0 < len(kid) <= MAX_KEY_ID_LENGTH)):
        raise InvalidJWT("its key id is empty, too long or not a string")
    return header, claims


def _decode_part(part: str) -> dict[str, Any]:
    try:
        found = json.loads(base64url_decode(part), parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidJWT("a part of it is not a JSON object")
    return found


def _reject_constant(name: str) -> None:
    """Reject NaN and infinities, which Python reads and JSON does not have."""
    raise ValueError(name)


def is_time(value: Any) -> TypeGuard[float]:
    """Whether a claim is a NumericDate (RFC 7519, 2)."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_times(claims: Mapping[str, Any]) -> None:
    """Raise ``InvalidJWT`` if a token is expired, not valid yet, or without an expiry."""
    now = time.time()
    ends, begins, issued = (claims.get(name, now) for name in ("exp", "nbf", "iat"))
    if "exp" not in claims or not (is_time(ends) and is_time(begins) and is_time(issued)):
        raise InvalidJWT("exp is missing, or a time is not a number")
    if ends <= now - CLOCK_SKEW_SECONDS:
        raise InvalidJWT("it has expired")
    if max(begins, issued) > now + CLOCK_SKEW_SECONDS:
        raise InvalidJWT("it is not valid yet")


def is_signed(token: str, keys: Collection[JWK], algorithm: str) -> bool:
    """Whether one of ``keys`` made the signature of a token with ``algorithm``.

    At most ``MAX_KEYS_PER_SIGNATURE`` keys are tried, because each costs CPU time.
    """
    signed = JWS()
    # Not the algorithm of the token's header: that is what an attacker can choose.
    signed.allowed_algs = [algorithm]
    try:
        signed.deserialize(token)
    except (JWException, ValueError, TypeError):
        return False
    return any(_is_by(signed, key) for key in list(keys)[:MAX_KEYS_PER_SIGNATURE])


def _is_by(signed: JWS, key: JWK) -> bool:
    try:
        signed.verify(key)
    except (JWException, ValueError, TypeError):
        return False
    return bool(signed.is_valid)
