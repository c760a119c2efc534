"""
A test's own connections, on which all jobs run while it lasts.

Under a ``TestCase`` the test's own connections, inside its transaction, are
the only ones that see its rows.

Rule: jobs run on them one at a time, whatever threads they are in, and commit
hooks run after each, as the end of a request would.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from asgiref.sync import SyncToAsync
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

logger = logging.getLogger("django_mcp")
_turn = threading.RLock()
_adopted: dict[str, BaseDatabaseWrapper] = {}
# Called when a test's connections are given back: what was read through them is gone.
ended: list[Callable[[], None]] = []
PATIENCE = 10  # seconds for the last job of a test to end


@contextmanager
def adopt(stand_in: Any, given: Iterable[BaseDatabaseWrapper] | None = None) -> Iterator[None]:
    """Run every job on the caller's connections until the block ends.

    ``stand_in`` is an executor, where an asynchronous test, outside of any call, is sent with
    its ORM.
    """
    mine = list(connections.all() if given is None else given)
    before = dict(_adopted)
    for connection in mine:
        connection.inc_thread_sharing()
    _adopted.update({connection.alias: connection for connection in mine})
    shared, SyncToAsync.single_thread_executor = SyncToAsync.single_thread_executor, stand_in
    try:
        yield
    finally:
        SyncToAsync.single_thread_executor.shutdown(wait=False)
        SyncToAsync.single_thread_executor = shared
        is_done = _turn.acquire(timeout=PATIENCE)
        _adopted.clear()
        _adopted.update(before)
        for connection in mine:
            connection.dec_thread_sharing()
        for hook in ended:
            hook()
        if not is_done:
            raise RuntimeError("A job is still running at the end of the test.")
        _turn.release()


def is_adopted() -> bool:
    """Whether jobs run on a test's connections, within its transaction."""
    return bool(_adopted)


@contextmanager
def borrowed() -> Iterator[None]:
    """In a test, this thread's connections are the test's, for one job."""
    if not _adopted:
        yield
        return
    with _turn:
        own = {c.alias: c for c in connections.all(initialized_only=True)}
        lent = dict(_adopted)
        marks = {alias: len(c.run_on_commit) for alias, c in lent.items()}
        for alias, connection in lent.items():
            connections[alias] = connection
        try:
            yield
        finally:
            try:
                _run_commit_hooks(lent, marks)
            finally:
                for alias in lent:
                    _restore(alias, own.get(alias))


def _run_commit_hooks(lent: dict[str, BaseDatabaseWrapper], marks: dict[str, int]) -> None:
    """What the job, or another hook, wants done after the commit."""
    for alias, mark in marks.items():
        while len(lent[alias].run_on_commit) > mark:
            entry: Any = lent[alias].run_on_commit.pop(mark)  # (savepoints, hook, robust)
            _run_hook(entry[1], robust=entry[2])


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
