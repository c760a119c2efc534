"""
What time it is, for the rows: the time of the database that keeps them.

Rule: what one process notes and another judges by is told by this clock and by
no other: how long a question waits, when a session was last used, what is old
enough to be forgotten. It is read from the database once a minute, and counted
on by a clock that nobody sets; so a process whose own clock is wrong, or is put
right, ends nothing early. SQLite has no clock: its processes share a machine,
and the machine's is taken.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

from django.conf import settings as project
from django.db import connections
from django.utils import timezone

from .. import threads
from ..conf import settings

READING = 60.0  # seconds between two looks at the database's clock
STATEMENTS = {
    "postgresql": "SELECT EXTRACT(EPOCH FROM clock_timestamp())",
    "mysql": "SELECT UNIX_TIMESTAMP(NOW(6))",  # in whatever time zone
}
_ahead = 0.0  # of the clock that nobody sets, when it was last read
_read_again = 0.0


def now() -> datetime:
    """In a thread that may ask the database."""
    connection = connections[settings.DATABASE]
    if connection.vendor not in STATEMENTS or threads.is_adopted():
        return timezone.now()
    if time.monotonic() >= _read_again:
        _read(connection)
    epoch = time.monotonic() + _ahead
    return datetime.fromtimestamp(epoch, UTC if project.USE_TZ else None)


def _read(connection: Any) -> None:
    global _ahead, _read_again
    with connection.cursor() as cursor:
        cursor.execute(STATEMENTS[connection.vendor])
        (epoch,) = cursor.fetchone()
    _ahead = float(epoch) - time.monotonic()
    _read_again = time.monotonic() + READING
