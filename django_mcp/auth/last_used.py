"""
Collect ``last_used`` times in memory and write them in the background.

Each thing is written at most once a minute, and no request waits for it. Times that are not
written when the process ends are lost, which is acceptable.
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

from ..exceptions import Busy
from ..runtime import threads

UPDATE_INTERVAL_SECONDS = 60  # at least, between two updates of one row
ROWS_PER_UPDATE = 500  # rows in one UPDATE: databases limit the parameters of a statement
MAX_REMEMBERED_TIMES = 10_000  # keys whose last use is kept in memory
logger = logging.getLogger("django_mcp.oauth")


class LastUsedTimes:
    """The uses of one kind of thing. ``write`` is called in a thread, with a list of keys."""

    def __init__(self, write: Callable[[Collection[Any]], None]) -> None:
        self._write = write
        self._noted: dict[Any, float] = {}

    def note(self, key: Any, last_used: datetime | None) -> None:
        """Note that ``key`` is used now; ``last_used`` is the stored time. Does not block."""
        if last_used is not None and timezone.now() - last_used < timedelta(
            seconds=UPDATE_INTERVAL_SECONDS
        ):
            return
        moment = time.monotonic()
        if moment - self._noted.get(key, -UPDATE_INTERVAL_SECONDS) < UPDATE_INTERVAL_SECONDS:
            return
        self._noted[key] = moment
        with suppress(Busy, RuntimeError):  # the queue is full, or the interpreter shuts down
            threads.background.run_in_background(self.write)

    def write(self) -> None:
        """Write the collected times. After a database error, the next ``note`` tries again."""
        noted = sorted(list(self._noted))  # noqa: C414 - a copy first: look-ups go on
        for start in range(0, len(noted), ROWS_PER_UPDATE):
            some = noted[start : start + ROWS_PER_UPDATE]
            try:
                self._write(some)
            except Error as error:
                logger.info("Times of last use could not be stored: %s", error)
                return
            for key in some:
                self._noted.pop(key, None)


class SparseLastUsedTimes(LastUsedTimes):
    """The uses of things without a stored time. The last time of recent ones is kept in memory."""

    def __init__(self, write: Callable[[Collection[Any]], None]) -> None:
        super().__init__(write)
        self._before: dict[Any, float] = {}

    def note(self, key: Any, last_used: datetime | None = None) -> None:
        moment = time.monotonic()
        if moment - self._before.get(key, -UPDATE_INTERVAL_SECONDS) < UPDATE_INTERVAL_SECONDS:
            return
        if len(self._before) >= MAX_REMEMBERED_TIMES:
            self._before.clear()
        self._before[key] = moment
        super().note(key, last_used)
