"""Access to the session database: its clock, lock timeouts, transactions and small query helpers.

Clock: ``now`` is the time of the database, for everything that one process writes and another
compares (deadlines, ``last_seen``, retention). It is read once a minute and counted on by a
monotonic clock, so a process with a wrong clock expires nothing early. SQLite has no clock: its
processes share a machine and use the machine's clock.

Timeouts: a process that stops in a transaction must not stop the others. Connections of this app's
threads wait at most 1 second for a lock, and the job is retried. The database ends a transaction
that is idle for 10 seconds. The project's connections are not changed, except to a SQLite file
that belongs to this app alone, where all connections wait in the same way.

Transactions: each begins with the statement that takes its lock, and locks are taken in one order:
session, call, streams by id. ``one_transaction`` retries after a deadlock or serialization failure.
Locks are taken by UPDATE and not by ``SELECT ... FOR UPDATE``, which SQLite ignores.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from django.conf import settings as project
from django.db import (
    DEFAULT_DB_ALIAS,
    Error,
    OperationalError,
    connections,
    models,
    router,
    transaction,
)
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.dispatch import receiver
from django.utils import timezone

from ..conf import settings
from ..runtime import threads
from ..runtime.runtime import environment

ROWS_PER_BATCH = 500  # that ``delete_in_batches`` deletes
CLOCK_READ_INTERVAL_SECONDS = 60.0  # between two readings of the database's clock
CLOCK_STATEMENTS = {
    "postgresql": "SELECT EXTRACT(EPOCH FROM clock_timestamp())",
    "mysql": "SELECT UNIX_TIMESTAMP(NOW(6))",  # in whatever time zone
}
# Whether the package itself, and not the code of the project, makes the queries of this context.
makes_own_queries: ContextVar[bool] = ContextVar("django_mcp_makes_own_queries", default=False)


@contextmanager
def own_queries() -> Iterator[None]:
    """Leave the queries of this block out of the numbers of the call during which they are made."""
    token = makes_own_queries.set(True)
    try:
        yield
    finally:
        makes_own_queries.reset(token)


class DatabaseClock:
    """The time of the session database, read once a minute.

    Threads may read it at the same time: each reading is right, and the last one stays.
    """

    def __init__(self) -> None:
        self._offset = 0.0  # seconds since the epoch minus the monotonic clock, when last read
        self._read_again_at = 0.0  # monotonic clock

    def now(self) -> datetime:
        """Return the time of the session database. Call it in a thread that may run queries."""
        connection = connections[settings.DATABASE]
        if connection.vendor not in CLOCK_STATEMENTS or not environment().is_shared():
            return timezone.now()
        if time.monotonic() >= self._read_again_at:
            self._read(connection)
        epoch = time.monotonic() + self._offset
        return datetime.fromtimestamp(epoch, UTC if project.USE_TZ else None)

    def _read(self, connection: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute(CLOCK_STATEMENTS[connection.vendor])
            (epoch,) = cursor.fetchone()
        self._offset = float(epoch) - time.monotonic()
        self._read_again_at = time.monotonic() + CLOCK_READ_INTERVAL_SECONDS


clock = DatabaseClock()
now = clock.now


LOCK_TIMEOUT_SECONDS = 1
IDLE_TIMEOUT_SECONDS = 10  # for the next statement of a transaction
# Error codes of a lock timeout in PostgreSQL, MariaDB and SQLite.
LOCKS = frozenset(("55P03", 1205, "SQLITE_BUSY", "SQLITE_LOCKED"))
POSTGRESQL_TIMEOUTS = (
    "SELECT set_config('lock_timeout', '{locked}s', {here}),"
    " set_config('idle_in_transaction_session_timeout', '{idle}s', {here})"
)
MARIADB_TIMEOUTS = (
    "SET SESSION innodb_lock_wait_timeout = {locked}, idle_transaction_timeout = {idle}"
)
# SQLite's busy handler polls for the lock only ten times a second after a while, so a connection
# may wait for seconds while others write. If only the beginning of a transaction can wait, this
# module polls instead. There is no queue: a connection polls more often the longer it has waited,
# so that no heartbeat comes too late.
FIRST_PAUSE_SECONDS, MIN_PAUSE_SECONDS = 0.01, 0.001  # both randomized
PAUSE_DECREASE = 10  # the pause is FIRST_PAUSE_SECONDS / (1 + PAUSE_DECREASE * seconds waited)
BUSY = frozenset(("SQLITE_BUSY", "SQLITE_BUSY_RECOVERY"))
# With this journal mode and these transaction modes, only the BEGIN of a transaction waits.
WAL, LOCKING_MODES = "wal", ("IMMEDIATE", "EXCLUSIVE")


@receiver(connection_created)
def _set_timeouts(connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
    """Set the timeouts of a new connection, once, if it is one of this app."""
    is_session_database = connection.alias == settings.DATABASE
    if is_session_database and connection.vendor == "sqlite" and _only_begin_waits(connection):
        _set_busy_timeout(connection, 0)
        # The wrapper stays when the connection reconnects. It is inserted first, because Django's
        # ``execute_wrapper`` removes the last one.
        if _retry_while_locked not in connection.execute_wrappers:
            connection.execute_wrappers.insert(0, _retry_while_locked)
    is_ours = is_session_database and threads.is_session_thread()
    if not (is_ours or threads.is_change_thread()):
        return
    if connection.vendor == "postgresql" and not _is_pooled(connection):
        _execute(connection, POSTGRESQL_TIMEOUTS, here="false")
    elif getattr(connection, "mysql_is_mariadb", False):
        _execute(connection, MARIADB_TIMEOUTS)


def _only_begin_waits(connection: Any) -> bool:
    """Whether it is a SQLite file of this app alone, where only BEGIN waits for locks."""
    if connection.alias == DEFAULT_DB_ALIAS or connection.transaction_mode not in LOCKING_MODES:
        return False
    with connection.cursor() as cursor:
        return bool(cursor.execute("PRAGMA journal_mode").fetchone()[0] == WAL)


def _set_busy_timeout(connection: Any, seconds: float) -> None:
    connection.connection.execute(f"PRAGMA busy_timeout = {1000 * seconds:.0f}")


def _retry_while_locked(
    execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]
) -> Any:
    """Execute a statement, and retry it while the database is locked, up to OPTIONS["timeout"]."""
    timeout = context["connection"].settings_dict["OPTIONS"].get("timeout", 5.0)
    if many:
        # A retry could insert some rows of ``executemany`` twice. So SQLite waits by itself here.
        _set_busy_timeout(context["connection"], timeout)
        try:
            return execute(sql, params, many, context)
        finally:
            _set_busy_timeout(context["connection"], 0)
    began = time.monotonic()
    while True:
        try:
            return execute(sql, params, many, context)
        except OperationalError as error:
            waited = time.monotonic() - began
            if BUSY.isdisjoint(codes(error)) or waited >= timeout:
                raise
        time.sleep(random.uniform(0.5, 1.5) * _pause(waited))


def _pause(waited: float) -> float:
    return max(FIRST_PAUSE_SECONDS / (1 + PAUSE_DECREASE * waited), MIN_PAUSE_SECONDS)


def _set_local_timeouts(connection: BaseDatabaseWrapper) -> None:
    """Set PostgreSQL's timeouts for this transaction only, if the connection is of a shared pool.

    Timeouts of the whole connection would stay set when the project's code gets it.
    """
    if _is_pooled(connection):
        _execute(connection, POSTGRESQL_TIMEOUTS, here="true")


def _is_pooled(connection: BaseDatabaseWrapper) -> bool:
    """Whether a pool also gives the connection to the project's code: psycopg's, or PgBouncer."""
    given = connection.settings_dict
    return bool(given["OPTIONS"].get("pool") or given.get("DISABLE_SERVER_SIDE_CURSORS"))


def _execute(connection: BaseDatabaseWrapper, statement: str, **values: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            statement.format(locked=LOCK_TIMEOUT_SECONDS, idle=IDLE_TIMEOUT_SECONDS, **values)
        )


def codes(error: BaseException) -> set[object]:
    """Return the error codes of a database error, for all databases."""
    cause = error.__cause__
    found = (getattr(cause, name, None) for name in ("sqlstate", "sqlite_errorname"))
    return {*found, *(error.args[:1] if isinstance(error, Error) else ())} - {None}


def unlocked(queryset: models.QuerySet[Any]) -> models.QuerySet[Any]:
    """Return the rows that are not locked, and lock them without waiting (SKIP LOCKED).

    Return all of them if the database does not support that (SQLite has one lock).
    """
    if not connections[queryset.db].features.has_select_for_update_skip_locked:
        return queryset
    free = queryset.select_for_update(skip_locked=True).values_list("pk", flat=True)
    return queryset.filter(pk__in=list(free))


P = ParamSpec("P")
T = TypeVar("T")
M = TypeVar("M", bound=models.Model)

MAX_ATTEMPTS = 5
# Before a retry. Randomized, so that of two colliding transactions one goes first.
RETRY_SECONDS = 0.05
# Error codes of a missing table and column, in PostgreSQL and MariaDB. SQLite has no codes.
MISSING = frozenset(("42P01", "42703", 1146, 1054))
# Error codes of a serialization failure and a deadlock, in PostgreSQL and MariaDB.
COLLISIONS = frozenset(("40001", "40P01", 1213, 1020))


def rows(model: type[M]) -> models.QuerySet[M]:
    """Return the rows of a model in the session database."""
    return model._default_manager.using(settings.DATABASE)


def is_there(alias: str) -> bool:
    """Whether the database exists. Connecting would create a SQLite file."""
    connection: Any = connections[alias]
    is_file = connection.vendor == "sqlite" and not connection.is_in_memory_db()
    if not is_file or connection.connection is not None:
        return True
    name = str(connection.get_connection_params()["database"])
    return name.startswith("file:") or Path(name).exists()  # by a URI a file need not be made


def is_unmigrated(error: BaseException) -> bool:
    """Whether an error says that a table or column is missing, so that ``migrate`` must run."""
    is_sqlite = codes(error) & {"SQLITE_ERROR"}
    text = str(error)
    is_missing = text.startswith(("no such table", "no such column")) or "has no column" in text
    return bool(codes(error) & MISSING) or bool(is_sqlite and is_missing)


def is_locked(error: BaseException) -> bool:
    """Whether an error says that another transaction holds a lock, for longer than the timeout."""
    # SQLite has further codes of the two errors, such as SQLITE_BUSY_SNAPSHOT.
    is_busy = any(str(one).startswith(("SQLITE_BUSY", "SQLITE_LOCKED")) for one in codes(error))
    return is_busy or bool(codes(error) & LOCKS)


def one_transaction(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function to run in one transaction, and to retry after a deadlock.

    It also retries after a serialization failure, at most ``MAX_ATTEMPTS`` attempts in all. Within
    a transaction of the caller it runs in a savepoint and does not retry.
    """

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        connection = transaction.get_connection(settings.DATABASE)
        is_nested = connection.in_atomic_block

        def attempt() -> T:
            with transaction.atomic(using=settings.DATABASE):
                if not is_nested and connection.vendor == "postgresql":
                    _set_local_timeouts(connection)
                return function(*args, **kwargs)

        return retry_collisions(attempt, settings.DATABASE)

    return run


def retry_collisions(attempt: Callable[[], T], alias: str) -> T:
    """Return what ``attempt`` returns, which opens its own transaction. Repeat it after a deadlock.

    It also repeats it after a serialization failure, at most ``MAX_ATTEMPTS`` attempts in all.
    Within a transaction of the caller it makes one attempt only: the caller must retry.
    """
    # After a collision the whole transaction of the caller is lost, so a retry of this part alone
    # would lose the other part.
    attempts = 1 if transaction.get_connection(alias).in_atomic_block else MAX_ATTEMPTS
    while True:
        attempts -= 1
        try:
            return attempt()
        except OperationalError as error:
            if not attempts or COLLISIONS.isdisjoint(codes(error)):
                raise
        time.sleep(random.uniform(0.5, 1.5) * RETRY_SECONDS)


def erase(queryset: models.QuerySet[Any]) -> int:
    """Delete rows without fetching them and without signals. Return how many.

    Rows that refer to them must be deleted before.
    """
    return int(queryset._raw_delete(settings.DATABASE) or 0)


def delete_in_batches(found: models.QuerySet[Any]) -> int:
    """Delete rows of a database of the project, with signals. Return how many.

    Each batch is committed alone, so that nothing waits long for the locks.
    """
    alias, count = router.db_for_write(found.model), 0
    # Not from a replica, which may still have the rows: the loop would delete them again.
    found, rows = found.using(alias), found.model._base_manager.using(alias)
    while pks := list(found.values_list("pk", flat=True)[:ROWS_PER_BATCH]):
        count += rows.filter(pk__in=pks).delete()[0]
    return count


def digest_of(text: str) -> str:
    """Return the SHA-256 of a text as hex digits, to look it up by.

    Databases disagree on which texts are equal (case, accents, trailing spaces).
    """
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
