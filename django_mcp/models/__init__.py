"""
Models: sessions with their streams, events and calls, tokens, kill switches, approvals, changes,
audit log.

- ``sessions``: rows of sessions, in the database ``DJANGO_MCP["DATABASE"]``. Only ``storage``
  writes them.
- ``tokens``: personal access tokens and kill switches, in the database of the users
- ``approvals``: calls that a second person must approve, in the database of the users
- ``audit``: the audit log, in the database of the users
- ``changes``: the change log, in the database of the changed rows
"""

from .approvals import Approval, ApprovalStatus
from .audit import AuditEntry
from .changes import BroadcastCursor, Change, Interest, VisibilitySnapshot
from .sessions import (
    DONE,
    ENDLESS,
    PARKED,
    RUNNING,
    Ask,
    Call,
    Event,
    Inspector,
    Process,
    Session,
    Step,
    Stream,
    Subscription,
)
from .tokens import Switch, Token

__all__ = [
    "DONE", "ENDLESS", "PARKED", "RUNNING", "Approval", "ApprovalStatus", "Ask", "AuditEntry",
    "BroadcastCursor", "Call", "Change", "Event", "Inspector", "Interest", "Process", "Session",
    "Step", "Stream", "Subscription", "Switch", "Token", "VisibilitySnapshot",
]  # fmt: skip
