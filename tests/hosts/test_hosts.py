"""Several hosts: a stream goes on at another, and a host that is cut off does nothing twice."""

from __future__ import annotations

import time

import pytest

from django_mcp.calls.recovery import UNDONE
from tests.restarts.processes import text

pytestmark = pytest.mark.slow
BY_POSTGRES = {"REDIS_URL": ""}  # which settings.py reads as none


def numbers(*answers) -> list[int]:
    return [int(id.split("-")[1]) for answer in answers for id, data in answer.events if data]


@pytest.mark.parametrize("more", [{}, BY_POSTGRES], ids=["redis", "postgres"])
def test_a_stream_begun_at_one_host_goes_on_at_the_other(site, connect, more):
    site.begin(**more)
    client = connect(site.at("web1"))
    answer = client.call("look", seconds=2, steps=20)
    messages = iter(answer)
    for _ in range(5):
        next(messages)
    answer.cut()
    rest = client.get(answer.last, site.at("web2"))
    assert text(list(rest)[-1]) == "looked"
    assert numbers(answer, rest) == list(range(1, 22))  # twenty times, and the answer


def test_whichever_worker_nginx_chooses_will_do(site, connect):
    site.begin()
    client = connect(site.at("front"))
    for _ in range(6):  # in turn
        answer = client.call("look", seconds=1, steps=10)
        next(iter(answer))
        answer.cut()
        assert text(list(client.get(answer.last))[-1]) == "looked"
    asking = client.call("ask")
    messages = iter(asking)
    client.answer(next(messages))
    assert [text(message) for message in messages] == ["answer: True"]


def test_health_is_not_for_everybody(site):
    site.begin()
    assert site.asked("web1", "live") == (200, "alive")
    assert site.asked("front", "ready")[0] == 404


def test_a_host_that_is_cut_off_for_longer_than_a_lease(site, connect, hosts):
    site.begin()
    client = connect(site.at("web1"))
    looking = client.call("look", seconds=8, steps=16)
    first = iter(looking)
    next(first)
    acting, asking = client.call("act", seconds=60), client.call("ask")
    writing = client.call("pure", name="once")
    question = next(iter(asking))
    assert next(iter(writing))["method"] == "notifications/progress"
    cursors = [acting.primed(), asking.last, writing.last]
    hosts.cut("web1")
    # The other one serves, through nginx, though half of what nginx tries leads nowhere.
    client.port = site.at("front")
    began = time.monotonic()
    rest = client.get(looking.last)
    assert text(list(rest)[-1]) == "looked"
    acted, asked, written = (client.get(cursor) for cursor in cursors)
    client.answer(question)
    (lost,) = acted
    assert lost["result"]["isError"] and text(lost) == UNDONE
    assert text(list(asked)[-1]) == "answer: True"
    # What it had begun to write is rolled back when PostgreSQL misses it, and written once.
    assert text(list(written)[-1]) == "written"
    assert client.call("find", name="once").tool_text() == "1"
    seen = numbers(looking, rest)
    assert seen == sorted(set(seen)), "an event came twice, or out of order"
    # It knows by itself that it is not to be sent anybody, and that nothing is better if it dies.
    assert site.asked("web1", "live") == (200, "alive")
    assert site.asked("web1", "ready")[0] == 503
    assert time.monotonic() - began > 3
    hosts.mend("web1")
    site.until(lambda: site.asked("web1", "ready") == (200, "ready"))
    assert client.call("find", name="once").tool_text() == "1"
    back = client.post(
        {"jsonrpc": "2.0", "id": 99, "method": "tools/call",
         "params": {"name": "look", "arguments": {"seconds": 0}}},
        site.at("web1"),
    )  # fmt: skip
    assert back.tool_text() == "looked"
    assert client.get(rest.last, site.at("web1")).status == 405


def test_workers_serve_soon_after_an_outage_of_the_database(site, connect, data):
    """Whatever the pool of connections did meanwhile."""
    site.begin(**BY_POSTGRES)
    assert connect(site.at("front")).call("find", name="nobody").tool_text() == "0"
    data("stop")
    try:
        site.until(lambda: site.asked("web1", "ready")[0] == 503)
        time.sleep(OUTAGE)  # in which nothing happens but attempts to connect
    finally:
        data("start")
    began = time.monotonic()
    for name in ("web1", "web2"):
        site.until(lambda name=name: site.asked(name, "ready") == (200, "ready"))
    assert time.monotonic() - began < OUTAGE / 2
    assert connect(site.at("front")).call("find", name="nobody").tool_text() == "0"


OUTAGE = 34  # seconds: left to itself the pool would try next about half a minute later
