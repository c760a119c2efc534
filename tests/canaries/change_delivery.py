"""
Deliver change notifications at the end of an attempt instead of in the background.

No change is withheld: all are delivered together, followed by a marker to which clients subscribe.
So the notifications with and without hidden rows can be compared, including their number.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from django_mcp.changes.change_set import ChangeSet
from django_mcp.changes.feed import deliver_local_changes
from tests.announcing import Announcement, announce

from .dataset import MARKER

_held: dict[str, ChangeSet] = {}


@contextmanager
def held() -> Iterator[None]:
    """Hold back changes until they are delivered."""
    with mock.patch("django_mcp.changes.capture.deliver_local_changes", _keep):
        try:
            yield
        finally:
            _held.clear()


def _keep(server: str, news: ChangeSet) -> None:
    _held.setdefault(server, ChangeSet()).add(news)


def deliver_changes(client: Any) -> None:
    """Deliver the changes, and wait until ``client``, which subscribed to the marker, has them.

    The first marker may arrive together with earlier changes, in any order; the second cannot.
    """
    deliver_local_changes(client.server.name, _held.pop(client.server.name, ChangeSet()))
    for _ in range(2):
        told = len(client.notes)
        announce(Announcement("updated", MARKER, client.server.name))
        client.until(lambda told=told: any(map(_is_marker, client.notes[told:])))


def deliver_after_attempt(client: Any) -> None:
    """Drop the changes if nobody listens."""
    if _held and client.revision.handshake:
        deliver_changes(client)
    _held.clear()


def _is_marker(note: dict[str, Any]) -> bool:
    return bool(note["params"].get("uri") == MARKER) if "params" in note else False
