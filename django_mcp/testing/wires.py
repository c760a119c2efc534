"""
In-process transports of the test clients: messages in memory, over stdio, and over HTTP.

No transport uses sockets. Messages are encoded to JSON in both directions, and received in order in
the client's event loop.

``HttpWire`` sends requests to the project's ASGI application. Status, headers, events and
disconnects are those of a real connection. It can drop a connection after any message and resume
its stream by ``Last-Event-ID``. An event that arrives twice is an error, because a client would
process it twice.

Source: basic/transports of each revision.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import re
import secrets
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from django.http.request import split_domain_port, validate_host

from ..auth.principal import verifiers_of_tests
from ..conf import settings
from ..declarations.arguments import value_at
from ..protocol import http_rules
from ..protocol.http_rules import NAMED
from ..protocol.jsonrpc import encode
from ..routing import as_asgi
from ..transports.http.security import allowed_hosts
from ..transports.pipe import Conversation
from ..transports.stdio import serve
from .results import RpcError

if TYPE_CHECKING:
    from ..auth.principal import Principal
    from ..declarations.server import Server
    from ..protocol.revisions import Revision

JSON = dict[str, Any]
Id = str | int
IN_TESTS = "testserver"  # the host that Django adds to ALLOWED_HOSTS in tests


class Owner(Protocol):
    """The client that receives the messages of a wire."""

    def take(self, message: Any, about: Id | None = None, status: int | None = None) -> None:
        """Receive a message of the server, or a batch.

        Over HTTP, ``status`` is that of the response and ``about`` the request that it answers.
        """

    def refuse(self, id: Id, error: Exception) -> None:
        """Fail the request with that id, which gets no response."""

    def is_waiting(self, id: Id) -> bool:
        """Whether the request with that id has no response yet."""

    def object(self, problem: BaseException) -> None:
        """Store an error in a received message. The client raises it on its next use."""


@dataclass(frozen=True)
class Ends:
    """What a wire connects: a client, a server, and the client's principal."""

    owner: Owner
    server: Server
    revision: Revision
    principal: Callable[[], Awaitable[Principal]]
    application: Any = None  # an ASGI application; by default the server's endpoint


def public_host() -> str:
    """The host of ``URL``."""
    return str(urlsplit(settings.URL).netloc)


def answered_to(*hosts: str) -> str:
    """Return the first of ``hosts`` that ALLOWED_HOSTS allows, else the first."""
    allowed = list(allowed_hosts())
    taken = (host for host in hosts if validate_host(split_domain_port(host)[0], allowed))
    return next(taken, hosts[0])


class Wire:
    """A transport between a client and the server, in both directions."""

    lags = False  # whether ``send`` may return before the server has the message

    def __init__(self, ends: Ends) -> None:
        self.ends = ends

    async def open(self) -> None:
        """Connect. Call it in the client's event loop."""

    async def send(self, message: Any) -> None:
        """Send one message, a batch, or a raw line."""
        raise NotImplementedError

    async def arrive(self) -> None:
        """Wait until the server has noticed dropped connections, if the transport has any."""

    async def hear(self) -> None:
        """Open the stream for notifications that belong to no request, if the transport has one."""

    async def cancel(self, id: Id, reason: str) -> None:
        """Cancel a request of the client."""
        params = {"requestId": id, "reason": reason}
        method = "notifications/cancelled"
        await self.send({"jsonrpc": "2.0", "method": method, "params": params})

    async def close(self) -> None:
        """Disconnect."""


class MemoryWire(Wire):
    """A conversation as over stdio, without pipes."""

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        ends = self.ends
        host = answered_to(public_host(), IN_TESTS)
        self._conversation = Conversation(ends.server, ends.principal, self._sent, host=host)

    def _sent(self, message: Any) -> None:
        """Pass a message to the client. Called from any thread.

        It is copied through JSON at once, so that later changes of its objects have no effect.
        """
        copied = json.loads(encode(message))
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            self._loop.call_soon_threadsafe(self.ends.owner.take, copied)

    async def send(self, message: Any) -> None:
        self._conversation.receive(_raw(message))

    async def close(self) -> None:
        await self._conversation.close()


class StdioWire(Wire):
    """Two pipes, served as ``mcp_stdio`` serves them."""

    lags = True

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        reading, self._writing = os.pipe()
        self._reading, writing = os.pipe()
        self._theirs = (reading, writing)
        ends = self.ends
        host = answered_to(public_host(), IN_TESTS)
        served = serve(
            ends.server, ends.principal, reading, writing, handles_signals=False, host=host
        )
        self._served = self._loop.create_task(served)
        self._reader_thread = threading.Thread(
            target=self._read_lines, name="mcp-test-pipe", daemon=True
        )
        self._reader_thread.start()

    def _read_lines(self) -> None:
        with open(self._reading, "rb") as lines, contextlib.suppress(RuntimeError):
            for line in lines:
                self._loop.call_soon_threadsafe(self.ends.owner.take, json.loads(line))

    async def send(self, message: Any) -> None:
        line = _raw(message).encode() + b"\n"
        await asyncio.to_thread(_write, self._writing, line)

    async def close(self) -> None:
        os.close(self._writing)
        await self._served
        for descriptor in self._theirs:
            os.close(descriptor)
        await asyncio.to_thread(self._reader_thread.join)


def _raw(message: Any) -> str:
    return message if isinstance(message, str) else json.dumps(message)


def _write(descriptor: int, line: bytes) -> None:
    while line:
        line = line[os.write(descriptor, line) :]


# HTTP.

PLAIN_HEADER = re.compile(r"[\x21-\x7e]([\t\x20-\x7e]*[\x21-\x7e])?")
HTTP_ERROR_CODE = -32000  # of an HTTP error without a JSON-RPC error


class Dropped(ConnectionError):
    """The connection broke before the answer came, and nothing can be resumed."""


class TestTokenVerifier:
    """A ``TokenVerifier`` that accepts one client's random token and returns its principal."""

    def __init__(self, ends: Ends) -> None:
        self.token, self._ends = secrets.token_urlsafe(32), ends

    async def verify(self, token: str, server: Any) -> Principal | None:
        known = secrets.compare_digest(token, self.token) and server is self._ends.server
        return await self._ends.principal() if known else None


class HttpWire(Wire):
    """The HTTP transport of one test client, with as many connections as it needs."""

    def __init__(self, ends: Ends) -> None:
        super().__init__(ends)
        self.application = ends.application or as_asgi(ends.server)
        self.host = answered_to(IN_TESTS, public_host())
        self.session: str | None = None
        self.drop_after: int | None = None  # drop a connection after this many messages
        self.drops = 0
        self.seen: set[str] = set()  # ids of events that were read
        self.dropped: list[HttpExchange] = []  # dropped and not resumed yet
        self._acting: TestTokenVerifier | None = None
        self._exchanges: dict[asyncio.Task[None], HttpExchange] = {}
        self._notifications: HttpExchange | None = None

    async def open(self) -> None:
        if (await self.ends.principal()).is_authenticated:
            self._acting = TestTokenVerifier(self.ends)
            verifiers_of_tests.append(self._acting)

    # Sending.

    async def send(self, message: Any) -> None:
        raw = message if isinstance(message, str) else json.dumps(message)
        is_request = isinstance(message, dict) and "method" in message and "id" in message
        exchange = HttpExchange(self, "POST", self._headers(message), raw.encode())
        exchange.about = message["id"] if is_request else None
        task = self._begin(exchange)
        if not is_request:
            await task
            if exchange.status != 202:
                raise exchange.refusal()

    async def hear(self) -> None:
        """Open the stream for notifications of a session (transports, "Listening")."""
        if self.session is not None and self._notifications is None:
            self._notifications = HttpExchange(
                self, "GET", self._headers(accept=http_rules.SSE_TYPE)
            )
            self._begin(self._notifications)
            await self._notifications.begun.wait()
            if not self._notifications.is_stream:
                raise self._notifications.refusal()

    async def cancel(self, id: Id, reason: str) -> None:
        if self.ends.revision.handshake:
            await super().cancel(id, reason)
            return
        for exchange in self._exchanges.values():
            # Without sessions, a client cancels a request by closing its stream.
            if exchange.about == id:
                exchange.cut()

    async def drop(self) -> int:
        """Drop every connection and wait until the server notices. Return how many were open."""
        cut = [exchange for exchange in self._exchanges.values() if not exchange.left]
        for exchange in cut:
            exchange.cut()
        await self.arrive()
        self.drops += len(cut)
        return len(cut)

    async def arrive(self) -> None:
        if left := [task for task, exchange in self._exchanges.items() if exchange.left]:
            await asyncio.wait(left, timeout=5)

    async def resume(self) -> None:
        """Resume all dropped streams after the last event that was read of each."""
        dropped, self.dropped = self.dropped, []
        for exchange in dropped:
            again = HttpExchange(
                self, "GET", self._headers(accept=http_rules.SSE_TYPE, last=exchange.last)
            )
            again.about, again.last = exchange.about, exchange.last
            self._notifications = again if exchange is self._notifications else self._notifications
            self._begin(again)

    async def close(self) -> None:
        await self.drop()
        if self.session is not None:
            await self._begin(HttpExchange(self, "DELETE", self._headers()))
        if self._acting is not None:
            verifiers_of_tests.remove(self._acting)

    def _begin(self, exchange: HttpExchange) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(exchange.run())
        self._exchanges[task] = exchange
        task.add_done_callback(lambda task: self._exchanges.pop(task, None))
        return task

    # The end of a connection.

    def over(self, exchange: HttpExchange) -> None:
        """Handle the end of a connection: resume it, or fail the request that waits for it."""
        is_awaited = exchange.about is not None and self.ends.owner.is_waiting(exchange.about)
        if exchange.left and exchange.last and (is_awaited or exchange is self._notifications):
            self.dropped.append(exchange)
            if self.drop_after is not None:
                asyncio.get_running_loop().create_task(self.resume())
        elif is_awaited and exchange.about is not None:
            self._handle_unanswered(exchange, exchange.about)

    def _handle_unanswered(self, exchange: HttpExchange, about: Id) -> None:
        # The server closed the stream before the response, so the client has to reconnect.
        if exchange.last and exchange.is_stream:
            self.dropped.append(exchange)
            asyncio.get_running_loop().create_task(self.resume())
        elif exchange.left:
            self.ends.owner.refuse(about, Dropped(Dropped.__doc__))
        else:
            self.ends.owner.refuse(about, exchange.refusal())

    # Headers.

    def _headers(
        self, message: Any = None, *,
        accept: str = f"{http_rules.JSON_TYPE}, {http_rules.SSE_TYPE}",
        last: str | None = None,
    ) -> dict[str, str]:  # fmt: skip
        revision = self.ends.revision
        has_version = not revision.handshake or (
            self.session is not None and revision.version_header
        )
        found = {
            "host": self.host, "accept": accept, "content-type": http_rules.JSON_TYPE,
            "authorization": f"Bearer {self._acting.token}" if self._acting else None,
            http_rules.PROTOCOL_VERSION: revision.name if has_version else None,
            http_rules.SESSION_ID: self.session,
            http_rules.LAST_EVENT_ID: last,
        }  # fmt: skip
        if not revision.handshake and isinstance(message, dict):
            found |= self._mirrored_headers(message)
        return {name: value for name, value in found.items() if value is not None}

    def _mirrored_headers(self, message: JSON) -> dict[str, str | None]:
        """Return the headers that repeat parts of the body (streamable-http, "Custom Headers")."""
        method, params = message.get("method", ""), message.get("params", {})
        found: dict[str, str | None] = {http_rules.METHOD: method or None}
        if isinstance(name := params.get(NAMED.get(method, "")), str):
            found[http_rules.NAME] = encoded(name)
        tool = self.ends.server._catalog.tools.get(str(params.get("name")))
        for path, header in tool._arguments.headers.items() if tool is not None else ():
            value = value_at(path, params.get("arguments", {}))
            if isinstance(value, str | int):
                found[http_rules.PARAM_PREFIX + header.lower()] = encoded(value)
        return found


class HttpExchange:
    """One HTTP request and its response, as far as it was received before a disconnect."""

    def __init__(self, wire: HttpWire, method: str, headers: JSON, body: bytes = b"") -> None:
        self.wire, self.method = wire, method
        self.about: Id | None = None  # id of the JSON-RPC request
        self.last: str | None = None  # id of the last event that was read
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.body = b""
        self.left = self.ended = False
        self.error: Exception | None = None  # an exception of the application
        self.begun = asyncio.Event()
        self._raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        self._count = 0
        self._rest = b""
        self._inbox: asyncio.Queue[JSON] = asyncio.Queue()
        self._inbox.put_nowait({"type": "http.request", "body": body, "more_body": False})

    async def run(self) -> None:
        path = f"/{self.wire.ends.server.path}"
        scope = {
            "type": "http", "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1", "method": self.method, "scheme": "http", "path": path,
            "raw_path": path.encode(), "query_string": b"", "root_path": "",
            "headers": self._raw, "client": ("127.0.0.1", 50_000), "server": (self.wire.host, 80),
        }  # fmt: skip
        try:
            await self.wire.application(scope, self._receive, self._send)
        except OSError:
            if not self.left:
                raise
        except Exception as problem:
            self.error = problem
        finally:
            self.begun.set()
            self.wire.over(self)

    def cut(self) -> None:
        """Disconnect, as after a loss of the network."""
        self.left = True
        self._inbox.put_nowait({"type": "http.disconnect"})

    async def _receive(self) -> JSON:
        if self.ended:
            return {"type": "http.disconnect"}
        return await self._inbox.get()

    async def _send(self, message: JSON) -> None:
        if self.left:
            # ASGI 2.4: send() raises OSError after a disconnect
            raise OSError("The client has left.")
        if message["type"] == "http.response.start":
            self.status = message["status"]
            pairs = ((name.decode(), value.decode("latin-1")) for name, value in message["headers"])
            self.headers = dict(pairs)
            self.wire.session = self.headers.get(http_rules.SESSION_ID, self.wire.session)
            self.begun.set()
            return
        self.ended = not message.get("more_body", False)
        if self.is_stream:
            self._stream(message.get("body", b""))
            return
        self.body += message.get("body", b"")
        if self.ended and self.body and self.headers.get("content-type") == http_rules.JSON_TYPE:
            self._take(json.loads(self.body))

    @property
    def is_stream(self) -> bool:
        return self.headers.get("content-type") == http_rules.SSE_TYPE

    def refusal(self) -> Exception:
        """Return the error for a response without a message for the request."""
        if self.error is not None:
            return self.error
        words = f"HTTP {self.status} {self.body.decode('utf-8', 'replace')[:500]}".strip()
        return RpcError({"code": HTTP_ERROR_CODE, "message": words}, self.status)

    def _take(self, message: Any) -> None:
        self.wire.ends.owner.take(message, self.about, self.status)

    # Events (HTML, 9.2.6).

    def _stream(self, data: bytes) -> None:
        *blocks, self._rest = (self._rest + data).split(b"\n\n")
        for block in blocks:
            if self.left:
                return
            self._event(dict(_fields(block.decode())))

    def _event(self, fields: dict[str, str]) -> None:
        id, data = fields.get("id"), fields.get("data")
        self.last = id or self.last
        if not data:
            return
        if id is not None and id in self.wire.seen:
            self.wire.ends.owner.object(AssertionError(f"The event {id} came twice."))
        self.wire.seen |= {id} if id else set()
        self._take(json.loads(data))
        self._count += 1
        if self.wire.drop_after is not None and self._count >= self.wire.drop_after:
            self.wire.drops += 1
            self.cut()


def _fields(block: str) -> Iterator[tuple[str, str]]:
    for line in block.split("\n"):
        name, _, value = line.partition(":")
        if name:
            yield name, value.removeprefix(" ")


def encoded(value: Any) -> str:
    """Encode a value for a header (streamable-http, "Value Encoding")."""
    text = json.dumps(value) if isinstance(value, bool | int) else str(value)
    if PLAIN_HEADER.fullmatch(text) and not (text.startswith("=?base64?") and text.endswith("?=")):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="
