"""500 subscriptions over three processes and a Redis that goes: each change is told, once.

And what a process that is gone knew, the next one knows.
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
from .wire import text

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


class Hearer:
    """A connection that counts what it is told."""

    def __init__(self, port: int, uris: list[str]) -> None:
        self.port, self.uris = port, uris
        self.told: Counter[str] = Counter()
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
                    self.told[message["params"]["uri"]] += 1


def answered(answer: Any) -> Any:
    """The response, whether it comes at once or as a stream."""
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


def test_every_change_is_told_once(begun, connect, redis):
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
    hearers = [Hearer(workers[n % 3].port, [uris[n % ROWS]]) for n in range(LISTENS)]
    for number, session in enumerate(sessions):
        mine = [uris[(number * EACH + one) % ROWS] for one in range(EACH)]
        for uri in mine:
            message = {"jsonrpc": "2.0", "id": uri, "method": "resources/subscribe"}
            assert answered(session.post(message | {"params": {"uri": uri}}))["result"] == {}
        # Read at another worker than that to which it was said.
        hearers.append(Hearer(workers[(number + 1) % 3].port, mine))

    async def all_told(expected: Counter[str]) -> None:
        def missing() -> list[Any]:
            return [
                (place, uri, hearer.told[uri], expected[uri])
                for place, hearer in enumerate(hearers)
                for uri in hearer.uris
                if hearer.told[uri] < expected[uri]
            ]

        try:
            async with asyncio.timeout(120):
                while missing():  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(missing()[:10]) from None
        await asyncio.sleep(2)  # and nothing follows
        for hearer in hearers:
            assert hearer.told == {uri: expected[uri] for uri in hearer.uris if expected[uri]}

    async def scenario() -> None:
        tasks = [asyncio.ensure_future(one.listen()) for one in hearers[:LISTENS]]
        for session, one in zip(sessions, hearers[LISTENS:], strict=True):
            tasks.append(asyncio.ensure_future(one.get(session.headers)))
        opened = asyncio.gather(*(one.open.wait() for one in hearers))
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
            await all_told(expected)
        # What is hidden is told of once, and then no more.
        for _ in range(2):
            await asyncio.to_thread(save, 0, f"hidden {random.random()}")
        expected[uris[0]] += 1
        await all_told(expected)
        await asyncio.sleep(0.1)
        for task in tasks:
            task.cancel()
        failed = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) for one in failed), failed

    asyncio.run(scenario())


@pytest.mark.timeout(120)
def test_what_was_seen_in_lists_is_known_to_who_comes_after(begin, connect):
    """The one that told of it is killed; the next tells that it cannot be seen any more."""
    first = begin()
    client = connect(first.port)
    made = answered(client.call("make_groups", names=["a"]))
    (key,) = made["result"]["structuredContent"]["result"]
    subscribe = {"jsonrpc": "2.0", "id": 9, "method": "resources/subscribe"}
    uri = {"uri": f"model://auth/group/{key}"}
    assert answered(client.post(subscribe | {"params": uri}))["result"] == {}  # saves are heard now

    def told(name: str) -> None:
        assert text(answered(client.call("save_group", key=key, name=name))) == "saved"
        methods = (message["method"] for message in client.get())
        assert "notifications/resources/list_changed" in methods

    told("b")
    first.kill()
    client.port = begin().port
    told("hidden")
