"""
What changed, told to whoever listens in this process.

Rule: an announcement names what changed and carries nothing of it; whoever
passes it on looks afresh what the listener may see. In a transaction it waits
for the commit.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from django.db import transaction
from django.db.models import Model

if TYPE_CHECKING:
    from ..declare.servers import Server

logger = logging.getLogger("django_mcp")
Kind = Literal["updated", "list_changed", "elicitation_complete"]
LISTS = ("tools", "prompts", "resources")


@dataclass(frozen=True, slots=True)
class Announcement:
    """``subject`` is a URI, the name of a list or the id of an elicitation."""

    kind: Kind
    subject: str
    server: str


class Listener(Protocol):
    def hear(self, announcement: Announcement) -> None:
        """Called from any thread; returns at once."""
        ...


_listeners: weakref.WeakSet[Listener] = weakref.WeakSet()
_lock = threading.Lock()


def listen(listener: Listener) -> None:
    with _lock:
        _listeners.add(listener)


def stop_listening(listener: Listener) -> None:
    with _lock:
        _listeners.discard(listener)


def announce(announcement: Announcement) -> None:
    """Tell every listener, now."""
    with _lock:
        listeners = list(_listeners)
    for listener in listeners:
        try:
            listener.hear(announcement)
        except Exception:  # whoever announces has nothing to do with it
            logger.exception("%s did not hear an announcement", listener)


def notify_changed(thing: Model | str, *, server: Server | None = None) -> None:
    """Tell subscribers that a resource changed: a registered model's row, or a URI.

    On ``server``, or on every server that exposes it; after the commit, when
    called in a transaction. Call it before a row is deleted: after that it has
    no key, which raises ``ValueError``.
    """
    using = thing._state.db if isinstance(thing, Model) else None
    for one, uri in _addresses(thing, server):
        _soon(Announcement("updated", uri, one.name), using)


def notify_list_changed(*lists: str, server: Server | None = None) -> None:
    """Tell clients to read lists again: any of "tools", "prompts", "resources"; none is all."""
    unknown = set(lists) - set(LISTS)
    if unknown:
        raise ValueError(f"There is no list {unknown.pop()!r}; there are: {', '.join(LISTS)}.")
    for one in _servers(server):
        for name in lists or LISTS:
            _soon(Announcement("list_changed", name, one.name))


def notify_elicitation_complete(elicitation_id: str, *, server: Server | None = None) -> None:
    """Tell the client that asked that what was to be done at its URL is done."""
    for one in _servers(server):
        _soon(Announcement("elicitation_complete", elicitation_id, one.name))


def _soon(announcement: Announcement, using: str | None = None) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        transaction.on_commit(lambda: announce(announcement), using)
    else:
        announce(announcement)  # asynchronous code has no transaction


def _servers(server: Server | None) -> list[Server]:
    from ..declare.servers import servers

    return servers() if server is None else [server]


def _addresses(thing: Model | str, server: Server | None) -> list[tuple[Server, str]]:
    if isinstance(thing, str):
        return [(one, thing) for one in _servers(server)]
    if thing.pk is None:
        raise ValueError(f"{thing!r} has no key (any more): call this before it is deleted.")
    rows: list[Any] = [
        (one, resource)
        for one in _servers(server)
        if not one.is_empty
        for kind in type(thing).__mro__
        for resource in one.catalog.models.get(kind, ())
    ]
    return [(one, resource.uri_of(thing)) for one, resource in rows]
