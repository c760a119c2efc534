"""What a call says before its answer: in order, to the end, and bounded where nobody reads."""

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


class Reader:
    """Stands for the exchange: a client that reads while ``reads`` is set."""

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


async def test_all_that_was_said_is_written_in_order_before_the_answer():
    reader = Reader()
    outbox = ResponseWriter(reader)
    for number in range(100):
        outbox.send({"n": number})
        if number % 10 == 0:
            await asyncio.sleep(0)
    await outbox.settle()
    await outbox.answer('{"n":100}')
    assert reader.events == [b'data: {"n":%d}' % number for number in range(101)]
    assert reader.ended


async def test_nothing_said_is_no_stream():
    reader = Reader()
    outbox = ResponseWriter(reader)
    await outbox.settle()
    assert not reader.begun


async def test_what_threads_say_is_written_before_what_comes_after():
    """``settle`` is called the moment the thread is done, and waits for all it said."""
    for _ in range(50):
        reader = Reader()
        outbox = ResponseWriter(reader)
        done = threading.Event()

        def speak(outbox=outbox, done=done) -> None:
            for number in range(20):
                outbox.send({"n": number})
            done.set()

        thread = threading.Thread(target=speak)
        thread.start()
        done.wait()  # the loop does nothing meanwhile: all is still in its queue
        await outbox.settle()
        assert len(reader.events) == 20
        thread.join()


async def test_the_loop_and_threads_are_heard_in_the_order_in_which_they_spoke():
    reader = Reader()
    outbox = ResponseWriter(reader)
    for number in range(50):
        if number % 2:
            await asyncio.to_thread(outbox.send, {"n": number})
        else:
            outbox.send({"n": number})
    await outbox.settle()
    assert reader.events == [b'data: {"n":%d}' % number for number in range(50)]


# Who does not keep up.


async def test_who_does_not_read_costs_no_more_than_a_bound():
    reader = Reader()
    reader.reads.clear()
    outbox = ResponseWriter(reader)
    for number in range(5_000):
        outbox.send(NOTE)
        if number % 100 == 0:
            await asyncio.sleep(0)
    assert sum(map(len, outbox._waiting)) <= module.MAX_BUFFERED_BYTES
    reader.reads.set()
    await outbox.settle()
    await outbox.answer('"the answer"')
    assert 500 < len(reader.events) < 2_500
    assert reader.events[-1] == b'data: "the answer"' and reader.ended


async def test_what_is_said_in_all_is_bounded(settings):
    """A server may take whatever is written, and keep it for who does not read."""
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"RESULT_SIZE": 50_000}
    reader = Reader()
    outbox = ResponseWriter(reader)
    for _ in range(500):
        outbox.send(NOTE)
        await asyncio.sleep(0)
    await outbox.settle()
    await outbox.answer('"the answer"')
    assert 40_000 < sum(map(len, reader.written)) < 52_000
    assert reader.events[-1] == b'data: "the answer"'


async def test_whoever_must_miss_nothing_is_told_that_it_is_too_much(settings):
    reader = Reader()
    reader.reads.clear()
    called: list[int] = []

    def full() -> None:
        called.append(len(outbox._waiting))
        outbox.send({"last": "words"})

    outbox = ResponseWriter(reader, full)
    for _ in range(3_000):
        outbox.send(NOTE)
    assert len(called) == 1
    reader.reads.set()
    await outbox.settle()
    assert b'data: {"last":"words"}' in reader.events
    assert len(reader.events) <= called[0] + 1 + module.RESERVED_BYTES // 1_000


async def test_a_message_beyond_all_bounds_is_left_out():
    reader = Reader()
    outbox = ResponseWriter(reader)
    outbox.send({"data": "x" * (module.MAX_BUFFERED_BYTES + 1)})
    outbox.send({"data": "y"})
    await outbox.settle()
    assert reader.events == [b'data: {"data":"y"}']


# Who leaves.


async def test_who_left_is_written_to_no_more():
    reader = Reader()
    outbox = ResponseWriter(reader)
    outbox.send({"n": 1})
    await outbox.settle()
    reader.leaves = True
    for number in range(5):
        outbox.send({"n": number})
        await asyncio.sleep(0)
    await outbox.settle()
    assert len(reader.events) == 1 and not outbox._waiting


async def test_after_the_answer_no_keep_alive_is_sent():
    """Not even while the answer waits for a slow reader: it would be in the midst of it."""
    reader = Reader()
    outbox = ResponseWriter(reader)
    outbox.send({"n": 1})
    await outbox.settle()
    reader.reads.clear()
    answering = asyncio.ensure_future(outbox.answer('"the answer"'))
    await asyncio.sleep(0)
    outbox.tick()
    outbox.send({"n": 2})
    reader.reads.set()
    await answering
    await asyncio.sleep(0.01)
    assert reader.events == [b'data: {"n":1}', b'data: "the answer"']


async def test_a_pulse_begins_a_stream_and_is_left_out_where_something_waits():
    reader = Reader()
    outbox = ResponseWriter(reader)
    outbox.tick()
    await outbox.settle()
    await asyncio.sleep(0)
    assert reader.begun and reader.written[0].startswith(b":")
    reader.reads.clear()
    outbox.send({"n": 1})
    await asyncio.sleep(0)
    outbox.send({"n": 2})
    for _ in range(10):
        outbox.tick()
    assert len(outbox._waiting) == 1
    reader.reads.set()
    await outbox.settle()


async def test_what_is_dropped_writes_nothing_more():
    reader = Reader()
    reader.reads.clear()
    outbox = ResponseWriter(reader)
    outbox.send({"n": 1})
    await asyncio.sleep(0)
    outbox.drop()
    reader.reads.set()
    outbox.send({"n": 2})
    await asyncio.sleep(0.01)
    assert reader.written == []


# Over the wire.


def test_a_json_answer_that_is_read_slowly_is_not_mixed_with_pulses(http, server, settings):
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"KEEPALIVE": 0.02}

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    async def large(request: mcp.Request) -> str:
        talks[0].stalled.clear()
        return "x" * 100_000

    client = http(server=server)
    talks = client.talks
    talk = client.start("tools/call", name="large")
    client.sleep(0.1)
    assert not talk.over
    talk.stalled.set()
    assert talk.wait().headers["content-type"] == "application/json"
    assert len(talk.messages) == 1


@pytest.mark.slow
def test_a_reader_who_stalls_keeps_no_thread(http, server):
    state = SimpleNamespace(done=threading.Event())

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    def babble(request: mcp.Request) -> str:
        for step in range(20_000):
            request.progress(step, None, "x" * 500)
        state.done.set()
        return "babbled"

    client = http(server=server)
    talk = client.start("tools/call", name="babble", _meta={"progressToken": "p"})
    talk.stalled.clear()
    client.until(state.done.is_set, 60)
    talk.stalled.set()
    talk.wait(60)
    assert "result" in talk.messages[-1] and len(talk.body) < 4 * module.MAX_BUFFERED_BYTES


def test_a_listener_who_stalls_is_let_go_in_words(http, server, work, monkeypatch):
    """It has missed something, and is to look again: it is not left in the belief it has not."""
    monkeypatch.setattr(module, "MAX_BUFFERED_BYTES", 2_000)
    client = http(server=server)
    wanted = {"resourceSubscriptions": [f"open://{number}" for number in range(100)]}
    talk = client.start("subscriptions/listen", notifications=wanted)
    client.until(lambda: talk.messages)
    talk.stalled.clear()
    for number in range(100):
        announce(Announcement("updated", f"open://{number}", server.name))
        client.sleep(0.002)
    talk.stalled.set()
    talk.wait()
    methods = [message.get("method") for message in talk.messages]
    assert methods[-2:] == ["notifications/cancelled", None]
    assert "result" in talk.messages[-1]
    assert 0 < methods.count("notifications/resources/updated") < 100
