"""HTTP+SSE sessions that several processes serve: streams, POST requests, killed processes."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_mcp.calls.recovery import LOST

from .processes import JSON, SECONDS, SERVERS, text

pytestmark = pytest.mark.slow


class Client:
    """A client of one session, which may use any process for its stream and its POST requests."""

    def __init__(self, port: int, *, path: str = "/mcp/sse", token: str = "") -> None:
        self.headers = {"authorization": f"Bearer {token}"} if token else {}
        self.port, self.path, self.count = port, path, 0
        self.address = self.last = ""
        self.connection: http.client.HTTPConnection | None = None
        self.messages: list[JSON] = []
        self.numbers: list[int] = []
        self.open()
        params = {
            "protocolVersion": "2025-06-18", "capabilities": {"elicitation": {}},
            "clientInfo": {"name": "restarts", "version": "1"},
        }  # fmt: skip
        assert "result" in self.answer_to(self.ask("initialize", **params))
        assert self.post({"jsonrpc": "2.0", "method": "notifications/initialized"}) == 202

    # The stream.

    def open(self, port: int | None = None, *, reads: bool = True) -> None:
        """Open or resume the stream; the POST address stays the same."""
        self.cut()
        headers = {"accept": "text/event-stream", **self.headers}
        if self.last:
            headers["last-event-id"] = self.last
        self.connection = http.client.HTTPConnection(
            "127.0.0.1", port or self.port, timeout=SECONDS
        )
        self.connection.request("GET", self.path, headers=headers)
        self.socket = self.connection.sock
        self.named, self.ended = threading.Event(), threading.Event()
        if reads:
            self.read()
            assert self.named.wait(SECONDS)

    def read(self) -> None:
        self.response = self.connection.getresponse()
        self.reader = threading.Thread(target=self._read, args=(self.response,), daemon=True)
        self.reader.start()

    def cut(self) -> None:
        """Close the connection of the stream, if there is one."""
        if self.connection is None:
            return
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.reader.join()
        self.response.close()
        self.connection.close()
        self.connection = None

    def _read(self, response: http.client.HTTPResponse) -> None:
        try:
            fields: dict[str, str] = {}
            for raw in response:
                name, _, value = raw.decode().rstrip("\n").partition(": ")
                if name and not name.startswith(":"):
                    fields[name] = value
                elif not name and fields:
                    self._take(fields)
                    fields = {}
        except (OSError, http.client.HTTPException):
            pass  # the process was killed, or the connection closed
        finally:
            self.ended.set()

    def _take(self, fields: dict[str, str]) -> None:
        if fields["event"] == "endpoint":
            assert self.address in ("", fields["data"])
            self.address = fields["data"]
            self.named.set()
        else:
            self.numbers.append(int(fields["id"].split(".")[1]))
            self.messages.append(json.loads(fields["data"]))
        self.last = fields["id"]

    # POST requests.

    def post(self, message: JSON, port: int | None = None) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=SECONDS)
        body = json.dumps(message).encode()
        headers = {"content-type": "application/json", **self.headers}
        try:
            connection.request("POST", self.address, body, headers)
            return connection.getresponse().status
        finally:
            connection.close()

    def ask(self, method: str, port: int | None = None, **params: Any) -> int:
        """Send a request, check that it is accepted, and return its id."""
        self.count += 1
        message = {"jsonrpc": "2.0", "id": self.count, "method": method, "params": params}
        assert self.post(message, port) == 202
        return self.count

    def call(self, tool: str, port: int | None = None, **arguments: Any) -> int:
        meta = {"progressToken": self.count + 1}
        return self.ask("tools/call", port, name=tool, arguments=arguments, _meta=meta)

    def until(self, condition: Callable[[], Any]) -> Any:
        end = time.monotonic() + SECONDS
        while not (found := condition()):
            assert time.monotonic() < end, self.messages
            time.sleep(0.01)
        return found

    def answer_to(self, id: int) -> JSON:
        return self.until(
            lambda: next((m for m in self.messages if "method" not in m and m["id"] == id), None)
        )

    def question(self) -> JSON:
        return self.until(
            lambda: next((m for m in self.messages if "method" in m and "id" in m), None)
        )

    def yes(self, port: int | None = None) -> None:
        result = {"action": "accept", "content": {"answer": True}}
        answer = {"jsonrpc": "2.0", "id": self.question()["id"], "result": result}
        assert self.post(answer, port) == 202

    @property
    def is_whole(self) -> bool:
        """Return whether every message arrived once and in order."""
        return self.numbers == list(range(1, len(self.numbers) + 1))


@pytest.fixture
def connect() -> Iterator[Callable[..., Client]]:
    made: list[Client] = []

    def connected(port: int, **options: Any) -> Client:
        made.append(Client(port, **options))
        return made[-1]

    yield connected
    for client in made:
        client.cut()


def test_any_process_accepts_posted_messages(begin, connect):
    first, second = begin(), begin()
    client = connect(first.port)
    ids = [client.call("look", port, seconds=0.2, steps=4) for port in (first.port, second.port)]
    assert [text(client.answer_to(id)) for id in ids] == ["looked", "looked"]
    asking = client.call("ask", first.port)
    client.yes(second.port)
    assert text(client.answer_to(asking)) == "answer: True" and client.is_whole


def test_calls_of_a_killed_process_are_answered_on_the_same_stream(begin, connect):
    """The calls run in another process than the one that serves the stream."""
    first, second = begin(lease=3), begin(lease=3)
    client = connect(second.port)
    reading, acting, asking = (
        client.call("look", first.port, seconds=3, steps=30),
        client.call("act", first.port, seconds=60),
        client.call("ask", first.port),
    )
    client.question()
    first.kill()
    client.yes()
    assert text(client.answer_to(asking)) == "answer: True"
    assert text(client.answer_to(reading)) == "looked"
    acted = client.answer_to(acting)
    assert text(acted) == LOST and acted["result"]["isError"] and client.is_whole


def test_stream_of_a_killed_process_is_resumed_at_another(begin, connect):
    first, second = begin(lease=3), begin(lease=3)
    client = connect(first.port)
    calls = [client.call("look", port, seconds=3, steps=30) for port in (first.port, second.port)]
    client.until(lambda: len(client.messages) > 10)
    first.kill()
    assert client.ended.wait(SECONDS)
    client.open(second.port)
    client.port = second.port
    assert [text(client.answer_to(id)) for id in calls] == ["looked", "looked"]
    assert client.is_whole and text(client.answer_to(client.call("look", seconds=0))) == "looked"


@pytest.mark.parametrize("server", SERVERS)
def test_terminated_process_ends_after_its_calls(begin, connect, server):
    first = begin(server=server)
    client, quiet = connect(first.port), connect(first.port, path="/mcp")
    id = client.call("look", seconds=1.5)
    took = first.terminate()
    assert 1 < took < 7, first.output
    assert quiet.ended.wait(SECONDS) and client.ended.wait(SECONDS)
    assert text(client.answer_to(id)) == "looked"
    second = begin(server=server)
    for one in (client, quiet):
        one.port = second.port
        one.open()
        assert text(one.answer_to(one.call("look", seconds=0))) == "looked" and one.is_whole
    assert "rror" not in first.output, first.output


@pytest.mark.parametrize("server", SERVERS)
def test_unfinished_call_of_a_terminated_process_is_taken_over(begin, connect, server):
    first, second = begin(server=server, lease=3), begin(lease=3)
    client = connect(first.port)
    id = client.call("look", seconds=15, steps=150)
    client.until(lambda: len(client.messages) > 3)
    assert first.terminate() < 20
    assert client.ended.wait(SECONDS)
    client.port = second.port
    client.open()
    assert text(client.answer_to(id)) == "looked" and client.is_whole


@pytest.mark.parametrize("server", SERVERS)
def test_client_that_does_not_read_uses_no_server_memory(begin, connect, server):
    """Unread messages stay in the database and are sent when the client reads."""
    process = begin(server=server)
    client = connect(process.port)
    assert text(client.answer_to(client.call("speak", times=20))) == "said"
    before = resident(process)
    client.open(reads=False)
    watch = connect(process.port)
    ids = [client.call("speak", times=200) for _ in range(4)]  # 80 MB
    time.sleep(8)
    assert text(watch.answer_to(watch.call("look", seconds=0))) == "looked"
    assert resident(process) - before < 45_000
    client.read()
    assert all(text(client.answer_to(id)) == "said" for id in ids) and client.is_whole


def resident(process: Any) -> int:
    """Return the resident memory of a process and its children in kilobytes."""
    pid = process._process.pid
    with open(f"/proc/{pid}/task/{pid}/children") as listed:
        pids = [pid, *map(int, listed.read().split())]
    found = 0
    for one in pids:
        with open(f"/proc/{one}/status") as status:
            lines = [line for line in status if line.startswith("VmRSS")]
        found += sum(int(line.split()[1]) for line in lines)
    return found
