"""Notify sessions of changes: one process claims a page of changes and writes the events.

A page is delivered once. The cursor moves in the transaction that writes the events
(``storage.change_log.tell``). If a session has no stream, its notification is stored as a mark and
sent when there is one. Several changes of one thing become one notification.

``told`` finds the sessions of a change set. A session is notified of what it can see now or could
see before. Visibility is queried once for each principal and host, however many sessions it has,
and all users are loaded together.

``ChangeBroadcaster`` claims pages. Changes of what lists show have a cursor of their own for each
database. All processes together handle these at most once in ``LISTING_INTERVAL_SECONDS``, and then
up to ``MAX_PAGES_AT_ONCE`` pages at once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from ..calls import listing
from ..calls.callers import in_pages, load_all
from ..calls.execution import surrounded_job
from ..calls.methods import capabilities
from ..calls.visibility import label_in, visible
from ..declarations.request import Request
from ..declarations.server import server_named, servers
from ..exceptions import Busy
from ..models import Session
from ..protocol.jsonrpc import encode
from ..protocol.revisions import REVISIONS, encode_notification
from ..runtime import threads
from ..runtime.environment import environment
from ..runtime.runtime import Service
from ..storage import change_log, sessions, streams
from ..storage.change_log import (
    ANYTHING,
    INTERESTS_RENEWAL_SECONDS,
    ChangeLogState,
    ClaimedChanges,
    NumberedChange,
    Page,
    VisibleUris,
)
from ..storage.databases import digest_of, one_transaction
from ..storage.jobs import BROKEN, is_away, reconnecting, surely
from ..storage.leases import lease
from ..storage.wakeups import StreamWakeup, doorbell, ring
from . import api, feed
from .change_set import ChangeSet, change_set_for, everything, resolved
from .feed import Tips, change_feed
from .listeners import listed
from .subscriptions import (
    BUSY_RETRY_SECONDS,
    LATER,
    LISTS,
    URIS_PER_CHECK,
)

if TYPE_CHECKING:
    from ..declarations.server import Server

logger = logging.getLogger("django_mcp")
URI, PAGE = "uri:", "page:"  # prefixes of marks. Marks without one are names of lists.
LOOKUP_CONCURRENCY = 4  # principals whose visibility is queried at the same time

Owner = tuple[str, str, str]  # the key of a principal, the scopes of its token, and the host


@dataclass
class SessionNotifications:
    """The notifications of one page of changes, as marks by session id.

    ``saw`` has the new visibility of subscriptions: the id, whether visible, and the row.
    ``turn`` is the name of the cursor. Visibility in lists is stored for each cursor.
    """

    turn: str = ""
    marks: defaultdict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    saw: list[tuple[int, bool, str]] = field(default_factory=list)
    by_session: dict[int, int] = field(default_factory=dict)  # the session of each subscription
    pages: dict[str, list[int]] = field(default_factory=dict)  # sessions of each completed page
    # What principals can see in lists, by the name of the snapshot, where it has changed.
    seen: dict[str, VisibleUris] = field(default_factory=dict)


@dataclass
class AffectedPrincipal:
    """The sessions and subscriptions of one principal at one host.

    ``name`` is the key of its ``VisibilitySnapshot``, and ``living`` has the ids of its sessions.
    """

    name: str
    user: str | None
    scopes: list[str] | None
    owner: str
    host: str
    subscriptions: list[sessions.SessionSubscription] = field(default_factory=list)
    living: list[int] = field(default_factory=list)
    before: Sequence[str] = field(default_factory=list)  # digests of what it could see in lists


async def told(server: Server, news: ChangeSet, into: SessionNotifications) -> None:
    """Add to ``into`` the notifications for the sessions of a server."""
    concerned: dict[Owner, AffectedPrincipal] = {}
    where = into.turn, server.name
    everybody = await _living(server, news)
    news = await resolved(news, (one.user for one in everybody))
    for one in await _subscribed(server, news):
        _of(concerned, one, where).subscriptions.append(one)
    for living in everybody if _is_for_lists(news) else ():
        _of(concerned, living, where).living.append(living.session)
    for id in news.pages:
        waiting = await surely(sessions.subscribers, server.name, listing.PREFIX + id)
        into.pages[id] = waiting
        for session in waiting:
            into.marks[session].append(PAGE + id)
    if concerned:
        await _look_at_all(server, news, list(concerned.values()), into)


def _of(
    found: dict[Owner, AffectedPrincipal],
    one: sessions.SessionSubscription | sessions.InitializedSession,
    where: tuple[str, str],
) -> AffectedPrincipal:
    who = (one.owner, repr(one.scopes), one.host)
    if who not in found:
        name = digest_of(repr((where, who)))
        found[who] = AffectedPrincipal(name, one.user, one.scopes, one.owner, one.host)
    return found[who]


async def _subscribed(server: Server, news: ChangeSet) -> list[sessions.SessionSubscription]:
    if not (news.uris or news.places or news.models or news.users or news.everything):
        return []
    found: dict[int, sessions.SessionSubscription] = {}
    for users in ([""],) if "" in news.users else list(in_pages(list(news.users))) or ([],):
        some = await surely(
            sessions.subscribed, server.name, list(news.uris), list(news.places),
            list(news.models), users, every=bool(news.everything),
        )  # fmt: skip
        found.update((one.id, one) for one in some)
    return [
        one
        for one in found.values()
        if (_is_meant(one, news) or news.permits(one.user)) and not listing.is_page(one.uri)
    ]


def _is_meant(one: sessions.SessionSubscription, news: ChangeSet) -> bool:
    """Whether the subscription's resource changed.

    The query has found it, but a database may compare texts without case. So compare again.
    """
    return bool(
        news.everything
        or one.uri in news.uris
        or (one.place in news.places)
        or label_in(one.place) in news.models
    )


async def _living(server: Server, news: ChangeSet) -> list[sessions.InitializedSession]:
    return await surely(sessions.owners, server.name) if _is_for_lists(news) else []


def _is_for_lists(news: ChangeSet) -> bool:
    return bool(news.lists or news.listed or news.users or news.groups or news.everything)


# Visibility for each principal.


async def _look_at_all(
    server: Server,
    news: ChangeSet,
    concerned: Sequence[AffectedPrincipal],
    into: SessionNotifications,
) -> None:
    wanted = {one.name: one for one in concerned}
    users = await surely(load_all, wanted)
    if news.listed:
        await _recall([one for one in concerned if one.living])
    # A change that concerns many principals must not take all threads of the pool from calls.
    turns = asyncio.Semaphore(LOOKUP_CONCURRENCY)

    async def one(each: AffectedPrincipal) -> None:
        async with turns:
            request = Request(users[each.name], server, host=each.host or None)
            await _look_at(request, news, each, into)

    await asyncio.gather(*map(one, concerned))


async def _look_at(
    request: Request, news: ChangeSet, each: AffectedPrincipal, into: SessionNotifications
) -> None:
    server = request.server
    try:
        seen = await _seen(request, _asked(each, news))
    except Exception:
        # The project's code failed. Send nothing about resources: it is unknown who may see them.
        # The stored visibility stays as it was, for the next check.
        logger.exception("Nobody knows who may see what changed")
        _tell_lists(server, replace(news, listed={}), each, {}, into)
    else:
        _tell(each, news, seen, into)
        _tell_lists(server, news, each, seen, into)


async def _recall(those: Iterable[AffectedPrincipal]) -> None:
    found = {one.name: one for one in those}
    for name, uris in (await surely(change_log.of, found)).items():
        found[name].before = uris


def _asked(each: AffectedPrincipal, news: ChangeSet) -> list[str]:
    asked = dict.fromkeys(one.uri for one in each.subscriptions)
    return list(asked | (news.listed if each.living else {}))


async def _seen(request: Request, uris: Sequence[str]) -> dict[str, str]:
    """Return the visible ``uris`` with their rows. Retry while the database is down."""
    seen: dict[str, str] = {}
    for start in range(0, len(uris), URIS_PER_CHECK):
        seen |= await _page(request, uris[start : start + URIS_PER_CHECK])
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
        await asyncio.sleep(BUSY_RETRY_SECONDS)


def _tell(
    each: AffectedPrincipal, news: ChangeSet, seen: dict[str, str], into: SessionNotifications
) -> None:
    """Add marks for subscriptions: changed and visible now or before, or visibility changed."""
    for one in each.subscriptions:
        if (one.uri in seen) != one.visible or (one.visible and _is_meant(one, news)):
            into.marks[one.session].append(URI + one.uri)
        now = (one.uri in seen, seen.get(one.uri, one.place))
        if now != (one.visible, one.place):
            into.saw.append((one.id, *now))
            into.by_session[one.id] = one.session


def _tell_lists(
    server: Server,
    news: ChangeSet,
    each: AffectedPrincipal,
    seen: dict[str, str],
    into: SessionNotifications,
) -> None:
    lists = _lists(server, news, each, seen, into) if each.living else []
    for session in each.living if lists else ():
        into.marks[session] += lists


def _lists(
    server: Server,
    news: ChangeSet,
    each: AffectedPrincipal,
    seen: dict[str, str],
    into: SessionNotifications,
) -> list[str]:
    found = {name for name in LISTS if name in news.lists}
    if news.everything or news.permits(each.user):
        found.update(LISTS)
    changed, kept = change_log.looked(each.before, news.listed, seen)
    if changed:
        found.add("resources")
    if kept != each.before:
        into.seen[each.name] = VisibleUris(each.owner, kept)
    return [name for name in LISTS if name in found and name in capabilities(server)]


# Messages.


def messages_with_marks(revision: str, marks: Iterable[str]) -> list[tuple[str, str]]:
    """Return the messages for a client of that revision, each with its mark."""
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


MAX_PAGES_AT_ONCE = 20  # pages of changes of lists in one claim


def alias_of(name: str) -> str:
    return name.removesuffix(change_log.OF_LISTS)


def is_of_lists(name: str) -> bool:
    return name.endswith(change_log.OF_LISTS)


def taken(
    name: str, tip: ChangeLogState, every: float
) -> tuple[ClaimedChanges | None, Page | None]:
    """Claim the next page of a cursor. Return the claim and the page.

    Return None and a page if there are no changes. Return None twice if another process has the
    claim, or if the cursor is of lists and ``every`` seconds are not over.
    """
    found = change_log.begin(name, tip.last)
    # A cursor beyond the last change means that a backup was restored. Read the tip again first:
    # another process may have moved the cursor after ``tip`` was read.
    if found.seq > tip.last and found.seq > change_log.tip(alias_of(name)).last:
        change_log.put_back(found)
        return None, None
    if found.until <= found.seq >= tip.last:
        return None, Page(tip.last, (), True)
    if is_of_lists(name) and not change_log.may(change_log.OF_LISTS, every):
        return None, None
    page = _read(name, found.seq, tip.last)
    turn = change_log.claim(found, page.until, lease.hold())
    if turn is None:
        return None, None
    # A page that a dead process left keeps its end. The sessions that it has notified are skipped,
    # and would miss the changes of a longer page.
    return turn, page if turn.until == page.until else _read(name, turn.after, turn.until)


def _read(name: str, seq: int, last: int) -> Page:
    found: list[NumberedChange] = []
    is_whole = True
    for _ in range(MAX_PAGES_AT_ONCE if is_of_lists(name) else 1):
        page = change_log.after(alias_of(name), seq, last)
        found += page.changes
        seq, is_whole = page.until, is_whole and page.is_whole
        if seq >= last:
            break
    return Page(seq, found, is_whole)


def news(server: Server, name: str, page: Page) -> ChangeSet:
    """Return the part of a page's changes that this cursor delivers, for one server."""
    found = change_set_for(server, page.changes)
    if is_of_lists(name):
        return ChangeSet(listed=found.listed)
    found.listed = {}
    if not page.is_whole:  # changes were deleted before they were read
        found.add(everything())
    return found


SESSIONS_PER_JOB = 50  # sessions notified in one transaction
# Attempts per ``LISTING_INTERVAL_SECONDS`` while another process delivers changes of lists.
LOOKS_PER_LISTING_INTERVAL = 4


def start() -> None:
    """Start to notify sessions of changes, in the running event loop."""
    feed_here = change_feed()
    feed_here.broadcaster = tellers()
    if environment().has_background_services:
        feed_here.start()


# Claims.


class ChangeBroadcaster:
    """Claims pages of changes and notifies sessions, in competition with other processes."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}  # last number that was delivered, by name of the cursor
        # When lists are tried again, and when the interests were stored last (monotonic clock).
        self._lists_at = self._said_at = 0.0
        self._tried: dict[str, float] = {}  # last attempt, by name of the cursor of lists
        self._task: asyncio.Task[None] | None = None
        # Changes that only this process knows of, by server, and the task that delivers them.
        self._local: defaultdict[str, ChangeSet] = defaultdict(ChangeSet)
        self._local_task: asyncio.Task[None] | None = None

    @property
    def is_eager(self) -> bool:
        """Whether a client is connected that waits for notifications."""
        return bool(doorbell())

    async def broadcast(self, tips: Tips) -> None:
        """Start to deliver what is due, unless the last delivery is still running."""
        await self._say_again()
        is_free = self._task is None or self._task.done()
        if is_free and (due := self._due(tips)):
            self._task = asyncio.get_running_loop().create_task(self._tell(due, tips))

    def _due(self, tips: Tips) -> list[str]:
        """Return the cursors with new changes, at most one of them of lists.

        For lists, the databases alternate: the one that was tried longest ago comes first.
        """
        due = [one for one in tips if tips[one].last != self._known.get(one)]
        lists = [
            one + change_log.OF_LISTS
            for one in tips
            if self._known.get(one + change_log.OF_LISTS) != tips[one].last
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
            except (change_log.ClaimLost, Busy):
                logger.debug("Another process tells of %s, or it is told later", name)
            except BROKEN as error:
                logger.warning("Sessions are told of changes later: %s", error)
                await asyncio.sleep(BUSY_RETRY_SECONDS)
            except Exception:
                logger.exception("Sessions were not told of changes")
                await asyncio.sleep(BUSY_RETRY_SECONDS)

    async def _tell_page(self, name: str, tip: ChangeLogState) -> None:
        # Claims are held by the process. A second event loop would get the claim of the first.
        if name in _told_here:
            return
        _told_here.add(name)
        try:
            await self._take_turn(name, tip)
        finally:
            _told_here.discard(name)

    async def _take_turn(self, name: str, tip: ChangeLogState) -> None:
        turn, page = await threads.changes.run(
            reconnecting, taken, name, tip, feed.LISTING_INTERVAL_SECONDS
        )
        if is_of_lists(name) and (turn is not None or page is None):
            self._lists_at = time.monotonic() + (
                feed.LISTING_INTERVAL_SECONDS
                if turn
                else feed.LISTING_INTERVAL_SECONDS / LOOKS_PER_LISTING_INTERVAL
            )
        if turn is None:
            self._known[name] = -1 if page is None else page.until
            return
        assert page is not None
        found = SessionNotifications(name)
        for server in servers():
            if mine := news(server, name, page):
                await told(server, mine, found)
        await _tell_all(turn, found)
        self._known[name] = turn.until
        change_feed().wake()

    async def _say_again(self) -> None:
        """Renew the interest in models of lists and in announced changes."""
        if time.monotonic() >= self._said_at + INTERESTS_RENEWAL_SECONDS or not self._said_at:
            models = {ANYTHING}.union(*(listed(one) for one in servers() if not one.is_empty))
            await threads.log.run(reconnecting, change_log.declare, change_log.LISTS, models)
            if not self._said_at:
                await threads.changes.run(reconnecting, _compare)
            self._said_at = time.monotonic()

    # Changes without a log.

    def receive_local(self, server: str, changes: ChangeSet) -> None:
        self._local[server].add(changes)
        if self._local_task is None or self._local_task.done():
            self._local_task = asyncio.get_running_loop().create_task(self._tell_local())

    async def _tell_local(self) -> None:
        while self._local:
            server, changes = self._local.popitem()
            try:
                await _tell_without_claim(server, changes)
            except Busy:
                self._local[server].add(changes)
                await asyncio.sleep(BUSY_RETRY_SECONDS)
            except Exception:
                logger.exception("Sessions were not told of changes")


tellers = Service(ChangeBroadcaster)
_told_here: set[str] = set()  # cursors whose page an event loop of this process is delivering


def _compare() -> None:
    """Announce lists that differ from those of the deployment before this one."""
    change_log.watched.forget()
    for server in servers():
        if not server.is_empty:
            api.tell(server)


def _lists_rows(server: Server) -> bool:
    return not server.is_empty and bool(listed(server))


async def _tell_all(turn: ClaimedChanges, found: SessionNotifications) -> None:
    """Notify the sessions in the order of their ids, a few in each transaction.

    Skip those up to ``turn.told``: a process that died has notified them.
    """
    chunks = [some for some in _chunks(found) if max(some) > turn.told] or [{}]
    for place, some in enumerate(chunks):
        left = {session: marks for session, marks in some.items() if session > turn.told}
        saw = [one for one in found.saw if found.by_session[one[0]] in left]
        job = partial(_say, turn, left, saw, found.seen, over=place == len(chunks) - 1)
        _ring(await surely(job, again=False))
    await _after(found)


async def _tell_without_claim(server: str, changes: ChangeSet) -> None:
    found = SessionNotifications()
    await told(server_named(server), changes, found)
    for some in _chunks(found):
        saw = [one for one in found.saw if found.by_session[one[0]] in some]
        _ring(await surely(_announce, some, saw))
    if found.seen:
        await surely(change_log.keep, found.seen)
    await _after(found)


def _say(
    turn: ClaimedChanges, marks: Mapping[int, Sequence[str]], saw: change_log.Saw,
    seen: Mapping[str, change_log.VisibleUris], *, over: bool, again: bool,
) -> list[int]:  # fmt: skip
    return change_log.tell(turn, _spoken(marks), saw, seen, over=over, again=again)


@one_transaction
def _announce(marks: Mapping[int, Sequence[str]], saw: change_log.Saw) -> list[int]:
    sessions.saw(saw)
    return streams.announce_here(_spoken(marks))


def _spoken(marks: Mapping[int, Sequence[str]]) -> dict[int, list[tuple[str, str]]]:
    found = sessions.revisions(list(marks))
    return {id: messages_with_marks(revision, marks[id]) for id, revision in found.items()}


def _chunks(found: SessionNotifications) -> Iterator[dict[int, list[str]]]:
    ordered = sorted({*found.marks, *found.by_session.values()})
    for start in range(0, len(ordered), SESSIONS_PER_JOB):
        yield {one: found.marks.get(one, []) for one in ordered[start : start + SESSIONS_PER_JOB]}


def _ring(taken: Iterable[int]) -> None:
    ring(*(StreamWakeup(stream, changed=True) for stream in taken))


async def _after(found: SessionNotifications) -> None:
    for id, told in found.pages.items():
        await surely(listing.forget, told, id)


# Messages of sessions.


def messages(revision: str, marks: Iterable[str]) -> list[str]:
    """Return the notifications for ``marks``, the changes not yet sent, in a client's revision."""
    return [text for text, _ in messages_with_marks(revision, marks)]


def speaking(session: Session) -> Callable[[Sequence[str]], Sequence[str]]:
    """Return ``messages`` for the revision of one session."""
    return lambda marks: messages(session.revision, marks)


def all_missed(server: Server, session: Session) -> list[str]:
    """Return notifications for all lists and subscriptions. Queries the database.

    For a client that missed an unknown number of notifications.
    """
    lists = [name for name in LISTS if name in capabilities(server)]
    uris = [uri for uri in sessions.uris(session) if not listing.is_page(uri)]
    return messages(session.revision, [*lists, *(URI + uri for uri in uris)])
