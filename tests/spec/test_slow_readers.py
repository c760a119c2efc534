"""Slow readers under each ASGI server cost database rows but no memory, and miss no event.

Source: the guarantees of delivery, "Bounded".
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from pathlib import Path

import pytest

from django_mcp.transports.http.streams import event_id
from tests.http import BOTH
from tests.servers import COMMANDS, Served, prepare

from .test_graceful_shutdown import NEW, PROGRESS, Client, text

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc").exists(), reason="memory is read from /proc"),
]
COUNT, SIZE = 5_000, 8_000
SAID = COUNT * SIZE // 1024  # kilobytes


@pytest.fixture(params=COMMANDS)
def serve(request, tmp_path):
    """Starts servers of one kind, each with databases of its own."""
    with contextlib.ExitStack() as stack:

        def started(name):
            (tmp_path / name).mkdir()
            return stack.enter_context(Served(request.param, prepare(tmp_path / name)))

        yield started


class Slow(threading.Thread):
    """Reads one byte a second, or leaves at once."""

    def __init__(self, server: Served, client: Client, *, stays: bool) -> None:
        super().__init__(daemon=True)
        self.stays, self.over = stays, threading.Event()
        message = {"jsonrpc": "2.0", "id": 99, "method": "tools/call", "params": {
            "name": "babble", "arguments": {"to": COUNT, "size": SIZE}, "_meta": PROGRESS,
        }}  # fmt: skip
        body = json.dumps(message).encode()
        headers = client.headers | {
            "Host": "127.0.0.1", "Accept": BOTH, "Content-Type": "application/json",
            "Content-Length": str(len(body)),
        }  # fmt: skip
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.connect(("127.0.0.1", server.port))
        self.socket.sendall(b"POST /mcp HTTP/1.1\r\n" + lines.encode() + b"\r\n" + body)
        self.began = self.socket.recv(1)

    def run(self) -> None:
        while self.stays and not self.over.wait(1):
            self.socket.recv(1)
        self.socket.close()

    def grown(self, server: Served) -> int:
        """The kilobytes of memory that the server takes more when all has been said."""
        before = server.resident()
        self.start()
        server.traced("babbled")
        peak = server.resident()
        self.over.set()
        self.join()
        return peak - before


def test_slow_reader_costs_rows_and_no_memory(serve):
    grown = {}
    for name, stays in (("nobody", False), ("slow", True)):
        server = serve(name)
        client = Client(server, NEW)
        grown[name] = Slow(server, client, stays=stays).grown(server)
    assert grown["slow"] - grown["nobody"] < SAID / 3, grown
    # And all of it is there for who comes back.
    events = [event for event in client.get(event_id(1, 0)).events() if event.data]
    assert [int(str(event.id).split("-")[1]) for event in events] == list(range(1, COUNT + 2))
    assert text(json.loads(events[-1].data)) == f"said {COUNT}"
