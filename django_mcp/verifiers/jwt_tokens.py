"""
Verification of JWT access tokens of an external issuer, by its public keys (RFC 9068 and older).

Tokens that are no JWT of this issuer are left to other verifiers, without a signature check. The
issuer is not asked about each token, so a revoked token stays valid until it expires.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured

from .external_tokens import Claims, ExternalTokens, FindUser, NoToken, checked, claims_of, expiry
from .fetching import Discovery
from .issuer_keys import ALGORITHMS, IssuerKeys, header_of, verified

if TYPE_CHECKING:
    from ..declarations.server import Server

ACCESS = {"at+jwt", "application/at+jwt"}  # RFC 9068, 2.1
PLAIN = {"jwt", "application/jwt", ""}
REQUIRED_BY_RFC9068 = (
    "client_id",
    "iat",
    "jti",
)  # RFC 9068, 2.2, besides the claims that every token must have


class JWTTokens(ExternalTokens):
    """The ``TokenVerifier`` for JWT access tokens of one issuer.

    - ``issuer``: its identifier, exactly as in the ``iss`` claim of its tokens
    - ``user``: a function of the claims that returns a user or None. It runs in a thread and may
      query the database
    - ``audience``: the audience that tokens must have. None means the URL of the MCP server
    - ``scopes``: the scopes that a token must have, all of them
    - ``ask``: the scopes that clients are told to request, if they differ from ``scopes``
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
        ask: Sequence[str] | None = None,
        jwks_uri: str | None = None,
        algorithms: Collection[str] = tuple(ALGORITHMS),
        at_jwt: bool = False,
    ) -> None:
        super().__init__(issuer, user=user, audience=audience, scopes=scopes, ask=ask)
        self.algorithms, self.at_jwt = _taken(algorithms), at_jwt
        self._keys = IssuerKeys(issuer, _place(issuer, jwks_uri))

    async def _read(self, token: str) -> tuple[dict[str, Any], datetime] | None:
        claims = claims_of(token)
        if claims is None or claims.get("iss") != self.issuer:
            return None
        verified = await self._verified(token)
        return verified, expiry(verified)

    async def _verified(self, token: str) -> dict[str, Any]:
        header = header_of(token)
        algorithm, kind = header.get("alg"), str(header.get("typ") or "").lower()
        if algorithm not in self.algorithms:
            raise NoToken("it is signed in a way that is not taken")
        if kind not in (ACCESS if self.at_jwt else ACCESS | PLAIN):
            raise NoToken("it is no access token")
        error = NoToken("no key of the issuer fits")
        for key in await self._keys.matching(algorithm, header.get("kid")):
            try:
                return verified(token, key, algorithm, self.issuer)
            except NoToken as reason:
                error = reason
        raise error

    def _wrong(self, claims: Claims, server: Server) -> str | None:
        if self.at_jwt and not all(claims.get(name) for name in REQUIRED_BY_RFC9068):
            return "it lacks what RFC 9068 requires"
        return super()._wrong(claims, server)


def _taken(algorithms: Collection[str]) -> list[str]:
    """Return the algorithms. Raise ``ImproperlyConfigured`` for unknown and symmetric ones.

    With a symmetric algorithm, everybody who can verify tokens could also sign them.
    """
    wrong = [one for one in algorithms if one not in ALGORITHMS]
    if wrong or not algorithms or isinstance(algorithms, str):
        known = ", ".join(ALGORITHMS)
        raise ImproperlyConfigured(f"algorithms is {algorithms!r}: it is a list of {known}.")
    return list(algorithms)


def _place(issuer: str, jwks_uri: str | None) -> Callable[[], str]:
    if jwks_uri is None:
        discovery = Discovery(issuer)
        return lambda: discovery.endpoint("jwks_uri")
    given = checked(jwks_uri, "jwks_uri")
    return lambda: given
