"""Several processes of one project: they hear each other, and one that stands still is no more."""

from __future__ import annotations

import json
import statistics
import time

import pytest

from ..redis import BACKENDS, a_redis
from .wire import SERVERS, text

pytestmark = pytest.mark.slow
NEWS = "notifications/tools/list_changed"
SOON = 0.8  # seconds; a look that nobody rang for comes after one


@pytest.fixture
def redis(tmp_path):
    with a_redis(tmp_path) as made:
        yield made


def heard_after(client, messages) -> float:
    """The seconds until the news of a change, that is made at one process, are read at another."""
    began = time.monotonic()
    assert client.call("change").said() == "changed"
    assert next(messages)["method"] == NEWS
    return time.monotonic() - began


def listening(connect, here, there):
    """A client that talks to one process, and the news that it reads at another."""
    client = connect(here.port)
    news = client.get(port=there.port)
    news.primed()
    return client, iter(news)


def median(client, messages, count=7) -> float:
    took = []
    for _ in range(count):
        time.sleep(0.2)
        took.append(heard_after(client, messages))
    return statistics.median(took)


@pytest.mark.parametrize("backend", BACKENDS)
def test_with_redis_the_news_are_there_at_once_and_without_it_soon(begin, connect, redis, backend):
    layers = json.dumps(redis.layers(backend))
    client, messages = listening(connect, begin(LAYERS=layers), begin(LAYERS=layers))
    time.sleep(2)
    assert median(client, messages) < SOON
    redis.kill()
    for _ in range(10):  # nothing is lost, and nothing waits for it
        assert heard_after(client, messages) < 2
    redis.start()
    time.sleep(5)
    assert median(client, messages) < SOON


def test_without_a_layer_the_news_are_there_soon(begin, connect):
    client, messages = listening(connect, begin(), begin())
    assert median(client, messages) < SOON


def test_who_stood_still_says_nothing_more(begin, connect):
    first, second = begin(lease=3), begin(lease=3)
    client = connect(first.port)
    answer = client.call("look", seconds=8, steps=16)
    messages = iter(answer)
    for _ in range(3):
        next(messages)
    acting = client.call("act", seconds=8)
    cursor = acting.primed()
    first.stop()
    rest = client.get(answer.last, second.port)
    rereading = iter(rest)
    next(rereading)  # it was taken up by the other one
    time.sleep(6)
    first.go_on()
    assert text(list(rereading)[-1]) == "looked"
    numbers = [int(id.split("-")[1]) for id, _ in [*answer.events, *rest.events[1:]]]
    assert sorted(numbers) == list(range(numbers[0], numbers[0] + len(numbers)))
    (acted,) = client.get(cursor, second.port)
    assert acted["result"]["isError"]
    # It has another name now, and works on.
    assert text(client.post(looking(client), first.port).json()) == "looked"
    time.sleep(4)
    assert client.get(rest.last, second.port).status == 405


def looking(client):
    client.count += 1
    params = {"name": "look", "arguments": {"seconds": 0}}
    return {"jsonrpc": "2.0", "id": client.count, "method": "tools/call", "params": params}


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("backend", ["none", *BACKENDS])
def test_a_process_ends_in_silence(begin, connect, redis, server, backend):
    layers = "" if backend == "none" else json.dumps(redis.layers(backend))
    process = begin(server=server, LAYERS=layers)
    client = connect(process.port)
    news = client.get()
    news.primed()
    time.sleep(1)
    assert process.terminate() < 8
    words = [line for line in process.words.splitlines() if "WARNING" in line or "rror" in line]
    assert "destroyed" not in process.words and not words, process.words
