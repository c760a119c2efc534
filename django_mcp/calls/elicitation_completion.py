"""Subscriptions of sessions to the completion of URL elicitations.

A URL elicitation sends the user to a web page. When the user has completed it, the session is sent
``notifications/elicitation/complete``, and no other session is. The subscription is stored like one
to a resource, with the URI ``?page/<id>``. No resource has this URI, because it is not valid. So
the limits of subscriptions apply without further code.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from ..exceptions import Busy
from ..models import Session
from ..storage import sessions

logger = logging.getLogger("django_mcp")
URI_PREFIX = "?page/"


def completion_uri(id: str) -> str:
    return URI_PREFIX + id


def is_completion_uri(uri: str) -> bool:
    return uri.startswith(URI_PREFIX)


def subscribe(session: Session, ids: Iterable[str]) -> None:
    """Subscribe a session to the completion of these elicitations. Queries the database."""
    try:
        for id in ids:
            sessions.subscribe(session, completion_uri(id))
    except Busy:
        logger.warning(
            "Session not notified of a completed elicitation, it has too many subscriptions: "
            "session=%s",
            session,
        )
    except sessions.SessionEnded:
        pass  # there is no client left to notify


def unsubscribe(session_ids: Iterable[int], id: str) -> None:
    """Unsubscribe sessions from an elicitation that was completed. Queries the database."""
    for session_id in session_ids:
        sessions.unsubscribe(session_id, completion_uri(id))
