"""Calls are made and counted on real sockets, and a wrong answer ends it all."""

import socket
import threading
from contextlib import suppress

import pytest

from benchmarks.load import load
from benchmarks.wires import NUMBER, Wrong, stateless

from .test_wires import answer, plain


@pytest.fixture
def serve():
    """A server that answers every request by what ``respond`` makes of its number."""
    listening = socket.create_server(("127.0.0.1", 0))
    threads = []

    def converse(connection, respond):
        with connection, suppress(ConnectionError):  # who has seen enough just leaves
            while request := connection.recv(65536):
                number = int(request.split(b'"id":')[1].split(b",")[0])
                connection.sendall(respond(number))

    def accept(respond):
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=converse, args=(connection, respond)))
            threads[-1].start()

    def start(respond):
        threads.append(threading.Thread(target=accept, args=(respond,)))
        threads[0].start()
        return listening.getsockname()

    yield start
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    for thread in threads:
        thread.join(10)


def test_what_is_answered_rightly_is_counted(serve):
    address = serve(lambda number: plain(answer(number, str(number + 1))))
    wire = stateless(address, "add", {"a": NUMBER, "b": 1})
    came = load(address, wire, 0.2, connections=3)
    assert len(came.times) > 10 and 0.2 <= came.seconds < 2
    assert 0 < came.percentile(50) <= came.percentile(99)
    assert came.rate == len(came.times) / came.seconds


REFUSED = b"HTTP/1.1 500 no\r\ncontent-length: 0\r\n\r\n"


@pytest.mark.parametrize("respond", [lambda n: plain(answer(n, "no")), lambda n: REFUSED])
def test_a_wrong_answer_ends_it(serve, respond):
    address = serve(respond)
    wire = stateless(address, "add", {"a": NUMBER, "b": 1})
    with pytest.raises(Wrong):
        load(address, wire, 5, connections=2)
