"""
The ORM of asynchronous calls: asgiref runs it in a thread, and this module chooses the thread.

By default asgiref runs all of it in one thread of the process, where one slow query delays all
calls.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextvars import Context
from functools import partial
from typing import Any, TypeVar

from asgiref.sync import AsyncToSync, SyncToAsync, ThreadSensitiveContext, sync_to_async

from .runtime import environment
from .thread_pools import ThreadPool, restore_context

T = TypeVar("T")


def orm_in_own_thread() -> OrmThreadContext:
    """Run the ORM of one asynchronous call in a thread of its own, inside ``async with``.

    The thread starts at the first use, and ends with its connections.
    """
    return OrmThreadContext(CallThread())


def orm_in_pool(pool: ThreadPool) -> OrmThreadContext:
    """Run the ORM in the threads of ``pool`` inside ``async with``, which limits connections.

    For work that anonymous clients can cause. Raise ``Busy`` if the queue is full.
    """
    return OrmThreadContext(PoolExecutor(pool))


async def run_in_context(context: Context, function: Callable[..., T], /, *args: Any) -> T:
    """Run ``function`` in the thread of the call's ORM and in ``context``.

    The awaiting task gets the values that the function sets. Several functions may run in one
    context: the second can reset a ``ContextVar`` by the token of the first.
    """

    def job() -> T:
        restore_context(context)
        return function(*args)

    try:
        return await sync_to_async(context.run)(job)
    finally:
        restore_context(context)


class OrmThreadContext:
    """Context manager that sets the executor of asgiref's ``thread_sensitive`` code.

    A class and no generator, because it is faster and every asynchronous tool uses it.
    """

    __slots__ = ("_context", "_executor", "_hidden", "_token")

    def __init__(self, executor: CallThread | PoolExecutor) -> None:
        self._executor = executor

    async def __aenter__(self) -> None:
        self._context = ThreadSensitiveContext()
        self._token = SyncToAsync.thread_sensitive_context.set(self._context)
        executor: Any = self._executor  # asgiref uses only its method ``submit``
        SyncToAsync.context_to_thread_executor[self._context] = executor
        # Under ``async_to_sync`` asgiref would prefer the calling thread to the executor above.
        self._hidden = getattr(AsyncToSync.executors, "current", None)
        if self._hidden is not None:
            AsyncToSync.executors.current = None

    async def __aexit__(self, *details: object) -> None:
        if self._hidden is not None:
            AsyncToSync.executors.current = self._hidden
        SyncToAsync.context_to_thread_executor.pop(self._context, None)
        SyncToAsync.thread_sensitive_context.reset(self._token)
        await self._executor.end()


class CallThread(Executor):
    """The thread of one call, started when it is needed. Most calls do not need it."""

    # Several threads may submit the first job. Without the lock each would start a thread, and the
    # ORM code of one call would run in two of them. One lock serves all calls: it is held briefly.
    _lock = threading.Lock()

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None

    def submit(self, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        with self._lock:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(1, thread_name_prefix="mcp-async")
            executor = self._executor
        return executor.submit(_run, function, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait, cancel_futures=cancel_futures)

    async def end(self) -> None:
        """Close the thread's connections after its last job, and end the thread.

        Wait for that. It happens even if the caller is cancelled.
        """
        if self._executor is None:
            return
        closing = asyncio.wrap_future(self.submit(_discard_connections))
        self.shutdown(wait=False)
        await asyncio.shield(closing)


class PoolExecutor(Executor):
    """Submits to a pool: any thread of it may run the job."""

    def __init__(self, pool: ThreadPool) -> None:
        self._pool = pool

    def submit(self, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        return self._pool.submit(partial(function, *args, **kwargs))

    async def end(self) -> None:
        """Do nothing, because the pool's threads outlive the call."""


def _run(function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    return environment().run_orm(function, *args, **kwargs)


def _discard_connections() -> None:
    environment().discard_connections()
