"""
Who is calling: a user, and what their token adds or takes away.

Rule: a principal is a value, loaded afresh for every call and never lazy; a
user that is not active is nobody.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, cast, runtime_checkable
from urllib.parse import quote, unquote

from django.utils.module_loading import import_string

from . import threads
from .conf import settings
from .exceptions import Busy

if TYPE_CHECKING:
    from datetime import datetime

P = ParamSpec("P")
T = TypeVar("T")
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
        """Who ``token`` speaks for on ``server``, a ``Server``; None when it is not valid there.

        Raises ``InsufficientScope`` if it is, but too narrow for anything: 403 names the scopes.
        """
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


@runtime_checkable
class Challenging(Protocol):
    """A ``TokenVerifier`` that can tell where its tokens are to be had."""

    def challenge(self, server: Any) -> Mapping[str, str]:
        """Further parameters of the challenge of ``server`` (RFC 6750, 3), not yet quoted.

        As ``resource_metadata`` (RFC 9728, 5.1) and ``scope``. Asks nobody: called in the loop.
        """
        ...


@runtime_checkable
class Granting(Protocol):
    """A ``TokenVerifier`` whose tokens are given to applications."""

    def applications(self, keys: Collection[str]) -> Mapping[str, Any]:
        """Of these ``Principal.key``, those that are its own: the ``Auth.application`` of each.

        None where that is no more. Asked for calls that go on without their request, in a thread
        that may ask the database: it should take one query.
        """
        ...


@runtime_checkable
class Issuing(Protocol):
    """A ``TokenVerifier`` of tokens that an authorization server gives out."""

    @property
    def issuer(self) -> str:
        """Its name, by which clients find it (RFC 8414, 2)."""
        ...

    @property
    def asked(self) -> Sequence[str]:
        """The scopes that clients are told to ask for."""
        ...


class NotYetKnown(Exception):
    """What ``lookup`` raises where somebody else has to be asked first.

    ``find_out`` is awaited, and then it is looked up again, once.
    """

    def __init__(self, find_out: Callable[[], Awaitable[None]]) -> None:
        super().__init__("What this token is good for cannot be told just now.")
        self.find_out = find_out


class LookupVerifier:
    """A ``TokenVerifier`` that only asks the database: ``lookup`` is all there is to write.

    The endpoint asks it in the hop that finds the session as well. A subclass with a ``verify``
    of its own is asked by that alone.
    """

    def lookup(self, token: str, server: Any) -> Principal | None:
        """Called in a thread that may ask the database. May raise ``NotYetKnown``."""
        raise NotImplementedError

    async def verify(self, token: str, server: Any) -> Principal | None:
        return await looked_up(self.lookup, token, server)


async def looked_up(look_up: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What a look-up returns that may raise ``NotYetKnown``. Raises ``Busy``."""
    try:
        return await threads.lookups.run(look_up, *args, **kwargs)
    except NotYetKnown as unknown:
        await unknown.find_out()
    try:
        return await threads.lookups.run(look_up, *args, **kwargs)
    except NotYetKnown as unknown:
        raise Busy(str(unknown)) from None


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


def applications(keys: Collection[str]) -> dict[str, Any]:
    """Of these ``Principal.key``, those whose application a verifier knows. Asks the database."""
    named = {key for key in keys if (parts := key_parts(key)) and parts[1]}
    found: dict[str, Any] = {}
    for verifier in verifiers() if named else ():
        if isinstance(verifier, Granting):
            found |= verifier.applications(named - found.keys())
    return found


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
