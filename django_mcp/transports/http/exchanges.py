"""
One HTTP request and its answer, as the rest of this room sees them.

Rule: everything that a client can make large is bounded while it arrives; an
answer is begun once; and whoever finds fault with a request raises ``Refused``
and is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from django.conf import settings as django_settings

from ...protocol import http
from ...protocol.jsonrpc import InvalidRequest, ProtocolError, encode
from ...protocol.revisions import LATEST_HANDSHAKE, encode_error

if TYPE_CHECKING:
    from ...declare.servers import Server
    from ...models import Session
    from ...principal import Principal

Pairs = Iterable[tuple[bytes, bytes]]
MAX_HEADERS = 200
SLOWEST = 30.0  # seconds for a body to arrive
# What is read of a request; each may be there once.
SINGLE = (
    "host", "origin", "accept", "content-type", "content-encoding", "content-length",
    "authorization", "access-control-request-method", "x-forwarded-host", "x-forwarded-proto",
    http.PROTOCOL_VERSION, http.SESSION_ID, http.LAST_EVENT_ID,
)  # fmt: skip
_NAMES = {name.encode(): name for name in SINGLE}
# Lists may come in several lines (RFC 9110, 5.3).
_LISTS = frozenset(("accept", "x-forwarded-host", "x-forwarded-proto"))
NOTHING: tuple[tuple[bytes, bytes], ...] = ()


class Refused(Exception):
    """The request is answered by ``status``, and by ``error`` without an id."""

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
    """The client went away before it had said everything."""


class Exchange:
    """One request to ``server``. ``principal`` and ``session`` are known once its caller is."""

    principal: Principal
    session: Session | None = None

    def __init__(self, server: Server, scope: Mapping[str, Any], receive: Any, send: Any) -> None:
        self.server, self.scope = server, scope
        self._receive, self._send = receive, send
        self.method: str = scope["method"]
        self.headers = read_headers(scope["headers"])
        self.host: str | None = None
        self.cors: tuple[tuple[bytes, bytes], ...] = NOTHING
        self.begun = False
        self.gone = asyncio.Event()  # the client left

    @property
    def revision_header(self) -> str | None:
        """What the request's header names as its revision."""
        return self.headers.get(http.PROTOCOL_VERSION)

    # What comes.

    async def body(self) -> bytes:
        """All of the body. Raises ``Refused`` when it is too large or too slow, and ``Left``."""
        self._check_length()
        message = await self._receive()
        if message["type"] == "http.request" and not message.get("more_body"):
            body: bytes = message.get("body", b"")
            self._bound(body)
            return body
        try:
            async with asyncio.timeout(SLOWEST):
                return await self._rest(message)
        except TimeoutError:
            raise Refused(408, "The body took too long.", CLOSE) from None

    async def _rest(self, message: Any) -> bytes:
        parts = bytearray()
        while True:
            if message["type"] == "http.disconnect":
                raise Left
            parts += message.get("body", b"")
            self._bound(parts)
            if not message.get("more_body"):
                return bytes(parts)
            message = await self._receive()

    def _check_length(self) -> None:
        length = self.headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()) or len(length) > 15:
            raise Refused(400, "Content-Length is no number.", CLOSE)
        limit = django_settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        if limit is not None and int(length) > limit:
            raise Refused(413, "The body is too large.", CLOSE)

    def _bound(self, body: bytes | bytearray) -> None:
        limit = django_settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        if limit is not None and len(body) > limit:
            raise Refused(413, "The body is too large.", CLOSE)

    async def left(self) -> None:
        """Come back when the client has gone away. Only after the body was read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.gone.set()

    # What goes.

    async def json(self, status: int, message: Any = None, headers: Pairs = NOTHING) -> None:
        """Answer by a JSON-RPC message, a batch of them, or by nothing but ``status``."""
        body = b"" if message is None else encode(message).encode()
        given = http.JSON_HEADERS if body else NOTHING
        length = (b"content-length", str(len(body)).encode())
        await self._start(status, [*given, *((length,) if status != 204 else ()), *headers])
        await self._send({"type": "http.response.body", "body": body})

    async def refuse(self, refused: Refused) -> None:
        if self.begun:
            return
        message = None
        if refused.error is not None:
            error = encode_error(LATEST_HANDSHAKE, refused.error)
            message = {"jsonrpc": "2.0", "error": error}
        await self.json(refused.status, message, refused.headers)

    async def start_sse(self, headers: Pairs = NOTHING) -> None:
        await self._start(200, [*http.SSE_HEADERS, *headers])

    async def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.begun = True
        headers += self.cors
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def write(self, data: bytes) -> None:
        """More of a stream."""
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self) -> None:
        await self._send({"type": "http.response.body", "body": b""})


# A connection on which a body is left unread is of no more use.
CLOSE = ((b"connection", b"close"),)


def read_headers(raw: Pairs) -> dict[str, str]:
    """The headers that mean something here. Raises ``Refused`` for one that is there twice."""
    found: dict[str, str] = {}
    count = 0
    for name, value in raw:
        count += 1
        key = _NAMES.get(name)
        if key is None:
            continue
        text = value.decode("latin-1").strip(" \t")
        if key in found and key not in _LISTS:
            raise Refused(400, f"The header {key} is there twice.")
        found[key] = f"{found[key]}, {text}" if key in found else text
    if count > MAX_HEADERS:
        raise Refused(431, "There are too many headers.")
    return found
