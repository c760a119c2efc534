"""
What asks a client for a token, or for a broader one: 401 and 403, and what they say (RFC 6750, 3).

Rule: where a token is to be had is for the verifiers to say; the first that knows counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from django.utils.encoding import escape_uri_path

from ...principal import Challenging, verifiers
from ...protocol.jsonrpc import Id, InvalidRequest
from .exchanges import Refused

if TYPE_CHECKING:
    from .exchanges import Exchange

INSUFFICIENT = "The token is too narrow for this."


def challenge(exchange: Exchange, *, invalid: bool = False, about: Id | None = None) -> Refused:
    """The 401 that asks for a token (RFC 6750, 3), for the request of an id if that is known."""
    said = "The token is not valid here." if invalid else "A token is needed."
    error = {"error": "invalid_token", "error_description": said} if invalid else {}
    return _refused(exchange, 401, said, error, about)


def insufficient(exchange: Exchange, scopes: Sequence[str], *, about: Id | None = None) -> Refused:
    """The 403 that asks for a broader one (RFC 6750, 3.1): ``scopes`` are all that is needed."""
    error = {"error": "insufficient_scope", "scope": " ".join(scopes)}
    error["error_description"] = INSUFFICIENT
    said = f"{INSUFFICIENT} It needs: {error['scope']}."
    return _refused(exchange, 403, said, error, about)


def _refused(
    exchange: Exchange, status: int, said: str, error: Mapping[str, str], about: Id | None
) -> Refused:
    words = {"realm": exchange.server.name, **error}
    for verifier in verifiers():
        if isinstance(verifier, Challenging):  # the first counts: clients go to its issuer
            said_by = verifier.challenge(exchange.server)
            words |= {k: v for k, v in said_by.items() if k not in words}
    if where := words.get("resource_metadata"):
        words["resource_metadata"] = _as_asked(where, exchange)
    header = (b"www-authenticate", _bearer(words))
    return Refused(status, InvalidRequest(said, about=about), (header,))


def _as_asked(where: str, exchange: Exchange) -> str:
    """Where a server is with a slash at its end, its metadata is too.

    Clients hold the name in it against the URL that they have (RFC 9728, 3.3).
    """
    path = escape_uri_path(exchange.scope["path"])
    is_other = path.endswith("/") and path != "/" and where.endswith(path[:-1])
    return f"{where}/" if is_other else where


def _bearer(words: Mapping[str, str]) -> bytes:
    return ("Bearer " + ", ".join(f'{k}="{_quotable(v)}"' for k, v in words.items())).encode()


def _quotable(text: str) -> str:
    """What of a text may stand in a quoted string (RFC 9110, 5.6.4) as it is."""
    return re.sub(r"[^ !#-\[\]-~]", "?", text)
