"""
Revocation checks: end open calls and connections whose token was revoked or user deactivated.

One task per event loop checks all of them every `CHECK_INTERVAL_SECONDS` seconds, with one query
for each kind of token, and none if nothing is open for a known principal. The object that holds a
call or connection ends it. Expiry is not checked: what began with a token may outlive the token's
expiry.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

from ..auth.principal import Principal, RevokingVerifier, key_parts, verifiers
from ..exceptions import Busy
from ..runtime import threads
from ..runtime.environment import environment
from ..runtime.runtime import Service
from ..storage.jobs import BROKEN
from .session_callers import in_pages, is_key, users

K = TypeVar("K")
logger = logging.getLogger("django_mcp")
CHECK_INTERVAL_SECONDS = 5.0  # seconds between two checks


class TokenHolder(Protocol):
    """An open call or connection that acts for a principal."""

    @property
    def owner(self) -> str:
        """The ``Principal.key``, or "" for an anonymous client, which has no token to revoke."""
        ...

    def revoke(self) -> None:
        """End it, and send nothing more to the client."""
        ...


class Revocations:
    """The periodic check of one event loop. ``sources`` return what is open in it."""

    def __init__(self) -> None:
        self.sources: list[Callable[[], Iterable[TokenHolder]]] = []
        self._task: asyncio.Task[None] | None = None

    def attend(self) -> None:
        """Start the periodic check. It stops when nothing is open."""
        if self._task is None and environment().has_background_services:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def held(self) -> Iterator[TokenHolder]:
        return (one for source in self.sources for one in list(source()) if one.owner)

    async def _run(self) -> None:
        try:
            while any(self.held()):
                await asyncio.sleep(CHECK_INTERVAL_SECONDS)
                await self._try()
        finally:
            self._task = None

    async def _try(self) -> None:
        try:
            await self.look()
        # Every error is retried at the next interval. If the task ended, revoked tokens would stay
        # in use until the process ends.
        except Busy:
            logger.debug("Look-ups are busy; whose token was revoked is looked at later")
        except BROKEN as error:
            logger.warning("Nobody can tell whose token was revoked: %s", error)
        except Exception:
            logger.exception("A look at whose token was revoked failed")

    async def look(self) -> None:
        """Check everything that is open once, and end it where the token was revoked."""
        owners = {one.owner for one in self.held()}
        if not owners:
            return
        gone = await threads.lookups.run(revoked, owners)
        # Read ``held`` again: calls may have ended or started during the query.
        for one in self.held() if gone else ():
            if one.owner in gone:
                one.revoke()


revocations = Service(Revocations)


def revoked(owners: Collection[str]) -> set[str]:
    """Return the keys whose token was revoked or whose user is inactive. Queries the database."""
    gone, left = _standing(owners)
    return gone | _inactive(left)


def _standing(owners: Collection[str]) -> tuple[set[str], set[str]]:
    """Return the keys that a verifier calls revoked, and the keys that no verifier knows."""
    left, found = set(owners), set[str]()
    for verifier in verifiers():
        if isinstance(verifier, RevokingVerifier):
            told = _told(verifier, left)
            found.update(key for key, stands in told.items() if not stands)
            left.difference_update(told)
    return found, left


def _told(verifier: RevokingVerifier, keys: Collection[str]) -> Mapping[str, bool]:
    """Ask one verifier. If its code fails, the error is logged and its keys stay open."""
    try:
        return verifier.standing(keys)
    except (Busy, *BROKEN):  # a database outage concerns every verifier
        raise
    except Exception:
        logger.exception("%s cannot tell what still stands", type(verifier).__name__)
        return {}


def renewed(before: Mapping[K, Principal]) -> tuple[dict[K, Principal], set[str]]:
    """Return the principals with reloaded users, without those revoked. Queries the database.

    Also return the keys that no verifier could answer for.
    """
    gone, left = _standing({one.key for one in before.values() if one.key})
    going = {name: one for name, one in before.items() if one.key not in gone}
    pks = sorted({one.user.pk for one in going.values() if one.is_authenticated}, key=str)
    loaded = {user.pk: user for some in in_pages(pks) for user in users().filter(pk__in=some)}
    fresh = {name: _renewed(one, loaded) for name, one in going.items()}
    return {name: one for name, one in fresh.items() if one is not None}, left


def _renewed(before: Principal, loaded: Mapping[Any, Any]) -> Principal | None:
    if not before.is_authenticated:
        return before
    user = loaded.get(before.user.pk)
    now = None if user is None else Principal(user, before.auth)
    return now if now is not None and now.is_authenticated else None


def _inactive(owners: Collection[str]) -> set[str]:
    """Return the keys whose user is deleted or inactive, for tokens that no verifier knows."""
    named = {key: parts[0] for key in owners if (parts := key_parts(key))}
    known = sorted({user for user in named.values() if is_key(user)})
    active = {
        str(user.pk)
        for some in in_pages(known)
        for user in users().filter(pk__in=some)
        if user.is_active
    }
    return {key for key, user in named.items() if user not in active}
