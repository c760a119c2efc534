"""
Who a call of a session acts as, each time that it runs.

Rule: the principal of the first run is the one the request came with; for every
later one the user is loaded anew, from what the call's row knows of it, and so is
the application of its token where a process has only the row. Whoever is no longer
there, or may no longer sign in, is nobody.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, Protocol, TypeVar
from urllib.parse import unquote

from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError

from ..delivery.jobs import surely
from ..models import Call, Session
from ..principal import Auth, Principal, anonymous, applications
from ..scopes import broader

T = TypeVar("T")
K = TypeVar("K")
AT_ONCE = 500  # users in one query


class Caller:
    """Awaited for every run; ``user`` is a key as text, and None is nobody.

    ``owner`` is the key of the principal, where its token's application is to be found by it.
    """

    def __init__(
        self, user: str | None, auth: Auth | None, first: Principal | None = None, owner: str = ""
    ) -> None:
        self.user, self.auth, self._first, self._owner = user, auth, first, owner

    @classmethod
    def of(cls, principal: Principal) -> Caller:
        """As a request brought it."""
        user = str(principal.user.pk) if principal.is_authenticated else None
        return cls(user, principal.auth, principal)

    @classmethod
    def named(cls, session: Session, call: Call) -> Caller:
        """As a call's row has it."""
        return cls.kept(call.user, call.scopes, session.owner)

    @classmethod
    def kept(cls, user: str | None, scopes: Collection[str] | None, owner: str) -> Caller:
        """As rows have it."""
        return cls(user, _auth(scopes, owner), owner=owner)

    @property
    def scopes(self) -> list[str] | None:
        """What its token allows; None where there is no token."""
        return None if self.auth is None else sorted(self.auth.scopes)

    async def __call__(self) -> Principal:
        principal = await self.upcoming()
        self._first = None
        return principal

    async def upcoming(self) -> Principal:
        """Who the next run acts as, however long the database cannot be reached."""
        if self._first is None and self.user is not None:
            self._first = await surely(load, self.user, self.auth, self._owner)
        return self._first or anonymous()


def covers(principal: Principal, scopes: Collection[str] | None) -> bool:
    """Whether it may have to do with a call that began with these scopes: a narrower token not."""
    auth = principal.auth
    if auth is None or scopes is None:
        return True
    # A token without scopes is not narrowed, but the project's own code may ask for a scope.
    return not broader(auth.scopes, scopes) if scopes else not auth.scopes


def load(user: str, auth: Auth | None, owner: str = "") -> Principal:
    """The principal as it is now; who may not sign in has no token either. Asks the database."""
    found = users().filter(pk=user).first() if is_key(user) else None
    return _principal(found, auth, owner, applications([owner]) if found and auth else {})


def _principal(user: Any, auth: Auth | None, owner: str, known: Mapping[str, Any]) -> Principal:
    """Nobody, where the user is no more, or the application that the token was given to."""
    if user is None or known.get(owner, owner) is None:
        return anonymous()
    if auth is not None and owner in known:
        auth = replace(auth, application=known[owner])
    principal = Principal(user, auth)
    return principal if principal.is_authenticated else anonymous()


def _auth(scopes: Collection[str] | None, owner: str) -> Auth | None:
    return None if scopes is None else Auth(frozenset(scopes), key=_token(owner))


class Kept(Protocol):
    """Whose something is, as rows have it."""

    user: str | None
    scopes: list[str] | None
    owner: str


def load_all(wanted: Mapping[K, Kept]) -> dict[K, Principal]:
    """Principals as they are now, all at once; who may not sign in is nobody."""
    keys = sorted({one.user for one in wanted.values() if one.user and is_key(one.user)})
    found = {str(user.pk): user for some in in_pages(keys) for user in users().filter(pk__in=some)}
    known = applications({one.owner for one in wanted.values() if one.scopes is not None})
    return {
        name: _principal(found.get(one.user or ""), _auth(one.scopes, one.owner), one.owner, known)
        for name, one in wanted.items()
    }


def in_pages(items: list[T]) -> Iterator[list[T]]:
    """Few enough for one query: databases limit what a statement may hold."""
    return (items[start : start + AT_ONCE] for start in range(0, len(items), AT_ONCE))


def users() -> Any:
    """Those whom the project's own manager shows."""
    return get_user_model()._default_manager


def is_key(user: str) -> bool:
    """Whether a text may be the key of a user."""
    key = get_user_model()._meta.pk
    try:
        key.run_validators(key.to_python(user))
    except ValidationError:
        return False
    return True


def _token(owner: str) -> str:
    """The part of a principal's key that names its token."""
    parts = owner.split(":")
    return unquote(parts[-1]) if len(parts) > 1 else ""
