"""Announce changes in tests, and record what the project's code announces in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar
from unittest import mock

from django_mcp.changes.change_set import ChangeSet
from django_mcp.changes.feed import deliver_local_changes


class AnnouncementObserver(Protocol):
    def receive(self, server: str, changes: ChangeSet) -> None: ...


T = TypeVar("T", bound=AnnouncementObserver)
# The field of ``ChangeSet`` for each kind of announcement.
_FIELDS = {
    "updated": "uris",
    "list_changed": "list_names",
    "elicitation_complete": "completed_elicitations",
}


@dataclass(frozen=True, slots=True)
class Announcement:
    """A change. ``subject`` is a URI, the name of a list, or the id of an elicitation."""

    kind: Literal["updated", "list_changed", "elicitation_complete"]
    subject: str
    server: str

    @property
    def changes(self) -> ChangeSet:
        return ChangeSet(**{_FIELDS[self.kind]: {self.subject: None}})


def announce(announcement: Announcement) -> None:
    deliver_local_changes(announcement.server, announcement.changes)


@contextmanager
def observing(observer: T) -> Iterator[T]:
    """Pass to ``observer`` what the project's code announces in this process, inside the block."""

    def deliver(server: str, changes: ChangeSet) -> None:
        observer.receive(server, changes)
        deliver_local_changes(server, changes)

    with (
        mock.patch("django_mcp.changes.capture.has_followers", return_value=True),
        mock.patch("django_mcp.changes.capture.deliver_local_changes", deliver),
    ):
        yield observer
