"""
Until when a connection may be told anything: the end of the token it was opened with.

Rule: one timer for a connection whose token expires, and none for any other. It
ends the connection, never what is worked on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING

from django.utils import timezone

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from ...principal import Principal

LONGEST_TIMER = 86_400.0 * 30  # seconds


def expiry_of(principal: Principal) -> datetime | None:
    """When its token expires; None if that is never, or there is none."""
    return None if principal.auth is None else principal.auth.expires


@contextmanager
def until(
    expires: datetime | None, end: Callable[[], object], *, later: float = 0
) -> Iterator[None]:
    """Call ``end`` that many seconds after the expiry, if the block still goes on."""
    if expires is None:
        yield
        return
    seconds = max(0.0, (expires - timezone.now()).total_seconds()) + later
    timer = asyncio.get_running_loop().call_later(min(seconds, LONGEST_TIMER), end)
    try:
        yield
    finally:
        timer.cancel()
