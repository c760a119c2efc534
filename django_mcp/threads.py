"""
The only place that runs synchronous code for asynchronous code.

Rule: each kind of work has threads of its own, so a pool full of stuck tools
still lets people in. The ORM of asynchronous code runs in one thread for each
call. Under a ``TestCase`` every job runs on the test's own connections.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, TypeVar

from asgiref.sync import AsyncToSync, SyncToAsync, ThreadSensitiveContext
from django.db.backends.base.base import BaseDatabaseWrapper

from . import adoption
from .adoption import borrowed, is_adopted
from .conf import settings
from .pools import Outcome, Pool, discard_connections, plainly, tended

__all__ = [
    "Outcome", "Pool", "adopt", "at_rest", "borrowed", "bounded", "changes", "discard_connections",
    "interests", "is_adopted", "is_ready", "issuers", "log", "looks", "lookups", "notes",
    "of_the_log", "sensitive", "stuck", "tools", "verifiers",
]  # fmt: skip

T = TypeVar("T")

lookups = Pool("lookup", lambda: 2)
tools = Pool("tool", lambda: int(settings.THREADS))
log = Pool("log", lambda: 4)  # of what is said to sessions: short jobs, on connections of their own
looks = Pool("look", lambda: 1)  # at what others did: however much is written, it goes on
verifiers = Pool("verify", lambda: int(settings.THREADS))  # of the project, asked by strangers
changes = Pool("change", lambda: 1)  # of rows, looked at beside them: it may wait for them
interests = Pool("interest", lambda: 1)  # who wants to know of changes: whoever saves waits for it
# What issuers of tokens say, elsewhere: it asks no database, and in a test keeps nobody from one.
issuers = ThreadPoolExecutor(8, thread_name_prefix="mcp-issuer")
notes = Pool("note", lambda: 1)  # what nobody waits for: it may wait for the project's database
POOLS = (lookups, tools, log, looks, verifiers)


def of_the_log() -> bool:
    """Whether this thread reads and writes the log, and nothing else."""
    return log.is_here() or looks.is_here()


def of_changes() -> bool:
    """Whether this thread looks at changes, in whichever database."""
    return changes.is_here() or interests.is_here()


def stuck() -> dict[str, int]:
    """How many threads of each pool have been at one job for very long."""
    return {pool.name: pool.stuck() for pool in POOLS}


def is_ready() -> bool:
    """Whether this process has enough threads left to serve with."""
    return all(pool.is_ready() for pool in POOLS)


# The ORM of asynchronous code.


def sensitive() -> _Sensitive:
    """A thread of its own for the ORM of one asynchronous call, ended with its connections.

    It is made when the first ``await`` needs it.
    """
    return _Sensitive(_OwnThread())


def bounded(pool: Pool) -> _Sensitive:
    """The same in the threads of a pool, and one after the other in any of them.

    For what anybody may have done: however many come, threads and connections are few. What is
    too much raises ``Busy``.
    """
    return _Sensitive(_OfPool(pool))


class _Sensitive:
    # No generator: every call of an asynchronous tool comes this way.

    __slots__ = ("_context", "_hidden", "_thread", "_token")

    def __init__(self, thread: _OwnThread | _OfPool) -> None:
        self._thread = thread

    async def __aenter__(self) -> None:
        self._context = ThreadSensitiveContext()
        self._token = SyncToAsync.thread_sensitive_context.set(self._context)
        executor: Any = self._thread  # of asgiref, any that can ``submit``
        SyncToAsync.context_to_thread_executor[self._context] = executor
        # Under async_to_sync that thread would be asked first, and it is not the call's own.
        self._hidden = getattr(AsyncToSync.executors, "current", None)
        if self._hidden is not None:
            AsyncToSync.executors.current = None

    async def __aexit__(self, *details: object) -> None:
        if self._hidden is not None:
            AsyncToSync.executors.current = self._hidden
        SyncToAsync.context_to_thread_executor.pop(self._context, None)
        SyncToAsync.thread_sensitive_context.reset(self._token)
        await self._thread.end()


_making = threading.Lock()


class _OwnThread(Executor):
    """The one thread of one call, which most calls need not: made when something is for it."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None

    def submit(self, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        return self._made().submit(_lent, function, *args, **kwargs)

    def _made(self) -> ThreadPoolExecutor:
        with _making:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(1, thread_name_prefix="mcp-async")
            return self._pool

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait, cancel_futures=cancel_futures)

    async def end(self) -> None:
        """Close what is open after what is still running; wait for it, unless cancelled."""
        if self._pool is None:
            return
        closing = asyncio.wrap_future(self.submit(discard_connections))
        self.shutdown(wait=False)
        await asyncio.shield(closing)


class _OfPool(Executor):
    """Whichever thread of a pool is free."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def submit(self, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        return self._pool._submit(lambda: tended(partial(function, *args, **kwargs)))

    async def end(self) -> None:
        """The pool looks after its threads."""


def _lent(function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    with borrowed():
        return plainly(function, *args, **kwargs)


# Tests.


def adopt(given: Iterable[BaseDatabaseWrapper] | None = None) -> AbstractContextManager[None]:
    """Run every job on the caller's connections until the block ends (``adoption``).

    Raises ``RuntimeError`` if a job is still running then.
    """
    return adoption.adopt(_OwnThread(), given)


def at_rest() -> bool:
    """Whether no job of ours is on a test's connections, so that the test may use them itself."""
    return not (is_adopted() and any(pool._pending for pool in (lookups, log, looks, notes)))
