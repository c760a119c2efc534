"""
A reader of an SSE stream that notes when each event was received.

Its connection may be cut, and another reader resumes the stream. Standard library only: it parses
chunks and events itself and relies on no other behaviour of the server.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from typing import NamedTuple

from benchmarks.messages import ACCEPTED, JSON, SESSION, WrongResponse

PATIENCE = 60  # seconds


class ReceivedEvent(NamedTuple):
    """An event, and when it was received (monotonic clock)."""

    at: float
    id: str
    data: str


class Reader:
    """A connection to a stream: that of a call it makes, or one that resumes after an event."""

    def __init__(self, address: tuple[str, int], headers: JSON, call: JSON | None = None) -> None:
        body = b"" if call is None else json.dumps(call).encode()
        given = {"Host": "{}:{}".format(*address), "MCP-Protocol-Version": SESSION, **ACCEPTED}
        given |= headers | ({"Content-Length": str(len(body))} if body else {})
        lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
        method = "POST" if body else "GET"
        self.socket = socket.create_connection(address, timeout=PATIENCE)
        self.socket.sendall(f"{method} /mcp HTTP/1.1\r\n{lines}\r\n".encode() + body)
        self._rest = b""
        self._begin()

    def _begin(self) -> None:
        while b"\r\n\r\n" not in self._rest:
            self._receive()
        head, self._rest = self._rest.split(b"\r\n\r\n", 1)
        if b" 200 " not in head.split(b"\r\n")[0] or b"text/event-stream" not in head.lower():
            self.close()
            raise WrongResponse((head + self._rest).decode(errors="replace"))

    def _receive(self) -> None:
        received = self.socket.recv(262_144)
        if not received:
            self.close()
            raise WrongResponse("The connection was closed")
        self._rest += received

    def _chunks(self) -> Iterator[bytes]:
        """Yield the chunks of the body until it ends."""
        while True:
            while (end := self._rest.find(b"\r\n")) < 0:
                self._receive()
            size = int(self._rest[:end], 16)
            while len(self._rest) < end + size + 4:
                self._receive()
            chunk, self._rest = self._rest[end + 2 : end + 2 + size], self._rest[end + size + 4 :]
            if not size:
                self.close()
                return
            yield chunk

    def __iter__(self) -> Iterator[ReceivedEvent]:
        """Yield the events that have data, until the stream ends."""
        left = b""
        for chunk in self._chunks():
            at = time.monotonic()
            *blocks, left = (left + chunk).split(b"\n\n")
            for block in blocks:
                fields = dict(line.split(b": ", 1) for line in block.split(b"\n") if b": " in line)
                if data := fields.get(b"data", b"").decode():
                    yield ReceivedEvent(at, fields.get(b"id", b"").decode(), data)

    def close(self) -> None:
        """Close the connection, even if the stream goes on."""
        self.socket.close()
