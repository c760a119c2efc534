"""
The databases that hold sessions and tokens: whether they are there, and as they should be.

Rule: nothing is written, and what no database answers is told once.
"""

from __future__ import annotations

from typing import Any

from django.db import connections, router
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.recorder import MigrationRecorder
from django.db.utils import DatabaseError

from ...conf import settings
from ...delivery.rows import is_there
from ...models import Session, Token
from .findings import Findings, note, ok, problem, warning

APP = "django_mcp"


def databases() -> Findings:
    for alias, what in uses().items():
        if alias in connections:  # else a check has told it
            yield from _database(alias, " and ".join(what))


def uses() -> dict[str, list[str]]:
    """The aliases, and what is kept in each."""
    found: dict[str, list[str]] = {}
    found.setdefault(router.db_for_write(Token), []).append("access tokens")
    found.setdefault(router.db_for_write(Session), []).append("sessions")
    found.setdefault(settings.DATABASE, found.get(settings.DATABASE, ["sessions"]))
    return found


def _database(alias: str, what: str) -> Findings:
    connection = connections[alias]
    named = f"The database {alias!r} ({connection.display_name}, {what})"
    if not is_there(alias):
        yield problem(f"{named} is not there yet.", migrate(alias))
        return
    try:
        connection.ensure_connection()
        yield from _migrations(connection, alias, named)
    except DatabaseError as error:
        yield problem(f"{named} does not answer: {error}", "Look at DATABASES, and at its server.")
        return
    if connection.vendor == "sqlite":
        yield from _sqlite(connection, named)


def _migrations(connection: Any, alias: str, named: str) -> Findings:
    """Those of this app: what is to be done yet, and what only a newer version knows."""
    executor = MigrationExecutor(connection)
    targets = [key for key in executor.loader.graph.leaf_nodes() if key[0] == APP]
    missing = [step.name for step, _ in executor.migration_plan(targets) if step.app_label == APP]
    applied = MigrationRecorder(connection).applied_migrations()
    unknown = sorted(
        name
        for app, name in applied
        if app == APP and (app, name) not in executor.loader.graph.nodes
    )
    if missing:
        yield problem(f"{named} lacks the migrations {', '.join(missing)}.", migrate(alias))
    elif unknown:
        yield warning(
            f"{named} has the migrations of a newer version: {', '.join(unknown)}.",
            "Install the version that it was migrated for.",
        )
    else:
        yield ok(f"{named} is migrated.")


def migrate(alias: str) -> str:
    return "manage.py migrate" + ("" if alias == "default" else f" --database {alias}")


def _sqlite(connection: Any, named: str) -> Findings:
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA journal_mode")
        (mode,) = cursor.fetchone()
    if mode == "wal":
        yield ok(f"{named}: readers do not wait for its writer (WAL).")
    elif mode == "memory":
        yield note(f"{named} is in memory: it ends with the process.")
    else:
        yield warning(
            f"{named}: readers wait for its writer (journal_mode is {mode}).",
            "django_mcp.delivery.sqlite(path) makes an entry of DATABASES with WAL.",
        )
