"""The scenarios of the clients: name, weight, and the classes of faults that they cover.

A scenario is a function of a client, which draws its random values from the client's seed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from ..virtual_client import VirtualClient
from . import (
    batches,
    blocking,
    cancellation,
    cursors,
    legacy_sse,
    listen,
    notifications,
    progress,
    questions,
    side_effects,
    stateless,
    tokens,
)


class Scenario(NamedTuple):
    """A scenario. Scenarios with the same ``heavy`` rank run one after another, on one client."""

    run: Callable[[VirtualClient], Awaitable[None]]
    weight: int
    classes: str = ""
    heavy: int = 0


SCENARIOS = {
    "recite": Scenario(progress.recite, 20),
    "live": Scenario(progress.live, 3, "a"),
    "act": Scenario(side_effects.act, 20),
    "ask": Scenario(questions.ask, 8, "j m"),
    "survey": Scenario(questions.survey, 6, "j m"),
    "inquire": Scenario(questions.inquire, 6, "j m"),
    "steps": Scenario(questions.steps, 6, "j m"),
    "cancel": Scenario(cancellation.working, 10, "n"),
    "cancel parked": Scenario(cancellation.parked, 4, "m"),
    "cancel late": Scenario(cancellation.over, 2, "n"),
    "fail": Scenario(progress.fail, 4, "w"),
    "doubted": Scenario(questions.doubted, 3, "m"),
    "each": Scenario(side_effects.each, 0),
    "twins": Scenario(progress.twins, 3, "l"),
    "batch": Scenario(batches.batch, 4),
    "two": Scenario(notifications.two, 2, "x"),
    "news": Scenario(notifications.hear, 3, "g"),
    "saved": Scenario(notifications.save, 3, "orm"),
    "listen": Scenario(listen.hear, 3, "listen"),
    "older": Scenario(legacy_sse.calls, 4, "sse"),
    "unknown": Scenario(cursors.unknown, 3, "d i"),
    "trimmed": Scenario(cursors.trimmed, 4, "c"),
    "deleted": Scenario(cursors.deleted, 4, "t"),
    "expired": Scenario(tokens.expired, 2, "u"),
    "revoked": Scenario(tokens.revoked, 1, "u"),
    "deactivated": Scenario(tokens.deactivated, 1, "u"),
    "stateless": Scenario(stateless.call, 10),
    "rounds": Scenario(stateless.rounds, 6),
    "slow": Scenario(progress.slow, 2, "r"),
    "burst": Scenario(progress.burst, 0, "s", heavy=1),
    "sleep": Scenario(blocking.sleep, 0, "y", heavy=2),
    "stuck": Scenario(blocking.stuck, 0, "z", heavy=1),
}
