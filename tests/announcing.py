"""Changes that are announced in this process, to its clients and to a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar
from unittest import mock

from django_mcp.changes.change_set import ChangeSet
from django_mcp.changes.feed import deliver_here


class Ear(Protocol):
    def hear(self, server: str, news: ChangeSet) -> None: ...


T = TypeVar("T", bound=Ear)
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
    deliver_here(announcement.server, announcement.bulletin)


@contextmanager
def listening(ear: T) -> Iterator[T]:
    """Show ``ear`` what the project's code announces in this process, until the block ends."""

    def deliver(server: str, changes: ChangeSet) -> None:
        ear.hear(server, changes)
        deliver_here(server, changes)

    with (
        mock.patch("django_mcp.changes.capture.has_clients", return_value=True),
        mock.patch("django_mcp.changes.capture.deliver_here", deliver),
    ):
        yield ear
