"""The schedule of a campaign: which faults are injected, where and when, as a function of the seed.

Every possible fault is injected once before any is repeated; after that they are drawn by weight.
The schedule does not depend on the machine.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

from .project.points import POINTS


class Fault(NamedTuple):
    """A scheduled fault: its kind, the pause before it, and its parameters."""

    number: int
    wait: float
    kind: str
    at: str = ""  # the point
    victim: int = 0
    seconds: float = 0.0
    choice: int = 0

    @property
    def id(self) -> str:
        return f"f{self.number}"

    def __str__(self) -> str:
        return " ".join(filter(None, (self.id, self.kind, self.at)))


# Of a thousand, so many.
WEIGHTS = {
    "kill-at": 500,
    "kill": 30,
    "stop": 230,
    "hold": 50,
    "suspend": 20,
    "database": 50,
    "commit": 50,
    "redis": 60,
    "clock": 40,
    "prune": 20,
}
PAUSES = {  # seconds, from and to, for which it lasts; to stand still: leases
    "hold": (0.3, 0.9),
    "suspend": (1.5, 2.0),
    "database": (1.5, 4.0),
    "redis": (1.0, 4.0),
}
# Pauses without faults: workers that are killed all the time never take over calls.
OFTEN, REST = 60, 1.6  # faults, and leases
HELD = ("events-inserted", "outcome-inserted", "stream-inserted")
# Points at which a worker is suspended; "" is anywhere.
SUSPENDED = ("", "tool-working", "first-written", "outcome-committed")
# Points within a transaction that holds locks. With SQLite all other workers would wait, too.
LOCKED = ("events-inserted", "outcome-updated", "answer-stored")
LACKING = {
    "commit": ("sqlite", "SQLite is no server: a commit has no wire on which its answer is lost."),
}
NO_WAKEUP_SERVICE = "This campaign has no wake-up service that can be stopped."


def why_not(kind: str, database: str, layer: str) -> str:
    """Return why a fault cannot be injected here, or an empty text."""
    if kind == "redis" and layer not in ("redis", "postgres"):
        return NO_WAKEUP_SERVICE
    lacking, reason = LACKING.get(kind, ("", ""))
    return reason if lacking == database else ""


def kinds(database: str, layer: str, *, clocks: bool = True) -> dict[str, int]:
    """Return the possible faults with their weights."""
    return {
        kind: weight
        for kind, weight in WEIGHTS.items()
        if not why_not(kind, database, layer) and (clocks or kind != "clock")
    }


def plan(seed: int, weights: dict[str, int], *, workers: int, every: float) -> Iterator[Fault]:
    """Iterate over faults without end."""
    chance = random.Random(f"faults {seed}")
    number = 0
    for kind, at in _all_once(chance, weights):
        number += 1
        yield _fault(chance, number, kind, at, workers, every)
    while True:
        number += 1
        (kind,) = chance.choices(list(weights), list(weights.values()))
        yield _fault(chance, number, kind, _point(chance, kind), workers, every)


def _all_once(chance: random.Random, weights: dict[str, int]) -> list[tuple[str, str]]:
    """Return each kind and each point once, those with rare preconditions first."""
    points = [("kill-at", point) for point in POINTS]
    others = [(kind, _point(chance, kind)) for kind in weights if kind != "kill-at"]
    found = points + others + [("stop", "")] * 2
    chance.shuffle(found)
    return sorted(found, key=lambda one: one[1] not in RARE)


RARE = ("takeover-claimed", "answer-claimed", "step-entered", "step-kept", "cancel-stored")


def _point(chance: random.Random, kind: str) -> str:
    if kind == "kill-at":
        return chance.choice(list(POINTS))
    return chance.choice(HELD) if kind == "hold" else ""


def suspended_at(database: str, choice: int) -> str:
    """Return the point; every other time within a transaction, if the database allows it."""
    places = SUSPENDED if database == "sqlite" or choice % 2 else LOCKED
    return places[choice // 2 % len(places)]


def _fault(
    chance: random.Random, number: int, kind: str, at: str, workers: int, every: float
) -> Fault:
    wait = every * chance.uniform(0.4, 1.6)
    seconds = chance.uniform(*PAUSES.get(kind, (0, 0)))
    return Fault(number, wait, kind, at, chance.randrange(workers), seconds, chance.randrange(1000))
