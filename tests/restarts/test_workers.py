"""Several worker processes: notifications between them, and a suspended one that loses calls."""

from __future__ import annotations

import json
import statistics
import time

import pytest

from ..redis import BACKENDS, a_redis
from .processes import SERVERS, text

pytestmark = pytest.mark.slow
NEWS = "notifications/tools/list_changed"
SOON = 0.8  # seconds; a poll without a wake-up follows after one


@pytest.fixture
def redis(tmp_path):
    with a_redis(tmp_path) as made:
        yield made


def notification_seconds(client, messages) -> float:
    """Return how many seconds a notification takes from one process to another."""
    began = time.monotonic()
    assert client.call("change").tool_text() == "changed"
    assert next(messages)["method"] == NEWS
    return time.monotonic() - began


def listening(connect, here, there):
    """Return a client of one process, and its notifications at another."""
    client = connect(here.port)
    news = client.get(port=there.port)
    news.primed()
    return client, iter(news)


def median(client, messages, count=7) -> float:
    took = []
    for _ in range(count):
        time.sleep(0.2)
        took.append(notification_seconds(client, messages))
    return statistics.median(took)


@pytest.mark.parametrize("backend", BACKENDS)
def test_notifications_arrive_at_once_with_redis_and_soon_without(begin, connect, redis, backend):
    layers = json.dumps(redis.layers(backend))
    client, messages = listening(connect, begin(LAYERS=layers), begin(LAYERS=layers))
    time.sleep(2)
    assert median(client, messages) < SOON
    redis.kill()
    for _ in range(10):  # nothing is lost or delayed for long
        assert notification_seconds(client, messages) < 2
    redis.start()
    time.sleep(5)
    assert median(client, messages) < SOON


def test_notifications_arrive_soon_without_a_channel_layer(begin, connect):
    client, messages = listening(connect, begin(), begin())
    assert median(client, messages) < SOON


def test_suspended_process_writes_nothing_after_a_takeover(begin, connect):
    first, second = begin(lease=3), begin(lease=3)
    client = connect(first.port)
    answer = client.call("look", seconds=8, steps=16)
    messages = iter(answer)
    for _ in range(3):
        next(messages)
    acting = client.call("act", seconds=8)
    cursor = acting.primed()
    first.suspend()
    rest = client.get(answer.last, second.port)
    rereading = iter(rest)
    next(rereading)  # the other process has taken over the call
    time.sleep(6)
    first.resume()
    assert text(list(rereading)[-1]) == "looked"
    numbers = [int(id.split("-")[1]) for id, _ in [*answer.events, *rest.events[1:]]]
    assert sorted(numbers) == list(range(numbers[0], numbers[0] + len(numbers)))
    (acted,) = client.get(cursor, second.port)
    assert acted["result"]["isError"]
    # It has a new process id now, and continues to serve.
    assert text(client.post(looking(client), first.port).json()) == "looked"
    time.sleep(4)
    assert client.get(rest.last, second.port).status == 405


def looking(client):
    client.count += 1
    params = {"name": "look", "arguments": {"seconds": 0}}
    return {"jsonrpc": "2.0", "id": client.count, "method": "tools/call", "params": params}


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("backend", ["none", *BACKENDS])
def test_process_shuts_down_without_warnings(begin, connect, redis, server, backend):
    layers = "" if backend == "none" else json.dumps(redis.layers(backend))
    process = begin(server=server, LAYERS=layers)
    client = connect(process.port)
    news = client.get()
    news.primed()
    time.sleep(1)
    assert process.terminate() < 8
    output = [line for line in process.output.splitlines() if "WARNING" in line or "rror" in line]
    assert "destroyed" not in process.output and not output, process.output
