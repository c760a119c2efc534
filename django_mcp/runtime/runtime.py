"""
What a process runs its code with: its environment, and the services of its event loops.

``environment()`` decides how jobs use database connections, and what runs in the background. The
tools of ``django_mcp.testing`` install a ``TestEnvironment``, in which all code uses the database
connections of the test. Other code does not know tests: it calls a method of the environment, such
as ``environment().start_background(function)``.

Services are objects that exist once in each event loop, such as its poller. A process may run
several event loops, each in a thread of its own. Objects with tasks, timers or asyncio locks belong
to one loop. ``Runtime`` owns all of them. A module declares a service with ``poller =
Service(Poller)``, and ``poller()`` returns that of the running loop.

``SharedTimer`` calls many objects periodically, at the cost of one timer.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from django.db import connections

from . import outages

T = TypeVar("T")
# Exceptions that the waiting event loop or coroutine would take for its own: it would stop, or
# count as cancelled.
_MISLEADING = (
    StopIteration, SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError,
    concurrent.futures.CancelledError,
)  # fmt: skip


class Environment:
    """Threads have database connections of their own, and background services run."""

    # Whether several jobs run at the same time. If not, a job must not wait for another.
    runs_jobs_in_parallel = True

    def start_background(self, function: Callable[[], object]) -> None:
        """Call ``function``, which starts a service or a job that runs in the background."""
        function()

    def is_shared(self, connection: Any = None) -> bool:
        """Whether other processes use the same rows, those of ``connection`` if it is given.

        If not, changes are delivered in this process without the change log, and nothing that was
        read has to be read again without a signal.
        """
        if connection is None:
            return True
        # The tests of a project need not use our test tools. If their ``TestCase`` saves a row, the
        # interests must not be read: that opens a connection in another thread, which may stay open
        # and keep the test database from being dropped. Django marks the transaction, and its own
        # ``atomic(durable=True)`` reads the mark. No other sign of the test is visible here.
        blocks = connection.atomic_blocks
        return not any(getattr(block, "_from_testcase", False) for block in blocks)

    def run_job(self, function: Callable[[], T]) -> T:
        """Run a job in this thread of a pool. Close broken connections before and after it."""
        outages.close_unusable_connections()
        try:
            return function()
        except _MISLEADING as error:
            raise _harmless(error) from error
        finally:
            outages.close_unusable_connections(is_after_job=True)

    def run_orm(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Run ORM code of an asynchronous call in this thread, which belongs to the call."""
        return call_safely(function, *args, **kwargs)

    def release_connections(self) -> None:
        """Close this thread's connections without a transaction, or return them to their pool.

        Connections that ``CONN_MAX_AGE`` keeps stay open.
        """
        for connection in connections.all(initialized_only=True):
            if not connection.in_atomic_block:
                connection.close_if_unusable_or_obsolete()

    def discard_connections(self) -> None:
        """Close this thread's connections, because they may be broken or are not needed again."""
        connections.close_all()


# The last one is in use. Only tests add others.
_installed = [Environment()]


def environment() -> Environment:
    """Return the environment in use. May be called from any thread."""
    return _installed[-1]


def install(installed: Environment) -> None:
    """Use this environment until ``uninstall`` is called."""
    _installed.append(installed)


def uninstall(installed: Environment) -> None:
    _installed.remove(installed)


def call_safely(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Call ``function``, and turn exceptions that would stop the event loop into RuntimeError."""
    try:
        return function(*args, **kwargs)
    except _MISLEADING as error:
        raise _harmless(error) from error


def _harmless(error: BaseException) -> RuntimeError:
    return RuntimeError(f"The code raised {type(error).__name__}.")


# Services.


@runtime_checkable
class Closable(Protocol):
    """A service that must release something when the process ends."""

    async def close(self) -> None: ...


class Runtime:
    """The services of one event loop. Only code in that loop creates them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.services: dict[Service[Any], Any] = {}

    async def close(self) -> None:
        """Close the services at the end of the process, those created last first."""
        for service in reversed(list(self.services.values())):
            if isinstance(service, Closable):
                await service.close()


class Service(Generic[T]):
    """The accessor of a service: call it to get the instance of the running event loop.

    The first call in a loop creates the instance.
    """

    def __init__(self, create: Callable[[], T]) -> None:
        self._create = create

    def __call__(self) -> T:
        # Every request comes here several times, so this is two dict lookups and no other call.
        try:
            found: T = _runtimes[asyncio.get_running_loop()].services[self]
        except KeyError:
            pass
        else:
            return found
        created = current().services[self] = self._create()
        return created

    def instances(self) -> list[tuple[asyncio.AbstractEventLoop, T]]:
        """Return all loops that have one, with their instances. May be called from any thread."""
        return [
            (runtime.loop, runtime.services[self])
            for runtime in list(_runtimes.values())
            if self in runtime.services
        ]


# Event loops of several threads add themselves. Without the lock, two of them could iterate and
# change the dict at the same time. Lookups need no lock.
_lock = threading.Lock()
_runtimes: dict[asyncio.AbstractEventLoop, Runtime] = {}


def current() -> Runtime:
    """Return the runtime of the running event loop. Raise ``RuntimeError`` without one."""
    loop = asyncio.get_running_loop()
    with _lock:
        if loop not in _runtimes:
            # The dict keeps loops alive. Remove those that were closed.
            for other in [other for other in _runtimes if other.is_closed()]:
                del _runtimes[other]
            _runtimes[loop] = Runtime(loop)
        return _runtimes[loop]


# Timers.


class TimerTarget(Protocol):
    """An object with a periodic callback. It must be hashable."""

    def tick(self) -> None:
        """Called in the event loop, once per period; must not raise."""
        ...


class SharedTimer:
    """Calls ``tick`` of each registered object periodically.

    Every HTTP request joins several, usually for milliseconds. So joining and leaving are one dict
    operation each. A timer that fires with nothing registered does not start again.

    ``period`` returns the seconds between two calls; 0 turns the timer off. The first call comes
    one to two periods after the object joined.
    """

    def __init__(self, period: Callable[[], float]) -> None:
        self._period = period
        # The value says whether the timer has fired since the object joined, so that the first call
        # comes after at least one whole period.
        self._targets: dict[TimerTarget, bool] = {}
        self._handle: asyncio.TimerHandle | None = None

    def join(self, target: TimerTarget) -> None:
        """Register ``target`` until ``leave`` is called."""
        self._targets[target] = False
        if self._handle is None:
            self._start()

    def leave(self, target: TimerTarget) -> None:
        """Unregister ``target``; do nothing if it is not registered."""
        self._targets.pop(target, None)

    def _start(self) -> None:
        if period := self._period():
            self._handle = asyncio.get_running_loop().call_later(period, self._fire)

    def _fire(self) -> None:
        try:
            for target in list(self._targets):
                has_waited = self._targets.get(target)
                if has_waited:
                    target.tick()
                elif has_waited is not None:  # None: it left during the ``tick`` of another object
                    self._targets[target] = True
        finally:
            # Only now, so that a ``tick`` that registers an object starts no second timer.
            self._handle = None
            if self._targets:
                self._start()
