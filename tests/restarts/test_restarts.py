"""Processes that are killed, and connections that break: an answer comes all the same, once."""

from __future__ import annotations

import pytest

from django_mcp.calls.recovery import LOST

from .wire import text

pytestmark = pytest.mark.slow


def numbers(*ids: str) -> list[int]:
    return [int(id.split("-")[1]) for id in ids]


def test_after_a_kill_every_call_is_answered(begin, connect):
    first = begin(lease=3)
    client = connect(first.port)
    reading, acting = client.call("look", seconds=2), client.call("act", seconds=60)
    asking = client.call("ask")
    question = next(iter(asking))
    cursors = [reading.primed(), acting.primed(), asking.last]
    first.kill()
    second = begin(lease=3)
    client.port = second.port
    resumed = [client.get(cursor) for cursor in cursors]
    assert [answer.status for answer in resumed] == [200, 200, 200]
    client.answer(question)
    (looked,), (acted,), (asked,) = map(list, resumed)
    assert (text(looked), text(asked)) == ("looked", "answer: True")
    assert text(acted) == LOST and acted["result"]["isError"]
    for answer in resumed:
        assert client.get(answer.last).status == 405


def test_who_takes_over_may_be_killed_too(begin, connect):
    first = begin(lease=3)
    client = connect(first.port)
    cursor = client.call("look", seconds=4).primed()
    first.kill()
    second = begin(lease=3)
    client.port = second.port
    client.get(cursor).cut()
    second.kill()
    third = begin(lease=3)
    client.port = third.port
    (looked,) = client.get(cursor)
    assert text(looked) == "looked"


def test_a_deployment_lets_calls_finish(begin, connect):
    first = begin()
    client = connect(first.port)
    call, news = client.call("look", seconds=1.5), client.get()
    cursor = call.primed()
    assert 1 < first.terminate() < 20
    assert list(call) == [] and call.retried and list(news) == [] and news.retried
    client.port = begin().port
    (looked,) = client.get(cursor)
    assert text(looked) == "looked"


def test_a_connection_that_breaks_is_resumed_exactly(begin, connect):
    client = connect(begin().port)
    answer = client.call("look", seconds=1, steps=30)
    messages = iter(answer)
    for _ in range(7):
        next(messages)
    answer.cut()
    ids, rest = [id for id, _ in answer.events], client.get(answer.last)
    assert text(list(rest)[-1]) == "looked"
    resumed = [id for id, _ in rest.events]
    assert resumed[0].startswith(f"{ids[-1]}-") and numbers(*ids, *resumed[1:]) == list(range(32))


def test_a_stream_that_was_let_go_is_fetched(begin, connect):
    client = connect(begin().port)
    answer = client.call("release", seconds=0.5)
    assert list(answer) == [] and answer.retried
    (released,) = client.get(answer.last)
    assert text(released) == "released"


def test_two_streams_of_news_leave_each_other_alone(begin, connect):
    client = connect(begin().port)
    first, second = client.get(), client.get()
    assert first.primed() != second.primed()
    assert client.call("change").said() == "changed"
    assert next(iter(second))["method"] == "notifications/tools/list_changed"


# Two processes.


def test_any_process_will_do(pair, connect):
    here, there = pair
    client = connect(here)
    # An answer brought to the other one goes on there, on the stream that is read here.
    asking = client.call("ask")
    messages = iter(asking)
    client.answer(next(messages), there)
    assert [text(message) for message in messages] == ["answer: True"]
    # What is cancelled there ends here.
    looking = client.call("look", seconds=60)
    looking.primed()
    client.notify("notifications/cancelled", there, requestId=client.count)
    assert list(looking) == []
    # A stream that began here goes on there, while the call goes on here.
    answer = client.call("look", seconds=2, steps=20)
    next(iter(answer))
    rest = client.get(answer.last, there)
    assert text(list(rest)[-1]) == "looked"
    assert numbers(*(id for id, _ in rest.events)) == list(range(1, 22))
    # News come from one to who listens at the other, and the end of the session is known to both.
    news = client.get(port=there)
    news.primed()
    assert client.call("change").said() == "changed"
    assert next(iter(news))["method"] == "notifications/tools/list_changed"
