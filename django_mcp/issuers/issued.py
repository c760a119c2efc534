"""
What tokens of an issuer have in common, however they are verified.

Rule: a token is good for the server or the audience that it names, with the scopes that are wanted,
for the user whom the project finds: that is asked only of what is true. Why a token is refused is
for the log alone, which never has the token; but who lacks nothing but a scope is told which.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from django.core.exceptions import (
    ImproperlyConfigured,
    MultipleObjectsReturned,
    ObjectDoesNotExist,
)

from .. import threads
from ..exceptions import InsufficientScope
from ..principal import Auth, Principal
from ..protected.metadata import challenge
from ..protected.names import resource
from . import claims as said
from .claims import Claims, NoToken
from .fetching import is_safe

if TYPE_CHECKING:
    from ..declare.servers import Server

logger = logging.getLogger("django_mcp")
FindUser = Callable[[dict[str, Any]], Any]


class IssuedTokens:
    """The base of verifiers of one issuer's tokens."""

    def __init__(
        self,
        issuer: str,
        *,
        user: FindUser,
        audience: str | None = None,
        scopes: Collection[str] = (),
        ask: Sequence[str] | None = None,
    ) -> None:
        self.issuer, self.audience = checked(issuer, "issuer"), audience
        self.scopes = frozenset(_several(scopes, "scopes"))
        self.asked = list(_several(scopes if ask is None else ask, "ask"))
        if not callable(user) or iscoroutinefunction(user):
            raise ImproperlyConfigured("user is no function of the claims that returns a user.")
        if audience is not None and not (isinstance(audience, str) and audience):
            raise ImproperlyConfigured("audience is the one that tokens name, or None.")
        self._user = user

    def challenge(self, server: Server) -> dict[str, str]:
        return challenge(server, self.asked)

    async def verify(self, token: str, server: Server) -> Principal | None:
        """Raises ``Busy`` if nobody can tell, ``InsufficientScope`` if that is what it lacks."""
        try:
            read = await self._read(token)
            return None if read is None else await self._principal(*read, server)
        except NoToken as reason:
            logger.info("A token of %s was refused: %s", self.issuer, reason)
            return None

    async def _read(self, token: str) -> tuple[dict[str, Any], datetime] | None:
        """What is true of a token, and its end; None if it is no token of the issuer's.

        Raises ``NoToken`` or ``Busy``.
        """
        raise NotImplementedError

    async def _principal(
        self, claims: dict[str, Any], expires: datetime, server: Server
    ) -> Principal:
        if wrong := self._wrong(claims, server):
            raise NoToken(wrong)
        self._check_scopes(claims)  # before a user is asked for, or even made
        user = await threads.verifiers.run(self._found, claims)
        if user is None or not (user.is_authenticated and user.is_active):
            raise NoToken("its user is not known, or may not sign in")
        key = said.key(self.issuer, claims)
        return Principal(user, Auth(said.scopes(claims), key=key, expires=expires))

    def _wrong(self, claims: Claims, server: Server) -> str | None:
        """Why it is not good for ``server``."""
        if not said.text(claims, said.SUBJECTS):
            return "it is nobody's"
        if not said.is_of_access(claims):
            return "it is no access token"
        if "cnf" in claims:  # RFC 7800: who brings it has to show more than we look at
            return "it is bound to a key"
        if not said.is_for(claims, resource(server), self.audience):
            return f"not for {server.name!r}"
        return "its scopes allow nothing" if said.allows_nothing(claims) else None

    def _check_scopes(self, claims: Claims) -> None:
        """Raises ``InsufficientScope`` with all that clients are to ask for (RFC 6750, 3.1)."""
        if not self.scopes <= said.scopes(claims):
            logger.info("A token of %s was refused: it lacks a scope", self.issuer)
            raise InsufficientScope(self.asked or sorted(self.scopes))

    def _found(self, claims: dict[str, Any]) -> Any:
        try:
            return self._user(dict(claims))
        except (ObjectDoesNotExist, MultipleObjectsReturned):
            return None


def checked(url: str, name: str) -> str:
    """A URL of the issuer's. Raises ``ImproperlyConfigured``."""
    if not is_safe(url):
        raise ImproperlyConfigured(f"{name} is {url!r}: it is no https URL.")
    return url


def _several(given: Collection[str], name: str) -> Collection[str]:
    if isinstance(given, str) or not all(isinstance(one, str) and one for one in given):
        raise ImproperlyConfigured(f"{name} is {given!r}: it is a list of scopes.")
    return given
