"""
A contender on a wire with a tool, measured in rounds in turn with the others.

The rule: every server is started before the first round and stopped after the last; a wrong answer
ends a lane, and is told.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from benchmarks.contenders import Contender
from benchmarks.load import load
from benchmarks.places import Missing
from benchmarks.running import Running, pinned
from benchmarks.wires import JSON, WIRES, Wrong

# Each load starts at a million of its own: within a session no id comes twice.
NUMBERS = itertools.count(1_000_000, 1_000_000)
COLUMNS = ("calls/s", "p50 ms", "p99 ms", "CPU us", "core %", "RSS MiB")
HEAD = " " * 24 + "".join(f"{name:>9}" for name in COLUMNS)


@dataclass
class Lane:
    """Who is called, on which wire, with what; and what each round gave."""

    contender: Contender
    started: Running
    wire: str
    tool: str
    arguments: JSON
    rates: list[float] = field(default_factory=list)
    p50: list[float] = field(default_factory=list)
    p99: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)  # microseconds of the server's for a call
    shares: list[float] = field(default_factory=list)  # of its core that the server was given
    memory: int = 0
    wrong: str = ""

    def measure(self, seconds: float) -> None:
        try:
            self.round(seconds)
        except (OSError, Wrong, RuntimeError) as problem:
            self.wrong = f"{type(problem).__name__}: {problem}\n{self.started.words()}"

    def round(self, seconds: float) -> None:
        address = self.started.address
        wire = WIRES[self.wire](address, self.tool, self.arguments)
        load(address, wire, seconds / 4, start=next(NUMBERS))
        before = self.started.cpu()
        came = load(address, wire, seconds, start=next(NUMBERS))
        spent = self.started.cpu() - before
        self.cpu.append(spent / len(came.times) * 1e6)
        self.shares.append(spent / came.seconds)
        self.rates.append(came.rate)
        self.p50.append(came.percentile(50))
        self.p99.append(came.percentile(99))
        self.memory = self.started.memory()

    def __str__(self) -> str:
        if self.wrong:
            return f"{self.contender.title:<24} WRONG: {self.wrong}"
        rate, p50, p99, cpu = map(statistics.median, (self.rates, self.p50, self.p99, self.cpu))
        figures = f"{rate:>8.0f} {p50:>8.2f} {p99:>8.2f} {cpu:>8.0f} {self.share * 100:>8.0f}"
        told = f"{self.contender.title:<24} {figures} {self.memory / 2**20:>8.1f}"
        return f"{told}  {self.contender.about}".rstrip()

    @property
    def share(self) -> float:
        return statistics.median(self.shares)


def times(ours: Lane, other: Lane) -> float:
    """How many times the other's throughput ours is: the median over the rounds."""
    return statistics.median(a / b for a, b in zip(ours.rates, other.rates, strict=True))


def thrift(ours: Lane, other: Lane) -> float:
    """The same for calls per second of the processor's time, which other work disturbs less."""
    return statistics.median(b / a for a, b in zip(ours.cpu, other.cpu, strict=True))


def race(
    wanted: Iterable[Contender], tools: dict[str, JSON], server: str, rounds: int, seconds: float
) -> list[Lane]:
    """The lanes of all who can run here, after so many rounds."""
    with ExitStack() as running:
        lanes = list(start(wanted, tools, server, running))
        with pinned():
            take_turns(lanes, rounds, seconds)
        return lanes


def start(
    wanted: Iterable[Contender], tools: dict[str, JSON], server: str, running: ExitStack
) -> Iterator[Lane]:
    for contender in wanted:
        try:
            started = running.enter_context(contender.running(server))
        except Missing as problem:
            print(f"{contender.name} is left out: {problem}", flush=True)
            continue
        for wire, tool in itertools.product(contender.wires, contender.tools):
            yield Lane(contender, started, wire, tool, tools[tool])


def take_turns(lanes: Sequence[Lane], rounds: int, seconds: float) -> None:
    """Those who are compared follow each other: all of a wire and a tool, then the next."""
    heats = dict.fromkeys((lane.wire, lane.tool) for lane in lanes)
    for heat, _ in itertools.product(heats, range(rounds)):
        for lane in lanes:
            if (lane.wire, lane.tool) == heat and not lane.wrong:
                lane.measure(seconds)
