"""
The goals of the comparisons over HTTP: how many times the calls per second of another server.

They hold for uvicorn with its defaults, and with httptools and uvloop.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from benchmarks.messages import LIST, SESSION, STATELESS, TOKEN
from benchmarks.rounds import Result, cpu_ratio, rate_ratio

US, POSTGRES, MANY = "django_mcp", "django_mcp-postgres", "django_mcp-200"  # contenders
WHOLE = 0.8  # of a core: a server that used less waited for other work of the machine


class Goal(NamedTuple):
    """Our calls of a tool in a variant, divided by those of another contender."""

    variant: str
    tool: str
    ours: str
    other: str
    least: float
    other_variant: str = ""  # where it is not the same

    @property
    def title(self) -> str:
        than = self.other if not self.other_variant else f"{self.other}, {self.other_variant}"
        return f"{self.ours}, {self.variant}, {self.tool}: {{found:.2f}} x {than}"


GOALS = (
    Goal(STATELESS, "add", US, "mcp", 3.0),
    Goal(STATELESS, "add", US, "fastmcp", 6.0),
    Goal(STATELESS, "add", US, "lean", 0.4),
    Goal(STATELESS, "city", US, "django-view", 0.9),
    Goal(STATELESS, LIST, MANY, "fastmcp-200", 8.0),
    Goal(SESSION, "add", US, "mcp", 1.5),
    Goal(SESSION, "add", US, "mcp-json", 1.5),
    Goal(SESSION, "add", POSTGRES, "mcp-json", 1.2),
    Goal(TOKEN, "add", US, "lean-known", 0.8),
    Goal(TOKEN, "add", US, US, 0.9, STATELESS),
    Goal(TOKEN, "city", US, US, 0.9, STATELESS),
)


def judge(results: Iterable[Result]) -> bool:
    """Print which goals are met, and return whether all are that were measured."""
    done = {
        (result.contender.name, result.variant, result.tool): result
        for result in results
        if not result.wrong
    }
    are_met = True
    for goal in GOALS:
        ours = done.get((goal.ours, goal.variant, goal.tool))
        other = done.get((goal.other, goal.other_variant or goal.variant, goal.tool))
        if ours and other:
            are_met &= is_met(goal, ours, other)
    return are_met


def is_met(goal: Goal, ours: Result, other: Result) -> bool:
    disturbed = min(ours.share, other.share) < WHOLE
    found = cpu_ratio(ours, other) if disturbed else rate_ratio(ours, other)
    verdict = "met" if found >= goal.least else "UNMET"
    how = ", by the processor's time, for the core was not theirs" if disturbed else ""
    print(f"{verdict}: {goal.title.format(found=found)}, of at least {goal.least} x{how}")
    return found >= goal.least
