"""One thing that changed, told to whoever listens in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, TypeVar

from django_mcp.changes.change_set import ChangeSet
from django_mcp.changes.subscriptions import (
    SubscriptionListener,
    spread,
    start_listening,
    stop_listening,
)

T = TypeVar("T", bound=SubscriptionListener)
_WHERE = {"updated": "uris", "list_changed": "lists", "elicitation_complete": "pages"}


@dataclass(frozen=True, slots=True)
class Announcement:
    """``subject`` is a URI, the name of a list or of an elicitation."""

    kind: Literal["updated", "list_changed", "elicitation_complete"]
    subject: str
    server: str

    @property
    def bulletin(self) -> ChangeSet:
        return ChangeSet(**{_WHERE[self.kind]: {self.subject: None}})


def announce(announcement: Announcement) -> None:
    spread(announcement.server, announcement.bulletin)


@contextmanager
def listening(ear: T) -> Iterator[T]:
    """It hears what is told in this process, until the block ends."""
    start_listening(ear)
    try:
        yield ear
    finally:
        stop_listening(ear)
