"""Killed processes and broken connections: every call gets exactly one response."""

from __future__ import annotations

import pytest

from django_mcp.calls.recovery import LOST

from .processes import text

pytestmark = pytest.mark.slow


def numbers(*ids: str) -> list[int]:
    return [int(id.split("-")[1]) for id in ids]


def test_every_call_is_answered_after_a_kill(begin, connect):
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


def test_call_is_answered_after_a_second_kill(begin, connect):
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


def test_terminated_process_lets_calls_finish(begin, connect):
    first = begin()
    client = connect(first.port)
    call, news = client.call("look", seconds=1.5), client.get()
    cursor = call.primed()
    assert 1 < first.terminate() < 20
    assert list(call) == [] and call.retried and list(news) == [] and news.retried
    client.port = begin().port
    (looked,) = client.get(cursor)
    assert text(looked) == "looked"


def test_broken_connection_is_resumed_without_loss(begin, connect):
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


def test_released_stream_is_resumed(begin, connect):
    client = connect(begin().port)
    answer = client.call("release", seconds=0.5)
    assert list(answer) == [] and answer.retried
    (released,) = client.get(answer.last)
    assert text(released) == "released"


def test_notification_is_sent_on_the_latest_of_two_streams(begin, connect):
    client = connect(begin().port)
    first, second = client.get(), client.get()
    assert first.primed() != second.primed()
    assert client.call("change").tool_text() == "changed"
    assert next(iter(second))["method"] == "notifications/tools/list_changed"


# Two processes.


def test_session_can_use_any_process(pair, connect):
    here, there = pair
    client = connect(here)
    # An answer posted to the other process resumes the call there; its stream is read here.
    asking = client.call("ask")
    messages = iter(asking)
    client.answer(next(messages), there)
    assert [text(message) for message in messages] == ["answer: True"]
    # A call that is cancelled there ends here.
    looking = client.call("look", seconds=60)
    looking.primed()
    client.notify("notifications/cancelled", there, requestId=client.count)
    assert list(looking) == []
    # A stream can be resumed there while its call runs here.
    answer = client.call("look", seconds=2, steps=20)
    next(iter(answer))
    rest = client.get(answer.last, there)
    assert text(list(rest)[-1]) == "looked"
    assert numbers(*(id for id, _ in rest.events)) == list(range(1, 22))
    # Notifications reach streams of the other process; both know when the session ends.
    news = client.get(port=there)
    news.primed()
    assert client.call("change").tool_text() == "changed"
    assert next(iter(news))["method"] == "notifications/tools/list_changed"
