"""What strikes, whom and when: a function of the seed.

The rule: everything that can strike here strikes once before anything strikes twice; from then on
it is drawn by weight. Nothing depends on what the machine makes of it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

from .project.points import POINTS


class Fault(NamedTuple):
    """What strikes, after how long a pause; the rest is for who does it."""

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
# Now and then nothing strikes for a while: who is killed again and again notices no other's death.
OFTEN, REST = 60, 1.6  # faults, and leases
HELD = ("events-inserted", "outcome-inserted", "stream-inserted")
# Where a worker stands still and lives on; "" is wherever it is just then.
SUSPENDED = ("", "tool-working", "first-written", "outcome-committed")
# Within a transaction that holds locks. SQLite has one: all others would stand still, too.
LOCKED = ("events-inserted", "outcome-updated", "answer-stored")
LACKING = {
    "commit": ("sqlite", "SQLite is no server: a commit has no wire on which its answer is lost."),
}
NO_DOORBELL = "There is no doorbell in this campaign."


def why_not(kind: str, database: str, layer: str) -> str:
    """Why something cannot strike here; empty if it can."""
    if kind == "redis" and layer not in ("redis", "postgres"):
        return NO_DOORBELL
    lacking, reason = LACKING.get(kind, ("", ""))
    return reason if lacking == database else ""


def kinds(database: str, layer: str, *, clocks: bool = True) -> dict[str, int]:
    """What can strike here, by weight."""
    return {
        kind: weight
        for kind, weight in WEIGHTS.items()
        if not why_not(kind, database, layer) and (clocks or kind != "clock")
    }


def plan(seed: int, weights: dict[str, int], *, workers: int, every: float) -> Iterator[Fault]:
    """What strikes, without end."""
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
    """Each kind, and each point; what waits for others to happen comes first."""
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
    """Where: within a transaction every other time, where there is more than one at once."""
    places = SUSPENDED if database == "sqlite" or choice % 2 else LOCKED
    return places[choice // 2 % len(places)]


def _fault(
    chance: random.Random, number: int, kind: str, at: str, workers: int, every: float
) -> Fault:
    wait = every * chance.uniform(0.4, 1.6)
    seconds = chance.uniform(*PAUSES.get(kind, (0, 0)))
    return Fault(number, wait, kind, at, chance.randrange(workers), seconds, chance.randrange(1000))
