"""
One HTTP request and its answer, as the rest of this room sees them.

Rule: everything that a client can make large or slow is bounded while it
arrives; an answer is begun once, and ended; and whoever finds fault with a
request raises ``Refused`` and is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ...conf import project
from ...protocol import http
from ...protocol.jsonrpc import InvalidRequest, ProtocolError, encode
from ...protocol.revisions import LATEST_HANDSHAKE, encode_error
from .flow import Flow, flow_of
from .pulse import patience

if TYPE_CHECKING:
    from ...declare.servers import Server
    from ...models import Session
    from ...principal import Principal

Pairs = Iterable[tuple[bytes, bytes]]
Application = Callable[[Any, Any, Any], Awaitable[None]]
MAX_HEADERS, MAX_HEADERS_SIZE = 200, 65_536
# What is read of a request; each may be there once.
SINGLE = (
    "host", "origin", "accept", "content-type", "content-encoding", "content-length",
    "authorization", "access-control-request-method", "x-forwarded-host",
    http.PROTOCOL_VERSION, http.SESSION_ID, http.LAST_EVENT_ID,
)  # fmt: skip
_NAMES = {name.encode(): name for name in SINGLE}
# Lists may come in several lines (RFC 9110, 5.3).
_LISTS = frozenset(("accept", "x-forwarded-host"))
NOTHING: tuple[tuple[bytes, bytes], ...] = ()
# A connection on which a body is left unread is of no more use.
CLOSE = ((b"connection", b"close"),)
MAX_SKIPPED, SKIPPED = 65_536, 1.0  # bytes, and seconds, of a body that is not looked at
# Nobody but the client is to keep what was wrong with its request.
REFUSAL = (b"cache-control", b"no-store")


class Refused(Exception):
    """The request is answered by ``status``, and by ``error``."""

    def __init__(
        self,
        status: int,
        error: ProtocolError | str | None = None,
        headers: Pairs = NOTHING,
    ) -> None:
        self.error = InvalidRequest(error) if isinstance(error, str) else error
        super().__init__(status, self.error)
        self.status, self.headers = status, tuple(headers)


class Left(Exception):
    """The client went away before it had said, or was told, everything."""


class Exchange:
    """One request to ``server``. ``principal`` and ``session`` are known once its caller is."""

    principal: Principal
    owner: str | None = None  # the principal's key, where it is kept no longer
    session: Session | None = None
    no_session: Refused | None = None  # why there is none, though the request names one
    # What to do when the process is about to end, and when its calls have had their time; and
    # when the caller's right to go on is taken back.
    when_ending: Callable[[], object] | None = None
    when_late: Callable[[], object] | None = None
    when_revoked: Callable[[], object] | None = None
    last_word: Refused | None = None  # with which the work on it was cut short
    at_work = False  # whether it may take effect, here or elsewhere, whatever happens
    _flow: Flow | None = None

    def __init__(self, server: Server, scope: Mapping[str, Any], receive: Any, send: Any) -> None:
        self.server, self.scope = server, scope
        self._receive, self._send = receive, send
        self.method: str = scope["method"]
        self.headers = read_headers(scope["headers"])
        self.host: str | None = None
        self.cors: tuple[tuple[bytes, bytes], ...] = NOTHING
        self.size = 0  # of the body, as far as it came
        self.begun = self.ended = self._is_read = False
        self.gone = asyncio.Event()  # the client left
        # Tells the work on it to stop, from within; called before that is cancelled.
        self.stop: Callable[[], object] | None = None
        self._cuts = 0

    @property
    def revision_header(self) -> str | None:
        """What the request's header names as its revision."""
        return self.headers.get(http.PROTOCOL_VERSION)

    # What comes.

    async def body(self) -> bytes:
        """All of the body. Raises ``Refused`` when it is too large or too slow, and ``Left``."""
        self._check_length()
        waiting = Waiting()
        with patience(waiting):
            try:
                return await self._whole()
            except asyncio.CancelledError:
                waiting.check()
                raise

    async def _whole(self) -> bytes:
        parts: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise Left
            part: bytes = message.get("body", b"")
            size += len(part)
            self._bound(size)
            self.size = size
            if not message.get("more_body"):
                self._is_read = True
                return b"".join((*parts, part)) if parts else part
            if part:
                parts.append(part)

    def _check_length(self) -> None:
        length = self.headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()) or len(length) > 15:
            raise Refused(400, "Content-Length is no number.", CLOSE)
        self._bound(int(length))

    def _bound(self, size: int) -> None:
        limit = project.DATA_UPLOAD_MAX_MEMORY_SIZE
        if limit is not None and size > limit:
            raise Refused(413, "The body is too large.", CLOSE)

    async def left(self) -> None:
        """Come back when the client has gone away. Only after the body was read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.gone.set()

    # Another's answer.

    async def hand_over(self, application: Application) -> None:
        """Let an ASGI application answer, which is shown an empty body."""
        await self.body()
        first = iter(({"type": "http.request", "body": b"", "more_body": False},))

        async def receive() -> Any:
            return next(first, None) or await self._receive()

        await application(self.scope, receive, self._relay)

    async def _relay(self, message: dict[str, Any]) -> None:
        """One message of that answer."""
        self.begun = True
        if message["type"] == "http.response.body":
            data, is_last = message.get("body", b""), not message.get("more_body")
            await self._write(data, last=is_last)
            return
        try:
            await self._send(message)
        except OSError:
            raise Left from None

    # Being cut short, by the client or by the end of the process.

    def cut(self, task: asyncio.Task[Any]) -> None:
        """Stop ``task``, which answers."""
        if self.stop is not None:
            self.stop()
        self._cuts += 1
        task.cancel()

    def is_cut(self) -> bool:
        """Whether the current task was cancelled by ``cut``, and by nobody else; takes it back."""
        task = asyncio.current_task()
        if task is None or not self._cuts:
            return False
        while self._cuts:
            self._cuts -= 1
            task.uncancel()
        return not task.cancelling()

    def survives(self) -> bool:
        """The same, where the client is still there to be told of its call."""
        return self.last_word is None and not self.gone.is_set() and self.is_cut()

    # What goes. Raises ``Left`` where a server says that nobody is there to read it.

    async def json(self, status: int, message: Any = None, headers: Pairs = NOTHING) -> None:
        """Answer by a JSON-RPC message, a batch of them, or by nothing but ``status``."""
        await self.text(status, "" if message is None else encode(message), headers)

    async def text(self, status: int, text: str, headers: Pairs = NOTHING) -> None:
        """The same, of a message that is encoded."""
        body = text.encode()
        given = http.JSON_HEADERS if body else NOTHING
        length = (b"content-length", str(len(body)).encode())
        await self._start(status, [*given, *((length,) if status != 204 else ()), *headers])
        await self._write(body, last=True)

    async def refuse(self, refused: Refused) -> None:
        """Say what is wrong; of an answer that was begun there is only the end left to say."""
        with suppress(Left):
            if not self.begun:
                if self._is_coming() and CLOSE[0] not in refused.headers:
                    await self._skip()
                await self.json(refused.status, _error(refused), (*refused.headers, REFUSAL))
            elif not self.ended:
                await self.end()

    def _is_coming(self) -> bool:
        """Whether there is a body, of which not all was read."""
        names = {name for name, _ in self.scope["headers"]}
        length = self.headers.get("content-length", "0")
        has_body = b"transfer-encoding" in names or length.strip("0") != ""
        return has_body and not self._is_read and b"expect" not in names

    async def _skip(self) -> None:
        """Read what is left of a body that is small, and soon here, and keep nothing of it.

        Servers close a connection on which a body is left unread. A client that still sends
        might never read the answer, and it could not use the connection again.
        """
        size = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(SKIPPED):
                while size < MAX_SKIPPED and not self._is_read:
                    message = await self._receive()
                    if message["type"] == "http.disconnect":
                        raise Left
                    size += len(message.get("body", b""))
                    self._is_read = not message.get("more_body")

    async def start_sse(self, headers: Pairs = NOTHING) -> None:
        await self._start(200, [*http.SSE_HEADERS, *headers])
        self._flow = flow_of(self._send)

    async def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.begun = True
        headers += self.cors
        if not str(self.scope.get("http_version", "1.1")).startswith("1"):
            headers = [pair for pair in headers if pair not in CLOSE]  # RFC 9113, 8.2.2
        try:
            await self._send({"type": "http.response.start", "status": status, "headers": headers})
        except OSError:
            raise Left from None

    async def write(self, data: bytes) -> None:
        """More of a stream, when there is room for it."""
        await self._write(data)
        if self._flow is not None:
            await self._flow.ready()

    async def end(self) -> None:
        if self._flow is not None:
            self._flow.close()
        await self._write(b"", last=True)

    async def _write(self, data: bytes, *, last: bool = False) -> None:
        self.ended = last
        data = b"" if self.method == "HEAD" else data  # RFC 9110, 9.3.2
        try:
            await self._send({"type": "http.response.body", "body": data, "more_body": not last})
        except OSError:
            raise Left from None


class Waiting:
    """For a body, which the current task does not do for ever."""

    def __init__(self) -> None:
        self._task, self._is_over = asyncio.current_task(), False

    def pulse(self) -> None:
        if self._task is not None and not self._is_over:
            self._is_over = True
            self._task.cancel()

    def check(self) -> None:
        """Raises ``Refused`` if it was this that ended the wait."""
        if self._is_over and self._task is not None and self._task.uncancel() == 0:
            raise Refused(408, "The body took too long.", CLOSE)


def _error(refused: Refused) -> dict[str, Any] | None:
    if refused.error is None:
        return None
    about = {} if refused.error.about is None else {"id": refused.error.about}
    return {"jsonrpc": "2.0"} | about | {"error": encode_error(LATEST_HANDSHAKE, refused.error)}


def read_headers(raw: Pairs) -> dict[str, str]:
    """The headers that mean something here. Raises ``Refused`` for one that is there twice."""
    found: dict[str, str] = {}
    count = size = 0
    for name, value in raw:
        count += 1
        size += len(name) + len(value)
        key = _NAMES.get(name)
        if key is None:
            continue
        text = value.decode("latin-1").strip(" \t")
        if key in found and key not in _LISTS:
            raise Refused(400, f"The header {key} is there twice.")
        found[key] = f"{found[key]}, {text}" if key in found else text
    if count > MAX_HEADERS or size > MAX_HEADERS_SIZE:
        raise Refused(431, "There are too many headers, or they are too large.")
    return found
