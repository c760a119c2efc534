"""
What is said of a token, by itself or by its issuer, and how issuers differ in saying it.

Rule: what is not plainly an access token, for this server, of somebody, is none. The names that
issuers have for one thing are in tables.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any

from ..protected.names import canonical

Claims = Mapping[str, Any]

SCOPES = ("scope", "scp")  # RFC 8693, 4.2; Entra and Okta
CLIENTS = ("client_id", "azp", "cid", "appid")  # RFC 8693, 4.3; OpenID; Okta; Entra
SUBJECTS = ("sub", "username")  # RFC 7662, 2.2: an introspection may have the second alone
# Of what some issuers say what a token is: Keycloak, Cognito, RFC 7662.
KINDS = {
    "typ": {"bearer"},
    "token_use": {"access"},
    "token_type": {"bearer", "access", "access_token", "at+jwt"},
}
NOT_OF_ACCESS = ("at_hash", "c_hash", "s_hash", "events")  # ID tokens and logout tokens


class NoToken(Exception):
    """What is no token that could be taken. In words for the log."""


def scopes(claims: Claims) -> frozenset[str]:
    """A text with blanks, or a list."""
    found = (claims.get(name) for name in SCOPES)
    said: Any = next((one for one in found if one is not None), [])
    words = said.split() if isinstance(said, str) else said
    return frozenset(map(str, words)) if isinstance(words, list) else frozenset()


def allows_nothing(claims: Claims) -> bool:
    """Whether it says what its scopes are, and that is none, or none that can be read.

    One that says nothing of scopes is not narrowed; one that is narrowed to nothing is not that.
    """
    return not scopes(claims) and any(claims.get(name) is not None for name in SCOPES)


def text(claims: Claims, names: Collection[str]) -> str:
    """The first of these that is said; "" if none is."""
    found = (claims.get(name) for name in names)
    return next((one for one in found if isinstance(one, str) and one), "")


def audiences(claims: Claims) -> list[str]:
    said = claims.get("aud")
    named = said if isinstance(said, list) else [said]
    return [one for one in named if isinstance(one, str)]


def is_for(claims: Claims, resource: str, expected: str | None) -> bool:
    """Whether it is for a server, by its own name in any spelling, or by the expected one."""
    if expected is not None:
        return expected in audiences(claims)
    return resource in map(canonical, audiences(claims))


def is_of_access(claims: Claims) -> bool:
    """Whether nothing says that it is an ID token, a refresh token, or for a logout.

    Who asked for an ID token with a nonce finds it there; some issuers put it into access tokens
    too, which have scopes.
    """
    fits = (str(claims[name]).lower() in kinds for name, kinds in KINDS.items() if name in claims)
    if not all(fits) or any(name in claims for name in NOT_OF_ACCESS):
        return False
    return "nonce" not in claims or bool(scopes(claims))


def expiry(claims: Claims) -> datetime:
    """When it ends; or ``NoToken``, if what is said is no time."""
    try:
        return datetime.fromtimestamp(int(claims["exp"]), UTC)
    except (KeyError, ValueError, TypeError, OverflowError, OSError):
        raise NoToken("it has no end") from None


def key(issuer: str, claims: Claims) -> str:
    """A name of whom it was given to, and by whom: the same for the token that follows it."""
    named = json.dumps([issuer, text(claims, CLIENTS), text(claims, SUBJECTS)])
    return f"issuer-{hashlib.sha256(named.encode()).hexdigest()[:40]}"
