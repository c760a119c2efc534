"""
A page of the measured project that counts what may grow with time: `/state`, as JSON.

`/state?types` runs the garbage collector and counts the objects that are left by type.
"""

from __future__ import annotations

import asyncio
import gc
import json
import weakref
from collections import Counter
from typing import Any

from django.db.backends.signals import connection_created

from benchmarks.peers.bare import respond

CONNECTIONS: weakref.WeakSet[Any] = weakref.WeakSet()  # Django's, of all threads
TYPES = 400  # of objects, that are counted


def with_state_page(application: Any) -> Any:
    connection_created.connect(note, dispatch_uid="benchmark-state")

    async def with_page(scope: Any, receive: Any, send: Any) -> None:
        if scope.get("path") == "/state":
            await respond(json.dumps(state(scope["query_string"] == b"types")).encode(), send)
        else:
            await application(scope, receive, send)

    return with_page


def note(connection: Any, **details: Any) -> None:
    CONNECTIONS.add(connection)


def state(with_types: bool) -> dict[str, Any]:
    opened = [one for one in list(CONNECTIONS) if one.connection is not None]
    found: dict[str, Any] = {"tasks": len(asyncio.all_tasks()), "connections": len(opened)}
    if with_types:
        gc.collect()
        names = (f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.get_objects())
        found["types"] = dict(Counter(names).most_common(TYPES))
    return found
