"""
Asking the log from a loop: when it is busy or gone, wait until it is not.

Rule: what must be written is written in the end. A job whose outcome nobody
knows, because the connection broke, is told so when it is tried ``again``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from django.db import InterfaceError, OperationalError

from .. import threads
from ..exceptions import Busy

T = TypeVar("T")
logger = logging.getLogger("django_mcp")
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 1.0  # seconds between two attempts
BROKEN = (InterfaceError, OperationalError)


async def surely(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """What ``function`` returns, in a thread of the log, however long the log cannot be reached.

    What ``function`` itself refuses by ``Busy`` is not tried again.
    """
    pause = FIRST_PAUSE
    while True:
        try:
            outcome = await threads.log.run(_outcome, function, args, kwargs)
        except Busy:
            pass  # before any effect
        except BROKEN as error:
            if _is_wrong(error):
                raise
            logger.warning("The log cannot be reached, and is tried again: %s", error)
            if "again" in kwargs:
                kwargs["again"] = True
        else:
            return outcome.get()
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


def _is_wrong(error: Exception) -> bool:
    """Whether SQLite means the statement, such as a table there is not: time mends nothing."""
    return getattr(error.__cause__, "sqlite_errorname", None) == "SQLITE_ERROR"


def _outcome(function: Callable[..., T], args: Any, kwargs: Any) -> threads.Outcome[T]:
    try:
        return threads.Outcome(function(*args, **kwargs))
    except Busy as error:
        return threads.Outcome(error=error)


class PerLoop(Generic[T]):
    """One of a kind for each event loop, made when first asked for there."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: dict[asyncio.AbstractEventLoop, T] = {}

    def __call__(self) -> T:
        loop = asyncio.get_running_loop()
        if (made := self._made.get(loop)) is None:
            self._made = {other: one for other, one in self.items() if not other.is_closed()}
            made = self._made[loop] = self._make()
        return made

    def items(self) -> list[tuple[asyncio.AbstractEventLoop, T]]:
        """All there are; from any thread."""
        return list(self._made.items())
