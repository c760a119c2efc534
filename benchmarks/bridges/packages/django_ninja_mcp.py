"""
django-ninja-mcp: the tools that it makes of the API.

Its `mount()` fails, because `NinjaAPI` has no `event_source` in the pinned django-ninja. So its
server runs here in the HTTP transport of `mcp`. The tools send HTTP requests to the API, with the
token of its HTTP client, which is always that of one user.
"""

import os

import httpx
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from ninja_mcp import NinjaMCP

from benchmarks.bridges.operations import api
from benchmarks.bridges.urls import urlpatterns as urlpatterns

server = NinjaMCP(
    api,
    base_url=f"http://127.0.0.1:{os.environ['COMPARED_PORT']}/ninja",
    http_client=httpx.AsyncClient(headers={"Authorization": "Bearer the-token-of-ada"}),
    describe_all_responses=True,
)


def application(django):
    try:
        server.mount()
    except AttributeError as error:
        print(f"mount() fails: {error}", flush=True)
    manager = StreamableHTTPSessionManager(server.server, json_response=True, stateless=True)

    async def serve(scope, receive, send):
        if scope["type"] == "lifespan":
            await receive()
            async with manager.run():
                await send({"type": "lifespan.startup.complete"})
                await receive()
            await send({"type": "lifespan.shutdown.complete"})
        elif scope["path"] == "/mcp":
            await manager.handle_request(scope, receive, send)
        else:
            await django(scope, receive, send)

    return serve
