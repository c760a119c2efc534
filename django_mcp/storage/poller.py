"""Poll the session database for what other processes did: new events, abandoned calls.

Wake-up messages may be lost; polling guarantees delivery. Each event loop has one ``Poller``. Each
poll reads sums over all streams that clients read here with one query. If a sum has changed, a
second query reads the rows. A poll begins 0.2 seconds after the last one has ended, or 1 second
after it if wake-ups from other processes work. It also finds calls that were cancelled, questions
that timed out, and calls of dead processes.

A timer of the event loop does what must happen even while the database is down: it sends
keep-alives, and stops the calls of this process when its lease may have expired.

``changes.feed`` polls the change logs. It uses a thread of its own, because a lock that a
transaction of the project holds may block it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial

from ..conf import settings
from ..exceptions import Busy
from ..models import Call
from ..runtime import threads
from ..runtime.runtime import Service, environment
from . import calls, databases, jobs, leases, retention, sessions, streams
from .calls import CallManager, TimedOutQuestions
from .jobs import BROKEN
from .leases import HeartbeatObserver, lease
from .streams import StreamState
from .wakeups import StreamWakeup, channel_layer, stream_wakeups

logger = logging.getLogger("django_mcp.storage")
POLL_INTERVAL_SECONDS = 0.2
MAX_POLL_INTERVAL_SECONDS = 1.0  # if wake-ups work, or polls take long
# The pause after a poll is at least 50 times its CPU time, so that polling takes about a fiftieth
# of a CPU, and 4 times its duration, so that slow polls occupy the database for about a fifth of
# the time. It is not longer than ``MAX_POLL_INTERVAL_SECONDS``. Polls of more than a quarter of
# that, or with more CPU time than a fiftieth of it, exceed these shares.
CPU_COST_FACTOR, DURATION_COST_FACTOR = 50, 4
TIMEOUT_INTERVAL_SECONDS = 1.0  # between two queries for questions that timed out
LAST_SEEN_INTERVAL_SECONDS = 60.0  # between two updates of ``last_seen`` of connected sessions
PRUNE_INTERVAL_SECONDS = 1200.0  # at most, between two deletions of expired rows


class PeriodicTimer:
    """Tells when a periodic task is due. ``seconds`` returns the length of the next interval."""

    def __init__(self, seconds: Callable[[], float], *, at_once: bool = True) -> None:
        self._seconds = seconds
        self._due_at = time.monotonic() + (0.0 if at_once else seconds())

    def restart_if_due(self) -> bool:
        """Return whether the interval is over. If it is, start the next one."""
        now = time.monotonic()
        if now < self._due_at:
            return False
        self._due_at = now + self._seconds()
        return True

    def make_due(self) -> None:
        """Make the task due now, because there is more to do."""
        self._due_at = 0.0


Totals = tuple[list[int], tuple[int, ...]]  # ids of streams, and ``streams.totals`` of them


@dataclass
class PollResult:
    """The rows that one poll found."""

    states: dict[int, tuple[int, ...]]  # the same object as before if no stream has changed
    totals: Totals
    stopped: Collection[int] = ()
    timed_out: Sequence[TimedOutQuestions] = ()
    taken_over: Sequence[Call] = ()
    cost: float = 0.0  # seconds that the next pause must last in return


class Poller:
    """The polling task of one event loop.

    It runs while clients read streams here, calls run here, or this process serves sessions:
    another process may die and leave calls that this one must take over.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._call_manager: CallManager | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._poll_now = asyncio.Event()  # ends the pause between two polls
        self._is_pausing = False
        self._polls_when_idle = False
        self._polls_often = False  # whether the current pause is that of a busy poller
        self._last_cost = 0.0
        # The lower cost of the last two polls, so that one slow poll does not delay the next.
        self._cost = 0.0
        self._observer = HeartbeatObserver()
        self._takeover_timer = PeriodicTimer(lambda: leases.LEASE_SECONDS / 3)
        self._reconciliation_timer = PeriodicTimer(lambda: leases.LEASE_SECONDS / 3)
        self._timeout_timer = PeriodicTimer(lambda: TIMEOUT_INTERVAL_SECONDS)
        self._last_seen_timer = PeriodicTimer(lambda: LAST_SEEN_INTERVAL_SECONDS)
        # Random, so that the processes of a deployment do not all delete at the same time.
        self._prune_timer = PeriodicTimer(
            lambda: random.uniform(PRUNE_INTERVAL_SECONDS / 2, PRUNE_INTERVAL_SECONDS),
            at_once=False,
        )
        self._wakeups = stream_wakeups()
        self._states: dict[int, tuple[int, ...]] = {}  # of the streams, at the last poll
        self._totals: Totals = ([], ())
        # Set when a claim may have been committed although its result was lost. The next poll then
        # reconciles the calls.
        self.needs_reconciliation = False
        # Ids and fences of calls that this process owns and that did not run at the last
        # reconciliation.
        self._not_running: set[tuple[int, int]] = set()
        self._claims_open = self._claims_begun = 0
        # Cleared while calls are reconciled: a call that is claimed at the same time would look
        # like one whose claim was lost, and would run twice.
        self._may_claim = asyncio.Event()
        self._may_claim.set()

    @property
    def call_manager(self) -> CallManager | None:
        return self._call_manager

    @call_manager.setter
    def call_manager(self, manager: CallManager | None) -> None:
        self._call_manager = manager
        if manager is not None and self._task is not None:
            # It already ran for something else. Calls of dead processes may be waiting.
            self._poll_now.set()
        self.start_if_needed()
        self.stop_if_idle()

    def start_if_needed(self) -> None:
        """Start polling if there is something to poll for. Poll soon if the poller was idle."""
        if self._is_busy:
            self.poll_often()
        elif self._serves:
            environment().start_background(self._start_serving)

    def _start_serving(self) -> None:
        """Poll from now on also while no client reads and no call runs."""
        self._polls_when_idle = True
        self._start()

    def _start(self) -> None:
        if self._task is None or self._task.done():
            self._task = self._loop.create_task(self._run())
            self._tick()
            environment().start_background(self._open_channel_layer)

    def _open_channel_layer(self) -> None:
        channel_layer().open(self.receive_wakeup, self.note_lost_wakeups)

    def poll_often(self) -> None:
        """Poll soon, because a client has begun to read a stream here, or a call to run."""
        if self._task is None or self._task.done():
            self._start()
        elif not self._polls_often:
            # The current pause is that of an idle poller. End it as early as the pause of a busy
            # one, and not at once: most calls end sooner and need no poll.
            self._loop.call_later(self._pause_seconds(), self._poll_if_busy)

    def _poll_if_busy(self) -> None:
        if self._is_busy:
            self._poll_now.set()
        else:  # the long pause goes on, and the next call may end it
            self._polls_often = False

    def stop_if_idle(self) -> None:
        """Stop polling if there is nothing to poll for any more."""
        # Cancel it only in a pause. A poll may have claimed calls, which no process would then run.
        if self._task is not None and self._is_pausing and not self._is_wanted:
            self._task.cancel()
            self._stop()

    async def close(self) -> None:
        """Stop at the end of the process, and release the lease unless another loop needs it.

        Other processes take over the calls that are still running here.
        """
        holding = bool(self._call_manager and self._call_manager.running_ids())
        self.call_manager = None
        with suppress(Busy):
            # Wait for the running poll, because it may begin a lease. The pool has one thread, so
            # this empty job starts when the poll has ended.
            await threads.polling.run(lambda: None)
        if holding:
            # Calls of other loops are taken over too. Their fencing tokens stop them here.
            await jobs.run_with_retries(partial(lease.end, holding=True))
        elif not _serves_elsewhere():  # else calls of another loop would be taken over
            # Without calls it is enough to try once: there is nothing to take over.
            with suppress(Busy, *BROKEN):
                await threads.log.run(lease.end)

    def _stop(self) -> None:
        self._task, self._is_pausing = None, False
        self._may_claim.set()  # no further poll will set it
        if self._timer is not None:
            self._timer.cancel()
        channel_layer().stop()

    def receive_wakeup(self, streams: Collection[int]) -> None:
        """Handle the stream ids of a wake-up from another process: poll their rows now."""
        self._wakeups.deliver([StreamWakeup(stream, changed=True) for stream in streams])
        if self._call_manager is not None and not set(streams).isdisjoint(
            self._call_manager.streams()
        ):
            self._poll_now.set()

    def note_lost_wakeups(self) -> None:
        """Poll now, because the connection to other processes failed and may have lost wake-ups."""
        # A poll without streams and calls would make no query. This one must make at least one, so
        # that an outage of the database is noticed.
        self._timeout_timer.make_due()
        self._poll_now.set()

    @asynccontextmanager
    async def claiming(self) -> AsyncIterator[None]:
        """Mark the block as claiming calls, so that calls are not reconciled meanwhile.

        If the connection to the database breaks in the block, a reconciliation follows. A
        reconciliation that waits for claims follows at once when the last of them ends.
        """
        while not self._may_claim.is_set():  # it may be cleared again before a waiter continues
            await self._may_claim.wait()
        before = jobs.counts.failures
        try:
            with self._open_claim():
                yield
        finally:
            self.needs_reconciliation |= jobs.counts.failures != before
            # Reconcile at once, and allow no further claim before: in a busy process there would
            # always be an open one. Only while the poller pauses: the poll that follows sets
            # ``_may_claim`` again, and a stopped poller never would.
            if self.needs_reconciliation and not self._claims_open and self._is_pausing:
                self._may_claim.clear()
                self._poll_now.set()

    @contextmanager
    def _open_claim(self) -> Iterator[None]:
        """Count the block as an open claim. A reconciliation of another loop then has no effect."""
        self._claims_open, self._claims_begun = self._claims_open + 1, self._claims_begun + 1
        try:
            yield
        finally:
            self._claims_open -= 1

    @property
    def _serves(self) -> bool:
        return self._call_manager is not None or self._wakeups.follows_changes

    @property
    def _is_wanted(self) -> bool:
        return (self._serves and self._polls_when_idle) or self._is_busy

    @property
    def _is_busy(self) -> bool:
        """Whether clients read streams here or calls run here, so that polls must be frequent."""
        return bool(self._wakeups) or bool(self._call_manager and self._call_manager.running_ids())

    async def _run(self) -> None:
        while self._is_wanted:
            await self._pause()
            await self._poll_safely()
        self._stop()

    async def _pause(self) -> None:
        seconds = self._pause_seconds()
        self._is_pausing = True
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._poll_now.wait()
        self._poll_now.clear()
        self._is_pausing = False

    def _pause_seconds(self) -> float:
        """Return the length of a pause that begins now, and note whether it is a short one."""
        self._polls_often = self._is_busy
        if not self._polls_often:
            return leases.LEASE_SECONDS / 3
        wakeups_work = channel_layer().is_working
        interval = MAX_POLL_INTERVAL_SECONDS if wakeups_work else POLL_INTERVAL_SECONDS
        return max(interval, min(self._cost, MAX_POLL_INTERVAL_SECONDS))

    async def _poll_safely(self) -> None:
        try:
            await self._poll()
        except Busy:
            logger.debug("Poll of the session database postponed: all threads are busy")
        except BROKEN as error:
            self._note_failure()
            logger.warning("The session database cannot be polled: %s", error)
        except Exception:
            self._note_failure()
            logger.exception("Poll of the session database failed")
        finally:
            self._may_claim.set()

    def _note_failure(self) -> None:
        # While nothing could be read, no process counts as silent.
        self._observer.reset()
        self.needs_reconciliation, self._cost = True, MAX_POLL_INTERVAL_SECONDS

    # Called by a timer, which works while the database cannot be read.

    def _tick(self) -> None:
        interval = min(1.0, leases.LEASE_SECONDS / 20, settings.KEEPALIVE / 4)
        self._timer = self._loop.call_later(interval, self._tick)
        self._send_keepalives()
        self._stop_calls_if_lease_is_doubtful()
        self._prune_if_due()

    def _send_keepalives(self) -> None:
        """Have idle connections send a keep-alive. One timer serves all of them."""
        quiet = time.monotonic() - settings.KEEPALIVE
        for reader in self._wakeups:
            if reader.idle_since <= quiet:
                reader.send_keepalive()

    def _stop_calls_if_lease_is_doubtful(self) -> None:
        """Stop the calls of all loops before other processes take them over."""
        if not lease.is_doubtful:
            return
        logger.warning(
            "Lease may have expired: no heartbeat could be stored. The calls of this process stop, "
            "because other processes may take them over"
        )
        for loop, one in poller.instances():
            if loop is not self._loop:
                with suppress(RuntimeError):  # the loop has been closed
                    loop.call_soon_threadsafe(one.stop_calls)
        self.stop_calls()
        lease.abandon()

    def stop_calls(self) -> None:
        """Stop the calls. Under its next id, this process takes over those without a response."""
        self.needs_reconciliation = True  # so that the next poll reconciles the calls
        if self._call_manager is not None:
            self._call_manager.stop(self._call_manager.running_ids())

    def _prune_if_due(self) -> None:
        if self._prune_timer.restart_if_due():
            with suppress(Busy):
                threads.background.run_in_background(retention.prune)

    # Polling.

    async def _poll(self) -> None:
        manager, streams = self._call_manager, self._wakeups.streams()
        held = list(manager.running_ids()) if manager else []
        if self.needs_reconciliation and not self._claims_open:
            self._may_claim.clear()  # no new claims until the reconciliation has run
        # The poll may claim calls, which run in no loop until the manager has them. A
        # reconciliation of another loop that is queued behind this poll would start them a second
        # time.
        with self._open_claim():
            found = await threads.polling.run(
                jobs.run_or_disconnect, self._read_rows, streams, self._sessions_to_touch(), held
            )
            if manager:
                self._pass_to_call_manager(manager, found)
        self._last_cost, self._cost = found.cost, min(found.cost, self._last_cost)
        before, self._states, self._totals = self._states, found.states, found.totals
        for stream in streams if found.states is not before else ():
            row = found.states.get(stream)
            if row is None or row != before.get(stream):
                state = None if row is None else StreamState(*row)
                for reader in self._wakeups.at(stream):
                    reader.update_state(state)
        if (
            manager
            and not self._claims_open
            and (self._reconciliation_timer.restart_if_due() or self.needs_reconciliation)
        ):
            await self._reconcile(manager)

    def _sessions_to_touch(self) -> set[int]:
        """Return the connected sessions once in ``LAST_SEEN_INTERVAL_SECONDS``, else none."""
        if not self._wakeups or not self._last_seen_timer.restart_if_due():
            return set()
        return {reader.session for reader in self._wakeups}

    def _pass_to_call_manager(self, manager: CallManager, found: PollResult) -> None:
        if found.stopped:
            manager.stop_if_lost(found.stopped)
        for timed_out in found.timed_out:
            manager.handle_timeout(timed_out)
        for call in found.taken_over:
            manager.take_over(call)

    async def _reconcile(self, manager: CallManager) -> None:
        """Resume the calls that this process owns and that run in none of its loops.

        A claim may be committed although the connection broke before its result arrived. If no
        connection broke, a call is resumed only if two reconciliations in a row found it: the first
        one may have run between the commit of a claim and the start of its call.

        No other process runs the calls of a former id of this process. They are resumed as soon as
        they have ended here, without waiting until the former id counts as dead.
        """
        self._may_claim.clear()  # ``_poll_safely`` sets it again
        claims_before = _claims_begun()
        running = [
            id
            for _, other in poller.instances()
            if other.call_manager
            for id in other.call_manager.running_ids()
        ]
        owned = await threads.polling.run(self._read_owned_calls, running)
        if claims_before is None or _claims_begun() != claims_before:
            return  # another loop claimed a call meanwhile, and ``running`` may lack it
        was_needed, self.needs_reconciliation = self.needs_reconciliation, False
        if any(call.process in lease.former for call in owned):
            self._reconciliation_timer.make_due()  # some of them have not ended, or there are more
        owned = [call for call in owned if call.pk not in running]
        last_time, self._not_running = self._not_running, {(call.pk, call.fence) for call in owned}
        for call in owned:
            is_former = call.process in lease.former
            if was_needed or is_former or (call.pk, call.fence) in last_time:
                manager.resume(call)

    # Called in the thread of the pool ``polling``.

    def _read_owned_calls(self, running: Sequence[int]) -> list[Call]:
        if self._call_manager is None:
            return []
        return calls.claimed(lease.hold(), running, lease.former)

    def _read_rows(
        self, streams: list[int], connected: Collection[int], held: Collection[int]
    ) -> PollResult:
        began, worked = time.perf_counter(), time.thread_time()
        found = self._read_states(streams)
        if connected:
            sessions.touch_connected(connected)
        if (manager := self._call_manager) is not None:
            self._read_calls(manager, found, lease.hold(), held)
        took, work = time.perf_counter() - began, time.thread_time() - worked
        found.cost = max(DURATION_COST_FACTOR * took, CPU_COST_FACTOR * work)
        return found

    def _read_states(self, ids: list[int]) -> PollResult:
        if not ids:
            return PollResult({}, ([], ()))
        # One row of sums shows whether any stream has changed. The rows of thousands of streams are
        # read only if one has.
        totals = ids, streams.totals(ids)
        if totals == self._totals:
            return PollResult(self._states, totals)
        return PollResult({row[0]: row for row in streams.state_rows(ids)}, totals)

    def _read_calls(
        self, manager: CallManager, found: PollResult, mine: str, held: Collection[int]
    ) -> None:
        if held:
            found.stopped = calls.not_running(mine, held)
        if manager.is_ending:
            return
        if self._timeout_timer.restart_if_due():
            found.timed_out = calls.time_out_questions(
                databases.now(), mine, manager.withdrawal_messages
            )
        if self._takeover_timer.restart_if_due():
            found.taken_over = self._take_over_orphans(mine)

    def _take_over_orphans(self, mine: str) -> list[Call]:
        """Delete the rows of dead processes, and claim running calls without a process."""
        asked = time.monotonic()
        beats = leases.beats()
        if mine not in beats:  # another process has declared this one dead
            # The calls are not stopped, because their rows can be read. A call that another process
            # takes over gets a new fencing token, with which writes from here are rejected, and the
            # next poll stops it. All others continue under the former id, and this process does not
            # take them over: ``_reconcile`` resumes those that do not run here.
            lease.abandon(only=mine)  # the heartbeat may have noticed it first
            return []
        for dead in self._observer.dead(beats, asked):
            if dead != mine:
                leases.end(dead)
        found = calls.take_over_orphans(mine, lease.former)
        if found:
            self._takeover_timer.make_due()  # there may be more than one query returns
        return found


poller = Service(Poller)


def _serves_elsewhere() -> bool:
    """Whether an open event loop of this process runs calls. A closed poller has no manager."""
    return any(one.call_manager and not loop.is_closed() for loop, one in poller.instances())


def _claims_begun() -> int | None:
    """Return how many claims this process has begun, or None while one is open."""
    # A loop that was closed during a poll never ends its claim.
    pollers = [one for loop, one in poller.instances() if not loop.is_closed()]
    if any(one._claims_open for one in pollers):
        return None
    return sum(one._claims_begun for one in pollers)
