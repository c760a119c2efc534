"""Load the current principals of calls, and end calls and connections of revoked tokens.

The first run of a session's call uses the principal of the HTTP request. For every later run the
user is loaded from the database by the key in the call's row, and so is the application of the
token if the process has only the row. If the user is deleted or inactive, the call continues as an
anonymous one.

``RevocationChecker`` ends open calls and connections whose token was revoked or whose user is
inactive. One task per event loop checks all of them every ``CHECK_INTERVAL_SECONDS``, with one
query for each kind of token, and none if nothing is open for a known principal.
``TokenHolder.revoke`` ends a call or connection. Expiry is not checked: what began with a token may
outlive the token's expiry.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Protocol, TypeVar
from urllib.parse import unquote

from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.utils.translation import gettext

from ..auth.principal import (
    Auth,
    Principal,
    RevokingVerifier,
    anonymous,
    applications,
    key_parts,
    verifiers,
)
from ..auth.scopes import broader
from ..exceptions import Busy
from ..models import Call as CallRow
from ..models import Session
from ..runtime import threads
from ..runtime.runtime import Service, environment
from ..storage.jobs import BROKEN, run_with_retries

T = TypeVar("T")
K = TypeVar("K")
logger = logging.getLogger("django_mcp.calls")
USERS_PER_QUERY = 500
CHECK_INTERVAL_SECONDS = 5.0


class SessionCaller:
    """Returns the principal of the next run of a call: ``await caller()``.

    ``user`` is the user's primary key as text, or None for an anonymous client. ``owner`` is
    ``Principal.key``, by which the application of the token is found, or "". ``network`` is that of
    an anonymous client.
    """

    def __init__(
        self, user: str | None, auth: Auth | None, first: Principal | None = None, owner: str = "",
        network: str = "",
    ) -> None:  # fmt: skip
        self.user, self.auth, self._loaded, self._owner = user, auth, first, owner
        self._network = network

    @classmethod
    def from_principal(cls, principal: Principal) -> SessionCaller:
        """Return the caller for the principal of a request."""
        user = str(principal.user.pk) if principal.is_authenticated else None
        return cls(user, principal.auth, principal, network=principal.network)

    @classmethod
    def from_call(cls, session: Session, call: CallRow) -> SessionCaller:
        """Return the caller for a call's row."""
        return cls.from_stored(call.user, call.scopes, session.owner, session.network)

    @classmethod
    def from_stored(
        cls, user: str | None, scopes: Collection[str] | None, owner: str, network: str = ""
    ) -> SessionCaller:
        """Return the caller for values from rows."""
        return cls(user, _auth(scopes, owner), owner=owner, network=network)

    @property
    def scopes(self) -> list[str] | None:
        """The scopes of the token, or None without a token."""
        return None if self.auth is None else sorted(self.auth.scopes)

    async def __call__(self) -> Principal:
        """Return the principal of the next run. The call after this one loads it again."""
        principal = await self.peek()
        self._loaded = None
        return principal

    def load(self) -> Principal:
        """Load the current principal. Queries the database."""
        if self.user is None:
            return anonymous(self._network)
        return load_principal(self.user, self.auth, self._owner)

    async def peek(self) -> Principal:
        """Return the principal of the next run, which then need not load it again.

        Retry while the database is down.
        """
        if self._loaded is None and self.user is not None:
            self._loaded = await run_with_retries(load_principal, self.user, self.auth, self._owner)
        return self._loaded or anonymous(self._network)


async def reload_principal(principal: Principal) -> Principal:
    """Return the principal with its user loaded again. Retry while the database is down.

    A user who is deleted or inactive becomes the anonymous principal, without a token.
    """
    if not principal.is_authenticated:
        return anonymous(principal.network)
    found = await run_with_retries(load_principal, str(principal.user.pk), principal.auth)
    return replace(found, impersonator=principal.impersonator)


def covers(principal: Principal, scopes: Collection[str] | None) -> bool:
    """Whether the token's scopes cover those with which a call began.

    If not, the client may not cancel the call, answer its questions or read its messages.
    """
    auth = principal.auth
    if auth is None or scopes is None:
        return True
    # Scopes do not restrict a token without scopes, so only another such token covers its calls.
    return not broader(auth.scopes, scopes) if scopes else not auth.scopes


def load_principal(user: str, auth: Auth | None, owner: str = "") -> Principal:
    """Load the current principal. Queries the database.

    A user who is deleted or inactive becomes the anonymous principal, without a token.
    """
    found = users().filter(pk=user).first() if is_user_pk(user) else None
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
    return None if scopes is None else Auth(frozenset(scopes), key=_token_key(owner))


class HasPrincipal(Protocol):
    """A row or object that stores its principal."""

    user: str | None
    scopes: list[str] | None
    owner: str


def load_principals(wanted: Mapping[K, HasPrincipal]) -> dict[K, Principal]:
    """Load the current principals in few queries. Deleted and inactive users become anonymous."""
    pks = sorted({row.user for row in wanted.values() if row.user and is_user_pk(row.user)})
    users_by_pk = {
        str(user.pk): user for chunk in in_chunks(pks) for user in users().filter(pk__in=chunk)
    }
    known = applications({row.owner for row in wanted.values() if row.scopes is not None})
    return {
        key: _principal(
            users_by_pk.get(row.user or ""), _auth(row.scopes, row.owner), row.owner, known
        )
        for key, row in wanted.items()
    }


def in_chunks(items: list[T]) -> Iterator[list[T]]:
    """Split keys for several queries, because databases limit the parameters of a statement."""
    return (
        items[start : start + USERS_PER_QUERY] for start in range(0, len(items), USERS_PER_QUERY)
    )


def users() -> Any:
    """Return the users of the default manager, which a project may restrict."""
    return get_user_model()._default_manager


def is_user_pk(user: str) -> bool:
    """Whether a text is a valid primary key of the user model, so that a query does not fail."""
    key = get_user_model()._meta.pk
    try:
        key.run_validators(key.to_python(user))
    except ValidationError:
        return False
    return True


def usernames(keys: Collection[str | None]) -> dict[str, str]:
    """Return the names of users by their keys as text, by one query.

    Users may be in another database than the rows that name them, so no query can join them.
    """
    known = [key for key in set(keys) if key and is_user_pk(key)]
    found = users().filter(pk__in=known) if known else ()
    return {str(user.pk): user.get_username() for user in found}


def caller_text(user: str, impersonator: str, names: Mapping[str, str]) -> str:
    """Return who made a call, for people.

    ``impersonator`` is the key of the member of staff who acts as ``user`` in the inspector, or "".
    ``names`` are the names of users by their keys. A deleted user has none.
    """
    if not impersonator:
        return user
    staff = names.get(impersonator) or gettext("user %s") % impersonator
    return gettext("%(staff)s, as %(user)s in the inspector") % {"staff": staff, "user": user}


def _token_key(owner: str) -> str:
    """Return the part of ``Principal.key`` that names the token, or ""."""
    parts = owner.split(":")
    return unquote(parts[-1]) if len(parts) > 1 else ""


# Revocation checks.


class TokenHolder(Protocol):
    """An open call or connection that acts for a principal."""

    @property
    def owner(self) -> str:
        """The ``Principal.key``, or "" for an anonymous client, which has no token to revoke."""
        ...

    def revoke(self) -> None:
        """End it, and send nothing more to the client."""
        ...


class RevocationChecker:
    """The periodic check of one event loop. ``sources`` return what is open in it."""

    def __init__(self) -> None:
        self.sources: list[Callable[[], Iterable[TokenHolder]]] = []
        self._task: asyncio.Task[None] | None = None

    def start_if_needed(self) -> None:
        """Start the periodic check. It stops when nothing is open."""
        if self._task is None:
            environment().start_background(self._start)

    def _start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    def open_holders(self) -> Iterator[TokenHolder]:
        return (holder for source in self.sources for holder in list(source()) if holder.owner)

    async def _run(self) -> None:
        try:
            while any(self.open_holders()):
                await asyncio.sleep(CHECK_INTERVAL_SECONDS)
                await self._check_and_log_errors()
        finally:
            self._task = None

    async def _check_and_log_errors(self) -> None:
        try:
            await self.check()
        # Every error is retried at the next interval. If the task ended, revoked tokens would stay
        # in use until the process ends.
        except Busy:
            logger.debug("Check for revoked tokens postponed: all threads are busy")
        except BROKEN as error:
            logger.warning("Revoked tokens cannot be read: %s", error)
        except Exception:
            logger.exception("Check for revoked tokens failed")

    async def check(self) -> None:
        """Check everything that is open once, and end it where the token was revoked."""
        owners = {holder.owner for holder in self.open_holders()}
        if not owners:
            return
        revoked = await threads.lookups.run(find_revoked, owners)
        # Read ``open_holders`` again: calls may have ended or started during the query.
        for holder in self.open_holders() if revoked else ():
            if holder.owner in revoked:
                holder.revoke()


revocation_checker = Service(RevocationChecker)


def find_revoked(owners: Collection[str]) -> set[str]:
    """Return the keys whose token was revoked or whose user is inactive. Queries the database."""
    revoked, unknown = _ask_verifiers(owners)
    return revoked | _inactive(unknown)


def _ask_verifiers(owners: Collection[str]) -> tuple[set[str], set[str]]:
    """Return the keys whose token was revoked, and the keys that no verifier knows."""
    unknown, revoked = set(owners), set[str]()
    for verifier in verifiers():
        if isinstance(verifier, RevokingVerifier):
            is_valid_by_key = _ask_verifier(verifier, unknown)
            revoked.update(key for key, is_valid in is_valid_by_key.items() if not is_valid)
            unknown.difference_update(is_valid_by_key)
    return revoked, unknown


def _ask_verifier(verifier: RevokingVerifier, keys: Collection[str]) -> Mapping[str, bool]:
    """Ask one verifier. If its code fails, the error is logged and its keys stay open."""
    try:
        return verifier.still_valid(keys)
    except (Busy, *BROKEN):  # a database outage concerns every verifier
        raise
    except Exception:
        logger.exception("Validity of tokens not checked: verifier=%s", type(verifier).__name__)
        return {}


def reload_valid_principals(before: Mapping[K, Principal]) -> tuple[dict[K, Principal], set[str]]:
    """Return the principals with reloaded users, without those revoked. Queries the database.

    Also return the keys that no verifier could answer for.
    """
    keys = {principal.key for principal in before.values() if principal.key}
    revoked, unknown = _ask_verifiers(keys)
    valid = {key: principal for key, principal in before.items() if principal.key not in revoked}
    pks = sorted(
        {principal.user.pk for principal in valid.values() if principal.is_authenticated}, key=str
    )
    loaded = {user.pk: user for chunk in in_chunks(pks) for user in users().filter(pk__in=chunk)}
    fresh = {key: _renewed(principal, loaded) for key, principal in valid.items()}
    return {key: principal for key, principal in fresh.items() if principal is not None}, unknown


def _renewed(before: Principal, loaded: Mapping[Any, Any]) -> Principal | None:
    if not before.is_authenticated:
        return before
    user = loaded.get(before.user.pk)
    now = None if user is None else replace(before, user=user)
    return now if now is not None and now.is_authenticated else None


def _inactive(owners: Collection[str]) -> set[str]:
    """Return the keys whose user is deleted or inactive, for tokens that no verifier knows."""
    user_of_key = {key: parts[0] for key in owners if (parts := key_parts(key))}
    pks = sorted({user for user in user_of_key.values() if is_user_pk(user)})
    active = {
        str(user.pk)
        for chunk in in_chunks(pks)
        for user in users().filter(pk__in=chunk)
        if user.is_active
    }
    return {key for key, user in user_of_key.items() if user not in active}
