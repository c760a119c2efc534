"""
Verification of JWT access tokens of an external issuer, by its public keys (RFC 9068 and older).

Tokens that are no JWT of this issuer are left to other verifiers, without a signature check. The
issuer is not asked about each token, so a revoked token stays valid until it expires.

``IssuerKeys`` caches the issuer's keys in this process. It fetches them at most once in
``FETCH_INTERVAL_SECONDS`` seconds, however many unknown key ids tokens name. If the issuer does not
respond, the last keys are used for ``MAX_KEY_AGE_SECONDS`` seconds. After that, ``Busy`` is raised
and no token is accepted.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured

from ..exceptions import Busy
from .external_tokens import (
    Claims,
    ExternalTokens,
    FindUser,
    TokenRejected,
    checked_url,
    expiry,
    unverified_claims,
)
from .fetching import CANNOT_VERIFY, Discovery, FetchError, RunningRequests, fetch
from .jose import (
    ALGORITHMS,
    MAX_KEYS_IN_SET,
    InvalidJWT,
    check_times,
    fits,
    is_signed,
    read_key,
    read_unverified,
)

if TYPE_CHECKING:
    from jwcrypto.jwk import JWK

    from ..declarations.server import Server

logger = logging.getLogger("django_mcp.oauth")
ACCESS_TOKEN_TYPES = {"at+jwt", "application/at+jwt"}  # RFC 9068, 2.1
GENERIC_TYPES = {"jwt", "application/jwt", ""}
# RFC 9068, 2.2, besides the claims that every token must have.
REQUIRED_BY_RFC9068 = ("client_id", "iat", "jti")


class JWTTokens(ExternalTokens):
    """The ``TokenVerifier`` for JWT access tokens of one issuer.

    - ``issuer``: its identifier, exactly as in the ``iss`` claim of its tokens
    - ``user``: a function of the claims that returns a user or None. It runs in a thread and may
      query the database
    - ``audience``: the audience that tokens must have. None means the URL of the MCP server
    - ``scopes``: the scopes that a token must have, all of them
    - ``advertised_scopes``: the scopes that clients are told to request. None means ``scopes``
    - ``jwks_uri``: the URL of the keys, if the issuer's metadata does not contain it
    - ``algorithms``: the accepted signature algorithms
    - ``at_jwt``: accept only tokens with the type and claims of RFC 9068

    Raise ``ImproperlyConfigured`` for wrong arguments. ``verify`` raises ``Busy`` if the keys
    cannot be fetched.
    """

    def __init__(
        self,
        issuer: str,
        *,
        user: FindUser,
        audience: str | None = None,
        scopes: Collection[str] = (),
        advertised_scopes: Sequence[str] | None = None,
        jwks_uri: str | None = None,
        algorithms: Collection[str] = tuple(ALGORITHMS),
        at_jwt: bool = False,
    ) -> None:
        super().__init__(
            issuer,
            user=user,
            audience=audience,
            scopes=scopes,
            advertised_scopes=advertised_scopes,
        )
        self.algorithms, self.at_jwt = _checked_algorithms(algorithms), at_jwt
        self._keys = IssuerKeys(issuer, _keys_url(issuer, jwks_uri))

    async def _read_claims(self, token: str) -> tuple[dict[str, Any], datetime] | None:
        claims = unverified_claims(token)
        if claims is None or claims.get("iss") != self.issuer:
            return None
        verified = await self._verified(token)
        return verified, expiry(verified)

    async def _verified(self, token: str) -> dict[str, Any]:
        try:
            header, claims = read_unverified(token)
            check_times(claims)
        except InvalidJWT as reason:
            raise TokenRejected(str(reason)) from None
        algorithm, kind = header.get("alg"), str(header.get("typ") or "").lower()
        if algorithm not in self.algorithms:
            raise TokenRejected("its signature algorithm is not accepted")
        if kind not in (ACCESS_TOKEN_TYPES if self.at_jwt else ACCESS_TOKEN_TYPES | GENERIC_TYPES):
            raise TokenRejected("its header names another type of token")
        keys = await self._keys.find_keys(algorithm, header.get("kid"))
        if not is_signed(token, keys, algorithm):
            raise TokenRejected("its signature is not by a key of the issuer")
        return claims

    def _rejection_reason(self, claims: Claims, server: Server) -> str | None:
        if self.at_jwt and not all(claims.get(name) for name in REQUIRED_BY_RFC9068):
            return "it lacks a claim that RFC 9068 requires"
        return super()._rejection_reason(claims, server)


def _checked_algorithms(algorithms: Collection[str]) -> list[str]:
    """Return the algorithms. Raise ``ImproperlyConfigured`` for unknown and symmetric ones.

    With a symmetric algorithm, everybody who can verify tokens could also sign them.
    """
    unknown = [name for name in algorithms if name not in ALGORITHMS]
    if unknown or not algorithms or isinstance(algorithms, str):
        known = ", ".join(ALGORITHMS)
        raise ImproperlyConfigured(f"algorithms is {algorithms!r}: it must be a list of {known}.")
    return list(algorithms)


def _keys_url(issuer: str, jwks_uri: str | None) -> Callable[[], str]:
    if jwks_uri is None:
        discovery = Discovery(issuer)
        return lambda: discovery.endpoint("jwks_uri")
    url = checked_url(jwks_uri, "jwks_uri")
    return lambda: url


# Keys of an issuer.


REFRESH_AFTER_SECONDS = 600.0  # seconds after which keys are fetched again
MAX_KEY_AGE_SECONDS = 14_400.0  # seconds for which old keys are used if they cannot be fetched
FETCH_INTERVAL_SECONDS = 10.0


class IssuerKeys:
    """The cached keys of ``issuer``.

    ``keys_url`` returns their URL. It is called in a thread and may raise ``FetchError``.
    """

    def __init__(self, issuer: str, keys_url: Callable[[], str]) -> None:
        self.issuer, self._keys_url = issuer, keys_url
        self._requests: RunningRequests[None] = RunningRequests()
        # Each JWK with its public key, and the monotonic time of the fetch.
        self._cached_keys: tuple[list[tuple[dict[str, Any], JWK]], float] = ([], -math.inf)
        self._last_attempt = -math.inf  # monotonic time of the last fetch, also of a failed one

    async def find_keys(self, algorithm: str, kid: str | None) -> list[JWK]:
        """Return the keys that fit a signature; maybe none. Raise ``Busy`` if the keys are unknown.

        Fetch the keys if they are old or none fits. If an old key fits and the last fetch failed,
        do not wait for the new fetch.
        """
        fitting = self._fitting_keys(algorithm, kid)
        if not fitting or self._age() > REFRESH_AFTER_SECONDS:
            await self._refresh_keys(wait=not (fitting and self._has_failed()))
            fitting = self._fitting_keys(algorithm, kid)
        if not fitting and self._age() > FETCH_INTERVAL_SECONDS:
            raise Busy(CANNOT_VERIFY)
        return fitting

    def _has_failed(self) -> bool:
        """Whether the last fetch failed."""
        return self._last_attempt > self._cached_keys[1]

    def _age(self) -> float:
        return time.monotonic() - self._cached_keys[1]

    def _fitting_keys(self, algorithm: str, kid: str | None) -> list[JWK]:
        known = self._cached_keys[0] if self._age() <= MAX_KEY_AGE_SECONDS else []
        return [key for jwk, key in known if fits(jwk, algorithm, kid)]

    async def _refresh_keys(self, *, wait: bool) -> None:
        """Fetch the keys, unless that was tried less than ``FETCH_INTERVAL_SECONDS`` seconds ago.

        Wait for the result only if ``wait``.
        """
        if time.monotonic() - self._last_attempt < FETCH_INTERVAL_SECONDS:
            return
        with suppress(Busy):
            if wait:
                await self._requests.run("keys", self._fetch)
            else:
                self._requests.begin("keys", self._fetch)

    def _fetch(self) -> None:
        try:
            found = fetch(self._keys_url()).get("keys")
            if not isinstance(found, list):
                raise FetchError("it has no keys")
        except FetchError as error:
            logger.warning("Keys of an issuer unavailable: issuer=%s error=%s", self.issuer, error)
            self._last_attempt = time.monotonic()
        else:
            keys = [(jwk, key) for jwk in found[:MAX_KEYS_IN_SET] if (key := read_key(jwk))]
            self._last_attempt = time.monotonic()
            self._cached_keys = (keys, self._last_attempt)
