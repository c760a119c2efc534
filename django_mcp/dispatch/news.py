"""
What is announced, told to sessions: written to the stream that takes a session's news.

Rule: a session hears of what it may see at that moment, or saw before; what is
visible is looked up once for each principal, however many sessions it has.
What no stream takes is kept as a mark, and told when there is one. Of many
changes of one thing the last is told.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ..declare.requests import Request
from ..declare.servers import server_named
from ..delivery import sessions, streams
from ..delivery.doorbell import Ring, ring
from ..delivery.jobs import surely
from ..exceptions import Busy
from ..models import Session
from ..protocol.jsonrpc import encode
from ..protocol.revisions import REVISIONS, encode_notification
from . import pages
from .announcements import LISTS, Announcement, listen, stop_listening
from .callers import Caller
from .listening import BUSY_PAUSE
from .presentation import capabilities
from .running import surrounded_job
from .visibility import visible

if TYPE_CHECKING:
    from ..declare.servers import Server

logger = logging.getLogger("django_mcp")
AT_ONCE = 50  # sessions that one job tells
URI, PAGE = "uri:", "page:"  # the marks of what is no list


class News:
    """Passes announcements on, for this process; ``hear`` is called from any thread."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._waiting: dict[Announcement, None] = {}
        self._telling: asyncio.Task[None] | None = None

    def hear(self, announcement: Announcement) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self.loop.call_soon_threadsafe(self._heard, announcement)

    def _heard(self, announcement: Announcement) -> None:
        self._waiting[announcement] = None
        if self._telling is None or self._telling.done():
            self._telling = self.loop.create_task(self._tell())

    async def _tell(self) -> None:
        while self._waiting:
            news, self._waiting = list(self._waiting), {}
            by_server: dict[str, list[Announcement]] = defaultdict(list)
            for one in news:
                by_server[one.server].append(one)
            for name, theirs in by_server.items():
                await self._tell_of(name, theirs)

    async def _tell_of(self, name: str, news: list[Announcement]) -> None:
        try:
            await _told(server_named(name), news)
        except Busy:
            self._waiting = dict.fromkeys(news) | self._waiting
            await asyncio.sleep(BUSY_PAUSE)
        except Exception:
            logger.exception("Sessions were not told of changes")


_news: News | None = None


def follow() -> None:
    """From now on what is announced in this process is told to sessions."""
    global _news
    loop = asyncio.get_running_loop()
    if _news is not None and _news.loop is not loop and _news.loop.is_closed():
        stop_listening(_news)
        _news = None
    if _news is None:
        _news = News()
        listen(_news)


# Telling.


async def _told(server: Server, news: Iterable[Announcement]) -> None:
    uris = {one.subject for one in news if one.kind == "updated"}
    for one in news:
        if one.kind == "list_changed" and one.subject in capabilities(server):
            await _pass_on(await surely(sessions.living, server.name), one.subject)
        elif one.kind == "elicitation_complete":
            await _completed(server, one.subject)
    if uris:
        await _updated(server, uris)


async def _completed(server: Server, id: str) -> None:
    waiting = await surely(sessions.subscribers, server.name, pages.PREFIX + id)
    await _pass_on(waiting, PAGE + id)
    await surely(pages.forget, waiting, id)


async def _updated(server: Server, uris: set[str]) -> None:
    """Tell subscribers who see it now, or did when they were last looked at."""
    by_owner: dict[tuple[str, str], list[sessions.Subscribed]] = defaultdict(list)
    for one in await surely(sessions.subscribed, server.name, sorted(uris)):
        by_owner[one.owner, repr(one.scopes)].append(one)
    for theirs in by_owner.values():
        seen = await _seen(server, theirs)
        for uri in {one.uri for one in theirs}:
            told = [o.session for o in theirs if o.uri == uri and (o.visible or uri in seen)]
            await _pass_on(told, URI + uri)
        changed = [one for one in theirs if one.visible != (one.uri in seen)]
        await surely(sessions.saw, [(one.session, one.uri, one.uri in seen) for one in changed])


async def _seen(server: Server, theirs: Sequence[sessions.Subscribed]) -> set[str]:
    """What of it their principal sees now. What cannot be looked up is not seen."""
    one = theirs[0]
    request = Request(await Caller.kept(one.user, one.scopes, one.owner)(), server)
    wanted = {one.uri for one in theirs}
    try:
        return await surrounded_job(request, lambda: visible(request, wanted))
    except Busy:
        raise
    except Exception:
        logger.exception("Nobody knows who may see what changed")
        return set()


async def _pass_on(ids: Sequence[int], mark: str) -> None:
    for start in range(0, len(ids), AT_ONCE):
        taken = await surely(_announce, ids[start : start + AT_ONCE], mark)
        ring(*(Ring(stream, changed=True) for stream in taken))


def _announce(ids: Sequence[int], mark: str) -> list[int]:
    """In a thread of the log: the streams that took it."""
    speaking: dict[str, list[int]] = defaultdict(list)
    for id, revision in sessions.revisions(ids).items():
        speaking[revision].append(id)
    return [
        stream
        for revision, theirs in speaking.items()
        for text in words(revision, [mark])
        for stream in streams.announce_all(theirs, text, mark)
    ]


# Words.


def words(revision: str, marks: Iterable[str]) -> list[str]:
    """The messages to a client of that revision, for marks of what it has not been told."""
    found = (_notification(mark) for mark in marks)
    told = (encode_notification(REVISIONS[revision], method, params) for method, params in found)
    return [encode(message) for message in told if message is not None]


def _notification(mark: str) -> tuple[str, dict[str, str]]:
    if mark.startswith(URI):
        return "notifications/resources/updated", {"uri": mark.removeprefix(URI)}
    if mark.startswith(PAGE):
        return "notifications/elicitation/complete", {"elicitationId": mark.removeprefix(PAGE)}
    return f"notifications/{mark}/list_changed", {}


def speaking(session: Session) -> Callable[[Sequence[str]], Sequence[str]]:
    """``words`` for one session."""
    return lambda marks: words(session.revision, marks)


def everything(server: Server, session: Session) -> list[str]:
    """What a client may have missed when it is not known what it missed. Asks the database."""
    lists = [name for name in LISTS if name in capabilities(server)]
    uris = [uri for uri in sessions.uris(session) if not pages.is_page(uri)]
    return words(session.revision, [*lists, *(URI + uri for uri in uris)])
