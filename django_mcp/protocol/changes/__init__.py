"""
What each revision changed, as the way back: one small function per line of a changelog.

The rule: a value is written once, in the vocabulary of the newest revision, and walked back
change by change, newest first. A function here takes a value as the revision that introduced
the change spells it, and returns what the revision before would have said; it never alters its
argument. What is taken back on the way out, an answer has put back on the way in.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

Change = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a changelog: since when, about what, and the way back."""

    revision: str
    subjects: frozenset[Hashable]  # empty: every subject
    change: Change

    def concerns(self, revision: str, subjects: tuple[Hashable, ...]) -> bool:
        """Whether a peer that speaks ``revision`` does not know this change to a subject."""
        return self.revision > revision and (
            not self.subjects or not self.subjects.isdisjoint(subjects)
        )


@dataclass(slots=True)
class Changelog:
    """The changes to one kind of thing - results, notifications - newest revision first."""

    lines: list[Line] = field(default_factory=list)
    _plans: dict[tuple[Hashable, ...], tuple[Change, ...]] = field(default_factory=dict)

    def introduced_in(self, revision: str, *subjects: Hashable) -> Callable[[Change], Change]:
        """Register how to undo a change for peers older than ``revision``."""

        def register(change: Change) -> Change:
            self.lines.append(Line(revision, frozenset(subjects), change))
            self.lines.sort(key=lambda line: line.revision, reverse=True)  # stable
            self.forget()
            return change

        return register

    def forget(self) -> None:
        """The lines have changed."""
        self._plans.clear()

    def undo(self, revision: str, subjects: tuple[Hashable, ...], value: Any, *about: Any) -> Any:
        """``value`` as ``revision`` spells it, or None if it has no words for it."""
        for change in self._plan(revision, subjects):
            value = change(value, *about)
            if value is None:
                return None
        return value

    def redo(self, revision: str, subjects: tuple[Hashable, ...], value: Any, *about: Any) -> Any:
        """A peer's ``value``, spelt as ``revision`` does, in the newest vocabulary."""
        for change in reversed(self._plan(revision, subjects)):
            value = change(value, *about)
        return value

    def _plan(self, revision: str, subjects: tuple[Hashable, ...]) -> tuple[Change, ...]:
        key = (revision, subjects)
        if key not in self._plans:
            changes = (line.change for line in self.lines if line.concerns(revision, subjects))
            self._plans[key] = tuple(changes)
        return self._plans[key]
