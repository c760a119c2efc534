"""Several connections of one session: each message is sent to one of them, and none is closed."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Thread

import pytest

from .processes import Client, text

pytestmark = pytest.mark.slow
LONG_SECONDS = 10  # in which a rejected client would have reconnected


@pytest.fixture
def client(pair: tuple[int, int], connect: Callable[[int], Client]) -> Client:
    return connect(pair[0])


def test_later_resumption_takes_over_the_stream(client, pair):
    first = client.call("look", seconds=4, steps=40)
    messages = iter(first)
    for _ in range(3):
        next(messages)
    first.retried = False  # the first event contains the retry interval
    second = client.get(first.last, pair[1])
    seen = iter(second)
    for _ in range(3):
        next(seen)
    third = client.get(second.last)
    second.retried = False
    for older in (messages, seen):
        list(older)
    assert not first.retried and not second.retried
    assert text(list(third)[-1]) == "looked"
    numbers = [int(id.split("-")[1]) for id, _ in third.events]
    assert numbers == list(range(numbers[0], 42))


def test_two_standalone_streams_stay_open(client, pair):
    both = [client.get(), client.get(port=pair[1])]
    ended: list[float] = []

    def read(answer):
        list(answer)
        ended.append(time.monotonic())

    readers = [Thread(target=read, args=[answer], daemon=True) for answer in both]
    for reader in readers:
        reader.start()
    time.sleep(LONG_SECONDS)
    assert ended == [] and [len(answer.events) for answer in both] == [1, 1]
    assert client.delete(pair[1]).status == 204
    for reader in readers:
        reader.join(5)
    assert len(ended) == 2


def test_stream_that_ended_with_an_error_cannot_be_resumed(client):
    """Clients that do not accept an error as the response reconnect once and get a 405."""
    params = {"uri": "broken://one", "_meta": {"progressToken": "p"}}
    message = {"jsonrpc": "2.0", "id": 99, "method": "resources/read", "params": params}
    stream = client.post(message)
    *_, last = stream
    assert last["id"] == 99 and last["error"]["code"] == -32603
    again = client.get(stream.last)
    assert again.status == 405 and "event-stream" not in again.headers["content-type"]
