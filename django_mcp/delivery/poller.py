"""
The floor under every wake-up: one task that looks at the rows, for all at once.

Rule: whatever another process did is seen here within a period, however many
follow streams: it takes one query for all of them. The poller runs as long as
somebody follows a stream or a call is worked on, and no longer.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol

from django.utils import timezone

from .. import threads
from ..conf import settings
from ..exceptions import Busy
from ..models import Call
from . import calls, leases, processes, pruning, sessions, streams
from .calls import Overdue
from .doorbell import doorbell
from .jobs import BROKEN, PerLoop
from .leases import Observer, lease
from .streams import StreamState

logger = logging.getLogger("django_mcp")
PERIOD = 1.0  # seconds
GREETING = 60.0  # seconds between two notes that a session is connected
PRUNING = 1200.0  # seconds, at most, between two looks for what can be forgotten


class Runner(Protocol):
    """Who works on calls in this process."""

    def held(self) -> Collection[int]:
        """The calls that are worked on."""
        ...

    def stop(self, ids: Collection[int]) -> None:
        """These are not to be worked on any more."""
        ...

    def expired(self, overdue: Overdue) -> None:
        """Nobody answered these questions in time; go on with their call, if there is one."""
        ...

    def take_over(self, call: Call) -> None:
        """Do what is to be done about a call whose process died."""
        ...


@dataclass
class Seen:
    """What one look at the rows found."""

    states: dict[int, tuple[int, ...]] = field(default_factory=dict)
    stopped: Collection[int] = ()
    overdue: Sequence[Overdue] = ()
    orphans: Sequence[Call] = ()


class Poller:
    """Looks, for one event loop."""

    def __init__(self) -> None:
        self.runner: Runner | None = None
        self._task: asyncio.Task[None] | None = None
        self._asleep = False
        self._observer, self._observed, self._greeted = Observer(), 0.0, 0.0
        self._prune_at = time.monotonic() + random.uniform(PRUNING / 2, PRUNING)
        self._bell = doorbell()
        self._known: dict[int, tuple[int, ...]] = {}  # how streams were at the last look
        self.is_in_doubt = False  # whether a claim went through of which nobody here knows
        self._claims, self._may_claim = 0, asyncio.Event()
        self._may_claim.set()

    def wake(self) -> None:
        """There is something to look for."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    def rest(self) -> None:
        """Stop, if there is nothing left to look for."""
        if self._task is not None and self._asleep and not self._is_wanted:
            self._task.cancel()
            self._task = None

    @asynccontextmanager
    async def claiming(self) -> AsyncIterator[None]:
        """While it is not sure which calls this process holds."""
        await self._may_claim.wait()
        self._claims += 1
        try:
            yield
        finally:
            self._claims -= 1

    @property
    def _is_wanted(self) -> bool:
        return bool(self._bell) or bool(self.runner and self.runner.held())

    async def _run(self) -> None:
        while self._is_wanted:
            self._asleep = True
            await asyncio.sleep(PERIOD)
            self._asleep = False
            await self._turn()

    async def _turn(self) -> None:
        self._show_life()
        if lease.is_doubtful and self.runner:
            lease.abandon()
            self.runner.stop(self.runner.held())
        self._prune()
        try:
            await self._look()
        except Busy:
            logger.debug("The log is busy; the look is put off")
        except BROKEN as error:
            self._observer.blind()
            self.is_in_doubt = True
            logger.warning("The log cannot be read: %s", error)
        except Exception:
            self._observer.blind()
            logger.exception("A look at the log failed")

    def _show_life(self) -> None:
        """One clock for the keep-alive of all connections."""
        quiet = time.monotonic() - settings.KEEPALIVE
        for tail in self._bell:
            if tail.since <= quiet:
                tail.nudge()

    def _prune(self) -> None:
        """Forget what is over, now and then: each process does, and none waits for it."""
        if time.monotonic() < self._prune_at:
            return
        self._prune_at = time.monotonic() + random.uniform(PRUNING / 2, PRUNING)
        with suppress(Busy):
            threads.notes.begin(pruning.prune)

    async def _look(self) -> None:
        seen, held = self._bell.streams(), list(self.runner.held()) if self.runner else []
        found = await threads.log.run(self._seen, seen, self._connected(), held)
        before, self._known = self._known, found.states
        for stream in seen:
            row = found.states.get(stream)
            if row is None or row != before.get(stream):
                self._show(stream, row)
        if self.runner:
            self._tell(self.runner, found)
            if self.is_in_doubt and not self._claims:
                await self._recount(self.runner)

    def _show(self, stream: int, row: tuple[int, ...] | None) -> None:
        state = None if row is None else StreamState(*row)
        for tail in self._bell.at(stream):
            tail.see(state)

    async def _recount(self, runner: Runner) -> None:
        """Take up the calls that were claimed here when the connection broke."""
        self._may_claim.clear()
        try:
            mine, held = lease.hold, list(runner.held())
            found = await threads.log.run(lambda: calls.orphans(mine(), mine(), known=held))
            self.is_in_doubt = False
        finally:
            self._may_claim.set()
        for call in found:
            runner.take_over(call)

    def _tell(self, runner: Runner, found: Seen) -> None:
        if found.stopped:
            runner.stop(found.stopped)
        for overdue in found.overdue:
            runner.expired(overdue)
        for call in found.orphans:
            runner.take_over(call)

    def _connected(self) -> set[int]:
        """The sessions that are connected; now and then, for they are not idle."""
        if time.monotonic() - self._greeted < GREETING:
            return set()
        self._greeted = time.monotonic()
        return {tail.session for tail in self._bell}

    # In a thread of the log.

    def _seen(
        self, followed: Collection[int], connected: Collection[int], held: Collection[int]
    ) -> Seen:
        found = Seen({row[0]: row for row in streams.look(followed)} if followed else {})
        if connected:
            sessions.seen(connected)
        if self.runner is None:
            return found
        mine = lease.hold()
        found.stopped = calls.cancelled_of(mine, held) if held else ()
        found.overdue = calls.overdue(timezone.now(), mine)
        found.orphans = self._orphans(mine)
        return found

    def _orphans(self, mine: str) -> list[Call]:
        if time.monotonic() - self._observed < leases.LEASE / 3:
            return []
        self._observed = time.monotonic()
        found: list[Call] = []
        for dead in self._observer.dead(processes.beats()):
            if dead != mine:
                found += calls.orphans(dead, mine)
                processes.end(dead)
        return found


poller = PerLoop(Poller)
