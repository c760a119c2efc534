"""The stdio transport: reading and writing lines, the standard streams, and one served client."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time

import pytest
from django.test import override_settings

import django_mcp as mcp
from django_mcp.auth.principal import anonymous
from django_mcp.transports import stdio
from django_mcp.transports.stdio import LineReader, LineWriter, lines, redirected_streams, serve

SECONDS = 30
SOON = 3.5  # as in tests/management/test_mcp_stdio.py
NOTE = {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "a:b"}}
CHATTER = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x" * 1000}}


def until(condition):
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.fixture
def pipe():
    """Both ends of a pipe, and the set of ends that are still open."""
    ends = set(os.pipe())
    reading, writing = sorted(ends)
    yield reading, writing, ends
    for one in ends:
        os.close(one)


def close(ends, one):
    os.close(one)
    ends.discard(one)


# Lines.


def parts(raw, size):
    pieces = [raw[start : start + size] for start in range(0, len(raw), size)]
    return iter([*pieces, b""]).__next__


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_lines_are_split_at_newlines_only(size):
    raw = b"one\r\n\n \ntw\xc3\xb6\nthree\xe2\x80\xa8and a half\nand the rest"
    found = [b"one\r", b"tw\xc3\xb6", b"three\xe2\x80\xa8and a half", b"and the rest"]
    assert list(lines(parts(raw, size), None)) == found
    assert list(lines(parts(b"", size), 3)) == list(lines(parts(b" \n", size), 3)) == []


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_overlong_line_is_none_and_not_buffered(size):
    raw = b"abc\nabcd\nab\n" + b"x" * 50 + b"\nabc\n" + b"y" * 50
    assert list(lines(parts(raw, size), 3)) == [b"abc", None, b"ab", None, b"abc", None]


@pytest.mark.parametrize("size", [1, 3, 4, 100])
@pytest.mark.parametrize(("raw", "found"), [(b"abcd", [None]), (b"abc", [b"abc"]), (b"   ", [])])
def test_last_line_without_a_newline_has_the_same_limit(raw, found, size):
    assert list(lines(parts(raw, size), 3)) == found


# Reading.


def test_end_of_input_is_noticed_behind_unread_data(pipe):
    reading, writing, ends = pipe
    ended = threading.Event()
    reader = LineReader(reading, ended.set)
    os.write(writing, b"x" * 5000)
    assert not ended.wait(0.05)
    close(ends, writing)
    assert ended.wait(SECONDS) and reader.is_finished
    assert reader.read() == b"x" * 5000
    assert reader.read() == reader.read() == b""


def test_read_ahead_is_limited(pipe, monkeypatch):
    monkeypatch.setattr(stdio, "MAX_BUFFERED_BYTES", 100)
    reading, writing, ends = pipe
    ended = threading.Event()
    reader = LineReader(reading, ended.set)
    for _ in range(20):
        os.write(writing, b"x" * 30)
        time.sleep(0.005)
    assert 100 <= len(reader._ahead) < 160
    close(ends, writing)
    assert not ended.wait(0.05)
    assert sum(map(len, iter(reader.read, b""))) == 600
    assert ended.wait(SECONDS)


def test_closed_reader_stops_waiting_for_space(pipe, monkeypatch):
    monkeypatch.setattr(stdio, "MAX_BUFFERED_BYTES", 1)
    reading, writing, _ = pipe
    ended = threading.Event()
    reader = LineReader(reading, ended.set)
    os.write(writing, b"xx")
    until(lambda: reader._ahead)
    reader.close()
    assert ended.wait(SECONDS)
    assert (reader.read(), reader.read()) == (b"xx", b"")


def test_closed_descriptor_is_end_of_input(caplog):
    reading, writing = os.pipe()
    os.close(writing)
    os.close(reading)
    ended = threading.Event()
    assert LineReader(reading, ended.set).read() == b"" and ended.wait(SECONDS)


# Writing.


def test_messages_are_written_as_lines_in_order(pipe):
    reading, writing, ends = pipe
    writer = LineWriter(writing)
    for number in range(100):
        writer.send({"n": number, "text": "a\nb\u2028"})
    writer.close(SECONDS)
    close(ends, writing)
    with open(os.dup(reading), "rb") as stream:
        assert [json.loads(line)["n"] for line in stream] == list(range(100))


def test_slow_client_loses_log_messages_and_closing_times_out(pipe, monkeypatch):
    monkeypatch.setattr(stdio, "MAX_BUFFERED_BYTES", 100_000)
    reading, writing, ends = pipe
    writer = LineWriter(writing)
    for _ in range(1000):
        writer.send(CHATTER)
    assert 100_000 < writer._backlog < 200_000
    writer.send(NOTE)  # which is not dropped
    begun = time.monotonic()
    writer.close(0.1)
    assert 0.1 <= time.monotonic() - begun < SOON
    waiting = threading.Thread(target=writer.wait_for_room)
    waiting.start()
    found = b""
    while NOTE["method"].encode() not in found:
        found += os.read(reading, 65_536)
    waiting.join(SECONDS)
    assert not waiting.is_alive()
    assert all(json.loads(line)["method"] for line in found.splitlines())


def test_writer_to_a_closed_pipe_ends(pipe):
    reading, writing, ends = pipe
    close(ends, reading)
    writer = LineWriter(writing)
    for _ in range(3):
        writer.send(NOTE)
    writer.close(SECONDS)
    assert writer._backlog == 0 and not writer._thread.is_alive()


# The streams.


def test_standard_streams_are_redirected_and_restored(capfd):
    with redirected_streams() as (reading, writing):
        assert os.read(0, 10) == b""
        print("printed")
        os.write(1, b"written\n")
        os.write(writing, b"said\n")
        assert reading not in (0, 1, 2)
    print("after")
    out, err = capfd.readouterr()
    assert out == "said\nafter\n"
    assert sorted(err.split()) == ["printed", "written"]
    assert sys.stdout is not sys.stderr
    for descriptor in (reading, writing):
        with pytest.raises(OSError):
            os.fstat(descriptor)


# Serving.


class Served:
    """A client of ``serve``, which runs in the test's event loop."""

    def __init__(self, server):
        (self._in, self.input), (self.output, self._out) = os.pipe(), os.pipe()
        self._open = {self._in, self.input, self.output, self._out}
        self._count = 0
        self.task = asyncio.ensure_future(serve(server, self.principal, self._in, self._out))

    async def principal(self):
        return anonymous()

    def start(self, method, **params):
        self._count += 1
        meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
        meta |= {"io.modelcontextprotocol/clientCapabilities": {}}
        message = {"jsonrpc": "2.0", "id": self._count, "method": method}
        self.write(json.dumps(message | {"params": params | {"_meta": meta}}).encode() + b"\n")
        return self._count

    def call(self, name, **arguments):
        return self.start("tools/call", name=name, arguments=arguments)

    def write(self, raw):
        os.write(self.input, raw)

    def close(self, one=None):
        close(self._open, self.input if one is None else one)

    async def ended(self):
        """Return whether ``serve`` ends in time."""
        begun = time.monotonic()
        await asyncio.wait_for(self.task, SECONDS)
        return time.monotonic() - begun < SOON

    def messages(self):
        """Return all messages that were written, after the end."""
        self.close(self._out)
        with open(os.dup(self.output), "rb") as stream:
            return [json.loads(line) for line in stream]

    def ids(self):
        return [message.get("id") for message in self.messages()]

    def dispose(self):
        for one in list(self._open):
            self.close(one)


@pytest.fixture
async def served(server):
    made = []

    def begin():
        made.append(Served(server))
        return made[-1]

    yield begin
    for one in made:
        assert one.task.done()
        one.dispose()


@pytest.fixture
def tools(server):
    """Add tools to the server; the event that is returned ends those that hang."""
    go = threading.Event()

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    async def quick(request: mcp.Request, size: int = 1) -> str:
        return "x" * size

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    async def slow(request: mcp.Request) -> str:
        await asyncio.sleep(0.2)
        return "done"

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    def stuck(request: mcp.Request) -> str:
        go.wait(SECONDS)
        return "late"

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    async def deaf(request: mcp.Request) -> str:
        while not go.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue
        return "late"

    yield go
    go.set()


async def test_requests_before_the_end_of_input_are_answered(served, tools):
    one = served()
    ids = [one.call("slow"), *(one.call("quick") for _ in range(50))]
    one.close()
    assert await one.ended()
    assert sorted(one.ids()) == sorted(ids)


async def test_overlong_message_is_rejected_and_the_next_accepted(served, tools):
    with override_settings(DATA_UPLOAD_MAX_MEMORY_SIZE=1000):
        one = served()
        one.write(b"x" * 5000 + b"\n")
        id = one.call("quick")
        one.close()
        assert await one.ended()
    refused, answer = one.messages()
    assert "too long" in refused["error"]["message"] and answer["id"] == id


@pytest.mark.slow
@pytest.mark.parametrize("way", ["stuck", "deaf"])
async def test_hanging_tools_do_not_delay_the_end(served, tools, way):
    one = served()
    id = one.call("quick")
    for _ in range(5):
        one.call(way)
    one.close()
    assert await one.ended()
    assert one.ids() == [id]
    tools.set()


@pytest.mark.skipif(os.name != "posix", reason="signals are of POSIX")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=str)
async def test_signal_ends_serving_while_the_input_is_open(served, tools, number):
    before = signal.getsignal(number)
    one = served()
    id = one.call("quick")
    listen = one.start("subscriptions/listen", notifications={"toolsListChanged": True})
    found = b""
    while b"acknowledged" not in found or not found.endswith(b"\n"):
        found += await asyncio.to_thread(os.read, one.output, 65_536)
    signal.raise_signal(number)
    assert await one.ended()
    assert {id, listen} <= {
        *one.ids(),
        *(json.loads(line).get("id") for line in found.split(b"\n")[:-1]),
    }
    assert signal.getsignal(number) is before


@pytest.mark.slow
async def test_client_that_leaves_without_reading_is_noticed(served, tools, monkeypatch):
    """Its end of input comes after requests that are not read while the output is full."""
    monkeypatch.setattr(stdio, "MAX_BUFFERED_BYTES", 100_000)
    one = served()
    one.call("quick", size=500_000)
    assert await asyncio.to_thread(os.read, one.output, 1)
    for _ in range(100):
        one.call("quick")
    one.close()
    assert await one.ended()
    one.close(one.output)  # ends the thread that writes
    one._open.discard(one.output)
