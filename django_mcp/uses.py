"""
When things were last used, until it is written.

Rule: that something was used is noted in memory and written later, by nobody who waits, at most
once a minute for one thing. It is lost if the process ends, which is fine.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from django.db import Error
from django.utils import timezone

from . import threads
from .exceptions import Busy

PAUSE = 60  # seconds between two notes of the use of one thing
AT_ONCE = 500  # rows in one UPDATE: databases limit what a statement may hold
REMEMBERED = 10_000  # things of which is known here when they were used
logger = logging.getLogger("django_mcp")


class Uses:
    """Of one kind of thing; ``write`` is called in a thread, with the keys of some."""

    def __init__(self, write: Callable[[Collection[Any]], None]) -> None:
        self._write = write
        self._noted: dict[Any, float] = {}

    def note(self, key: Any, last_used: datetime | None) -> None:
        """It is used now, and was before. Never waits and never fails."""
        if last_used is not None and timezone.now() - last_used < timedelta(seconds=PAUSE):
            return
        moment = time.monotonic()
        if moment - self._noted.get(key, -PAUSE) < PAUSE:
            return
        self._noted[key] = moment
        with suppress(Busy, RuntimeError):  # too much to do, or the interpreter ends
            threads.notes.begin(self.write)

    def write(self) -> None:
        """What could not be written is tried again when it is noted again, a minute later."""
        noted = sorted(list(self._noted))  # noqa: C414 - a copy first: look-ups go on
        for start in range(0, len(noted), AT_ONCE):
            some = noted[start : start + AT_ONCE]
            try:
                self._write(some)
            except Error as error:
                logger.info("When things were last used could not be written: %s", error)
                return
            for key in some:
                self._noted.pop(key, None)


class SparseUses(Uses):
    """Of things that do not tell when they were used before: of the last ones it is remembered."""

    def __init__(self, write: Callable[[Collection[Any]], None]) -> None:
        super().__init__(write)
        self._before: dict[Any, float] = {}

    def note(self, key: Any, last_used: datetime | None = None) -> None:
        moment = time.monotonic()
        if moment - self._before.get(key, -PAUSE) < PAUSE:
            return
        if len(self._before) >= REMEMBERED:
            self._before.clear()
        self._before[key] = moment
        super().note(key, last_used)
