"""Faults that wait for an injection point in all workers, and the log in which workers report.

A fault stays armed until it was injected or timed out, one at a time for each point. Workers write
to one shared log, before the fault takes effect.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .report import Tally
from .schedule import Fault
from .workers import Worker

ANSWERS = 1.0  # seconds for a worker to report its number of requests
TURN = 0.03  # seconds between two reads of the log
NOTICED = {"takeover": "b", "step-back": "e"}  # what workers tell, and which class it is


class ArmedFaults:
    def __init__(
        self,
        folder: Path,
        tally: Tally,
        note: Callable[[str], None],
        struck: Callable[[str, str], None] = lambda id, worker: None,
        paused: Callable[[str, float, float], None] = lambda worker, began, ended: None,
    ) -> None:
        self.workers: list[Worker] = []
        self.expected: set[str] = set()  # workers that have reason to end
        self.takeovers: list[tuple[str, float]] = []  # by whom, and when
        self.pids: dict[str, int] = {}  # of each worker, the process that told something last
        self.left: set[int] = set()  # processes that took their leave of the log
        self._tally, self._note, self._tell_struck = tally, note, struck
        self._tell_paused = paused
        self._log, self._read = folder / "struck.log", 0
        self._arms: dict[str, dict[str, Any]] = {}
        self._acts: dict[str, str] = {}  # of every fault: one may strike as it is forgotten
        self._waiting: dict[str, asyncio.Future[int | None]] = {}
        self._turns: dict[str, asyncio.Lock] = {}

    def alone(self, what: str) -> asyncio.Lock:
        return self._turns.setdefault(what, asyncio.Lock())

    # To the workers.

    async def wait_until_hit(
        self, fault: Fault, act: str, patience: float, seconds: float, but: int = 0
    ) -> int | None:
        """Return the process that has reached the point, or ``None`` after the timeout.

        The process ``but`` is not affected.
        """
        arm = {"id": fault.id, "point": fault.at, "act": act, "seconds": seconds, "but": but}
        async with self.alone(fault.at):
            self._arms[fault.at], self._acts[fault.id] = arm, act
            self._tell(**arm)
            pid = await self.outcome(fault, patience)
            del self._arms[fault.at]
            self._tell(forget=fault.at)
        if pid is None and act != "note":
            self._tally.missed[fault.at] += 1
        return pid

    async def open_in(self, worker: Worker, id: str) -> int | None:
        """Return how many requests the worker handles, or ``None`` if it does not reply."""
        worker.hear(count=id)
        return await self._settled(id, ANSWERS)

    def _tell(self, **what: Any) -> None:
        for worker in self.workers:
            worker.hear(**what)

    def remind(self, worker: Worker) -> None:
        """Send the armed faults to a worker that has just started."""
        for arm in self._arms.values():
            worker.hear(**arm)

    async def outcome(self, fault: Fault, patience: float) -> int | None:
        """Return the process in which the fault was injected, or ``None`` after the timeout."""
        return await self._settled(fault.id, patience)

    async def _settled(self, id: str, patience: float) -> int | None:
        waiting = self._waiting[id] = asyncio.get_running_loop().create_future()
        await asyncio.wait([waiting], timeout=patience)
        del self._waiting[id]
        return waiting.result() if waiting.done() else None

    def worker_of(self, pid: int) -> Worker:
        """Return the worker of a process."""
        name = next(name for name, last in self.pids.items() if last == pid)
        return next(worker for worker in self.workers if worker.name == name)

    def settle(self, id: str, pid: int | None) -> None:
        waiting = self._waiting.get(id)
        if waiting is not None and not waiting.done():
            waiting.set_result(pid)

    def give_up(self) -> None:
        """Cancel all armed faults."""
        for id in list(self._waiting):
            self.settle(id, None)

    # From the workers.

    async def listen(self) -> None:
        while True:
            await asyncio.sleep(TURN)
            self.hear()

    def hear(self) -> None:
        """Read the new lines of the log."""
        if not self._log.exists():
            return
        with self._log.open("rb") as opened:
            opened.seek(self._read)
            for line in opened:
                self._read += len(line)
                self._heard(json.loads(line))

    def _heard(self, told: dict[str, Any]) -> None:
        self.pids[told["worker"]] = told["pid"]
        if "struck" in told:
            self._has_struck(told)
        elif "spared" in told:
            worker = next(one for one in self.workers if one.name == told["worker"])
            worker.spared = told["at"] + told["spared"]
        elif "counted" in told:
            self.settle(told["counted"], told["open"])
        elif "paused" in told:
            self._tally.pauses.append(told["ended"] - told["paused"])
            self._tell_paused(told["worker"], told["paused"], told["ended"])
        else:
            self._has_seen(told["seen"], told)

    def _has_seen(self, what: str, told: dict[str, Any]) -> None:
        self._tally.seen[what] += 1
        if letter := NOTICED.get(what):
            self._tally.observed(letter)
        if what == "takeover":
            self.takeovers.append((told["worker"], told["at"]))
        if what == "left":
            self.left.add(told["pid"])

    def _has_struck(self, told: dict[str, Any]) -> None:
        act = self._acts.get(told["id"])
        self._note(f"{told['worker']}: {told['struck']} ({act})")
        if act == "kill":
            self.expected.add(told["worker"])
        if act == "suspend" and told["id"] not in self._waiting:
            os.kill(told["pid"], signal.SIGCONT)  # the wait for it has timed out
        if act != "note":
            self._tell_struck(told["id"], told["worker"])
        self.settle(told["id"], told["pid"])
