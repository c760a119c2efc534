"""
How a server presents itself: its name and what it can do.

Rule: a capability is there when what it promises is; nothing is advertised
that has nothing behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..declare.servers import Server

JSON = dict[str, Any]
SERVER_INFO = "io.modelcontextprotocol/serverInfo"


def server_info(server: Server) -> JSON:
    """The server's ``Implementation``, as the newest revision writes it."""
    optional = {
        "title": server.title,
        "description": server.description,
        "websiteUrl": server.website,
        "icons": [icon.write() for icon in server.icons],
    }
    given = {
        key: str(value) if key != "icons" else value for key, value in optional.items() if value
    }
    return {"name": server.public_name, "version": server.version} | given


def capabilities(server: Server) -> JSON:
    """What the server can do."""
    catalog = server.catalog
    found: JSON = {"logging": {}}
    if catalog.tools:
        found["tools"] = {"listChanged": True}
    if catalog.prompts:
        found["prompts"] = {"listChanged": True}
    if catalog.resources or catalog.templates or _embeds(server):
        found["resources"] = {"listChanged": True, "subscribe": True}
    if _completes(server):
        found["completions"] = {}
    if server.experimental:
        found["experimental"] = server.experimental
    return found | ({"extensions": server.extensions} if server.extensions else {})


def _embeds(server: Server) -> bool:
    """Servers that use embedded resources SHOULD implement resources (server/tools)."""
    return any(tool.output.embeds for tool in server.catalog.tools.values())


def _completes(server: Server) -> bool:
    catalog = server.catalog
    things: list[Any] = [*catalog.prompts.values(), *catalog.templates.values()]
    return any(thing.completers for thing in things)
