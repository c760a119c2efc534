"""
Where an issuer has what is asked of it: its metadata tells (RFC 8414; OpenID Discovery).

Rule: a document that names another issuer is nobody's.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from .fetching import Unanswered, fetch, is_safe

FRESH = 3600.0  # seconds


class Discovery:
    """The metadata of ``issuer``, asked for when it is needed, in a thread."""

    def __init__(self, issuer: str) -> None:
        self.issuer = issuer
        self._kept: tuple[dict[str, Any], float] | None = None

    def endpoint(self, member: str) -> str:
        """The URL that it names; or ``Unanswered``."""
        found = self._document().get(member)
        if not isinstance(found, str) or not is_safe(found):
            raise Unanswered(f"its metadata has no {member} that is safe")
        return found

    def _document(self) -> dict[str, Any]:
        kept = self._kept
        if kept is None or time.monotonic() - kept[1] > FRESH:
            kept = self._kept = (self._fetched(), time.monotonic())
        return kept[0]

    def _fetched(self) -> dict[str, Any]:
        error = Unanswered("it has no metadata")
        for place in _places(self.issuer):
            try:
                document = fetch(place)
            except Unanswered as failure:
                error = failure
                continue
            if document.get("issuer") == self.issuer:
                return document
            error = Unanswered("its metadata is another issuer's")
        raise error


def _places(issuer: str) -> Iterator[str]:
    """OpenID's comes after the path (Discovery, 4.1), that of OAuth before it (RFC 8414, 3.1)."""
    parts = urlsplit(issuer)
    yield f"{issuer.rstrip('/')}/.well-known/openid-configuration"
    path = parts.path.rstrip("/")
    yield f"{parts.scheme}://{parts.netloc}/.well-known/oauth-authorization-server{path}"
