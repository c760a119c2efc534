"""
Who is calling: a user, and what their token adds or takes away.

Rule: a principal is a value, loaded afresh for every call and never lazy; a
user that is not active is nobody.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable
from urllib.parse import quote, unquote

from django.utils.module_loading import import_string

from . import threads
from .conf import settings

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


@runtime_checkable
class Revoking(Protocol):
    """A ``TokenVerifier`` that can tell which of its tokens were taken back."""

    def standing(self, keys: Collection[str]) -> Mapping[str, bool]:
        """Of these ``Principal.key``, those that are its own: whether what each names still holds.

        Not if its token was revoked or its user may not sign in; that a token has expired is no
        matter here. Called in a thread that may ask the database, every few seconds and for all
        that is open at once: it should take one query.
        """
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


# Asked before the project's own: those of the testing kit, which knows whom its clients act as.
acting: list[TokenVerifier] = []


def verifiers() -> tuple[TokenVerifier, ...]:
    """Who is asked about tokens, in this order."""
    return (*acting, *_made(tuple(settings.VERIFIERS)))


@lru_cache(maxsize=8)
def _made(paths: tuple[str, ...]) -> tuple[TokenVerifier, ...]:
    found: list[Any] = [import_string(path) for path in paths]
    return tuple(cast(TokenVerifier, one() if inspect.isclass(one) else one) for one in found)


def key_parts(key: str) -> tuple[str, str, str] | None:
    """The user, the application and the token that a key names; None where it names no user."""
    parts = [unquote(part) for part in key.split(":")]
    return (parts[0], parts[1], parts[2]) if len(parts) == 3 else None


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
