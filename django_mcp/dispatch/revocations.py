"""
Whose right to go on was taken back: looked at again and again, for all that is open at once.

Rule: it takes one query for each kind of token, however much is open, and none where nobody
known has anything open. What is found is ended by whoever holds it. A token that has expired is
no matter here: what was begun with it goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

from .. import threads
from ..delivery.jobs import BROKEN, PerLoop
from ..exceptions import Busy
from ..principal import Principal, Revoking, key_parts, verifiers
from .callers import in_pages, is_key, users

K = TypeVar("K")
logger = logging.getLogger("django_mcp")
CHECKING = 5.0  # seconds between two looks


class Holder(Protocol):
    """What goes on in somebody's name."""

    @property
    def owner(self) -> str:
        """A ``Principal.key``; "" is nobody, who has no right to lose."""
        ...

    def revoke(self) -> None:
        """End it, and tell nothing more."""
        ...


class Revocations:
    """Of one loop. ``sources`` tell what goes on in it."""

    def __init__(self) -> None:
        self.sources: list[Callable[[], Iterable[Holder]]] = []
        self._task: asyncio.Task[None] | None = None

    def attend(self) -> None:
        """Look from now on, for as long as there is something to look after."""
        if self._task is None and not threads.is_adopted():
            self._task = asyncio.get_running_loop().create_task(self._run())

    def held(self) -> Iterator[Holder]:
        return (one for source in self.sources for one in list(source()) if one.owner)

    async def _run(self) -> None:
        try:
            while any(self.held()):
                await asyncio.sleep(CHECKING)
                await self._try()
        finally:
            self._task = None

    async def _try(self) -> None:
        try:
            await self.look()
        except Busy:
            logger.debug("Look-ups are busy; whose token was revoked is looked at later")
        except BROKEN as error:
            logger.warning("Nobody can tell whose token was revoked: %s", error)
        except Exception:
            logger.exception("A look at whose token was revoked failed")

    async def look(self) -> None:
        """End what goes on in the name of those who may not go on."""
        owners = {one.owner for one in self.held()}
        if not owners:
            return
        gone = await threads.lookups.run(revoked, owners)
        for one in self.held() if gone else ():
            if one.owner in gone:
                one.revoke()


revocations = PerLoop(Revocations)


def revoked(owners: Collection[str]) -> set[str]:
    """Those whose token was taken back, or whose user may not sign in. Asks the database."""
    gone, left = _standing(owners)
    return gone | _inactive(left)


def _standing(owners: Collection[str]) -> tuple[set[str], set[str]]:
    """Those whose verifier says that they were taken back, and those of whom none can tell."""
    left, found = set(owners), set[str]()
    for verifier in verifiers():
        if isinstance(verifier, Revoking):
            told = _told(verifier, left)
            found.update(key for key, stands in told.items() if not stands)
            left.difference_update(told)
    return found, left


def _told(verifier: Revoking, keys: Collection[str]) -> Mapping[str, bool]:
    """What one of them says; where its code fails, that concerns nobody but its own."""
    try:
        return verifier.standing(keys)
    except (Busy, *BROKEN):  # the database is away, which concerns all
        raise
    except Exception:
        logger.exception("%s cannot tell what still stands", type(verifier).__name__)
        return {}


def renewed(before: Mapping[K, Principal]) -> tuple[dict[K, Principal], set[str]]:
    """Principals as they are now, without those who may not go on. Asks the database.

    And the keys of those of whose token only its verifier can tell.
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
    """Those whose user is no more, or is not active: for verifiers that cannot tell."""
    named = {key: parts[0] for key in owners if (parts := key_parts(key))}
    known = sorted({user for user in named.values() if is_key(user)})
    active = {
        str(user.pk)
        for some in in_pages(known)
        for user in users().filter(pk__in=some)
        if user.is_active
    }
    return {key for key, user in named.items() if user not in active}
