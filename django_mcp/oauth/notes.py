"""
What the validator learns about a request to the authorization server, from one hook to the next.

Rule: never in an attribute of the request: oauthlib answers those it does not have from what the
client sent, and a parameter ``family`` would be a family.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

_NAME = "_mcp_notes"


@dataclass(slots=True)
class Notes:
    """What is known of one request."""

    grant: Any = None  # the code that is redeemed
    targets: list[str] | None = None  # the servers that the token will be for
    scope: str = ""  # of the refresh token that is used
    family: uuid.UUID | None = None  # of the refresh token that was issued
    checked: str | None = None  # the client that was found not to be blocked


def notes(request: Any) -> Notes:
    found: Notes = vars(request).setdefault(_NAME, Notes())
    return found
