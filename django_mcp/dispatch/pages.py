"""
Pages that clients of sessions were sent to, whose end they will be told of.

Rule: only the session whose client was sent there is told. It is kept as a
subscription to what can be no URI, and so within the bounds of those.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from ..delivery import sessions
from ..exceptions import Busy
from ..models import Session

logger = logging.getLogger("django_mcp")
PREFIX = "?page/"


def expect(session: Session, ids: Iterable[str]) -> None:
    """The end of these will be told. Asks the database."""
    try:
        for id in ids:
            sessions.subscribe(session, PREFIX + id)
    except Busy:
        logger.warning(
            "Session %s is not told of the end of a page: it waits for too many", session
        )
    except sessions.Gone:
        pass  # and with it, who would be told


def is_page(uri: str) -> bool:
    return uri.startswith(PREFIX)


def forget(session_ids: Iterable[int], id: str) -> None:
    """It is over, and these were told. Asks the database."""
    for session_id in session_ids:
        sessions.unsubscribe(session_id, PREFIX + id)
