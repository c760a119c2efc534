"""
A small matching machine, for URI templates.

The rule: it never visits the same step at the same place twice, so its time is at most the
product of the lengths of the program and the URI. (A regular expression with two variables side
by side would try every way to divide the text between them.) Of several ways to match it finds
the first, trying steps in the order in which the program names them.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

_TOKEN = re.compile(r"%[0-9A-Fa-f]{2}|.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Spell:
    """The next token is this one."""

    token: str


@dataclass(frozen=True, slots=True)
class Skip:
    """The next token is any but these."""

    ends: frozenset[str]


@dataclass(frozen=True, slots=True)
class Fork:
    """Go on at the first of two steps, counted from here, or else at the second."""

    first: int
    second: int


@dataclass(frozen=True, slots=True)
class Mark:
    """Here begins, or ends, what a name stands for."""

    name: Any


Step = Spell | Skip | Fork | Mark
Program = list[Step]


def tokens(text: str) -> list[str]:
    """``text`` as characters, where a percent-encoded octet is one."""
    return [token.upper() if len(token) == 3 else token for token in _TOKEN.findall(text)]


# Programs are made of programs.


def spelt(text: str) -> Program:
    """Exactly ``text``."""
    return [Spell(token) for token in tokens(text)]


def capture(name: Hashable, ends: frozenset[str] | None) -> Program:
    """As much as possible up to one of ``ends``, remembered; or nothing, if ``ends`` is None."""
    body = [] if ends is None else many([Skip(ends)])
    return [Mark(name), *body, Mark(name)]


def maybe(body: Program) -> Program:
    return [Fork(1, len(body) + 1), *body]


def many(body: Program) -> Program:
    """``body`` any number of times; it must not match nothing."""
    back = -(len(body) + 1)
    return [Fork(1, len(body) + 2), *body, Fork(back, back)]


def either(first: Program, *others: Program) -> Program:
    if not others:
        return first
    rest = either(*others)
    over = len(rest) + 1
    return [Fork(1, len(first) + 2), *first, Fork(over, over), *rest]


# Running them.

# What was marked on the way here, last first: (what was marked before, name, place).
Trail = tuple[Any, Any, int] | None


def run(program: Program, given: list[str]) -> list[tuple[Any, str]] | None:
    """What each name stands for, as the whole of ``given`` matches, or None if it does not."""
    waiting: list[tuple[int, int, Trail]] = [(0, 0, None)]
    seen: set[tuple[int, int]] = set()
    while waiting:
        at, place, trail = waiting.pop()
        if (at, place) in seen:
            continue
        seen.add((at, place))
        if at < len(program):
            waiting.extend(_next(program[at], at, given, place, trail))
        elif place == len(given):
            return _captured(given, trail)
    return None


def _next(
    step: Step, at: int, given: list[str], place: int, trail: Trail
) -> list[tuple[int, int, Trail]]:
    """Where to go on from a step; the last is tried first."""
    if isinstance(step, Fork):
        return [(at + step.second, place, trail), (at + step.first, place, trail)]
    if isinstance(step, Mark):
        return [(at + 1, place, (trail, step.name, place))]
    if place < len(given) and _takes(step, given[place]):
        return [(at + 1, place + 1, trail)]
    return []


def _takes(step: Spell | Skip, token: str) -> bool:
    return token == step.token if isinstance(step, Spell) else token not in step.ends


def _captured(given: list[str], trail: Trail) -> list[tuple[Any, str]]:
    found = []
    while trail is not None:
        opening, name, end = trail
        trail, _, start = opening
        found.append((name, "".join(given[start:end])))
    return found[::-1]
