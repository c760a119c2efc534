"""
What workers hear of each other by, and whether it carries anything.

Rule: it is tried as a worker does, by a message to itself that means nothing to others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import suppress

from django.db import DatabaseError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from ...conf import settings
from ...delivery import layers
from ...delivery.layers import Line
from .findings import Finding, Findings, note, ok, warning

SECONDS, TURN = 5.0, 0.02
FLOOR = "Each looks at the rows six times a second instead, and nothing is lost."


def workers() -> Findings:
    if layers.is_configured() or layers.is_postgres():
        yield asyncio.run(_tried())
    else:
        yield note("Nothing rings between workers.", FLOOR)
    if settings.DATABASE in connections:
        yield from _pool(connections[settings.DATABASE])


async def _tried() -> Finding:
    line = Line()
    line.open(_unheard)
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(SECONDS):
                while line.is_open and not (line.is_prompt or line.trouble):  # noqa: ASYNC110
                    await asyncio.sleep(TURN)
        return _told(line)
    finally:
        await line.closed()


def _unheard(streams: Collection[int]) -> None: ...


def _told(line: Line) -> Finding:
    if line.is_prompt:
        return ok(f"Workers ring each other by the {line.called}: a message came back.")
    if line.trouble or line.is_open:
        words = line.trouble or f"nothing came back in {SECONDS:g} seconds"
        return warning(f"The {line.called} between workers does not work: {words}.", FLOOR)
    return note(f"The {line.called} reaches no other worker.", FLOOR)


def _pool(connection: BaseDatabaseWrapper) -> Findings:
    """One before the server gives each transaction another connection, which Django must know."""
    given = connection.settings_dict
    if connection.vendor != "postgresql" or given.get("DISABLE_SERVER_SIDE_CURSORS"):
        return
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            (number,) = cursor.fetchone()
    except DatabaseError:
        return  # which is told already
    raw = getattr(connection.connection, "pgconn", None)
    if raw is not None and raw.backend_pid != number:
        yield warning(
            "There is a pool, such as PgBouncer, before PostgreSQL.",
            "If it is in transaction mode, set DISABLE_SERVER_SIDE_CURSORS = True.",
        )
