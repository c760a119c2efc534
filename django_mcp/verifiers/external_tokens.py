"""Claims of external issuers' tokens, and the base class of their verifiers.

``ExternalTokens`` accepts a token only if it names this server or the configured audience, has the
required scopes, and the project's function finds an active user for its claims. That function gets
only verified claims. The reason of a rejection is logged, without the token, and not sent. The
exception is a missing scope, which the response names.

The functions on claims reject everything that is not plainly an access token with a subject.
Issuers use different claim names for the same thing: those are in the tables at the top.

``unverified_claims`` and ``is_foreign`` read unverified tokens, only to find out which issuer a
token may belong to. They must not be used to accept a token.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from django.core.exceptions import (
    ImproperlyConfigured,
    MultipleObjectsReturned,
    ObjectDoesNotExist,
)

from ..auth.principal import Auth, Principal
from ..exceptions import InsufficientScope
from ..runtime import threads
from .fetching import is_safe
from .protected_resource import canonical, challenge, resource

if TYPE_CHECKING:
    from ..declarations.server import Server

Claims = Mapping[str, Any]

SCOPE_CLAIMS = ("scope", "scp")  # RFC 8693, 4.2; Entra and Okta
CLIENT_CLAIMS = ("client_id", "azp", "cid", "appid")  # RFC 8693, 4.3; OpenID; Okta; Entra
SUBJECT_CLAIMS = ("sub", "username")  # RFC 7662, 2.2: an introspection may have the second alone
# Claims that state the kind of token, with their values for access tokens: Keycloak, Cognito,
# RFC 7662.
TYPE_CLAIMS = {
    "typ": {"bearer"},
    "token_use": {"access"},
    "token_type": {"bearer", "access", "access_token", "at+jwt"},
}
ID_TOKEN_CLAIMS = ("at_hash", "c_hash", "s_hash", "events")  # only in ID and logout tokens


class TokenRejected(Exception):
    """The token is not accepted. The message is for the log."""


def scopes(claims: Claims) -> frozenset[str]:
    """Return the scopes: the claim is a string separated by spaces, or a list."""
    values = (claims.get(name) for name in SCOPE_CLAIMS)
    value: Any = next((value for value in values if value is not None), [])
    names = value.split() if isinstance(value, str) else value
    return frozenset(map(str, names)) if isinstance(names, list) else frozenset()


def has_empty_scope(claims: Claims) -> bool:
    """Whether the token has a scope claim that is empty or not readable.

    A token without a scope claim is not restricted. An empty claim must not be taken for that.
    """
    return not scopes(claims) and any(claims.get(name) is not None for name in SCOPE_CLAIMS)


def text(claims: Claims, names: Collection[str]) -> str:
    """Return the first of these claims that is a non-empty string; "" if none is."""
    values = (claims.get(name) for name in names)
    return next((value for value in values if isinstance(value, str) and value), "")


def audiences(claims: Claims) -> list[str]:
    value = claims.get("aud")
    names = value if isinstance(value, list) else [value]
    return [name for name in names if isinstance(name, str)]


def has_audience(claims: Claims, resource: str, expected: str | None) -> bool:
    """Whether the token's audience contains ``expected``, or the server's URL if that is None.

    The server's URL is compared in canonical form, ``expected`` exactly.
    """
    if expected is not None:
        return expected in audiences(claims)
    return resource in map(canonical, audiences(claims))


def is_access_token(claims: Claims) -> bool:
    """Whether no claim shows that it is an ID token, a refresh token or a logout token.

    ID tokens have the ``nonce`` of their request. Some issuers also put it into access tokens, but
    only those have scopes.
    """
    for name, access_types in TYPE_CLAIMS.items():
        if name in claims and str(claims[name]).lower() not in access_types:
            return False
    if any(name in claims for name in ID_TOKEN_CLAIMS):
        return False
    return "nonce" not in claims or bool(scopes(claims))


def expiry(claims: Claims) -> datetime:
    """Return the expiry. Raise ``TokenRejected`` if it is missing or invalid."""
    try:
        return datetime.fromtimestamp(int(claims["exp"]), UTC)
    except (KeyError, ValueError, TypeError, OverflowError, OSError):
        raise TokenRejected("exp is missing or invalid") from None


def principal_key(issuer: str, claims: Claims) -> str:
    """Return a key of issuer, client and subject. It is the same for a renewed token."""
    identity = json.dumps([issuer, text(claims, CLIENT_CLAIMS), text(claims, SUBJECT_CLAIMS)])
    return f"issuer-{hashlib.sha256(identity.encode()).hexdigest()[:40]}"


OWN_PREFIX = "mcp_"  # of personal access tokens and client secrets that this site issues
BEARER_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # b64token of RFC 6750, section 2.1
COMPACT = re.compile(r"[A-Za-z0-9_-]+\.([A-Za-z0-9_-]+)\.[A-Za-z0-9_-]+")


def unverified_claims(token: str) -> dict[str, Any] | None:
    """Return the unverified claims of a JWT; None if the token is no JWT."""
    found = COMPACT.fullmatch(token)
    try:
        claims = json.loads(_decode(found[1])) if found else None
    except (ValueError, RecursionError):
        return None
    return claims if isinstance(claims, dict) else None


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def is_foreign(token: str, issuer: str) -> bool:
    """Whether a token plainly is not of ``issuer``. Then it must not be sent to that issuer."""
    if token.startswith(OWN_PREFIX) or not BEARER_TOKEN.fullmatch(token):
        return True
    return bool((unverified_claims(token) or {}).get("iss", issuer) != issuer)


logger = logging.getLogger("django_mcp.oauth")
FindUser = Callable[[dict[str, Any]], Any]


class ExternalTokens:
    """Base class of the ``TokenVerifier`` classes for tokens of one issuer."""

    def __init__(
        self,
        issuer: str,
        *,
        user: FindUser,
        audience: str | None = None,
        scopes: Collection[str] = (),
        advertised_scopes: Sequence[str] | None = None,
    ) -> None:
        self.issuer, self.audience = checked_url(issuer, "issuer"), audience
        self.scopes = frozenset(_scope_list(scopes, "scopes"))
        advertised = scopes if advertised_scopes is None else advertised_scopes
        self.advertised_scopes = list(_scope_list(advertised, "advertised_scopes"))
        if not callable(user) or iscoroutinefunction(user):
            raise ImproperlyConfigured("user must be a function of the claims, and not async.")
        if audience is not None and not (isinstance(audience, str) and audience):
            raise ImproperlyConfigured("audience must be a non-empty string, or None.")
        self._user = user

    def challenge(self, server: Server) -> dict[str, str]:
        return challenge(server, self.advertised_scopes)

    async def verify(self, token: str, server: Server) -> Principal | None:
        """Return the token's principal, or None if the token is not accepted.

        Raise ``Busy`` if it cannot be verified now, and ``InsufficientScope`` if only a scope is
        missing.
        """
        try:
            found = await self._read_claims(token)
            return None if found is None else await self._make_principal(*found, server)
        except TokenRejected as reason:
            logger.info("Token rejected: issuer=%s reason=%s", self.issuer, reason)
            return None

    async def _read_claims(self, token: str) -> tuple[dict[str, Any], datetime] | None:
        """Return the verified claims of a token and its expiry; None if it is another issuer's.

        Raise ``TokenRejected`` if it is not accepted, and ``Busy`` if it cannot be verified now.
        """
        raise NotImplementedError

    async def _make_principal(
        self, claims: dict[str, Any], expires: datetime, server: Server
    ) -> Principal:
        if reason := self._rejection_reason(claims, server):
            raise TokenRejected(reason)
        self._check_scopes(claims)  # before the project's function, which may create a user
        user = await threads.verifiers.run(self._find_user, claims)
        if user is None or not (user.is_authenticated and user.is_active):
            raise TokenRejected("its user is not known, or may not sign in")
        key = principal_key(self.issuer, claims)
        return Principal(user, Auth(scopes(claims), key=key, expires=expires))

    def _rejection_reason(self, claims: Claims, server: Server) -> str | None:
        """Return why the claims are not valid at ``server``; None if they are."""
        if not text(claims, SUBJECT_CLAIMS):
            return "it has no subject"
        if not is_access_token(claims):
            return "it is no access token"
        if "cnf" in claims:  # RFC 7800: it needs a proof of possession, which is not supported
            return "it is bound to a key"
        if not has_audience(claims, resource(server), self.audience):
            return f"not for {server.name!r}"
        return "its scopes allow nothing" if has_empty_scope(claims) else None

    def _check_scopes(self, claims: Claims) -> None:
        """Raise ``InsufficientScope`` with the scopes to request (RFC 6750, 3.1)."""
        if not self.scopes <= scopes(claims):
            logger.info("Token rejected: issuer=%s reason='a scope is missing'", self.issuer)
            raise InsufficientScope(self.advertised_scopes or sorted(self.scopes))

    def _find_user(self, claims: dict[str, Any]) -> Any:
        try:
            return self._user(dict(claims))
        except (ObjectDoesNotExist, MultipleObjectsReturned):
            return None


def checked_url(url: str, name: str) -> str:
    """Return ``url`` if it is safe. Raise ``ImproperlyConfigured`` if not."""
    if not is_safe(url):
        raise ImproperlyConfigured(f"{name} is {url!r}: it must be an https URL.")
    return url


def _scope_list(given: Collection[str], name: str) -> Collection[str]:
    if isinstance(given, str) or not all(isinstance(one, str) and one for one in given):
        raise ImproperlyConfigured(f"{name} is {given!r}: it must be a list of scopes.")
    return given
