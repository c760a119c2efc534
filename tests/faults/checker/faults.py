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
STRIKES = AFTER.keys() - {"silence"}  # a silence explains a lost lease, and nothing else
# A machine that is late as told here, by a process of which nothing is wanted, is so for workers.
LOOKING, LATE = 0.1, 0.7  # seconds between two looks, and beyond them
CROWD = 2.5  # programs that wait for each core: how long something takes is then theirs to say
GRACE = 5.0  # seconds in which whoever was told to end has ended no call
KEPT = 1_000  # ids of faults that are over: one may strike as it is forgotten


@dataclass
class Strike:
    kind: str
    began: float
    worker: Address | None = None  # None: whichever
    ended: float | None = None

    def concerns(self, since: float, place: Address | None, now: float) -> bool:
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
        self._strikes: list[Strike] = []
        self._open: dict[Any, Strike] = {}
        self._over: deque[Any] = deque(maxlen=KEPT)
        self._pruning: set[Any] = set()
        self._pruned = 0.0  # when what is over was last forgotten

    @property
    def prunes(self) -> int:
        return self.counts["prune"]

    # What it explains.

    def forgot(self, since: float) -> bool:
        """Whether events of closed streams were pruned since then."""
        return bool(self._pruning) or self._pruned >= since

    def concern(
        self, since: float, place: Address | None = None, kinds: Container[str] = STRIKES,
        until: float | None = None,
    ) -> bool:  # fmt: skip
        """Whether a fault hit that worker or all workers, since then or shortly before."""
        return any(one.kind in kinds for one in self._concerning(since, place, until))

    def deaths(
        self, since: float, place: Address | None = None, until: float | None = None
    ) -> list[float]:
        """Return when workers died or counted as dead, from the first time it was this one."""
        last = time.monotonic() if until is None else until
        deadly = [o for o in self._strikes if o.kind in DEADLY and not self._is_explained(o)]
        mine = [one.began for one in deadly if one.concerns(since, place, last)]
        return [one.began for one in deadly if min(mine) <= one.began <= last] if mine else []

    def _is_explained(self, silence: Strike) -> bool:
        """Whether another fault caused a silence, so that it does not count as a second death."""
        return silence.kind == "silence" and any(
            one.kind in DEADLY - {"silence"}
            and one.worker in (None, silence.worker)
            and silence.ended is not None
            and one.began <= silence.ended
            and (one.ended is None or one.ended >= silence.began)
            for one in self._strikes
        )

    def killed(self, since: float, place: Address | None = None) -> float | None:
        """Return when the worker was killed, if no other fault concerned the call."""
        mine = self._concerning(since, place)
        return mine[0].began if [one.kind for one in mine] == ["kill"] else None

    def waited(self, since: float, place: Address | None = None) -> float | None:
        """Return the seconds since a database outage ended, if it was the only fault."""
        now, mine = time.monotonic(), self._concerning(since, place)
        ended = [one.ended or now for one in mine if one.kind == "database"]
        is_alone = {one.kind for one in mine} <= {"database", "silence"}
        return now - ended[-1] if ended and is_alone and ended[-1] >= since else None

    def _concerning(
        self, since: float, place: Address | None, until: float | None = None
    ) -> list[Strike]:
        now = time.monotonic() if until is None else until
        return [one for one in self._strikes if one.concerns(since, place, now)]

    # What is told.

    def take(self, line: bytes) -> None:
        try:
            told = json.loads(line)
        except ValueError:
            return
        if isinstance(told, dict) and "fault" in told:
            self.last = time.monotonic()
            self._heard(told["fault"], told.get("at"), told)

    def _heard(self, kind: str, at: object, told: dict[str, Any]) -> None:
        """Record a report. A fault excuses deviations from when it hits a worker to its end."""
        id = told.get("id")
        if kind == "prune":
            self._heard_of_prune(id, at)
        elif kind == "silence":
            whom = self._whom(kind, told)
            self._strikes.append(Strike(kind, told["began"], whom, told["ended"]))
            self.counts[kind] += 1
        elif at == "struck":
            self._strikes.append(strike := Strike(kind, self.last, self._whom(kind, told)))
            if kind == "kill" or id in self._over:
                strike.ended = self.last
            else:
                self._open[id] = strike
        elif at == "end":
            self._over.append(id)
            if (ended := self._open.pop(id, None)) is not None:
                ended.ended = ended.ended or self.last
        self.counts[kind] += at == "begin"

    def _heard_of_prune(self, id: Any, at: object) -> None:
        self._pruned = self.last
        if at == "begin":
            self._pruning.add(id)
        elif at == "end":
            self._pruning.discard(id)

    def _whom(self, kind: str, told: dict[str, Any]) -> Address | None:
        """Return the affected worker; None for all. On SQLite a stopped one may hold the lock."""
        is_common = kind in COMMON or (self._is_single and kind in HOLDING)
        return None if is_common or not told.get("worker") else Address.of(told["worker"])

    async def look(self) -> None:
        """Record times in which the whole machine was stalled, so that heartbeats are late."""
        while True:
            began = time.monotonic()
            await asyncio.sleep(LOOKING)
            self.noticed(began, time.monotonic())

    def noticed(self, began: float, ended: float) -> None:
        if ended - began >= LOOKING + LATE:
            self._strikes.append(Strike("late", began, None, ended))
            self.last = ended
            self.counts["late"] += 1

    @property
    def is_crowded(self) -> bool:
        """Whether other programs use most of the CPU time."""
        return os.getloadavg()[0] > CROWD * (os.cpu_count() or 1)

    async def calm(self, seconds: float) -> None:
        """Wait until no fault was reported for that many seconds."""
        while True:
            left = self.last + seconds - time.monotonic()
            if left <= 0:
                return
            await asyncio.sleep(left)

    async def hear(self) -> None:
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
