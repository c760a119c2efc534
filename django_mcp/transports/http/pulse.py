"""
A beat for whoever needs one: signs of life, and the end of patience.

Rule: one timer for all in a loop, and none while there is nobody; whoever is
soon over costs two operations on a dict.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
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

    def __call__(self, one: Pulsing) -> Pulsates:
        """Let ``one`` pulse until the block ends."""
        return Pulsates(self._hearts(), one)

    def leave(self, one: Pulsing) -> None:
        """No more pulses for ``one``."""
        self._hearts().leave(one)


class Pulsates:
    # No generator: every request comes this way, more than once.
    __slots__ = ("_heart", "_one")

    def __init__(self, heart: Heart, one: Pulsing) -> None:
        self._heart, self._one = heart, one

    def __enter__(self) -> None:
        self._heart.take(self._one)

    def __exit__(self, *details: object) -> None:
        self._heart.leave(self._one)


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
