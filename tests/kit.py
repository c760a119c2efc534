"""The kit's clients, as the tests of this project have them: they believe nothing they are told.

Every message that a server sends to one is held against the official schema of its revision.
"""

from __future__ import annotations

from typing import Any

from django_mcp.testing.peers import Peer

from .oracle import message_conforms

JSON = dict[str, Any]


def conforms(peer: Peer, message: JSON, method: str | None) -> None:
    """In the place of ``Peer.heard``: raises what is wrong with a message."""
    if "error" in message and message.get("id") is None:
        message = message | {"id": 0}  # as JSON-RPC and the transports have it, and no schema
    if "result" not in message or method is not None:  # what was cancelled is answered late
        message_conforms(peer.revision, message, method)
