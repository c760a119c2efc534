"""Run the project's code, in a thread or in the event loop, and retry after a database outage.

For a synchronous function, one job of the pool ``tools`` checks the permission, binds the
arguments, calls the function and makes the result. An asynchronous function runs in the event loop.
The database work before and after it runs in a thread of its own. All of the project's code runs
inside the context managers of the setting ``AROUND``.

A caller without permission gets the same error as for a declaration that does not exist. Under
DEBUG the reason is logged. A missing scope is reported to the client, which can ask for it.

``Retries`` handles a database connection that breaks during a call, as in a failover. A call that
is safe to repeat runs again when the database is back. Otherwise the response says whether the
writes were rolled back or may have taken effect.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import copy_context
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

from asgiref.sync import sync_to_async
from django.conf import settings as django_settings
from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.db.models import Model, QuerySet
from django.utils.module_loading import import_string
from django.utils.translation import override

from ..auth import kill_switches
from ..conf import settings
from ..declarations.declaration import decide
from ..declarations.permissions import Decision
from ..exceptions import Busy, InsufficientScope, Stopped, Unsupported
from ..protocol.jsonrpc import JSON, InternalError
from ..runtime import outages, threads
from ..runtime.async_orm import orm_in_own_thread, run_in_context
from ..runtime.runtime import environment
from ..storage.databases import codes, makes_own_queries, own_queries
from ..storage.jobs import BROKEN, TEMPORARY
from .throttling import acount_call, count_call, is_limited
from .time_limits import OUTCOME_UNKNOWN, wait_for_coroutine, wait_for_thread

if TYPE_CHECKING:
    from ..declarations.declaration import Declaration
    from ..declarations.request import Request
    from .call_state import CallRun, Invocation

logger = logging.getLogger("django_mcp.calls")
RETRY_SECONDS = 30.0  # to wait for the database, from the first broken connection of a call
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.05, 1.0  # between two attempts
# A statement that crashes the database server must not be repeated without end.
MAX_RERUNS = 2
BROKE = "The connection to the database broke before this had an outcome. "
NOT_BEGUN = "The database cannot be reached. Nothing was done: try again later."
HARMLESS = BROKE + "It may be tried again."
ROLLED_BACK = BROKE + "Its database writes were rolled back: it may be tried again."
UNKNOWN = BROKE + OUTCOME_UNKNOWN


class DatabaseBroke(Exception):
    """A run of a call failed because its database connection broke (``error``)."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Retries:
    """The reruns of one call after database outages.

    ``was_rolled_back`` returns whether the transaction of a run was rolled back.
    """

    def __init__(self, was_rolled_back: Callable[[CallRun], Awaitable[bool]]) -> None:
        self._was_rolled_back = was_rolled_back
        self._has_begun = False  # whether any run has called the function
        self._until: float | None = None
        self._pause, self._reruns = FIRST_PAUSE_SECONDS, 0

    async def wait(self, run: CallRun, error: Exception, *, has_steps: bool) -> JSON | None:
        """Wait for the database and return None if the call should run again, or return its result.

        Raise ``InternalError`` instead of returning a result if the method is not ``tools/call``.
        """
        outages.note_break(error)
        self._until = self._until or time.monotonic() + RETRY_SECONDS
        message, is_harmless = await self._verdict(run, has_steps)
        if is_harmless and self._count_rerun(run, error) and await self._is_back(run, error):
            return None
        if run.call.method == "tools/call":
            # Not at the start of the module: every command of a project with the authorization
            # server imports this module, and results import pydantic.
            from .results import error_result

            return error_result(message)
        raise InternalError(message)

    async def _verdict(self, run: CallRun, has_steps: bool) -> tuple[str, bool]:
        """Return the message about a failed run's outcome, and whether another run is safe."""
        work = run.work
        was_rolled_back = await self._was_rolled_back(run)
        if run.call.method == "subscriptions/listen":  # the acknowledgement may have been sent
            return HARMLESS, False
        if work is None or not work.is_begun:
            # If an earlier run has called the function, that was safe to repeat: otherwise the call
            # would not run again.
            nothing_done = HARMLESS if self._has_begun else NOT_BEGUN
            return (UNKNOWN if has_steps else nothing_done), True
        self._has_begun = True
        tool: Any = work.declaration if run.call.method == "tools/call" else None
        if tool is None or tool.read_only or tool.idempotent:
            return HARMLESS, True
        if not was_rolled_back:
            return UNKNOWN, False
        # Steps (``request.once``) are committed separately, so they may have effects. A rerun does
        # not repeat them.
        return (UNKNOWN if has_steps else ROLLED_BACK), tool.transactional

    def _count_rerun(self, run: CallRun, error: Exception) -> bool:
        """Count a break, and return whether the call has reruns left.

        Only breaks that the call's own statement may have caused are counted: a server that reports
        a shutdown, read-only mode or too many connections was not crashed by it.
        """
        is_begun = run.work is not None and run.work.is_begun
        self._reruns += is_begun and not codes(error) & TEMPORARY
        return self._reruns <= MAX_RERUNS

    async def _is_back(self, run: CallRun, error: Exception) -> bool:
        """Try to connect, with backoff, until it works or ``RETRY_SECONDS`` are over."""
        alias = outages.alias_of(error) or DEFAULT_DB_ALIAS
        assert self._until is not None
        while time.monotonic() + self._pause < self._until:
            await asyncio.sleep(self._pause)
            self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)
            if run.stop.is_set:
                raise Stopped()
            try:
                await threads.tools.run_for(run.principal.limit_keys, lambda: _connect(alias))
                return True
            except Busy:
                continue
            except BROKEN as away:
                outages.note_break(away, alias)
        return False


def _connect(alias: str) -> None:
    """Open a connection. Raise Django's database error if that is not possible."""
    connection = connections[alias]
    if pool := getattr(connection, "pool", None):
        # Remove broken connections, or each rerun would get the next broken one of the pool.
        pool.check()
    connection.ensure_connection()


T = TypeVar("T")
NO_TRANSACTION = nullcontext()
THREAD_RETRY_SECONDS = 0.1  # between two attempts to get a thread of a full pool
# Statements that end a savepoint. They run also for a cancelled call, so that Django can roll back.
ENDINGS = ("ROLLBACK", "RELEASE")
TRANSACTION_STATEMENTS = ("BEGIN", "SAVEPOINT", *ENDINGS)  # are not counted as queries
WRITES = ("INSERT", "UPDATE", "DELETE", "REPLACE", "MERGE")  # statements whose rows are counted

# Context managers around the project's code, besides those of ``AROUND``. Apps add theirs in
# ``AppConfig.ready()``.
around: list[Callable[[Any], AbstractContextManager[Any]]] = []


async def perform(run: CallRun, work: Invocation) -> dict[str, Any]:
    """Run ``work`` once. Raise its errors, and ``RunEnded``."""
    run.work = work
    if work.declaration._is_async:
        return await _in_loop(run, work)
    job = partial(_in_thread, run, work)
    seconds = work.declaration._owner.timeout
    if seconds is None:
        return await run_in_thread(run, job)
    return await wait_for_thread(run, work, seconds, partial(run_in_thread, run), job)


async def run_in_thread(run: CallRun, job: Callable[[], T]) -> T:
    """Run a job of the call in a thread of the pool ``tools``, without ``AROUND``.

    Raise ``Busy`` if the pool is full, unless the call has run before: then wait.
    """
    run_job = _run_when_free if run.has_run_before else threads.tools.run_for
    return await run_job(run.principal.limit_keys, job)


async def with_database(run: CallRun, function: Callable[[], T]) -> T:
    """Run project code of a call in one job of the pool ``tools``, inside ``AROUND``."""
    return await surrounded_job(run.request, function, waits=run.has_run_before)


async def surrounded_job(request: Request, function: Callable[[], T], *, waits: bool = False) -> T:
    """Run project code in one job of the pool ``tools``, inside ``AROUND`` for ``request``.

    With ``waits``, wait for a free thread instead of raising ``Busy``.
    """

    def job() -> T:
        with surrounded(request):
            return function()

    run_job = _run_when_free if waits else threads.tools.run_for
    return await run_job(request.principal.limit_keys, job)


async def _run_when_free(owners: tuple[str, ...], job: Callable[[], T]) -> T:
    """Run ``job`` in a thread of the pool ``tools``, and wait while its queue is full.

    A call that has run before must not be rejected as overloaded.
    """
    begun = False

    def note_begin_and_run() -> T:
        nonlocal begun
        begun = True
        return job()

    while True:
        try:
            return await threads.tools.run_for(owners, note_begin_and_run)
        except Busy:
            if begun:  # the job's own code may raise Busy: do not run it twice
                raise
        await asyncio.sleep(THREAD_RETRY_SECONDS)


# Synchronous.


def _in_thread(run: CallRun, work: Invocation) -> dict[str, Any]:
    with surrounded(run.request):
        values = admitted(run, work)
        with NO_TRANSACTION if work.atomic is False else _transaction(work):
            bound = work.arguments.bind(values, run.request, write=work.write)
            if work.before_function is not None:
                work.before_function()
            if run.time_guard is None:
                work.is_begun = True
            else:
                run.time_guard.begin_function(work)
            value = work.declaration._implementation(run.request, **bound)
            # A question in an on_commit hook would rerun a call whose writes are committed.
            run.request._may_ask = False
            result = work.finish(value)
            # A cancel or the end of the time before the commit rolls everything back.
            may_commit = run.time_guard is None or run.time_guard.begin_commit()
            if run.stop.is_set or not may_commit:
                raise Stopped()
            # A cancel during the commit must not keep ``on_commit`` hooks from running: the writes
            # are committed.
            run.request._is_committing = True
            if run.before_commit is not None:
                run.before_commit(run, result)
            if run.store_result is not None and can_store_result_in_transaction(work.atomic):
                run.store_result(result)
            return result


def admitted(run: CallRun, work: Invocation) -> dict[str, Any]:
    """Return the validated arguments if the caller may use the declaration, and count the call.

    Raise ``work.denied()``, ``work.unknown()``, ``InsufficientScope``, ``Throttled`` or
    ``Unsupported`` if not.
    """
    # First the permission: a throttle, or errors about arguments, would reveal that the declaration
    # exists.
    _check_permission(run, work)
    if is_limited(run.server, work.declaration):
        with own_queries():  # the cache that counts calls may be in the database
            count_call(run, work.declaration)
    return _validated(run.request, work)


def _check_permission(run: CallRun, work: Invocation) -> None:
    """Raise what ``admitted`` raises for a caller without the permission."""
    check(work.declaration, run.request, work.denied or work.unknown)


def _validated(request: Request, work: Invocation) -> dict[str, Any]:
    if work.declaration.needs:
        lacking = request.can._lacks(work.declaration._required_capabilities)
        if lacking:
            raise Unsupported(lacking)
    return work.read()


def check(declaration: Declaration, request: Request, unknown: Callable[[], Exception]) -> None:
    """Raise ``unknown()`` or ``InsufficientScope`` if the caller may not use the declaration."""
    decision = decide(declaration, request)
    if decision.allowed:
        return
    if decision.missing_scopes:
        raise InsufficientScope(decision.missing_scopes)
    _log_refusal(declaration, request, decision)
    raise unknown()


def _log_refusal(declaration: Declaration, request: Request, decision: Decision) -> None:
    """Under DEBUG, log why ``request``'s user may not use it. May query the database."""
    # Not in production. The additional queries take time, so a caller could measure whether a
    # declaration is forbidden or missing.
    if not django_settings.DEBUG:
        return
    try:
        with override("en"):  # log messages are in English
            words = decision.reason
    except Exception as error:  # backends of the project may raise
        words = f"the reason is not known: {type(error).__name__}: {error}"
    user = request.user if request.principal.is_authenticated else "nobody"
    logger.warning("Permission denied: declaration=%s user=%s reason=%s", declaration, user, words)


@contextmanager
def _transaction(work: Invocation) -> Iterator[None]:
    try:
        with transaction.atomic(using=work.transaction_alias):
            yield
            work.is_ending = True
    except RuntimeError as error:
        if "durable" in str(error):
            error.add_note("The tool runs in a transaction: declare it with atomic=False.")
        raise


# Asynchronous.


async def _in_loop(run: CallRun, work: Invocation) -> dict[str, Any]:
    async with orm_in_own_thread():
        # If no context manager, argument or permission check may query the database, the call needs
        # no thread.
        if not (
            surroundings() or work.arguments.binds or not work.declaration._decides_without_database
        ):
            await kill_switches.arefresh()
            if not kill_switches.may_query(run.server.name):
                _check_permission(run, work)
                if is_limited(run.server, work.declaration):
                    await acount_call(run, work.declaration)
                return await _finished(run, work, _validated(run.request, work))
        # The context managers are entered and left in the call's own thread, not in the event loop,
        # because they may use the database. Both happen in one context, because a manager may reset
        # a ``ContextVar`` by the token that it got when it set it.
        stack, context = ExitStack(), copy_context()
        try:
            bound = await run_in_context(context, _prepared, run, work, stack)
            result = await _finished(run, work, bound)
        except BaseException as error:
            await run_in_context(context, _leave, stack, error)
            raise
        await run_in_context(context, _leave, stack, None)
        return result


def _prepared(run: CallRun, work: Invocation, stack: ExitStack) -> dict[str, Any]:
    stack.enter_context(surrounded(run.request))
    values = admitted(run, work)
    bound = work.arguments.bind(values, run.request, write=work.write)
    # The function may await other things than the database for minutes, and many asynchronous calls
    # may run at once. With a connection each, they would exhaust the connection pool.
    environment().release_connections()
    return bound


def _leave(stack: ExitStack, error: BaseException | None) -> None:
    traceback = error.__traceback__ if error is not None else None
    stack.__exit__(type(error) if error is not None else None, error, traceback)


async def _finished(run: CallRun, work: Invocation, bound: dict[str, Any]) -> dict[str, Any]:
    work.is_begun = True
    seconds = work.declaration._owner.timeout
    try:
        running = work.declaration._implementation(run.request, **bound)
        if seconds is not None:
            running = wait_for_coroutine(run, work, seconds, running)
        value = await running
    except SystemExit as error:  # it would end the event loop and all calls in it
        raise RuntimeError("The code raised SystemExit.") from error
    if work.declaration._finish_queries or _holds_rows(value):
        return await sync_to_async(work.finish)(value)
    return work.finish(value)


def _holds_rows(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(isinstance(one, Model) for one in value)
    return isinstance(value, Model | QuerySet)


# Context managers around the project's code.


@lru_cache(maxsize=64)
def _imported(path: str) -> Callable[[Any], AbstractContextManager[Any]]:
    made: Callable[[Any], AbstractContextManager[Any]] = import_string(path)
    return made


def surroundings() -> list[Callable[[Any], AbstractContextManager[Any]]]:
    """Return the context managers of a call: those of ``AROUND``, then those of ``around``."""
    return [*map(_imported, settings.AROUND), *around]


@contextmanager
def surrounded(request: Request) -> Iterator[None]:
    """Wrap the project's code in all context managers, in the thread that runs it.

    A manager sees an exception of the code but cannot suppress it. If a manager itself fails, this
    thread's connections are closed, because their state is unknown.
    """
    raised: BaseException | None = None
    try:
        with ExitStack() as stack:
            kill_switches.refresh()
            stack.enter_context(queries_through(_watching(request)))
            for manager in surroundings():
                stack.enter_context(manager(request))
            try:
                yield
            except BaseException as error:
                raised = error
                raise
    except BaseException as error:
        if error is not raised:
            environment().discard_connections()
        raise
    if raised is not None:
        raise raised


def _watching(request: Request) -> Callable[..., Any]:
    """Return a wrapper of queries that counts them, and raises ``Stopped`` for a cancelled call.

    It raises only once, because queries of the rollback and of cleanup code must succeed.
    """
    has_stopped, own_thread = False, threading.get_ident()

    def watch(execute: Any, sql: Any, params: Any, many: Any, context: Any) -> Any:
        nonlocal has_stopped
        # In a test several calls share a connection. Do not stop the queries of another one.
        if threading.get_ident() != own_thread or request._is_committing:
            return execute(sql, params, many, context)
        text = str(sql)
        if request.cancelled and not (has_stopped or text.startswith(ENDINGS)):
            has_stopped = True
            raise Stopped()
        result = execute(sql, params, many, context)
        if makes_own_queries.get():
            return result
        request._queries += not text.startswith(TRANSACTION_STATEMENTS)
        if text.lstrip()[:7].upper().startswith(WRITES):  # raw SQL has any case and indentation
            request._rows_written += row_count(text, params, many, context)
        return result

    return watch


def row_count(sql: str, params: Any, many: bool, context: Any) -> int:
    """Return how many rows a statement has written. Takes what an execute wrapper of Django takes.

    SQLite reports no number before the rows of RETURNING are fetched. Django uses RETURNING to
    insert rows, and to update the row of a ``save()``.
    """
    reported: int = context["cursor"].rowcount
    if reported > 0 or context["connection"].vendor != "sqlite" or " RETURNING " not in sql.upper():
        return max(reported, 0)
    if sql.lstrip()[:6].upper() != "INSERT":
        return 1
    return len(params) if many else sql.count("), (") + 1


@contextmanager
def queries_through(wrapper: Callable[..., Any]) -> Iterator[None]:
    """Pass every query of this thread through ``wrapper``, as ``connection.execute_wrapper`` does.

    Django's method removes the wrapper that was added last. In a test, where calls share a
    connection, that may be the wrapper of another call.
    """
    watched = [connections[alias] for alias in connections]
    for connection in watched:
        connection.execute_wrappers.append(wrapper)
    try:
        yield
    finally:
        for connection in watched:
            connection.execute_wrappers.remove(wrapper)


def shares_transaction(atomic: bool | str) -> bool:
    """Whether rows of the session database can be written in the project's transaction.

    It must be in the same database, and that must not be SQLite.
    """
    alias = atomic if isinstance(atomic, str) else DEFAULT_DB_ALIAS
    is_session_database = bool(atomic) and alias == settings.DATABASE
    return is_session_database and connections[alias].vendor != "sqlite"


def can_store_result_in_transaction(atomic: bool | str) -> bool:
    """Whether the response of a call can be stored in the tool's transaction."""
    # If jobs run one at a time, ``store_result`` would wait for a job that cannot start.
    return shares_transaction(atomic) and environment().runs_jobs_in_parallel
