"""
Databases that cannot be reached: one log message when one goes away, and one when it is back.

Every thread keeps connections of its own, and a failover breaks all of them. So after the first
that is found broken each thread tests its connections before its next job.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from django.db import DEFAULT_DB_ALIAS, InterfaceError, InternalError, OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.db.utils import DatabaseErrorWrapper
from django.dispatch import receiver

# The loggers of the package, which may be configured one by one.
LOGGER_NAMES = (
    "django_mcp", "django_mcp.calls", "django_mcp.storage", "django_mcp.oauth",
    "django_mcp.sessions",
)  # fmt: skip
logger = logging.getLogger("django_mcp")
# A server that is read-only during a failover accepts connections and rejects statements. So it
# counts as back only when nothing has failed for this long.
SETTLED_SECONDS = 1.0
# The methods of Django in which a connection is opened. Receivers of ``connection_created`` run
# outside of them, and may be the code of the project.
OPENING = ("get_new_connection", "set_autocommit", "init_connection_state")


def alias_of(error: BaseException) -> str | None:
    """Return the alias of the database connection that raised ``error``, or None.

    Django's errors do not name it, so this searches the frames of the traceback.
    """
    found, frames = None, error.__traceback__
    while frames is not None:
        raising = frames.tb_frame.f_locals.get("self")
        if isinstance(raising, DatabaseErrorWrapper):
            connection: BaseDatabaseWrapper = vars(raising)["wrapper"]
            found = connection.alias
        frames = frames.tb_next
    return found


def is_lost(error: BaseException) -> bool:
    """Whether the connection that raised ``error`` was unusable then, or could not be opened."""
    if getattr(error, "_connection_is_lost", False):
        return True
    frames = error.__traceback__
    while frames is not None:
        frame = frames.tb_frame
        is_opening = frame.f_code.co_name in OPENING
        if is_opening and isinstance(frame.f_locals.get("self"), BaseDatabaseWrapper):
            return True
        frames = frames.tb_next
    return False


class ConnectionTester(DatabaseErrorWrapper):
    """Test the connection when it raises an error, in the thread that has the connection.

    Later it is too late: when the error leaves its transaction, Django closes a broken connection,
    and a connection that the tool closed looks the same.
    """

    def __exit__(self, exc_type: Any, *details: Any) -> None:
        if exc_type is None:  # for each statement of the project
            return
        try:
            super().__exit__(exc_type, *details)
        except (InterfaceError, InternalError, OperationalError) as error:
            connection: BaseDatabaseWrapper = vars(self)["wrapper"]
            vars(error)["_connection_is_lost"] = _is_broken(connection)
            raise


@receiver(connection_created)
def _test_on_errors(connection: Any, **kwargs: Any) -> None:
    # A third-party backend may have a wrapper or a property of its own. Do not replace these.
    wrapper = connection.wrap_database_errors
    if type(wrapper) is DatabaseErrorWrapper and "wrap_database_errors" in vars(connection):
        connection.wrap_database_errors = ConnectionTester(connection)


def _is_broken(connection: Any) -> bool:
    """Whether the connection does not work, although the project's code has not closed it."""
    driver = connection.connection
    if driver is None or connection.closed_in_transaction:
        return False  # the project closed it, and then used a cursor of it
    if connection.vendor == "postgresql":
        # psycopg knows it. Django's test is a query, which fails in a transaction that has failed.
        return bool(driver.closed)
    if connection.vendor != "mysql":
        return not connection.is_usable()
    try:
        # Not Django's test: it makes PyMySQL reconnect, and the statements that follow would run
        # outside of the transaction.
        driver.ping(False)
    except Exception:
        return True
    return False


class OutageLog:
    """The unreachable databases of this process. Threads of all pools report here.

    Without the lock several of them would log the same outage. It is held only for dict operations.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Last failure of each unreachable database, by alias. Every job reads it, without the lock.
        self.failed: dict[str, float] = {}
        self._since: dict[str, float] = {}  # first failure of each
        self._breaks = 0
        self.has_breaks = False  # whether any database has been unreachable so far
        self._tested = threading.local()  # ``_breaks`` when a thread last tested its connections

    def note_break(self, error: BaseException, alias: str | None = None) -> None:
        """Record that a database could not be reached. Log it once until it is back.

        ``alias`` is used if ``error`` does not lead to a connection.
        """
        name, now = alias_of(error) or alias or DEFAULT_DB_ALIAS, time.monotonic()
        with self._lock:
            self._breaks += 1
            self.has_breaks = True
            is_known, self.failed[name] = name in self.failed, now
            self._since.setdefault(name, now)
        if not is_known:
            first = str(error).strip().partition("\n")[0] or type(error).__name__
            logger.error("Database cannot be reached: database=%s error=%s", name, first)

    def forget(self) -> None:
        """Forget all outages, as in a new process."""
        with self._lock:
            self.failed.clear()
            self._since.clear()

    def are_doubtful(self) -> bool:
        """Whether this thread must test its connections. True once per thread after a break."""
        is_tested = getattr(self._tested, "breaks", 0) == self._breaks
        self._tested.breaks = self._breaks
        return not is_tested

    def note_success(self, connection: Any) -> None:
        """Record that a job ended. If its connection works, the database is back; log that."""
        alias = connection.alias
        if alias not in self.failed or connection.connection is None or connection.errors_occurred:
            return
        with self._lock:
            now = time.monotonic()
            if alias not in self.failed or now - self.failed[alias] < SETTLED_SECONDS:
                return
            del self.failed[alias]
            seconds = now - self._since.pop(alias)
        logger.warning("Database can be reached again: database=%s outage=%.1fs", alias, seconds)


outage_log = OutageLog()
note_break, note_success = outage_log.note_break, outage_log.note_success
are_doubtful, forget = outage_log.are_doubtful, outage_log.forget


def close_unusable_connections(*, is_after_job: bool = False) -> None:
    """Close unusable connections of this thread, and transactions that a job has left open."""
    are_doubtful = outage_log.has_breaks and outage_log.are_doubtful()
    for connection in connections.all(initialized_only=True):
        try:
            # A job left a transaction open. The next job must not run in it, and its locks would
            # never be released.
            if connection.in_atomic_block:
                connection.close()
                del connections[connection.alias]
                continue
            if are_doubtful:
                connection.errors_occurred = True  # makes Django test the connection
            elif is_after_job and outage_log.failed:
                outage_log.note_success(connection)
            connection.close_if_unusable_or_obsolete()
        except Exception:
            logger.exception("A broken connection could not be closed, and is dropped")
            del connections[connection.alias]
