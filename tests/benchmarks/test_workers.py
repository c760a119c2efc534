"""So many calls as were asked for, each client at one worker after the other."""

import json
import socket
import threading
import time

import pytest

from benchmarks import workers
from benchmarks.load import Connection
from benchmarks.wires import Wrong
from benchmarks.workers import Client, Load, call_of, make

from .test_wires import answer, plain


class Worker:
    """Answers calls of `add`, and knows which."""

    def __init__(self, wrong=False) -> None:
        self.numbers, self._wrong = [], wrong
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = self._listening.getsockname()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self):
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._converse, args=(connection,)))
            self._threads[-1].start()

    def _converse(self, connection):
        with connection:
            while request := connection.recv(65536):
                self._answer(connection, request)

    def _answer(self, connection, request):
        number = json.loads(request.split(b"\r\n\r\n")[1])["id"]
        self.numbers.append(number)
        connection.sendall(plain(answer(number, str(number + (not self._wrong)))))

    def end(self):
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for thread in self._threads:
            thread.join(10)


@pytest.fixture
def serving():
    found = []

    def start(**how):
        found.append(Worker(**how))
        return found[-1]

    yield start
    for worker in found:
        worker.end()


def client_of(*called):
    client = Client.__new__(Client)
    wires = [(one.address, call_of(one.address, {}, "add")) for one in called]
    client.begin([Connection(*wire) for wire in wires])
    return client


def test_each_client_calls_the_workers_in_turn(serving):
    one, other = serving(), serving()
    clients = [client_of(one, other) for _ in range(3)]
    make(clients, 31)
    for client in clients:
        client.close()
    assert len(one.numbers) + len(other.numbers) == 31 == len({*one.numbers, *other.numbers})
    assert abs(len(one.numbers) - len(other.numbers)) <= 3


def test_calls_come_at_a_rate(serving):
    client, began = client_of(serving()), time.monotonic()
    make([client], 11, rate=50)
    client.close()
    assert 0.2 <= time.monotonic() - began < 2


def test_a_wrong_answer_ends_it(serving):
    client = client_of(serving(wrong=True))
    with pytest.raises(Wrong):
        make([client], 3)
    client.close()


def test_rounds_are_compared_one_by_one():
    load = Load("add", "calls", 1000, 1, [1.0, 2.0, 4.0], [1.1, 2.2, 6.0], [1.0, 3.0, 4.0])
    assert load.is_met and "met: calls: 2.000 s" in str(load) and "1.10 times" in str(load)
    assert not Load("add", "calls", 1000, 1, [1.0], [workers.MOST + 0.1], [1.0]).is_met
