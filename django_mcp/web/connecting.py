"""
How to connect each client to a server, as the page shows it.

Rule: what is shown holds a placeholder where a token belongs, and so does every link.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..principal import Challenging, verifiers
from .clients import CLIENTS, Snippet

if TYPE_CHECKING:
    from ..declare.servers import Server


@dataclass(frozen=True)
class Way:
    """One client: what to paste where, and the link that opens it, if it has one.

    ``words`` are those of a command, which is not broken within one.
    """

    key: str
    name: str
    snippet: Snippet
    link: str | None

    @property
    def words(self) -> list[str]:
        return self.snippet.text.split(" ") if self.snippet.language == "sh" else []


def ways(server: Server, url: str) -> list[Way]:
    """A way for each client that there is."""
    name, asks = short_name(server), not (is_open(server) or signs_in(server))
    token = None if asks else ""
    return [
        Way(
            one.key,
            one.name,
            one.snippet(name, url=url, token=token),
            one.deep_link(name, url, asks_token=asks),
        )
        for one in CLIENTS
    ]


def is_open(server: Server) -> bool:
    """Whether everything there is is for everybody, so that nobody needs a token."""
    return server.catalog.has_public and server.catalog.is_public


def signs_in(server: Server) -> bool:
    """Whether a client that shows no token is told where its user signs in.

    Where something is for everybody it is let in as nobody, and need never be told.
    """
    if server.catalog.has_public:
        return False
    return any("resource_metadata" in one.challenge(server) for one in _challenging())


def _challenging() -> Iterator[Challenging]:
    return (one for one in verifiers() if isinstance(one, Challenging))


def short_name(server: Server) -> str:
    """The server's name in letters that every client takes."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", server.public_name).strip("-")[:64] or "mcp"
