"""
Read kill switches from the database.

Before the first migration nothing is switched off, and reading does not create a SQLite file.
"""

from __future__ import annotations

from django.db import DatabaseError, OperationalError, ProgrammingError, connections

from ..auth import kill_switches
from ..models import Switch
from .databases import is_there
from .jobs import surely


def switched_off() -> frozenset[tuple[str, str]]:
    """Return the server and the name of everything that is switched off, by one query."""
    rows = Switch.objects.values_list("server", "thing")
    if not is_there(rows.db):
        return frozenset()
    try:
        return frozenset(rows)
    except (OperationalError, ProgrammingError):
        if Switch._meta.db_table in connections[rows.db].introspection.table_names():
            raise
        return frozenset()


async def switches_known() -> None:
    """Read the kill switches. Retry while the database is down, as at the start of a process."""
    try:
        await kill_switches.fresh()
    except DatabaseError:
        await surely(kill_switches.look)
