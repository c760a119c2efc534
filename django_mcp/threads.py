"""
The only place that runs synchronous code for asynchronous code.

Rule: a job runs in a copy of its caller's context, so that a language or time
zone set by one call never reaches the next; it finds healthy connections and
leaves healthy ones; and beyond a bounded queue it is refused before it has any
effect. Who stops waiting for a job stops it from starting, or waits for its
end: no thread works on for a call that is gone. Look-ups have threads of their
own: a pool full of stuck tools still lets people in.

Under a ``TestCase`` the test's own connections, inside its transaction, are
the only ones that see its rows. ``adopt`` makes every job run on them, one job
at a time, and runs commit hooks after each, as the end of a request would.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar, cast

import asgiref.sync
from asgiref.sync import AsyncToSync, SyncToAsync, ThreadSensitiveContext
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from .conf import settings
from .exceptions import Busy

P = ParamSpec("P")
T = TypeVar("T")

# asgiref's locals are visible in the one thread that set them, until asgiref moves them.
_rehome: Callable[[contextvars.Context], None] = getattr(
    asgiref.sync, "_restore_context", lambda context: None
)
logger = logging.getLogger("django_mcp")
# What would mean something to the loop that waits for a job, and does not mean that in a job.
_MISLEADING = (
    StopIteration, SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError,
    concurrent.futures.CancelledError,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """What a job returned or raised. As the result of a future, an error stays the one it is."""

    value: T | None = None
    error: BaseException | None = None

    def get(self) -> T:
        if self.error is not None:
            raise self.error
        return cast(T, self.value)


class Pool:
    """Threads for one kind of work, made when first needed."""

    def __init__(self, name: str, size: Callable[[], int]) -> None:
        self.name, self._size = name, size
        self._executor: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        self._pending = 0

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``function`` in a thread of this pool. Raises ``Busy`` when too many wait.

        If cancelled it comes back when the job has ended, or will never start.
        """
        claim = threading.Lock()  # taken by who comes first: the thread, or who gives up
        context = contextvars.copy_context()

        def job() -> Outcome[T] | None:
            if not claim.acquire(blocking=False):
                return None  # nobody waits for it any more
            return context.run(_at_home, context, function, args, kwargs)

        future = asyncio.wrap_future(self._submit(job))
        try:
            outcome = await asyncio.shield(future)
        except asyncio.CancelledError:
            if not claim.acquire(blocking=False):
                await asyncio.wait([future])  # a second cancel is heeded
            raise
        assert outcome is not None
        return outcome.get()

    def begin(self, function: Callable[[], object]) -> None:
        """Run ``function`` for nobody who waits, and not in a test. Raises ``Busy``."""
        self._submit(lambda: _unattended(function))

    def _submit(self, job: Callable[[], T]) -> Future[T]:
        with self._lock:
            if self._pending >= self._size() + settings.QUEUE:
                raise Busy(Busy.__doc__)
            future = self._threads().submit(job)
            self._pending += 1
        future.add_done_callback(self._done)
        return future

    def _threads(self) -> ThreadPoolExecutor:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(self._size(), thread_name_prefix=f"mcp-{self.name}")
        return self._executor

    def _done(self, future: Future[Any]) -> None:
        with self._lock:
            self._pending -= 1

    def shutdown(self, *, wait: bool = True) -> None:
        """Refuse what still waits; forget the threads."""
        with self._lock:
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=wait, cancel_futures=True)


lookups = Pool("lookup", lambda: 2)
tools = Pool("tool", lambda: int(settings.THREADS))
log = Pool("log", lambda: 4)  # of what is said to sessions: short jobs, on connections of their own
verifiers = Pool("verify", lambda: int(settings.THREADS))  # of the project, asked by strangers
notes = Pool("note", lambda: 1)  # what nobody waits for: it may wait for the project's database


def _at_home(
    context: contextvars.Context, function: Callable[..., T], args: Any, kwargs: Any
) -> Outcome[T]:
    """Make what Django keeps in the context, as the language, this thread's, and begin."""
    _rehome(context)
    try:
        return Outcome(_tended(function, args, kwargs))
    except BaseException as error:
        return Outcome(error=error)


def _tended(function: Callable[..., T], args: Any, kwargs: Any) -> T:
    """Run a job between two looks at its thread's connections."""
    with borrowed():
        if _adopted:
            return _plainly(function, *args, **kwargs)
        _sweep()
        try:
            return _plainly(function, *args, **kwargs)
        finally:
            _sweep()


def _unattended(function: Callable[[], object]) -> None:
    if _adopted:
        return  # nothing unasked happens in the midst of a test
    try:
        _tended(function, (), {})
    except Exception:
        logger.exception("A job that nobody waits for failed")


def _plainly(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """What a job raises is an error of its code, never a word to the loop."""
    try:
        return function(*args, **kwargs)
    except _MISLEADING as error:
        raise RuntimeError(f"The code raised {type(error).__name__}.") from error


def _sweep() -> None:
    for connection in connections.all(initialized_only=True):
        try:
            if connection.in_atomic_block:  # left open by a job: nobody else will end it
                connection.close()
                del connections[connection.alias]
            else:
                connection.close_if_unusable_or_obsolete()
        except Exception:
            logger.exception("A broken connection could not be closed; it is forgotten")
            del connections[connection.alias]


def discard_connections() -> None:
    """Close this thread's connections, about which something is in doubt."""
    if not _adopted:
        connections.close_all()


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
        return self._pool._submit(lambda: _tended(function, args, kwargs))

    async def end(self) -> None:
        """The pool looks after its threads."""


def _lent(function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    with borrowed():
        return _plainly(function, *args, **kwargs)


# Tests.

_turn = threading.RLock()
_adopted: dict[str, BaseDatabaseWrapper] = {}
PATIENCE = 10  # seconds for the last job of a test to end


@contextmanager
def adopt(given: Iterable[BaseDatabaseWrapper] | None = None) -> Iterator[None]:
    """Run every job on the caller's connections until the block ends.

    Raises ``RuntimeError`` if a job is still running then.
    """
    mine = list(connections.all() if given is None else given)
    before = dict(_adopted)
    for connection in mine:
        connection.inc_thread_sharing()
    _adopted.update({connection.alias: connection for connection in mine})
    # Where an asynchronous test, outside of any call, is sent with its ORM.
    stand_in: Any = _OwnThread()
    shared, SyncToAsync.single_thread_executor = SyncToAsync.single_thread_executor, stand_in
    try:
        yield
    finally:
        SyncToAsync.single_thread_executor.shutdown(wait=False)
        SyncToAsync.single_thread_executor = shared
        ended = _turn.acquire(timeout=PATIENCE)
        _adopted.clear()
        _adopted.update(before)
        for connection in mine:
            connection.dec_thread_sharing()
        if not ended:
            raise RuntimeError("A job is still running at the end of the test.")
        _turn.release()


def is_adopted() -> bool:
    """Whether jobs run on a test's connections, within its transaction."""
    return bool(_adopted)


def at_rest() -> bool:
    """Whether no job of ours is on a test's connections, so that the test may use them itself."""
    return not (_adopted and any(pool._pending for pool in (lookups, log, notes)))


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
