"""What the clients do: each scenario by its name, how often it is drawn, and what it is about.

Rule: a scenario is a function of a client; what it draws, it draws from the client's seed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from ..person import Person
from . import (
    acting,
    asking,
    batches,
    cancelling,
    cursors,
    labor,
    listening,
    news,
    older,
    reciting,
    stateless,
    tokens,
)


class Scenario(NamedTuple):
    """``heavy`` is by which of the laborers it is done, one such thing after the other."""

    run: Callable[[Person], Awaitable[None]]
    weight: int
    classes: str = ""
    heavy: int = 0


SCENARIOS = {
    "recite": Scenario(reciting.recite, 20),
    "live": Scenario(reciting.live, 3, "a"),
    "act": Scenario(acting.act, 20),
    "ask": Scenario(asking.ask, 8, "j m"),
    "survey": Scenario(asking.survey, 6, "j m"),
    "inquire": Scenario(asking.inquire, 6, "j m"),
    "steps": Scenario(asking.steps, 6, "j m"),
    "cancel": Scenario(cancelling.working, 10, "n"),
    "cancel parked": Scenario(cancelling.parked, 4, "m"),
    "cancel late": Scenario(cancelling.over, 2, "n"),
    "fail": Scenario(reciting.fail, 4, "w"),
    "doubted": Scenario(asking.doubted, 3, "m"),
    "each": Scenario(acting.each, 0),
    "twins": Scenario(reciting.twins, 3, "l"),
    "batch": Scenario(batches.batch, 4),
    "two": Scenario(news.two, 2, "x"),
    "news": Scenario(news.hear, 3, "g"),
    "saved": Scenario(news.save, 3, "orm"),
    "listen": Scenario(listening.hear, 3, "listen"),
    "older": Scenario(older.calls, 4, "sse"),
    "unknown": Scenario(cursors.unknown, 3, "d i"),
    "trimmed": Scenario(cursors.trimmed, 4, "c"),
    "deleted": Scenario(cursors.deleted, 4, "t"),
    "expired": Scenario(tokens.expired, 2, "u"),
    "revoked": Scenario(tokens.revoked, 1, "u"),
    "deactivated": Scenario(tokens.deactivated, 1, "u"),
    "stateless": Scenario(stateless.call, 10),
    "rounds": Scenario(stateless.rounds, 6),
    "slow": Scenario(reciting.slow, 2, "r"),
    "burst": Scenario(reciting.burst, 0, "s", heavy=1),
    "sleep": Scenario(labor.sleep, 0, "y", heavy=2),
    "stuck": Scenario(labor.stuck, 0, "z", heavy=1),
}
