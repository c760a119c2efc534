"""
An HTTP client in this process, which validates everything that it receives.

``Site`` sends raw HTTP requests to an ASGI application, and checks each response against the rules
of ASGI, HTTP and server-sent events. ``HttpClient`` is a client of one revision, and checks each
message against the official schema. Both are synchronous, so that a test may use the ORM between
two requests.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

from django_mcp.declarations.arguments import value_at
from django_mcp.declarations.server import Server, default_server
from django_mcp.protocol.http_rules import NAMED
from django_mcp.protocol.revisions import LATEST, REVISIONS
from django_mcp.routing import mount
from django_mcp.testing.wires import encoded

from .client import EVERYTHING, JSON, Speaker, result_of
from .oracle import message_conforms
from .storage.loops import jobs_ended

T = TypeVar("T")
Headers = Mapping[str, str | bytes | None] | list[tuple[bytes, bytes]]
BOTH = "application/json, text/event-stream"
ELSEWHERE = 418  # the status of what is not MCP's
SECONDS = 30


async def elsewhere(scope: Any, receive: Any, send: Any) -> None:
    """An application in the place of Django. It answers requests to all other paths."""
    await send({"type": "http.response.start", "status": ELSEWHERE, "headers": []})
    await send({"type": "http.response.body", "body": scope["path"].encode()})


# Server-sent events.


@dataclass(frozen=True)
class Event:
    """The fields of one event, unchanged."""

    data: str
    id: str | None = None
    event: str | None = None
    retry: int | None = None


@dataclass
class Events:
    """A strict parser of event streams (HTML, 9.2.5). Raise for what a client might not accept."""

    found: list[Event] = field(default_factory=list)
    comments: int = 0
    _rest: bytes = b""
    _fields: dict[str, str] = field(default_factory=dict)

    def feed(self, data: bytes) -> list[Event]:
        """Parse more bytes, and return the events that they complete."""
        before = len(self.found)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._line(line.removesuffix(b"\r").decode("utf-8", "strict"))
        return self.found[before:]

    def _line(self, line: str) -> None:
        assert "\r" not in line and "\0" not in line
        name, colon, value = line.partition(":")
        if line.startswith(":"):
            self.comments += 1
        elif line:
            assert colon and name in ("data", "id", "event", "retry"), line
            assert name not in self._fields, f"{name} is there twice: not one line"
            self._fields[name] = value.removeprefix(" ")
        elif self._fields:
            retry = self._fields.pop("retry", None)
            given = {"data": self._fields.pop("data")} | self._fields
            self.found.append(Event(retry=None if retry is None else int(retry), **given))
            self._fields = {}

    def end(self) -> None:
        assert not self._rest and not self._fields, "the stream ends within an event"


# One request, and its answer.


class ClientExchange:
    """One HTTP request and its response. ``over`` is True when the application has returned."""

    def __init__(self, site: Site, scope: JSON, parts: list[bytes], *, more: bool) -> None:
        self.site, self.scope = site, scope
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.body = b""
        self.sse = Events()
        self.ended = self.over = self.left = False
        self.messages: list[JSON] = []
        self.stalled = asyncio.Event()  # cleared, the client reads nothing
        self.stalled.set()
        self._inbox: asyncio.Queue[JSON] = asyncio.Queue()
        for index, part in enumerate(parts):
            self.feed(part, more=more or index + 1 < len(parts))

    # To the application.

    def feed(self, body: bytes, *, more: bool = False) -> None:
        """Send a part of the body."""
        self._inbox.put_nowait({"type": "http.request", "body": body, "more_body": more})

    def leave(self) -> None:
        """Close the connection, and let the application notice."""
        self.left = True
        self._inbox.put_nowait({"type": "http.disconnect"})
        self.stalled.set()
        self.site.settle()

    async def receive(self) -> JSON:
        if self.ended:
            return {"type": "http.disconnect"}
        return await self._inbox.get()

    async def send(self, message: JSON) -> None:
        await self.stalled.wait()
        if self.left:
            raise OSError("The client has left.")  # as ASGI 2.4 has servers do
        try:
            self._written(message)
        except Exception as problem:  # which the application might make something of
            self.site.problems.append(problem)
            raise
        self.site.arrived.set()

    def _written(self, message: JSON) -> None:
        assert not self.ended, "something follows the end"
        if message["type"] == "http.response.start":
            assert self.status is None, "the answer begins twice"
            self.status, self.headers = message["status"], self._read_headers(message["headers"])
            return
        assert message["type"] == "http.response.body" and self.status is not None
        self.body += message.get("body", b"")
        self.ended = not message.get("more_body", False)
        if self.is_stream:
            for event in self.sse.feed(message.get("body", b"")):
                self._take(event)
        if self.ended:
            self._end()

    def _read_headers(self, given: Any) -> dict[str, str]:
        found: dict[str, str] = {}
        for name, value in given:
            assert isinstance(name, bytes) and isinstance(value, bytes)
            assert name == name.lower() or not self.site.strict
            assert not re.search(rb"[\r\n\0]", name + value)
            key = name.decode("ascii").lower()
            assert key not in found, key
            found[key] = value.decode("latin-1")
        if self.scope["http_version"] == "2":
            assert "connection" not in found, "no such header in HTTP/2 (RFC 9113, 8.2.2)"
        return found

    def _take(self, event: Event) -> None:
        if event.data and event.event in (None, "message"):
            self._said(json.loads(event.data))

    def _end(self) -> None:
        if self.is_stream:
            assert "content-length" not in self.headers
            self.sse.end()
            return
        length = self.headers.get("content-length")
        if self.scope["method"] == "HEAD":
            assert not self.body
        else:
            assert length is None or int(length) == len(self.body)
        if self.body and self.headers.get("content-type") == "application/json":
            self._said(json.loads(self.body))

    def _said(self, message: Any) -> None:
        self.messages.append(message)
        self.site.heard(self, message)

    # To the test.

    @property
    def is_stream(self) -> bool:
        return self.headers.get("content-type") == "text/event-stream"

    @property
    def error(self) -> JSON:
        """The error in the only message of the response."""
        (message,) = self.messages
        found: JSON = message["error"]
        return found

    @property
    def refused(self) -> tuple[int | None, int | None]:
        """The HTTP status, and the code of the error if there is a body."""
        codes = (message.get("error", {}).get("code") for message in self.messages)
        return self.status, next(codes, None)

    def wait(self, seconds: float = SECONDS) -> Self:
        """Wait until the application has returned."""
        self.site.until(lambda: self.over, seconds)
        return self

    def until(self, condition: Callable[[], Any], seconds: float = SECONDS) -> Any:
        return self.site.until(condition, seconds)

    def __repr__(self) -> str:
        return f"<ClientExchange {self.status} {self.headers} {self.body[:500]!r}>"


class Site:
    """An ASGI application, with an event loop that runs while a test waits."""

    def __init__(self, application: Any = None, *, strict: bool = True) -> None:
        self.application, self.strict = application or mount(elsewhere), strict
        self.problems: list[BaseException] = []
        self.exchanges: list[ClientExchange] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._runner = asyncio.Runner()
        self.loop = self._runner.get_loop()
        self.arrived = asyncio.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        for exchange in self.exchanges:
            exchange.stalled.set()
            if not exchange.over:
                exchange.left = True
                exchange._inbox.put_nowait({"type": "http.disconnect"})
        try:
            self.until(lambda: all(exchange.over for exchange in self.exchanges))
            self.settle()
            self._raise()
        finally:
            self._runner.close()

    # The loop.

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the loop until ``work`` is done. Raise an error for each invalid response."""
        try:
            result = self._runner.run(work)
        finally:
            jobs_ended()
        self._raise()
        return result

    def _raise(self) -> None:
        if self.problems:
            raise self.problems[0]

    def until(self, condition: Callable[[], T], seconds: float = SECONDS) -> T:
        """Wait until ``condition`` returns a true value, and return it."""

        async def waiting() -> T:
            async with asyncio.timeout(seconds):
                while not (found := condition()):
                    self.arrived.clear()
                    await asyncio.wait(
                        [asyncio.ensure_future(self.arrived.wait())], timeout=0.01
                    )  # what threads do tells nobody
            return found

        return self.run(waiting())

    def settle(self) -> None:
        """Run the loop until nothing is left to do at once."""

        async def settled() -> None:
            for _ in range(30):
                await asyncio.sleep(0)

        self._runner.run(settled())
        jobs_ended()

    def sleep(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))

    def heard(self, exchange: ClientExchange, message: Any) -> None:
        """Handle a received message. ``HttpClient`` overrides it."""

    # Requests.

    def open(
        self,
        method: str = "POST",
        path: str = "/mcp",
        body: bytes | list[bytes] = b"",
        headers: Headers = (),  # type: ignore[assignment]
        *,
        more: bool = False,
        **scope: Any,
    ) -> ClientExchange:
        """Send a request without waiting. With ``more``, its body is continued by ``feed``."""
        raw = list(written(headers))
        if not any(name == b"host" for name, _ in raw):
            raw.insert(0, (b"host", b"testserver"))
        given = {
            "type": "http", "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1", "method": method, "scheme": "http", "path": path,
            "raw_path": path.encode(), "query_string": b"", "root_path": "", "headers": raw,
            "client": ("127.0.0.1", 50_000), "server": ("testserver", 80),
        }  # fmt: skip
        parts = body if isinstance(body, list) else [body]
        exchange = ClientExchange(self, given | scope, parts, more=more)
        self.exchanges.append(exchange)
        self._runner.run(self._start(exchange))
        jobs_ended()
        return exchange

    async def _start(self, exchange: ClientExchange) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(exchange))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.sleep(0)

    async def _serve(self, exchange: ClientExchange) -> None:
        try:
            await self.application(exchange.scope, exchange.receive, exchange.send)
            assert exchange.ended or exchange.left, "the application returned without an answer"
        except BaseException as problem:
            self.problems.append(problem)
        finally:
            exchange.over = True
            self.arrived.set()

    def send(self, *args: Any, **options: Any) -> ClientExchange:
        """Send a request and wait for the whole response."""
        return self.open(*args, **options).wait()


def written(headers: Headers) -> Iterator[tuple[bytes, bytes]]:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    for name, value in pairs:
        if value is not None:
            key = name if isinstance(name, bytes) else name.encode("latin-1")
            yield key.lower(), value if isinstance(value, bytes) else value.encode("latin-1")


# MCP.


class HttpClient(Speaker, Site):
    """A client of ``server`` in ``revision``, with an access token.

    ``answers`` maps the methods of what it is asked to functions; ``more`` are headers of every
    request. With a handshake it has a session, whose standalone stream ``listen`` opens.
    """

    def __init__(
        self,
        token: str | None = None,
        *,
        server: Server = default_server,
        revision: str = LATEST.name,
        capabilities: JSON | None = None,
        answers: dict[str, Callable[[JSON], JSON]] | None = None,
        application: Any = None,
        initialize: bool = True,
        more: Mapping[str, str | None] | None = None,
    ) -> None:
        super().__init__(application)
        self.revision, self.server, self.token = REVISIONS[revision], server, token
        self.capabilities = EVERYTHING if capabilities is None else capabilities
        self.answers, self.more = answers or {}, dict(more or {})
        self.path, self.session = f"/{server.path}", None  # type: str, str | None
        self.notes: list[JSON] = []  # notifications
        self.asked: list[JSON] = []  # requests of the server's
        self._ids, self._methods = itertools.count(1), {}  # type: Any, dict[Any, str]
        if initialize and self.revision.handshake:
            try:
                self.initialize()
            except BaseException:
                self.__exit__(None, None, None)
                raise

    # What comes.

    def heard(self, exchange: ClientExchange, message: Any) -> None:
        try:
            for one in message if isinstance(message, list) else [message]:
                self._check(one)
                self._take(one)
        except Exception as problem:
            self.problems.append(problem)

    def _check(self, message: JSON) -> None:
        if "error" in message and "id" not in message:
            message = message | {"id": 0}  # transports pages: "no id"; older schemas forbid that
        message_conforms(self.revision, message, self._methods.get(message.get("id")))

    def _take(self, message: JSON) -> None:
        if "method" not in message:
            return
        if "id" not in message:
            self.notes.append(message)
            return
        self.asked.append(message)
        if (reply := self.reply_to(message)) is not None:
            self.loop.call_soon(self._reply, reply)

    def _reply(self, body: JSON) -> None:
        exchange = ClientExchange(self, self._scope(body), [json.dumps(body).encode()], more=False)
        self.exchanges.append(exchange)
        self._tasks.add(self.loop.create_task(self._serve(exchange)))

    def _scope(self, body: JSON) -> JSON:
        raw = [(b"host", b"testserver"), *written(self.headers(body))]
        return {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST",
            "scheme": "http", "path": self.path, "query_string": b"", "root_path": "",
            "headers": raw,
        }  # fmt: skip

    # What goes.

    def headers(self, message: Any = None, **changed: str | None) -> dict[str, str | None]:
        """Return the headers that a correct client sends with ``message``. None removes one."""
        modern = not self.revision.handshake
        named = modern or (self.session is not None and self.revision.version_header)
        found: dict[str, str | None] = {
            "accept": BOTH,
            "content-type": "application/json",
            "authorization": self.token and f"Bearer {self.token}",
            "mcp-protocol-version": self.revision.name if named else None,
            "mcp-session-id": self.session,
        }
        if modern and isinstance(message, dict):
            found |= self._mirrored(message)
        return found | self.more | {name.replace("_", "-"): v for name, v in changed.items()}

    def _mirrored(self, message: JSON) -> dict[str, str | None]:
        method, params = message.get("method"), message.get("params", {})
        found: dict[str, str | None] = {"mcp-method": method}
        if isinstance(name := params.get(NAMED.get(method)), str):
            found["mcp-name"] = encoded(name)
        tool = self.server._catalog.tools.get(str(params.get("name")))
        for path, header in tool._arguments.headers.items() if tool is not None else ():
            value = value_at(path, params.get("arguments", {}))
            if isinstance(value, str | int):
                found[f"mcp-param-{header}"] = encoded(value)
        return found

    def message(self, method: str, params: JSON, *, id: Any = None) -> JSON:
        """Return a request, with the next id unless one is given."""
        id = next(self._ids) if id is None else id
        self._methods[id] = method
        if not self.revision.handshake:
            params = params | {"_meta": self.envelope() | params.get("_meta", {})}
        return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}

    def post(self, message: Any, **changed: Any) -> ClientExchange:
        """Post a message, or bytes, without waiting."""
        raw = message if isinstance(message, bytes) else json.dumps(message).encode()
        options = {name: changed.pop(name) for name in ("path", "scope") if name in changed}
        scope = options.get("scope", {})
        return self.open(
            "POST", options.get("path", self.path), raw, self.headers(message, **changed), **scope
        )

    def start(self, method: str, *, id: Any = None, **params: Any) -> ClientExchange:
        """Send a request without waiting."""
        return self.post(self.message(method, params, id=id))

    def refusal(self, message: Any, **changed: Any) -> tuple[int | None, int | None]:
        """Post a message that must be rejected. Return the status and the error code."""
        return self.post(message, **changed).wait().refused

    def notify(self, method: str, **params: Any) -> ClientExchange:
        message = {"jsonrpc": "2.0", "method": method} | ({"params": params} if params else {})
        exchange = self.post(message).wait()
        assert (exchange.status, exchange.body) == (202, b""), exchange
        return exchange

    def initialize(self, **params: Any) -> JSON:
        """Initialize the connection."""
        exchange = self.start("initialize", **(self.introduction | params)).wait()
        result = response(exchange)
        self.session = exchange.headers.get("mcp-session-id")
        self.notify("notifications/initialized")
        return result

    def listen(self, last: str | None = None, **changed: Any) -> ClientExchange:
        """Open the session's standalone stream, or resume it after the event ``last``."""
        headers = self.headers(accept="text/event-stream", content_type=None, **changed)
        return self.open("GET", self.path, headers=headers | {"last-event-id": last})

    def result(self, method: str, params: JSON) -> JSON:
        return response(self.start(method, **params).wait())


def response(exchange: ClientExchange) -> JSON:
    """Return the result in a response. Raise ``RpcError``."""
    last = exchange.messages[-1] if exchange.messages else None
    assert isinstance(last, dict) and "method" not in last, exchange
    return result_of(last)
