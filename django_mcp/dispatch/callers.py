"""
Who a call of a session acts as, each time that it runs.

Rule: the principal of the first run is the one the request came with; for every
later one the user is loaded anew, from what the call's row knows of it. Whoever
is no longer there, or may no longer sign in, is nobody.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from urllib.parse import unquote

from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError

from .. import threads
from ..models import Call, Session
from ..principal import Auth, Principal, anonymous


class Caller:
    """Awaited for every run; ``user`` is a key as text, and None is nobody."""

    def __init__(self, user: str | None, auth: Auth | None, first: Principal | None = None) -> None:
        self.user, self.auth, self._first = user, auth, first

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
        """As rows have it; ``owner`` is the key of the principal."""
        if scopes is None:
            return cls(user, None)
        return cls(user, Auth(frozenset(scopes), key=_token(owner)))

    @property
    def scopes(self) -> list[str] | None:
        """What its token allows; None where there is no token."""
        return None if self.auth is None else sorted(self.auth.scopes)

    async def __call__(self) -> Principal:
        principal = await self.upcoming()
        self._first = None
        return principal

    async def upcoming(self) -> Principal:
        """Who the next run acts as."""
        if self._first is None and self.user is not None:
            self._first = await threads.lookups.run(load, self.user, self.auth)
        return self._first or anonymous()


def covers(principal: Principal, scopes: Collection[str] | None) -> bool:
    """Whether it may have to do with a call that began with these scopes: a narrower token not."""
    auth = principal.auth
    return auth is None or scopes is None or auth.scopes.issuperset(scopes)


def load(user: str, auth: Auth | None) -> Principal:
    """The principal as it is now; who may not sign in has no token either. Asks the database."""
    found = _users().filter(pk=user).first() if _is_key(user) else None
    principal = anonymous() if found is None else Principal(found, auth)
    return principal if principal.is_authenticated else anonymous()


def _users() -> Any:
    return get_user_model()._default_manager


def _is_key(user: str) -> bool:
    try:
        get_user_model()._meta.pk.to_python(user)
    except ValidationError:
        return False
    return True


def _token(owner: str) -> str:
    """The part of a principal's key that names its token."""
    parts = owner.split(":")
    return unquote(parts[-1]) if len(parts) > 1 else ""
