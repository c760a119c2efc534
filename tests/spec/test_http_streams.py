"""Streams of sessions over HTTP: what they carry, how they break and go on, and how they end.

The transports pages of all revisions with a handshake; the newest has `test_http.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import django_mcp as mcp
from django_mcp.protocol.revisions import REVISIONS
from django_mcp.transports.http.shutdown import draining
from tests.http import ClientExchange, HttpClient, response

pytestmark = pytest.mark.django_db
PRIMING = [name for name, revision in REVISIONS.items() if revision.priming]
OTHERS = [name for name, revision in REVISIONS.items() if revision.handshake][: -len(PRIMING)]
CANCELLED = "notifications/cancelled"
CHANGED = "notifications/tools/list_changed"
UPDATED = "notifications/resources/updated"


@pytest.fixture
def stage(server: Any) -> SimpleNamespace:
    """A server whose tools say something, wait for `go`, ask or let go; and what became of them."""
    state = SimpleNamespace(go=False, done=[], server=server)

    async def gone_on() -> None:
        while not state.go:  # noqa: ASYNC110 - a test sets it
            await asyncio.sleep(0.001)

    @server.tool(permission=mcp.PUBLIC)
    async def recite(request: mcp.Request, name: str, steps: int = 2) -> str:
        for step in range(steps):
            await request.aprogress(step + 1, steps)
            await request.alog("info", name)
        return name

    @server.tool(permission=mcp.PUBLIC)
    async def pause(request: mcp.Request, name: str = "pause") -> str:
        await request.alog("info", f"{name} begins")
        await gone_on()
        await request.alog("info", f"{name} ends")
        state.done.append(name)
        return name

    @server.tool(permission=mcp.PUBLIC)
    async def vanish(request: mcp.Request) -> str:
        await request.arelease_stream()
        await gone_on()
        return "back again"

    @server.tool(permission=mcp.PUBLIC)
    async def consult(request: mcp.Request) -> str:
        await request.aprogress(1, 4)
        first = await request.asample("one?", max_tokens=5)
        await request.aprogress(2, 4)
        second = await request.asample("two?", max_tokens=5)
        await request.aprogress(3, 4)
        return f"{first.text} {second.text}"

    @server.tool(permission=mcp.PUBLIC)
    async def announce(request: mcp.Request, what: str) -> str:
        if what == "tools":
            mcp.notify_list_changed("tools", server=server)
        else:
            mcp.notify_changed(what, server=server)
        return "announced"

    @server.resource("sheet://{name}", permission=mcp.PUBLIC)
    def sheet(request: mcp.Request, name: str) -> str:
        return name

    return state


@pytest.fixture
def join(http: Callable[..., HttpClient], stage: SimpleNamespace) -> Callable[..., HttpClient]:
    """Makes clients of that server."""
    return lambda revision, **options: http(revision=revision, server=stage.server, **options)


def start(client: HttpClient, tool: str, token: Any = None, **arguments: Any) -> ClientExchange:
    """Begin a call."""
    meta = {} if token is None else {"_meta": {"progressToken": token}}
    return client.start("tools/call", name=tool, arguments=arguments, **meta)


def kinds(exchange: ClientExchange) -> list[str]:
    """Of each message, its method, or "response"."""
    return [str(message.get("method", "response")) for message in exchange.messages]


def logged(exchange: ClientExchange) -> list[Any]:
    method = "notifications/message"
    return [one["params"]["data"] for one in exchange.messages if one.get("method") == method]


def ids(exchange: ClientExchange) -> list[str]:
    """The ids of its events, but for the empty ones."""
    return [str(event.id) for event in exchange.sse.found if event.data]


def cancel(client: HttpClient, id: Any) -> None:
    client.notify(CANCELLED, requestId=id)


# What a stream carries.


def test_request_is_answered_as_json_or_as_a_stream(join, handshake):
    client = join(handshake)
    short, long = start(client, "announce", what="tools").wait(), start(client, "recite", name="x")
    assert (short.status, short.headers["content-type"]) == (200, "application/json")
    assert (long.wait().status, long.headers["content-type"]) == (200, "text/event-stream")
    assert long.headers["x-accel-buffering"] == "no"


def test_stream_contains_notifications_then_the_response(join, handshake):
    exchange = start(join(handshake), "recite", token="t", name="x").wait()
    said = ["notifications/progress", "notifications/message"] * 2
    assert kinds(exchange) == [*said, "response"] and exchange.ended
    assert response(exchange)["content"][0]["text"] == "x"


def test_stream_stays_open_until_the_response(join, handshake, stage):
    client = join(handshake)
    exchange = start(client, "pause")
    exchange.until(lambda: exchange.messages)
    client.sleep(0.2)
    assert not exchange.ended
    stage.go = True
    assert kinds(exchange.wait())[-1] == "response"


def test_stream_of_a_batch_contains_a_response_for_each_request(join, stage):
    client = join("2025-03-26")
    calls = [
        client.message("tools/call", {"name": tool, "arguments": {"name": tool}})
        for tool in ("pause", "recite", "pause")
    ]
    exchange = client.post([*calls, client.message("ping", {})])
    exchange.until(lambda: len(logged(exchange)) == 4)
    client.sleep(0.1)
    assert not exchange.ended
    stage.go = True
    answered = [one["id"] for one in exchange.wait().messages if "result" in one]
    assert sorted(answered) == [call["id"] for call in calls] + [calls[-1]["id"] + 1]
    assert "result" in exchange.messages[-1]


def test_stream_contains_only_messages_of_its_request(join, handshake, stage):
    client = join(handshake)
    first, second = start(client, "pause", name="first"), start(client, "pause", name="second")
    first.until(lambda: first.messages and second.messages)
    third = start(client, "recite", token="third", name="third").wait()
    stage.go = True
    assert logged(first.wait()) == ["first begins", "first ends"]
    assert logged(second.wait()) == ["second begins", "second ends"]
    assert logged(third) == ["third", "third"]
    assert [response(exchange)["content"][0]["text"] for exchange in (first, second, third)] == [
        "first", "second", "third",
    ]  # fmt: skip


def test_question_is_sent_on_the_stream_of_its_call(join, handshake, stage):
    client = join(handshake)
    listening, other = client.listen(), start(client, "pause")
    exchange = start(client, "consult")
    exchange.until(lambda: client.asked)
    client.sleep(0.1)
    assert kinds(exchange) == ["sampling/createMessage"]
    assert listening.messages == [] and kinds(other) == ["notifications/message"]
    reply(client, client.asked[0], "yes")
    exchange.until(lambda: len(client.asked) == 2)
    reply(client, client.asked[1], "no")
    assert response(exchange.wait())["content"][0]["text"] == "yes no"
    assert listening.messages == []


def reply(client: HttpClient, question: Any, text: str) -> ClientExchange:
    result = {"role": "assistant", "model": "m", "content": {"type": "text", "text": text}}
    exchange = client.post({"jsonrpc": "2.0", "id": question["id"], "result": result}).wait()
    assert (exchange.status, exchange.body) == (202, b"")
    return exchange


def test_answer_counts_once_and_only_in_its_session(join, handshake):
    client, other = join(handshake), join(handshake)
    exchange = start(client, "consult")
    exchange.until(lambda: client.asked)
    reply(other, client.asked[0], "not mine")
    client.sleep(0.1)
    assert len(client.asked) == 1
    reply(client, client.asked[0], "mine")
    reply(client, client.asked[0], "again")
    exchange.until(lambda: len(client.asked) == 2)
    reply(client, client.asked[1], "too")
    assert response(exchange.wait())["content"][0]["text"] == "mine too"


# A connection that breaks.


def test_lost_connection_does_not_cancel_the_call(join, handshake, stage):
    client = join(handshake)
    exchange = start(client, "pause")
    exchange.until(lambda: exchange.messages)
    exchange.leave()
    client.sleep(0.05)
    stage.go = True
    exchange.until(lambda: stage.done)


def test_connection_lost_before_any_response_does_not_cancel_the_call(join, handshake, stage):
    @stage.server.tool(permission=mcp.PUBLIC)
    async def quiet(request: mcp.Request) -> str:
        await asyncio.sleep(0.1)
        stage.done.append("quiet")
        return "quiet"

    exchange = start(join(handshake), "quiet")
    exchange.site.settle()
    exchange.leave()
    exchange.until(lambda: stage.done)


def test_broken_stream_is_resumed_after_the_last_event(join, handshake, stage):
    client = join(handshake)
    exchange = start(client, "pause")
    exchange.until(lambda: exchange.messages)
    exchange.leave()
    rest = client.listen(ids(exchange)[0])
    client.sleep(0.05)
    stage.go = True
    assert kinds(rest.wait()) == ["notifications/message", "response"]
    assert logged(rest) == ["pause ends"] and not set(ids(rest)) & set(ids(exchange))


def test_stream_is_resumed_after_any_event(join, handshake):
    client = join(handshake)
    exchange = start(client, "recite", token=7, name="x", steps=3).wait()
    for place, cursor in enumerate(ids(exchange)[:-1], 1):
        assert client.listen(cursor).wait().messages == exchange.messages[place:]


def test_finished_stream_cannot_be_resumed(join, handshake):
    client = join(handshake)
    exchange = start(client, "recite", name="x").wait()
    assert client.listen(ids(exchange)[-1]).wait().status == 405


def test_event_ids_are_unique_in_the_session_and_name_their_stream(join, handshake, stage):
    client = join(handshake)
    listening = client.listen()
    exchanges = [start(client, "recite", name=str(n)).wait() for n in range(3)]
    start(client, "announce", what="tools").wait()
    listening.until(lambda: listening.messages)
    found = [id for exchange in (*exchanges, listening) for id in ids(exchange)]
    assert len(set(found)) == len(found) == 10
    streams = [{id.split("-")[0] for id in ids(exchange)} for exchange in (*exchanges, listening)]
    assert [len(stream) for stream in streams] == [1] * 4 and len(set.union(*streams)) == 4


def test_resumed_stream_contains_nothing_of_another_stream(join, handshake, stage):
    client = join(handshake)
    first = start(client, "recite", name="first").wait()
    second = start(client, "pause", name="second")
    second.until(lambda: second.messages)
    listening = client.listen()
    start(client, "announce", what="tools").wait()
    listening.until(lambda: listening.messages)
    again = client.listen(ids(first)[0]).wait()
    assert logged(again) == ["first"] and kinds(again)[-1] == "response"
    second.leave()
    stage.go = True
    assert logged(client.listen(ids(second)[0]).wait()) == ["second ends"]


@pytest.mark.parametrize(
    "cursor", ["{s}-9", "{s}", "x", "0-0", "999999-0", "-{s}-1", "{s}-01", "é"]
)
def test_unknown_event_id_gets_400(join, handshake, cursor):
    client = join(handshake)
    stream = ids(start(client, "recite", name="x").wait())[0].split("-")[0]
    assert client.listen(cursor.format(s=stream)).wait().status == 400


def test_event_id_of_another_session_gets_400(join, handshake, stage):
    client, other = join(handshake), join(handshake)
    for exchange in (start(client, "recite", name="x").wait(), start(client, "pause")):
        exchange.until(lambda exchange=exchange: exchange.messages)
        assert other.listen(ids(exchange)[0]).wait().status == 400
    stage.go = True


# Priming and polling.


@pytest.mark.parametrize("revision", PRIMING)
def test_stream_begins_with_an_empty_event_that_has_an_id(join, revision):
    client = join(revision)
    for exchange in (client.listen(), start(client, "recite", name="x")):
        first = exchange.until(lambda exchange=exchange: exchange.sse.found)[0]
        assert first.data == "" and first.id and first.retry
    exchange.wait()
    again = client.listen(first.id).wait()
    assert again.sse.found[0].data == "" and again.messages == exchange.messages


@pytest.mark.parametrize("revision", PRIMING)
def test_no_event_id_is_sent_twice(join, revision, stage):
    """ "It MUST be globally unique across all streams within that session": empty events, too."""
    client = join(revision)
    exchange = client.start("tools/call", id="long", name="vanish", arguments={}).wait()
    found = [event.id for event in exchange.sse.found]
    for _ in range(3):  # connections that break before anything is said
        exchange = client.listen(found[-1])
        exchange.until(lambda exchange=exchange: exchange.sse.found)
        exchange.leave()
        found += [event.id for event in exchange.sse.found]
    news = client.listen()
    news.until(lambda: news.sse.found)
    again = client.listen(news.sse.found[-1].id)
    again.until(lambda: again.sse.found)
    stage.go = True
    last = client.listen(found[-1]).wait()
    assert kinds(last) == ["response"]
    found += [event.id for exchange in (news, again, last) for event in exchange.sse.found]
    assert None not in found and len(found) == len(set(found)) >= 8


@pytest.mark.parametrize("revision", OTHERS)
def test_older_revisions_get_no_empty_events(join, revision):
    client = join(revision)
    listening, exchange = client.listen(), start(client, "recite", name="x").wait()
    rest = client.listen(ids(exchange)[0]).wait()
    client.sleep(0.05)
    assert listening.status == 200 and listening.sse.found == []
    assert all(
        event.data and event.retry is None for one in (exchange, rest) for event in one.sse.found
    )


@pytest.mark.parametrize("revision", PRIMING)
def test_released_stream_ends_with_an_id_and_retry(join, revision, stage):
    client = join(revision)
    exchange = start(client, "vanish").wait()
    last = exchange.sse.found[-1]
    assert exchange.messages == [] and last.retry and last.id
    rest = client.listen(last.id)
    client.sleep(0.05)
    assert not rest.ended
    stage.go = True
    assert kinds(rest.wait()) == ["response"]


@pytest.mark.parametrize("revision", OTHERS)
def test_streams_of_older_revisions_are_not_released(join, revision, stage):
    client = join(revision)
    exchange = start(client, "vanish")
    client.sleep(0.1)
    stage.go = True
    assert kinds(exchange.wait()) == ["response"]


@pytest.mark.parametrize("revision", OTHERS)
def test_stopping_process_does_not_release_streams_of_older_revisions(join, revision, stage):
    @stage.server.tool(permission=mcp.PUBLIC)
    async def mumble(request: mcp.Request) -> str:
        while not stage.go:  # noqa: ASYNC110 - a test sets it
            await asyncio.sleep(0.001)
        await request.alog("info", "late")
        return "mumbled"

    client = join(revision)
    exchange = start(client, "mumble")
    client.sleep(0.05)
    client.run(about_to_end())
    stage.go = True
    assert kinds(exchange.wait()) == ["notifications/message", "response"]


async def about_to_end() -> None:
    draining().is_shutting_down = True


# The stream of a session.


def test_get_opens_the_stream_of_the_session(join, handshake):
    exchange = join(handshake).listen()
    exchange.until(lambda: exchange.status)
    assert (exchange.status, exchange.headers["content-type"]) == (200, "text/event-stream")
    assert exchange.headers["x-accel-buffering"] == "no" and not exchange.ended


def test_session_stream_contains_no_messages_of_calls(join, handshake, stage):
    client = join(handshake)
    listening = client.listen()
    start(client, "recite", token=1, name="x").wait()
    exchange = start(client, "pause")
    exchange.until(lambda: exchange.messages)
    client.request("ping")
    exchange.leave()
    stage.go = True
    exchange.until(lambda: stage.done)
    start(client, "announce", what="tools").wait()
    listening.until(lambda: listening.messages)
    assert kinds(listening) == [CHANGED]


def test_notification_is_sent_on_one_stream_only(join, handshake, stage):
    client = join(handshake)
    exchanges = [client.listen(), start(client, "pause"), client.listen(), start(client, "pause")]
    client.request("resources/subscribe", uri="sheet://a")
    client.sleep(0.05)
    start(client, "announce", what="tools").wait()
    start(client, "announce", what="sheet://a").wait()
    client.until(lambda: len(client.notes) >= 4)
    client.sleep(0.1)
    told = [kind for exchange in exchanges for kind in kinds(exchange)]
    assert (told.count(CHANGED), told.count(UPDATED)) == (1, 1)


def test_updates_are_sent_until_unsubscribed(join, handshake):
    client, other = join(handshake), join(handshake)
    listening, elsewhere = client.listen(), other.listen()
    client.request("resources/subscribe", uri="sheet://a")
    start(other, "announce", what="sheet://b").wait()
    start(other, "announce", what="sheet://a").wait()
    listening.until(lambda: listening.messages)
    client.request("resources/unsubscribe", uri="sheet://a")
    start(other, "announce", what="sheet://a").wait()
    client.sleep(0.1)
    assert [one["params"]["uri"] for one in listening.messages] == ["sheet://a"]
    assert elsewhere.messages == []


def test_notifications_are_delivered_to_the_next_session_stream(join, handshake):
    client = join(handshake)
    client.request("resources/subscribe", uri="sheet://a")
    for what in ("tools", "sheet://a", "tools"):
        start(client, "announce", what=what).wait()
    client.sleep(0.1)
    listening = client.listen()
    listening.until(lambda: len(listening.messages) >= 2)
    client.sleep(0.1)
    assert sorted(kinds(listening)) == [UPDATED, CHANGED]


def test_client_without_last_event_id_gets_missed_notifications(join, handshake):
    """The client received no event, so it has no id to resume from."""
    client = join(handshake)
    first = client.listen()
    first.until(lambda: first.status)
    first.leave()
    client.sleep(0.05)
    start(client, "announce", what="tools").wait()
    client.sleep(0.05)
    second = client.listen()
    second.until(lambda: second.messages)
    client.sleep(0.05)
    assert (kinds(first), kinds(second)) == ([], [CHANGED])


def test_notification_is_sent_to_the_stream_that_is_still_open(join, handshake):
    client = join(handshake)
    first, second = client.listen(), client.listen()
    client.sleep(0.05)
    second.leave()
    client.sleep(0.05)
    start(client, "announce", what="tools").wait()
    first.until(lambda: first.messages)
    client.sleep(0.05)
    again = client.listen()
    again.until(lambda: again.status)
    client.sleep(0.05)
    assert [kinds(exchange) for exchange in (first, second, again)] == [[CHANGED], [], []]


# Beside streams: what belongs to one session alone.


def test_log_level_applies_to_one_session(join, handshake):
    client, other = join(handshake), join(handshake)
    assert client.request("logging/setLevel", level="error") == {}
    assert start(client, "recite", name="x").wait().headers["content-type"] == "application/json"
    assert logged(start(other, "recite", name="x").wait()) == ["x", "x"]
    client.request("logging/setLevel", level="debug")
    assert logged(start(client, "recite", name="x").wait()) == ["x", "x"]


def test_cancellation_ends_the_stream_without_a_response(join, handshake, stage):
    client, other = join(handshake), join(handshake)
    exchange = client.start("tools/call", id="same", name="pause", arguments={})
    theirs = other.start("tools/call", id="same", name="pause", arguments={})
    for one in (exchange, theirs):
        one.until(lambda one=one: one.messages)
    cancel(client, "same")
    assert kinds(exchange.wait()) == ["notifications/message"]
    other.sleep(0.05)
    assert not theirs.ended
    stage.go = True
    assert kinds(theirs.wait())[-1] == "response" and stage.done == ["pause"]


@pytest.mark.parametrize("id", ["unknown", 4711, None, 1.5, [], True])
def test_cancellation_of_an_unknown_request_is_ignored(join, handshake, id):
    client = join(handshake)
    cancel(client, id)
    assert client.text("recite", name="x") == "x"


def test_cancellation_of_an_unknown_id_does_not_stop_a_later_call(join, handshake, stage):
    client = join(handshake)
    cancel(client, "later")
    exchange = client.start("tools/call", id="later", name="recite", arguments={"name": "x"})
    assert (
        kinds(exchange.wait())[-1] == "response" and response(exchange)["content"][0]["text"] == "x"
    )
    # A second cancel of the id comes while its call runs, and stops it.
    cancel(client, "again")
    exchange = client.start("tools/call", id="again", name="pause", arguments={})
    exchange.until(lambda: exchange.messages)
    cancel(client, "again")
    assert kinds(exchange.wait()) == ["notifications/message"]


def test_cancellation_of_a_call_cancels_its_question(join, handshake):
    """The client is notified before the stream ends."""
    client = join(handshake)
    exchange = client.start("tools/call", id="asks", name="consult", arguments={})
    exchange.until(lambda: client.asked)
    cancel(client, "asks")
    exchange.wait()
    assert kinds(exchange)[-1] == CANCELLED and "response" not in kinds(exchange)
    assert exchange.messages[-1]["params"]["requestId"] == client.asked[0]["id"]


def test_cancellation_of_a_finished_call_is_ignored(join, handshake):
    client = join(handshake)
    exchange = client.start("tools/call", id="over", name="recite", arguments={"name": "x"}).wait()
    cancel(client, "over")
    assert client.listen(ids(exchange)[0]).wait().messages == exchange.messages[1:]


def test_progress_increases_across_questions_and_reconnections(join, handshake):
    client = join(handshake)
    exchange, seen = start(client, "consult", token="t"), []
    for count in (1, 2):
        exchange.until(lambda count=count: len(client.asked) == count)
        seen += exchange.messages
        exchange.leave()
        reply(client, client.asked[-1], "yes")
        exchange = client.listen(ids(exchange)[-1])
    seen += exchange.wait().messages
    method = "notifications/progress"
    done = [one["params"]["progress"] for one in seen if one.get("method") == method]
    assert done == [1, 2, 3] and "result" in seen[-1]


def test_client_may_ping_during_a_call(join, handshake, stage):
    client = join(handshake)
    exchange = start(client, "pause")
    exchange.until(lambda: exchange.messages)
    assert client.request("ping") == {}
    stage.go = True
    exchange.wait()
