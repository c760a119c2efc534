"""Several hosts: streams resume at another host, and an isolated host repeats nothing."""

from __future__ import annotations

import time

import pytest

from django_mcp.calls.recovery import UNDONE
from tests.restarts.processes import text

pytestmark = pytest.mark.slow
WITHOUT_REDIS = {"REDIS_URL": ""}  # settings.py treats it as missing


def numbers(*answers) -> list[int]:
    return [int(id.split("-")[1]) for answer in answers for id, data in answer.events if data]


@pytest.mark.parametrize("more", [{}, WITHOUT_REDIS], ids=["redis", "postgres"])
def test_stream_resumes_at_another_host(site, connect, more):
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


def test_any_worker_behind_nginx_can_resume_a_stream(site, connect):
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


def test_health_endpoints_are_not_public(site):
    site.begin()
    assert site.asked("web1", "live") == (200, "alive")
    assert site.asked("front", "ready")[0] == 404


def test_host_isolated_for_longer_than_its_lease(site, connect, hosts):
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


def test_workers_recover_soon_after_a_database_outage(site, connect, data):
    """Whatever the connection pool did meanwhile."""
    site.begin(**WITHOUT_REDIS)
    assert connect(site.at("front")).call("find", name="nobody").tool_text() == "0"
    data("stop")
    try:
        site.until(lambda: site.asked("web1", "ready")[0] == 503)
        time.sleep(OUTAGE)  # only attempts to connect happen
    finally:
        data("start")
    began = time.monotonic()
    for name in ("web1", "web2"):
        site.until(lambda name=name: site.asked(name, "ready") == (200, "ready"))
    assert time.monotonic() - began < OUTAGE / 2
    assert connect(site.at("front")).call("find", name="nobody").tool_text() == "0"


OUTAGE = 34  # seconds; after them the pool alone would retry only half a minute later
