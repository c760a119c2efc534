"""
Periodic callbacks that share one timer per event loop: keep-alive comments, timeouts and pings.

Every request registers here, most of them only for milliseconds. So joining and leaving are one
dict operation each, and no timer runs while nothing is registered.

``keep_alives``, ``body_timeouts`` and ``disconnect_checks`` are the timers of HTTP requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from ..conf import settings
from .runtime import Service


class TimerTarget(Protocol):
    """An object with a periodic callback. It must be hashable."""

    def tick(self) -> None:
        """Called in the event loop, once per period; must not raise."""
        ...


class SharedTimer:
    """Calls ``tick`` of each registered object every ``period()`` seconds; never if that is 0.

    The first call comes one to two periods after the object joined.
    """

    def __init__(self, period: Callable[[], float]) -> None:
        self._period = period
        # The value says whether the timer has fired since the object joined.
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
        self._handle = None
        for target, has_waited in list(self._targets.items()):
            if has_waited:
                target.tick()
            else:
                self._targets[target] = True
        if self._targets:
            self._start()


BODY_SECONDS = 15.0  # a request body may take one to two of these
FIRST_CHECK_SECONDS = 0.02  # most requests end before a task has to watch for a disconnect

keep_alives = Service(lambda: SharedTimer(lambda: float(settings.KEEPALIVE or 0)))
body_timeouts = Service(lambda: SharedTimer(lambda: BODY_SECONDS))
disconnect_checks = Service(lambda: SharedTimer(lambda: FIRST_CHECK_SECONDS))
