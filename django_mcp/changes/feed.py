"""
Follow the change logs: one task of each event loop reads them, and passes the changes on.

``ChangeFeed`` reads the change log of each database after a cursor in memory. It passes each page
once to its followers: the listeners that are connected to this process, and the permission checks
of running calls. If changes may have been missed, followers receive ``everything``.

Sessions belong to no process, so their cursors are in the database. The feed tells the broadcaster
how far the logs have come, and the broadcaster competes with other processes for the next page.

Changes that only this process knows of, as in a test's transaction, do not pass through a log.
``deliver_local_changes`` passes them on at once.

Changes of what lists show are frequent and cost queries. The feed passes them on at most once in
``LISTING_INTERVAL_SECONDS``.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Protocol

from ..declarations.server import servers
from ..exceptions import Busy
from ..runtime import threads
from ..runtime.runtime import Service
from ..storage import change_log, poller
from ..storage.change_log import INTERESTS_RENEWAL_SECONDS, ChangeLogState, Page
from ..storage.databases import LOCKS, codes
from ..storage.jobs import BROKEN, run_or_disconnect
from ..storage.poller import DURATION_COST_FACTOR
from ..storage.wakeups import channel_layer, stream_wakeups
from .change_set import ChangeSet, change_set_for, everything

logger = logging.getLogger("django_mcp.storage")
LISTING_INTERVAL_SECONDS = 1.0  # at least, between two checks of what lists show
# The pause between two polls if wake-ups work. Polls are still needed: a process that serves no
# clients, such as a command, saves rows without sending wake-ups.
POLL_INTERVAL_SECONDS = 0.3
# Intervals of ``storage.poller`` between two polls if wake-ups do not work.
POLLER_INTERVALS_WITHOUT_WAKEUPS = 2
MAX_PAUSE_SECONDS = 5.0  # the pause between two polls if they fail or take long
# The state of the change log, by the alias of its database.
ChangeLogStates = Mapping[str, ChangeLogState]


class LocalFollower(Protocol):
    """A part of this process that receives the changes that only this process knows of."""

    def receive_local(self, server: str, changes: ChangeSet) -> None:
        """Take changes for clients of ``server``. It must not block."""
        ...


class ChangeFollower(LocalFollower, Protocol):
    """A part of this process that receives the changes of the logs."""

    @property
    def is_following(self) -> bool:
        """Whether it still follows the logs. If not, ``follow`` must be called again."""
        ...

    @property
    def is_eager(self) -> bool:
        """Whether clients wait for what it receives, so that polls must be frequent."""
        ...

    @property
    def models(self) -> Iterable[str]:
        """The labels of the models that it follows, whose interests must be renewed."""
        ...

    async def receive(self, server: str, changes: ChangeSet) -> None:
        """Take the changes of one page, as far as they concern clients of ``server``."""
        ...


class SessionBroadcaster(LocalFollower, Protocol):
    """The part of this process that notifies sessions, with cursors in the database."""

    @property
    def is_eager(self) -> bool:
        """Whether a client of a session is connected."""
        ...

    async def broadcast(self, states: ChangeLogStates) -> None:
        """Start to notify sessions of the changes up to ``states``. Do not wait for the end."""
        ...


class ChangeFeed:
    """The task of one event loop that polls the change logs, and its cursors."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._followers: list[ChangeFollower] = []
        self.local_followers: list[LocalFollower] = []  # those that have clients now
        self.broadcaster: SessionBroadcaster | None = None  # set if sessions are served here
        self._holder = uuid.uuid4().hex  # each feed renews and drops only its own interests
        self._interests: dict[str, float] = {}  # when the interest in a model was stored last
        self._cursors: dict[str, int] = {}  # the last number read, by alias of the database
        # Changes of lists that wait, by server, and when such changes were passed on last.
        self._listed: defaultdict[str, ChangeSet] = defaultdict(ChangeSet)
        self._lists_passed_on_at = 0.0
        # ``_reading``: two readers would deliver a page twice, or move the cursor back.
        # ``_storing``: the second of two followers must wait until the interest of the first is
        # effective in all processes, and not only stored.
        self._reading, self._storing = asyncio.Lock(), asyncio.Lock()
        self._catching_up: asyncio.Task[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._poll_now = asyncio.Event()  # ends the pause between two polls
        self._poll_duration = 0.0  # seconds of the last poll
        self._has_poll_failed = False

    # Followers.

    def follow(self, follower: ChangeFollower) -> bool:
        """Pass changes to ``follower`` as long as it follows. Return False if it follows already.

        It may receive older changes. Call ``catch_up`` first to prevent that.
        """
        is_new = follower not in self._followers
        if is_new:
            self._followers.append(follower)
        self.start()
        return is_new

    def follow_local(self, follower: LocalFollower) -> None:
        """Pass the changes that only this process knows of to ``follower``."""
        if follower not in self.local_followers:
            self.local_followers.append(follower)

    def leave_local(self, follower: LocalFollower) -> None:
        if follower in self.local_followers:
            self.local_followers.remove(follower)

    async def store_interests(self, models: Iterable[str]) -> None:
        """Store the interest of this process in models.

        When this returns, all processes that save record their changes.
        """
        async with self._storing:
            if due := self._interests_to_store(models):
                now = time.monotonic()
                wait = await threads.log.run(
                    run_or_disconnect, change_log.store_interests, self._holder, due
                )
                change_log.watched.forget()
                # Processes that save cache the interests. Until then they may record nothing.
                await asyncio.sleep(wait)
                self._interests.update(dict.fromkeys(due, now))

    async def catch_up(self) -> None:
        """Deliver all earlier changes to the present followers, before another one is added.

        Callers at the same time share one read.
        """
        if self._catching_up is None:
            self._catching_up = self._loop.create_task(self._catch_up())
        # Several callers wait for this task. It must go on if one of them is cancelled.
        await asyncio.shield(self._catching_up)

    async def _catch_up(self) -> None:
        async with self._reading:
            # The states are read next. A caller that arrives from now on needs another read.
            self._catching_up = None
            states = await threads.changes.run(change_log.number_all_changes)
            if not self._followers:
                self._cursors = {alias: state.last for alias, state in states.items()}
            while await self._deliver_next_pages(states):
                pass

    async def _renew_interests(self) -> None:
        """Renew the interests in followed models, before they expire."""
        models = {model for one in self._followers for model in one.models}
        if due := self._interests_to_store(models):
            await threads.log.run(run_or_disconnect, change_log.store_interests, self._holder, due)
            self._interests.update(dict.fromkeys(due, time.monotonic()))

    def _interests_to_store(self, models: Iterable[str]) -> list[str]:
        """Return the models whose interest is not stored, or must be renewed."""
        old = time.monotonic() - INTERESTS_RENEWAL_SECONDS
        return sorted(model for model in models if self._interests.get(model, old) <= old)

    # Polling.

    def wake(self) -> None:
        """Poll now, because a wake-up arrived."""
        self._poll_now.set()

    @property
    def is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    def start(self) -> None:
        """Start to poll, if there is a follower or a broadcaster."""
        if not self.is_running:
            self._task = self._loop.create_task(self._run())
            stream_wakeups().follow_changes(self.wake)
            poller.poller().start_if_needed()  # it receives the wake-ups from other processes

    async def _run(self) -> None:
        try:
            while self._followers or self.broadcaster:
                await self._poll()
                await self._pause()
                self._remove_followers()
        finally:
            stream_wakeups().follow_changes(None)
            poller.poller().stop_if_idle()

    def _remove_followers(self) -> None:
        remaining = [one for one in self._followers if one.is_following]
        if self._followers and not remaining:
            # Without cursors, the next follower gets only changes that are committed after it came.
            self._cursors.clear()
            self._listed.clear()
        self._followers = remaining

    async def _pause(self) -> None:
        pause = max(self._interval(), DURATION_COST_FACTOR * self._poll_duration)
        pause = min(pause, MAX_PAUSE_SECONDS)
        with suppress(TimeoutError):
            async with asyncio.timeout(MAX_PAUSE_SECONDS if self._has_poll_failed else pause):
                await self._poll_now.wait()

    def _interval(self) -> float:
        is_eager = any(one.is_eager for one in self._followers)
        if not (is_eager or (self.broadcaster is not None and self.broadcaster.is_eager)):
            return poller.MAX_POLL_INTERVAL_SECONDS
        if channel_layer().is_working:
            return POLL_INTERVAL_SECONDS
        return POLLER_INTERVALS_WITHOUT_WAKEUPS * poller.POLL_INTERVAL_SECONDS

    async def _poll(self) -> None:
        self._poll_now.clear()
        try:
            states = await threads.changes.run(run_or_disconnect, self._number_changes)
            if self.broadcaster is not None:
                await self.broadcaster.broadcast(states)
            if self._followers:
                await self._deliver(states)
            self._has_poll_failed = False
        except Busy:
            logger.debug("Poll of the change logs postponed: all threads are busy")
        except BROKEN as error:
            if codes(error) & LOCKS:
                logger.debug("Poll of the change logs postponed: a transaction holds a lock")
                return
            self._has_poll_failed = True
            logger.warning("Changes cannot be read: %s", error)
        except Exception:
            self._has_poll_failed = True
            logger.exception("Poll of the change logs failed")

    def _number_changes(self) -> dict[str, ChangeLogState]:
        began = time.perf_counter()
        found = change_log.number_all_changes()
        self._poll_duration = time.perf_counter() - began
        if any(state.waiting for state in found.values()):
            # There were more changes than one batch: poll again without a pause.
            self._loop.call_soon_threadsafe(self.wake)
        return found

    # Delivery.

    async def _deliver(self, states: ChangeLogStates) -> None:
        await self._renew_interests()
        async with self._reading:
            if await self._deliver_next_pages(states):
                self.wake()
        await self._deliver_lists()

    async def _deliver_next_pages(self, states: ChangeLogStates) -> bool:
        """Deliver the next page of every database. Return whether there is more."""
        more = False
        for alias, state in states.items():
            if (page := await self._page(alias, state)) is None:
                continue
            # Before the delivery: if a follower fails, the others must not get the page again.
            self._cursors[alias] = page.until
            more |= page.until < state.last
            await self._deliver_page(page)
        return more

    async def _page(self, alias: str, state: ChangeLogState) -> Page | None:
        """Return the next page of a database, or None if there are no changes.

        The page of a database without a cursor is not whole: it could not be reached when the first
        follower came, so it is unknown what was missed.
        """
        cursor = self._cursors.get(alias)
        if cursor is None:
            return Page(state.last, (), False)
        if state.last == cursor:
            return None
        return await threads.changes.run(run_or_disconnect, _page_after, alias, cursor, state.last)

    async def _deliver_page(self, page: Page) -> None:
        for server in servers():
            changes = change_set_for(server, page.changes)
            if not page.is_whole:
                changes.add(everything())
            if changes.listed_uris:
                self._listed[server.name].listed_uris.update(changes.listed_uris)
                changes.listed_uris = {}
            await self._pass_on(server.name, changes)

    async def _deliver_lists(self) -> None:
        now = time.monotonic()
        if self._listed and now >= self._lists_passed_on_at + LISTING_INTERVAL_SECONDS:
            self._lists_passed_on_at = now
            # Copied and cleared before the first await: changes that come meanwhile wait again.
            waiting = dict(self._listed)
            self._listed.clear()
            for server, changes in waiting.items():
                await self._pass_on(server, changes)

    async def _pass_on(self, server: str, changes: ChangeSet) -> None:
        for follower in list(self._followers) if changes else ():
            try:
                await follower.receive(server, changes)
            # The cursor has moved on, so the others would never receive these changes.
            except Exception:
                logger.exception("Changes not delivered: follower=%s", type(follower).__name__)

    def pass_on_local(self, server: str, changes: ChangeSet, *, to_sessions: bool) -> None:
        """Pass on changes that only this process knows of, ``to_sessions`` also to sessions."""
        followers = [*self.local_followers]
        if to_sessions and self.broadcaster is not None:
            followers.append(self.broadcaster)
        for follower in followers:
            try:
                follower.receive_local(server, changes)
            except Exception:  # the others must receive the changes all the same
                logger.exception("Changes not delivered: follower=%s", type(follower).__name__)


change_feed = Service(ChangeFeed)


def has_followers() -> bool:
    """Whether anything in this process receives changes. May be called from any thread."""
    return any(feed.local_followers or feed.broadcaster for _, feed in change_feed.instances())


def deliver_local_changes(server: str, changes: ChangeSet) -> None:
    """Deliver changes that only this process knows of. May be called from any thread."""
    # Sessions belong to no event loop. If each of several broadcasters got the changes, a session
    # would be notified several times.
    to_sessions = True
    for loop, feed in change_feed.instances():
        deliver = partial(feed.pass_on_local, server, changes, to_sessions=to_sessions)
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(deliver)
            to_sessions = to_sessions and feed.broadcaster is None


def _page_after(alias: str, cursor: int, last: int) -> Page:
    """Return the page after ``cursor``. If a backup was restored, the page is not whole.

    ``last`` may be older than the cursor: ``catch_up`` has read further meanwhile.
    """
    if last < cursor and (now := change_log.read_state(alias).last) < cursor:
        return Page(now, (), False)
    return change_log.after(alias, cursor, max(cursor, last))
