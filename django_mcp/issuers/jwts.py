"""
JWT access tokens of an issuer elsewhere, verified by its keys (RFC 9068, and what was before it).

Rule: what is no JWT of this issuer is some other verifier's, and costs nothing. Nobody asks the
issuer for each token: what it takes back before the end of a token stays good until then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured

from . import claims as said
from .discovery import Discovery
from .issued import FindUser, IssuedTokens, checked
from .keys import Keys
from .signatures import ALGORITHMS, header_of, verified
from .unread import claims_of

if TYPE_CHECKING:
    from ..declare.servers import Server

ACCESS = {"at+jwt", "application/at+jwt"}  # RFC 9068, 2.1
PLAIN = {"jwt", "application/jwt", ""}
NEEDED = ("client_id", "iat", "jti")  # RFC 9068, 2.2, beside what every token must have


class JWTTokens(IssuedTokens):
    """The ``TokenVerifier`` of JWT access tokens of one issuer.

    ``issuer`` is its name, exactly as in its tokens; ``user`` a function of the claims that returns
    a user or None, in a thread that may ask the database. ``audience`` is what tokens must be for:
    None is the server itself, by its URL. ``scopes`` are those that a token must have, all of them;
    ``ask`` those that clients are told to ask for, if they have other names there. ``jwks_uri`` is
    for issuers whose metadata does not tell it; ``algorithms`` are those of its signatures;
    ``at_jwt`` takes only tokens whose type and claims are those of RFC 9068.

    Raises ``ImproperlyConfigured``. ``verify`` raises ``Busy`` where no keys can be had.
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
        self._keys = Keys(issuer, _place(issuer, jwks_uri))

    async def _read(self, token: str) -> tuple[dict[str, Any], datetime] | None:
        claims = claims_of(token)
        if claims is None or claims.get("iss") != self.issuer:
            return None
        verified = await self._verified(token)
        return verified, said.expiry(verified)

    async def _verified(self, token: str) -> dict[str, Any]:
        header = header_of(token)
        algorithm, kind = header.get("alg"), str(header.get("typ") or "").lower()
        if algorithm not in self.algorithms:
            raise said.NoToken("it is signed in a way that is not taken")
        if kind not in (ACCESS if self.at_jwt else ACCESS | PLAIN):
            raise said.NoToken("it is no access token")
        error = said.NoToken("no key of the issuer fits")
        for key in await self._keys.matching(algorithm, header.get("kid")):
            try:
                return verified(token, key, algorithm, self.issuer)
            except said.NoToken as reason:
                error = reason
        raise error

    def _wrong(self, claims: said.Claims, server: Server) -> str | None:
        if self.at_jwt and not all(claims.get(name) for name in NEEDED):
            return "it lacks what RFC 9068 requires"
        return super()._wrong(claims, server)


def _taken(algorithms: Collection[str]) -> list[str]:
    """Raises ``ImproperlyConfigured`` for what anybody could sign by who can verify it."""
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
