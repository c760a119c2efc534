"""
The way back for the parameters of notifications, which the server sends.

A notification that a revision lacks altogether is not listed here: see ``Revision.sends``.
"""

from __future__ import annotations

from . import Changelog
from .shapes import JSON, meta_without, without

NOTIFICATIONS = Changelog()
introduced_in = NOTIFICATIONS.introduced_in


@introduced_in("2026-07-28")
def subscription_id(params: JSON) -> JSON:
    """Notifications of a subscription name it."""
    return meta_without(params, "io.modelcontextprotocol/subscriptionId")


@introduced_in(
    "2025-11-25",
    "notifications/cancelled",
    "notifications/message",
    "notifications/progress",
    "notifications/resources/updated",
)
def metadata(params: JSON) -> JSON:
    """The parameters of all notifications carry metadata."""
    return without(params, "_meta")


@introduced_in("2025-03-26", "notifications/progress")
def progress_message(params: JSON) -> JSON:
    """Progress is told in words too."""
    return without(params, "message")
