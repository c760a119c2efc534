"""
Cache of kill switches: the declarations and servers that administrators have switched off.

Call ``arefresh`` (event loop) or ``refresh`` (thread) before ``is_off``. They run one query if the
cache is older than half a second. If the database cannot be read, the cache stays valid. If it
never could be read, the error is raised, so that nothing can be used. Changes of switches in this
process are visible at once.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from time import monotonic
from typing import Any

from django.db import DatabaseError

from ..runtime import threads
from ..runtime.runtime import Service, environment

CACHE_SECONDS = 0.5  # for which the cache is valid
NEVER = float("-inf")
EVERYTHING = ""  # the name of a whole server's switch
logger = logging.getLogger("django_mcp")
Off = frozenset[tuple[str, str]]  # the server's name, and the thing's

# Functions that read the switches. The app fills this list when it is ready.
source: list[Callable[[], Off]] = []


class PendingRead:
    """The query of one event loop that refreshes the cache. All tasks that wait share it."""

    task: asyncio.Task[None] | None = None


_pending_read = Service(PendingRead)


class SwitchCache:
    """The cache of this process. Reading it needs no lock.

    ``_lock`` is held during the query: when the cache expires, one of many threads runs it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.forget()

    def forget(self) -> None:
        """Empty the cache."""
        self._off: Off = frozenset()
        self._until, self._is_changed = NEVER, False

    def is_off(self, server: str, thing: str) -> bool:
        """Whether a thing or its server is switched off, according to the cache."""
        off = self._off
        return bool(off) and ((server, thing) in off or (server, EVERYTHING) in off)

    async def arefresh(self) -> None:
        """Update the cache if it is stale, by one query in a thread for all tasks of this loop."""
        while self._is_stale():  # a switch may have changed during the query: then read again
            pending = _pending_read()
            if pending.task is None or pending.task.done():
                read = threads.lookups.run(self.refresh)
                pending.task = asyncio.get_running_loop().create_task(read)
            # A cancelled waiter must not cancel the query of the others.
            await asyncio.shield(pending.task)
            # Do not compare the time again. If the loop resumes this task late, the cache has
            # expired, and under load it would query for ever.
            if not self._is_changed:
                return

    def refresh(self) -> None:
        """Update the cache if it is stale. Call it in a thread that may run queries."""
        if not self._is_changed and monotonic() < self._until:
            return
        with self._lock:
            if self._is_stale():
                self._read()

    def mark_stale(self, **kwargs: Any) -> None:
        """Mark the cache as stale, because a switch was changed in this process."""
        self._is_changed = True

    def _is_stale(self) -> bool:
        # Other processes change switches without a signal in this one, so the cache expires.
        is_expired = monotonic() >= self._until and environment().shares_database
        return self._is_changed or is_expired

    def _read(self) -> None:
        # Before the query: a switch that changes during it must make the cache stale again.
        self._is_changed = False
        try:
            self._off = frozenset().union(*(known() for known in source))
        except DatabaseError:
            if self._until == NEVER:
                raise
            logger.exception("The kill switches cannot be read; the last ones stay in use")
        except (RuntimeError, AssertionError) as error:
            if not _is_guard(error):
                raise
        self._until = monotonic() + CACHE_SECONDS


def _is_guard(error: Exception) -> bool:
    """Whether pytest-django or Django rejected the query, because a test may use no database."""
    message, kinds = str(error), {kind.__name__ for kind in type(error).__mro__}
    return (
        message.startswith("Database access not allowed") or "DatabaseOperationForbidden" in kinds
    )


cache = SwitchCache()
is_off, refresh, arefresh = cache.is_off, cache.refresh, cache.arefresh
mark_stale, forget = cache.mark_stale, cache.forget
