"""
The load of the soak: clients that call, open, cut and subscribe for as long as they are told.

Each client is a thread with steps of its own, and checks every response. All use the same access
token.
"""

from __future__ import annotations

import http.client
import itertools
import json
import random
import socket
import struct
import threading
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

from benchmarks.load import Connection
from benchmarks.messages import (
    ACCEPTED,
    CLIENT,
    JSON,
    NUMBER,
    PREFIX,
    SECRET,
    SESSION,
    STATELESS,
    WrongResponse,
    open_session,
    with_token,
)
from benchmarks.stream_reader import Reader

Address = tuple[str, int]
IDS = itertools.count(1)
CHANGEABLE = range(500, 1000)  # cities that may be saved: `city` checks one of the others
OPEN_STREAMS = 10  # that one client keeps, the oldest of which it cuts
PATIENCE = 60  # seconds until a response or a notification is missing
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends RST


class Clients:
    """Threads that run steps until they are stopped."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.done: Counter[str] = Counter()
        self.failures: list[str] = []
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(step, pause), daemon=True)
            for step, pause in STEPS
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(PATIENCE)

    def _run(self, step: Step, pause: float) -> None:
        """Repeat the step with pauses. After a failure, begin it anew."""
        name = step.__name__
        while not self._over.is_set():
            steps = step(self.address)
            try:
                with closing(steps):
                    for _ in steps:
                        self.done[name] += 1
                        if self._over.wait(pause * random.uniform(0.5, 1.5)):
                            break
            except Exception:
                self.failures.append(f"{name}: {traceback.format_exc()}")
                self._over.wait(1)


Step = Callable[[Address], Iterator[None]]


# Each of these is repeated: what follows a `yield` is done after a pause.


def calls(address: Address) -> Iterator[None]:
    """Call tools without a session; open the connection anew now and then."""
    arguments: dict[str, JSON] = {tool: {"a": NUMBER, "b": 1} for tool in ("add", "add_sync")}
    for tool, given in (arguments | {"city": {"pk": 7}}).items():
        connection = Connection(address, with_token(address, tool, given))
        with closing(connection.socket):
            for _ in range(50):
                connection.complete(next(IDS))
                yield


def cut_calls(address: Address) -> Iterator[None]:
    """Disconnect while a tool runs, which cancels the call."""
    reader = Reader(address, *stateless("tools/call", "tick", arguments={"count": 50}))
    next(iter(reader))
    reset(reader.socket)
    yield


def sessions(address: Address) -> Iterator[None]:
    """Open a session, call in it and delete it. Then it must not be found."""
    headers = open_session(address, SECRET)
    for number in range(2):
        expect(request(address, headers, call("add", a=number, b=1)), 200, str(number + 1))
    delete(address, headers)
    status, _ = request(address, headers, call("add", a=1, b=1))
    if status != 404:
        raise WrongResponse(f"A deleted session answered {status}")
    yield


def streams(address: Address) -> Iterator[None]:
    """Open streams in sessions of their own, cut the oldest, and delete some of the sessions."""
    kept: deque[tuple[Reader, JSON]] = deque()
    try:
        for number in range(5 * OPEN_STREAMS):
            headers = open_session(address, SECRET)
            kept.append((Reader(address, headers), headers))
            yield
            if len(kept) > OPEN_STREAMS:
                reader, headers = kept.popleft()
                reset(reader.socket) if number % 2 else reader.close()
                delete(address, headers)
    finally:
        for reader, headers in kept:
            delete(address, headers)  # which ends the stream
            reader.close()


def resumed(address: Address) -> Iterator[None]:
    """Cut the stream of a call after its first event, and resume it for the rest."""
    headers = open_session(address, SECRET)
    for number in range(10):
        reader = Reader(address, headers, progress_call(number))
        cursor = next(iter(reader)).id
        reset(reader.socket)
        rest = [
            json.loads(one.data) for one in Reader(address, headers | {"Last-Event-ID": cursor})
        ]
        check_progress(rest, number, missing=1)
        yield
    delete(address, headers)


def progress(address: Address) -> Iterator[None]:
    """Make calls in a session that send progress, each message of which is stored."""
    headers = open_session(address, SECRET)
    for number in range(20):
        received = Reader(address, headers, progress_call(number))
        check_progress([json.loads(one.data) for one in received], number, missing=0)
        yield
    delete(address, headers)


def subscriptions(address: Address) -> Iterator[None]:
    """Subscribe to rows in a session, save them, and wait for the notifications."""
    headers = open_session(address, SECRET)
    with closing(Reader(address, headers)) as stream:
        for _ in range(5):
            uri, pk = some_city()
            message = {"jsonrpc": "2.0", "id": next(IDS), "params": {"uri": uri}}
            expect(request(address, headers, message | {"method": "resources/subscribe"}), 200)
            expect(request(address, headers, call("grow", pk=pk)), 200, str(pk))
            wait_for_update(stream, uri)
            message |= {"id": next(IDS), "method": "resources/unsubscribe"}
            expect(request(address, headers, message), 200)
            yield
        delete(address, headers)


def listens(address: Address) -> Iterator[None]:
    """Listen to a row without a session, save it, wait for the notification, and disconnect."""
    uri, pk = some_city()
    wanted = {"resourceSubscriptions": [uri], "toolsListChanged": True}
    headers, message = stateless("subscriptions/listen", notifications=wanted)
    with closing(Reader(address, headers, message)) as stream:
        acknowledged = json.loads(next(iter(stream)).data)
        if acknowledged.get("method") != "notifications/subscriptions/acknowledged":
            raise WrongResponse(f"Not acknowledged: {acknowledged}")
        headers, message = stateless("tools/call", "grow", arguments={"pk": pk})
        expect(request(address, headers, message), 200, str(pk))
        wait_for_update(stream, uri)
        yield


# A client, and its seconds of pause between two steps.
STEPS: tuple[tuple[Step, float], ...] = (
    (calls, 0.05),
    (calls, 0.05),
    (cut_calls, 0.5),
    (sessions, 0.3),
    (sessions, 0.3),
    (streams, 0.5),
    (resumed, 0.5),
    (progress, 0.3),
    (subscriptions, 1.0),
    (listens, 1.0),
)


# Requests.


def call(tool: str, **arguments: Any) -> JSON:
    params = {"name": tool, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": next(IDS), "method": "tools/call", "params": params}


def progress_call(number: int) -> JSON:
    message = call("add_with_progress", a=number, b=1)
    message["params"]["_meta"] = {"progressToken": "soak"}
    return message


def check_progress(messages: list[JSON], number: int, missing: int) -> None:
    *before, response = messages
    steps = [one["params"]["progress"] for one in before]
    text = response["result"]["content"][0]["text"]
    if steps != [1, 2][missing:] or text != str(number + 1):
        raise WrongResponse(f"Progress of a call: {messages}")


def request(address: Address, headers: JSON, message: JSON) -> tuple[int, JSON]:
    """Return the status and the message of the response, which is JSON or an event."""
    connection = http.client.HTTPConnection(*address, timeout=PATIENCE)
    given = {"MCP-Protocol-Version": SESSION} | ACCEPTED | headers
    with closing(connection):
        connection.request("POST", "/mcp", json.dumps(message), given)
        response = connection.getresponse()
        body = response.read()
    if not body.startswith(b"{"):
        data = [line[5:] for line in body.splitlines() if line.startswith(b"data:")]
        body = next((line for line in reversed(data) if line.strip()), b"{}")
    return response.status, json.loads(body)


def expect(answer: tuple[int, JSON], status: int, text: str | None = None) -> None:
    found, message = answer
    content = message.get("result", {}).get("content", [{}])[0].get("text")
    if found != status or "error" in message or content != text:
        raise WrongResponse(f"{status} and {text} expected: {answer}")


def delete(address: Address, headers: JSON) -> None:
    connection = http.client.HTTPConnection(*address, timeout=PATIENCE)
    with closing(connection):
        connection.request("DELETE", "/mcp", None, headers | {"MCP-Protocol-Version": SESSION})
        status = connection.getresponse().status
    if status not in (200, 204):
        raise WrongResponse(f"DELETE of a session answered {status}")


def stateless(method: str, name: str = "", **params: Any) -> tuple[JSON, JSON]:
    """Return the headers and the message of a request without a session."""
    meta = {
        f"{PREFIX}protocolVersion": STATELESS,
        f"{PREFIX}clientCapabilities": {},
        f"{PREFIX}clientInfo": CLIENT,
        "progressToken": "soak",
    }
    given = params | ({"name": name} if name else {}) | {"_meta": meta}
    message = {"jsonrpc": "2.0", "id": next(IDS), "method": method, "params": given}
    headers = {"Authorization": f"Bearer {SECRET}", "MCP-Protocol-Version": STATELESS}
    headers |= {"Mcp-Method": method} | ({"Mcp-Name": name} if name else {})
    return headers, message


def some_city() -> tuple[str, int]:
    pk = random.choice(CHANGEABLE)
    return f"model://benchmarks/city/{pk}", pk


def wait_for_update(stream: Reader, uri: str) -> None:
    timer = threading.Timer(PATIENCE, stream.socket.shutdown, (socket.SHUT_RDWR,))
    timer.start()
    try:
        while message_of(stream) != ("notifications/resources/updated", uri):
            pass
    finally:
        timer.cancel()


def message_of(stream: Reader) -> tuple[str, str]:
    """Return the method and the URI of the next notification."""
    message = json.loads(next(iter(stream)).data)
    return message["method"], message.get("params", {}).get("uri", "")


def reset(connection: socket.socket) -> None:
    """Close a connection as a client does that is gone."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    connection.close()
