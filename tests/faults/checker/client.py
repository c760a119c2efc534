"""An HTTP/1.1 client with one request per connection, which can be cut at any byte.

A broken connection differs from an end: a body that stops before its last chunk or its length
raises ``Broken``, and so does a failed connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import AsyncIterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

PIECE = 65_536
CONNECTING, ANSWERING = 5.0, 40.0  # seconds


class Broken(Exception):
    """The connection broke. ``sent`` says whether a server may have read the request."""

    def __init__(self, why: str, *, sent: bool) -> None:
        super().__init__(why)
        self.sent = sent


class Address(NamedTuple):
    host: str
    port: int
    path: str

    @classmethod
    def of(cls, url: str) -> Address:
        parts = urlsplit(url)
        return cls(parts.hostname or "127.0.0.1", parts.port or 80, parts.path or "/mcp")

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Answer:
    """The head of a response, and its body, which is read in pieces."""

    def __init__(
        self, status: int, headers: dict[str, str], reader: asyncio.StreamReader, writer: Any
    ) -> None:
        self.status, self.headers = status, headers
        self._reader, self._writer = reader, writer
        self.is_open = True

    @property
    def is_stream(self) -> bool:
        return self.headers.get("content-type", "").startswith("text/event-stream")

    async def pieces(self, size: int = PIECE) -> AsyncIterator[bytes]:
        """Yield the body in pieces, as they arrive. Raise ``Broken``."""
        try:
            if self.headers.get("transfer-encoding", "").lower() == "chunked":
                async for piece in self._chunks(size):
                    yield piece
            else:
                async for piece in self._plain(size):
                    yield piece
        except (OSError, asyncio.IncompleteReadError, ValueError) as error:
            raise Broken(f"{type(error).__name__} {error}", sent=True) from None
        finally:
            self.cut(reset=False)

    async def _chunks(self, size: int) -> AsyncIterator[bytes]:
        while left := int((await self._reader.readuntil(b"\r\n")).split(b";")[0], 16):
            while left:
                piece = await self._some(min(left, size))
                left -= len(piece)
                yield piece
            await self._reader.readexactly(2)

    async def _plain(self, size: int) -> AsyncIterator[bytes]:
        length = self.headers.get("content-length")
        left = int(length) if length is not None else None
        while left is None or left > 0:
            piece = await self._reader.read(size if left is None else min(left, size))
            if not piece and left is None:
                return
            if not piece:
                raise Broken("the body is too short", sent=True)
            left = None if left is None else left - len(piece)
            yield piece

    async def _some(self, size: int) -> bytes:
        piece = await self._reader.read(size)
        if not piece:
            raise Broken("the stream has no end", sent=True)
        return piece

    async def body(self) -> bytes:
        try:
            async with asyncio.timeout(ANSWERING):
                return b"".join([piece async for piece in self.pieces()])
        except TimeoutError:
            raise Broken("the body does not come", sent=True) from None

    async def json(self) -> Any:
        """Return the JSON of the body, or None if it is not JSON."""
        text = await self.body()
        try:
            return json.loads(text) if text else None
        except ValueError:
            return None

    def cut(self, *, reset: bool) -> None:
        """Close the connection, or reset it."""
        if not self.is_open:
            return
        self.is_open = False
        if reset:
            linger = struct.pack("ii", 1, 0)
            with contextlib.suppress(OSError, AttributeError):
                sock = self._writer.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self._writer.transport.abort()
        else:
            self._writer.close()


async def request(
    to: Address,
    method: str,
    headers: dict[str, str],
    body: bytes = b"",
    *,
    path: str | None = None,
    buffer: int | None = None,
) -> Answer:
    """Send a request and return the head of the response. Raise ``Broken``.

    ``buffer`` is how many bytes the system keeps for a reader that is slow.
    """
    reader, writer = await _connected(to, buffer)
    lines = [f"{method} {path or to.path} HTTP/1.1", f"host: {to.host}:{to.port}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines += ["connection: close", f"content-length: {len(body)}", "", ""]
    try:
        async with asyncio.timeout(ANSWERING):
            writer.write("\r\n".join(lines).encode("latin-1") + body)
            await writer.drain()
            status, found = await _head(reader)
    except BaseException as error:
        writer.transport.abort()
        if isinstance(error, TimeoutError):
            raise Broken("no answer comes", sent=True) from None
        if isinstance(error, OSError | asyncio.IncompleteReadError | ValueError):
            raise Broken(f"{type(error).__name__} {error}", sent=True) from None
        raise
    return Answer(status, found, reader, writer)


async def _connected(to: Address, buffer: int | None) -> tuple[asyncio.StreamReader, Any]:
    try:
        async with asyncio.timeout(CONNECTING):
            if buffer is None:
                return await asyncio.open_connection(to.host, to.port, limit=4 * PIECE)
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, (to.host, to.port))
            return await asyncio.open_connection(sock=sock, limit=buffer)
    except (OSError, TimeoutError) as error:
        raise Broken(f"no connection: {error}", sent=False) from None


async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    status = int(head[0].split(" ")[1])
    pairs = (line.partition(":") for line in head[1:] if line)
    return status, {name.strip().lower(): value.strip() for name, _, value in pairs}
