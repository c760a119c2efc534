"""`python -m tests.faults.checker`: run the clients, check what they receive, and print a report.

At the end of the time or on SIGTERM it starts no more calls and waits for the open ones. Standard
output contains only the report.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial

from . import control
from .calls import AGAIN
from .client import Address
from .context import CampaignContext
from .faults import Faults
from .findings import Findings
from .scenarios import SCENARIOS, Scenario
from .sessions import Ended
from .virtual_client import VirtualClient

ROOM, RESTING = 8.0, 15.0  # seconds without which no heavy one begins, and between two
TRYING, FIRST = 25.0, 1_000  # seconds for that, and the number of the first who does it
CALM, CALMING = 10.0, 60.0  # seconds since the last word of a fault, and for how long at most
FEW, AFTER = 12, 2_000  # clients that do something when nothing strikes, and the first's number
PARTS = 4  # each of them does so much of it
QUIET = (
    "each", "ask", "survey", "inquire", "steps", "recite", "cancel", "cancel late",
    "news", "saved", "listen", "older", "doubted", "stateless", "rounds", "fail", "deleted",
    "twins", "batch",
)  # fmt: skip
LATE = 150.0  # seconds after the end in which everything must have ended
SHORT, PLAIN = 12.0, ["recite", "act"]  # seconds in which nothing but these is tried
STATUSES = [f"status {status}" for status in (400, 401, 404, 500, 502, 503, 504)]
TELLING = 5.0  # seconds between two lines of progress


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.checker", description=__doc__)
    parser.add_argument("--front", required=True, help="URL of the endpoint, through what balances")
    parser.add_argument("--worker", action="append", required=True, help="URL of one worker's")
    parser.add_argument("--skewed", action="append", default=[], help="those without the time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--lease", type=float, default=2)
    parser.add_argument("--database", default="sqlite")
    parser.add_argument("--layer", default="none")
    parser.add_argument("--only", action="append", help="scenarios, by name")
    return parser.parse_args()


def context_of(given: argparse.Namespace) -> CampaignContext:
    front, workers = Address.of(given.front), [Address.of(url) for url in given.worker]
    return CampaignContext(
        front, workers, given.seed, given.lease, given.database, given.layer, given.seconds,
        Findings(given.seed), skewed=[Address.of(url) for url in given.skewed],
        faults=Faults(given.database),
    )  # fmt: skip


class Campaign:
    """Runs all virtual clients, each of which tries scenarios at random."""

    def __init__(self, context: CampaignContext, clients: int, only: list[str] | None) -> None:
        self.context = context
        self.people = [VirtualClient(context, number) for number in range(clients)]
        self.scenarios = {n: s for n, s in SCENARIOS.items() if not only or n in only}
        self.busy: Counter[str] = Counter()
        ranks = sorted({one.heavy for one in self.scenarios.values() if one.heavy})
        self.laborers = {rank: VirtualClient(context, clients + rank) for rank in ranks}
        self.classes = sorted({c for one in self.scenarios.values() for c in one.classes.split()})
        names = [name for name, one in self.scenarios.items() if one.weight]
        self.first = names * 2  # each is tried twice before chance decides
        context.rng("first").shuffle(self.first)

    async def run(self) -> None:
        faults = self.context.faults
        aside = [faults.read_reports(), faults.watch_for_stalls(), self._tell(), self._stop()]
        tasks = [asyncio.create_task(work) for work in aside]
        living = asyncio.create_task(self._everybody())
        late = asyncio.create_task(self._late())
        await asyncio.wait({living, late}, return_when=asyncio.FIRST_COMPLETED)
        if not living.done():
            self._report_unfinished()
        for task in (living, late, *tasks):
            task.cancel()
        await asyncio.gather(living, late, *tasks, return_exceptions=True)
        await self._settle()

    def _report_unfinished(self) -> None:
        """Report the scenarios that are still running long after the last one was started."""
        open_still = {name: count for name, count in self.busy.items() if count}
        self.context.findings.add("hanging", f"{LATE} s after the end: {open_still}")
        for state in self.context.open.values():
            self.context.findings.add("hanging", state())
        for task in asyncio.all_tasks():
            task.print_stack(limit=8, file=sys.stderr)

    async def _everybody(self) -> None:
        lives = [self._life(person, self._live) for person in self.people]
        toils = [
            self._life(person, partial(self._toil, rank)) for rank, person in self.laborers.items()
        ]
        await asyncio.gather(*toils, *lives, self._last())
        if self.context.seconds >= SHORT:
            await self._quiet()

    async def _quiet(self) -> None:
        """Run scenarios after the last fault. No deviation is excused here."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.context.faults.wait_until_quiet(CALM), CALMING)
        self.context.is_quiet = True
        people = [VirtualClient(self.context, AFTER + number) for number in range(FEW)]
        names = [name for name in QUIET if name in self.scenarios]
        shares = [partial(self._each_of, names[number % PARTS :: PARTS]) for number in range(FEW)]
        await asyncio.gather(*map(self._life, people, shares))

    async def _each_of(self, names: list[str], person: VirtualClient) -> None:
        for name in person.rng.sample(names, len(names)):
            await self._counted(name, person)

    async def _last(self) -> None:
        """At the end, try scenarios of the fault classes that were not observed by chance."""
        await self.context.stopping.wait()
        lacking = [
            name for name in self.classes if not self.context.findings.classes[name]["observed"]
        ]
        end = time.monotonic() + TRYING
        people = [VirtualClient(self.context, FIRST + number) for number in range(len(lacking))]
        tries = [partial(self._try, name, end) for name in lacking]
        await asyncio.gather(*map(self._life, people, tries))

    async def _try(self, lacking: str, end: float, person: VirtualClient) -> None:
        names = [name for name, one in self.scenarios.items() if lacking in one.classes.split()]
        for name in itertools.cycle(names):
            if time.monotonic() > end or self.context.findings.classes[lacking]["observed"]:
                return
            await self._counted(name, person)

    async def _stop(self) -> None:
        await self._wait(self.context.seconds)
        self.context.stopping.set()

    async def _late(self) -> None:
        await self.context.stopping.wait()
        await asyncio.sleep(LATE)

    async def _life(
        self, person: VirtualClient, live: Callable[[VirtualClient], Awaitable[None]]
    ) -> None:
        try:
            await person.arrive()
            await live(person)
            await person.leave()
        except control.Unreachable as error:
            self.context.findings.add("hanging", f"client {person.number}: {error}")
        except Exception as error:
            self.context.findings.add("wrong", f"client {person.number}: {error!r}")

    async def _live(self, person: VirtualClient) -> None:
        while not self.context.stopping.is_set():
            await self._one(person)

    async def _one(self, person: VirtualClient) -> None:
        await self._counted(self.first.pop() if self.first else self._drawn(person), person)

    async def _counted(self, name: str, person: VirtualClient) -> None:
        self.busy[name] += 1
        try:
            await self._tried(name, self.scenarios[name], person)
            await person.tidy()
        finally:
            self.busy[name] -= 1

    async def _toil(self, rank: int, person: VirtualClient) -> None:
        """Run the heavy scenarios of a rank one after another, while there is time."""
        heavy = [name for name, one in self.scenarios.items() if one.heavy == rank]
        for number, name in enumerate(itertools.cycle(heavy)):
            if number >= len(heavy):
                await self._wait(RESTING)
            if self.context.stopping.is_set() or self.context.seconds_left < ROOM:
                break
            await self._counted(name, person)

    async def _wait(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.context.stopping.wait()

    async def _tried(self, name: str, scenario: Scenario, person: VirtualClient) -> None:
        try:
            await scenario.run(person)
        except Ended:
            self.context.findings.counts[f"{name} ended early"] += 1
        except control.Unreachable:
            raise
        except Exception as error:
            where = traceback.format_exc().strip().splitlines()[-3:]
            self.context.findings.add(
                "wrong", f"{name} of client {person.number}: {error!r} {where}"
            )

    def _drawn(self, person: VirtualClient) -> str:
        names = [name for name, one in self.scenarios.items() if one.weight]
        weights = [self.scenarios[name].weight for name in names]
        return person.rng.choices(names, weights)[0]

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(TELLING)
            findings, now = self.context.findings, time.monotonic() - self.context.began
            names = ("events", "calls", "resumes", "broken", *STATUSES)
            counts = {name: findings.counts[name] for name in names if findings.counts[name]}
            busy = {name: count for name, count in self.busy.items() if count}
            print(
                f"{now:.0f}s {counts} {dict(findings.totals)} {busy}", file=sys.stderr, flush=True
            )

    async def _settle(self) -> None:
        findings = self.context.findings
        try:
            happened = await control.effects(self.context, sorted(findings.checked_effects))
        except control.Unreachable as error:
            findings.add("hanging", f"effects: {error}")
        else:
            findings.compare_effects(happened)
        findings.check_rates(self.context.lease, AGAIN)
        findings.counts["late"] = self.context.faults.counts["late"]


async def main(given: argparse.Namespace) -> int:
    context = context_of(given)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, context.stopping.set)
    only = given.only or (PLAIN if given.seconds < SHORT else None)
    await Campaign(context, given.clients, only).run()
    print(json.dumps(context.findings.report()), flush=True)
    return 0 if context.findings.is_clean else 1


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main(arguments())))
