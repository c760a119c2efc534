"""
Notify sessions of changes in rows, lists and permissions.

Any process may notify any session, because sessions belong to no process. Each database has a
``BroadcastCursor`` row. It stores the number of the last change that all sessions were notified of.
``ChangeBroadcaster`` works in these steps:

1. Claim the next page of changes after the broadcast cursor. Only one process at a time holds the
   claim of a cursor. The others wait until the page is delivered, or the process that claimed it is
   dead.
2. Find the sessions that the page concerns, and what each can see now (``add_notifications``).
3. Write the notifications as events, a few sessions in each transaction. The transaction also
   writes how far the page was delivered, so if this process dies, another one continues there.

A session is notified of a resource if its user can see it now or could see it before the change.
Visibility is queried once for each principal and host, however many sessions it has. What a
principal can see in lists is stored as a ``VisibilitySnapshot`` row, for comparison with the next
change. Several changes of one resource or list become one notification. If a session has no stream,
the session keeps a mark, from which the notification is made when the client opens one.

Changes of what lists show are frequent and cost queries. Changes of listed rows (``listed_uris``)
have a second cursor for each database. All databases and processes share one timer: every
``LISTING_INTERVAL_SECONDS``, one process handles one database, up to ``MAX_PAGES_AT_ONCE`` pages at
once. Changes announced by list name (``list_names``) use the main cursor.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ..calls.callers import in_chunks, load_principals
from ..calls.execution import surrounded_job
from ..calls.interaction import completion_uri, is_completion_uri, unsubscribe_from_completion
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
    ALL_USERS,
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
from .change_set import ChangeSet, change_set_for, everything, replace_groups_by_members
from .feed import ChangeLogStates, change_feed
from .subscriptions import (
    BUSY_RETRY_SECONDS,
    CHECK_POSTPONED,
    LISTS,
    LOOKUP_CONCURRENCY,
    URIS_PER_CHECK,
    listed_models,
)

if TYPE_CHECKING:
    from ..declarations.server import Server

logger = logging.getLogger("django_mcp.storage")
# Prefixes of marks. The rest of a mark is a URI, or the id of an elicitation. A mark without a
# prefix is the name of a list.
URI, ELICITATION = "uri:", "elicitation:"


@dataclass
class SessionNotifications:
    """The notifications of one page of changes, and the visibility to store with them."""

    cursor: str = ""  # name of the broadcast cursor. Each has visibility snapshots of its own.
    # A mark for each notification, by session id.
    marks: defaultdict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    # The new visibility of subscriptions: the id, whether visible, and the row.
    visibility: list[tuple[int, bool, str]] = field(default_factory=list)
    session_of_subscription: dict[int, int] = field(default_factory=dict)
    # Ids of the sessions that wait for the completion of a URL elicitation, by its id.
    completed_elicitations: dict[str, list[int]] = field(default_factory=dict)
    # What principals can see in lists, by the name of the ``VisibilitySnapshot``, if it changed.
    snapshots: dict[str, VisibleUris] = field(default_factory=dict)


@dataclass
class AffectedPrincipal:
    """The sessions and subscriptions of one principal at one host that a change may concern."""

    snapshot_name: str  # of its ``VisibilitySnapshot``
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
    """Collect in ``notifications`` what ``changes`` cause for the sessions of a server."""
    affected: dict[tuple[str, str, str], AffectedPrincipal] = {}

    def principal_of(
        row: sessions.SessionSubscription | sessions.InitializedSession,
    ) -> AffectedPrincipal:
        key = (row.owner, repr(row.scopes), row.host)
        if key not in affected:
            snapshot = digest_of(repr(((notifications.cursor, server.name), key)))
            affected[key] = AffectedPrincipal(snapshot, row.user, row.scopes, row.owner, row.host)
        return affected[key]

    every_session = await _initialized_sessions(server, changes)
    changes = await replace_groups_by_members(changes, (one.user for one in every_session))
    for subscription in await _affected_subscriptions(server, changes):
        principal_of(subscription).subscriptions.append(subscription)
    for session in every_session if _concerns_lists(changes) else ():
        principal_of(session).sessions.append(session.session)
    for id in changes.completed_elicitations:
        session_ids = await run_with_retries(
            sessions.subscriber_ids, server.name, completion_uri(id)
        )
        notifications.completed_elicitations[id] = session_ids
        for session_id in session_ids:
            notifications.marks[session_id].append(ELICITATION + id)
    if affected:
        await _check_principals(server, changes, list(affected.values()), notifications)


async def _affected_subscriptions(
    server: Server, changes: ChangeSet
) -> list[sessions.SessionSubscription]:
    if not (changes.uris or changes.rows or changes.models or changes.users or changes.everything):
        return []
    # If the permissions of all users changed, one query without a list of users is enough.
    # Otherwise a page of users per query, or one query without users if no permissions changed.
    if ALL_USERS in changes.users:
        user_pages = [[ALL_USERS]]
    else:
        user_pages = list(in_chunks(list(changes.users))) or [[]]
    subscriptions: dict[int, sessions.SessionSubscription] = {}
    for users in user_pages:
        rows = await run_with_retries(
            sessions.find_subscriptions, server.name, list(changes.uris), list(changes.rows),
            list(changes.models), users, every=bool(changes.everything),
        )  # fmt: skip
        subscriptions.update((row.id, row) for row in rows)
    return [
        one
        for one in subscriptions.values()
        if (_is_changed(one, changes) or changes.affects_permissions_of(one.user))
        and not is_completion_uri(one.uri)
    ]


def _is_changed(subscription: sessions.SessionSubscription, changes: ChangeSet) -> bool:
    """Whether the subscription's resource changed.

    The query has found it, but a database may compare texts without case. So compare again.
    """
    return bool(
        changes.everything
        or subscription.uri in changes.uris
        or subscription.row_ref in changes.rows
        or label_in(subscription.row_ref) in changes.models
    )


async def _initialized_sessions(
    server: Server, changes: ChangeSet
) -> list[sessions.InitializedSession]:
    if not _concerns_lists(changes):
        return []
    return await run_with_retries(sessions.initialized_sessions, server.name)


def _concerns_lists(changes: ChangeSet) -> bool:
    return bool(
        changes.list_names
        or changes.listed_uris
        or changes.users
        or changes.groups
        or changes.everything
    )


# Visibility for each principal.

# Shared by the databases, whose changes are delivered at the same time: changes that concern many
# principals must not take all threads of the pool from calls.
lookup_slots = Service(lambda: asyncio.Semaphore(LOOKUP_CONCURRENCY))


async def _check_principals(
    server: Server,
    changes: ChangeSet,
    affected: Sequence[AffectedPrincipal],
    notifications: SessionNotifications,
) -> None:
    by_snapshot = {one.snapshot_name: one for one in affected}
    principals = await run_with_retries(load_principals, by_snapshot)
    if changes.listed_uris:
        names = [one.snapshot_name for one in affected if one.sessions]
        for name, uris in (await run_with_retries(change_log.snapshots, names)).items():
            by_snapshot[name].visible_before = uris
    # All principals of a page must not retry at the same time while a database is away.
    slots = asyncio.Semaphore(LOOKUP_CONCURRENCY)

    async def check(one: AffectedPrincipal) -> None:
        async with slots:
            request = Request(principals[one.snapshot_name], server, host=one.host or None)
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
        uris |= dict.fromkeys(changes.listed_uris)
    try:
        visible_now = await _visible_uris(request, list(uris))
    except Exception:
        # The project's code failed. Send nothing about resources: it is unknown who may see them.
        # The stored visibility stays as it was, for the next check.
        logger.exception("Notifications about resources dropped: visibility cannot be checked")
        visible_now, changes = {}, replace(changes, listed_uris={})
    else:
        _add_updates(principal, changes, visible_now, notifications)
    if principal.sessions:
        lists = _changed_lists(request.server, changes, principal, visible_now, notifications)
        for session in principal.sessions if lists else ():
            notifications.marks[session] += lists


async def _visible_uris(request: Request, uris: Sequence[str]) -> dict[str, str]:
    """Return the visible ``uris`` with their rows. Retry while the database is down."""
    rows: dict[str, str] = {}
    for start in range(0, len(uris), URIS_PER_CHECK):
        rows |= await _check_visibility(request, uris[start : start + URIS_PER_CHECK])
    return rows


async def _check_visibility(request: Request, uris: Sequence[str]) -> dict[str, str]:
    while True:
        try:
            # The slot is released during the pause. Otherwise principals whose database is down
            # would block the checks of principals in other databases.
            async with lookup_slots():
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
    """Add marks for subscriptions.

    A client is notified if the resource changed and is visible now or was before, or if its
    visibility changed.
    """
    for one in principal.subscriptions:
        is_visible = one.uri in visible_now
        if is_visible != one.visible or (one.visible and _is_changed(one, changes)):
            notifications.marks[one.session].append(URI + one.uri)
        now = (is_visible, visible_now.get(one.uri, one.row_ref))
        if now != (one.visible, one.row_ref):
            notifications.visibility.append((one.id, *now))
            notifications.session_of_subscription[one.id] = one.session


def _changed_lists(
    server: Server,
    changes: ChangeSet,
    principal: AffectedPrincipal,
    visible_now: dict[str, str],
    notifications: SessionNotifications,
) -> list[str]:
    """Return the names of the lists that changed for a principal.

    Add to ``notifications`` what it can see now, if that changed.
    """
    changed = {name for name in LISTS if name in changes.list_names}
    if changes.everything or changes.affects_permissions_of(principal.user):
        changed.update(LISTS)
    before = principal.visible_before
    has_changed, digests = change_log.compare_visible(before, changes.listed_uris, visible_now)
    if has_changed:
        changed.add("resources")
    if digests != before:
        notifications.snapshots[principal.snapshot_name] = VisibleUris(principal.owner, digests)
    return [name for name in LISTS if name in changed and name in capabilities(server)]


# Messages.


def messages_with_marks(revision: str, marks: Iterable[str]) -> list[tuple[str, str]]:
    """Return the messages for a client of that revision, each with its mark."""
    messages = []
    for mark in dict.fromkeys(marks):
        message = encode_notification(REVISIONS[revision], *notification(mark))
        if message is not None:
            messages.append((encode(message), mark))
    return messages


def notification(mark: str) -> tuple[str, dict[str, str]]:
    """Return the method and the parameters of the notification for a mark."""
    if mark.startswith(URI):
        return "notifications/resources/updated", {"uri": mark.removeprefix(URI)}
    if mark.startswith(ELICITATION):
        return "notifications/elicitation/complete", {
            "elicitationId": mark.removeprefix(ELICITATION)
        }
    return f"notifications/{mark}/list_changed", {}


# Claims.

MAX_PAGES_AT_ONCE = 20  # pages of changes of lists in one claim


def database_of(cursor_name: str) -> str:
    return cursor_name.removesuffix(change_log.LIST_CURSOR_SUFFIX)


def is_list_cursor(name: str) -> bool:
    return name.endswith(change_log.LIST_CURSOR_SUFFIX)


class ClaimedPage(NamedTuple):
    """A page of changes that this process must deliver."""

    claim: ClaimedChanges
    page: Page


class NoChanges(NamedTuple):
    """A broadcast cursor that has reached the last change, which has the number ``until``."""

    until: int


def claim_page(
    name: str, state: ChangeLogState, interval_seconds: float
) -> ClaimedPage | NoChanges | None:
    """Claim the next page of changes after a broadcast cursor. Runs queries.

    ``state`` is the state of the change log. Return None if another process has the claim, or if it
    is a cursor of lists and ``interval_seconds`` are not over.
    """
    cursor = change_log.cursor_of(name, state.last)
    # A cursor beyond the last change means that a backup was restored. Then all changes count as
    # new. Query the last number again before the cursor is reset: another process may have moved
    # the cursor after ``state`` was read.
    if cursor.seq > state.last and cursor.seq > change_log.read_state(database_of(name)).last:
        change_log.reset_cursor(cursor)
        return None
    # ``until`` is above ``seq`` while a page is claimed. That page must be finished even if no
    # newer change follows, because the process that claimed it may be dead.
    is_claimed = cursor.until > cursor.seq
    if not is_claimed and cursor.seq >= state.last:
        return NoChanges(state.last)
    if is_list_cursor(name) and not change_log.restart_if_due(
        change_log.LIST_CURSOR_SUFFIX, interval_seconds
    ):
        return None
    page = _read_page(name, cursor.seq, state.last)
    # Continue claims under former lease ids of this process too, or their pages would wait until
    # those leases expire. If an earlier delivery still ran, the cursor would be in ``_delivering``.
    claim = change_log.claim(cursor, page.until, lease.hold(), lease.former)
    if claim is None:
        return None
    # Deliver the same page as a process that died. A longer page would have changes that sessions
    # miss: those that were notified before are skipped now.
    if claim.until != page.until:
        page = _read_page(name, claim.after, claim.until)
    return ClaimedPage(claim, page)


def _read_page(name: str, seq: int, last: int) -> Page:
    changes: list[NumberedChange] = []
    is_whole = True
    for _ in range(MAX_PAGES_AT_ONCE if is_list_cursor(name) else 1):
        page = change_log.after(database_of(name), seq, last)
        changes += page.changes
        seq, is_whole = page.until, is_whole and page.is_whole
        if seq >= last:
            break
    return Page(seq, changes, is_whole)


def changes_for(server: Server, name: str, page: Page) -> ChangeSet:
    """Return the part of a page's changes that this cursor delivers, for one server."""
    changes = change_set_for(server, page.changes)
    if is_list_cursor(name):
        changes = ChangeSet(listed_uris=changes.listed_uris)
        # Changes were deleted before this cursor read them. Announce the lists here: the main
        # cursor may have read the changes, and then it announces nothing.
        if not page.is_whole and _has_listed_models(server):
            changes.list_names["resources"] = None
        return changes
    changes.listed_uris = {}
    if not page.is_whole:  # changes were deleted before they were read
        changes.add(everything())
    return changes


SESSIONS_PER_JOB = 50  # sessions notified in one transaction
# Attempts per ``LISTING_INTERVAL_SECONDS`` while another process delivers changes of lists.
ATTEMPTS_PER_LISTING_INTERVAL = 4


def start() -> None:
    """Start to notify sessions of changes, in the running event loop."""
    change_feed_of_loop = change_feed()
    if change_feed_of_loop.broadcaster is None:
        change_feed_of_loop.broadcaster = broadcaster()
    if not change_feed_of_loop.is_running:
        environment().start_background(change_feed_of_loop.start)


class ChangeBroadcaster:
    """Claims pages of changes and notifies sessions, in competition with other processes."""

    def __init__(self) -> None:
        # The number of the last change that was delivered, by name of the broadcast cursor. None:
        # the next poll tries to claim a page.
        self._delivered: dict[str, int | None] = {}
        self._lists_due_at = 0.0  # when changes of lists are tried again (monotonic clock)
        self._interests_stored_at: float | None = None
        self._tried_at: dict[str, float] = {}  # last attempt, by name of the cursor of lists
        # The tasks that deliver changes, by alias of the database. While one waits for a database
        # that cannot be reached, the others continue.
        self._tasks: dict[str, asyncio.Task[None]] = {}
        # Changes that only this process knows of, by server, and the task that delivers them.
        self._local: defaultdict[str, ChangeSet] = defaultdict(ChangeSet)
        self._local_task: asyncio.Task[None] | None = None

    @property
    def is_eager(self) -> bool:
        """Whether a client is connected that waits for notifications."""
        return bool(stream_wakeups())

    async def broadcast(self, states: ChangeLogStates) -> None:
        """Start to deliver the changes up to ``states``. Do not wait for the end of the delivery.

        Skip databases whose last delivery is still running.
        """
        await self._renew_interests()
        self._tasks = {alias: task for alias, task in self._tasks.items() if not task.done()}
        idle = {alias: state for alias, state in states.items() if alias not in self._tasks}
        due = self._due_cursors(idle)
        for alias in dict.fromkeys(map(database_of, due)):
            mine = [name for name in due if database_of(name) == alias]
            task = asyncio.get_running_loop().create_task(self._deliver(mine, idle[alias]))
            self._tasks[alias] = task

    def _due_cursors(self, states: ChangeLogStates) -> list[str]:
        """Return the names of the cursors with new changes, at most one of them of lists.

        For lists, the databases alternate: the one that was tried longest ago comes first.
        """
        due = [alias for alias in states if states[alias].last != self._delivered.get(alias)]
        list_cursors = [
            alias + change_log.LIST_CURSOR_SUFFIX
            for alias in states
            if self._delivered.get(alias + change_log.LIST_CURSOR_SUFFIX) != states[alias].last
        ]
        now = time.monotonic()
        if list_cursors and now >= self._lists_due_at and any(map(_has_listed_models, servers())):
            due.append(min(list_cursors, key=lambda name: self._tried_at.get(name, 0.0)))
            self._tried_at[due[-1]] = now
        return due

    async def _deliver(self, due: Sequence[str], state: ChangeLogState) -> None:
        """Deliver the next page of each of these cursors of one database."""
        for name in due:
            try:
                await self._deliver_page(name, state)
            except (change_log.ClaimLost, Busy):
                logger.debug("Changes are delivered by another process, or later: cursor=%s", name)
            except BROKEN as error:
                logger.warning("Notification of sessions postponed: %s", error)
                await asyncio.sleep(BUSY_RETRY_SECONDS)
            except Exception:
                logger.exception("Sessions were not notified of changes")
                await asyncio.sleep(BUSY_RETRY_SECONDS)

    async def _deliver_page(self, name: str, state: ChangeLogState) -> None:
        # Only one event loop of a process may deliver a cursor: the claim belongs to the process,
        # so a second one would take it from the first. With the lock, not both find the name
        # missing.
        with _delivering_lock:
            if name in _delivering:
                return
            _delivering.add(name)
        try:
            await self._deliver_next(name, state)
        finally:
            _delivering.discard(name)

    async def _deliver_next(self, name: str, state: ChangeLogState) -> None:
        interval = feed.LISTING_INTERVAL_SECONDS
        claimed = await threads.changes.run(run_or_disconnect, claim_page, name, state, interval)
        if isinstance(claimed, NoChanges):
            self._delivered[name] = claimed.until
            return
        if is_list_cursor(name):
            pause = interval if claimed else interval / ATTEMPTS_PER_LISTING_INTERVAL
            self._lists_due_at = time.monotonic() + pause
        if claimed is None:
            self._delivered[name] = None
            return
        claim, page = claimed
        notifications = SessionNotifications(name)
        for server in servers():
            if changes := changes_for(server, name, page):
                await add_notifications(server, changes, notifications)
        await _notify_all(claim, notifications)
        self._delivered[name] = claim.until
        change_feed().wake()

    async def _renew_interests(self) -> None:
        """Renew the interest in models of lists and in announced changes."""
        stored_at = self._interests_stored_at
        if stored_at is not None and time.monotonic() < stored_at + INTERESTS_RENEWAL_SECONDS:
            return
        models = {ANYTHING}.union(*(listed_models(one) for one in servers() if not one._is_empty))
        holder = change_log.LISTS_HOLDER
        await threads.log.run(run_or_disconnect, change_log.store_interests, holder, models)
        if stored_at is None:
            # After the interest is stored, or the announcement would not be recorded.
            await threads.changes.run(run_or_disconnect, _announce_changed_lists)
        self._interests_stored_at = time.monotonic()

    # Changes without a log.

    def receive_local(self, server: str, changes: ChangeSet) -> None:
        """Take changes that are in no change log, as those in the transaction of a test."""
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
_delivering: set[str] = set()  # cursors whose page an event loop of this process is delivering
_delivering_lock = threading.Lock()


def _announce_changed_lists() -> None:
    """Announce lists that differ from those of the deployment before this one."""
    change_log.watched.forget()
    for server in servers():
        if not server._is_empty:
            api.announce_changed_lists(server)


def _has_listed_models(server: Server) -> bool:
    return not server._is_empty and bool(listed_models(server))


async def _notify_all(claim: ClaimedChanges, notifications: SessionNotifications) -> None:
    """Notify the sessions in the order of their ids, a few in each transaction.

    Skip those up to ``claim.notified``: a process that died has notified them.
    """
    # Without sessions, one transaction moves the cursor.
    chunks = [one for one in _chunks(notifications) if max(one) > claim.notified] or [{}]
    for number, chunk in enumerate(chunks, 1):
        marks = {session: marks for session, marks in chunk.items() if session > claim.notified}
        job = partial(
            _deliver_claimed, claim, marks, _visibility_of(notifications, marks),
            notifications.snapshots, is_last_chunk=number == len(chunks),
        )  # fmt: skip
        _wake(await run_with_retries(job, is_retry=False))
    await _forget_elicitations(notifications)


async def _notify_without_claim(server: str, changes: ChangeSet) -> None:
    notifications = SessionNotifications()
    await add_notifications(server_named(server), changes, notifications)
    for marks in _chunks(notifications):
        visibility = _visibility_of(notifications, marks)
        _wake(await run_with_retries(_deliver_unclaimed, marks, visibility))
    if notifications.snapshots:
        await run_with_retries(change_log.store_snapshots, notifications.snapshots)
    await _forget_elicitations(notifications)


def _visibility_of(
    notifications: SessionNotifications, session_ids: Container[int]
) -> change_log.Visibility:
    """Return the new visibility of the subscriptions of these sessions."""
    return [
        one
        for one in notifications.visibility
        if notifications.session_of_subscription[one[0]] in session_ids
    ]


def _deliver_claimed(
    claim: ClaimedChanges, marks: Mapping[int, Sequence[str]], visibility: change_log.Visibility,
    snapshots: Mapping[str, change_log.VisibleUris], *, is_last_chunk: bool, is_retry: bool,
) -> list[int]:  # fmt: skip
    return change_log.deliver(
        claim, _encode(marks), visibility, snapshots,
        is_last_chunk=is_last_chunk, is_retry=is_retry,
    )  # fmt: skip


@one_transaction
def _deliver_unclaimed(
    marks: Mapping[int, Sequence[str]], visibility: change_log.Visibility
) -> list[int]:
    sessions.store_visibility(visibility)
    return streams.announce_in_transaction(_encode(marks))


def _encode(marks: Mapping[int, Sequence[str]]) -> dict[int, list[tuple[str, str]]]:
    """Return the messages with their marks, by session id. Queries the sessions' revisions."""
    revisions = sessions.revisions(list(marks))
    return {id: _encode_for(id, revision, marks[id]) for id, revision in revisions.items()}


def _encode_for(session: int, revision: str, marks: Sequence[str]) -> list[tuple[str, str]]:
    try:
        return messages_with_marks(revision, marks)
    except Exception:
        # For example after a rollback to a release that lacks the revision. The error would be the
        # same at each attempt, so it must not keep the cursor from moving on for all others.
        logger.exception(
            "Session not notified, its notifications cannot be encoded: session=%s revision=%s",
            session, revision,
        )  # fmt: skip
        return []


def _chunks(notifications: SessionNotifications) -> Iterator[dict[int, list[str]]]:
    """Yield the marks by session id, for up to ``SESSIONS_PER_JOB`` sessions at a time."""
    marks = notifications.marks
    session_ids = sorted({*marks, *notifications.session_of_subscription.values()})
    for start in range(0, len(session_ids), SESSIONS_PER_JOB):
        yield {id: marks.get(id, []) for id in session_ids[start : start + SESSIONS_PER_JOB]}


def _wake(stream_ids: Iterable[int]) -> None:
    wake_readers(*(StreamWakeup(id, changed=True) for id in stream_ids))


async def _forget_elicitations(notifications: SessionNotifications) -> None:
    """Delete the subscriptions to completed elicitations, after the sessions were notified."""
    for id, session_ids in notifications.completed_elicitations.items():
        await run_with_retries(unsubscribe_from_completion, session_ids, id)


# Messages of sessions.


def encode_marks(revision: str, marks: Iterable[str]) -> list[str]:
    """Return the notifications for ``marks``, the changes not yet sent, in a client's revision."""
    return [text for text, _ in messages_with_marks(revision, marks)]


def all_notifications(server: Server, session: Session) -> list[str]:
    """Return notifications for all lists and subscriptions. Queries the database.

    For a client that missed an unknown number of notifications.
    """
    lists = [name for name in LISTS if name in capabilities(server)]
    uris = [uri for uri in sessions.subscribed_uris(session) if not is_completion_uri(uri)]
    return encode_marks(session.revision, [*lists, *(URI + uri for uri in uris)])
