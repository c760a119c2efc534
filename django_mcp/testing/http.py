"""
Streamable HTTP in this process: requests to the project's ASGI application, without sockets.

Status, headers, events and disconnects are those of a real connection. ``HttpWire`` can drop a
connection after any message and resume its stream by ``Last-Event-ID``. An event that arrives twice
is an error, because a client would process it twice.

Source: basic/transports, "Streamable HTTP", of each revision.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..auth.principal import verifiers_of_tests
from ..declarations.arguments import value_at
from ..protocol import http_rules
from ..protocol.http_rules import NAMED
from ..routing import as_asgi
from .results import RpcError
from .wires import IN_TESTS, JSON, Ends, Id, Wire, answered_to, public_host

if TYPE_CHECKING:
    from ..auth.principal import Principal

PLAIN = re.compile(r"[\x21-\x7e]([\t\x20-\x7e]*[\x21-\x7e])?")
UNANSWERED = -32000  # code for an HTTP error without a JSON-RPC error


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
        self.broken: list[HttpExchange] = []  # dropped and not resumed yet
        self._acting: TestTokenVerifier | None = None
        self._trips: dict[asyncio.Task[None], HttpExchange] = {}
        self._news: HttpExchange | None = None

    async def open(self) -> None:
        if (await self.ends.principal()).is_authenticated:
            self._acting = TestTokenVerifier(self.ends)
            verifiers_of_tests.append(self._acting)

    # Sending.

    async def send(self, message: Any) -> None:
        raw = message if isinstance(message, str) else json.dumps(message)
        asked = isinstance(message, dict) and "method" in message and "id" in message
        trip = HttpExchange(self, "POST", self._headers(message), raw.encode())
        trip.about = message["id"] if asked else None
        task = self._begin(trip)
        if not asked:
            await task
            if trip.status != 202:
                raise trip.refusal()

    async def hear(self) -> None:
        """Open the stream for notifications of a session (transports, "Listening")."""
        if self.session is not None and self._news is None:
            self._news = HttpExchange(self, "GET", self._headers(accept=http_rules.SSE_TYPE))
            self._begin(self._news)
            await self._news.begun.wait()
            if not self._news.is_stream:
                raise self._news.refusal()

    async def cancel(self, id: Id, reason: str) -> None:
        if self.ends.revision.handshake:
            await super().cancel(id, reason)
            return
        for trip in self._trips.values():
            # Without sessions, a client cancels a request by closing its stream.
            if trip.about == id:
                trip.cut()

    async def drop(self) -> int:
        """Drop every connection and wait until the server notices. Return how many were open."""
        cut = [trip for trip in self._trips.values() if not trip.left]
        for trip in cut:
            trip.cut()
        await self.arrive()
        self.drops += len(cut)
        return len(cut)

    async def arrive(self) -> None:
        if left := [task for task, trip in self._trips.items() if trip.left]:
            await asyncio.wait(left, timeout=5)

    async def resume(self) -> None:
        """Resume all dropped streams after the last event that was read of each."""
        broken, self.broken = self.broken, []
        for trip in broken:
            again = HttpExchange(
                self, "GET", self._headers(accept=http_rules.SSE_TYPE, last=trip.last)
            )
            again.about, again.last = trip.about, trip.last
            self._news = again if trip is self._news else self._news
            self._begin(again)

    async def close(self) -> None:
        await self.drop()
        if self.session is not None:
            await self._begin(HttpExchange(self, "DELETE", self._headers()))
        if self._acting is not None:
            verifiers_of_tests.remove(self._acting)

    def _begin(self, trip: HttpExchange) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(trip.run())
        self._trips[task] = trip
        task.add_done_callback(lambda task: self._trips.pop(task, None))
        return task

    # The end of a connection.

    def over(self, trip: HttpExchange) -> None:
        """Handle the end of a connection: resume it, or fail the request that waits for it."""
        waits = trip.about is not None and self.ends.owner.is_waiting(trip.about)
        if trip.left and trip.last and (waits or trip is self._news):
            self.broken.append(trip)
            if self.drop_after is not None:
                asyncio.get_running_loop().create_task(self.resume())
        elif waits and trip.about is not None:
            self._unanswered(trip, trip.about)

    def _unanswered(self, trip: HttpExchange, about: Id) -> None:
        # The server closed the stream before the response, so the client has to reconnect.
        if trip.last and trip.is_stream:
            self.broken.append(trip)
            asyncio.get_running_loop().create_task(self.resume())
        elif trip.left:
            self.ends.owner.refuse(about, Dropped(Dropped.__doc__))
        else:
            self.ends.owner.refuse(about, trip.refusal())

    # Headers.

    def _headers(
        self, message: Any = None, *,
        accept: str = f"{http_rules.JSON_TYPE}, {http_rules.SSE_TYPE}",
        last: str | None = None,
    ) -> dict[str, str]:  # fmt: skip
        revision = self.ends.revision
        told = not revision.handshake or (self.session is not None and revision.version_header)
        found = {
            "host": self.host, "accept": accept, "content-type": http_rules.JSON_TYPE,
            "authorization": f"Bearer {self._acting.token}" if self._acting else None,
            http_rules.PROTOCOL_VERSION: revision.name if told else None,
            http_rules.SESSION_ID: self.session,
            http_rules.LAST_EVENT_ID: last,
        }  # fmt: skip
        if not revision.handshake and isinstance(message, dict):
            found |= self._mirrored(message)
        return {name: value for name, value in found.items() if value is not None}

    def _mirrored(self, message: JSON) -> dict[str, str | None]:
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
        self.wrong: Exception | None = None  # an exception of the application
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
            self.wrong = problem
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
        if self.wrong is not None:
            return self.wrong
        words = f"HTTP {self.status} {self.body.decode('utf-8', 'replace')[:500]}".strip()
        return RpcError({"code": UNANSWERED, "message": words}, self.status)

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
    if PLAIN.fullmatch(text) and not (text.startswith("=?base64?") and text.endswith("?=")):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="
