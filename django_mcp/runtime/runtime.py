"""
Services of event loops: objects that exist once in each loop, such as its poller.

A process may run several event loops, each in a thread of its own. Objects with tasks, timers or
asyncio locks belong to one loop. ``Runtime`` owns all of them. A module declares a service with
``poller = Service(Poller)``, and ``poller()`` returns that of the running loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

T = TypeVar("T")


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
            for runtime in runtimes()
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


def runtimes() -> list[Runtime]:
    """Return the runtimes of all event loops. May be called from any thread."""
    return list(_runtimes.values())
