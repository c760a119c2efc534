"""
What is switched off, as the rows have it.

Rule: where nothing was migrated yet nothing can be off, and who looks makes no database.
"""

from __future__ import annotations

from django.db import DatabaseError, OperationalError, ProgrammingError, connections

from .. import switches
from ..models import Switch
from .jobs import surely
from .rows import is_there


def switched_off() -> frozenset[tuple[str, str]]:
    """The server and the name of each thing that is. Asks the database, by one query."""
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
    """Look, however long the database is away: a process may begin while nobody can tell."""
    try:
        await switches.fresh()
    except DatabaseError:
        await surely(switches.look)
