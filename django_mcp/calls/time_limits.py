"""
Time limits of tools, resources and prompts: the attribute ``timeout``.

An asynchronous function is cancelled. A thread cannot be stopped from outside, so for a synchronous
function the caller gets the error at once, and the thread stops at its next query or message. The
thread commits nothing: ``TimeGuard`` forbids it to begin its function or to commit after the limit.

The limit applies to each run of the function. The time that a call waits for a thread, for an
answer or for a step (``request.once``) does not count.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from ..exceptions import TimeLimitExceeded
from ..runtime.runtime import environment
from .call_state import TimeGuard

if TYPE_CHECKING:
    from .call_state import CallRun, Invocation

logger = logging.getLogger("django_mcp.calls")
T = TypeVar("T")
NOTHING = "Nothing was changed."
ROLLED_BACK = "Its database writes were rolled back."
ROLLED_BACK_ALONE = "Its database writes were rolled back. Other effects may remain."
OUTCOME_UNKNOWN = "It may or may not have taken effect: find out before it is tried again."


async def wait_for_thread(
    run: CallRun,
    work: Invocation,
    seconds: float,
    run_job: Callable[[Callable[[], T]], Coroutine[Any, Any, T]],
    job: Callable[[], T],
) -> T:
    """Return the result of ``job``, which ``run_job`` runs in a thread.

    Raise ``TimeLimitExceeded`` after ``seconds``, although the thread may still run.
    """
    loop = asyncio.get_running_loop()
    started: asyncio.Future[None] = loop.create_future()
    guard = run.time_guard = TimeGuard(run.request)

    def note_start_and_run() -> T:
        with suppress(RuntimeError):  # the loop was closed
            loop.call_soon_threadsafe(started.set_result, None)
        return job()

    task = asyncio.ensure_future(run_job(note_start_and_run))
    try:
        futures: set[asyncio.Future[Any]] = {task, started}
        await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
        done, _ = await asyncio.wait({task}, timeout=seconds)
        # In a test the thread uses the test's own connections, so it must end first.
        if not done and guard.expire() and environment().runs_jobs_in_parallel:
            task.add_done_callback(_ignore_outcome)
            raise limit_error(run, work, seconds)
        await asyncio.wait({task})  # it has ended, or is committing
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait({task})
        raise
    if run.request._is_out_of_time:
        _ignore_outcome(task)
        raise limit_error(run, work, seconds)
    return task.result()


async def wait_for_coroutine(
    run: CallRun, work: Invocation, seconds: float, coroutine: Awaitable[Any]
) -> Any:
    """Return the result of an asynchronous function. After ``seconds`` cancel it.

    Raise ``TimeLimitExceeded``.
    """
    try:
        async with asyncio.timeout(seconds) as limit:
            return await coroutine
    except TimeoutError:
        if not limit.expired():  # the function has raised it
            raise
        # A thread that the function has left behind stops at its next query.
        run.request._is_out_of_time = True
        raise limit_error(run, work, seconds) from None


def _ignore_outcome(task: asyncio.Future[Any]) -> None:
    """Read the outcome of a run that nobody waits for, or asyncio would log its error."""
    if not task.cancelled():
        task.exception()


def limit_error(run: CallRun, work: Invocation, seconds: float) -> TimeLimitExceeded:
    """Return the error for the caller, which says whether writes may remain. Log a warning."""
    declaration: Any = work.declaration
    logger.warning("Call stopped at its time limit: %s seconds=%g", declaration, seconds)
    outcome = OUTCOME_UNKNOWN
    if not (work.is_begun and work.write):
        outcome = NOTHING
    elif work.is_atomic and not run.answers.remembered:  # steps are committed separately
        outcome = ROLLED_BACK if declaration.transactional else ROLLED_BACK_ALONE
    return TimeLimitExceeded(
        f"{declaration.name} took longer than {seconds:g} s and was stopped. {outcome}"
    )
