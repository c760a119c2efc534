"""
How long the log waits for a lock, and how long the database for who holds one.

Rule: a process that stands still in the midst of a transaction does not stop the
others. What waits for its lock gives up, and is tried again when others had their
turn; the transaction is ended by the database. The project's own connections are
left as they are; in a SQLite file of the log's own, all wait alike.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from django.db import DEFAULT_DB_ALIAS, Error, OperationalError, connections, models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.dispatch import receiver

from .. import threads
from ..conf import settings

LOCKED, IDLE = 1, 10  # seconds: for a lock; for the next statement of a transaction
# By those who may not wait, in PostgreSQL's words, MariaDB's and SQLite's.
LOCKS = frozenset(("55P03", 1205, "SQLITE_BUSY", "SQLITE_LOCKED"))
POSTGRESQL = (
    "SELECT set_config('lock_timeout', '{locked}s', {here}),"
    " set_config('idle_in_transaction_session_timeout', '{idle}s', {here})"
)
MARIADB = "SET SESSION innodb_lock_wait_timeout = {locked}, idle_transaction_timeout = {idle}"
# SQLite asks for its lock ten times a second at last, so that one waits for seconds while others
# write. Where all that waits is the beginning of a transaction, it is asked for here: the more
# often the longer it has waited, for there is no queue, and nobody's heartbeat may come too late.
OFTEN, SOONEST = 0.01, 0.001  # seconds, about
SOONER = 10  # times as often, and once more, for each second
WAITS = "PRAGMA busy_timeout = {ms:.0f}"
BUSY = frozenset(("SQLITE_BUSY", "SQLITE_BUSY_RECOVERY"))
ALONE, AT_FIRST = "wal", ("IMMEDIATE", "EXCLUSIVE")  # modes of a journal, and of transactions


@receiver(connection_created)
def _limit(connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
    """Once for each connection, which costs nothing where it is kept."""
    is_the_log = connection.alias == settings.DATABASE
    if is_the_log and connection.vendor == "sqlite" and _waits_at_first(connection):
        _wait_itself(connection, 0)
        _ask_often(connection)
    if not ((is_the_log and threads.of_the_log()) or threads.of_changes()):
        return
    if connection.vendor == "postgresql" and not _is_shared(connection):
        _execute(connection, POSTGRESQL, here="false")
    elif getattr(connection, "mysql_is_mariadb", False):
        _execute(connection, MARIADB)


def _waits_at_first(connection: Any) -> bool:
    """Whether it is a file of the log's own, in which only the beginning of something waits."""
    if connection.alias == DEFAULT_DB_ALIAS or connection.transaction_mode not in AT_FIRST:
        return False
    with connection.cursor() as cursor:
        return bool(cursor.execute("PRAGMA journal_mode").fetchone()[0] == ALONE)


def _ask_often(connection: BaseDatabaseWrapper) -> None:
    """From now on; it stays when the connection is made anew.

    In front, for who has a wrapper for a while takes away the last one.
    """
    if _in_turn not in connection.execute_wrappers:
        connection.execute_wrappers.insert(0, _in_turn)


def _wait_itself(connection: Any, seconds: float) -> None:
    """Let SQLite wait so long."""
    connection.connection.execute(WAITS.format(ms=1000 * seconds))


def _in_turn(
    execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]
) -> Any:
    """Wait for the lock as long as the project says, and as soon as it is free have it."""
    patience = context["connection"].settings_dict["OPTIONS"].get("timeout", 5.0)
    if many:
        return _of_many(patience, execute, sql, params, many, context)
    began = time.monotonic()
    while True:
        try:
            return execute(sql, params, many, context)
        except OperationalError as error:
            waited = time.monotonic() - began
            if BUSY.isdisjoint(codes(error)) or waited >= patience:
                raise
        time.sleep(random.uniform(0.5, 1.5) * _pause(waited))


def _pause(waited: float) -> float:
    return max(OFTEN / (1 + SOONER * waited), SOONEST)


def _of_many(patience: float, execute: Callable[..., Any], *statement: Any) -> Any:
    """Of several statements some may have been done: none of these is tried again."""
    connection = statement[-1]["connection"]
    _wait_itself(connection, patience)
    try:
        return execute(*statement)
    finally:
        _wait_itself(connection, 0)


def limit_here(connection: BaseDatabaseWrapper) -> None:
    """For the transaction that begins, where the connection is another's in the next."""
    if connection.vendor == "postgresql" and _is_shared(connection):
        _execute(connection, POSTGRESQL, here="true")


def _is_shared(connection: BaseDatabaseWrapper) -> bool:
    """Whether a pool gives it to the project's code too, be it psycopg's or PgBouncer."""
    given = connection.settings_dict
    return bool(given["OPTIONS"].get("pool") or given.get("DISABLE_SERVER_SIDE_CURSORS"))


def _execute(connection: BaseDatabaseWrapper, statement: str, **words: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement.format(locked=LOCKED, idle=IDLE, **words))


def codes(error: BaseException) -> set[object]:
    """What the database calls an error, whichever database it is."""
    cause = error.__cause__
    found = (getattr(cause, name, None) for name in ("sqlstate", "sqlite_errorname"))
    return {*found, *(error.args[:1] if isinstance(error, Error) else ())} - {None}


def unlocked(found: models.QuerySet[Any]) -> models.QuerySet[Any]:
    """Of these rows those that nobody has locked. Their locks are taken, and none waited for.

    Where the database cannot tell (SQLite has one lock), all of them.
    """
    if not connections[found.db].features.has_select_for_update_skip_locked:
        return found
    free = found.select_for_update(skip_locked=True).values_list("pk", flat=True)
    return found.filter(pk__in=list(free))
