"""
Measure contenders in turn: each variant and tool of one, then those of the next, for some rounds.

Every server starts before the first round and stops after the last. A wrong response ends the
result of that contender, and is reported.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from benchmarks.contenders import Contender
from benchmarks.environments import NotInstallable
from benchmarks.load import load
from benchmarks.messages import JSON, TEMPLATES, WrongResponse
from benchmarks.servers import RunningServer, pinned

# Each load has ids from another million on, because a session accepts no id twice.
NUMBERS = itertools.count(1_000_000, 1_000_000)
WARM = 32  # calls at least before each round
COLUMNS = ("calls/s", "p50 ms", "p99 ms", "CPU us", "core %", "RSS MiB")
HEAD = " " * 24 + "".join(f"{name:>9}" for name in COLUMNS)


@dataclass
class Result:
    """A tool of a contender called in one variant, and the figures of each round."""

    contender: Contender
    started: RunningServer
    variant: str
    tool: str
    arguments: JSON
    rates: list[float] = field(default_factory=list)
    p50: list[float] = field(default_factory=list)
    p99: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)  # microseconds of the server for a call
    shares: list[float] = field(default_factory=list)  # of its core that the server used
    memory: int = 0
    wrong: str = ""

    def measure(self, seconds: float) -> None:
        try:
            self.round(seconds)
        except (OSError, WrongResponse, RuntimeError) as problem:
            self.wrong = f"{type(problem).__name__}: {problem}\n{self.started.log_tail()}"

    def round(self, seconds: float) -> None:
        address = self.started.address
        template = TEMPLATES[self.variant](address, self.tool, self.arguments)
        load(address, template, seconds / 4, start=next(NUMBERS), fewest=WARM)
        before = self.started.cpu()
        measured = load(address, template, seconds, start=next(NUMBERS))
        spent = self.started.cpu() - before
        self.cpu.append(spent / len(measured.times) * 1e6)
        self.shares.append(spent / measured.seconds)
        self.rates.append(measured.rate)
        self.p50.append(measured.percentile(50))
        self.p99.append(measured.percentile(99))
        self.memory = self.started.memory()

    def __str__(self) -> str:
        if self.wrong:
            return f"{self.contender.title:<24} WRONG: {self.wrong}"
        rate, p50, p99, cpu = map(statistics.median, (self.rates, self.p50, self.p99, self.cpu))
        figures = f"{rate:>8.0f} {p50:>8.2f} {p99:>8.2f} {cpu:>8.0f} {self.share * 100:>8.0f}"
        line = f"{self.contender.title:<24} {figures} {self.memory / 2**20:>8.1f}"
        return f"{line}  {self.contender.about}".rstrip()

    @property
    def share(self) -> float:
        return statistics.median(self.shares)


def rate_ratio(ours: Result, other: Result) -> float:
    """Return our throughput divided by the other's: the median over the rounds."""
    return statistics.median(a / b for a, b in zip(ours.rates, other.rates, strict=True))


def cpu_ratio(ours: Result, other: Result) -> float:
    """Return the same for calls per second of processor time, which other work disturbs less."""
    return statistics.median(b / a for a, b in zip(ours.cpu, other.cpu, strict=True))


def measure_in_turns(
    wanted: Iterable[Contender], tools: dict[str, JSON], server: str, rounds: int, seconds: float
) -> list[Result]:
    """Measure all contenders that can run here, in turn, for that many rounds."""
    with ExitStack() as running:
        results = list(start(wanted, tools, server, running))
        with pinned():
            take_turns(results, rounds, seconds)
        return results


def start(
    wanted: Iterable[Contender], tools: dict[str, JSON], server: str, running: ExitStack
) -> Iterator[Result]:
    for contender in wanted:
        try:
            started = running.enter_context(contender.running(server))
        except NotInstallable as problem:
            print(f"{contender.name} is left out: {problem}", flush=True)
            continue
        for variant, tool in itertools.product(contender.variants, contender.tools):
            yield Result(contender, started, variant, tool, tools[tool])


def take_turns(results: Sequence[Result], rounds: int, seconds: float) -> None:
    """Measure what is compared one after the other: all of a variant and tool, then the next."""
    groups = dict.fromkeys((result.variant, result.tool) for result in results)
    for group, _ in itertools.product(groups, range(rounds)):
        for result in results:
            if (result.variant, result.tool) == group and not result.wrong:
                result.measure(seconds)
