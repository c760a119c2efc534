"""
The differences between revisions: one small function for each line of a revision's changelog.

All other code writes values in the form of the newest revision. ``Changelog.undo`` applies the
functions, newest first, to convert a value to an older revision. Each function takes a value in the
form of the revision that introduced a change, and returns it in the form of the revision before.
It never modifies its argument. The docstring of such a function states the change that it undoes.
``Changelog.redo`` applies the functions for a client's answers, oldest first.

- ``responses``: changes to results, to errors, and to the parameters of notifications
- ``requests``: changes to questions to the client, and to its answers
- ``schemas``: helpers of these two
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

Change = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class RevisionChange:
    """One change: the revision that introduced it, its subjects, and the function that undoes it.

    Subjects are methods, or classes of exceptions.
    """

    revision: str
    subjects: frozenset[Hashable]  # empty: every subject
    change: Change

    def concerns(self, revision: str, subjects: tuple[Hashable, ...]) -> bool:
        """Whether a peer with ``revision`` does not know this change, and it affects a subject."""
        return self.revision > revision and (
            not self.subjects or not self.subjects.isdisjoint(subjects)
        )


@dataclass(slots=True)
class Changelog:
    """The changes to one kind of value, such as results or notifications, newest revision first."""

    lines: list[RevisionChange] = field(default_factory=list)
    _plans: dict[tuple[Hashable, ...], tuple[Change, ...]] = field(default_factory=dict)

    def introduced_in(self, revision: str, *subjects: Hashable) -> Callable[[Change], Change]:
        """Decorate a function that undoes a change for peers older than ``revision``.

        Without ``subjects`` it applies to every subject.
        """

        def register(change: Change) -> Change:
            self.lines.append(RevisionChange(revision, frozenset(subjects), change))
            self.lines.sort(key=lambda line: line.revision, reverse=True)  # stable
            self.forget()
            return change

        return register

    def forget(self) -> None:
        """Clear the cache, because the lines have changed."""
        self._plans.clear()

    def undo(self, revision: str, subjects: tuple[Hashable, ...], value: Any, *about: Any) -> Any:
        """Return ``value`` in the form of ``revision``; None if that cannot express it."""
        plan = self._plans.get((revision, subjects))
        if plan is None:
            plan = self._plan(revision, subjects)
        for change in plan:
            value = change(value, *about)
            if value is None:
                return None
        return value

    def redo(self, revision: str, subjects: tuple[Hashable, ...], value: Any, *about: Any) -> Any:
        """Convert a peer's ``value`` from the form of ``revision`` to that of the newest one."""
        for change in reversed(self._plan(revision, subjects)):
            value = change(value, *about)
        return value

    def _plan(self, revision: str, subjects: tuple[Hashable, ...]) -> tuple[Change, ...]:
        key = (revision, subjects)
        if key not in self._plans:
            changes = (line.change for line in self.lines if line.concerns(revision, subjects))
            self._plans[key] = tuple(changes)
        return self._plans[key]
