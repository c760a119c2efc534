"""
Signs of life for answers that take long.

Rule: one timer for the whole process, and none while nothing is being
answered; an answer that is soon over costs two operations on a dict.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from ...conf import settings


class Pulsing(Protocol):
    def pulse(self) -> None: ...


# Each with the tick at which it was seen first: it is shown to live at the tick after.
_alive: dict[Pulsing, bool] = {}
_timer: asyncio.TimerHandle | None = None
_loop: asyncio.AbstractEventLoop | None = None


@contextmanager
def pulse(one: Pulsing) -> Iterator[None]:
    """Let ``one`` pulse every KEEPALIVE seconds, until the block ends."""
    _alive[one] = False
    _arm()
    try:
        yield
    finally:
        del _alive[one]


def _arm() -> None:
    global _timer, _loop
    loop = asyncio.get_running_loop()
    if _timer is None or _loop is not loop:
        _timer, _loop = loop.call_later(settings.KEEPALIVE, _tick), loop


def _tick() -> None:
    global _timer
    _timer = None
    for one, seen in list(_alive.items()):
        if seen:
            one.pulse()
        else:
            _alive[one] = True
    if _alive:
        _arm()
