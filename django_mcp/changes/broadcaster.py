"""
Notify sessions of changes in rows, lists and permissions.

Any process may notify any session, because sessions belong to no process. For each database there
is a cursor row with the last change of which sessions were notified. ``ChangeBroadcaster`` works in
these steps:

1. Claim the next page of changes after the cursor. Other processes skip a claimed page.
2. Find the sessions that the page concerns, and what each can see now (``add_notifications``).
3. Write the notifications as events, a few sessions in each transaction. The transaction also
   writes how far the page was delivered, so if this process dies, another one continues there.

A session is notified of a resource if its user can see it now or could see it before the change.
Visibility is queried once for each principal and host, however many sessions it has. Several
changes of one resource or list become one notification. If a session has no stream, the session
keeps a mark, from which the notification is made when the client opens one.

Changes of what lists show are frequent and cost queries. They have a second cursor for each
database. All processes together handle them at most once in ``LISTING_INTERVAL_SECONDS``, and then
up to ``MAX_PAGES_AT_ONCE`` pages at once.
"""

from __future__ import annotations

import asyncio
import logging
import threading
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
from ..runtime.runtime import Service, environment
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
from ..storage.jobs import BROKEN, is_away, run_or_disconnect, run_with_retries
from ..storage.leases import lease
from ..storage.wakeups import StreamWakeup, stream_wakeups, wake_readers
from . import api, feed
from .change_set import ChangeSet, change_set_for, everything, resolved
from .feed import Tips, change_feed
from .subscriptions import (
    BUSY_RETRY_SECONDS,
    CHECK_POSTPONED,
    LISTS,
    URIS_PER_CHECK,
    listed_models,
)

if TYPE_CHECKING:
    from ..declarations.server import Server

logger = logging.getLogger("django_mcp")
URI, PAGE = "uri:", "page:"  # prefixes of marks. Marks without one are names of lists.
LOOKUP_CONCURRENCY = 4  # principals whose visibility is queried at the same time


@dataclass
class SessionNotifications:
    """The notifications of one page of changes, and the visibility to store with them."""

    cursor: str = ""  # its name. Visibility in lists is stored for each cursor.
    # A mark for each notification, by session id.
    marks: defaultdict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    # The new visibility of subscriptions: the id, whether visible, and the row.
    visibility: list[tuple[int, bool, str]] = field(default_factory=list)
    by_session: dict[int, int] = field(default_factory=dict)  # the session of each subscription
    # Sessions that are notified that the page of a URL elicitation was completed, by its id.
    pages: dict[str, list[int]] = field(default_factory=dict)
    # What principals can see in lists, by the name of the snapshot, if it has changed.
    snapshots: dict[str, VisibleUris] = field(default_factory=dict)


@dataclass
class AffectedPrincipal:
    """The sessions and subscriptions of one principal at one host that a change may concern."""

    snapshot: str  # the name of its ``VisibilitySnapshot``
    user: str | None
    scopes: list[str] | None
    owner: str
    host: str
    subscriptions: list[sessions.SessionSubscription] = field(default_factory=list)
    sessions: list[int] = field(default_factory=list)
    visible_before: Sequence[str] = field(default_factory=list)  # in lists, as digests of URIs


async def add_notifications(
    server: Server, changes: ChangeSet, notifications: SessionNotifications
) -> None:
    """Add to ``notifications`` those for the sessions of a server."""
    found: dict[tuple[str, str, str], AffectedPrincipal] = {}

    def principal_of(
        one: sessions.SessionSubscription | sessions.InitializedSession,
    ) -> AffectedPrincipal:
        key = (one.owner, repr(one.scopes), one.host)
        if key not in found:
            snapshot = digest_of(repr(((notifications.cursor, server.name), key)))
            found[key] = AffectedPrincipal(snapshot, one.user, one.scopes, one.owner, one.host)
        return found[key]

    every_session = await _initialized_sessions(server, changes)
    changes = await resolved(changes, (one.user for one in every_session))
    for subscription in await _affected_subscriptions(server, changes):
        principal_of(subscription).subscriptions.append(subscription)
    for session in every_session if _concerns_lists(changes) else ():
        principal_of(session).sessions.append(session.session)
    for id in changes.pages:
        notifications.pages[id] = await run_with_retries(
            sessions.subscriber_ids, server.name, listing.PREFIX + id
        )
        for waiting in notifications.pages[id]:
            notifications.marks[waiting].append(PAGE + id)
    if found:
        await _check_principals(server, changes, list(found.values()), notifications)


async def _affected_subscriptions(
    server: Server, changes: ChangeSet
) -> list[sessions.SessionSubscription]:
    if not (changes.uris or changes.rows or changes.models or changes.users or changes.everything):
        return []
    found: dict[int, sessions.SessionSubscription] = {}
    for users in ([""],) if "" in changes.users else list(in_pages(list(changes.users))) or ([],):
        some = await run_with_retries(
            sessions.find_subscriptions, server.name, list(changes.uris), list(changes.rows),
            list(changes.models), users, every=bool(changes.everything),
        )  # fmt: skip
        found.update((one.id, one) for one in some)
    return [
        one
        for one in found.values()
        if (_is_changed(one, changes) or changes.permits(one.user)) and not listing.is_page(one.uri)
    ]


def _is_changed(one: sessions.SessionSubscription, changes: ChangeSet) -> bool:
    """Whether the subscription's resource changed.

    The query has found it, but a database may compare texts without case. So compare again.
    """
    return bool(
        changes.everything
        or one.uri in changes.uris
        or (one.place in changes.rows)
        or label_in(one.place) in changes.models
    )


async def _initialized_sessions(
    server: Server, changes: ChangeSet
) -> list[sessions.InitializedSession]:
    if not _concerns_lists(changes):
        return []
    return await run_with_retries(sessions.initialized_sessions, server.name)


def _concerns_lists(changes: ChangeSet) -> bool:
    return bool(
        changes.lists or changes.listed or changes.users or changes.groups or changes.everything
    )


# Visibility for each principal.


async def _check_principals(
    server: Server,
    changes: ChangeSet,
    affected: Sequence[AffectedPrincipal],
    notifications: SessionNotifications,
) -> None:
    by_snapshot = {one.snapshot: one for one in affected}
    principals = await run_with_retries(load_all, by_snapshot)
    if changes.listed:
        names = [one.snapshot for one in affected if one.sessions]
        for name, uris in (await run_with_retries(change_log.snapshots, names)).items():
            by_snapshot[name].visible_before = uris
    # A change that concerns many principals must not take all threads of the pool from calls.
    slots = asyncio.Semaphore(LOOKUP_CONCURRENCY)

    async def check(one: AffectedPrincipal) -> None:
        async with slots:
            request = Request(principals[one.snapshot], server, host=one.host or None)
            await _check_principal(request, changes, one, notifications)

    await asyncio.gather(*map(check, affected))


async def _check_principal(
    request: Request,
    changes: ChangeSet,
    principal: AffectedPrincipal,
    notifications: SessionNotifications,
) -> None:
    uris = dict.fromkeys(one.uri for one in principal.subscriptions)
    if principal.sessions:
        uris |= dict.fromkeys(changes.listed)
    try:
        found = await _visible_uris(request, list(uris))
    except Exception:
        # The project's code failed. Send nothing about resources: it is unknown who may see them.
        # The stored visibility stays as it was, for the next check.
        logger.exception("Notifications about resources dropped: visibility cannot be checked")
        found, changes = {}, replace(changes, listed={})
    else:
        _add_updates(principal, changes, found, notifications)
    if principal.sessions:
        lists = _changed_lists(request.server, changes, principal, found, notifications)
        for session in principal.sessions if lists else ():
            notifications.marks[session] += lists


async def _visible_uris(request: Request, uris: Sequence[str]) -> dict[str, str]:
    """Return the visible ``uris`` with their rows. Retry while the database is down."""
    found: dict[str, str] = {}
    for start in range(0, len(uris), URIS_PER_CHECK):
        found |= await _visible_page(request, uris[start : start + URIS_PER_CHECK])
    return found


async def _visible_page(request: Request, uris: Sequence[str]) -> dict[str, str]:
    while True:
        try:
            return await surrounded_job(request, lambda: visible(request, uris))
        except Busy:
            logger.debug("Visibility is checked later: all threads are busy")
        except BROKEN as error:
            if not is_away(error):
                raise
            logger.warning(CHECK_POSTPONED, error)
        await asyncio.sleep(BUSY_RETRY_SECONDS)


def _add_updates(
    principal: AffectedPrincipal,
    changes: ChangeSet,
    visible_now: dict[str, str],
    notifications: SessionNotifications,
) -> None:
    """Add marks for subscriptions: changed and visible now or before, or visibility changed."""
    for one in principal.subscriptions:
        is_visible = one.uri in visible_now
        if is_visible != one.visible or (one.visible and _is_changed(one, changes)):
            notifications.marks[one.session].append(URI + one.uri)
        now = (is_visible, visible_now.get(one.uri, one.place))
        if now != (one.visible, one.place):
            notifications.visibility.append((one.id, *now))
            notifications.by_session[one.id] = one.session


def _changed_lists(
    server: Server,
    changes: ChangeSet,
    principal: AffectedPrincipal,
    visible_now: dict[str, str],
    notifications: SessionNotifications,
) -> list[str]:
    """Return the names of the lists that changed for a principal, and note what it can see now."""
    found = {name for name in LISTS if name in changes.lists}
    if changes.everything or changes.permits(principal.user):
        found.update(LISTS)
    before = principal.visible_before
    has_changed, digests = change_log.compare_visible(before, changes.listed, visible_now)
    if has_changed:
        found.add("resources")
    if digests != before:
        notifications.snapshots[principal.snapshot] = VisibleUris(principal.owner, digests)
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


# Claims.

MAX_PAGES_AT_ONCE = 20  # pages of changes of lists in one claim


def alias_of(name: str) -> str:
    return name.removesuffix(change_log.OF_LISTS)


def is_of_lists(name: str) -> bool:
    return name.endswith(change_log.OF_LISTS)


def claim_page(
    name: str, tip: ChangeLogState, every: float
) -> tuple[ClaimedChanges | None, Page | None]:
    """Claim the next page of a cursor. Return the claim and the page.

    Return None and a page if there are no changes. Return None twice if another process has the
    claim, or if the cursor is of lists and ``every`` seconds are not over. Runs queries.
    """
    found = change_log.cursor_of(name, tip.last)
    # A cursor beyond the last change means that a backup was restored. Then all changes count as
    # new. Read the last number again before: another process may have moved the cursor after
    # ``tip`` was read.
    if found.seq > tip.last and found.seq > change_log.tip(alias_of(name)).last:
        change_log.reset_cursor(found)
        return None, None
    if found.until <= found.seq >= tip.last:
        return None, Page(tip.last, (), True)
    if is_of_lists(name) and not change_log.is_due(change_log.OF_LISTS, every):
        return None, None
    page = _read_page(name, found.seq, tip.last)
    # This process does not deliver under a former id any more, or ``_delivering_here`` would have
    # its cursor. Without ``lease.former``, the page would wait until the former id counts as dead.
    claim = change_log.claim(found, page.until, lease.hold(), lease.former)
    if claim is None:
        return None, None
    # A page that a dead process left keeps its end. The sessions that it has notified are skipped,
    # and would miss the changes of a longer page.
    return claim, page if claim.until == page.until else _read_page(name, claim.after, claim.until)


def _read_page(name: str, seq: int, last: int) -> Page:
    found: list[NumberedChange] = []
    is_whole = True
    for _ in range(MAX_PAGES_AT_ONCE if is_of_lists(name) else 1):
        page = change_log.after(alias_of(name), seq, last)
        found += page.changes
        seq, is_whole = page.until, is_whole and page.is_whole
        if seq >= last:
            break
    return Page(seq, found, is_whole)


def changes_for(server: Server, name: str, page: Page) -> ChangeSet:
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
ATTEMPTS_PER_LISTING_INTERVAL = 4


def start() -> None:
    """Start to notify sessions of changes, in the running event loop."""
    feed_here = change_feed()
    if feed_here.broadcaster is None:
        feed_here.broadcaster = broadcaster()
    if not feed_here.is_running and environment().has_background_services:
        feed_here.start()


class ChangeBroadcaster:
    """Claims pages of changes and notifies sessions, in competition with other processes."""

    def __init__(self) -> None:
        # The number of the last change that was delivered, by name of the cursor.
        self._delivered: dict[str, int] = {}
        self._lists_due_at = 0.0  # when changes of lists are tried again (monotonic clock)
        self._interests_stored_at = 0.0  # 0.0: never
        self._tried_at: dict[str, float] = {}  # last attempt, by name of the cursor of lists
        self._task: asyncio.Task[None] | None = None
        # Changes that only this process knows of, by server, and the task that delivers them.
        self._local: defaultdict[str, ChangeSet] = defaultdict(ChangeSet)
        self._local_task: asyncio.Task[None] | None = None

    @property
    def is_eager(self) -> bool:
        """Whether a client is connected that waits for notifications."""
        return bool(stream_wakeups())

    async def broadcast(self, tips: Tips) -> None:
        """Start to deliver the changes up to ``tips``, unless the last delivery is still running.

        It does not wait for the end of the delivery.
        """
        await self._renew_interests()
        is_free = self._task is None or self._task.done()
        if is_free and (due := self._due(tips)):
            self._task = asyncio.get_running_loop().create_task(self._deliver(due, tips))

    def _due(self, tips: Tips) -> list[str]:
        """Return the cursors with new changes, at most one of them of lists.

        For lists, the databases alternate: the one that was tried longest ago comes first.
        """
        due = [alias for alias in tips if tips[alias].last != self._delivered.get(alias)]
        lists = [
            alias + change_log.OF_LISTS
            for alias in tips
            if self._delivered.get(alias + change_log.OF_LISTS) != tips[alias].last
        ]
        now = time.monotonic()
        if lists and now >= self._lists_due_at and any(map(_lists_models, servers())):
            due.append(min(lists, key=lambda name: self._tried_at.get(name, 0.0)))
            self._tried_at[due[-1]] = now
        return due

    async def _deliver(self, due: Sequence[str], tips: Tips) -> None:
        for name in due:
            try:
                await self._deliver_page(name, tips[alias_of(name)])
            except (change_log.ClaimLost, Busy):
                logger.debug("Changes of %s are delivered by another process, or later", name)
            except BROKEN as error:
                logger.warning("Notification of sessions postponed: %s", error)
                await asyncio.sleep(BUSY_RETRY_SECONDS)
            except Exception:
                logger.exception("Sessions were not notified of changes")
                await asyncio.sleep(BUSY_RETRY_SECONDS)

    async def _deliver_page(self, name: str, tip: ChangeLogState) -> None:
        # A claim is of the whole process. A second event loop of it would get the claim of the
        # first, and the delivery of the first would fail. The lock prevents that two event loops
        # both find the name missing.
        with _delivering_lock:
            if name in _delivering_here:
                return
            _delivering_here.add(name)
        try:
            await self._deliver_next(name, tip)
        finally:
            _delivering_here.discard(name)

    async def _deliver_next(self, name: str, tip: ChangeLogState) -> None:
        interval = feed.LISTING_INTERVAL_SECONDS
        claim, page = await threads.changes.run(run_or_disconnect, claim_page, name, tip, interval)
        if is_of_lists(name) and (claim is not None or page is None):
            pause = interval if claim else interval / ATTEMPTS_PER_LISTING_INTERVAL
            self._lists_due_at = time.monotonic() + pause
        if claim is None:
            self._delivered[name] = -1 if page is None else page.until
            return
        assert page is not None
        found = SessionNotifications(name)
        for server in servers():
            if mine := changes_for(server, name, page):
                await add_notifications(server, mine, found)
        await _notify_all(claim, found)
        self._delivered[name] = claim.until
        change_feed().wake()

    async def _renew_interests(self) -> None:
        """Renew the interest in models of lists and in announced changes."""
        is_first = not self._interests_stored_at
        due_at = self._interests_stored_at + INTERESTS_RENEWAL_SECONDS
        if time.monotonic() < due_at and not is_first:
            return
        models = {ANYTHING}.union(*(listed_models(one) for one in servers() if not one._is_empty))
        await threads.log.run(run_or_disconnect, change_log.declare, change_log.LISTS, models)
        if is_first:
            # After the interest is stored, or the announcement would not be recorded.
            await threads.changes.run(run_or_disconnect, _announce_changed_lists)
        self._interests_stored_at = time.monotonic()

    # Changes without a log.

    def receive_local(self, server: str, changes: ChangeSet) -> None:
        """Take changes that only this process knows of, as in the transaction of a test."""
        self._local[server].add(changes)
        if self._local_task is None or self._local_task.done():
            self._local_task = asyncio.get_running_loop().create_task(self._deliver_local())

    async def _deliver_local(self) -> None:
        while self._local:
            server, changes = self._local.popitem()
            try:
                await _notify_without_claim(server, changes)
            except Busy:
                self._local[server].add(changes)
                await asyncio.sleep(BUSY_RETRY_SECONDS)
            except Exception:
                logger.exception("Sessions were not notified of changes")


broadcaster = Service(ChangeBroadcaster)
_delivering_here: set[str] = set()  # cursors whose page an event loop of this process is delivering
_delivering_lock = threading.Lock()


def _announce_changed_lists() -> None:
    """Announce lists that differ from those of the deployment before this one."""
    change_log.watched.forget()
    for server in servers():
        if not server._is_empty:
            api.announce_changed_lists(server)


def _lists_models(server: Server) -> bool:
    return not server._is_empty and bool(listed_models(server))


async def _notify_all(claim: ClaimedChanges, found: SessionNotifications) -> None:
    """Notify the sessions in the order of their ids, a few in each transaction.

    Skip those up to ``claim.notified``: a process that died has notified them.
    """
    # Without sessions, one transaction moves the cursor.
    chunks = [some for some in _chunks(found) if max(some) > claim.notified] or [{}]
    for number, some in enumerate(chunks, 1):
        left = {session: marks for session, marks in some.items() if session > claim.notified}
        visibility = [one for one in found.visibility if found.by_session[one[0]] in left]
        job = partial(
            _deliver_claimed, claim, left, visibility, found.snapshots, over=number == len(chunks)
        )
        _wake(await run_with_retries(job, is_retry=False))
    await _forget_pages(found)


async def _notify_without_claim(server: str, changes: ChangeSet) -> None:
    found = SessionNotifications()
    await add_notifications(server_named(server), changes, found)
    for some in _chunks(found):
        visibility = [one for one in found.visibility if found.by_session[one[0]] in some]
        _wake(await run_with_retries(_deliver_unclaimed, some, visibility))
    if found.snapshots:
        await run_with_retries(change_log.store_snapshots, found.snapshots)
    await _forget_pages(found)


def _deliver_claimed(
    claim: ClaimedChanges, marks: Mapping[int, Sequence[str]], visibility: change_log.Visibility,
    snapshots: Mapping[str, change_log.VisibleUris], *, over: bool, is_retry: bool,
) -> list[int]:  # fmt: skip
    return change_log.deliver(
        claim, _encoded(marks), visibility, snapshots, over=over, is_retry=is_retry
    )


@one_transaction
def _deliver_unclaimed(
    marks: Mapping[int, Sequence[str]], visibility: change_log.Visibility
) -> list[int]:
    sessions.store_visibility(visibility)
    return streams.announce_here(_encoded(marks))


def _encoded(marks: Mapping[int, Sequence[str]]) -> dict[int, list[tuple[str, str]]]:
    found = sessions.revisions(list(marks))
    return {id: messages_with_marks(revision, marks[id]) for id, revision in found.items()}


def _chunks(found: SessionNotifications) -> Iterator[dict[int, list[str]]]:
    ordered = sorted({*found.marks, *found.by_session.values()})
    for start in range(0, len(ordered), SESSIONS_PER_JOB):
        yield {one: found.marks.get(one, []) for one in ordered[start : start + SESSIONS_PER_JOB]}


def _wake(streams: Iterable[int]) -> None:
    wake_readers(*(StreamWakeup(stream, changed=True) for stream in streams))


async def _forget_pages(found: SessionNotifications) -> None:
    """Delete the subscriptions to pages that were completed, after the sessions were notified."""
    for id, waiting in found.pages.items():
        await run_with_retries(listing.forget, waiting, id)


# Messages of sessions.


def encode_marks(revision: str, marks: Iterable[str]) -> list[str]:
    """Return the notifications for ``marks``, the changes not yet sent, in a client's revision."""
    return [text for text, _ in messages_with_marks(revision, marks)]


def encoder_of(session: Session) -> Callable[[Sequence[str]], Sequence[str]]:
    """Return ``encode_marks`` for the revision of one session."""
    return lambda marks: encode_marks(session.revision, marks)


def all_notifications(server: Server, session: Session) -> list[str]:
    """Return notifications for all lists and subscriptions. Queries the database.

    For a client that missed an unknown number of notifications.
    """
    lists = [name for name in LISTS if name in capabilities(server)]
    uris = [uri for uri in sessions.subscribed_uris(session) if not listing.is_page(uri)]
    return encode_marks(session.revision, [*lists, *(URI + uri for uri in uris)])
