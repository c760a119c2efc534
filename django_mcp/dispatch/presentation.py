"""
How a server presents itself: its name and what it can do.

Rule: a capability is there when what it promises is; nothing is advertised
that has nothing behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..declare.servers import Server

JSON = dict[str, Any]
SERVER_INFO = "io.modelcontextprotocol/serverInfo"


def server_info(server: Server) -> JSON:
    """The server's ``Implementation``, as the newest revision writes it."""
    info: JSON = {"name": server.public_name, "version": server.version}
    about = (
        ("title", server.title), ("description", server.description), ("websiteUrl", server.website)
    )  # fmt: skip
    info |= {key: str(value) for key, value in about if value}
    return info | ({"icons": [icon.write() for icon in server.icons]} if server.icons else {})


def capabilities(server: Server) -> JSON:
    """What the server can do."""
    found = {name: dict(features) for name, (has, features) in _HAS.items() if has(server)}
    if server.experimental:
        found["experimental"] = server.experimental
    return found | ({"extensions": server.extensions} if server.extensions else {})


def is_capable(server: Server, capability: str) -> bool:
    """Whether the server has a capability that methods belong to."""
    return _HAS[capability][0](server)


def _has_resources(server: Server) -> bool:
    catalog = server.catalog
    return bool(catalog.resources or catalog.templates) or _embeds(server)


def _embeds(server: Server) -> bool:
    """Servers that use embedded resources SHOULD implement resources (server/tools)."""
    return any(tool.output.embeds for tool in server.catalog.tools.values())


def _completes(server: Server) -> bool:
    catalog = server.catalog
    things: list[Any] = [*catalog.prompts.values(), *catalog.templates.values()]
    return any(thing.completers for thing in things)


_HAS: dict[str, tuple[Callable[[Server], bool], JSON]] = {
    "logging": (lambda server: True, {}),
    "tools": (lambda server: bool(server.catalog.tools), {"listChanged": True}),
    "prompts": (lambda server: bool(server.catalog.prompts), {"listChanged": True}),
    "resources": (_has_resources, {"listChanged": True, "subscribe": True}),
    "completions": (_completes, {}),
}
