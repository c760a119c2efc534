"""
The way to the server, which can be cut: a TCP proxy of the driver's own.

Rule: bytes pass unchanged; of what a client sends, the requests are noted. Nothing but the
standard library is imported, because the drivers run in environments of their own.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from types import TracebackType
from urllib.parse import urlsplit

REQUEST = re.compile(rb"(GET|POST|DELETE) /\S* HTTP/1\.1\r\n(.*?)\r\n\r\n", re.S)
CURSOR = re.compile(rb"^last-event-id: *(\S+)", re.I | re.M)


class Cable:
    """A proxy from ``url`` to an endpoint. After a cut it accepts new connections."""

    def __init__(self, endpoint: str) -> None:
        place = urlsplit(endpoint)
        assert place.hostname and place.port
        self._server_at, self._path = (place.hostname, place.port), place.path
        self._ends: set[asyncio.StreamWriter] = set()
        self.requests: list[list[str | None]] = []  # [method, cursor], as they came

    async def __aenter__(self) -> Cable:
        self._listening = await asyncio.start_server(self._join, "127.0.0.1", 0)
        port = self._listening.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}{self._path}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self._listening.close()
        self.cut()

    def cut(self) -> None:
        """Reset the connections on both sides."""
        for end in list(self._ends):
            end.transport.abort()
        self.requests = []

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(*self._server_at)
        ends = {writer, far_writer}
        self._ends |= ends
        with suppress(OSError):
            await asyncio.gather(
                self._pass(reader, far_writer, self._note), self._pass(far_reader, writer)
            )
        for end in ends:
            end.transport.abort()
        self._ends -= ends

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, note=None):
        while data := await reader.read(65_536):
            if note is not None:
                note(data)
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()

    def _note(self, data: bytes) -> None:
        """Record the head of a request, which arrives in one piece because it is small."""
        for method, head in REQUEST.findall(data):
            cursor = CURSOR.search(head)
            self.requests.append([method.decode(), cursor and cursor[1].decode()])
