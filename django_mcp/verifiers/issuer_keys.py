"""Public keys of an issuer (RFC 7517), and verification of JWT signatures with PyJWT.

``IssuerKeys`` caches the keys in this process. It fetches them at most once in
``FETCH_INTERVAL_SECONDS`` seconds, however many unknown key ids tokens name. If the issuer does not
respond, the last keys are used for ``MAX_KEY_AGE_SECONDS`` seconds. After that, ``Busy`` is raised
and no token is accepted.

Signatures follow RFC 7515, RFC 7519 and RFC 8725. Only algorithms with a public key are supported.
The project lists the accepted ones, and a token can only choose among them. Keys and key URLs in a
token are ignored. Weak keys, and keys so big that they are slow, are not used.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from ..exceptions import Busy
from .external_tokens import NoToken
from .fetching import UNKNOWN, IssuerUnavailable, RunningRequests, fetch

try:
    import jwt
    from jwt.exceptions import InvalidTokenError, PyJWTError
except ImportError as error:
    install = 'pip install "django-modelcontext[jwt]"'
    raise ImproperlyConfigured(f"PyJWT is not installed: {install}") from error

logger = logging.getLogger("django_mcp")
CLOCK_SKEW_SECONDS = 30  # seconds by which clocks may differ
BITS = range(2048, 8193)  # size of an RSA modulus
MAX_KEY_ID_LENGTH = 255  # characters of a kid
# The supported algorithms, and the members that their keys must have.
ALGORITHMS: dict[str, dict[str, str]] = {
    **{name: {"kty": "RSA"} for name in ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")},
    "ES256": {"kty": "EC", "crv": "P-256"},
    "ES384": {"kty": "EC", "crv": "P-384"},
    "ES512": {"kty": "EC", "crv": "P-521"},
    "EdDSA": {"kty": "OKP", "crv": "Ed25519"},
}
LONGEST = {"n": 1366, "e": 6}  # characters
PUBLIC = ("kty", "crv", "n", "e", "x", "y")
REQUIRED_CLAIMS = ["iss", "sub", "aud", "exp"]


@dataclass(frozen=True, slots=True)
class IssuerKey:
    """A public key, and its JWK with the intended use (``said``)."""

    said: Mapping[str, Any]
    public: Any

    def fits(self, algorithm: str, kid: str | None) -> bool:
        """Whether the key may have made a signature with this algorithm and key id."""
        return (
            all(self.said.get(name) == value for name, value in ALGORITHMS[algorithm].items())
            and self.said.get("alg") in (None, algorithm)
            and (kid is None or self.said.get("kid") == kid)
        )


def read_key(said: Any) -> IssuerKey | None:
    """Read a key of a JWK Set (RFC 7517).

    Return None if it is not for signatures, or invalid, weak or too big.
    """
    if not isinstance(said, dict) or not _is_for_signatures(said) or _is_long(said):
        return None
    try:
        public: Any = jwt.PyJWK({name: said[name] for name in PUBLIC if name in said}).key
    except Exception as error:  # libraries raise many types for invalid numbers
        logger.info("A key of an issuer cannot be read: %s", type(error).__name__)
        return None
    if said["kty"] == "RSA" and public.key_size not in BITS:
        return None
    return IssuerKey(said, public)


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
    """Return the unverified header of a JWT, or raise ``NoToken``."""
    try:
        header = jwt.get_unverified_header(token)
    except (InvalidTokenError, ValueError, RecursionError):
        raise NoToken("it is no JWT") from None
    kid = header.get("kid")
    if "crit" in header or not (kid is None or 0 < len(kid) <= MAX_KEY_ID_LENGTH):
        raise NoToken("its header asks for what is not known")
    return header


def verified(token: str, key: IssuerKey, algorithm: str, issuer: str) -> dict[str, Any]:
    """Verify the signature, times and issuer of a token, and return its claims.

    Raise ``NoToken`` if one is wrong. The audience is not verified here.
    """
    options: Any = {
        "require": REQUIRED_CLAIMS,
        "verify_aud": False,
        "enforce_minimum_key_length": True,
    }
    try:
        return jwt.decode(
            token, key.public, [algorithm], options, issuer=issuer, leeway=CLOCK_SKEW_SECONDS
        )
    except (InvalidTokenError, PyJWTError, ValueError, TypeError, OverflowError) as error:
        raise NoToken(type(error).__name__) from None


REFRESH_AFTER_SECONDS = 600.0  # seconds after which keys are fetched again
MAX_KEY_AGE_SECONDS = 14_400.0  # seconds for which old keys are used if they cannot be fetched
FETCH_INTERVAL_SECONDS = 10.0  # seconds between two fetches
MAX_KEYS = 64  # keys of a document that are read
MAX_KEYS_PER_SIGNATURE = 4  # keys that one signature is verified with


class IssuerKeys:
    """The cached keys of ``issuer``.

    ``place`` returns their URL. It is called in a thread and may raise ``IssuerUnavailable``.
    """

    def __init__(self, issuer: str, place: Callable[[], str]) -> None:
        self.issuer, self._place = issuer, place
        self._flights: RunningRequests[None] = RunningRequests()
        # The keys, and the monotonic time of the fetch.
        self._known: tuple[list[IssuerKey], float] = ([], -math.inf)
        self._tried = -math.inf  # monotonic time of the last attempt

    async def matching(self, algorithm: str, kid: str | None) -> list[IssuerKey]:
        """Return the keys that fit a signature; maybe none. Raise ``Busy`` if that is not known.

        Fetch the keys if they are old or none fits. If an old key fits and the last fetch failed,
        do not wait for the new fetch.
        """
        found = self._fitting(algorithm, kid)
        if not found or self._age() > REFRESH_AFTER_SECONDS:
            await self._look(patient=not (found and self._is_away()))
            found = self._fitting(algorithm, kid)
        if not found and self._age() > FETCH_INTERVAL_SECONDS:
            raise Busy(UNKNOWN)
        return found

    def _is_away(self) -> bool:
        """Whether the last fetch failed."""
        return self._tried > self._known[1]

    def _age(self) -> float:
        return time.monotonic() - self._known[1]

    def _fitting(self, algorithm: str, kid: str | None) -> list[IssuerKey]:
        known = self._known[0] if self._age() <= MAX_KEY_AGE_SECONDS else []
        return [key for key in known if key.fits(algorithm, kid)][:MAX_KEYS_PER_SIGNATURE]

    async def _look(self, *, patient: bool) -> None:
        """Fetch the keys, unless that was tried less than ``FETCH_INTERVAL_SECONDS`` seconds ago.

        Wait for the result only if ``patient``.
        """
        if time.monotonic() - self._tried < FETCH_INTERVAL_SECONDS:
            return
        with suppress(Busy):
            if patient:
                await self._flights.run("keys", self._fetch)
            else:
                self._flights.begin("keys", self._fetch)

    def _fetch(self) -> None:
        try:
            found = fetch(self._place()).get("keys")
            if not isinstance(found, list):
                raise IssuerUnavailable("it has no keys")
        except IssuerUnavailable as error:
            logger.warning("The keys of %s cannot be had: %s", self.issuer, error)
            self._tried = time.monotonic()
        else:
            read = map(read_key, found[:MAX_KEYS])
            self._tried = time.monotonic()
            self._known = ([key for key in read if key is not None], self._tried)
