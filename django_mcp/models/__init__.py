"""
What is stored: the log of what clients must not lose, and access tokens.

Rule: rows say what is; ``delivery`` alone writes those of the log. They live in
the database ``DJANGO_MCP["DATABASE"]``, tokens and switches beside the users, changes beside
what changed.
"""

from .calls import DONE, PARKED, RUNNING, Ask, Call, Step
from .changes import Change, Interest, Sight, Telling
from .sessions import Process, Session, Subscription
from .streams import ENDLESS, Event, Stream
from .switches import Switch
from .tokens import Token

__all__ = [
    "DONE", "ENDLESS", "PARKED", "RUNNING", "Ask", "Call", "Change", "Event", "Interest", "Process",
    "Session", "Sight", "Step", "Stream", "Subscription", "Switch", "Telling", "Token",
]  # fmt: skip
