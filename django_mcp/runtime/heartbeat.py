"""
Periodic callbacks that share one timer per event loop: keep-alive comments and timeouts.

Every request registers here, most of them only for milliseconds. So joining and leaving are one
dict operation each, and no timer runs while nothing is registered. The first callback of an object
comes after one to two periods.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from ..conf import settings
from .runtime import Service


class HeartbeatTarget(Protocol):
    """An object with a periodic callback. It must be hashable."""

    def pulse(self) -> None:
        """Handle a beat. Called in the event loop; must not raise."""
        ...


class Heartbeat:
    """Call ``pulse`` of each registered object every ``period()`` seconds; never if that is 0.

    An object that joins is called at the second beat after it joined at the earliest.
    """

    def __init__(self, period: Callable[[], float]) -> None:
        self._period, self._hearts = period, Service(self._made)

    def _made(self) -> HeartbeatTimer:
        return HeartbeatTimer(self._period)

    def __call__(self, one: HeartbeatTarget) -> HeartbeatContext:
        """Return a context manager that registers ``one`` during its block."""
        return HeartbeatContext(self._hearts(), one)

    def join(self, one: HeartbeatTarget) -> None:
        """Register ``one`` until ``leave`` is called."""
        self._hearts().take(one)

    def leave(self, one: HeartbeatTarget) -> None:
        """Unregister ``one``; do nothing if it is not registered."""
        self._hearts().leave(one)


class HeartbeatContext:
    """The context manager of ``Heartbeat``."""

    # A class instead of a generator, for speed: every request uses several of these.
    __slots__ = ("_heart", "_one")

    def __init__(self, heart: HeartbeatTimer, one: HeartbeatTarget) -> None:
        self._heart, self._one = heart, one

    def __enter__(self) -> None:
        self._heart.take(self._one)

    def __exit__(self, *details: object) -> None:
        self._heart.leave(self._one)


class HeartbeatTimer:
    """The timer of one event loop, and its registered objects.

    The value of an object in the dict says whether a beat has passed since it joined.
    """

    def __init__(self, period: Callable[[], float]) -> None:
        self._period = period
        self._there: dict[HeartbeatTarget, bool] = {}
        self._timer: asyncio.TimerHandle | None = None

    def take(self, one: HeartbeatTarget) -> None:
        self._there[one] = False
        if self._timer is None:
            self._arm()

    def leave(self, one: HeartbeatTarget) -> None:
        self._there.pop(one, None)

    def _arm(self) -> None:
        if period := self._period():
            self._timer = asyncio.get_running_loop().call_later(period, self._beat)

    def _beat(self) -> None:
        self._timer = None
        for one, seen in list(self._there.items()):
            if seen:
                one.pulse()
            else:
                self._there[one] = True
        if self._there:
            self._arm()


INTERVAL_SECONDS = 15.0  # seconds: a request body may take one to two of these
FIRST_CHECK_SECONDS = 0.02  # seconds: most requests end before a task has to watch for a disconnect

alive = Heartbeat(lambda: float(settings.KEEPALIVE or 0))
patience = Heartbeat(lambda: INTERVAL_SECONDS)
soon = Heartbeat(lambda: FIRST_CHECK_SECONDS)
