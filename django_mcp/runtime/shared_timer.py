"""
Periodic callbacks that share one timer per event loop, such as keep-alive comments and timeouts.

Every HTTP request joins two or three of these timers, usually for milliseconds. So joining and
leaving are one dict operation each. A timer that fires with nothing registered does not start
again.

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
    """Calls ``tick`` of each registered object periodically.

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


BODY_SECONDS = 15.0  # a request body times out after one to two times this
# A request that takes longer than this gets a task that waits for ``http.disconnect``.
FIRST_CHECK_SECONDS = 0.02

keep_alives = Service(lambda: SharedTimer(lambda: float(settings.KEEPALIVE or 0)))
body_timeouts = Service(lambda: SharedTimer(lambda: BODY_SECONDS))
disconnect_checks = Service(lambda: SharedTimer(lambda: FIRST_CHECK_SECONDS))
