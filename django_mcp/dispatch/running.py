"""
Running the project's code: in a thread or in the loop, inside what surrounds it.

Rule: a synchronous function does all of its work - permission, binding, the
function, its result - in one job of the tools pool. An asynchronous one runs
in the loop; what touches the database around it runs in a thread of its own,
which is entered and left there. Nothing of the project runs outside of
``AROUND``.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

from asgiref.sync import sync_to_async
from django.db import connections, transaction
from django.db.models import Model, QuerySet
from django.utils.module_loading import import_string

from .. import switches, threads
from ..conf import settings
from ..exceptions import Busy, Stopped, Unsupported
from ..protocol.jsonrpc import ProtocolError
from .deeds import tell
from .outcomes import may_hold
from .refusals import check

if TYPE_CHECKING:
    from ..declare.arguments import Arguments
    from ..declare.declarations import Declaration
    from ..declare.requests import Request
    from .runs import Run

T = TypeVar("T")
PAUSE = 0.1  # seconds until a thread is asked for again
ENDINGS = ("ROLLBACK", "RELEASE")  # of savepoints: let an ending transaction end

# What surrounds the project's code beside its own AROUND; filled when the app is ready.
around: list[Callable[[Any], AbstractContextManager[Any]]] = []


@dataclass(slots=True)
class Work:
    """A declared thing to run: what to read, what to make of what it returns.

    ``read`` gives the arguments, without the database; ``finish`` the result;
    ``unknown`` is what a caller is told who may not use the thing.
    """

    thing: Declaration
    read: Callable[[], dict[str, Any]]
    finish: Callable[[Any], dict[str, Any]]
    unknown: ProtocolError
    arguments: Arguments
    atomic: bool | str = False
    write: bool = False
    is_begun: bool = False  # the function was called: who asked was admitted


async def perform(run: Run, work: Work) -> dict[str, Any]:
    """Run ``work`` once. Raises what it raises, and ``Unwound`` when it must go on later."""
    run.work = work
    try:
        result = await _performed(run, work)
    except BaseException as error:
        tell(run, work, error)
        raise
    tell(run, work)
    return result


async def _performed(run: Run, work: Work) -> dict[str, Any]:
    if work.thing.is_async:
        return await _in_loop(run, work)
    return await _in_turn(run.principal.key, partial(_in_thread, run, work), waits=run.goes_on)


async def with_database(run: Run, function: Callable[[], T]) -> T:
    """Run some of the project's code in one job, inside ``AROUND``."""

    return await surrounded_job(run.request, function, waits=run.goes_on)


async def surrounded_job(request: Request, function: Callable[[], T], *, waits: bool = False) -> T:
    """The same for a request that no call brought, as of a subscription."""

    def job() -> T:
        with surrounded(request):
            return function()

    return await _in_turn(request.principal.key, job, waits=waits)


async def _in_turn(owner: str, job: Callable[[], T], *, waits: bool) -> T:
    """In a thread. Raises ``Busy`` where too many wait for one; who ``waits`` tries again."""
    begun = False

    def marked() -> T:
        nonlocal begun
        begun = True
        return job()

    while True:
        try:
            return await threads.tools.run_for(owner, marked)
        except Busy:
            if begun or not waits:
                raise
        await asyncio.sleep(PAUSE)


# Synchronous.


def _in_thread(run: Run, work: Work) -> dict[str, Any]:
    with surrounded(run.request):
        values = admitted(run.request, work)
        with _transaction(work):
            bound = work.arguments.bind(values, run.request, write=work.write)
            work.is_begun = True
            value = work.thing.function(run.request, **bound)
            run.request.asks = False  # a question on commit could not be undone
            result = work.finish(value)
            if run.request.cancelled:  # until the commit, the cancel wins
                raise Stopped()
            if run.conclude is not None and may_hold(work.atomic):
                run.conclude(result)
            return result


def admitted(request: Request, work: Work) -> dict[str, Any]:
    """The arguments, for a caller who may use the thing. Raises ``work.unknown``."""
    check(work.thing, request, work.unknown)
    lacking = request.can.lacks(work.thing.required)
    if lacking:
        raise Unsupported(lacking)
    return work.read()


@contextmanager
def _transaction(work: Work) -> Iterator[None]:
    if work.atomic is False:
        yield
        return
    using = work.atomic if isinstance(work.atomic, str) else None
    try:
        with transaction.atomic(using=using):
            yield
    except RuntimeError as error:
        if "durable" in str(error):
            error.add_note("The tool runs in a transaction: declare it with atomic=False.")
        raise


# Asynchronous.


async def _in_loop(run: Run, work: Work) -> dict[str, Any]:
    async with threads.sensitive():
        if not (surroundings() or work.arguments.binds or not work.thing.is_free):
            await switches.fresh()
            return await _finished(run, work, admitted(run.request, work))
        stack = ExitStack()
        try:
            bound = await sync_to_async(_prepared)(run, work, stack)
            result = await _finished(run, work, bound)
        except BaseException as error:
            await sync_to_async(_leave)(stack, error)
            raise
        await sync_to_async(_leave)(stack, None)
        return result


def _prepared(run: Run, work: Work, stack: ExitStack) -> dict[str, Any]:
    stack.enter_context(surrounded(run.request))
    values = admitted(run.request, work)
    return work.arguments.bind(values, run.request, write=work.write)


def _leave(stack: ExitStack, error: BaseException | None) -> None:
    traceback = error.__traceback__ if error is not None else None
    stack.__exit__(type(error) if error is not None else None, error, traceback)


async def _finished(run: Run, work: Work, bound: dict[str, Any]) -> dict[str, Any]:
    work.is_begun = True
    try:
        value = await work.thing.function(run.request, **bound)
    except SystemExit as error:  # it would end the loop, and everybody's calls
        raise RuntimeError("The code raised SystemExit.") from error
    if _holds_rows(value):
        return await sync_to_async(work.finish)(value)
    return work.finish(value)


def _holds_rows(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(isinstance(one, Model) for one in value)
    return isinstance(value, Model | QuerySet)


# Surroundings.


@lru_cache(maxsize=64)
def _imported(path: str) -> Callable[[Any], AbstractContextManager[Any]]:
    made: Callable[[Any], AbstractContextManager[Any]] = import_string(path)
    return made


def surroundings() -> list[Callable[[Any], AbstractContextManager[Any]]]:
    """The context managers of a call: the project's, then our own."""
    return [*map(_imported, settings.AROUND), *around]


@contextmanager
def surrounded(request: Request) -> Iterator[None]:
    """Everything that wraps the project's code, in the thread that runs it.

    The managers see what goes wrong, and cannot undo that it did. If one of
    them fails, nobody knows what state it left the connections in.
    """
    wrong: BaseException | None = None
    try:
        with ExitStack() as stack:
            switches.look()
            stack.enter_context(_stoppable(request))
            for manager in surroundings():
                stack.enter_context(manager(request))
            try:
                yield
            except BaseException as error:
                wrong = error
                raise
    except BaseException as error:
        if error is not wrong:
            threads.discard_connections()
        raise
    if wrong is not None:
        raise wrong


@contextmanager
def _stoppable(request: Request) -> Iterator[None]:
    """A cancelled call stops at its next query, once: what rolls it back must pass."""
    stopped, home = False, threading.get_ident()

    def check(execute: Any, sql: Any, params: Any, many: Any, context: Any) -> Any:
        nonlocal stopped
        # In a test, calls that take turns share a connection: this is about one of them.
        mine = threading.get_ident() == home and not str(sql).startswith(ENDINGS)
        if mine and request.cancelled and not stopped:
            stopped = True
            raise Stopped()
        return execute(sql, params, many, context)

    with queries_through(check):
        yield


@contextmanager
def queries_through(wrapper: Callable[..., Any]) -> Iterator[None]:
    """Every query of this thread goes through ``wrapper``, as of ``connection.execute_wrapper``.

    That one takes off whichever came last; calls that take turns in a test share a connection.
    """
    watched = [connections[alias] for alias in connections]
    for connection in watched:
        connection.execute_wrappers.append(wrapper)
    try:
        yield
    finally:
        for connection in watched:
            connection.execute_wrappers.remove(wrapper)
