"""One campaign: starts the processes, injects faults, and collects the checker's report.

The schedule determines which faults are injected. Their effects are awaited in parallel, so faults
overlap. A worker that ends without an injected fault is a failure.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.ports import free_port

from . import faults, schedule, services
from .armed_faults import ArmedFaults
from .checker_process import Checker
from .clocks import false_clock
from .databases import Database
from .project.mutants import TRIED
from .report import Tally
from .schedule import Fault
from .workers import ForkServer, Program, Worker

LEASES = {"sqlite": 6.0}  # seconds: there all wait for one lock
LEASE = 3.0
TELLING = 30.0  # seconds between two lines of how far it is
SOON, TURN = 10.0, 0.1  # seconds for a worker to be up, and between two looks
AT_ONCE = 16  # faults that wait for their moment
SERVERS = {"uvicorn": 6, "daphne": 3, "granian": 1}
# What has not struck in time is repeated, for at most three times as long: how each class is done.
MORE, ATTEMPTS, LATE, LOOKS = 3.0, 20, 100_000, 1_000_000
LAST = {
    "k": ("kill", ""),
    "b": ("kill", ""),
    "e": ("clock", "back"),
    "f": ("kill-at", "outcome-committed"),
    "h": ("hold", "events-inserted"),
    "o": ("database", ""),
    "p": ("redis", ""),
    "q": ("clock", ""),
    "v": ("stop", ""),
    "suspended": ("suspend", ""),
}
# A long campaign goes on until so much has been seen.
LEAST = {
    "kills": 400, "database": 40, "redis": 40, "stops": 200, "takeovers": 200, "outlived": 5,
}  # fmt: skip
POINTS = 10  # named ones, at which workers were killed
DEATHS = ("kill-at", "kill")  # what strikes a server that is wrong on purpose


@dataclass(frozen=True)
class Options:
    """The options of the command line."""

    seed: int
    seconds: float = 60.0
    database: str = "sqlite"
    layer: str = "redis"
    faults: int = 0  # run until so many were injected, instead of for a time
    mutant: str = ""
    workers: int = 3
    clients: int = 30
    every: float = 0.6  # seconds between two faults; 0: none strike

    @property
    def lease(self) -> float:
        return LEASES.get(self.database, LEASE)

    @property
    def timeout(self) -> float:
        """For how long the checker goes on, unless it is told to stop."""
        if self.mutant or not self.every:
            return self.seconds
        return 86_400.0 if self.faults else (1 + MORE) * self.seconds + 30


class Campaign:
    def __init__(
        self,
        options: Options,
        folder: Path,
        database: Database,
        redis: services.WakeupService | None,
    ) -> None:
        self.options, self.folder, self.database, self.redis = options, folder, database, redis
        self.tally, self.clocks = Tally(), dict[str, float]()
        self.workers: list[Worker] = []
        self._chance = random.Random(f"workers {options.seed}")
        self.armed = ArmedFaults(folder, self.tally, self.note, self._was_struck, self._was_paused)
        self._striking: dict[str, Fault] = {}
        self._checker = Checker(folder)
        self._late = 0  # faults that were struck after their time
        self._port = database.port
        self._proxy = Program(self._was_cut)
        self._plain, self._wrong = ForkServer(), ForkServer()
        self._began, self._is_ending = time.monotonic(), False
        self._notes = (folder / "campaign.log").open("a")

    def note(self, text: str) -> None:
        print(f"{time.monotonic() - self._began:8.2f} {text}", file=self._notes, flush=True)

    def environ(self) -> dict[str, str]:
        """Return the environment of the project's processes."""
        told = {
            "DJANGO_SETTINGS_MODULE": "tests.faults.project.settings",
            "FAULTS_FOLDER": str(self.folder),
            "FAULTS_DATABASE": self.options.database,
            "FAULTS_PORT": str(self._port),
            "FAULTS_LAYER": self.options.layer,
            "FAULTS_REDIS": self.redis.url if self.redis else "",
            "FAULTS_LEASE": str(self.options.lease),
            "FAULTS_MUTANT": self.options.mutant,
        }
        return {**os.environ, **told}

    # Start and end.

    async def run(self) -> dict[str, Any]:
        """Run the campaign and return the checker's report."""
        async with AsyncExitStack() as stack:
            await self._start(stack)
            striking = asyncio.create_task(self._strike_on())
            checked = await self._watch(striking)
            self._is_ending = True
            return checked

    async def _start(self, stack: AsyncExitStack) -> None:
        os.environ.update(self.environ())
        stack.push_async_callback(self._end)
        if self.database.port:
            self._port = free_port()
            os.environ["FAULTS_PORT"] = str(self._port)
            ports = (str(self._port), str(self.database.port))
            await self._proxy.start("tests.faults.proxy", *ports, environ={})
        await self._plain.start("tests.faults.fork_server", environ={})
        if self._has_clocks:
            await self._wrong.start("tests.faults.fork_server", environ=false_clock(self.folder))
        await self._plain.manage(self.folder / "migrate.log", *self._migrations())
        self._make_workers()
        await asyncio.gather(*(self._begin(worker) for worker in self.workers))
        self.armed.workers = self.workers
        front = stack.enter_context(
            services.nginx(self.folder, [worker.port for worker in self.workers])
        )
        for worker in self.workers:
            stack.callback(asyncio.create_task(self._keep(worker)).cancel)
        for going_on in (self.armed.listen(), self._tell()):
            stack.callback(asyncio.create_task(going_on).cancel)
        self._began, options = time.monotonic(), self.options
        await self._checker.start(
            front, self.workers, seed=options.seed, seconds=options.timeout,
            clients=options.clients, lease=options.lease, database=options.database,
            layer=options.layer, only=TRIED.get(options.mutant, ()),
        )  # fmt: skip

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(TELLING)
            seconds, tally = time.monotonic() - self._began, self.tally
            kills, stops = tally.kills, tally.stopped.total()
            told = f"{tally.total} faults: {kills} kills, {stops} SIGTERM, {dict(tally.outages)}"
            print(f"{seconds:6.0f} s  {told}", flush=True)

    @property
    def _has_clocks(self) -> bool:
        return bool(self.options.every)

    def _migrations(self) -> list[tuple[str, dict[str, Any]]]:
        aliases = ("default", "mcp") if self.options.database == "sqlite" else ("default",)
        return [("migrate", {"database": alias, "verbosity": 0}) for alias in aliases]

    def _make_workers(self) -> None:
        for number in range(self.options.workers):
            is_wrong = self._has_clocks and number == 0
            worker = Worker(number, self.folder, self._wrong if is_wrong else self._plain)
            if is_wrong:
                worker.clock = self.folder / f"{worker.name}.clock"
                worker.clock.write_text("+0\n")
            self.workers.append(worker)

    async def _watch(self, striking: asyncio.Task[None]) -> dict[str, Any]:
        """Wait for the checker's report."""
        assert self._checker.told is not None
        ends = [striking, self._checker.told]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if striking.done():
            striking.result()
            await self._all_up()
            await self._checker.hear_the_last()
        found, wrong = await self._checker.finish()
        striking.cancel()
        if wrong:
            self.tally.wrong.append(wrong)
        return found

    async def _end(self) -> None:
        self._is_ending = True
        for worker in self.workers:
            worker.send(9)
        for program in (self._plain, self._wrong, self._proxy):
            await program.end()
        self._checker.kill()

    # Workers.

    async def _begin(self, worker: Worker) -> None:
        kinds = {**SERVERS, "granian": 0} if worker.clock else SERVERS
        (kind,) = self._chance.choices(list(kinds), list(kinds.values()))
        await worker.start(kind)
        self.armed.remind(worker)

    async def _keep(self, worker: Worker) -> None:
        """Restart the worker whenever it has ended."""
        while worker.life is not None:
            code = await asyncio.shield(worker.life)
            worker.is_up = False
            self._checker.hear_of(worker, "down")
            if self._is_ending:
                return
            self.armed.hear()
            if worker.name not in self.armed.expected:
                self.tally.wrong.append(f"{worker.name} ({worker.kind}) ended by itself: {code}")
            self.armed.expected.discard(worker.name)
            self.tally.injected("b")
            self.note(f"{worker.name} ({worker.kind}) ended: {code}")
            worker.send(9)  # its remaining processes
            await asyncio.sleep(self._chance.uniform(0, 0.3))
            await self._begin(worker)
            self._checker.hear_of(worker, "up")
            self.tally.starts.append(worker.starts[-1])

    async def _all_up(self) -> None:
        for _ in range(round(3 * SOON / TURN)):
            if all(worker.is_up for worker in self.workers):
                break
            await asyncio.sleep(TURN)

    async def living(self, number: int) -> Worker | None:
        """Wait for a running worker that was not told to end, and return it."""
        until = time.monotonic() + SOON
        while time.monotonic() < until:
            if found := [
                w for w in self.workers if w.is_free and w.name not in self.armed.expected
            ]:
                return found[number % len(found)]
            await asyncio.sleep(TURN)
        return None

    def expect(self, worker: Worker, why: str) -> None:
        self.note(f"{worker.name} ({worker.kind}): {why}")
        self.armed.expected.add(worker.name)

    # Faults.

    async def _strike_on(self) -> None:
        options, striking = self.options, set[asyncio.Task[None]]()
        if not options.every:
            await asyncio.sleep(options.seconds)
            return
        weights = schedule.kinds(options.database, options.layer)
        if options.mutant:
            weights = {kind: weights[kind] for kind in DEATHS}
        for fault in schedule.plan(
            options.seed, weights, workers=options.workers, every=options.every
        ):
            await asyncio.sleep(fault.wait)
            if self._is_over:
                break
            if fault.number % schedule.OFTEN == 0:
                await self._rest(striking)
            if len(striking) >= AT_ONCE:
                await asyncio.wait(striking, return_when=asyncio.FIRST_COMPLETED)
            task = asyncio.create_task(self._strike(fault))
            striking.add(task)
            task.add_done_callback(striking.discard)
        if not options.mutant:
            await self._strike_what_was_missed()
        self.armed.give_up()
        if striking:
            await asyncio.wait(striking)

    async def _rest(self, striking: set[asyncio.Task[None]]) -> None:
        self.armed.give_up()
        if striking:
            await asyncio.wait(striking)
        await asyncio.sleep(schedule.REST * self.options.lease)

    async def _strike_what_was_missed(self) -> None:
        """Inject every class of fault at least once, also on a slow machine."""
        until = time.monotonic() + MORE * self.options.seconds
        here = schedule.kinds(self.options.database, self.options.layer)
        for attempt in range(ATTEMPTS):
            if time.monotonic() > until:
                break
            missed = [
                self._last(kind, at, attempt)
                for letter, (kind, at) in LAST.items()
                if kind in here and not self.tally.has_seen(letter)
            ]
            await asyncio.gather(*map(self._strike, missed))

    def _last(self, kind: str, at: str, attempt: int) -> Fault:
        self._late += 1
        seconds = schedule.PAUSES.get(kind, (0, 0))[1]
        return Fault(LATE + self._late, 0.0, kind, at, attempt, seconds, attempt)

    @property
    def _is_over(self) -> bool:
        if not self.options.faults:
            return time.monotonic() - self._began >= self.options.seconds
        tally = self.tally
        seen = {
            "kills": tally.named, "database": tally.outages["database"],
            "redis": tally.outages["redis"], "stops": tally.stopped.total(),
            "takeovers": tally.seen["takeover"], "outlived": tally.outlived,
        }  # fmt: skip
        share = min(1.0, self.options.faults / 2000)
        least = {k: v for k, v in LEAST.items() if k != "redis" or self.redis is not None}
        enough = all(seen[name] >= share * count for name, count in least.items())
        return enough and tally.has_points(POINTS) and tally.total >= self.options.faults

    async def _strike(self, fault: Fault) -> None:
        self.note(str(fault))
        self._striking[fault.id] = fault
        self._checker.hear(fault, "begin")
        try:
            await faults.KINDS[fault.kind](self, fault)
        except Exception as error:
            self.tally.wrong.append(f"{fault} could not be done: {error!r}")
        finally:
            self._checker.hear(fault, "end")

    def _was_struck(self, id: str, name: str) -> None:
        worker = next(one for one in self.workers if one.name == name)
        if fault := self._striking.get(id):
            self.has_struck(fault, worker)

    def _was_paused(self, name: str, began: float, ended: float) -> None:
        """Record that a worker lost or gave up its lease because its heartbeat paused."""
        self.note(f"{name}: no heartbeat for {ended - began:.1f} s")
        worker = next(one for one in self.workers if one.name == name)
        self._checker.hear_of_pause(worker, began, ended)

    def has_struck(self, fault: Fault, worker: Worker | None = None, at: str = "struck") -> None:
        """Report an injected fault to the checker. Without ``worker`` it affects all."""
        self._checker.hear(fault, at, worker)

    async def prune(self) -> int:
        """Run ``mcp_prune`` in its own process and return the exit code."""
        log = str(self.folder / "prune.log")
        _, life = await self._plain.begin("prune", kind="prune", log=log)
        return await life

    def alone(self, what: str) -> asyncio.Lock:
        return self.armed.alone(what)

    async def wait_until_hit(
        self, fault: Fault, act: str, patience: float, seconds: float = 0.0
    ) -> int | None:
        """Return the process that has reached the point, or ``None`` after the timeout."""
        if self._is_over and fault.number < LATE:
            return None
        return await self.armed.wait_until_hit(fault, act, patience, seconds)

    async def passed(self, fault: Fault, at: str, patience: float, but: int = 0) -> bool:
        """Return whether a process passes a point in time; no fault is injected there."""
        looked = fault._replace(at=at, number=fault.number + LOOKS)
        return await self.armed.wait_until_hit(looked, "note", patience, 0.0, but) is not None

    async def cut(self, fault: Fault, *, happens: bool, patience: float) -> bool:
        """Return whether a connection was cut at a commit."""
        self._proxy.tell(cut=fault.id, happens=happens)
        return await self.armed.outcome(fault, patience) is not None

    def _was_cut(self, told: dict[str, Any]) -> None:
        self.note(f"cut: {told}")
        if fault := self._striking.get(told["cut"]):
            self.has_struck(fault)
        self.armed.settle(told["cut"], 1)

    # Logs of workers.

    def words(self) -> dict[Path, int]:
        """Return the present lengths of the workers' logs."""
        return {w.log: w.log.stat().st_size for w in self.workers if w.log.exists()}

    def has_said(self, what: re.Pattern[str], before: dict[Path, int]) -> bool:
        """Return whether a worker has logged the pattern since."""
        return any(
            what.search(log.read_bytes()[length:].decode(errors="replace"))
            for log, length in before.items()
        )
