"""
What a token says of itself before anybody has verified it: only to tell whose it may be.

Rule: nothing that is decided here lets anybody in.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Any

PERSONAL = "mcp_"  # as personal access tokens begin
TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # b64token of RFC 6750, section 2.1
COMPACT = re.compile(r"[A-Za-z0-9_-]+\.([A-Za-z0-9_-]+)\.[A-Za-z0-9_-]+")


def claims_of(token: str) -> dict[str, Any] | None:
    """The claims of a JWT; None if it is none."""
    found = COMPACT.fullmatch(token)
    try:
        claims = json.loads(_decoded(found[1])) if found else None
    except (ValueError, RecursionError):
        return None
    return claims if isinstance(claims, dict) else None


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def is_of_others(token: str, issuer: str) -> bool:
    """Whether it is plainly no token of ``issuer``, which is not to see it then."""
    if token.startswith(PERSONAL) or not TOKEN.fullmatch(token):
        return True
    return bool((claims_of(token) or {}).get("iss", issuer) != issuer)
