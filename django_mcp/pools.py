"""
A pool of threads, and how a job runs in one.

Rule: a job runs in a copy of its caller's context, so that a language or time
zone set by one call never reaches the next; it finds healthy connections and
leaves healthy ones; and beyond a bounded queue it is refused before it has any
effect. Who stops waiting for a job stops it from starting, or waits for its
end: no thread works on for a call that is gone. What one owner has running at
once, and waiting, is a share of the pool: others find a thread. Threads that
are stuck are counted, for nothing can end them.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import logging
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, ParamSpec, TypeVar, cast

import asgiref.sync
from django.db import connections

from .adoption import borrowed, is_adopted
from .conf import settings
from .exceptions import Busy

P = ParamSpec("P")
T = TypeVar("T")

# asgiref's locals are visible in the one thread that set them, until asgiref moves them.
_rehome: Callable[[contextvars.Context], None] = getattr(
    asgiref.sync, "_restore_context", lambda context: None
)
logger = logging.getLogger("django_mcp")
STUCK = 60.0  # seconds
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
        self._held: Counter[str] = Counter()  # jobs of each owner, running or waiting
        self._waiting: defaultdict[str, deque[Waiting]] = defaultdict(deque)  # for their turn
        self._begun: dict[object, float] = {}  # when the jobs that run were begun
        self._was_ready = True

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``function`` in a thread of this pool. Raises ``Busy`` when too many wait.

        If cancelled it comes back when the job has ended, or will never start.
        """
        return await self._run("", partial(function, *args, **kwargs))

    async def run_for(self, owner: str, function: Callable[[], T]) -> T:
        """The same as one of the jobs of ``owner``: all of them get a share of the threads."""
        return await self._run(owner or "nobody", function)

    async def _run(self, owner: str, function: Callable[[], T]) -> T:
        claim = threading.Lock()  # taken by who comes first: the thread, or who gives up
        context = contextvars.copy_context()

        def job() -> Outcome[T] | None:
            if not claim.acquire(blocking=False):
                return None  # nobody waits for it any more
            return context.run(_at_home, context, function)

        future = asyncio.wrap_future(self._submit(job, owner))
        try:
            outcome = await asyncio.shield(future)
        except asyncio.CancelledError:
            if not claim.acquire(blocking=False):
                await asyncio.wait([future])  # a second cancel is heeded
            raise
        assert outcome is not None
        return outcome.get()

    def begin(self, function: Callable[[], object], owner: str = "") -> None:
        """Run ``function`` for nobody who waits, and not in a test. Raises ``Busy``.

        An ``owner`` gets a share of the threads, as in ``run_for``.
        """
        if not is_adopted():  # or it might begin when the test is over
            self._submit(lambda: _unattended(function), owner)

    def wait(self, function: Callable[[], T], seconds: float) -> T:
        """What ``function`` returns, for a thread that waits. Raises ``TimeoutError``."""
        return self._submit(lambda: tended(function)).result(seconds)

    def _submit(self, job: Callable[[], T], owner: str = "") -> Future[T]:
        size = self._size()
        with self._lock:
            room = size + settings.QUEUE
            if self._pending >= room or (owner and self._held[owner] >= _share(room)):
                raise Busy(Busy.__doc__)
            if owner and self._held[owner] >= _share(size):
                future: Future[T] = Future()
                self._waiting[owner].append(Waiting(future, job))
            else:
                future = self._threads().submit(self._timed, job)
            self._pending += 1
            self._held[owner] += 1
        future.add_done_callback(partial(self._done, owner))
        if 3 * len(self._begun) >= size:
            self._look_for_stuck()
        return future

    def _threads(self) -> ThreadPoolExecutor:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(self._size(), thread_name_prefix=f"mcp-{self.name}")
        return self._executor

    def is_here(self) -> bool:
        """Whether this thread is one of the pool's."""
        return threading.current_thread().name.startswith(f"mcp-{self.name}_")

    def _timed(self, job: Callable[[], T]) -> T:
        mark = object()
        self._begun[mark] = time.monotonic()
        try:
            return job()
        finally:
            del self._begun[mark]

    def _done(self, owner: str, future: Future[Any]) -> None:
        with self._lock:
            self._pending -= 1
            self._held[owner] -= 1
            if not self._held[owner]:
                del self._held[owner]
            following = self._next(owner)
            if following is None:
                return
            begun = self._threads().submit(self._timed, following.run)
        begun.add_done_callback(following.follow)

    def _next(self, owner: str) -> Waiting | None:
        """Whose turn it is of an owner of whom a job has ended."""
        if owner not in self._waiting:
            return None
        first = self._waiting[owner].popleft()
        if not self._waiting[owner]:
            del self._waiting[owner]
        return first

    def shutdown(self, *, wait: bool = True) -> None:
        """Refuse what still waits; forget the threads."""
        with self._lock:
            executor, self._executor = self._executor, None
            waiting = [one for queue in self._waiting.values() for one in queue]
            self._waiting.clear()
        for one in waiting:
            one.future.cancel()
        if executor is not None:
            executor.shutdown(wait=wait, cancel_futures=True)

    # What does not come to an end.

    def stuck(self) -> int:
        """How many threads have been at one job for very long."""
        since = time.monotonic() - STUCK
        return sum(begun < since for begun in list(self._begun.values()))

    def is_ready(self) -> bool:
        """Whether less than a third of the threads are stuck."""
        return 3 * self.stuck() < self._size()

    def _look_for_stuck(self) -> None:
        """Say it once when there are too many."""
        was_ready, self._was_ready = self._was_ready, self.is_ready()
        if was_ready and not self._was_ready:
            words = "%d threads of the pool %r have each been at one job for more than %d seconds"
            logger.warning(words, self.stuck(), self.name, STUCK)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job whose owner has as many running as it may."""

    future: Future[Any]
    job: Callable[[], Any]

    def follow(self, begun: Future[None]) -> None:
        """A pool that is shut down refuses it too, though its turn had come."""
        if begun.cancelled():
            self.future.cancel()

    def run(self) -> None:
        if self.future.set_running_or_notify_cancel():
            try:
                self.future.set_result(self.job())
            except BaseException as error:
                self.future.set_exception(error)


def _share(of: int) -> int:
    """What one owner may have of that many."""
    return max(1, of * 3 // 4)


# A job.


def _at_home(context: contextvars.Context, function: Callable[[], T]) -> Outcome[T]:
    """Make what Django keeps in the context, as the language, this thread's, and begin."""
    _rehome(context)
    try:
        return Outcome(tended(function))
    except BaseException as error:
        return Outcome(error=error)


def tended(function: Callable[[], T]) -> T:
    """Run a job between two looks at its thread's connections."""
    with borrowed():
        if is_adopted():
            return plainly(function)
        _sweep()
        try:
            return plainly(function)
        finally:
            _sweep()


def _unattended(function: Callable[[], object]) -> None:
    if is_adopted():
        return  # nothing unasked happens in the midst of a test
    try:
        tended(function)
    except Exception:
        logger.exception("A job that nobody waits for failed")


def plainly(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
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
    if not is_adopted():
        connections.close_all()
