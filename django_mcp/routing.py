"""
``mount``: one ASGI application that serves the MCP servers and passes all else to Django.

Each server is served at its path, with and without a trailing slash, below any mount point
(``FORCE_SCRIPT_NAME`` or ``root_path``). If a declaration has errors, ``mount`` raises
``Misdeclared``, so the ASGI server does not start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .conf import project
from .declarations.server import servers
from .runtime.view_limits import is_limited, pass_on
from .transports.http.consumer import MCPConsumer
from .transports.http.request import Application
from .transports.http.shutdown import draining
from .web.page import page_of

if TYPE_CHECKING:
    from .declarations.server import Server


def as_asgi(server: Server) -> Application:
    """Return the endpoint of one server as an ASGI application. Raise ``Misdeclared``."""
    server.ready()
    page = None if server.page is None else page_of(server)
    # One consumer for all requests, because it stores nothing about them.
    return MCPConsumer(server, page)


def mount(django: Application, *, health: str | None = None) -> Application:
    """Return an ASGI application with all MCP servers, which passes other requests to ``django``.

    Call it in ``asgi.py`` after ``get_asgi_application()``, when the apps are loaded. It answers
    ``lifespan``. With ``health="health"`` it also serves ``/health/live`` and ``/health/ready`` for
    monitoring. Raise ``Misdeclared`` with all errors of all servers.
    """
    endpoints: dict[str, Application] = {}
    for server in servers():
        endpoints |= dict.fromkeys(server._paths, as_asgi(server))

    if health is not None:
        from .web.health import probes  # imported only if it is used

        endpoints = probes(health) | endpoints

    async def application(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            await django(scope, receive, send)
            return
        path = path_below_mount(scope)
        if endpoint := endpoints.get(path.removeprefix("/").removesuffix("/")):
            await endpoint(scope, receive, send)
        elif is_limited(path):
            await pass_on(django, scope, receive, send)
        else:
            await django(scope, receive, send)

    return application


def path_below_mount(scope: Any) -> str:
    """Return the path of a request without the mount point's prefix."""
    path: str = scope["path"]
    root = project.FORCE_SCRIPT_NAME or scope.get("root_path", "")
    root = root.rstrip("/")
    if root and (path == root or path.startswith(root + "/")):
        path = path[len(root) :]
    return path


async def _lifespan(receive: Any, send: Any) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.shutdown":
            await draining().finish()
            await send({"type": "lifespan.shutdown.complete"})
            return
        draining()  # Creating it installs the signal handler before the first request.
        await send({"type": "lifespan.startup.complete"})
