"""
News for sessions: written to the stream that takes them, by whoever has the turn.

Rule: a page of changes is told by one process, once: how far it came is written
in the transaction in which it is told. What no stream takes is kept as a mark,
and told when there is one. Of many changes of one thing the last is told.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from .. import threads
from ..declare.servers import server_named, servers
from ..delivery import interests, sessions, sights, streams, tellings
from ..delivery.changes import Tip
from ..delivery.doorbell import Ring, doorbell, ring
from ..delivery.interests import ANYTHING, SAID_AGAIN
from ..delivery.jobs import BROKEN, PerLoop, reconnecting, surely
from ..delivery.rows import one_transaction
from ..delivery.tellings import Turn
from ..delivery.watch import Tips, watch
from ..exceptions import Busy
from ..models import Session
from . import pages, registry, subscribers, turns
from .announcements import LISTS, listen, stop_listening
from .bulletins import Bulletin
from .hearing import LISTING, listed
from .listening import BUSY_PAUSE
from .places import label_in
from .presentation import capabilities
from .subscribers import URI, Told
from .turns import OF_LISTS, alias_of, is_of_lists

if TYPE_CHECKING:
    from ..declare.servers import Server

logger = logging.getLogger("django_mcp")
AT_ONCE = 50  # sessions that one job tells
OFTEN = 4  # looks in LISTING seconds, where others tell what lists show


class News:
    """What is announced in this process alone; ``hear`` is called from any thread."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._waiting: dict[str, Bulletin] = defaultdict(Bulletin)
        self._telling: asyncio.Task[None] | None = None

    def hear(self, server: str, news: Bulletin) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self.loop.call_soon_threadsafe(self._heard, server, news)

    def _heard(self, server: str, news: Bulletin) -> None:
        self._waiting[server].add(news)
        if self._telling is None or self._telling.done():
            self._telling = self.loop.create_task(self._tell())

    async def _tell(self) -> None:
        while self._waiting:
            waiting, self._waiting = self._waiting, defaultdict(Bulletin)
            for name, news in waiting.items():
                await self._tell_of(name, news)

    async def _tell_of(self, name: str, news: Bulletin) -> None:
        try:
            found = Told()
            await subscribers.told(server_named(name), news, found)
            for some in _chunks(found):
                saw = [one for one in found.saw if found.by_session[one[0]] in some]
                _ring(await surely(_announce, some, saw))
            if found.seen:
                await surely(sights.keep, found.seen)
            await _after(found)
        except Busy:
            self._waiting[name].add(news)
            await asyncio.sleep(BUSY_PAUSE)
        except Exception:
            logger.exception("Sessions were not told of changes")


_news: News | None = None


def follow() -> None:
    """From now on what changes is told to sessions."""
    global _news
    loop = asyncio.get_running_loop()
    if _news is not None and _news.loop is not loop and _news.loop.is_closed():
        stop_listening(_news)
        _news = None
    if _news is None:
        _news = News()
        listen(_news)
    if not threads.is_adopted():
        watch().begin(tellers())


# Turns.


class Tellers:
    """Takes turns at telling sessions, with other processes."""

    is_wanted = True

    def __init__(self) -> None:
        self._known: dict[str, int] = {}  # how far it was told, when last looked at
        self._lists_at = self._said_at = 0.0  # when lists are told again; when this was said
        self._tried: dict[str, float] = {}  # of what lists show: when that was
        self._task: asyncio.Task[None] | None = None

    @property
    def is_eager(self) -> bool:
        """Whether anybody is connected who waits for it."""
        return bool(doorbell())

    async def follow(self, tips: Tips) -> bool:
        """Begin to tell, if there is anything, and nobody is at it."""
        await self._say_again()
        is_free = self._task is None or self._task.done()
        if is_free and (due := self._due(tips)):
            self._task = asyncio.get_running_loop().create_task(self._tell(due, tips))
        return False

    def _due(self, tips: Tips) -> list[str]:
        """What there is to tell; of what lists show in one database, the databases in turn."""
        due = [one for one in tips if tips[one].last != self._known.get(one)]
        lists = [
            one + OF_LISTS for one in tips if self._known.get(one + OF_LISTS) != tips[one].last
        ]
        now = time.monotonic()
        if lists and now >= self._lists_at and any(map(_lists_rows, servers())):
            due.append(min(lists, key=lambda name: self._tried.get(name, 0.0)))
            self._tried[due[-1]] = now
        return due

    async def _tell(self, due: Sequence[str], tips: Tips) -> None:
        for name in due:
            try:
                await self._tell_page(name, tips[alias_of(name)])
            except (tellings.Lost, Busy):
                logger.debug("Another process tells of %s, or it is told later", name)
            except BROKEN as error:
                logger.warning("Sessions are told of changes later: %s", error)
                await asyncio.sleep(BUSY_PAUSE)
            except Exception:
                logger.exception("Sessions were not told of changes")
                await asyncio.sleep(BUSY_PAUSE)

    async def _tell_page(self, name: str, tip: Tip) -> None:
        if name in _told_here:  # by another loop of this process, whose turn is ours too
            return
        _told_here.add(name)
        try:
            await self._take_turn(name, tip)
        finally:
            _told_here.discard(name)

    async def _take_turn(self, name: str, tip: Tip) -> None:
        turn, page = await threads.changes.run(reconnecting, turns.taken, name, tip, LISTING)
        if is_of_lists(name) and (turn is not None or page is None):
            self._lists_at = time.monotonic() + (LISTING if turn else LISTING / OFTEN)
        if turn is None:
            self._known[name] = -1 if page is None else page.until
            return
        assert page is not None
        found = Told(name)
        for server in servers():
            if mine := turns.news(server, name, page):
                await subscribers.told(server, mine, found)
        await _tell_all(turn, found)
        self._known[name] = turn.until
        watch().wake()

    async def _say_again(self) -> None:
        """That sessions want to know of lists, and of what is said by hand."""
        if time.monotonic() >= self._said_at + SAID_AGAIN or not self._said_at:
            models = {ANYTHING}.union(*(listed(one) for one in servers() if not one.is_empty))
            await threads.log.run(reconnecting, interests.declare, interests.LISTS, models)
            if not self._said_at:
                await threads.changes.run(reconnecting, _compare)
            self._said_at = time.monotonic()


tellers = PerLoop(Tellers)
_told_here: set[str] = set()  # what this process is telling


def _compare() -> None:
    """Other processes, of another deployment, may have told these sessions of other things."""
    interests.watched.forget()
    for server in servers():
        if not server.is_empty:
            registry.tell(server)


def _lists_rows(server: Server) -> bool:
    return not server.is_empty and bool(listed(server))


async def _tell_all(turn: Turn, found: Told) -> None:
    chunks = [some for some in _chunks(found) if max(some) > turn.told] or [{}]
    for place, some in enumerate(chunks):
        left = {session: marks for session, marks in some.items() if session > turn.told}
        saw = [one for one in found.saw if found.by_session[one[0]] in left]
        job = partial(_say, turn, left, saw, found.seen, over=place == len(chunks) - 1)
        _ring(await surely(job, again=False))
    await _after(found)


def _say(
    turn: Turn, marks: Mapping[int, Sequence[str]], saw: tellings.Saw,
    seen: Mapping[str, sights.Seen], *, over: bool, again: bool,
) -> list[int]:  # fmt: skip
    return tellings.tell(turn, _spoken(marks), saw, seen, over=over, again=again)


@one_transaction
def _announce(marks: Mapping[int, Sequence[str]], saw: tellings.Saw) -> list[int]:
    sessions.saw(saw)
    return streams.announce_here(_spoken(marks))


def _spoken(marks: Mapping[int, Sequence[str]]) -> dict[int, list[tuple[str, str]]]:
    found = sessions.revisions(list(marks))
    return {id: subscribers.words(revision, marks[id]) for id, revision in found.items()}


def _chunks(found: Told) -> Iterator[dict[int, list[str]]]:
    ordered = sorted({*found.marks, *found.by_session.values()})
    for start in range(0, len(ordered), AT_ONCE):
        yield {one: found.marks.get(one, []) for one in ordered[start : start + AT_ONCE]}


def _ring(taken: Iterable[int]) -> None:
    ring(*(Ring(stream, changed=True) for stream in taken))


async def _after(found: Told) -> None:
    for id, told in found.pages.items():
        await surely(pages.forget, told, id)


# Who wants to know.


async def interest(place: str) -> None:
    """From when this returns, sessions are told whenever that row changes."""
    if threads.is_adopted():
        return
    await threads.changes.run(reconnecting, turns.begin)
    models = {ANYTHING, label_in(place)}
    wait = await surely(interests.declare, interests.SESSIONS, models)
    interests.watched.forget()
    await asyncio.sleep(wait)


# Words.


def words(revision: str, marks: Iterable[str]) -> list[str]:
    """The messages to a client of that revision, for marks of what it has not been told."""
    return [text for text, _ in subscribers.words(revision, marks)]


def speaking(session: Session) -> Callable[[Sequence[str]], Sequence[str]]:
    """``words`` for one session."""
    return lambda marks: words(session.revision, marks)


def everything(server: Server, session: Session) -> list[str]:
    """What a client may have missed when it is not known what it missed. Asks the database."""
    lists = [name for name in LISTS if name in capabilities(server)]
    uris = [uri for uri in sessions.uris(session) if not pages.is_page(uri)]
    return words(session.revision, [*lists, *(URI + uri for uri in uris)])
