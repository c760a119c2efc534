"""The report of a campaign, and whether it passed.

A campaign fails if a class of fault was never observed, if anything was lost, duplicated, out of
order or hanging, or if a worker logged an error that no fault explains. Classes that cannot occur
here are listed with the reason.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CLASSES = {
    "a": "stored between a snapshot and going live",
    "b": "the writer of a stream moved",
    "c": "cursor of a trimmed stream",
    "d": "unknown id",
    "e": "events written across a step back of the clock",
    "f": "outcome stored, worker died before writing it",
    "g": "listens again after reconnecting",
    "h": "a commit held back, others write",
    "i": "ids of one session used in another",
    "j": "answer to another worker",
    "k": "kill -9 at a step of a call",
    "l": "two connections resume one stream",
    "m": "duplicate, late answer, answer after cancel",
    "n": "cancel races completion, cancel without a row",
    "o": "database gone and back, commit unknown",
    "p": "the wake-up service gone and back",
    "q": "clock wrong, and steps",
    "r": "one byte a second",
    "s": "a burst of 10,000",
    "t": "session deleted while streaming",
    "u": "token expired or revoked mid-stream",
    "v": "SIGTERM under load",
    "w": "an error as the final event",
    "x": "two standalone GETs",
    "y": "10 s of silence in a tool",
    "z": "a pool of stuck tools",
    "orm": "a saved row told by another worker",
    "listen": "a saved row told to a listen",
    "sse": "HTTP+SSE gone on with by an event's id",
}
SUMS = ("lost", "duplicated", "disordered", "hanging", "wrong")


@dataclass
class Tally:
    """The counts of injected and observed faults; the checker adds those of clients."""

    counts: dict[str, Counter[str]] = field(default_factory=dict)
    points: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    outages: Counter[str] = field(default_factory=Counter)
    stopped: Counter[str] = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)
    suspended: Counter[str] = field(default_factory=Counter)  # by where
    outlived: int = 0  # of these: others had taken its calls, and it saw that when it went on
    pauses: list[float] = field(default_factory=list)  # seconds without heartbeats of a worker
    starts: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def injected(self, letter: str) -> None:
        self.counts.setdefault(letter, Counter())["injected"] += 1

    def observed(self, letter: str) -> None:
        self.counts.setdefault(letter, Counter())["observed"] += 1

    def hits(self, letter: str) -> int:
        return self.counts.get(letter, Counter())["observed"]

    def has_seen(self, letter: str) -> bool:
        return bool(self.hits(letter))

    @property
    def kills(self) -> int:
        return sum(self.points.values())

    @property
    def named(self) -> int:
        """The number of kills at named points."""
        return self.kills - self.points["anywhere"]

    def has_points(self, count: int) -> bool:
        """Return whether workers were killed at that many named points."""
        return len(self.points.keys() - {"anywhere"}) >= count

    @property
    def total(self) -> int:
        """The number of faults that took effect, of those injected here."""
        outages = self.outages.total()
        held, clocks = self.hits("h"), self.hits("q")
        stood = self.suspended.total()
        return self.kills + self.stopped.total() + outages + held + clocks + stood

    def take(self, told: dict[str, Any]) -> None:
        """Add the counts of the checker."""
        for letter, counts in told.get("classes", {}).items():
            mine = self.counts.setdefault(letter, Counter())
            for what in ("injected", "observed"):
                mine[what] += counts.get(what, 0)


def unhit(tally: Tally, lacking: dict[str, str]) -> list[str]:
    """Return the classes that were not observed."""
    return [letter for letter in CLASSES if letter not in lacking and not tally.has_seen(letter)]


def failures(
    tally: Tally, told: dict[str, Any], lacking: dict[str, str], *, whole: bool = True
) -> list[str]:
    """Return the reasons for failure. ``whole``: every class must have been observed."""
    found = [f"{name}: {count}" for name in SUMS if (count := told.get(f"{name}_count", 0))]
    if not told.get("events"):
        found.append("the checker saw no event")
    found += tally.wrong
    if whole and tally.suspended and not tally.outlived:
        found.append("no worker that stood still was ever taken for dead")
    if whole:
        found += [f"never struck: {one} ({CLASSES[one]})" for one in unhit(tally, lacking)]
    return found


# The logs of workers.

RECORD = re.compile(r"^(?:DEBUG|INFO|WARNING|ERROR|CRITICAL):? |^Traceback |^Exception ", re.M)
BAD = re.compile(r"^(?:ERROR|CRITICAL|Traceback|Exception )")
TRACED = re.compile(r"^Traceback .*\n(?:[ \t].*\n)*", re.M)  # up to the exception itself
# Errors that faults explain: the database or the channel layer is down for a while.
EXPLAINED = (
    re.compile(r"(?:Operational|Interface)Error.*(?:locked|connect|server|terminat|starting up)"),
    re.compile(r"Database cannot be reached: database=\w+ "),
    re.compile(r"redis\.exceptions|ConnectionRefusedError|Connection reset by peer"),
    re.compile(r"Lease lost"),
    # Raised by Django if a client disconnects before its request was read.
    re.compile(r"django\.core\.exceptions\.RequestAborted\s*\Z"),
)


def records(text: str) -> Iterator[str]:
    """Iterate over the records of a log, each with its further lines."""
    starts = [
        found.start()
        for found in RECORD.finditer(text)
        # A traceback belongs to the entry before it, and so does its cause.
        if not found.start() or not found[0].startswith("Traceback")
    ]
    for at, end in zip(starts, [*starts[1:], len(text)], strict=False):
        yield text[at:end]


def unexplained(text: str) -> list[str]:
    """Return errors and tracebacks in a log that no fault explains."""
    bad = (one for one in records(text) if BAD.match(one) or TRACED.search(one))
    return [one for one in bad if not any(known.search(end(one)) for known in EXPLAINED)]


def end(record: str) -> str:
    """Return the last line of a record, or its last exception."""
    traces = list(TRACED.finditer(record))
    return record[traces[-1].end() :] if traces else record.strip().splitlines()[-1]


def worker_errors(logs: list[Path]) -> Counter[str]:
    """Count errors by their first and last line."""
    found: Counter[str] = Counter()
    for log in logs:
        for one in unexplained(log.read_text(errors="replace")):
            lines = one.strip().splitlines()
            found[f"{lines[0][:160]} ... {lines[-1][:200]}" if lines[1:] else lines[0][:200]] += 1
    return found


# Output.


def told(tally: Tally, checked: dict[str, Any], lacking: dict[str, str]) -> str:
    """Return the report as text."""
    return "\n".join([*_classes(tally, lacking), "", *_points(tally), "", *_sums(tally, checked)])


def _classes(tally: Tally, lacking: dict[str, str]) -> Iterator[str]:
    yield f"{'class':<50} {'injected':>9} {'observed':>9}"
    for letter, about in CLASSES.items():
        counts = tally.counts.get(letter, Counter())
        named = f"{letter}  {about}"
        if letter in lacking:
            yield f"{named:<50} not here: {lacking[letter]}"
        else:
            yield f"{named:<50} {counts['injected']:>9} {counts['observed']:>9}"


def _points(tally: Tally) -> Iterator[str]:
    yield f"kill -9: {tally.kills}, at {len(tally.points)} points"
    for point, count in sorted(tally.points.items()):
        yield f"  {point:<48} {count:>9}"
    if tally.missed:
        yield f"  not reached in time: {dict(tally.missed)}"
    ended = ", ".join(f"{kind} {count}" for kind, count in sorted(tally.stopped.items()))
    yield f"SIGTERM: {tally.stopped.total()} ({ended})"
    outages = ", ".join(f"{kind} {count}" for kind, count in sorted(tally.outages.items()))
    yield f"outages: {outages}"
    stood = ", ".join(f"{at or 'anywhere'} {n}" for at, n in sorted(tally.suspended.items()))
    yield f"suspended for longer than a lease: {tally.suspended.total()} ({stood})"
    yield f"  while others took their calls, which they then let go: {tally.outlived}"
    if tally.pauses:
        longest = f"at most {max(tally.pauses):.1f} s"
        yield f"heartbeats of a worker paused: {len(tally.pauses)} times, {longest}"
    yield f"takeovers seen: {tally.seen['takeover']}"
    if starts := sorted(tally.starts):
        middle, most = starts[len(starts) // 2], starts[-1]
        yield f"restarts: {len(starts)}, median {middle:.2f} s, at most {most:.2f} s"


def _sums(tally: Tally, checked: dict[str, Any]) -> Iterator[str]:
    for name in SUMS:
        for one in checked.get(name, [])[:20]:
            yield f"{name}: {one}"
    yield from _outcomes(checked)
    sums = ", ".join(f"{name} {checked.get(f'{name}_count', '?')}" for name in SUMS)
    done = ", ".join(f"{name} {checked.get(name)}" for name in ("calls", "resumes"))
    yield f"faults here: {tally.total}; {done}"
    yield f"the machine stood still: {checked.get('counts', {}).get('late', 0)} times"
    yield f"events checked: {checked.get('events')}; {sums}"


def _outcomes(checked: dict[str, Any]) -> Iterator[str]:
    """Iterate over the lines about outcomes of calls, excused failures, and takeover times."""
    for name, about in OUTCOMES.items():
        counts = sorted(checked.get(name, {}).items(), key=lambda one: -one[1])
        yield f"{about}: {', '.join(f'{what} {count}' for what, count in counts)}"
    shares = checked.get("shares", {}).items()
    yield f"successes: {', '.join(f'{tool} {good} of {all}' for tool, (good, all) in shares)}"
    if waits := checked.get("takeovers"):
        times = f"median {waits['median']} s, at most {waits['most']} s"
        yield f"from a death to the answer of another: {waits['count']} times, {times}"
    if waits := checked.get("recoveries"):
        times = f"median {waits['median']} s, at most {waits['most']} s"
        yield f"from the end of an outage to the answer: {waits['count']} times, {times}"


OUTCOMES = {"outcomes": "outcomes", "excused": "excused", "quiet": "while nothing strikes"}
