"""
Models: sessions with their streams, events and calls, access tokens, kill switches, changes.

Rows of sessions are in the database ``DJANGO_MCP["DATABASE"]``, and only ``storage`` writes them.
Tokens and kill switches are in the database of the users, changes in that of the changed rows.
"""

from .changes import BroadcastCursor, Change, Interest, VisibilitySnapshot
from .sessions import (
    DONE,
    ENDLESS,
    PARKED,
    RUNNING,
    Ask,
    Call,
    Event,
    Process,
    Session,
    Step,
    Stream,
    Subscription,
)
from .tokens import Switch, Token

__all__ = [
    "DONE", "ENDLESS", "PARKED", "RUNNING", "Ask", "BroadcastCursor", "Call", "Change", "Event",
    "Interest", "Process", "Session", "Step", "Stream", "Subscription", "Switch", "Token",
    "VisibilitySnapshot",
]  # fmt: skip
