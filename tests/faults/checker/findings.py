"""
Counts and deviations, printed as one JSON object at the end; the first fifty of a kind in full.
"""

from __future__ import annotations

import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Container
from statistics import median
from typing import Any

KINDS = ("lost", "duplicated", "disordered", "hanging", "wrong")
DESCRIBED = 50
# Of so many calls of a tool, such a share must succeed; and of one that is run again.
ENOUGH, SHARE, AGAIN_SHARE = 20, 0.25, 0.5
SOME, SOON = 5, 5.0  # of so many takeovers the median must be so many leases, at most


class Findings:
    """The counts and deviations of one campaign."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.counts: Counter[str] = Counter()  # events, calls, resumes, and what else there is
        self.excused: Counter[str] = Counter()  # outcomes that are honest, but no success
        self.found: dict[str, list[str]] = {kind: [] for kind in KINDS}
        self.totals: Counter[str] = Counter()
        self.classes: dict[str, Counter[str]] = defaultdict(Counter)
        self.outcomes: Counter[str] = Counter()
        self.quiet: Counter[str] = Counter()  # outcomes where nothing struck
        self.shares: dict[str, Counter[str]] = defaultdict(Counter)  # of each tool
        self.takeovers: list[float] = []  # seconds from a death to what its client was told
        self.recoveries: list[float] = []  # seconds from the end of an outage to a response
        self.effects: dict[str, tuple[int, int, str]] = {}  # how often each may have happened
        # What is wrong unless a worker tells later that it had no heartbeat: why it is, and whether
        # it was told meanwhile.
        self.doubtful: list[tuple[str, Callable[[], bool]]] = []
        self.reported_effects: dict[
            str, tuple[str, int]
        ] = {}  # by whom: what is done when it is, how often
        self._began = time.monotonic()

    def add(self, kind: str, what: str) -> None:
        """Report a deviation."""
        self.totals[kind] += 1
        moment = time.monotonic() - self._began
        line = f"{moment:.1f}s {what}"
        if len(self.found[kind]) < DESCRIBED:
            self.found[kind].append(line)
            print(f"{kind.upper()}: {line}", file=sys.stderr, flush=True)

    def count_fault(self, name: str, *, injected: int = 0, observed: int = 0) -> None:
        """Count that a class of faults was injected, or that its effect was observed."""
        self.classes[name]["injected"] += injected
        self.classes[name]["observed"] += observed

    def count_outcome(self, tool: str, kind: str, *, is_quiet: bool) -> None:
        """Count the outcome of a call that was not cancelled."""
        self.shares[tool]["of"] += 1
        self.shares[tool]["success"] += kind == "success"
        if is_quiet:
            self.quiet[f"{tool}: {kind}"] += 1

    def expect(self, effect: str, least: int, most: int, why: str) -> None:
        self.effects[effect] = (least, most, why)

    def record_reported_effect(self, client: str, effect: str, times: int) -> None:
        """Record how often a client was told of an effect. It must have happened so often."""
        self.reported_effects[client] = (effect, times)

    @property
    def checked_effects(self) -> set[str]:
        """The effects whose counts are needed for the comparison."""
        return self.effects.keys() | {effect for effect, _ in self.reported_effects.values()}

    def compare_effects(self, happened: dict[str, int]) -> None:
        """Compare the effects of tools with what clients were told about them."""
        for what, is_excused in self.doubtful:
            if not is_excused():
                self.add("wrong", what)
        self.doubtful.clear()
        for client, (effect, times) in self.reported_effects.items():
            if times > (count := happened.get(effect, 0)):
                self.add(
                    "duplicated", f"{client}: told {times} times of {effect}, done {count} times"
                )
        for effect, (least, most, why) in self.effects.items():
            count = happened.get(effect, 0)
            self.counts["effects"] += 1
            if not least <= count <= most:
                kind = "lost" if count < least else "duplicated" if count > 1 else "wrong"
                allowed = str(least) if least == most else f"{least} to {most}"
                self.add(kind, f"effect {effect}: {count}, not {allowed}, after {why}")

    def check_rates(self, lease: float, again: Container[str] = ()) -> None:
        """Report tools that succeed too rarely, and takeovers that take too long."""
        for tool, share in self.shares.items():
            least = AGAIN_SHARE if tool in again else SHARE
            if share["of"] >= ENOUGH and share["success"] < least * share["of"]:
                self.add("wrong", f"{tool}: {share['success']} successes of {share['of']}")
        if len(self.takeovers) >= SOME and (middle := median(self.takeovers)) > SOON * lease:
            what = f"half of the takeovers took {middle:.1f} s, with a lease of {lease} s"
            self.add("wrong", what)

    @property
    def is_clean(self) -> bool:
        return not any(self.totals.values())

    def report(self) -> dict[str, Any]:
        classes = {
            name: {"injected": count["injected"], "observed": count["observed"]}
            for name, count in sorted(self.classes.items())
        }
        return {
            "seed": self.seed,
            **{name: self.counts[name] for name in ("events", "calls", "resumes", "effects")},
            **self.found,
            **{f"{kind}_count": self.totals[kind] for kind in KINDS},
            "classes": classes,
            "outcomes": dict(self.outcomes),
            "excused": dict(self.excused),
            "quiet": dict(self.quiet),
            "shares": {tool: [n["success"], n["of"]] for tool, n in sorted(self.shares.items())},
            "takeovers": timed(self.takeovers),
            "recoveries": timed(self.recoveries),
            "counts": dict(self.counts),
        }


def timed(seconds: list[float]) -> dict[str, float]:
    """Return the count, median and maximum of durations. Empty if there are none."""
    if not seconds:
        return {}
    most, middle = max(seconds), median(seconds)
    return {"count": len(seconds), "median": round(middle, 1), "most": round(most, 1)}
