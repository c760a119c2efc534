"""
What is stored: the log of what clients must not lose, and access tokens.

Rule: rows say what is; ``delivery`` alone writes those of the log. They live in
the database ``DJANGO_MCP["DATABASE"]``, tokens beside the users.
"""

from .calls import DONE, PARKED, RUNNING, Ask, Call, Step
from .sessions import Process, Session, Subscription
from .streams import Event, Stream
from .tokens import Token

__all__ = [
    "DONE", "PARKED", "RUNNING", "Ask", "Call", "Event", "Process", "Session", "Step", "Stream",
    "Subscription", "Token",
]  # fmt: skip
