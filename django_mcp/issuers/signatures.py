"""
Signatures of JWTs and what PyJWT can tell of them (RFC 7515, RFC 7519, RFC 8725).

Rule: only algorithms with a public key. The project says which; a token only which of these. No key
and no address of one is taken from a token, and no key that is weak, or so big that it costs time.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from .claims import NoToken

try:
    import jwt
    from jwt.exceptions import InvalidTokenError, PyJWTError
except ImportError as error:
    install = 'pip install "django-modelcontext[jwt]"'
    raise ImproperlyConfigured(f"PyJWT is not installed: {install}") from error

logger = logging.getLogger("django_mcp")
LEEWAY = 30  # seconds by which clocks differ
BITS = range(2048, 8193)  # of an RSA modulus
LONGEST_NAME = 255  # characters of a kid
# The algorithms that there are, and what their keys have.
ALGORITHMS: dict[str, dict[str, str]] = {
    **{name: {"kty": "RSA"} for name in ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")},
    "ES256": {"kty": "EC", "crv": "P-256"},
    "ES384": {"kty": "EC", "crv": "P-384"},
    "ES512": {"kty": "EC", "crv": "P-521"},
    "EdDSA": {"kty": "OKP", "crv": "Ed25519"},
}
LONGEST = {"n": 1366, "e": 6}  # characters
PUBLIC = ("kty", "crv", "n", "e", "x", "y")
NEEDED = ["iss", "sub", "aud", "exp"]


@dataclass(frozen=True, slots=True)
class Key:
    """A public key, and what its owner says that it is for."""

    said: Mapping[str, Any]
    public: Any

    def fits(self, algorithm: str, kid: str | None) -> bool:
        """Whether a signature of that kind, by a key of that name, may be by it."""
        return (
            all(self.said.get(name) == value for name, value in ALGORITHMS[algorithm].items())
            and self.said.get("alg") in (None, algorithm)
            and (kid is None or self.said.get("kid") == kid)
        )


def read_key(said: Any) -> Key | None:
    """A key of a JWK Set (RFC 7517); None if it is not for signatures, or not one to rely on."""
    if not isinstance(said, dict) or not _is_for_signatures(said) or _is_long(said):
        return None
    try:
        public: Any = jwt.PyJWK({name: said[name] for name in PUBLIC if name in said}).key
    except Exception as error:  # whatever a library makes of numbers that are none
        logger.info("A key of an issuer cannot be read: %s", type(error).__name__)
        return None
    if said["kty"] == "RSA" and public.key_size not in BITS:
        return None
    return Key(said, public)


def _is_for_signatures(said: dict[str, Any]) -> bool:
    if said.get("kty") not in ("RSA", "EC", "OKP"):
        return False
    operations = said.get("key_ops", ["verify"])
    return (
        said.get("use") in (None, "sig")
        and isinstance(operations, list)
        and ("verify" in operations)
    )


def _is_long(said: dict[str, Any]) -> bool:
    return any(len(str(said.get(name, ""))) > most for name, most in LONGEST.items())


def header_of(token: str) -> dict[str, Any]:
    """The header, of which nobody knows yet whether it is true; or ``NoToken``."""
    try:
        header = jwt.get_unverified_header(token)
    except (InvalidTokenError, ValueError, RecursionError):
        raise NoToken("it is no JWT") from None
    kid = header.get("kid")
    if "crit" in header or not (kid is None or 0 < len(kid) <= LONGEST_NAME):
        raise NoToken("its header asks for what is not known")
    return header


def verified(token: str, key: Key, algorithm: str, issuer: str) -> dict[str, Any]:
    """What a token says that ``key`` has signed, for now and by ``issuer``; or ``NoToken``.

    Whom it is for is not looked at.
    """
    options: Any = {"require": NEEDED, "verify_aud": False, "enforce_minimum_key_length": True}
    try:
        return jwt.decode(token, key.public, [algorithm], options, issuer=issuer, leeway=LEEWAY)
    except (InvalidTokenError, PyJWTError, ValueError, TypeError, OverflowError) as error:
        raise NoToken(type(error).__name__) from None
