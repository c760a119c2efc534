"""
Clients of the campaign: stdio in memory, HTTP, and a browser in which alice is signed in.

Each client loads its user again. ``received`` contains everything that arrives, for HTTP each byte
of headers and bodies.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any
from unittest import mock

from asgiref.sync import async_to_sync
from django.contrib.sessions.backends.db import SessionStore
from django.core.asgi import get_asgi_application

from django_mcp.models import Token
from django_mcp.routing import mount
from tests.client import Client
from tests.http import ClientExchange, HttpClient, elsewhere

JSON = dict[str, Any]
# What is made up for each conversation, and differs by itself: sessions, questions, their seals.
MADE_UP = re.compile(
    r"""\b[0-9a-f]{32}\b | (?<=mcp-session-id:\ )\S+ | ^data:\ | (?<="requestState":)\s*"[^"]+\"""",
    re.VERBOSE,
)
# Whether an answer is one body or events: it depends on how long it takes.
FRAMING = re.compile(
    r"""content-length: | content-type:\ (application/json|text/event-stream)$ | id: | retry: | :
    | cache-control:\ no-store,\ no-transform$ | x-accel-buffering: | data:\s*$""",
    re.VERBOSE,
)


def fresh(user: Any) -> Any:
    return type(user)._default_manager.get(pk=user.pk)


class Pipe(Client):
    """A stdio client in memory."""

    def __init__(self, user: Any, server: Any, revision: str) -> None:
        self.server, self.visitor = server, fresh(user)
        super().__init__(self.visitor, server=server, revision=revision)

    def _check(self, message: JSON) -> None:
        """Skip the schema check, which other tests do."""

    def stop(self, started: Any) -> None:
        """Cancel a request."""
        self.notify("notifications/cancelled", requestId=started)
        self.settle()


class Web(HttpClient):
    """A client over HTTP, with a token; in a session, it listens to the session's stream."""

    def __init__(self, user: Any, server: Any, revision: str, token: str | None = None) -> None:
        self.received: list[str] = []
        self.visitor = fresh(user)
        token = token or Token.make(self.visitor, "canaries")[1]
        application = recorded(mount(elsewhere), self.received)
        super().__init__(token, server=server, revision=revision, application=application)
        if self.revision.handshake:
            stream = self.listen()
            self.until(lambda: stream.status)  # what it begins with is no attempt's

    _check = Pipe._check

    def stop(self, started: ClientExchange) -> None:
        started.leave()


def recorded(application: Any, received: list[str]) -> Any:
    """Wrap an application, and append all that it sends to ``received``."""

    async def recording(scope: Any, receive: Any, send: Any) -> None:
        async def sent(message: JSON) -> None:
            received.append(as_text(message))
            await send(message)

        await application(scope, receive, sent)

    return recording


def as_text(message: JSON) -> str:
    """Return an ASGI message roughly as it is on the wire."""
    if "status" not in message:
        return str(message.get("body", b"").decode())
    headers = (f"{name.decode()}: {value.decode()}" for name, value in message["headers"])
    return "\n".join([str(message["status"]), *headers])


def visited(user: Any, server: Any, query: str, accept: str) -> list[str]:
    """Return the response to a browser, signed in as ``user`` or anonymous."""
    found: list[str] = []
    headers = [(b"host", b"testserver"), (b"accept", accept.encode())]
    if user is not None:
        headers.append((b"cookie", f"sessionid={_session_of(user)}".encode()))
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET",
        "scheme": "http", "path": f"/{server.path}", "query_string": query.encode(),
        "root_path": "", "headers": headers, "client": ("127.0.0.1", 1), "server": ("x", 80),
    }  # fmt: skip

    parts = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> JSON:
        return next(parts, None) or await asyncio.Future()  # nothing more comes

    async def send(message: JSON) -> None:
        found.append(as_text(message))

    # In this thread, whose database it is, and stays, as with Django's own client for tests.
    with mock.patch("django.db.backends.base.base.BaseDatabaseWrapper.close"):
        async_to_sync(mount(get_asgi_application()))(scope, receive, send)
    return found


def _session_of(user: Any) -> str:
    session = SessionStore()
    session["_auth_user_id"] = str(user.pk)
    session["_auth_user_backend"] = "django.contrib.auth.backends.ModelBackend"
    session["_auth_user_hash"] = user.get_session_auth_hash()
    session.create()
    return str(session.session_key)
