"""
The environment of a test: all code uses the test's own database connections.

In a ``TestCase`` only these connections see the rows of the test, which are in an open transaction.
Jobs of all threads run on them one at a time. After each job its ``on_commit`` hooks run, as they
would after a request. Nothing runs in the background: its queries would come at random times.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from asgiref.sync import SyncToAsync
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from ..auth import kill_switches
from ..runtime import threads
from ..runtime.async_orm import CallThread
from ..runtime.runtime import Environment, call_safely, environment, install, uninstall
from ..storage.leases import lease

T = TypeVar("T")
logger = logging.getLogger("django_mcp")
LAST_JOB_TIMEOUT_SECONDS = 10  # for which the end of a test waits for its last job


class TestEnvironment(Environment):
    """Run every job on the connections of the thread that installs it."""

    __test__ = False  # pytest must not collect it
    runs_jobs_in_parallel = False

    # A database connection must not be used by two threads at once. A commit hook may run another
    # job in the same thread, so the lock is reentrant. Nested environments use the same lock.
    _lock = threading.RLock()

    def __init__(self, given: Iterable[BaseDatabaseWrapper] | None = None) -> None:
        """``given`` are the connections; by default, all of the thread."""
        self._given = given
        self._connections: dict[str, BaseDatabaseWrapper] = {}

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Use this environment until the block ends.

        Raise ``RuntimeError`` if a job is still running then.
        """
        own = list(connections.all() if self._given is None else self._given)
        outer = environment()
        if isinstance(outer, TestEnvironment):
            self._connections.update(outer._connections)
        self._connections.update({connection.alias: connection for connection in own})
        for connection in own:
            connection.inc_thread_sharing()
        # The ORM of asynchronous code outside of calls, such as that of the test itself.
        stand_in: Any = CallThread()
        shared, SyncToAsync.single_thread_executor = SyncToAsync.single_thread_executor, stand_in
        lease.abandon()  # the test must not depend on a row from before it
        install(self)
        try:
            yield
        finally:
            SyncToAsync.single_thread_executor.shutdown(wait=False)
            SyncToAsync.single_thread_executor = shared
            is_idle = self._lock.acquire(timeout=LAST_JOB_TIMEOUT_SECONDS)
            uninstall(self)
            for connection in own:
                connection.dec_thread_sharing()
            _forget_rows()
            if not is_idle:
                raise RuntimeError("A job is still running at the end of the test.")
            self._lock.release()

    def start_background(self, function: Callable[[], object]) -> None:
        """Do nothing: its queries would come at random times."""

    def is_shared(self, connection: Any = None) -> bool:
        return False

    def run_job(self, function: Callable[[], T]) -> T:
        return self.run_orm(function)

    def run_orm(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        with self._lock:
            if environment() is self:
                with self._lent_connections():
                    return call_safely(function, *args, **kwargs)
        # The test has ended, or installed another environment, while this job waited.
        return environment().run_job(partial(function, *args, **kwargs))

    def release_connections(self) -> None:
        """Do nothing: a closed connection would roll back the test's transaction."""

    def discard_connections(self) -> None:
        """Do nothing, for the same reason."""

    @contextmanager
    def _lent_connections(self) -> Iterator[None]:
        """Replace this thread's connections by the test's, for one job."""
        own = {c.alias: c for c in connections.all(initialized_only=True)}
        # Hooks beyond these positions are the job's. Those before are the test's own.
        marks = {alias: len(c.run_on_commit) for alias, c in self._connections.items()}
        for alias, connection in self._connections.items():
            connections[alias] = connection
        try:
            yield
        finally:
            try:
                self._run_commit_hooks(marks)
            finally:
                for alias in self._connections:
                    _restore(alias, own.get(alias))

    def _run_commit_hooks(self, marks: dict[str, int]) -> None:
        """Run the commit hooks that the job has registered, and those that these register."""
        for alias, mark in marks.items():
            while len(self._connections[alias].run_on_commit) > mark:
                entry: Any = self._connections[alias].run_on_commit.pop(mark)
                _run_hook(entry[1], robust=entry[2])  # of (savepoints, hook, robust)


def _forget_rows() -> None:
    """Discard the values that this process has cached from rows. The test rolls the rows back."""
    kill_switches.forget()
    lease.abandon()


def _run_hook(hook: Callable[[], object], *, robust: bool) -> None:
    try:
        hook()
    except Exception:
        if not robust:
            raise
        logger.exception("A robust commit hook failed")


def _restore(alias: str, connection: BaseDatabaseWrapper | None) -> None:
    if connection is None:
        del connections[alias]
    else:
        connections[alias] = connection


def are_connections_free() -> bool:
    """Whether no job is running on a test's connections, so that the test may use them."""
    if not isinstance(environment(), TestEnvironment):
        return True
    pools = threads.lookups, threads.log, threads.polling, threads.changes, threads.background
    return not any(pool.pending() for pool in pools)


def wait_for_jobs(seconds: float = 10) -> None:
    """Wait until no job uses the test's connections, at most ``seconds``, as a tool may hang."""
    end = time.monotonic() + seconds
    while not are_connections_free() and time.monotonic() < end:
        time.sleep(0.0005)
