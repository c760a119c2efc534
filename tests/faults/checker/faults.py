"""Injected faults, as reported on standard input in lines of JSON.

Faults change no expectation. They excuse a failed call only if they affected its worker, or all
workers, during the call.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections import Counter, deque
from collections.abc import Container
from dataclasses import dataclass
from typing import Any

from .client import Address

COMMON = frozenset(("database", "commit"))  # strike all workers
HOLDING = frozenset(("pause", "suspend"))
DEADLY = frozenset(
    ("kill", "stop", "suspend", "database", "late", "silence")
)  # a worker dies, or is thought dead
# Seconds after its end in which it still has effects: until who was taken for dead is back, say.
AFTER = {
    "stop": 1.0,
    "kill": 1.0,
    "pause": 1.0,
    "suspend": 8.0,
    "database": 8.0,
    "commit": 1.0,
    "late": 8.0,
    "silence": 0.0,  # no heartbeat: the worker itself tells so afterwards
}
EXCUSING = AFTER.keys() - {"silence"}  # a silence explains a lost lease, and nothing else
# A machine that is late as report here, by a process of which nothing is wanted, is so for workers.
LOOKING, LATE = 0.1, 0.7  # seconds between two looks, and beyond them
CROWD = 2.5  # programs that wait for each core: how long something takes is then theirs to say
GRACE = 5.0  # seconds in which whoever was report to end has ended no call
KEPT = 1_000  # ids of faults that are over: one may strike as it is forgotten


@dataclass
class InjectedFault:
    kind: str
    began: float
    worker: Address | None = None  # None: whichever
    ended: float | None = None

    def affects(self, since: float, place: Address | None, now: float) -> bool:
        """Whether the fault may have affected what began at ``since`` at that worker."""
        if self.began > now or (self.kind == "stop" and now - self.began < GRACE):
            return False
        here = place is None or self.worker is None or place == self.worker
        return here and (self.ended is None or self.ended + AFTER[self.kind] >= since)


class Faults:
    """The faults that have happened so far."""

    def __init__(self, database: str = "") -> None:
        self.counts: Counter[str] = Counter()
        self.last = 0.0  # when somebody said anything
        self._is_single = database == "sqlite"  # who has its lock keeps it from all
        self._faults: list[InjectedFault] = []
        self._open: dict[Any, InjectedFault] = {}
        self._over: deque[Any] = deque(maxlen=KEPT)
        self._pruning: set[Any] = set()
        self._pruned = 0.0  # when what is over was last forgotten

    @property
    def prunes(self) -> int:
        return self.counts["prune"]

    # What it explains.

    def pruned_since(self, since: float) -> bool:
        """Whether events of closed streams were pruned since then."""
        return bool(self._pruning) or self._pruned >= since

    def affected(
        self, since: float, place: Address | None = None, kinds: Container[str] = EXCUSING,
        until: float | None = None,
    ) -> bool:  # fmt: skip
        """Whether a fault hit that worker or all workers, since then or shortly before."""
        return any(one.kind in kinds for one in self._affecting(since, place, until))

    def deaths(
        self, since: float, place: Address | None = None, until: float | None = None
    ) -> list[float]:
        """Return when workers died or counted as dead, from the first time it was this one."""
        last = time.monotonic() if until is None else until
        deadly = [o for o in self._faults if o.kind in DEADLY and not self._is_explained(o)]
        mine = [one.began for one in deadly if one.affects(since, place, last)]
        return [one.began for one in deadly if min(mine) <= one.began <= last] if mine else []

    def _is_explained(self, silence: InjectedFault) -> bool:
        """Whether another fault caused a silence, so that it does not count as a second death."""
        return silence.kind == "silence" and any(
            one.kind in DEADLY - {"silence"}
            and one.worker in (None, silence.worker)
            and silence.ended is not None
            and one.began <= silence.ended
            and (one.ended is None or one.ended >= silence.began)
            for one in self._faults
        )

    def killed_at(self, since: float, place: Address | None = None) -> float | None:
        """Return when the worker was killed, if no other fault concerned the call."""
        mine = self._affecting(since, place)
        return mine[0].began if [one.kind for one in mine] == ["kill"] else None

    def seconds_since_outage(self, since: float, place: Address | None = None) -> float | None:
        """Return the seconds since a database outage ended, if it was the only fault."""
        now, mine = time.monotonic(), self._affecting(since, place)
        ended = [one.ended or now for one in mine if one.kind == "database"]
        is_alone = {one.kind for one in mine} <= {"database", "silence"}
        return now - ended[-1] if ended and is_alone and ended[-1] >= since else None

    def _affecting(
        self, since: float, place: Address | None, until: float | None = None
    ) -> list[InjectedFault]:
        now = time.monotonic() if until is None else until
        return [one for one in self._faults if one.affects(since, place, now)]

    # What is report.

    def take(self, line: bytes) -> None:
        try:
            report = json.loads(line)
        except ValueError:
            return
        if isinstance(report, dict) and "fault" in report:
            self.last = time.monotonic()
            self._record(report["fault"], report.get("at"), report)

    def _record(self, kind: str, at: object, report: dict[str, Any]) -> None:
        """Record a report. A fault excuses deviations from when it hits a worker to its end."""
        id = report.get("id")
        if kind == "prune":
            self._record_prune(id, at)
        elif kind == "silence":
            worker = self._affected_worker(kind, report)
            self._faults.append(InjectedFault(kind, report["began"], worker, report["ended"]))
            self.counts[kind] += 1
        elif at == "struck":
            self._faults.append(
                fault := InjectedFault(kind, self.last, self._affected_worker(kind, report))
            )
            if kind == "kill" or id in self._over:
                fault.ended = self.last
            else:
                self._open[id] = fault
        elif at == "end":
            self._over.append(id)
            if (ended := self._open.pop(id, None)) is not None:
                ended.ended = ended.ended or self.last
        self.counts[kind] += at == "begin"

    def _record_prune(self, id: Any, at: object) -> None:
        self._pruned = self.last
        if at == "begin":
            self._pruning.add(id)
        elif at == "end":
            self._pruning.discard(id)

    def _affected_worker(self, kind: str, report: dict[str, Any]) -> Address | None:
        """Return the affected worker; None for all. On SQLite a stopped one may hold the lock."""
        is_common = kind in COMMON or (self._is_single and kind in HOLDING)
        return None if is_common or not report.get("worker") else Address.of(report["worker"])

    async def watch_for_stalls(self) -> None:
        """Record times in which the whole machine was stalled, so that heartbeats are late."""
        while True:
            began = time.monotonic()
            await asyncio.sleep(LOOKING)
            self.record_stall(began, time.monotonic())

    def record_stall(self, began: float, ended: float) -> None:
        if ended - began >= LOOKING + LATE:
            self._faults.append(InjectedFault("late", began, None, ended))
            self.last = ended
            self.counts["late"] += 1

    @property
    def is_crowded(self) -> bool:
        """Whether other programs use most of the CPU time."""
        return os.getloadavg()[0] > CROWD * (os.cpu_count() or 1)

    async def wait_until_quiet(self, seconds: float) -> None:
        """Wait until no fault was reported for that many seconds."""
        while True:
            left = self.last + seconds - time.monotonic()
            if left <= 0:
                return
            await asyncio.sleep(left)

    async def read_reports(self) -> None:
        """Read reports from standard input until its end."""
        if os.isatty(sys.stdin.fileno()):
            return
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        try:
            await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
        except (OSError, ValueError):
            return  # a file, say
        while line := await reader.readline():
            self.take(line)
