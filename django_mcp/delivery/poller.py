"""
The floor under every wake-up: one task that looks at the rows, for all at once.

Rule: whatever another process did is seen here within a period, however many
follow streams: it takes one query for all of them, and a fiftieth of a thread.
Where a channel layer brings rings, the period is longer. The poller runs as long
as this process looks after sessions, for others may leave calls behind. What
must be noticed though the rows cannot be looked at is noticed by a timer.
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
from typing import Protocol

from .. import threads
from ..conf import settings
from ..exceptions import Busy
from ..models import Call
from . import calls, clock, jobs, leases, processes, pruning, sessions, streams
from .calls import Overdue
from .doorbell import DOORBELL, Ring, doorbell
from .jobs import BROKEN, PerLoop
from .layers import line
from .leases import Observer, lease
from .runner import Runner
from .streams import StreamState

logger = logging.getLogger("django_mcp")
PERIOD = 0.2  # seconds between two looks
LONGEST = 1.0  # where rings come from other processes, or looks take long
# So many times as long as a look works, and as it takes, is the pause after it.
WORKS, TAKES = 50, 4
OVERDUE = 1.0  # seconds between two looks for questions that nobody answered
GREETING = 60.0  # seconds between two notes that a session is connected
PRUNING = 1200.0  # seconds, at most, between two looks for what can be forgotten


class Every:
    """Something to do again and again, and whether it is time."""

    def __init__(self, seconds: Callable[[], float], *, at_once: bool = True) -> None:
        self._seconds = seconds
        self._at = time.monotonic() + (0.0 if at_once else seconds())

    @property
    def is_due(self) -> bool:
        """True once, when it is."""
        now = time.monotonic()
        if now < self._at:
            return False
        self._at = now + self._seconds()
        return True

    def hasten(self) -> None:
        """There is more to do."""
        self._at = 0.0


Totals = tuple[list[int], tuple[int, ...]]  # of which streams, and what they come to


@dataclass
class Seen:
    """What one look at the rows found."""

    states: dict[int, tuple[int, ...]]  # the same object as before where nothing has changed
    totals: Totals
    stopped: Collection[int] = ()
    overdue: Sequence[Overdue] = ()
    orphans: Sequence[Call] = ()
    cost: float = 0.0  # seconds of a pause that it is worth


class Wakes(Protocol):
    """Who is to be told that something changed: see ``Watch``."""

    def wake(self) -> None: ...


class Poller:
    """Looks, for one event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._runner: Runner | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._called = asyncio.Event()
        self._asleep = self._is_attentive = False
        self._cost = self._lasting = 0.0  # of the last look; the lesser of the last two
        self._observer = Observer()
        self._sweep = Every(lambda: leases.LEASE / 3)
        self._recounting = Every(lambda: leases.LEASE / 3)
        self._timing_out = Every(lambda: OVERDUE)
        self._greeting = Every(lambda: GREETING)
        self._pruning = Every(lambda: random.uniform(PRUNING / 2, PRUNING), at_once=False)
        self._bell = doorbell()
        self.watch: Wakes | None = None  # what changes is looked for by another task
        self._known: dict[int, tuple[int, ...]] = {}  # how streams were at the last look
        self._totals: Totals = ([], ())
        self.is_in_doubt = False  # whether a claim went through of which nobody here knows
        self._unknown: set[tuple[int, int]] = set()  # claims that nobody knew of at the last count
        self._claims = self._claimed = 0  # under way; that were begun
        self._may_claim = asyncio.Event()
        self._may_claim.set()

    @property
    def runner(self) -> Runner | None:
        return self._runner

    @runner.setter
    def runner(self, runner: Runner | None) -> None:
        self._runner = runner
        self.wake()
        self.rest()

    def wake(self) -> None:
        """There is something to look for."""
        if not self._is_wanted:
            return
        if self._task is None or self._task.done():
            self._task = self._loop.create_task(self._run())
            self._watch()
            if not threads.is_adopted():
                line().open(self.heard)
        elif not self._is_attentive:
            self._called.set()
        self._is_attentive = True

    def rest(self) -> None:
        """Stop, if there is nothing left to look for."""
        if self._task is not None and self._asleep and not self._is_wanted:
            self._task.cancel()
            self._stop()

    async def end(self) -> None:
        """The process ends: what is still worked on is left to others."""
        holding = bool(self._runner and self._runner.held())
        self.runner = None
        with suppress(Busy):
            await threads.looks.run(bool)  # a look that is under way may still take a name
        if holding:
            await jobs.surely(partial(lease.end, holding=True))
        else:  # that nothing is held need not be seen by anybody
            with suppress(Busy, *BROKEN):
                await threads.log.run(lease.end)
        await line().closed()

    def _stop(self) -> None:
        self._task = None
        if self._timer is not None:
            self._timer.cancel()
        line().close()

    def heard(self, rung: Collection[int]) -> None:
        """Another process has rung: look at once, for who follows and for what is worked on."""
        self._bell.rung([Ring(stream, changed=True) for stream in rung])
        if DOORBELL in rung and self.watch is not None:
            self.watch.wake()
        if self._runner is not None and not set(rung).isdisjoint(self._runner.streams()):
            self._called.set()

    @asynccontextmanager
    async def claiming(self) -> AsyncIterator[None]:
        """While it is not sure which calls this process holds."""
        await self._may_claim.wait()
        self._claims, self._claimed = self._claims + 1, self._claimed + 1
        before = jobs.breaks()
        try:
            yield
        finally:
            self._claims -= 1
            self.is_in_doubt |= jobs.breaks() != before

    @property
    def _is_wanted(self) -> bool:
        attends = self._runner is not None or self.watch is not None
        return (attends and not threads.is_adopted()) or self._is_busy

    @property
    def _is_busy(self) -> bool:
        """Whether there is more to look for than what other processes leave behind."""
        return bool(self._bell) or bool(self._runner and self._runner.held())

    async def _run(self) -> None:
        while self._is_wanted:
            await self._nap()
            await self._turn()
        self._stop()

    async def _nap(self) -> None:
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
            return leases.LEASE / 3
        period = LONGEST if line().is_prompt else PERIOD
        return max(period, min(self._lasting, LONGEST))

    async def _turn(self) -> None:
        try:
            await self._look()
        except Busy:
            logger.debug("The log is busy; the look is put off")
        except BROKEN as error:
            self._lose()
            logger.warning("The log cannot be read: %s", error)
        except Exception:
            self._lose()
            logger.exception("A look at the log failed")

    def _lose(self) -> None:
        self._observer.blind()
        self.is_in_doubt, self._lasting = True, LONGEST

    # By a timer.

    def _watch(self) -> None:
        tick = min(1.0, leases.LEASE / 20, settings.KEEPALIVE / 4)
        self._timer = self._loop.call_later(tick, self._watch)
        self._show_life()
        self._doubt()
        self._prune()

    def _show_life(self) -> None:
        """One clock for the keep-alive of all connections."""
        quiet = time.monotonic() - settings.KEEPALIVE
        for tail in self._bell:
            if tail.since <= quiet:
                tail.nudge()

    def _doubt(self) -> None:
        """Let go of what is worked on, in every loop, before others take it up."""
        if not lease.is_doubtful:
            return
        logger.warning("This process may be taken for dead: it lets go of what it works on")
        for loop, one in poller.items():
            if loop is not self._loop:
                with suppress(RuntimeError):  # that loop has ended
                    loop.call_soon_threadsafe(one.let_go)
        self.let_go()
        lease.abandon()

    def let_go(self) -> None:
        if self._runner is not None:
            self._runner.stop(self._runner.held())

    def _prune(self) -> None:
        """Forget what is over, now and then: each process does, and none waits for it."""
        if self._pruning.is_due:
            with suppress(Busy):
                threads.notes.begin(pruning.prune)

    # By a look.

    async def _look(self) -> None:
        runner, seen = self._runner, self._bell.streams()
        held = list(runner.held()) if runner else []
        found = await threads.looks.run(
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
        for tail in self._bell.at(stream):
            tail.see(state)

    async def _recount(self, runner: Runner) -> None:
        """Take up the calls that were claimed here when the connection broke.

        Where nothing broke, what nobody works on at two counts in a row.
        """
        self._may_claim.clear()
        try:
            before = _claims()
            known = [id for _, one in poller.items() if one.runner for id in one.runner.held()]
            found = await threads.looks.run(self._not_known, known)
            if before is None or _claims() != before:
                return  # another loop has claimed: that is not known here yet
            doubted, self.is_in_doubt = self.is_in_doubt, False
        finally:
            self._may_claim.set()
        before_that, self._unknown = self._unknown, {(call.pk, call.fence) for call in found}
        for call in found:
            if doubted or (call.pk, call.fence) in before_that:
                runner.resume(call)

    def _tell(self, runner: Runner, found: Seen) -> None:
        if found.stopped:
            runner.recheck(found.stopped)
        for overdue in found.overdue:
            runner.expired(overdue)
        for call in found.orphans:
            runner.take_over(call)

    def _connected(self) -> set[int]:
        """The sessions that are connected; now and then, for they are not idle."""
        if not self._bell or not self._greeting.is_due:
            return set()
        return {tail.session for tail in self._bell}

    # In a thread of the log.

    def _not_known(self, known: Sequence[int]) -> list[Call]:
        return [] if self._runner is None else calls.claimed(lease.hold(), known)

    def _seen(self, followed: list[int], connected: Collection[int], held: Collection[int]) -> Seen:
        began, worked = time.perf_counter(), time.thread_time()
        found = self._states(followed)
        if connected:
            sessions.seen(connected)
        if (runner := self._runner) is not None:
            self._ask(runner, found, lease.hold(), held)
        took, work = time.perf_counter() - began, time.thread_time() - worked
        found.cost = max(TAKES * took, WORKS * work)
        return found

    def _states(self, followed: list[int]) -> Seen:
        if not followed:
            return Seen({}, ([], ()))
        totals = followed, streams.totals(followed)
        if totals == self._totals:
            return Seen(self._known, totals)
        return Seen({row[0]: row for row in streams.look(followed)}, totals)

    def _ask(self, runner: Runner, found: Seen, mine: str, held: Collection[int]) -> None:
        if held:
            found.stopped = calls.cancelled_of(mine, held)
        if runner.is_ending:
            return
        if self._timing_out.is_due:
            found.overdue = calls.overdue(clock.now(), mine, runner.withdrawals)
        if self._sweep.is_due:
            found.orphans = self._orphans(mine)

    def _orphans(self, mine: str) -> list[Call]:
        """What the dead leave behind: calls under names that are no longer there."""
        asked = time.monotonic()
        beats = processes.beats()
        if mine not in beats:  # this one is the dead
            lease.abandon()
            return []
        for dead in self._observer.dead(beats, asked):
            if dead != mine:
                processes.end(dead)
        found = calls.orphans(mine)
        if found:
            self._sweep.hasten()
        return found


poller = PerLoop(Poller)


def _claims() -> int | None:
    """How many claims there were in this process; None while there are some under way."""
    known = [one for _, one in poller.items()]
    return None if any(one._claims for one in known) else sum(one._claimed for one in known)
