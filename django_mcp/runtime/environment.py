"""
How this process runs jobs, and what runs in the background.

``environment()`` returns the object that decides it. In production that is an ``Environment``. Test
cases install a ``django_mcp.testing.environment.TestEnvironment``, in which all code uses the
database connections of the test. Code that depends on it asks for a capability, such as
``environment().has_background_services``.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
from collections.abc import Callable
from typing import Any, TypeVar

from django.db import connections

from . import outages

T = TypeVar("T")
logger = logging.getLogger("django_mcp")
# Exceptions that the waiting event loop or coroutine would take for its own: it would stop, or
# count as cancelled.
_MISLEADING = (
    StopIteration, SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError,
    concurrent.futures.CancelledError,
)  # fmt: skip


class Environment:
    """Threads have database connections of their own, and background services run."""

    # Whether polling, heartbeats, permission checks and background jobs run.
    has_background_services = True
    # Whether several jobs run at the same time. If not, a job must not wait for another.
    runs_jobs_in_parallel = True
    # Whether other processes use the same rows. If not, changes need no change log, caches are
    # invalidated by signals alone, and the clock of this machine is the only one.
    shares_database = True

    def is_shared(self, connection: Any) -> bool:
        """Whether other processes can see what this connection writes.

        ``django.test.TestCase`` rolls back its transaction, whether or not it uses this package.
        """
        blocks = connection.atomic_blocks
        return not any(getattr(block, "_from_testcase", False) for block in blocks)

    def run_job(self, function: Callable[[], T]) -> T:
        """Run a job in this thread of a pool. Close broken connections before and after it."""
        close_unusable_connections()
        try:
            return call_safely(function)
        finally:
            close_unusable_connections(is_after_job=True)

    def run_orm(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Run ORM code of an asynchronous call in this thread, which belongs to the call."""
        return call_safely(function, *args, **kwargs)

    def release_connections(self) -> None:
        """Close this thread's connections without a transaction, or return them to their pool.

        Connections that ``CONN_MAX_AGE`` keeps stay open.
        """
        for connection in connections.all(initialized_only=True):
            if not connection.in_atomic_block:
                connection.close_if_unusable_or_obsolete()

    def discard_connections(self) -> None:
        """Close this thread's connections, because they may be broken or are not needed again."""
        connections.close_all()


# The last one is in use. Only tests add others.
_installed = [Environment()]


def environment() -> Environment:
    """Return the environment in use. May be called from any thread."""
    return _installed[-1]


def install(installed: Environment) -> None:
    """Use this environment until ``uninstall`` is called."""
    _installed.append(installed)


def uninstall(installed: Environment) -> None:
    _installed.remove(installed)


def call_safely(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Call ``function``, and turn exceptions that would stop the event loop into RuntimeError."""
    try:
        return function(*args, **kwargs)
    except _MISLEADING as error:
        raise RuntimeError(f"The code raised {type(error).__name__}.") from error


def close_unusable_connections(*, is_after_job: bool = False) -> None:
    """Close unusable connections of this thread, and transactions that a job has left open."""
    are_doubtful = outages.are_doubtful()
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
            elif is_after_job and outages.outage_log.failed:
                outages.note_success(connection)
            connection.close_if_unusable_or_obsolete()
        except Exception:
            logger.exception("A broken connection could not be closed, and is dropped")
            del connections[connection.alias]
