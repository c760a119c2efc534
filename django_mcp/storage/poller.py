"""Poll the session database for what other processes did: new events, abandoned calls.

Wake-up messages may be lost; polling guarantees delivery. Each event loop has one ``Poller``. It
reads the state of all streams that are followed here with one query, 0.2 seconds after the last
time, or 1 second if wake-ups from other processes work. The same poll finds calls that were
cancelled, questions that timed out, and calls of dead processes. A timer does what must happen
while the database is down: keep-alives, and stopping calls when the lease of this process is in
doubt.

``changes.feed`` polls the change logs. It uses a thread of its own, because a lock that a
transaction of the project holds may block it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial

from ..conf import settings
from ..exceptions import Busy
from ..models import Call
from ..runtime import threads
from ..runtime.runtime import Service, environment
from . import calls, databases, jobs, leases, retention, sessions, streams
from .calls import CallManager, Overdue
from .jobs import BROKEN
from .leases import Observer, lease
from .streams import StreamState
from .wakeups import StreamWakeup, line, stream_wakeups

logger = logging.getLogger("django_mcp")
POLL_INTERVAL_SECONDS = 0.2  # seconds between two looks
MAX_POLL_INTERVAL_SECONDS = 1.0  # seconds between two looks if wake-ups work or looks take long
# The pause after a look is at least 50 times its CPU time, and 4 times its duration, up to
# ``MAX_POLL_INTERVAL_SECONDS``, so that polling takes about a fiftieth of a CPU.
CPU_COST_FACTOR, COST_FACTOR = 50, 4
OVERDUE_INTERVAL_SECONDS = 1.0  # seconds between two looks for questions that timed out
LAST_SEEN_INTERVAL_SECONDS = (
    60.0  # seconds between two updates of ``last_seen`` of connected sessions
)
PRUNE_INTERVAL_SECONDS = 1200.0  # seconds, at most, between two deletions of expired rows


class PeriodicTimer:
    """Tells when a periodic task is due. ``is_due`` starts the next interval when it is True."""

    def __init__(self, seconds: Callable[[], float], *, at_once: bool = True) -> None:
        self._seconds = seconds
        self._at = time.monotonic() + (0.0 if at_once else seconds())

    @property
    def is_due(self) -> bool:
        """Whether the interval is over. Reading it as True starts the next interval."""
        now = time.monotonic()
        if now < self._at:
            return False
        self._at = now + self._seconds()
        return True

    def hasten(self) -> None:
        """Make the task due now, because there is more to do."""
        self._at = 0.0


Totals = tuple[list[int], tuple[int, ...]]  # ids of streams, and ``streams.totals`` of them


@dataclass
class PollResult:
    """What one look at the rows found."""

    states: dict[int, tuple[int, ...]]  # the same object as before where nothing has changed
    totals: Totals
    stopped: Collection[int] = ()
    overdue: Sequence[Overdue] = ()
    orphans: Sequence[Call] = ()
    cost: float = 0.0  # seconds that the next pause must last in return


class Poller:
    """The polling task of one event loop.

    It runs while streams are followed here, calls run here, or this process serves sessions:
    another process may die and leave calls that this one must take over.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._runner: CallManager | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._called = asyncio.Event()
        self._asleep = self._is_attentive = False
        # The cost of the last look, and the lesser of the last two: one slow look is ignored.
        self._cost = self._lasting = 0.0
        self._observer = Observer()
        self._sweep = PeriodicTimer(lambda: leases.LEASE_SECONDS / 3)
        self._recounting = PeriodicTimer(lambda: leases.LEASE_SECONDS / 3)
        self._timing_out = PeriodicTimer(lambda: OVERDUE_INTERVAL_SECONDS)
        self._greeting = PeriodicTimer(lambda: LAST_SEEN_INTERVAL_SECONDS)
        self._pruning = PeriodicTimer(
            lambda: random.uniform(PRUNE_INTERVAL_SECONDS / 2, PRUNE_INTERVAL_SECONDS),
            at_once=False,
        )
        self._wakeups = stream_wakeups()
        self._known: dict[int, tuple[int, ...]] = {}  # how streams were at the last look
        self._totals: Totals = ([], ())
        # Whether a claim was perhaps committed although its result was lost.
        self.is_in_doubt = False
        # Ids and fences of calls that were claimed here and not running at the last count.
        self._unknown: set[tuple[int, int]] = set()
        self._claims = self._claimed = 0  # claims under way, and all that were begun
        self._may_claim = asyncio.Event()
        self._may_claim.set()

    @property
    def runner(self) -> CallManager | None:
        return self._runner

    @runner.setter
    def runner(self, runner: CallManager | None) -> None:
        self._runner = runner
        self.wake()
        self.rest()

    def wake(self) -> None:
        """Start polling if it is needed. Poll at once if the poller was idle."""
        if not self._is_wanted:
            return
        if self._task is None or self._task.done():
            self._task = self._loop.create_task(self._run())
            self._watch()
            if environment().has_background_services:
                line().open(self.heard, self.line_lost)
        elif not self._is_attentive:
            self._called.set()
        self._is_attentive = True

    def rest(self) -> None:
        """Stop polling if it is not needed any more."""
        if self._task is not None and self._asleep and not self._is_wanted:
            self._task.cancel()
            self._stop()

    async def close(self) -> None:
        """Stop at the end of the process, and release the lease.

        Other processes take over the calls that are still running here.
        """
        holding = bool(self._runner and self._runner.held())
        self.runner = None
        with suppress(Busy):
            # Wait for the look that is under way in the pool's one thread: it may begin a lease.
            await threads.polling.run(bool)
        if holding:
            await jobs.surely(partial(lease.end, holding=True))
        else:  # without calls it is enough to try once: there is nothing to take over
            with suppress(Busy, *BROKEN):
                await threads.log.run(lease.end)

    def _stop(self) -> None:
        self._task, self._asleep = None, False
        self._may_claim.set()  # no further poll will set it
        if self._timer is not None:
            self._timer.cancel()
        line().stop()

    def heard(self, streams: Collection[int]) -> None:
        """Handle the stream ids of a wake-up from another process: poll their rows now."""
        self._wakeups.deliver([StreamWakeup(stream, changed=True) for stream in streams])
        if self._runner is not None and not set(streams).isdisjoint(self._runner.streams()):
            self._called.set()

    def line_lost(self) -> None:
        """Poll now, with at least one query, because wake-ups may have been lost."""
        self._timing_out.hasten()
        self._called.set()

    @asynccontextmanager
    async def claiming(self) -> AsyncIterator[None]:
        """Mark the block as claiming calls, so that no recount runs meanwhile.

        If the connection to the database breaks in the block, a recount follows. A recount that
        waits for claims follows at once when the last of them ends.
        """
        while not self._may_claim.is_set():  # it may be cleared again before a waiter continues
            await self._may_claim.wait()
        self._claims, self._claimed = self._claims + 1, self._claimed + 1
        before = jobs.failures()
        try:
            yield
        finally:
            self._claims -= 1
            self.is_in_doubt |= jobs.failures() != before
            # Only while it waits between two polls: a stopped poller would not set it again.
            if self.is_in_doubt and not self._claims and self._asleep:
                # Without this, a busy process begins the next claim before it can recount.
                self._may_claim.clear()
                self._called.set()

    @property
    def _is_wanted(self) -> bool:
        attends = self._runner is not None or self._wakeups.follows_changes
        return (attends and environment().has_background_services) or self._is_busy

    @property
    def _is_busy(self) -> bool:
        """Whether there is more to look for than what other processes leave behind."""
        return bool(self._wakeups) or bool(self._runner and self._runner.held())

    async def _run(self) -> None:
        while self._is_wanted:
            await self._wait()
            await self._turn()
        self._stop()

    async def _wait(self) -> None:
        pause = self._pause()
        self._asleep = True
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._called.wait()
        self._called.clear()
        self._asleep = False

    def _pause(self) -> float:
        self._is_attentive = self._is_busy
        if not self._is_attentive:
            return leases.LEASE_SECONDS / 3
        period = MAX_POLL_INTERVAL_SECONDS if line().is_prompt else POLL_INTERVAL_SECONDS
        return max(period, min(self._lasting, MAX_POLL_INTERVAL_SECONDS))

    async def _turn(self) -> None:
        try:
            await self._poll()
        except Busy:
            logger.debug("Poll of the session database postponed: all threads are busy")
        except BROKEN as error:
            self._lose()
            logger.warning("The session database cannot be polled: %s", error)
        except Exception:
            self._lose()
            logger.exception("Poll of the session database failed")
        finally:
            self._may_claim.set()

    def _lose(self) -> None:
        self._observer.blind()
        self.is_in_doubt, self._lasting = True, MAX_POLL_INTERVAL_SECONDS

    # Called by a timer, which works while the database cannot be read.

    def _watch(self) -> None:
        tick = min(1.0, leases.LEASE_SECONDS / 20, settings.KEEPALIVE / 4)
        self._timer = self._loop.call_later(tick, self._watch)
        self._show_life()
        self._doubt()
        self._prune()

    def _show_life(self) -> None:
        """Have idle connections send a keep-alive. One timer serves all of them."""
        quiet = time.monotonic() - settings.KEEPALIVE
        for tail in self._wakeups:
            if tail.since <= quiet:
                tail.nudge()

    def _doubt(self) -> None:
        """Stop the calls of all loops if the lease is in doubt, before others take them over."""
        if not lease.is_doubtful:
            return
        logger.warning(
            "Lease in doubt: other processes may take this one for dead. Its calls are stopped"
        )
        for loop, one in poller.instances():
            if loop is not self._loop:
                with suppress(RuntimeError):  # the loop has been closed
                    loop.call_soon_threadsafe(one.let_go)
        self.let_go()
        lease.abandon()

    def let_go(self) -> None:
        """Stop the calls. Under its next id, this process takes over those without a response."""
        self.is_in_doubt = True  # recount at the next look
        if self._runner is not None:
            self._runner.stop(self._runner.held())

    def _prune(self) -> None:
        """Delete expired rows in the background. Every process does so at random intervals."""
        if self._pruning.is_due:
            with suppress(Busy):
                threads.background.run_in_background(retention.prune)

    # Looking at the rows.

    async def _poll(self) -> None:
        runner, seen = self._runner, self._wakeups.streams()
        held = list(runner.held()) if runner else []
        if self.is_in_doubt and not self._claims:
            self._may_claim.clear()  # no new claims until the recount has run
        found = await threads.polling.run(
            jobs.reconnecting, self._seen, seen, self._connected(), held
        )
        self._cost, self._lasting = found.cost, min(found.cost, self._cost)
        before, self._known, self._totals = self._known, found.states, found.totals
        for stream in seen if found.states is not before else ():
            row = found.states.get(stream)
            if row is None or row != before.get(stream):
                self._show(stream, row)
        if runner:
            self._tell(runner, found)
            if not self._claims and (self._recounting.is_due or self.is_in_doubt):
                await self._recount(runner)

    def _show(self, stream: int, row: tuple[int, ...] | None) -> None:
        state = None if row is None else StreamState(*row)
        for tail in self._wakeups.at(stream):
            tail.see(state)

    async def _recount(self, runner: CallManager) -> None:
        """Resume the calls that are claimed by this process and run in none of its loops.

        A claim may be committed although the connection broke before its result arrived. If no
        connection broke, a call is resumed only when two counts in a row found it.

        No other process runs the calls of a former id. They are resumed as soon as they have ended
        here, and not only when others take the former id for dead.
        """
        self._may_claim.clear()  # until the end of the look
        before = _claims()
        known = [id for _, one in poller.instances() if one.runner for id in one.runner.held()]
        found = await threads.polling.run(self._not_known, known)
        if before is None or _claims() != before:
            return  # another loop claimed a call meanwhile, and ``known`` may lack it
        doubted, self.is_in_doubt = self.is_in_doubt, False
        if any(call.process in lease.former for call in found):
            self._recounting.hasten()  # some of them have not ended, or there are more
        found = [call for call in found if call.pk not in known]
        before_that, self._unknown = self._unknown, {(call.pk, call.fence) for call in found}
        for call in found:
            is_former = call.process in lease.former
            if doubted or is_former or (call.pk, call.fence) in before_that:
                runner.resume(call)

    def _tell(self, runner: CallManager, found: PollResult) -> None:
        if found.stopped:
            runner.recheck(found.stopped)
        for overdue in found.overdue:
            runner.expired(overdue)
        for call in found.orphans:
            runner.take_over(call)

    def _connected(self) -> set[int]:
        """Return the connected sessions once in ``LAST_SEEN_INTERVAL_SECONDS``, else none."""
        if not self._wakeups or not self._greeting.is_due:
            return set()
        return {tail.session for tail in self._wakeups}

    # Called in the thread of the pool ``polling``.

    def _not_known(self, known: Sequence[int]) -> list[Call]:
        return [] if self._runner is None else calls.claimed(lease.hold(), known, lease.former)

    def _seen(
        self, followed: list[int], connected: Collection[int], held: Collection[int]
    ) -> PollResult:
        began, worked = time.perf_counter(), time.thread_time()
        found = self._states(followed)
        if connected:
            sessions.seen(connected)
        if (runner := self._runner) is not None:
            self._ask(runner, found, lease.hold(), held)
        took, work = time.perf_counter() - began, time.thread_time() - worked
        found.cost = max(COST_FACTOR * took, CPU_COST_FACTOR * work)
        return found

    def _states(self, followed: list[int]) -> PollResult:
        if not followed:
            return PollResult({}, ([], ()))
        totals = followed, streams.totals(followed)
        if totals == self._totals:
            return PollResult(self._known, totals)
        return PollResult({row[0]: row for row in streams.look(followed)}, totals)

    def _ask(
        self, runner: CallManager, found: PollResult, mine: str, held: Collection[int]
    ) -> None:
        if held:
            found.stopped = calls.cancelled_of(mine, held)
        if runner.is_ending:
            return
        if self._timing_out.is_due:
            found.overdue = calls.overdue(databases.now(), mine, runner.withdrawals)
        if self._sweep.is_due:
            found.orphans = self._orphans(mine)

    def _orphans(self, mine: str) -> list[Call]:
        """Delete the rows of dead processes, and take over running calls without a process."""
        asked = time.monotonic()
        beats = leases.beats()
        if mine not in beats:  # another process has declared this one dead
            lease.abandon()
            return []
        for dead in self._observer.dead(beats, asked):
            if dead != mine:
                leases.end(dead)
        found = calls.orphans(mine)
        if found:
            self._sweep.hasten()
        return found


poller = Service(Poller)


def _claims() -> int | None:
    """Return how many claims this process has begun, or None while one is under way."""
    known = [one for _, one in poller.instances()]
    return None if any(one._claims for one in known) else sum(one._claimed for one in known)
