"""
Thread pools: run synchronous code, such as the ORM and tools, for the event loop.

``threads`` has all pools of the process. Each kind of work has a pool of its own, so that stuck
tools do not block authentication.

A job runs in a copy of its caller's context, so that a language or time zone that one call sets
does not leak into the next. ``environment().run_job`` runs it, which closes broken connections. If
the queue of the pool is full, ``Busy`` is raised before the job has any effect. A cancelled caller
stops its job from starting, or waits for its end. One owner gets at most three quarters of the
threads and of the queue. An owner within another gets three quarters of that: all anonymous clients
together are one owner, and each of their networks is an owner within it. Stuck threads cannot be
stopped, so they are counted and reported.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, ParamSpec, TypeVar, cast

import asgiref.sync

from ..conf import settings
from ..exceptions import Busy
from .runtime import environment

P = ParamSpec("P")
T = TypeVar("T")

# asgiref's thread-sensitive locals are visible only in the thread that set them. This function of
# asgiref makes those of a copied context visible in the current thread: the active language is one.
_show_asgiref_locals: Callable[[contextvars.Context], None] = getattr(
    asgiref.sync, "_restore_context", lambda context: None
)
logger = logging.getLogger("django_mcp")
STUCK_SECONDS = 60.0  # after which a thread that runs one job counts as stuck


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """What a job returned or raised.

    It is set as the result of a future. As the exception of a future, some errors would be changed.
    """

    value: T | None = None
    error: BaseException | None = None

    def get(self) -> T:
        if self.error is not None:
            raise self.error
        return cast(T, self.value)


class ThreadPool:
    """Threads for one kind of work, started at the first job.

    ``_lock`` guards the executor, the counters and the queues: event loops and threads submit jobs,
    and pool threads end them. Nothing that may block runs while it is held. ``_started`` needs no
    lock, because each thread adds and removes only its own key.
    """

    def __init__(self, name: str, size: int | None = None, queue: int | None = None) -> None:
        """``size`` is the number of threads, and ``queue`` how many jobs may wait.

        The defaults are the settings ``THREADS`` and ``QUEUE``.
        """
        self.name, self._size, self._queue = name, size, queue
        self.reset()

    @property
    def size(self) -> int:
        return int(settings.THREADS) if self._size is None else self._size

    def reset(self) -> None:
        """Forget all threads and jobs, in a forked child that has none of its parent's threads."""
        self._executor: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        self._pending = 0  # jobs that run or wait
        self._jobs_by_owner: Counter[str] = Counter()  # the same, of each owner
        self._running_by_owner: Counter[str] = Counter()  # those that were given to the threads
        self._running: set[Future[Any]] = set()  # their futures
        # Jobs of owners that have their share of the threads, by the widest owner.
        self._waiting: defaultdict[str, deque[QueuedJob]] = defaultdict(deque)
        self._started: dict[object, float] = {}  # start times of running jobs (monotonic clock)
        self._was_ready = True

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``function`` in a thread of this pool. Raise ``Busy`` if the queue is full.

        If it is cancelled, it returns when the job has ended, or can no longer start.
        """
        return await self._run((), partial(function, *args, **kwargs))

    async def run_for(self, owners: str | tuple[str, ...], function: Callable[[], T]) -> T:
        """Do the same for an owner, whose jobs together get a share of the threads.

        Of several owners each is within the one before (``Principal.limit_keys``).
        """
        return await self._run((owners,) if isinstance(owners, str) else owners, function)

    async def _run(self, owners: tuple[str, ...], function: Callable[[], T]) -> T:
        # Acquired once, by the thread that starts the job or by a cancel, whichever comes first.
        # Without it a job could start after its cancelled caller has returned.
        claim = threading.Lock()
        context = contextvars.copy_context()
        job = partial(context.run, _run_claimed, claim, context, function)
        future: asyncio.Future[Outcome[T] | None]
        future = asyncio.wrap_future(self._submit(job, owners))
        try:
            # Without ``shield`` a cancel would reach the future, which could not be awaited below.
            outcome = await asyncio.shield(future)
        except asyncio.CancelledError:
            if not claim.acquire(blocking=False):
                # The job is running. Wait for it, so that its effects do not come after the call's
                # end. A second cancel stops the waiting.
                await asyncio.wait([future])
            raise
        assert outcome is not None
        return outcome.get()

    def run_in_background(self, function: Callable[[], object], owner: str = "") -> None:
        """Run ``function`` without waiting for it, and log its errors. Raise ``Busy``.

        An ``owner`` gets a share of the threads, as in ``run_for``. Nothing runs in an environment
        without background services.
        """
        if environment().has_background_services:
            self._submit(partial(_run_unattended, function), (owner,) if owner else ())

    def wait(self, function: Callable[[], T], seconds: float) -> T:
        """Run ``function`` and block this thread for its result. Raise ``TimeoutError``."""
        return self.submit(function).result(seconds)

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Run ``function`` and return its future. Raise ``Busy``."""
        return self._submit(partial(_run_job, function))

    def _submit(self, job: Callable[[], T], owners: tuple[str, ...] = ()) -> Future[T]:
        """Queue a job. Raise ``Busy`` if the pool is full, or an owner's share of it."""
        size = self.size
        with self._lock:
            room = size + (int(settings.QUEUE) if self._queue is None else self._queue)
            if self._pending >= room or owners and _have_share(self._jobs_by_owner, owners, room):
                raise Busy(Busy.__doc__)
            if owners and _have_share(self._running_by_owner, owners, size):
                future: Future[T] = Future()
                self._waiting[owners[0]].append(QueuedJob(future, job, owners))
            else:
                future = self._start(job, owners)
                self._running.add(future)
            self._pending += 1
            self._jobs_by_owner.update(owners)
        # Without the lock: a job that has already ended calls ``_done`` here, which takes it.
        future.add_done_callback(partial(self._done, owners))
        if 3 * len(self._started) >= size:
            self._warn_if_stuck()
        return future

    def _start(self, job: Callable[[], T], owners: tuple[str, ...]) -> Future[T]:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(self.size, thread_name_prefix=f"mcp-{self.name}")
        future = self._executor.submit(self._timed, job)
        # Only now: ``submit`` raises if no thread can be started, and then no job would end.
        self._running_by_owner.update(owners)
        return future

    def is_here(self) -> bool:
        """Whether this thread is one of the pool's."""
        return threading.current_thread().name.startswith(f"mcp-{self.name}_")

    def _timed(self, job: Callable[[], T]) -> T:
        mark = object()
        self._started[mark] = time.monotonic()
        try:
            return job()
        finally:
            del self._started[mark]

    def _done(self, owners: tuple[str, ...], future: Future[Any]) -> None:
        failure: RuntimeError | None = None
        with self._lock:
            self._pending -= 1
            # The operator drops counts of 0, so that the counters do not grow with each owner.
            self._jobs_by_owner -= Counter(owners)
            if future in self._running:
                self._running.remove(future)
                self._running_by_owner -= Counter(owners)
            following = self._next(owners) if owners else None
            if following is None:
                return
            try:
                started = self._start(following.run, following.owners)
            except RuntimeError as error:  # no thread can be started
                failure = error
            else:
                self._running.add(following.future)
        if failure is None:
            started.add_done_callback(following.follow)
        elif following.future.set_running_or_notify_cancel():
            # Without the lock: this calls ``_done`` for the failed job, which starts the next one.
            following.future.set_exception(failure)

    def _next(self, owners: tuple[str, ...]) -> QueuedJob | None:
        """Remove and return the first waiting job of the widest owner that may run, or None."""
        waiting = self._waiting.get(owners[0])
        if waiting is None:
            return None
        size = self.size
        for job in waiting:
            if not _have_share(self._running_by_owner, job.owners, size):
                waiting.remove(job)
                if not waiting:
                    del self._waiting[owners[0]]
                return job
        return None

    def shutdown(self, *, wait: bool = True) -> None:
        """Cancel the waiting jobs and end the threads. The next job starts new ones."""
        with self._lock:
            executor, self._executor = self._executor, None
            waiting = [job for queue in self._waiting.values() for job in queue]
            self._waiting.clear()
        # Without the lock, which ``_done`` takes when a future is cancelled.
        for job in waiting:
            job.future.cancel()
        if executor is not None:
            executor.shutdown(wait=wait, cancel_futures=True)

    # Stuck threads.

    def stuck(self) -> int:
        """Return how many threads have run one job for more than ``STUCK_SECONDS``."""
        since = time.monotonic() - STUCK_SECONDS
        return sum(started < since for started in list(self._started.values()))

    def is_ready(self) -> bool:
        """Whether less than a third of the threads are stuck."""
        return 3 * self.stuck() < self.size

    def _warn_if_stuck(self) -> None:
        """Log a warning once when too many threads are stuck."""
        was_ready, self._was_ready = self._was_ready, self.is_ready()
        if was_ready and not self._was_ready:
            message = "%d threads of the pool %r have each run one job for more than %d seconds"
            logger.warning(message, self.stuck(), self.name, STUCK_SECONDS)


@dataclass(frozen=True, slots=True, eq=False)
class QueuedJob:
    """A job that waits because its owner has its share of the threads."""

    future: Future[Any]
    job: Callable[[], Any]
    owners: tuple[str, ...]

    def follow(self, started: Future[None]) -> None:
        """Cancel the job if the pool was shut down after it was submitted."""
        if started.cancelled():
            self.future.cancel()

    def run(self) -> None:
        if self.future.set_running_or_notify_cancel():
            try:
                self.future.set_result(self.job())
            except BaseException as error:
                self.future.set_exception(error)


def _have_share(jobs: Counter[str], owners: tuple[str, ...], of: int) -> bool:
    """Whether one of ``owners`` has its share of ``of``. Each share is of the one before."""
    for owner in owners:
        of = max(1, of * 3 // 4)
        if jobs[owner] >= of:
            return True
    return False


def _run_claimed(
    claim: threading.Lock, context: contextvars.Context, function: Callable[[], T]
) -> Outcome[T] | None:
    """Run a job in its ``context``. Return None if it was cancelled before it started."""
    if not claim.acquire(blocking=False):
        return None
    _show_asgiref_locals(context)
    try:
        return Outcome(environment().run_job(function))
    except BaseException as error:
        return Outcome(error=error)


def _run_job(function: Callable[[], T]) -> T:
    return environment().run_job(function)


def _run_unattended(function: Callable[[], object]) -> None:
    # Checked again in the thread: a test that started meanwhile must not get the job.
    if not environment().has_background_services:
        return
    try:
        environment().run_job(function)
    except Exception:
        logger.exception("A background job failed")


# Lookups take milliseconds, so many may wait. When a worker ends, all of its clients reconnect at
# once, and a rejected client would only come again.
LOOKUP_QUEUE = 1_000


class ThreadPools:
    """The thread pools of this process, which all of its event loops share.

    A size that depends on a setting is read when the pool starts its threads.
    """

    def __init__(self) -> None:
        # Sessions, tokens and users of requests: short queries.
        self.lookups = ThreadPool("lookup", 2, LOOKUP_QUEUE)
        # Tools, resources and prompts: the project's code, which may take long.
        self.tools = ThreadPool("tool")
        # Rows of the session database: short jobs, on connections of their own.
        self.log = ThreadPool("log", 4)
        # Polling of these rows, apart from ``log``, so that writes do not delay it.
        self.polling = ThreadPool("poll", 1)
        # Token verifiers of the project. Anonymous clients cause this work, so it must not use
        # the threads of ``tools``.
        self.verifiers = ThreadPool("verify")
        # Change logs: locks of the project's transactions may block it.
        self.changes = ThreadPool("change", 1)
        # Reads which models anybody follows. The project's ``save()`` waits for it.
        self.interests = ThreadPool("interest", 1)
        # Jobs that nobody waits for. The project's database may block them.
        self.background = ThreadPool("background", 1)
        # HTTP requests to token issuers, which use no database.
        self.issuers = ThreadPoolExecutor(8, thread_name_prefix="mcp-issuer")

    def all(self) -> tuple[ThreadPool, ...]:
        return (*self.serving(), self.changes, self.interests, self.background)

    def serving(self) -> tuple[ThreadPool, ...]:
        """Return the pools that requests wait for. The process cannot serve without them."""
        return self.lookups, self.tools, self.log, self.polling, self.verifiers

    def is_session_thread(self) -> bool:
        """Whether this thread belongs to the pools for rows of the session database."""
        return self.log.is_here() or self.polling.is_here()

    def is_change_thread(self) -> bool:
        """Whether this thread belongs to the pools for changes and interests."""
        return self.changes.is_here() or self.interests.is_here()

    def stuck(self) -> dict[str, int]:
        """Return the number of stuck threads, by the name of the pool."""
        return {pool.name: pool.stuck() for pool in self.serving()}

    def is_ready(self) -> bool:
        """Whether the serving pools have enough threads that are not stuck."""
        return all(pool.is_ready() for pool in self.serving())

    def reset(self) -> None:
        """Forget all threads, in a forked child that has none of its parent's threads."""
        for pool in self.all():
            pool.reset()
        self.issuers = ThreadPoolExecutor(8, thread_name_prefix="mcp-issuer")


threads = ThreadPools()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=threads.reset)
