"""
Who is calling: a user, and what their token adds or takes away.

Rule: a principal is a value, loaded afresh for every call and never lazy; a
user that is not active is nobody.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable
from urllib.parse import quote

from . import threads

if TYPE_CHECKING:
    from datetime import datetime

LONGEST_KEY = 255  # characters: what a column of every database can hold and index


@dataclass(frozen=True, slots=True)
class Auth:
    """What a verified token says: its scopes, the application it was given to, and its end.

    ``key`` names a token that belongs to no application, so that what was begun
    with it is not gone on with by another; it is a name, never the token.
    """

    scopes: frozenset[str] = frozenset()
    application: Any = None
    key: str = ""
    expires: datetime | None = None


@dataclass(frozen=True, slots=True)
class Principal:
    """The user a call acts as, and the token it came with.

    ``user`` is a loaded user or an ``AnonymousUser``; ``auth`` is None where no
    token is involved, as over stdio.
    """

    user: Any
    auth: Auth | None = None

    def __post_init__(self) -> None:
        """Whoever may not sign in is nobody, to the project's code as well."""
        if self.user.is_authenticated and not self.user.is_active:
            object.__setattr__(self, "user", _nobody())

    @property
    def key(self) -> str:
        """A stable name, to bind sessions, sealed state and limits to; "" is nobody.

        It tells apart users, and what each of their tokens was given to.
        """
        application = getattr(self.auth and self.auth.application, "pk", "")
        grant = (application, self.auth.key if self.auth else "")
        if self.is_authenticated:
            return _name(self.user.pk, *grant)
        return _name(*grant) if any(grant) else ""

    @property
    def is_authenticated(self) -> bool:
        return bool(self.user.is_authenticated and self.user.is_active)


@runtime_checkable
class TokenVerifier(Protocol):
    """Turns the token of a request into a principal."""

    async def verify(self, token: str, server: Any) -> Principal | None:
        """Who ``token`` speaks for on ``server``, a ``Server``; None when it is not valid there."""
        ...


class LookupVerifier:
    """A ``TokenVerifier`` that only asks the database: ``lookup`` is all there is to write.

    The endpoint asks it in the hop that finds the session as well. A subclass with a ``verify``
    of its own is asked by that alone.
    """

    def lookup(self, token: str, server: Any) -> Principal | None:
        """Called in a thread that may ask the database."""
        raise NotImplementedError

    async def verify(self, token: str, server: Any) -> Principal | None:
        return await threads.lookups.run(self.lookup, token, server)


def _name(*parts: Any) -> str:
    """Parts in one word. A part that holds a colon is not mistaken for two."""
    name = ":".join(quote(str(part), safe="") for part in parts)
    if len(name) <= LONGEST_KEY:
        return name
    return hashlib.sha256(name.encode()).hexdigest()


def anonymous() -> Principal:
    """Nobody in particular: sees what is public, and no more."""
    return Principal(_nobody())


def _nobody() -> Any:
    from django.contrib.auth.models import AnonymousUser

    return AnonymousUser()
