"""500 subscriptions at three workers: each change is notified once, also without Redis.

A worker that takes over also knows what a killed one had notified.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from ..redis import a_redis
from .processes import text

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
PREFIX = "io.modelcontextprotocol/"
ROWS, LISTENS, SESSIONS, EACH = 50, 250, 25, 10
SERVER = pytest.param(
    "server", marks=pytest.mark.skipif(
        connection.vendor == "sqlite", reason="SQLite is a file: TEST_DATABASE=postgres."
    ),
)  # fmt: skip
META = {
    PREFIX + "protocolVersion": "2026-07-28", PREFIX + "clientCapabilities": {},
    PREFIX + "clientInfo": {"name": "restarts", "version": "1"},
}  # fmt: skip


class Subscriber:
    """A connection that counts the notifications it receives."""

    def __init__(self, port: int, uris: list[str]) -> None:
        self.port, self.uris = port, uris
        self.received: Counter[str] = Counter()
        self.open = asyncio.Event()

    async def _send(self, method: str, headers: dict[str, str], body: bytes = b"") -> None:
        lines = {
            "host": f"127.0.0.1:{self.port}", "accept": "application/json, text/event-stream",
            "content-type": "application/json", **headers,
        }  # fmt: skip
        if body:
            lines["content-length"] = str(len(body))
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        request = f"{method} /mcp HTTP/1.1\r\n{head}\r\n".encode() + body
        # A worker refuses some of 84 requests of anonymous clients at once, if it is slow: their
        # share of its threads and queue is 82. It says when to try again.
        while b" 503 " in (answer := await self._sent(request)).partition(b"\r\n")[0]:
            self._writer.close()
            assert b"\r\nretry-after: 1\r\n" in answer, answer
            await asyncio.sleep(1)
        assert b" 200 " in answer.partition(b"\r\n")[0], answer

    async def _sent(self, request: bytes) -> bytes:
        """Send the request and return the head of the response."""
        self.reader, self._writer = await asyncio.open_connection(
            "127.0.0.1", self.port, limit=2**20
        )
        self._writer.write(request)
        try:
            return await self.reader.readuntil(b"\r\n\r\n")
        except BaseException:
            self._writer.close()
            raise

    async def listen(self) -> None:
        wanted = {"resourceSubscriptions": self.uris}
        params = {"notifications": wanted, "_meta": META}
        message = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}
        headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "subscriptions/listen"}
        await self._send("POST", headers, json.dumps(message).encode())
        await self._read()

    async def get(self, headers: dict[str, str]) -> None:
        await self._send("GET", headers)
        self.open.set()
        await self._read()

    async def _read(self) -> None:
        try:
            await self._take()
        finally:
            self._writer.close()

    async def _take(self) -> None:
        while line := await self.reader.readline():
            if line.startswith(b"data: {"):
                message = json.loads(line[6:])
                if message["method"] == "notifications/subscriptions/acknowledged":
                    assert message["params"]["notifications"]["resourceSubscriptions"] == self.uris
                    self.open.set()
                elif message["method"] == "notifications/resources/updated":
                    self.received[message["params"]["uri"]] += 1


def answered(answer: Any) -> Any:
    """Return the response, from JSON or from a stream."""
    if "json" in answer.headers["content-type"]:
        return answer.json()
    return list(answer)[-1]


@pytest.fixture
def redis(tmp_path):
    with a_redis(tmp_path) as made:
        yield made


@pytest.fixture(params=["sqlite", SERVER])
def begun(request, begin, redis) -> Callable[[], Any]:
    more = {"LAYERS": json.dumps(redis.layers())}
    if request.param == "server":
        more["RESTARTS_DATABASE"] = request.getfixturevalue("database")
    return lambda: begin(**more)


def test_every_change_is_notified_once(begun, connect, redis):
    workers = [begun() for _ in range(3)]
    client = connect(workers[0].port)
    names = [f"row {number} {random.random()}" for number in range(ROWS)]
    made = answered(client.call("make_groups", names=names))
    keys = made["result"]["structuredContent"]["result"]
    uris = [f"model://auth/group/{key}" for key in keys]

    def save(place: int, name: str = "") -> None:
        client.port = random.choice(workers).port
        name = name or f"{names[place]} {random.random()}"
        assert text(answered(client.call("save_group", key=keys[place], name=name))) == "saved"

    sessions = [connect(workers[number % 3].port) for number in range(SESSIONS)]
    subscribers = [Subscriber(workers[n % 3].port, [uris[n % ROWS]]) for n in range(LISTENS)]
    for number, session in enumerate(sessions):
        mine = [uris[(number * EACH + one) % ROWS] for one in range(EACH)]
        for uri in mine:
            message = {"jsonrpc": "2.0", "id": uri, "method": "resources/subscribe"}
            assert answered(session.post(message | {"params": {"uri": uri}}))["result"] == {}
        # The stream is read at another worker than the one that stored the subscription.
        subscribers.append(Subscriber(workers[(number + 1) % 3].port, mine))

    async def wait_until_received(expected: Counter[str]) -> None:
        def missing() -> list[Any]:
            return [
                (place, uri, subscriber.received[uri], expected[uri])
                for place, subscriber in enumerate(subscribers)
                for uri in subscriber.uris
                if subscriber.received[uri] < expected[uri]
            ]

        try:
            async with asyncio.timeout(120):
                while missing():  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(missing()[:10]) from None
        await asyncio.sleep(2)  # no duplicates follow
        for subscriber in subscribers:
            assert subscriber.received == {
                uri: expected[uri] for uri in subscriber.uris if expected[uri]
            }

    async def scenario() -> None:
        tasks = [asyncio.ensure_future(one.listen()) for one in subscribers[:LISTENS]]
        for session, one in zip(sessions, subscribers[LISTENS:], strict=True):
            tasks.append(asyncio.ensure_future(one.get(session.headers)))
        opened = asyncio.gather(*(one.open.wait() for one in subscribers))
        async with asyncio.timeout(120):
            # A connection that fails ends the waiting with its error.
            await asyncio.wait([opened, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
                raise AssertionError("a connection ended")
        expected: Counter[str] = Counter()
        for step in (None, redis.kill, None, redis.start, None):
            if step is not None:
                await asyncio.to_thread(step)
            for place in random.sample(range(ROWS), ROWS):
                await asyncio.to_thread(save, place)
            expected.update(uris)
            await wait_until_received(expected)
        # A hidden row is notified once and then no more.
        for _ in range(2):
            await asyncio.to_thread(save, 0, f"hidden {random.random()}")
        expected[uris[0]] += 1
        await wait_until_received(expected)
        await asyncio.sleep(0.1)
        for task in tasks:
            task.cancel()
        failed = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) for one in failed), failed

    asyncio.run(scenario())


@pytest.mark.timeout(120)
def test_visibility_is_known_to_the_next_worker(begin, connect):
    """The worker that notified is killed; the next one notifies that the row is hidden."""
    first = begin()
    client = connect(first.port)
    made = answered(client.call("make_groups", names=["a"]))
    (key,) = made["result"]["structuredContent"]["result"]
    subscribe = {"jsonrpc": "2.0", "id": 9, "method": "resources/subscribe"}
    uri = {"uri": f"model://auth/group/{key}"}
    # Workers record changes only while somebody subscribes.
    assert answered(client.post(subscribe | {"params": uri}))["result"] == {}

    def save_and_check_notification(name: str) -> None:
        assert text(answered(client.call("save_group", key=key, name=name))) == "saved"
        methods = (message["method"] for message in client.get())
        assert "notifications/resources/list_changed" in methods

    save_and_check_notification("b")
    first.kill()
    client.port = begin().port
    save_and_check_notification("hidden")
