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
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from ..calls.revocations import renewed
from ..calls.visibility import label_in, label_of
from ..declarations.server import server_named
from ..exceptions import Busy
from ..runtime import threads
from ..runtime.environment import environment
from ..runtime.runtime import Service
from ..storage import change_log
from ..storage.change_log import ANYTHING, INTERESTS_RENEWAL_SECONDS, ChangeLogState, Page
from ..storage.jobs import BROKEN, reconnecting
from ..storage.poller import Tips, watch
from .change_set import ChangeSet, bulletin, everything, resolved
from .subscriptions import BUSY_RETRY_SECONDS, SubscriptionFilter, tell_together

if TYPE_CHECKING:
    from ..auth.principal import Principal
    from ..declarations.server import Server
    from ..protocol.jsonrpc import JSON

logger = logging.getLogger("django_mcp")
LOOKUP_CONCURRENCY = 4  # principals whose visibility is queried at the same time
ALONE = "Changes that other processes make are not told: %s"
LISTING_INTERVAL_SECONDS = 1.0  # at least, between two checks of what lists show


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
    """The listeners of one event loop. It follows the change logs while there are any."""

    def __init__(self) -> None:
        self._holder = uuid.uuid4().hex
        # The listeners, with the models that each follows.
        self._ears: dict[ChangeListener, frozenset[str]] = {}
        self._wanted: Counter[str] = Counter()  # followed models, with the number of listeners
        self._declared: dict[str, float] = {}  # models, and when the interest was stored
        self._cursors: dict[str, int] = {}  # the last number read, by alias of the database
        self._listed: dict[str, ChangeSet] = {}  # changes of lists that wait, by server
        self._listed_at = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        # A change that concerns many principals must not take all threads of the pool from calls.
        self._turns = asyncio.Semaphore(LOOKUP_CONCURRENCY)
        # ``_reading``: two readers would deliver a page twice, or move the cursor back.
        # ``_declaring``: the second of two listeners must wait until the interest of the first is
        # effective in all processes, and not only stored.
        self._reading, self._declaring = asyncio.Lock(), asyncio.Lock()
        self._catching: asyncio.Task[None] | None = None

    @property
    def is_wanted(self) -> bool:
        return bool(self._ears)

    @property
    def is_eager(self) -> bool:
        return any(ear.listening.is_eager for ear in self._ears)

    # Listeners.

    async def admit(self, ear: ChangeListener, models: Collection[str], lists: bool) -> None:
        """Add a listener. When this returns, it misses no change that is committed from then on.

        Without a table of changes, or without a database, it gets only changes of this process.
        """
        if not environment().shares_database:  # changes are delivered without a log
            return
        # The order matters: first the interest, so that changes are recorded, then the cursors,
        # then the listener. In another order it could miss a change or get one from before.
        wanted = {ANYTHING, *models, *(listed(ear.listening.server) if lists else ())}
        try:
            await self._declare(wanted)
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
        await self._caught_up()
        # A stdio connection is admitted again with each subscription.
        before = self._ears.get(ear, frozenset())
        self._ears[ear] = before | wanted
        self._wanted.update(wanted - before)
        watch().begin(self)

    def dismiss(self, ear: ChangeListener) -> None:
        self._wanted -= Counter(self._ears.pop(ear, ()))

    async def _declare(self, models: Iterable[str]) -> None:
        async with self._declaring:
            if fresh := self._due(sorted(models)):
                await self._declare_all(fresh)

    async def _declare_all(self, fresh: list[str]) -> None:
        now = time.monotonic()
        wait = await threads.log.run(reconnecting, change_log.declare, self._holder, fresh)
        change_log.watched.forget()
        # Processes that save cache the interests. Until their caches expire they record nothing.
        await asyncio.sleep(wait)
        self._declared.update(dict.fromkeys(fresh, now))

    async def _say_again(self) -> None:
        """Renew the interests in followed models, before they expire."""
        if due := self._due(self._wanted):
            await threads.log.run(reconnecting, change_log.declare, self._holder, due)
            self._declared.update(dict.fromkeys(due, time.monotonic()))

    def _due(self, models: Iterable[str]) -> list[str]:
        """Return the models whose interest is not stored, or must be renewed."""
        old = time.monotonic() - INTERESTS_RENEWAL_SECONDS
        return [model for model in models if self._declared.get(model, old) <= old]

    # Changes.

    async def follow(self, tips: Tips) -> bool:
        """Read the next page of every database, and start to notify. Return if there is more."""
        await self._say_again()
        async with self._reading:
            more = await self._read(tips)
        self._tell_of_lists()
        return more

    async def _read(self, tips: Tips) -> bool:
        more = False
        for alias, tip in tips.items():
            if (page := await self._page(alias, tip)) is None:
                continue
            self._cursors[alias] = page.until
            more |= page.until < tip.last
            await self._spread(page)
        return more

    async def _page(self, alias: str, tip: ChangeLogState) -> Page | None:
        """Return the next page of a database, or None if there are no changes.

        The page of a database without a cursor is not whole: it could not be reached when the first
        listener came, so it is unknown what was missed.
        """
        cursor = self._cursors.get(alias)
        if cursor is None:
            return Page(tip.last, (), False)
        if tip.last == cursor:
            return None
        return await threads.changes.run(reconnecting, _after, alias, cursor, tip.last)

    async def _caught_up(self) -> None:
        """Read all earlier changes for the present listeners, before a new one is added.

        New listeners that arrive together share one read.
        """
        if self._catching is None:
            self._catching = asyncio.get_running_loop().create_task(self._catch_up())
        # Several listeners wait for this task. The disconnect of one must not cancel it.
        await asyncio.shield(self._catching)

    async def _catch_up(self) -> None:
        async with self._reading:
            # The tips are read next. A listener that arrives from now on needs another read.
            self._catching = None
            tips = await threads.changes.run(change_log.tips)
            if not self._ears:
                self._cursors = {alias: tip.last for alias, tip in tips.items()}
            while await self._read(tips):
                pass

    async def _spread(self, page: Page) -> None:
        for name in {ear.listening.server.name for ear in self._ears}:
            news = bulletin(server_named(name), page.changes)
            if not page.is_whole:
                news.add(everything())
            self._listed.setdefault(name, ChangeSet()).listed.update(news.listed)
            news.listed = {}
            users = [ear.listening.user for ear in self._ears]
            self.tell(name, await resolved(news, users))

    def _tell_of_lists(self) -> None:
        if (
            any(self._listed.values())
            and time.monotonic() >= self._listed_at + LISTING_INTERVAL_SECONDS
        ):
            self._listed_at = time.monotonic()
            waiting, self._listed = self._listed, {}
            for name, news in waiting.items():
                self.tell(name, news)

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
        """Call ``revocations.renewed``, and retry while the database is down."""
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


def _after(alias: str, cursor: int, last: int) -> Page:
    """Return the page after ``cursor``. If a backup was restored, the page is not whole.

    ``last`` may be older than the cursor, because the catching up of a new listener has read on.
    """
    if last < cursor and (now := change_log.tip(alias).last) < cursor:
        return Page(now, (), False)
    return change_log.after(alias, cursor, max(cursor, last))
