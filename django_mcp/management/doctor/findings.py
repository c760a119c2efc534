"""
What the doctor says: one line for each thing that was looked at, and what helps.

Rule: a problem keeps clients away or lets in whom it should not, a warning is what will
be one day or for some; everything of either kind says what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from django.core.checks import INFO, WARNING, CheckMessage

Level = Literal["ok", "note", "warning", "problem"]


@dataclass(frozen=True)
class Finding:
    """``part`` is what was looked at as a whole, such as "the database"."""

    level: Level
    words: str
    hint: str = ""
    part: str = ""


Findings = Iterator[Finding]


def ok(words: str) -> Finding:
    return Finding("ok", words)


def note(words: str, hint: str = "") -> Finding:
    return Finding("note", words, hint)


def warning(words: str, hint: str) -> Finding:
    return Finding("warning", words, hint)


def problem(words: str, hint: str) -> Finding:
    return Finding("problem", words, hint)


def of_checks(messages: Iterable[CheckMessage]) -> Findings:
    """What ``manage.py check`` says."""
    for message in messages:
        if message.is_silenced():
            continue
        words, _, _ = str(message).partition("\n\tHINT:")
        hint = message.hint or "manage.py check tells it too."
        if message.level > WARNING:
            yield problem(words, hint)
        else:
            yield note(words, hint) if message.level <= INFO else warning(words, hint)


def survived(look: Callable[[], Findings], what: str) -> Findings:
    """What ``look`` finds; that it broke is a finding too, and no end."""
    try:
        yield from look()
    except Exception as error:  # the project's code runs: whatever it raises is what is wrong
        told = f"{type(error).__name__}: {error}".rstrip(": ")
        yield problem(f"{what} cannot be looked at: {told}", "Start with this error.")
