"""The response writer of a stateless call: order of messages, bounded buffers, disconnects."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace

import pytest

import django_mcp as mcp
from django_mcp.transports.http import stateless as module
from django_mcp.transports.http.request import ClientDisconnected
from django_mcp.transports.http.stateless import ResponseWriter
from tests.announcing import Announcement, announce

pytestmark = pytest.mark.django_db
NOTE = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x" * 1_000}}


class FakeExchange:
    """An exchange whose client reads while ``reads`` is set."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.begun = self.ended = self.leaves = False
        self.reads = asyncio.Event()
        self.reads.set()

    async def start_sse(self) -> None:
        self.begun = True
        await self.reads.wait()

    async def write(self, data: bytes) -> None:
        await self.reads.wait()
        if self.leaves:
            raise ClientDisconnected
        assert not self.ended
        self.written.append(data)

    async def end(self) -> None:
        self.ended = True

    @property
    def events(self) -> list[bytes]:
        return b"".join(self.written).split(b"\n\n")[:-1]


async def test_messages_are_written_in_order_before_the_response():
    exchange = FakeExchange()
    writer = ResponseWriter(exchange)
    for number in range(100):
        writer.send({"n": number})
        if number % 10 == 0:
            await asyncio.sleep(0)
    await writer.settle()
    await writer.answer('{"n":100}')
    assert exchange.events == [b'data: {"n":%d}' % number for number in range(101)]
    assert exchange.ended


async def test_no_stream_is_started_without_messages():
    exchange = FakeExchange()
    writer = ResponseWriter(exchange)
    await writer.settle()
    assert not exchange.begun


async def test_settle_waits_for_messages_of_ended_threads():
    """``settle`` is called right after the thread has ended, and waits for all its messages."""
    for _ in range(50):
        exchange = FakeExchange()
        writer = ResponseWriter(exchange)
        done = threading.Event()

        def speak(writer=writer, done=done) -> None:
            for number in range(20):
                writer.send({"n": number})
            done.set()

        thread = threading.Thread(target=speak)
        thread.start()
        done.wait()  # the loop is blocked, so all messages are still queued
        await writer.settle()
        assert len(exchange.events) == 20
        thread.join()


async def test_messages_of_threads_and_loop_keep_their_order():
    exchange = FakeExchange()
    writer = ResponseWriter(exchange)
    for number in range(50):
        if number % 2:
            await asyncio.to_thread(writer.send, {"n": number})
        else:
            writer.send({"n": number})
    await writer.settle()
    assert exchange.events == [b'data: {"n":%d}' % number for number in range(50)]


# Slow clients.


async def test_buffer_for_a_client_that_does_not_read_is_limited():
    exchange = FakeExchange()
    exchange.reads.clear()
    writer = ResponseWriter(exchange)
    for number in range(5_000):
        writer.send(NOTE)
        if number % 100 == 0:
            await asyncio.sleep(0)
    assert sum(map(len, writer._waiting)) <= module.MAX_BUFFERED_BYTES
    exchange.reads.set()
    await writer.settle()
    await writer.answer('"the answer"')
    assert 500 < len(exchange.events) < 2_500
    assert exchange.events[-1] == b'data: "the answer"' and exchange.ended


async def test_total_size_of_messages_is_limited(settings):
    """The ASGI server may accept everything and buffer it for a client that does not read."""
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"RESULT_SIZE": 50_000}
    exchange = FakeExchange()
    writer = ResponseWriter(exchange)
    for _ in range(500):
        writer.send(NOTE)
        await asyncio.sleep(0)
    await writer.settle()
    await writer.answer('"the answer"')
    assert 40_000 < sum(map(len, exchange.written)) < 52_000
    assert exchange.events[-1] == b'data: "the answer"'


async def test_overflow_callback_is_called_once(settings):
    exchange = FakeExchange()
    exchange.reads.clear()
    called: list[int] = []

    def full() -> None:
        called.append(len(writer._waiting))
        writer.send({"last": "words"})

    writer = ResponseWriter(exchange, full)
    for _ in range(3_000):
        writer.send(NOTE)
    assert len(called) == 1
    exchange.reads.set()
    await writer.settle()
    assert b'data: {"last":"words"}' in exchange.events
    assert len(exchange.events) <= called[0] + 1 + module.RESERVED_BYTES // 1_000


async def test_message_above_the_buffer_size_is_dropped():
    exchange = FakeExchange()
    writer = ResponseWriter(exchange)
    writer.send({"data": "x" * (module.MAX_BUFFERED_BYTES + 1)})
    writer.send({"data": "y"})
    await writer.settle()
    assert exchange.events == [b'data: {"data":"y"}']


# Disconnects.


async def test_disconnected_client_is_not_written_to():
    exchange = FakeExchange()
    writer = ResponseWriter(exchange)
    writer.send({"n": 1})
    await writer.settle()
    exchange.leaves = True
    for number in range(5):
        writer.send({"n": number})
        await asyncio.sleep(0)
    await writer.settle()
    assert len(exchange.events) == 1 and not writer._waiting


async def test_no_keepalive_is_sent_after_the_response():
    """Not even while a slow client reads the response, which it would interrupt."""
    exchange = FakeExchange()
    writer = ResponseWriter(exchange)
    writer.send({"n": 1})
    await writer.settle()
    exchange.reads.clear()
    answering = asyncio.ensure_future(writer.answer('"the answer"'))
    await asyncio.sleep(0)
    writer.tick()
    writer.send({"n": 2})
    exchange.reads.set()
    await answering
    await asyncio.sleep(0.01)
    assert exchange.events == [b'data: {"n":1}', b'data: "the answer"']


async def test_keepalive_starts_a_stream_and_is_skipped_while_messages_wait():
    exchange = FakeExchange()
    writer = ResponseWriter(exchange)
    writer.tick()
    await writer.settle()
    await asyncio.sleep(0)
    assert exchange.begun and exchange.written[0].startswith(b":")
    exchange.reads.clear()
    writer.send({"n": 1})
    await asyncio.sleep(0)
    writer.send({"n": 2})
    for _ in range(10):
        writer.tick()
    assert len(writer._waiting) == 1
    exchange.reads.set()
    await writer.settle()


async def test_dropped_writer_writes_nothing_more():
    exchange = FakeExchange()
    exchange.reads.clear()
    writer = ResponseWriter(exchange)
    writer.send({"n": 1})
    await asyncio.sleep(0)
    writer.drop()
    exchange.reads.set()
    writer.send({"n": 2})
    await asyncio.sleep(0.01)
    assert exchange.written == []


# Over HTTP.


def test_slow_json_response_contains_no_keepalives(http, server, settings):
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"KEEPALIVE": 0.02}

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    async def large(request: mcp.Request) -> str:
        exchanges[0].stalled.clear()
        return "x" * 100_000

    client = http(server=server)
    exchanges = client.exchanges
    exchange = client.start("tools/call", name="large")
    client.sleep(0.1)
    assert not exchange.over
    exchange.stalled.set()
    assert exchange.wait().headers["content-type"] == "application/json"
    assert len(exchange.messages) == 1


@pytest.mark.slow
def test_stalled_client_does_not_block_a_thread(http, server):
    state = SimpleNamespace(done=threading.Event())

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    def babble(request: mcp.Request) -> str:
        for step in range(20_000):
            request.progress(step, None, "x" * 500)
        state.done.set()
        return "babbled"

    client = http(server=server)
    exchange = client.start("tools/call", name="babble", _meta={"progressToken": "p"})
    exchange.stalled.clear()
    client.until(state.done.is_set, 60)
    exchange.stalled.set()
    exchange.wait(60)
    assert "result" in exchange.messages[-1] and len(exchange.body) < 4 * module.MAX_BUFFERED_BYTES


def test_listen_of_a_stalled_client_is_ended_with_a_response(http, server, work, monkeypatch):
    """It has missed notifications, so the stream ends and the client must read again."""
    monkeypatch.setattr(module, "MAX_BUFFERED_BYTES", 2_000)
    client = http(server=server)
    wanted = {"resourceSubscriptions": [f"open://{number}" for number in range(100)]}
    exchange = client.start("subscriptions/listen", notifications=wanted)
    client.until(lambda: exchange.messages)
    exchange.stalled.clear()
    for number in range(100):
        announce(Announcement("updated", f"open://{number}", server.name))
        client.sleep(0.002)
    exchange.stalled.set()
    exchange.wait()
    methods = [message.get("method") for message in exchange.messages]
    assert methods[-2:] == ["notifications/cancelled", None]
    assert "result" in exchange.messages[-1]
    assert 0 < methods.count("notifications/resources/updated") < 100
