"""
The requests that `python -m tools trace` counts: each is sent with a token, in this process.

The project is that of the benchmarks, on SQLite, with two synchronous `read_only` tools and a
model resource of its own. The tool of the SDK's server does the same.
"""

import asyncio
import json
import os
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks.messages import CLIENT, PREFIX, SECRET, SESSION, STATELESS

Path = Callable[[], Awaitable[None]]
ARGUMENTS = {"a": 1, "b": 2}
ADDRESS = "localhost:8000"  # the SDK's server requires a port
REFRESH_TOKEN = "the-refresh-token-of-alice"


class Client:
    """Send requests with a token to an ASGI application in this event loop."""

    def __init__(self, application: Any, client_id: str = "") -> None:
        self.application, self.client_id = application, client_id
        self.session: dict[str, str] = {}  # the headers of a session, once it is initialized
        self.refresh_token = REFRESH_TOKEN

    async def post(self, path: str, body: bytes, headers: dict[str, str]) -> tuple[Any, bytes]:
        """Return the headers and the body of a successful response."""
        received, forever = [body], asyncio.Event()
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            if not received:
                await forever.wait()
            return {"type": "http.request", "body": received.pop(), "more_body": False}

        async def keep(message: dict[str, Any]) -> None:
            sent.append(message)

        headers = {"host": ADDRESS, "content-length": str(len(body)), **headers}
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        scope = {
            "type": "http", "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1", "method": "POST", "scheme": "http", "path": path,
            "raw_path": path.encode(), "query_string": b"", "root_path": "", "headers": raw,
            "client": ("127.0.0.1", 50_000), "server": ("localhost", 8000),
        }  # fmt: skip
        await self.application(scope, receive, keep)
        found = b"".join(message.get("body", b"") for message in sent)
        if sent[0]["status"] not in (200, 202) or b'"isError":true' in found or b'"error"' in found:
            raise RuntimeError(f"{path} answered {sent[0]['status']}: {found[:1000]!r}")
        return {name.decode(): value.decode() for name, value in sent[0]["headers"]}, found

    async def send(self, headers: dict[str, str], **message: Any) -> tuple[Any, bytes]:
        accepted = {
            "authorization": f"Bearer {SECRET}",
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
        }
        body = json.dumps({"jsonrpc": "2.0"} | message).encode()
        return await self.post("/mcp", body, accepted | headers)

    async def request_stateless(self, method: str, target: str, **params: Any) -> None:
        meta = {"protocolVersion": STATELESS, "clientCapabilities": {}, "clientInfo": CLIENT}
        headers = {"mcp-protocol-version": STATELESS, "mcp-method": method, "mcp-name": target}
        params["_meta"] = {PREFIX + key: value for key, value in meta.items()}
        await self.send(headers, id=1, method=method, params=params)

    async def request_in_session(self, tool: str, **meta: Any) -> None:
        params = {"name": tool, "arguments": ARGUMENTS, "_meta": meta}
        if not self.session:
            hello = {"protocolVersion": SESSION, "capabilities": {}, "clientInfo": CLIENT}
            headers, _ = await self.send({}, id=1, method="initialize", params=hello)
            self.session = {"mcp-protocol-version": SESSION}
            self.session["mcp-session-id"] = headers["mcp-session-id"]
            await self.send(self.session, method="notifications/initialized")
        _, body = await self.send(self.session, id=1, method="tools/call", params=params)
        if bool(meta) != (b"notifications/progress" in body):
            raise RuntimeError(f"Progress was expected only where it was asked for: {body!r}")

    async def request_token(self) -> None:
        body = f"grant_type=refresh_token&client_id={self.client_id}&refresh_token="
        headers = {"content-type": "application/x-www-form-urlencoded"}
        _, found = await self.post("/oauth/token", (body + self.refresh_token).encode(), headers)
        self.refresh_token = json.loads(found)["refresh_token"]

    def paths(self) -> dict[str, Path]:
        call, read = {"name": "trace", "arguments": ARGUMENTS}, "model://benchmarks/city/7"
        return {
            "stateless": lambda: self.request_stateless("tools/call", "trace", **call),
            "session": lambda: self.request_in_session("trace"),
            "progress": lambda: self.request_in_session("trace_progress", progressToken=1),
            "read": lambda: self.request_stateless("resources/read", read, uri=read),
            "token": self.request_token,
        }


def make_application() -> Any:
    """Return the project of the benchmarks, with what is traced declared in it."""
    os.environ |= {"DJANGO_SETTINGS_MODULE": "benchmarks.settings", "BENCHMARK_OAUTH": "1"}
    import django
    from django.conf import settings

    settings.DJANGO_MCP.pop("THROTTLES")  # as a project has it that sets none
    django.setup()
    import django_mcp as mcp
    from benchmarks.models import City

    @mcp.tool(permission=mcp.AUTHENTICATED, read_only=True)
    def trace(request: mcp.Request, a: int, b: int) -> int:
        return a + b

    @mcp.tool(permission=mcp.AUTHENTICATED, read_only=True)
    def trace_progress(request: mcp.Request, a: int, b: int) -> int:
        request.progress(1, 2)
        return a + b

    @mcp.register(City)
    class CityResource(mcp.ModelResource):
        permission = mcp.AUTHENTICATED
        fields = ["name", "population"]

        def get_queryset(self, request: mcp.Request) -> Any:
            return super().get_queryset(request).all()

    from benchmarks.server import application  # migrates, makes rows, and mounts the server

    return application


def make_client() -> Client:
    application = make_application()
    return Client(application, make_refresh_token())


def make_refresh_token() -> str:
    """Store a refresh token beside the access token of the benchmarks, and return its client."""
    from oauth2_provider.models import (
        get_access_token_model,
        get_refresh_token_model,
        set_token_value,
    )

    access = get_access_token_model().objects.select_related("application").get(token=SECRET)
    refresh = get_refresh_token_model()(
        user_id=access.user_id, application=access.application, access_token=access,
        token_family=uuid.uuid4(),
    )  # fmt: skip
    set_token_value(refresh, REFRESH_TOKEN)
    refresh.save()
    return str(access.application.client_id)


def make_sdk_server() -> Any:
    """Return the SDK's server with the same tool. Raise `ImportError` where it is not installed."""
    from mcp.server.auth.provider import AccessToken
    from mcp.server.auth.settings import AuthSettings
    from mcp.server.mcpserver import MCPServer

    class Verifier:
        async def verify_token(self, token: str) -> Any:
            return AccessToken(token=token, client_id="agent", scopes=[], resource=url)

    url: Any = f"http://{ADDRESS}/mcp"
    auth = AuthSettings(issuer_url=url, resource_server_url=url, validate_token_resource=True)
    server = MCPServer("trace", log_level="ERROR", token_verifier=Verifier(), auth=auth)

    @server.tool()
    def trace(a: int, b: int) -> int:
        return a + b

    return server
