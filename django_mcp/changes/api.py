"""
Functions with which a project announces changes that send no Django signal.

In a transaction, the announcement is made after the commit. Every process notifies its own clients.
In the event loop these functions do not block: a task records the change in a thread.

``announce_changed_lists`` announces lists whose definitions changed with a deployment, to the
sessions from before it. The database has a digest of the definitions, so that the processes of a
deployment announce the change once.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from django.conf import settings as project
from django.db import router
from django.db.models import Model
from django.utils import translation

from ..auth import group_membership
from ..calls.visibility import registered
from ..exceptions import Busy
from ..runtime import threads
from ..storage import change_log
from ..storage.change_log import ELICITATION, LIST, OF_ONE, URI
from ..storage.databases import digest_of
from . import capture, permission_changes
from .subscriptions import LISTS

if TYPE_CHECKING:
    from ..declarations.declaration import Declaration
    from ..declarations.server import Server

logger = logging.getLogger("django_mcp.storage")
BUSY_RETRY_SECONDS = 0.1  # until the next attempt if the thread pool is full


def notify_changed(thing: Model | str, *, server: Server | None = None) -> None:
    """Notify subscribers that a resource changed: a row of a registered model, or a URI.

    It applies to ``server``, or to every server that exposes the resource. In a transaction, it
    takes effect after the commit. ``save()`` and ``delete()`` of a row need no call. Call this
    after ``bulk_create()`` and ``update()``, and for resources that are no rows. Call it before a
    row is deleted: a row without a key raises ``ValueError``.
    """
    if isinstance(thing, str):
        _record_announcement(URI, thing, server)
        return
    if thing.pk is None:
        raise ValueError(f"{thing!r} has no key (any more): call this before it is deleted.")
    using = str(thing._state.db or router.db_for_write(type(thing)))
    if labels := registered(type(thing)):
        change = capture.subject_of(thing, labels)
        if server is not None:
            kind, subject = change
            change = OF_ONE, {"server": server.name, "kind": kind, "subject": subject}
        _record(change, using, labels)


def notify_list_changed(*lists: str, server: Server | None = None) -> None:
    """Notify clients that lists changed: any of "tools", "prompts", "resources", or all if none.

    Raise ``ValueError`` for other names.
    """
    unknown = set(lists) - set(LISTS)
    if unknown:
        raise ValueError(f"There is no list {unknown.pop()!r}; there are: {', '.join(LISTS)}.")
    for name in lists or LISTS:
        _record_announcement(LIST, name, server)


def notify_permissions_changed(*users_or_groups: Model) -> None:
    """Announce that the permissions of users, or of members of groups, changed.

    Without arguments it applies to all users. Use it for changes without a Django signal: rows of
    an object-permission backend, project fields that ``has_permission`` uses, and
    ``QuerySet.update()``. In a transaction, it takes effect after the commit. Then every process
    notifies these users that their lists changed, and ends running calls that they may no longer
    make. Raise ``TypeError`` for other rows.
    """
    users, groups = (
        [one for one in users_or_groups if isinstance(one, kind)]
        for kind in group_membership.kinds()
    )
    if wrong := [one for one in users_or_groups if one not in users + groups]:
        raise TypeError(f"{wrong[0]!r} is neither a user nor a group.")
    _run(partial(permission_changes.record_user_changes, *users))
    _run(partial(permission_changes.record_group_changes, *groups))
    if not users_or_groups:
        _run(permission_changes.record_change_for_all_users)


def notify_elicitation_complete(elicitation_id: str, *, server: Server | None = None) -> None:
    """Notify the client that the user has completed the page of a URL elicitation."""
    _record_announcement(ELICITATION, elicitation_id, server)


def _record_announcement(kind: str, what: str, server: Server | None) -> None:
    _record((kind, {"what": what, "server": None if server is None else server.name}), None)


def _record(change: tuple[str, Any], using: str | None, models: Collection[str] = ()) -> None:
    _run(partial(capture.record_announced, change, using, models))


_tasks: set[asyncio.Task[None]] = set()  # the event loop keeps weak references only


def _run(job: Callable[[], None]) -> None:
    """Run ``job``, in a thread if this is an event loop, because it may run queries.

    Asynchronous code is in no transaction, so the thread needs none of its connections.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        job()
        return
    task = loop.create_task(_run_in_thread(job))
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


async def _run_in_thread(job: Callable[[], None]) -> None:
    while True:
        try:
            await threads.changes.run(job)
        except Busy:
            await asyncio.sleep(BUSY_RETRY_SECONDS)
        except Exception:
            logger.exception("An announced change could not be recorded")
            return
        else:
            return


def announce_changed_lists(server: Server) -> None:
    """Announce the lists of ``server`` whose definitions changed. Queries the database."""
    for name, digest in _digests_of_lists(server):
        if change_log.store_digest(f"?{name}:{digest_of(server.name)}", digest):
            capture.record_after_commit((LIST, {"what": name, "server": server.name}))


def _digests_of_lists(server: Server) -> Iterator[tuple[str, str]]:
    catalog = server._catalog
    lists: dict[str, list[Declaration]] = {
        "tools": [*catalog.tools.values()],
        "prompts": [*catalog.prompts.values()],
        "resources": [*catalog.resources.values(), *catalog.templates.values()],
    }
    with translation.override(project.LANGUAGE_CODE):
        for name, declarations in lists.items():
            definitions = (declaration._definition() for declaration in declarations)
            texts = sorted(json.dumps(definition, sort_keys=True) for definition in definitions)
            yield name, digest_of("\n".join(texts))
