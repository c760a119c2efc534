"""
The processes that serve, each with a counter that goes up while it lives.

Rule: nothing here reads a clock to judge another process: who watches compares
counters, on a clock of its own.
"""

from __future__ import annotations

from django.db.models import F

from ..models import Process
from .rows import erase, rows

LEFT = -1  # where the counter of a process stands that knows that it ends


def begin(id: str) -> None:
    rows(Process).create(id=id)


def beat(id: str) -> bool:
    """Count on; False when others have declared this process dead, or it has said that it ends."""
    return bool(rows(Process).filter(pk=id).exclude(beats=LEFT).update(beats=F("beats") + 1))


def beats() -> dict[str, int]:
    """Where every counter stands."""
    return dict(rows(Process).values_list("pk", "beats"))


def leave(id: str) -> None:
    """It ends, and leaves calls behind: whoever sees that need not wait."""
    rows(Process).filter(pk=id).update(beats=LEFT)


def end(id: str) -> None:
    erase(rows(Process).filter(pk=id))
