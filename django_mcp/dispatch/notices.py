"""
What a project says by hand: that something changed which sends no signal.

Rule: it is told by every process to its own clients, after the commit where it
is said in a transaction.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from django.db import router
from django.db.models import Model

from .. import threads
from ..delivery.changes import LIST, OF_ONE, PAGE, URI
from ..exceptions import Busy
from . import holders, saves, standing
from .announcements import LISTS
from .places import registered

if TYPE_CHECKING:
    from ..declare.servers import Server

logger = logging.getLogger("django_mcp")
PAUSE = 0.1  # seconds until it is tried again when all are busy


def notify_changed(thing: Model | str, *, server: Server | None = None) -> None:
    """Tell subscribers that a resource changed: a registered model's row, or a URI.

    On ``server``, or on every server that exposes it; after the commit, when
    called in a transaction. A row that is saved or deleted is told of without
    this: it is for ``bulk_create`` and ``update``, and for what is no row. Call
    it before a row is deleted: after that it has no key, which raises
    ``ValueError``.
    """
    if isinstance(thing, str):
        _say(URI, thing, server)
        return
    if thing.pk is None:
        raise ValueError(f"{thing!r} has no key (any more): call this before it is deleted.")
    using = str(thing._state.db or router.db_for_write(type(thing)))
    if labels := registered(type(thing)):
        found = saves.subject_of(thing, labels)
        _soon(found if server is None else _of_one(server, *found), using, labels)


def notify_list_changed(*lists: str, server: Server | None = None) -> None:
    """Tell clients to read lists again: any of "tools", "prompts", "resources"; none is all."""
    unknown = set(lists) - set(LISTS)
    if unknown:
        raise ValueError(f"There is no list {unknown.pop()!r}; there are: {', '.join(LISTS)}.")
    for name in lists or LISTS:
        _say(LIST, name, server)


def notify_permissions_changed(*who: Model) -> None:
    """Tell that these users, or the members of these groups, may do something else now.

    None named is everybody. For what Django does not tell of: rows of an object-permission
    backend, fields of your own that ``has_permission`` asks, and ``QuerySet.update()``. After the
    commit, when called in a transaction; then in every process their lists are announced as
    changed, and what they may not run any more is ended. Raises ``TypeError`` for other rows.
    """
    users, groups = ([one for one in who if isinstance(one, kind)] for kind in holders.kinds())
    if wrong := [one for one in who if one not in users + groups]:
        raise TypeError(f"{wrong[0]!r} is neither a user nor a group.")
    _at_once(standing.changed, users)
    _at_once(standing.changed_for_groups, groups)
    if not who:
        _at_once(standing.changed_for_everyone, ())


def _at_once(tell: Callable[..., None], those: Sequence[Model]) -> None:
    """In a thread where this is a loop: what is said there is in no transaction."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        tell(*those)
        return
    if threads.is_adopted():
        tell(*those)
        return
    _keep(loop.create_task(_written(partial(tell, *those))))


def notify_elicitation_complete(elicitation_id: str, *, server: Server | None = None) -> None:
    """Tell the client that asked that what was to be done at its URL is done."""
    _say(PAGE, elicitation_id, server)


def _say(kind: str, what: str, server: Server | None) -> None:
    _soon((kind, {"what": what, "server": None if server is None else server.name}), None)


def _of_one(server: Server, kind: str, subject: Any) -> tuple[str, Any]:
    return OF_ONE, {"server": server.name, "kind": kind, "subject": subject}


# Asynchronous code has no transaction, and may not wait for a database.

_tasks: set[asyncio.Task[None]] = set()


def _soon(found: tuple[str, Any], using: str | None, models: Iterable[str] = ()) -> None:
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        saves.note(found, using, models)
        return
    if threads.is_adopted():
        saves.tell_here([found])
        return
    _keep(loop.create_task(_written(partial(saves.note, found, using, models))))


def _keep(task: asyncio.Task[None]) -> None:
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


async def _written(job: Callable[[], None]) -> None:
    while True:
        try:
            await threads.changes.run(job)
        except Busy:
            await asyncio.sleep(PAUSE)
        except Exception:
            logger.exception("It could not be written down that something changed")
            return
        else:
            return
