"""A reader has each event of a stream, however it was cut into chunks and packets."""

import socket
import threading

import pytest

from benchmarks.following import Reader
from benchmarks.wires import Wrong

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
STREAM = b'id: 7-0\ndata: \n\n:\n\nid: 7-1\ndata: {"a": 1}\n\nretry: 500\nid: 7-2\ndata: b\n\n'


@pytest.fixture
def serve():
    """A server that answers one request by these bytes, in pieces of this size."""
    listening = socket.create_server(("127.0.0.1", 0))
    listening.settimeout(10)
    asked, threads = [], []

    def answer(pieces):
        connection, _ = listening.accept()
        with connection:
            asked.append(connection.recv(65536))
            for piece in pieces:
                connection.sendall(piece)

    def start(whole, size):
        pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
        threads.append(threading.Thread(target=answer, args=(pieces,)))
        threads[-1].start()
        return listening.getsockname(), asked

    yield start
    for thread in threads:
        thread.join(10)
    listening.close()


def chunked(body, size):
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in [*parts, b""])


@pytest.mark.parametrize(("chunk", "piece"), [(1, 7), (11, 1), (64, 3), (1000, 1000)])
def test_what_says_something_comes_in_order_with_its_id(serve, chunk, piece):
    address, asked = serve(HEAD + chunked(STREAM, chunk), piece)
    came = list(Reader(address, {"Last-Event-ID": "7-0"}))
    assert [(one.id, one.data) for one in came] == [("7-1", '{"a": 1}'), ("7-2", "b")]
    assert came[0].at <= came[1].at
    assert asked[0].startswith(b"GET /mcp ") and b"Last-Event-ID: 7-0\r\n" in asked[0]


def test_a_call_is_posted(serve):
    address, asked = serve(HEAD + chunked(b"", 1), 1000)
    assert list(Reader(address, {}, {"id": 1})) == []
    assert asked[0].startswith(b"POST /mcp ") and asked[0].endswith(b'\r\n\r\n{"id": 1}')


@pytest.mark.parametrize(
    "answer",
    [b"HTTP/1.1 404 No\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{}"],
)
def test_what_is_no_stream_is_wrong(serve, answer):
    address, _ = serve(answer, 1000)
    with pytest.raises(Wrong):
        Reader(address, {})


def test_a_connection_that_breaks_is_wrong(serve):
    address, _ = serve(HEAD + chunked(STREAM, 10)[:-10], 1000)
    with pytest.raises(Wrong, match="closed"):
        list(Reader(address, {}))
