"""
What administrators have switched off: things of servers, or whole servers.

Rule: whoever is about to ask looks first, and what is known is half a second old at most: it costs
one query then, and none in between. Where nobody can look, what was known stays so; who never could
may use nothing. In a test, what it switches itself is known at once.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from time import monotonic
from typing import Any
from weakref import WeakKeyDictionary

from django.db import DatabaseError

from . import adoption

FRESH = 0.5  # seconds for which what was read is good
NEVER = float("-inf")
EVERYTHING = ""  # the name of a whole server's switch
logger = logging.getLogger("django_mcp")
Off = frozenset[tuple[str, str]]  # the server's name, and the thing's

# Who knows: filled when the app is ready.
source: list[Callable[[], Off]] = []

_off: Off = frozenset()
_until = NEVER
_changed = False
_turn = threading.Lock()
_looking: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[None]] = WeakKeyDictionary()


def is_off(server: str, thing: str) -> bool:
    """Whether a thing is, or its server: as far as is known. Asks nobody."""
    return bool(_off) and ((server, thing) in _off or (server, EVERYTHING) in _off)


async def fresh() -> None:
    """Look, in the loop: in a thread, and only if it is time; once, however many wait for it."""
    while _is_stale():  # what changed while it was looked at is looked at again
        loop = asyncio.get_running_loop()
        if (looking := _looking.get(loop)) is None or looking.done():
            from . import threads  # a project that serves nothing pays nothing

            looking = _looking[loop] = loop.create_task(threads.lookups.run(look))
        await asyncio.shield(looking)
        if not _changed:  # that was asked for just now, however long the loop took to go on
            return


def look() -> None:
    """Read what is off, if it is time. Asks the database: called in a thread."""
    if not _is_stale():
        return
    with _turn:
        if _is_stale():
            _read()


def _is_stale() -> bool:
    return _changed or (not adoption.is_adopted() and monotonic() >= _until)


def _read() -> None:
    global _off, _until, _changed
    _changed = False
    try:
        _off = frozenset().union(*(known() for known in source))
    except DatabaseError:
        if _until == NEVER:
            raise
        logger.exception("What is switched off cannot be read: as it was, it stays")
    except (RuntimeError, AssertionError) as error:
        if not _is_guard(error):
            raise
    _until = monotonic() + FRESH


def _is_guard(error: Exception) -> bool:
    """Whether it is of a test that has no database: pytest's words, or Django's class."""
    words, kinds = str(error), {kind.__name__ for kind in type(error).__mro__}
    return words.startswith("Database access not allowed") or "DatabaseOperationForbidden" in kinds


def changed(**kwargs: Any) -> None:
    """In this process a switch was: whoever asks next looks again."""
    global _changed
    _changed = True


def forget() -> None:
    """What a test knew is of no other."""
    global _off, _until, _changed
    _off, _until, _changed = frozenset(), NEVER, False


adoption.ended.append(forget)
