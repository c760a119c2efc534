"""
Asking the log from a loop: when it is busy or gone, wait until it is not.

Rule: what must be written is written in the end, unless it is the job itself that
the log cannot take. A job whose outcome nobody knows, because the connection
broke, is told so when it is tried ``again``.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from django.db import InterfaceError, InternalError, OperationalError

from .. import threads
from ..exceptions import Busy
from .patience import LOCKS, codes
from .rows import COLLISIONS

T = TypeVar("T")
logger = logging.getLogger("django_mcp")
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 1.0  # seconds between two attempts
ATTEMPTS = 20  # that fail while other jobs do not
INSISTS = 60.0  # seconds for which a thread tries again
BROKEN = (InterfaceError, InternalError, OperationalError)
# What time mends, in PostgreSQL's words and in MariaDB's: a server that is read only until others
# follow its successor, that ends, or that has too many connections.
TEMPORARY = LOCKS | COLLISIONS | {
    "25006", 1290, 1792, 1836, "57P01", "57P02", "57P03", 1053, "53300", 1040, 1203,
}  # fmt: skip
# What it does not: no such table (SQLite), more than one statement or packet may hold.
WRONG = frozenset(("SQLITE_ERROR", "54000", "54001", 1153))
# PostgreSQL's classes of states in which a server takes nothing: no connection, no room, its end.
AWAY, CANCELED = ("08", "53", "57", "58"), "57014"  # as by a time limit of the project's
_breaks = _successes = 0


async def surely(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """What ``function`` returns, in a thread of the log, however long the log cannot be reached.

    What ``function`` itself refuses by ``Busy`` is not tried again. Raises what breaks off this
    job again and again while the others succeed.
    """
    global _breaks, _successes
    pause, hopes = FIRST_PAUSE, Hopes()
    while True:
        try:
            outcome = await threads.log.run(_outcome, function, args, kwargs)
        except Busy:
            pass  # before any effect
        except BROKEN as error:
            if not hopes.left(error):
                raise
            logger.warning("The log cannot be reached, and is tried again: %s", error)
            _breaks += 1
            if "again" in kwargs:
                kwargs["again"] = True
        else:
            _successes += 1
            return outcome.get()
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


def insistently(function: Callable[..., T], *args: Any) -> T:
    """The same for a thread that waits, on its own connections, though not for ever.

    For what may be done twice: nobody knows what became of an attempt that failed.
    """
    pause, hopes, until = FIRST_PAUSE, Hopes(), time.monotonic() + INSISTS
    while True:
        try:
            return reconnecting(function, *args)
        except BROKEN as error:
            if not hopes.left(error) or time.monotonic() >= until:
                raise
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


def breaks() -> int:
    """How often the log has broken off. Who sees it go up may not know what was committed."""
    return _breaks


class Hopes:
    """Whether time may mend what one job fails by."""

    def __init__(self) -> None:
        self._attempts, self._successes = ATTEMPTS, _successes

    def left(self, error: Exception) -> bool:
        found = codes(error)
        if found & TEMPORARY:
            return True
        others, self._successes = _successes - self._successes, _successes
        self._attempts -= others > 0
        return self._attempts > 0 and not found & WRONG


def is_away(error: Exception) -> bool:
    """Whether a database cannot be asked now, and nothing was wrong with what it was asked."""
    found = codes(error)
    if not isinstance(error, BROKEN) or found & TEMPORARY:
        return isinstance(error, BROKEN)
    if state := getattr(error.__cause__, "sqlstate", None):
        return bool(state.startswith(AWAY)) and state != CANCELED
    # MariaDB's server numbers what it refuses from 1000 on; what its client lacks, from 2000.
    return not found & WRONG and not any(
        isinstance(one, int) and 1000 <= one < 2000 for one in found
    )


def _outcome(function: Callable[..., T], args: Any, kwargs: Any) -> threads.Outcome[T]:
    try:
        return threads.Outcome(reconnecting(function, *args, **kwargs))
    except Busy as error:
        return threads.Outcome(error=error)


def reconnecting(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Where it breaks, the next attempt is on a new connection, maybe to another server."""
    try:
        return function(*args, **kwargs)
    except BROKEN as error:
        if not codes(error) & LOCKS:
            threads.discard_connections()
        raise


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
