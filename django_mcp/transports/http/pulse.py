"""
A beat for whoever needs one: signs of life, and the end of patience.

Rule: one timer for all in a loop, and none while there is nobody; whoever is
soon over costs two operations on a dict.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from ...conf import settings
from ...delivery.jobs import PerLoop


class Pulsing(Protocol):
    def pulse(self) -> None:
        """Called in the loop; must not fail."""
        ...


class Pulse:
    """Pulses every ``period`` seconds whoever was there at the beat before; 0 is never."""

    def __init__(self, period: Callable[[], float]) -> None:
        self._period, self._hearts = period, PerLoop(self._made)

    def _made(self) -> Heart:
        return Heart(self._period)

    @contextmanager
    def __call__(self, one: Pulsing) -> Iterator[None]:
        """Let ``one`` pulse until the block ends."""
        heart = self._hearts()
        heart.take(one)
        try:
            yield
        finally:
            heart.leave(one)

    def leave(self, one: Pulsing) -> None:
        """No more pulses for ``one``."""
        self._hearts().leave(one)


class Heart:
    """Of one loop: who is there, each with whether a beat has passed since."""

    def __init__(self, period: Callable[[], float]) -> None:
        self._period = period
        self._there: dict[Pulsing, bool] = {}
        self._timer: asyncio.TimerHandle | None = None

    def take(self, one: Pulsing) -> None:
        self._there[one] = False
        if self._timer is None:
            self._arm()

    def leave(self, one: Pulsing) -> None:
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


SLOWEST = 15.0  # seconds: a body has one to two of these to arrive
SOON = 0.02  # seconds: most answers are made before anybody looks whether the client left

alive = Pulse(lambda: float(settings.KEEPALIVE or 0))
patience = Pulse(lambda: SLOWEST)
soon = Pulse(lambda: SOON)
