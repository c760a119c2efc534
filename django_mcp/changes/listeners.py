"""
The clients that are connected to this process and receive notifications of changes.

These are open ``subscriptions/listen`` requests and stdio connections. A client is notified of all
changes that are committed after its acknowledgement, in any process. If changes may have been
missed, it is notified as if everything had changed. The visibility of a page of changes is queried
once for each principal, however many clients it has.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from ..calls.callers import renewed
from ..calls.visibility import label_in, label_of
from ..exceptions import Busy
from ..runtime import threads
from ..runtime.environment import environment
from ..runtime.runtime import Service
from ..storage import change_log
from ..storage.change_log import ANYTHING
from ..storage.jobs import BROKEN, reconnecting
from .change_set import ChangeSet, resolved
from .feed import change_feed
from .subscriptions import BUSY_RETRY_SECONDS, SubscriptionFilter, tell_together

if TYPE_CHECKING:
    from ..auth.principal import Principal
    from ..declarations.server import Server
    from ..protocol.jsonrpc import JSON

logger = logging.getLogger("django_mcp")
LOOKUP_CONCURRENCY = 4  # principals whose visibility is queried at the same time
ALONE = "Changes that other processes make are not told: %s"


class ChangeListener(Protocol):
    """One connection that receives notifications."""

    listening: SubscriptionFilter

    @property
    def principal(self) -> Principal | None:
        """The principal that it acts for, or None if ``listening.principal()`` loads it."""
        ...

    def renew(self, principal: Principal) -> None:
        """Set the principal with the reloaded user."""
        ...

    async def is_welcome(self) -> bool:
        """Whether its token is still valid, if only its verifier can tell."""
        ...

    def end(self) -> None:
        """Close it, because its token was revoked or its user is inactive."""
        ...

    def complete(self, id: str) -> None:
        """Notify the client that the page of this elicitation was completed."""
        ...


class ListenerRegistry:
    """The listeners of one event loop, as a follower of the change feed."""

    def __init__(self) -> None:
        # The listeners, with the models that each follows.
        self._ears: dict[ChangeListener, frozenset[str]] = {}
        self._wanted: Counter[str] = Counter()  # followed models, with the number of listeners
        self._tasks: set[asyncio.Task[None]] = set()
        # A change that concerns many principals must not take all threads of the pool from calls.
        self._turns = asyncio.Semaphore(LOOKUP_CONCURRENCY)

    @property
    def is_wanted(self) -> bool:
        return bool(self._wanted)

    @property
    def is_eager(self) -> bool:
        return any(ear.listening.is_eager for ear in self._ears)

    @property
    def models(self) -> Iterable[str]:
        return list(self._wanted)

    # Listeners.

    def add(self, ear: ChangeListener) -> None:
        """Add a listener for the changes that only this process knows of."""
        self._ears.setdefault(ear, frozenset())
        change_feed().follow_local(self)

    async def admit(self, ear: ChangeListener, models: Collection[str], lists: bool) -> None:
        """Have an added listener follow the logs. From then on it misses no committed change.

        Without a table of changes, or without a database, it gets only changes of this process.
        """
        if not environment().shares_database:  # changes are delivered without a log
            return
        # The order matters: first the interest, so that changes are recorded, then the cursors,
        # then the listener. In another order it could miss a change or get one from before.
        wanted = {ANYTHING, *models, *(listed(ear.listening.server) if lists else ())}
        feed = change_feed()
        try:
            await feed.declare(wanted)
        except Busy:
            raise
        except BROKEN:
            if await threads.log.run(change_log.is_possible):
                raise
            logger.warning(ALONE, "there is no table of them: migrate django_mcp")
            return
        except Exception as error:  # for example, no database is configured
            logger.warning(ALONE, error)
            return
        await feed.catch_up()
        # A stdio connection is admitted again with each subscription.
        before = self._ears.get(ear, frozenset())
        self._ears[ear] = before | wanted
        self._wanted.update(wanted - before)
        feed.follow(self)

    def dismiss(self, ear: ChangeListener) -> None:
        self._wanted -= Counter(self._ears.pop(ear, ()))
        if not self._ears:
            change_feed().leave_local(self)

    # Changes.

    async def receive(self, server: str, changes: ChangeSet) -> None:
        """Notify the listeners of a server."""
        users = [one.listening.user for one in self._ears if one.listening.server.name == server]
        if users:
            self.tell(server, await resolved(changes, users))

    def receive_local(self, server: str, changes: ChangeSet) -> None:
        self.tell(server, changes)

    def tell(self, server: str, news: ChangeSet) -> None:
        theirs = [ear for ear in self._ears if ear.listening.server.name == server]
        for id in news.pages:
            for ear in theirs:
                ear.complete(id)
        begin = [ear for ear in theirs if ear.listening.take(news)]
        if begin:
            task = asyncio.get_running_loop().create_task(self._tell(begin))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _tell(self, ears: list[ChangeListener]) -> None:
        """Reload the users, end listeners without a valid token, and notify the others."""
        try:
            fresh, untold = await self._renewed([one for e in ears if (one := e.principal)])
        except Exception:  # for example of a verifier of the project
            _deaf(ears)
            return
        await asyncio.gather(*(self._tell_alike(some, fresh, untold) for some in _alike(ears)))

    async def _tell_alike(
        self, ears: list[ChangeListener], fresh: Mapping[object, Principal], untold: Collection[str]
    ) -> None:
        """Notify the listeners of one principal.

        Its token verifier may be slow. Other principals do not wait for it.
        """
        try:
            stay = await asyncio.gather(*(_renew(ear, fresh, untold) for ear in ears))
        except Exception:
            _deaf(ears)
            return
        for ear in (ear for ear, stays in zip(ears, stay, strict=True) if not stays):
            ear.end()
            ear.listening.told()
        left = [ear for ear, stays in zip(ears, stay, strict=True) if stays]
        await asyncio.gather(*(self._tell_group(some) for some in _alike(left)))

    async def _tell_group(self, ears: list[ChangeListener]) -> None:
        one = ears[0]

        async def principal() -> Principal:
            return one.principal or await one.listening.principal()

        async with self._turns:
            await tell_together([ear.listening for ear in ears], principal)

    async def _renewed(
        self, principals: Iterable[Principal]
    ) -> tuple[dict[object, Principal], Collection[str]]:
        """Call ``callers.renewed``, and retry while the database is down."""
        wanted = {_name(one): one for one in principals}
        while wanted:
            try:
                return await threads.lookups.run(reconnecting, renewed, wanted)
            except Busy:
                logger.debug("Who listens is looked up later")
            except BROKEN as error:
                logger.warning(
                    "Nobody knows who listens, and so nothing is told for now: %s", error
                )
            await asyncio.sleep(BUSY_RETRY_SECONDS)
        return {}, ()


hearers = Service(ListenerRegistry)


def _deaf(ears: Iterable[ChangeListener]) -> None:
    """Log the current exception, and let the listeners take the next changes.

    They get no notification of these, because it is unknown whether their tokens are valid.
    """
    logger.exception("Changes were not told: nobody knows who may hear of them")
    for ear in ears:
        ear.listening.told()


def _alike(ears: Iterable[ChangeListener]) -> list[list[ChangeListener]]:
    """Group listeners that can see the same. One without a known principal is alone."""
    found: dict[object, list[ChangeListener]] = defaultdict(list)
    for ear in ears:
        who = ear.principal
        found[ear if who is None else (*_name(who), ear.listening.host)].append(ear)
    return list(found.values())


async def _renew(
    ear: ChangeListener, fresh: Mapping[object, Principal], untold: Collection[str]
) -> bool:
    """Set the listener's reloaded principal. Return whether its token is still valid."""
    if (before := ear.principal) is None:
        return True
    if (now := fresh.get(_name(before))) is None:
        return False
    ear.renew(now)  # the old user caches permissions that may have changed
    return before.key not in untold or await ear.is_welcome()


def _name(principal: Principal) -> tuple[str, object]:
    """Return a key that differs for principals that may see different things."""
    return principal.key, None if principal.auth is None else principal.auth.scopes


def interest(wanted: JSON, places: Mapping[str, str]) -> tuple[set[str], bool]:
    """Return the models that a listen request follows, and whether it follows resource lists."""
    models = {label_in(one) for one in places.values() if one}
    return models, bool(wanted.get("resourcesListChanged"))


def listed(server: Server) -> set[str]:
    """Return the labels of the models whose rows a server lists."""
    return {
        label_of(model)
        for model, theirs in server.catalog.models.items()
        if any(one.listed for one in theirs)
    }
