"""
When news come: not when a thread has the time, but when an attempt is over.

Rule: nothing that is saved is kept from anybody: it is told as one, to clients that hear a bell
after it. So the two worlds can be held against each other, the number of news included.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from django_mcp.changes.change_set import ChangeSet
from django_mcp.changes.feed import deliver_here
from tests.announcing import Announcement, announce

from .world import BELL

_held: dict[str, ChangeSet] = {}


@contextmanager
def held() -> Iterator[None]:
    """Keep what is saved until it is ``told``."""
    with mock.patch("django_mcp.changes.capture.deliver_here", _keep):
        try:
            yield
        finally:
            _held.clear()


def _keep(server: str, news: ChangeSet) -> None:
    _held.setdefault(server, ChangeSet()).add(news)


def tell(client: Any) -> None:
    """Tell it, and wait until ``client``, who subscribed to the bell, has heard all of it.

    The first bell may be told together with what is before it, in any order; not so the second.
    """
    deliver_here(client.server.name, _held.pop(client.server.name, ChangeSet()))
    for _ in range(2):
        told = len(client.notes)
        announce(Announcement("updated", BELL, client.server.name))
        client.until(lambda told=told: any(map(_is_bell, client.notes[told:])))


def tell_of_attempt(client: Any) -> None:
    """Where nobody listens, nobody is told."""
    if _held and client.revision.handshake:
        tell(client)
    _held.clear()


def _is_bell(note: dict[str, Any]) -> bool:
    return bool(note["params"].get("uri") == BELL) if "params" in note else False
