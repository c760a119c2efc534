"""
Sessions that are to be told of a bulletin: which, and of what.

Rule: a session hears of what it may see at that moment, or saw before; what is
visible is looked up once for each principal and host, however many sessions it
has, and users are loaded all at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..declare.requests import Request
from ..delivery import sessions, sights
from ..delivery.jobs import BROKEN, is_away, surely
from ..delivery.rows import digest_of
from ..delivery.sights import Seen
from ..exceptions import Busy
from ..protocol.jsonrpc import encode
from ..protocol.revisions import REVISIONS, encode_notification
from . import pages
from .announcements import LISTS
from .bulletins import Bulletin
from .callers import in_pages, load_all
from .listening import AT_ONCE, BUSY_PAUSE, LATER
from .members import resolved
from .places import label_in
from .presentation import capabilities
from .running import surrounded_job
from .visibility import visible

if TYPE_CHECKING:
    from ..declare.servers import Server

logger = logging.getLogger("django_mcp")
URI, PAGE = "uri:", "page:"  # the marks of what is no list
LOOKING = 4  # principals that are looked up for at once

Owner = tuple[str, str, str]  # the key of a principal, what its token allows, and the host


@dataclass
class Told:
    """To each session its marks; of subscriptions, whether they are seen now, and where.

    ``turn`` names that in which it is told: what lists show is remembered for each.
    """

    turn: str = ""
    marks: defaultdict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    saw: list[tuple[int, bool, str]] = field(default_factory=list)
    by_session: dict[int, int] = field(default_factory=dict)  # of subscriptions
    pages: dict[str, list[int]] = field(default_factory=dict)  # that are done, for sessions
    seen: dict[str, Seen] = field(default_factory=dict)  # in lists, where that is another now


@dataclass
class Concerned:
    """What concerns one principal at one host; what it saw is kept under its ``name``."""

    name: str
    user: str | None
    scopes: list[str] | None
    owner: str
    host: str
    subscriptions: list[sessions.Subscribed] = field(default_factory=list)
    living: list[int] = field(default_factory=list)
    before: Sequence[str] = field(default_factory=list)  # what it saw in lists


async def told(server: Server, news: Bulletin, into: Told) -> None:
    """Add to ``into`` what sessions of a server are to be told."""
    concerned: dict[Owner, Concerned] = {}
    where = into.turn, server.name
    everybody = await _living(server, news)
    news = await resolved(news, (one.user for one in everybody))
    for one in await _subscribed(server, news):
        _of(concerned, one, where).subscriptions.append(one)
    for living in everybody if _is_for_lists(news) else ():
        _of(concerned, living, where).living.append(living.session)
    for id in news.pages:
        waiting = await surely(sessions.subscribers, server.name, pages.PREFIX + id)
        into.pages[id] = waiting
        for session in waiting:
            into.marks[session].append(PAGE + id)
    if concerned:
        await _look_at_all(server, news, list(concerned.values()), into)


def _of(
    found: dict[Owner, Concerned],
    one: sessions.Subscribed | sessions.Living,
    where: tuple[str, str],
) -> Concerned:
    who = (one.owner, repr(one.scopes), one.host)
    if who not in found:
        name = digest_of(repr((where, who)))
        found[who] = Concerned(name, one.user, one.scopes, one.owner, one.host)
    return found[who]


async def _subscribed(server: Server, news: Bulletin) -> list[sessions.Subscribed]:
    if not (news.uris or news.places or news.models or news.users or news.everything):
        return []
    found: dict[int, sessions.Subscribed] = {}
    for users in ([""],) if "" in news.users else list(in_pages(list(news.users))) or ([],):
        some = await surely(
            sessions.subscribed, server.name, list(news.uris), list(news.places),
            list(news.models), users, every=bool(news.everything),
        )  # fmt: skip
        found.update((one.id, one) for one in some)
    return [
        one
        for one in found.values()
        if (_is_meant(one, news) or news.permits(one.user)) and not pages.is_page(one.uri)
    ]


def _is_meant(one: sessions.Subscribed, news: Bulletin) -> bool:
    """A database may take texts for equal that are not."""
    return bool(
        news.everything
        or one.uri in news.uris
        or (one.place in news.places)
        or label_in(one.place) in news.models
    )


async def _living(server: Server, news: Bulletin) -> list[sessions.Living]:
    return await surely(sessions.owners, server.name) if _is_for_lists(news) else []


def _is_for_lists(news: Bulletin) -> bool:
    return bool(news.lists or news.listed or news.users or news.groups or news.everything)


# What each principal sees.


async def _look_at_all(
    server: Server, news: Bulletin, concerned: Sequence[Concerned], into: Told
) -> None:
    wanted = {one.name: one for one in concerned}
    users = await surely(load_all, wanted)
    if news.listed:
        await _recall([one for one in concerned if one.living])
    turns = asyncio.Semaphore(LOOKING)

    async def one(each: Concerned) -> None:
        async with turns:
            request = Request(users[each.name], server, host=each.host or None)
            await _look_at(request, news, each, into)

    await asyncio.gather(*map(one, concerned))


async def _look_at(request: Request, news: Bulletin, each: Concerned, into: Told) -> None:
    server = request.server
    try:
        seen = await _seen(request, _asked(each, news))
    except Exception:  # of the project's: what was seen before is known as long as nobody looks
        logger.exception("Nobody knows who may see what changed")
        _tell_lists(server, replace(news, listed={}), each, {}, into)
    else:
        _tell(each, news, seen, into)
        _tell_lists(server, news, each, seen, into)


async def _recall(those: Iterable[Concerned]) -> None:
    found = {one.name: one for one in those}
    for name, uris in (await surely(sights.of, found)).items():
        found[name].before = uris


def _asked(each: Concerned, news: Bulletin) -> list[str]:
    asked = dict.fromkeys(one.uri for one in each.subscriptions)
    return list(asked | (news.listed if each.living else {}))


async def _seen(request: Request, uris: Sequence[str]) -> dict[str, str]:
    """What of it they see now; as soon as it can be looked up."""
    seen: dict[str, str] = {}
    for start in range(0, len(uris), AT_ONCE):
        seen |= await _page(request, uris[start : start + AT_ONCE])
    return seen


async def _page(request: Request, uris: Sequence[str]) -> dict[str, str]:
    while True:
        try:
            return await surrounded_job(request, lambda: visible(request, uris))
        except Busy:
            logger.debug("It is looked up later who may see what changed")
        except BROKEN as error:
            if not is_away(error):
                raise
            logger.warning(LATER, error)
        await asyncio.sleep(BUSY_PAUSE)


def _tell(each: Concerned, news: Bulletin, seen: dict[str, str], into: Told) -> None:
    """Who sees, or saw, what changed; of what did not, who sees it no more, or again."""
    for one in each.subscriptions:
        if (one.uri in seen) != one.visible or (one.visible and _is_meant(one, news)):
            into.marks[one.session].append(URI + one.uri)
        now = (one.uri in seen, seen.get(one.uri, one.place))
        if now != (one.visible, one.place):
            into.saw.append((one.id, *now))
            into.by_session[one.id] = one.session


def _tell_lists(
    server: Server, news: Bulletin, each: Concerned, seen: dict[str, str], into: Told
) -> None:
    lists = _lists(server, news, each, seen, into) if each.living else []
    for session in each.living if lists else ():
        into.marks[session] += lists


def _lists(
    server: Server, news: Bulletin, each: Concerned, seen: dict[str, str], into: Told
) -> list[str]:
    found = {name for name in LISTS if name in news.lists}
    if news.everything or news.permits(each.user):
        found.update(LISTS)
    changed, kept = sights.looked(each.before, news.listed, seen)
    if changed:
        found.add("resources")
    if kept != each.before:
        into.seen[each.name] = Seen(each.owner, kept)
    return [name for name in LISTS if name in found and name in capabilities(server)]


# Words.


def words(revision: str, marks: Iterable[str]) -> list[tuple[str, str]]:
    """The messages to a client of that revision, each with its mark."""
    found = []
    for mark in dict.fromkeys(marks):
        message = encode_notification(REVISIONS[revision], *notification(mark))
        if message is not None:
            found.append((encode(message), mark))
    return found


def notification(mark: str) -> tuple[str, dict[str, str]]:
    if mark.startswith(URI):
        return "notifications/resources/updated", {"uri": mark.removeprefix(URI)}
    if mark.startswith(PAGE):
        return "notifications/elicitation/complete", {"elicitationId": mark.removeprefix(PAGE)}
    return f"notifications/{mark}/list_changed", {}
