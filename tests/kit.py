"""Validate every message that a server sends to a test client of ``django_mcp.testing``.

The tests replace ``Peer.heard`` by ``conforms``, which uses the official schema of the revision.
"""

from __future__ import annotations

from typing import Any

from django_mcp.testing.peers import Peer

from .oracle import message_conforms

JSON = dict[str, Any]


def conforms(peer: Peer, message: JSON, method: str | None) -> None:
    """Raise an error if the message violates the schema. Replaces ``Peer.heard``."""
    if "error" in message and message.get("id") is None:
        message = message | {"id": 0}  # JSON-RPC allows null, the schemas do not
    if (
        "result" not in message or method is not None
    ):  # a late response to a cancelled request has no method here
        message_conforms(peer.revision, message, method)
