"""
Who is connected to this process and hears of changes: listens, and conversations over a pipe.

Rule: each hears of what is committed from its acknowledgement on, in whichever
process; of what may have been passed over, everything. However many they are,
a page of changes is looked up once for each principal.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from .. import threads
from ..declare.servers import server_named
from ..delivery import changes, interests
from ..delivery.changes import Page, Tip
from ..delivery.interests import ANYTHING, SAID_AGAIN
from ..delivery.jobs import BROKEN, PerLoop, reconnecting
from ..delivery.watch import Tips, watch
from ..exceptions import Busy
from .bulletins import Bulletin, bulletin, everything
from .listening import BUSY_PAUSE, Listening, tell_together
from .members import resolved
from .places import label_in, label_of
from .revocations import renewed

if TYPE_CHECKING:
    from ..declare.servers import Server
    from ..principal import Principal
    from ..protocol.jsonrpc import JSON

logger = logging.getLogger("django_mcp")
AT_ONCE = 4  # principals that are looked up for at once
ALONE = "Changes that other processes make are not told: %s"
LISTING = 1.0  # seconds, at least, between two looks at what lists show


class Ear(Protocol):
    """One connection that hears."""

    listening: Listening

    @property
    def principal(self) -> Principal | None:
        """Whom it is told as; None where that is asked each time."""
        ...

    def renew(self, principal: Principal) -> None: ...

    async def is_welcome(self) -> bool:
        """Whether its token is still good, where only its verifier can tell."""
        ...

    def end(self) -> None: ...

    def complete(self, id: str) -> None:
        """A page that its client was sent to is done."""
        ...


class Hearers:
    """Those of one loop."""

    def __init__(self) -> None:
        self._holder = uuid.uuid4().hex
        self._ears: dict[Ear, frozenset[str]] = {}  # and the models that each wants to know of
        self._wanted: Counter[str] = Counter()  # these, by how many
        self._declared: dict[str, float] = {}  # models, and when that was said
        self._cursors: dict[str, int] = {}  # how far each database was read
        self._listed: dict[str, Bulletin] = {}  # of lists, by server: told not so often
        self._listed_at = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._reading, self._declaring = asyncio.Lock(), asyncio.Lock()
        self._catching: asyncio.Task[None] | None = None

    @property
    def is_wanted(self) -> bool:
        return bool(self._ears)

    @property
    def is_eager(self) -> bool:
        return any(ear.listening.is_eager for ear in self._ears)

    # Who hears.

    async def admit(self, ear: Ear, models: Collection[str], lists: bool) -> None:
        """From when this returns, ``ear`` hears of all that is committed."""
        if threads.is_adopted():
            return
        wanted = {ANYTHING, *models, *(listed(ear.listening.server) if lists else ())}
        try:
            await self._declare(wanted)
        except Busy:
            raise
        except BROKEN:
            if await threads.log.run(interests.is_possible):
                raise
            logger.warning(ALONE, "there is no table of them: migrate django_mcp")
            return
        except Exception as error:  # as where there is no database at all
            logger.warning(ALONE, error)
            return
        await self._caught_up()
        before = self._ears.get(ear, frozenset())  # a pipe wants more as it goes on
        self._ears[ear] = before | wanted
        self._wanted.update(wanted - before)
        watch().begin(self)

    def dismiss(self, ear: Ear) -> None:
        self._wanted -= Counter(self._ears.pop(ear, ()))

    async def _declare(self, models: Iterable[str]) -> None:
        async with self._declaring:
            if fresh := self._due(sorted(models)):
                await self._declare_all(fresh)

    async def _declare_all(self, fresh: list[str]) -> None:
        now = time.monotonic()
        wait = await threads.log.run(reconnecting, interests.declare, self._holder, fresh)
        interests.watched.forget()
        await asyncio.sleep(wait)
        self._declared.update(dict.fromkeys(fresh, now))

    async def _say_again(self) -> None:
        """Before it is forgotten that anybody here wants to know; of what nobody does, never."""
        if due := self._due(self._wanted):
            await threads.log.run(reconnecting, interests.declare, self._holder, due)
            self._declared.update(dict.fromkeys(due, time.monotonic()))

    def _due(self, models: Iterable[str]) -> list[str]:
        """Those that were not said for long, or never."""
        old = time.monotonic() - SAID_AGAIN
        return [model for model in models if self._declared.get(model, old) <= old]

    # What they hear.

    async def follow(self, tips: Tips) -> bool:
        """Read on in every database, and have it told."""
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

    async def _page(self, alias: str, tip: Tip) -> Page | None:
        """What came to a database. Of one that was away when it was to be followed, anything."""
        cursor = self._cursors.get(alias)
        if cursor is None:
            return Page(tip.last, (), False)
        if tip.last == cursor:
            return None
        return await threads.changes.run(reconnecting, _after, alias, cursor, tip.last)

    async def _caught_up(self) -> None:
        """What was committed before is told to those who heard of it, and to nobody else."""
        if self._catching is None:
            self._catching = asyncio.get_running_loop().create_task(self._catch_up())
        await asyncio.shield(self._catching)

    async def _catch_up(self) -> None:
        async with self._reading:
            self._catching = None  # who comes now waits for the next
            tips = await threads.changes.run(changes.tips)
            if not self._ears:
                self._cursors = {alias: tip.last for alias, tip in tips.items()}
            while await self._read(tips):
                pass

    async def _spread(self, page: Page) -> None:
        for name in {ear.listening.server.name for ear in self._ears}:
            news = bulletin(server_named(name), page.changes)
            if not page.is_whole:
                news.add(everything())
            self._listed.setdefault(name, Bulletin()).listed.update(news.listed)
            news.listed = {}
            users = [ear.listening.user for ear in self._ears]
            self.tell(name, await resolved(news, users))

    def _tell_of_lists(self) -> None:
        if any(self._listed.values()) and time.monotonic() >= self._listed_at + LISTING:
            self._listed_at = time.monotonic()
            waiting, self._listed = self._listed, {}
            for name, news in waiting.items():
                self.tell(name, news)

    def tell(self, server: str, news: Bulletin) -> None:
        theirs = [ear for ear in self._ears if ear.listening.server.name == server]
        for id in news.pages:
            for ear in theirs:
                ear.complete(id)
        begin = [ear for ear in theirs if ear.listening.take(news)]
        if begin:
            task = asyncio.get_running_loop().create_task(self._tell(begin))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _tell(self, ears: list[Ear]) -> None:
        try:
            fresh, untold = await self._renewed([one for e in ears if (one := e.principal)])
        except Exception:  # of a verifier of the project's
            _deaf(ears)
            return
        await asyncio.gather(*(self._tell_alike(some, fresh, untold) for some in _alike(ears)))

    async def _tell_alike(
        self, ears: list[Ear], fresh: Mapping[object, Principal], untold: Collection[str]
    ) -> None:
        """Tell those of one principal; to wait for its verifier's word keeps no other waiting."""
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

    async def _tell_group(self, ears: list[Ear]) -> None:
        one = ears[0]

        async def principal() -> Principal:
            return one.principal or await one.listening.principal()

        async with self._turns:
            await tell_together([ear.listening for ear in ears], principal)

    async def _renewed(
        self, principals: Iterable[Principal]
    ) -> tuple[dict[object, Principal], Collection[str]]:
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
            await asyncio.sleep(BUSY_PAUSE)
        return {}, ()


hearers = PerLoop(Hearers)


def _deaf(ears: Iterable[Ear]) -> None:
    """They hear nothing of it, and of what comes next they may."""
    logger.exception("Changes were not told: nobody knows who may hear of them")
    for ear in ears:
        ear.listening.told()


def _alike(ears: Iterable[Ear]) -> list[list[Ear]]:
    """Those together who see the same; who is asked each time is alone."""
    found: dict[object, list[Ear]] = defaultdict(list)
    for ear in ears:
        who = ear.principal
        found[ear if who is None else (*_name(who), ear.listening.host)].append(ear)
    return list(found.values())


async def _renew(ear: Ear, fresh: Mapping[object, Principal], untold: Collection[str]) -> bool:
    """Whether it may go on hearing; as whoever its principal is now."""
    if (before := ear.principal) is None:
        return True
    if (now := fresh.get(_name(before))) is None:
        return False
    ear.renew(now)  # whatever is known of the old one is not asked again
    return before.key not in untold or await ear.is_welcome()


def _name(principal: Principal) -> tuple[str, object]:
    """What tells apart principals who may see different things."""
    return principal.key, None if principal.auth is None else principal.auth.scopes


def interest(wanted: JSON, places: Mapping[str, str]) -> tuple[set[str], bool]:
    """The models that a listen wants to know of, and whether it wants to know of lists."""
    models = {label_in(one) for one in places.values() if one}
    return models, bool(wanted.get("resourcesListChanged"))


def listed(server: Server) -> set[str]:
    """The models whose rows a server's lists show."""
    return {
        label_of(model)
        for model, theirs in server.catalog.models.items()
        if any(one.listed for one in theirs)
    }


def _after(alias: str, cursor: int, last: int) -> Page:
    """What follows; it may be read already. If the database was put back, nobody knows."""
    if last < cursor and (now := changes.tip(alias).last) < cursor:
        return Page(now, (), False)
    return changes.after(alias, cursor, max(cursor, last))
