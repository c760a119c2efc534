"""
The principal of each run of a session's call.

The first run uses the principal of the HTTP request. For every later run the user is loaded from
the database by the key in the call's row, and so is the application of the token if the process has
only the row. If the user is deleted or inactive, the call continues as an anonymous one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, Protocol, TypeVar
from urllib.parse import unquote

from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError

from ..auth.principal import Auth, Principal, anonymous, applications
from ..auth.scopes import broader
from ..models import Call as CallRow
from ..models import Session
from ..storage.jobs import surely

T = TypeVar("T")
K = TypeVar("K")
USERS_PER_QUERY = 500  # users in one query


class SessionCaller:
    """Returns the principal of the next run when it is awaited.

    ``user`` is the user's primary key as text, or None for an anonymous client. ``owner`` is
    ``Principal.key``, by which the application of the token is found, or "". ``network`` is that of
    an anonymous client.
    """

    def __init__(
        self, user: str | None, auth: Auth | None, first: Principal | None = None, owner: str = "",
        network: str = "",
    ) -> None:  # fmt: skip
        self.user, self.auth, self._first, self._owner = user, auth, first, owner
        self._network = network

    @classmethod
    def of(cls, principal: Principal) -> SessionCaller:
        """Return the caller for the principal of a request."""
        user = str(principal.user.pk) if principal.is_authenticated else None
        return cls(user, principal.auth, principal, network=principal.network)

    @classmethod
    def named(cls, session: Session, call: CallRow) -> SessionCaller:
        """Return the caller for a call's row."""
        return cls.kept(call.user, call.scopes, session.owner, session.network)

    @classmethod
    def kept(
        cls, user: str | None, scopes: Collection[str] | None, owner: str, network: str = ""
    ) -> SessionCaller:
        """Return the caller for values from rows."""
        return cls(user, _auth(scopes, owner), owner=owner, network=network)

    @property
    def scopes(self) -> list[str] | None:
        """The scopes of the token, or None without a token."""
        return None if self.auth is None else sorted(self.auth.scopes)

    async def __call__(self) -> Principal:
        principal = await self.upcoming()
        self._first = None
        return principal

    async def upcoming(self) -> Principal:
        """Return the principal of the next run. Retry while the database is down."""
        if self._first is None and self.user is not None:
            self._first = await surely(load, self.user, self.auth, self._owner)
        return self._first or anonymous(self._network)


def covers(principal: Principal, scopes: Collection[str] | None) -> bool:
    """Whether the token's scopes cover those with which a call began.

    If not, the client may not cancel the call, answer its questions or read its messages.
    """
    auth = principal.auth
    if auth is None or scopes is None:
        return True
    # A token without scopes is not narrowed, but the project's own code may ask for a scope.
    return not broader(auth.scopes, scopes) if scopes else not auth.scopes


def load(user: str, auth: Auth | None, owner: str = "") -> Principal:
    """Load the current principal. Queries the database.

    A user who is deleted or inactive becomes the anonymous principal, without a token.
    """
    found = users().filter(pk=user).first() if is_key(user) else None
    return _principal(found, auth, owner, applications([owner]) if found and auth else {})


def _principal(user: Any, auth: Auth | None, owner: str, known: Mapping[str, Any]) -> Principal:
    """Return the principal, or the anonymous one if the user or the application is deleted."""
    if user is None or known.get(owner, owner) is None:
        return anonymous()
    if auth is not None and owner in known:
        auth = replace(auth, application=known[owner])
    principal = Principal(user, auth)
    return principal if principal.is_authenticated else anonymous()


def _auth(scopes: Collection[str] | None, owner: str) -> Auth | None:
    return None if scopes is None else Auth(frozenset(scopes), key=_token(owner))


class HasPrincipal(Protocol):
    """A row or object that stores its principal."""

    user: str | None
    scopes: list[str] | None
    owner: str


def load_all(wanted: Mapping[K, HasPrincipal]) -> dict[K, Principal]:
    """Load the current principals in few queries. Deleted and inactive users become anonymous."""
    keys = sorted({one.user for one in wanted.values() if one.user and is_key(one.user)})
    found = {str(user.pk): user for some in in_pages(keys) for user in users().filter(pk__in=some)}
    known = applications({one.owner for one in wanted.values() if one.scopes is not None})
    return {
        name: _principal(found.get(one.user or ""), _auth(one.scopes, one.owner), one.owner, known)
        for name, one in wanted.items()
    }


def in_pages(items: list[T]) -> Iterator[list[T]]:
    """Split keys for several queries, because databases limit the parameters of a statement."""
    return (
        items[start : start + USERS_PER_QUERY] for start in range(0, len(items), USERS_PER_QUERY)
    )


def users() -> Any:
    """Return the users of the default manager, which a project may restrict."""
    return get_user_model()._default_manager


def is_key(user: str) -> bool:
    """Whether a text is a valid primary key of the user model, so that a query does not fail."""
    key = get_user_model()._meta.pk
    try:
        key.run_validators(key.to_python(user))
    except ValidationError:
        return False
    return True


def _token(owner: str) -> str:
    """Return the part of ``Principal.key`` that names the token, or ""."""
    parts = owner.split(":")
    return unquote(parts[-1]) if len(parts) > 1 else ""
