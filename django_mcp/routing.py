"""
Where the MCP servers are: beside Django, in one ASGI application.

Rule: a server with mistakes in it does not start. Each is served at its path,
with and without a trailing slash and below any mount point; everything else is
Django's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .conf import project
from .declare.servers import servers
from .transports.http.consumer import MCPConsumer
from .transports.http.draining import draining
from .transports.http.exchanges import Application
from .web.asgi import page_of

if TYPE_CHECKING:
    from .declare.servers import Server


def as_asgi(server: Server) -> Application:
    """The endpoint of one server, as an ASGI application. Raises ``Misdeclared``."""
    server.ready()
    page = None if server.page is None else page_of(server)
    made: Application = MCPConsumer.as_asgi(server=server, page=page)
    return made


def mount(django: Application, *, health: str | None = None) -> Application:
    """``django``, with every MCP server at its path: the ``application`` of ``asgi.py``.

    Call it when the apps are loaded, that is after ``get_asgi_application()``.
    Answers ``lifespan``. ``health="health"`` has ``/health/live`` and ``/health/ready`` tell those
    who watch the process how it is. Raises ``Misdeclared`` with all that is wrong.
    """
    endpoints: dict[str, Application] = {}
    for server in servers():
        endpoints |= dict.fromkeys(server.paths, as_asgi(server))

    if health is not None:
        from .web.health import addresses  # who does not ask for it pays nothing

        endpoints = addresses(health) | endpoints

    async def application(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        found = endpoints.get(place(scope)) if scope["type"] == "http" else None
        await (found or django)(scope, receive, send)

    return application


def place(scope: Any) -> str:
    """The path of a request below its mount point, as ``Server.path`` is written."""
    path: str = scope["path"]
    root = project.FORCE_SCRIPT_NAME or scope.get("root_path", "")
    root = root.rstrip("/")
    if root and (path == root or path.startswith(root + "/")):
        path = path[len(root) :]
    return path.removeprefix("/").removesuffix("/")


async def _lifespan(receive: Any, send: Any) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.shutdown":
            await draining().finish()
            await send({"type": "lifespan.shutdown.complete"})
            return
        draining()  # from before the first request on, a signal is heard here
        await send({"type": "lifespan.startup.complete"})
