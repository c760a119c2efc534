"""
Run database jobs for the event loop, and retry them while the database is busy or down.

``run_with_retries`` runs a job in a thread of the pool ``log`` and retries it until it succeeds. It
gives up if the database rejects the job's statement, or if the job fails 20 times while other jobs
succeed.

After a database error it may be unknown whether the job was committed. A job that must not be done
twice has a parameter ``is_retry``. The caller passes ``is_retry=False``, and ``run_with_retries``
changes it to True for all attempts after the first.

``is_away``, ``is_break`` and ``break_behind`` tell an outage from other database errors. A filter
of the logger keeps the tracebacks of outages out of the log.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, TypeGuard, TypeVar

from django.db import InterfaceError, InternalError, OperationalError

from ..conf import settings
from ..exceptions import Busy, LeaseDoubtful
from ..runtime import outages, threads
from ..runtime.runtime import environment
from ..runtime.thread_pools import JobResult
from .databases import COLLISIONS, LOCKS, codes

T = TypeVar("T")
logger = logging.getLogger("django_mcp.storage")
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.02, 1.0  # between two attempts
MAX_FAILURES = 20  # of one job while other jobs succeed, after which it is given up
RETRY_FOR_SECONDS = 60.0  # for which ``run_here_with_retries`` retries
BROKEN = (InterfaceError, InternalError, OperationalError)
# Codes of temporary errors: lock timeouts and collisions of all databases, and those of PostgreSQL
# (str) and MariaDB (int) for a server that is read-only during a failover, shuts down, or has too
# many connections.
TEMPORARY = LOCKS | COLLISIONS | {
    "25006", 1290, 1792, 1836, "57P01", "57P02", "57P03", 1053, 1927, "53300", 1040, 1203,
}  # fmt: skip
# Codes of errors that a retry cannot mend: SQLite's error for wrong SQL and for missing tables, and
# limits of a statement or packet.
REJECTED_STATEMENT = frozenset(("SQLITE_ERROR", "54000", "54001", 1153))
# PostgreSQL's error classes of an outage: no connection, no resources, shutdown, system error.
OUTAGE_CLASSES = ("08", "53", "57", "58")
# Of these classes, no outage: a statement was cancelled, for example by a timeout of the project.
CANCELED = "57014"
# Of these classes, errors that a statement causes: it exceeds a configured limit, or names a file.
OF_STATEMENTS = frozenset(("53400", "58P01", "58P02"))


class JobCounts:
    """Counts of the jobs of ``run_with_retries``: failed attempts, and jobs that succeeded.

    After a failure it is unknown what was committed.

    Only event loops change these counters, without a lock. With several loops an increment may be
    lost, which does no harm: a count is only compared with an earlier one.
    """

    def __init__(self) -> None:
        self.failures = self.successes = 0


counts = JobCounts()


async def run_with_retries(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Run ``function`` in a thread of the pool ``log``, and retry while the database is down.

    Return what it returns. If ``is_retry=False`` is among the arguments, attempts after the first
    pass ``is_retry=True``. ``Busy`` raised by ``function`` is not retried. Raise the database error
    if this job keeps failing while others succeed.
    """
    pause, budget = FIRST_PAUSE_SECONDS, RetryBudget()
    while True:
        try:
            outcome = await threads.log.run(_job_result, function, args, kwargs)
        except Busy:
            pass  # the queue of the pool is full: the job has not started
        except BROKEN as error:
            if not budget.allows_retry(error):
                raise
            if is_break(error):
                outages.note_break(error, settings.DATABASE)
            elif isinstance(error, LeaseDoubtful):  # a consequence of an outage
                logger.debug("The lease may have expired; a job of the session database is retried")
            else:
                logger.warning("The session database is busy; the job is retried: %s", error)
            counts.failures += 1
            if "is_retry" in kwargs:
                kwargs["is_retry"] = True
        else:
            counts.successes += 1
            return outcome.get()
        await asyncio.sleep(pause)
        pause = min(2 * pause, MAX_PAUSE_SECONDS)


def run_here_with_retries(function: Callable[..., T], *args: Any) -> T:
    """Run ``function`` in this thread, and retry for up to a minute while the database is down.

    Use it for idempotent functions only: a failed attempt may have been committed.
    """
    pause, budget = FIRST_PAUSE_SECONDS, RetryBudget()
    until = time.monotonic() + RETRY_FOR_SECONDS
    while True:
        try:
            return run_or_disconnect(function, *args)
        except BROKEN as error:
            if not budget.allows_retry(error) or time.monotonic() >= until:
                raise
        time.sleep(pause)
        pause = min(2 * pause, MAX_PAUSE_SECONDS)


class RetryBudget:
    """The retry budget of one job."""

    def __init__(self) -> None:
        self._left, self._successes = MAX_FAILURES, counts.successes

    def allows_retry(self, error: Exception) -> bool:
        """Count this failure, and return whether to retry."""
        found = codes(error)
        if found & TEMPORARY:
            return True
        others = counts.successes - self._successes
        self._successes = counts.successes
        self._left -= others > 0
        return self._left > 0 and not found & REJECTED_STATEMENT


def is_away(error: Exception) -> bool:
    """Whether an error means that a database is unavailable or busy, and not a wrong query.

    Error codes of the server decide. An error without one is raised by the driver. It may be a
    broken connection or a bug, such as the use of a closed cursor. Then the state of the connection
    at that time decides.
    """
    if not isinstance(error, BROKEN) or outages.alias_of(error) is None:
        return False  # not raised by a database connection of Django
    found = codes(error)
    if found & REJECTED_STATEMENT:
        return False  # for a packet that is too large MariaDB also closes the connection
    if found & TEMPORARY:
        return True
    state = getattr(error.__cause__, "sqlstate", None)
    # Drivers of MariaDB have this attribute too, with coarser classes: 08 is a statement that is
    # too long. Their errors have a number, which decides below.
    if state and not any(isinstance(one, int) for one in found):
        return bool(state.startswith(OUTAGE_CLASSES) and state not in {CANCELED, *OF_STATEMENTS})
    # SQLite may report that it cannot open a file at the first statement, not while connecting.
    if any(isinstance(one, str) and one.startswith("SQLITE_CANTOPEN") for one in found):
        return True
    # MariaDB: codes from 1000 to 1999 are errors of the server, the following ones of the client.
    is_server_error = any(isinstance(one, int) and 1000 <= one < 2000 for one in found)
    return not is_server_error and outages.is_lost(error)


def is_break(error: object) -> TypeGuard[Exception]:
    """Whether a connection broke or could not be opened, so that a retry makes sense.

    After a lock timeout or a deadlock the connection still works.
    """
    if not isinstance(error, BROKEN) or codes(error) & (LOCKS | COLLISIONS):
        return False
    return is_away(error)


def break_behind(error: object) -> Exception | None:
    """Return the outage that ``error`` is, or that is among its causes, or None."""
    checked: list[object] = []  # guards against a cycle: ``raise error from error``
    while isinstance(error, Exception) and error not in checked:
        if is_break(error):
            return error
        checked.append(error)
        error = error.__cause__
    return None


def _is_no_outage(record: logging.LogRecord) -> bool:
    """Logging filter that drops records about outages. ``outages`` logs one message instead."""
    errors: list[object] = [record.exc_info[1]] if isinstance(record.exc_info, tuple) else []
    errors += record.args if isinstance(record.args, tuple) else ()
    if (error := next(filter(None, map(break_behind, errors)), None)) is None:
        return True
    outages.note_break(error)
    return False


# A filter of a logger does not see the records of its children.
for name in outages.LOGGER_NAMES:
    logging.getLogger(name).addFilter(_is_no_outage)


def _job_result(function: Callable[..., T], args: Any, kwargs: Any) -> JobResult[T]:
    try:
        return JobResult(run_or_disconnect(function, *args, **kwargs))
    except Busy as error:
        return JobResult(error=error)


def run_or_disconnect(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Call ``function``. After a database error, close this thread's connections, and raise it.

    They may be broken. The next job opens a new one, maybe to another server after a failover. A
    lock timeout leaves the connection intact.
    """
    try:
        return function(*args, **kwargs)
    except BROKEN as error:
        if not codes(error) & LOCKS:
            environment().discard_connections()
        raise
