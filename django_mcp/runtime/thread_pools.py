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
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, ParamSpec, TypeVar, cast

import asgiref.sync

from ..conf import settings
from ..exceptions import Busy
from .runtime import call_safely, environment

P = ParamSpec("P")
T = TypeVar("T")

# A value in an asgiref ``Local``, such as the active language, is not visible in another thread,
# even in a copy of the context. This function of asgiref makes the values of a context, and of the
# locals in it, visible in the current context and thread.
restore_context: Callable[[contextvars.Context], None] = getattr(
    asgiref.sync, "_restore_context", lambda context: None
)
logger = logging.getLogger("django_mcp")
STUCK_SECONDS = 60.0  # after which a thread that runs one job counts as stuck


@dataclass(frozen=True, slots=True)
class JobResult(Generic[T]):
    """What a job returned or raised.

    A task or a pool's future returns it as a value. As the *exception* of a future, an error could
    not be told from one of the pool (``Busy``), and asyncio would log it if nobody waits for it.
    """

    value: T | None = None
    error: BaseException | None = None

    def get(self) -> T:
        if self.error is not None:
            raise self.error
        return cast(T, self.value)


class Job(Generic[T]):
    """A function to run in a thread, and the future of its result.

    It runs in ``context`` if there is one. It counts for the shares of ``owners``, of which each is
    within the one before.
    """

    __slots__ = ("context", "function", "future", "is_started", "owners")

    def __init__(
        self,
        function: Callable[[], T],
        owners: tuple[str, ...] = (),
        context: contextvars.Context | None = None,
    ) -> None:
        self.function, self.owners, self.context = function, owners, context
        self.future: Future[T] = Future()
        self.is_started = False  # whether it was given to the threads


class ThreadPool:
    """Threads for one kind of work, started at the first job.

    ``_lock`` guards the executor, the jobs, the counters and the queues: event loops and threads
    submit jobs, and pool threads end them. Nothing that may block runs while it is held.
    ``_start_times`` needs no lock, because each thread adds and removes only its own job.
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
        self._jobs: set[Job[Any]] = set()  # those that run or wait
        self._jobs_by_owner: Counter[str] = Counter()
        self._started_by_owner: Counter[str] = Counter()
        # Jobs of owners that have their share of the threads, by the widest owner.
        self._waiting: dict[str, deque[Job[Any]]] = {}
        self._start_times: dict[Job[Any], float] = {}  # of running jobs (monotonic clock)
        self._was_ready = True  # at the last check: the warning is logged once per change

    def pending(self) -> int:
        """Return how many jobs run or wait."""
        return len(self._jobs)

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``function`` in a thread of this pool. Raise ``Busy`` if the queue is full.

        If it is cancelled, it returns when the job has ended, or can no longer start.
        """
        return await self.run_for(owners=(), function=partial(function, *args, **kwargs))

    async def run_for(self, owners: str | tuple[str, ...], function: Callable[[], T]) -> T:
        """Run ``function`` as ``run`` does, for an owner whose jobs share a part of the threads.

        Of several owners each is within the one before (``Principal.limit_keys``).
        """
        owners = (owners,) if isinstance(owners, str) else owners
        loop, has_ended = asyncio.get_running_loop(), asyncio.Event()
        future = self.submit(function, contextvars.copy_context(), owners)
        future.add_done_callback(partial(_call_in_loop, loop, has_ended.set))
        try:
            await has_ended.wait()
            if future.cancelled():  # by ``shutdown``
                raise asyncio.CancelledError
            return future.result()
        except asyncio.CancelledError:
            if not future.cancel():
                # The job is running. Wait for it, so that its effects do not come after the call's
                # end. A second cancel stops the waiting.
                await has_ended.wait()
            raise
        finally:
            del future  # an exception of the job has this frame, and the future has the exception

    def run_in_background(self, function: Callable[[], object], owner: str = "") -> None:
        """Run ``function`` without waiting for it, and log its errors. Raise ``Busy``.

        An ``owner`` gets a share of the threads, as in ``run_for``. The environment of a test runs
        nothing.
        """
        job, owners = partial(_run_unattended, function), (owner,) if owner else ()
        environment().start_background(partial(self.submit, job, owners=owners))

    def wait(self, function: Callable[[], T], seconds: float) -> T:
        """Run ``function`` and block this thread for its result. Raise ``TimeoutError``."""
        return self.submit(function).result(seconds)

    def submit(
        self,
        function: Callable[[], T],
        context: contextvars.Context | None = None,
        owners: tuple[str, ...] = (),
    ) -> Future[T]:
        """Run ``function``, in ``context`` if given, and return its future.

        Raise ``Busy`` if the pool is full, or an owner's share of it.
        """
        job, size = Job(function, owners, context), self.size
        with self._lock:
            capacity = size + (int(settings.QUEUE) if self._queue is None else self._queue)
            if (
                len(self._jobs) >= capacity
                or owners
                and _is_share_used_up(self._jobs_by_owner, owners, capacity)
            ):
                raise Busy(Busy.__doc__)
            if owners and _is_share_used_up(self._started_by_owner, owners, size):
                self._waiting.setdefault(owners[0], deque()).append(job)
            else:
                self._start(job)
            self._jobs.add(job)
            for owner in owners:
                self._jobs_by_owner[owner] += 1
        if 3 * len(self._start_times) >= size:
            self._warn_if_stuck()
        return job.future

    def _start(self, job: Job[Any]) -> None:
        """Give a job to the threads. Raise ``RuntimeError`` if no thread can be started."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(self.size, thread_name_prefix=f"mcp-{self.name}")
        try:
            self._executor.submit(self._work, [job])
        except RuntimeError as error:
            # The executor has queued the job before it failed. The job is done now, so no thread
            # that starts later runs it: its caller is told that it did not run.
            if job.future.set_running_or_notify_cancel():
                job.future.set_exception(error)
            raise
        job.is_started = True
        for owner in job.owners:
            self._started_by_owner[owner] += 1

    def _work(self, queued: list[Job[Any]]) -> None:
        """Run a job in this thread, unless it was cancelled or could not be started."""
        # Removed from the list, because the executor's frame has the arguments of this method. An
        # exception of the job has that frame, so it would be a reference cycle.
        job = queued.pop()
        try:
            if job.future.done() or not job.future.set_running_or_notify_cancel():
                self._end(job)
                return
            self._start_times[job] = time.monotonic()
            try:
                run_job = environment().run_job
                if job.context is None:
                    result = run_job(job.function)
                else:
                    job.context.run(restore_context, job.context)
                    result = job.context.run(run_job, job.function)
            except BaseException as error:
                self._end(job)
                job.future.set_exception(error)
            else:
                # First, so that a caller who gets the result can submit the next job at once.
                self._end(job)
                job.future.set_result(result)
        finally:
            del job  # an exception of the job has this frame, and the job has the exception

    def _end(self, job: Job[Any]) -> None:
        """Remove a job that has ended or can no longer start, and start one that waited for it."""
        self._start_times.pop(job, None)
        failed = None
        with self._lock:
            if job not in self._jobs:  # ``shutdown`` has removed it, or it could not be started
                return
            self._jobs.remove(job)
            if not job.owners:
                return
            _subtract(self._jobs_by_owner, job.owners)
            if job.is_started:
                _subtract(self._started_by_owner, job.owners)
            if self._waiting and (following := self._pop_waiting_job(job.owners)):
                try:
                    self._start(following)
                except RuntimeError:  # its future has the error
                    failed = following
        if failed is not None:
            self._end(failed)  # starts the next one

    def _pop_waiting_job(self, owners: tuple[str, ...]) -> Job[Any] | None:
        """Remove and return the first waiting job of the widest owner that may run, or None."""
        waiting = self._waiting.get(owners[0])
        if waiting is None:
            return None
        size = self.size
        for job in waiting:
            if not _is_share_used_up(self._started_by_owner, job.owners, size):
                waiting.remove(job)
                if not waiting:
                    del self._waiting[owners[0]]
                return job
        return None

    def owns_current_thread(self) -> bool:
        return threading.current_thread().name.startswith(f"mcp-{self.name}_")

    def shutdown(self, *, wait: bool = True) -> None:
        """Cancel the waiting jobs and end the threads. The next job starts new ones."""
        with self._lock:
            executor, self._executor = self._executor, None
            jobs = list(self._jobs)
            self._waiting.clear()
        # Without the lock, which ``_end`` takes.
        for job in jobs:
            if job.future.cancel():
                self._end(job)
        if executor is not None:
            executor.shutdown(wait=wait, cancel_futures=True)

    # Stuck threads.

    def stuck(self) -> int:
        """Return how many threads have run one job for more than ``STUCK_SECONDS``."""
        since = time.monotonic() - STUCK_SECONDS
        return sum(started < since for started in list(self._start_times.values()))

    def is_ready(self) -> bool:
        """Whether less than a third of the threads are stuck."""
        return 3 * self.stuck() < self.size

    def _warn_if_stuck(self) -> None:
        """Log a warning once when too many threads are stuck."""
        was_ready, self._was_ready = self._was_ready, self.is_ready()
        if was_ready and not self._was_ready:
            message = "Threads are stuck: threads=%d pool=%s running_longer_than=%ds"
            logger.warning(message, self.stuck(), self.name, STUCK_SECONDS)


def _is_share_used_up(jobs: Counter[str], owners: tuple[str, ...], capacity: int) -> bool:
    """Whether one of ``owners`` has all the jobs that it may have.

    The first may have three quarters of ``capacity``, and each other three quarters of what the one
    before it may have.
    """
    share = capacity
    for owner in owners:
        share = max(1, share * 3 // 4)
        if jobs[owner] >= share:
            return True
    return False


def _subtract(jobs: Counter[str], owners: tuple[str, ...]) -> None:
    """Subtract one job of each owner. Counts of 0 are removed, or they would pile up."""
    for owner in owners:
        jobs[owner] -= 1
        if not jobs[owner]:
            del jobs[owner]


def _call_in_loop(
    loop: asyncio.AbstractEventLoop, function: Callable[[], object], future: Future[Any]
) -> None:
    with suppress(RuntimeError):  # the loop was closed
        loop.call_soon_threadsafe(function)


def _run_unattended(function: Callable[[], object]) -> None:
    try:
        # Ask again in the thread: a test that started meanwhile must not get the job.
        environment().start_background(partial(call_safely, function))
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
        # Synchronous receivers of ``call_started`` and ``call_finished``. The queue is as long as
        # there are calls, because no receiver may be left out.
        self.receivers = ThreadPool("receiver", 2, sys.maxsize)
        # Inserts audit entries. A receiver of the project must not stop them, and each event loop
        # has one job at most.
        self.audit = ThreadPool("audit", 1, sys.maxsize)
        # Jobs that nobody waits for. The project's database may block them.
        self.background = ThreadPool("background", 1)
        # Mail. The mail server may be slow.
        self.mail = ThreadPool("mail", 1)
        # HTTP requests to token issuers, which use no database.
        self.issuers = ThreadPoolExecutor(8, thread_name_prefix="mcp-issuer")

    def pools(self) -> tuple[ThreadPool, ...]:
        """Return all pools except ``issuers``, which is no ``ThreadPool``."""
        others = (
            self.receivers,
            self.audit,
            self.changes,
            self.interests,
            self.background,
            self.mail,
        )
        return (*self.serving(), *others)

    def serving(self) -> tuple[ThreadPool, ...]:
        """Return the pools that requests wait for. The process cannot serve without them."""
        return self.lookups, self.tools, self.log, self.polling, self.verifiers

    def is_session_thread(self) -> bool:
        """Whether this thread belongs to the pools for rows of the session database."""
        return self.log.owns_current_thread() or self.polling.owns_current_thread()

    def is_change_thread(self) -> bool:
        """Whether this thread belongs to the pools for changes and interests."""
        return self.changes.owns_current_thread() or self.interests.owns_current_thread()

    def stuck(self) -> dict[str, int]:
        """Return the number of stuck threads, by the name of the pool."""
        return {pool.name: pool.stuck() for pool in self.serving()}

    def is_ready(self) -> bool:
        """Whether the serving pools have enough threads that are not stuck."""
        return all(pool.is_ready() for pool in self.serving())

    def reset(self) -> None:
        """Forget all threads, in a forked child that has none of its parent's threads."""
        for pool in self.pools():
            pool.reset()
        self.issuers = ThreadPoolExecutor(8, thread_name_prefix="mcp-issuer")


threads = ThreadPools()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=threads.reset)
