"""Sessions over HTTP: initialization, POST, streams, resumption, notifications and the end."""

from __future__ import annotations

import asyncio
import json
import threading
from datetime import timedelta
from functools import partial

import pytest
from django.conf import settings
from django.db import OperationalError, connections
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

import django_mcp as mcp
from django_mcp.auth.principal import client_network
from django_mcp.changes import broadcaster
from django_mcp.exceptions import Busy
from django_mcp.models import Call, Event, Session, Stream, Token
from django_mcp.runtime import threads
from django_mcp.storage import poller, retention, streams
from django_mcp.transports.http import sessions as transport
from django_mcp.transports.http import streams as resuming
from django_mcp.transports.http.request import ClientDisconnected, Exchange
from django_mcp.transports.http.shutdown import draining
from django_mcp.transports.http.streams import event_id, parse_event_id
from tests.announcing import Announcement, announce
from tests.client import RpcError
from tests.http import response
from tests.storage.rows import given

from ..session_tools import add_session_tools

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("short_grace")]


@pytest.fixture
def server(server, gate):
    add_session_tools(server)

    @server.tool(permission=mcp.PUBLIC)
    async def wait(request) -> str:
        """Report progress, wait, report progress again."""
        request.progress(1)
        while not gate.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.002)
        request.progress(2)
        return "waited"

    @server.tool(permission=mcp.PUBLIC)
    async def release(request) -> str:
        """Release the connection."""
        await request.arelease_stream()
        while not gate.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.002)
        return "released"

    @server.tool(permission=mcp.PUBLIC)
    def log(request, level: str) -> str:
        """Write to the client's log."""
        request.log(level, "words")
        return "logged"

    @server.tool
    def whoami(request) -> str:
        """For users."""
        return str(request.user)

    @server.resource("note://one", permission=mcp.PUBLIC)
    def note(request) -> str:
        return "a note"

    return server


@pytest.fixture
def client(http, server, handshake):
    """A client of each revision with a handshake."""
    return http(server=server, revision=handshake)


@pytest.fixture
def newest(http, server):
    return http(server=server, revision="2025-11-25")


def waiting(client, tool="wait", **arguments):
    """Start a call that reports progress on a stream."""
    meta = {"_meta": {"progressToken": "t"}}
    exchange = client.start("tools/call", name=tool, arguments=arguments, **meta)
    return exchange.until(lambda: exchange.is_stream) and exchange


def ids(exchange) -> list[str | None]:
    return [event.id for event in exchange.sse.found]


def progress(exchange) -> list[float]:
    return [
        one["params"]["progress"]
        for one in exchange.messages
        if "progress" in str(one.get("method"))
    ]


# The handshake.


def test_initialize_creates_a_session(client):
    row = Session.objects.get()
    assert client.session and client.session.isascii() and client.session not in str(row.__dict__)
    assert row.revision == client.revision.name and row.initialized
    assert (row.owner, row.user) == ("", None) and row.server == client.server.name
    assert row.host == "testserver"


def test_invalid_initialize_creates_no_session(http, server):
    client = http(server=server, revision="2025-11-25", initialize=False)
    exchange = client.start("initialize", protocolVersion=7).wait()
    assert "mcp-session-id" not in exchange.headers and "error" in exchange.messages[0]
    assert not Session.objects.exists()


@pytest.mark.parametrize("method", ["ping", "tools/list", "notifications/initialized"])
def test_requests_without_a_session_are_rejected(http, server, method):
    client = http(server=server, revision="2025-11-25", initialize=False)
    message = {"jsonrpc": "2.0", "method": method}
    if "/" in method and "notif" not in method or method == "ping":
        message["id"] = 1
    assert client.post(message).wait().status == 400
    assert client.listen().wait().status == 400
    assert client.open("DELETE", client.path, headers=client.headers()).wait().status == 400


def test_second_initialize_is_rejected(newest):
    given = {"protocolVersion": "2025-11-25", "capabilities": {}}
    given["clientInfo"] = {"name": "x", "version": "1"}
    exchange = newest.start("initialize", **given).wait()
    assert exchange.status == 400 and Session.objects.count() == 1


def test_unknown_session_is_404(newest):
    for id in ("x", "A" * 43, newest.session[:-1] + "~"):
        assert newest.post(newest.message("ping", {}), mcp_session_id=id).wait().status == 404


def test_session_is_bound_to_its_token(http, server, alice, bob):
    own, other = Token.make(alice, "one")[1], Token.make(bob, "two")[1]
    client = http(own, server=server, revision="2025-11-25")
    assert client.text("whoami") == "alice"
    assert (
        client.post(client.message("ping", {}), authorization=f"Bearer {other}").wait().status
        == 404
    )
    assert client.post(client.message("ping", {}), authorization=None).wait().status == 401
    again = Token.make(alice, "three")[1]
    assert (
        client.post(client.message("ping", {}), authorization=f"Bearer {again}").wait().status
        == 404
    )
    assert client.listen(authorization=f"Bearer {other}").wait().status == 404


def test_anonymous_session_is_challenged_for_private_tools(newest):
    exchange = newest.start("tools/call", name="whoami", arguments={}).wait()
    assert exchange.status == 401


def test_session_limit_is_status_503(http, server, alice):
    token = Token.make(alice, "one")[1]
    with given(SESSIONS=1):
        http(token, server=server, revision="2025-11-25")
        client = http(token, server=server, revision="2025-11-25", initialize=False)
        params = {"protocolVersion": "2025-11-25", "capabilities": {}}
        params["clientInfo"] = {"name": "x", "version": "1"}
        exchange = client.start("initialize", **params).wait()
    assert exchange.status == 503 and exchange.headers["retry-after"]


def test_anonymous_session_stores_the_network_of_its_connection(http, server, monkeypatch):
    monkeypatch.setattr(Exchange, "remote", "198.51.100.1")
    http(server=server, revision="2025-11-25")
    wanted = client_network("198.51.100.1")
    assert Session.objects.get().network == wanted


@pytest.mark.parametrize(
    ("scope", "remote"),
    [({"client": ("2001:db8::1", 5)}, "2001:db8::1"), ({"client": None}, ""), ({}, "")],
)
async def test_remote_address_is_that_of_the_connection(scope, remote):
    headers = [(b"x-forwarded-for", b"198.51.100.1")]
    made = Exchange(None, {"method": "POST", "headers": headers, **scope}, None, None)
    assert made.remote == remote


def test_idle_session_is_404(newest):
    Session.objects.update(last_seen=timezone.now() - timedelta(days=2))
    assert newest.post(newest.message("ping", {})).wait().status == 404


# POST.


def test_fast_call_is_answered_as_json(client):
    exchange = client.start("tools/call", name="add", arguments={"a": 1, "b": 2}).wait()
    assert exchange.headers["content-type"] == "application/json" and exchange.status == 200
    assert exchange.messages[0]["result"]["content"][0]["text"] == "3"
    assert not Stream.objects.exists()


def test_longer_call_is_answered_as_a_stream(client, gate):
    exchange = waiting(client)
    gate.set()
    exchange.wait()
    assert exchange.status == 200 and progress(exchange) == [1, 2]
    assert response(exchange)["content"][0]["text"] == "waited"
    primed = client.revision.priming
    assert (
        [event.data for event in exchange.sse.found][0] == ""
        if primed
        else exchange.sse.found[0].data
    )
    stream = Stream.objects.get().pk
    assert ids(exchange) == [event_id(stream, seq) for seq in range(0 if primed else 1, 4)]


def test_stream_starts_with_an_empty_event(newest, gate):
    exchange = newest.start("tools/call", name="release", arguments={})
    first = exchange.until(lambda: exchange.sse.found)[0]
    assert (first.data, first.id) == ("", event_id(Stream.objects.get().pk, 0))
    assert first.retry


def test_notifications_and_responses_are_accepted(client):
    client.notify("notifications/roots/list_changed")
    client.notify("notifications/unheard_of")
    answer = {"jsonrpc": "2.0", "id": "0" * 32, "result": {}}
    assert client.post(answer).wait().status == 202


def test_batch_is_answered_by_a_batch(http, server):
    client = http(server=server, revision="2025-03-26")
    batch = [
        client.message("tools/call", {"name": "add", "arguments": {"a": n, "b": 1}}) for n in (1, 2)
    ]
    exchange = client.post([*batch, {"jsonrpc": "2.0", "method": "notifications/x"}]).wait()
    (answer,) = exchange.messages
    assert sorted(one["result"]["content"][0]["text"] for one in answer) == ["2", "3"]
    only = [{"jsonrpc": "2.0", "method": "notifications/x"}]
    assert client.post(only).wait().status == 202
    assert client.post([]).wait().status == 400


def test_batch_is_rejected_in_revisions_without_batches(newest):
    assert newest.post([newest.message("ping", {})]).wait().status == 400


def test_unknown_method_is_a_json_rpc_error(newest):
    with pytest.raises(RpcError) as raised:
        newest.request("no/such")
    assert raised.value.code == -32601


def test_malformed_message_is_rejected(newest):
    assert newest.post({"jsonrpc": "2.0", "id": 1}).wait().status == 400
    assert newest.post({"hello": 1}).wait().status == 400


def test_full_thread_pool_is_status_503(newest, monkeypatch):
    async def full(*args, **options):
        raise Busy("full")

    monkeypatch.setattr(threads.tools, "run_for", full)
    exchange = newest.start("tools/call", name="count", arguments={"to": 1}).wait()
    assert exchange.status == 503 and exchange.headers["retry-after"] == "1"


def test_log_level_is_stored_in_the_session(client):
    def heard(level):
        before = len(client.notes)
        assert client.text("log", level=level) == "logged"
        return len(client.notes) > before

    assert heard("info") and not heard("debug")
    client.request("logging/setLevel", level="debug")
    assert heard("debug")
    client.request("logging/setLevel", level="error")
    assert not heard("warning")


@pytest.mark.parametrize("says", ["2025-06-18", "2025-11-25", "2026-07-28"])
def test_run_after_an_answer_has_the_host_of_the_call(http, server, says, settings):
    """Attack: make the run after the answer, which writes, use another tenant."""
    settings.ALLOWED_HOSTS = [*settings.ALLOWED_HOSTS, "shop.example"]
    hosts = []

    @server.tool(permission=mcp.PUBLIC)
    def where(request: mcp.Request) -> str:
        hosts.append((request._host, request.http.get_host()))
        return str(request.elicit("Really?", bool))

    yes = {"elicitation/create": lambda params: {"action": "accept", "content": {"answer": True}}}
    assert http(server=server, revision=says, answers=yes).text("where") == "True"
    assert hosts == [("testserver", "testserver")] * 2


def test_question_is_answered_by_another_post(http, server):
    yes = {"elicitation/create": lambda params: {"action": "accept", "content": {"answer": True}}}
    client = http(server=server, revision="2025-11-25", answers=yes)
    assert client.text("ask") == "answer: True"
    assert len(client.asked) == 1 and Call.objects.get().rounds == 1


# Broken connections.


def test_disconnect_does_not_cancel_the_call(client, gate):
    exchange = waiting(client)
    exchange.until(lambda: progress(exchange))
    exchange.leave()
    gate.set()
    rest = client.listen(last=ids(exchange)[-1]).wait()
    assert rest.status == 200 and progress(rest) == [2]
    assert response(rest)["content"][0]["text"] == "waited"
    numbers = [int(id.split("-")[1]) for id in [*ids(exchange), *ids(rest)] if id]
    assert sorted(set(numbers)) == list(range(min(numbers), 4))


def test_stream_can_be_resumed_after_every_event(newest):
    exchange = waiting(newest, "count", to=30)
    exchange.wait()
    everything = [(event.id, event.data) for event in exchange.sse.found if event.data]
    for at, (id, _) in enumerate(everything[:-1]):
        rest = newest.listen(last=id).wait()
        assert rest.sse.found[0].id.startswith(f"{id}-") and rest.sse.found[0].data == ""
        assert [(e.id, e.data) for e in rest.sse.found[1:]] == everything[at + 1 :]


def test_slow_client_gets_all_events(newest):
    exchange = newest.start(
        "tools/call", name="count", arguments={"to": 300}, _meta={"progressToken": "t"}
    )
    exchange.stalled.clear()
    newest.sleep(0.3)
    newest.loop.call_soon(exchange.stalled.set)
    exchange.wait()
    assert progress(exchange) == list(range(1, 301))


def test_resumption_takes_over_the_stream(newest, gate):
    exchange = waiting(newest)
    exchange.until(lambda: progress(exchange))
    other = newest.listen(last=ids(exchange)[-1])
    exchange.wait()
    assert progress(exchange) == [1] and all(
        event.retry is None for event in exchange.sse.found[1:]
    )
    gate.set()
    assert response(other.wait())["content"][0]["text"] == "waited"


def test_response_of_a_released_stream_is_fetched(newest, gate):
    exchange = waiting(newest, "release").wait()
    assert exchange.sse.found[-1].retry and not exchange.messages
    gate.set()
    rest = newest.listen(last=exchange.sse.found[-1].id).wait()
    assert response(rest)["content"][0]["text"] == "released"


def test_resuming_after_the_last_event_is_405(newest):
    exchange = waiting(newest, "count", to=2).wait()
    again = newest.listen(last=ids(exchange)[-1]).wait()
    assert again.status == 405 and not again.is_stream


def test_unknown_event_id_is_rejected(newest, http, server):
    exchange = waiting(newest, "count", to=2).wait()
    stream = ids(exchange)[-1].split("-")[0]
    other = http(server=server, revision="2025-11-25")
    assert other.listen(last=ids(exchange)[1]).wait().status == 400
    pk, _ = parse_event_id(f"{stream}-0")
    never_given = (f"{stream}-99", f"{stream}--1", "x", f"{pk}-0", event_id(pk + 9, 0))
    for wrong in never_given:
        assert newest.listen(last=wrong).wait().status == 400, wrong


def test_pruned_events_are_reported_by_an_error_response(newest):
    exchange = waiting(newest, "count", to=5).wait()
    retention.prune(now=timezone.now() + timedelta(hours=3))
    lost = newest.listen(last=ids(exchange)[1]).wait()
    assert lost.status == 200
    (error,) = lost.messages
    assert error["id"] == exchange.messages[-1]["id"] and error["error"]["code"] == -32603
    assert newest.listen(last=lost.sse.found[-1].id).wait().status == 405


def test_pruned_stream_still_sends_its_response(newest):
    exchange = waiting(newest, "count", to=5).wait()
    retention.prune(now=timezone.now() + timedelta(hours=3))
    rest = newest.listen(last=ids(exchange)[-2]).wait()
    assert response(rest)["content"][0]["text"] == "counted"
    assert newest.listen(last=ids(exchange)[-1]).wait().status == 405


# Standalone streams.


def listening(client, last=None):
    exchange = client.listen(last)
    return exchange.until(lambda: exchange.is_stream) and exchange


def changed(client, name):
    """Announce a change directly, because a test commits no transaction."""
    announce(Announcement("list_changed", name, client.server.name))


def test_notification_is_sent_on_the_standalone_stream(client):
    exchange = listening(client)
    changed(client, "tools")
    exchange.until(lambda: exchange.messages)
    assert [one["method"] for one in exchange.messages] == ["notifications/tools/list_changed"]
    assert not exchange.ended


def test_notification_is_sent_on_one_stream_only(newest):
    first, second = listening(newest), listening(newest)
    assert not first.ended
    changed(newest, "tools")
    second.until(lambda: second.messages)
    newest.sleep(0.05)
    assert first.messages == [] and not first.ended


def test_notification_without_open_stream_is_sent_by_the_next_stream(newest):
    listening(newest).leave()
    Session.objects.update(current=None)
    for name in ("tools", "resources", "tools"):
        changed(newest, name)
    newest.sleep(0.1)
    exchange = listening(newest)
    exchange.until(lambda: len(exchange.messages) == 2)
    kinds = sorted(one["method"].split("/")[1] for one in exchange.messages)
    assert kinds == ["resources", "tools"]


def test_notification_during_a_disconnect_is_sent_on_resumption(newest):
    exchange = listening(newest)
    changed(newest, "tools")
    exchange.until(lambda: exchange.messages)
    exchange.leave()
    changed(newest, "resources")
    newest.sleep(0.1)
    again = listening(newest, ids(exchange)[-1])
    again.until(lambda: again.messages)
    assert again.messages[0]["method"] == "notifications/resources/list_changed"


def test_client_away_too_long_is_notified_of_all_lists_and_subscriptions(newest):
    newest.request("resources/subscribe", uri="note://one")
    exchange = listening(newest)
    for count in (1, 2, 3):
        changed(newest, "tools")
        exchange.until(lambda count=count: len(exchange.messages) == count)
    exchange.leave()
    stream = Stream.objects.get()
    Event.objects.filter(stream=stream).delete()
    Stream.objects.update(first=stream.last + 1, closed=True)
    again = listening(newest, ids(exchange)[1])
    again.until(lambda: len(again.messages) == 3)
    told = {one["method"].split("/", 1)[1] for one in again.messages}
    assert told == {"tools/list_changed", "resources/list_changed", "resources/updated"}
    assert parse_event_id(ids(again)[0])[0] != stream.pk


def test_resuming_a_closed_standalone_stream_opens_a_new_one(newest):
    exchange = listening(newest)
    changed(newest, "tools")
    exchange.until(lambda: exchange.messages)
    Stream.objects.update(closed=True)
    exchange.wait()
    again = listening(newest, ids(exchange)[-1])
    assert again.status == 200 and ids(again)[0].split("-")[0] != ids(exchange)[0].split("-")[0]


@pytest.mark.slow
def test_notification_is_kept_if_the_client_leaves_before_its_stream_opens(
    newest, gate, monkeypatch
):
    exchange = listening(newest)
    exchange.leave()
    newest.sleep(0.05)
    changed(newest, "tools")
    begun = threading.Event()

    def slow(*args, **kwargs):
        stream = resuming.open_stream(*args, **kwargs)
        begun.set()
        gate.wait(1)  # the disconnect waits for jobs, but for a shorter time
        return stream

    monkeypatch.setattr(transport, "open_stream", slow)
    second = newest.listen()
    second.until(begun.is_set)
    second.leave()
    gate.set()
    newest.sleep(0.2)
    assert Stream.objects.filter(closed=True).count() == 1
    again = listening(newest, ids(exchange)[-1])
    again.until(lambda: again.messages)
    assert again.messages[0]["method"] == "notifications/tools/list_changed"


def test_notification_is_kept_if_the_stream_cannot_be_written(newest, monkeypatch):
    changed(newest, "tools")

    async def left(exchange, data):
        newest.exchanges[-1].left = True
        raise ClientDisconnected

    with monkeypatch.context() as patched:
        patched.setattr(Exchange, "write", left)
        exchange = newest.listen()
        newest.sleep(0.2)
    assert exchange.messages == [] and Stream.objects.get().closed
    again = listening(newest)
    again.until(lambda: again.messages)
    assert again.messages[0]["method"] == "notifications/tools/list_changed"


def test_notification_is_sent_by_another_process_after_a_crash(newest):
    changed(newest, "tools")
    newest.sleep(0.1)
    encode_marks = partial(broadcaster.encode_marks, (session := Session.objects.get()).revision)
    streams.open(session, standalone=True, encode_marks=encode_marks, nonce="a")
    exchange = listening(newest)
    exchange.until(lambda: exchange.messages)
    assert exchange.messages[0]["method"] == "notifications/tools/list_changed"


def test_standalone_stream_is_opened_once_after_an_unknown_commit(newest, monkeypatch):
    changed(newest, "tools")
    attempts = []

    def broken(*args, **kwargs):
        attempts.append(kwargs["is_retry"])
        stream = resuming.open_stream(*args, **kwargs)
        if len(attempts) == 1:
            raise OperationalError("nobody knows")
        return stream

    monkeypatch.setattr(transport, "open_stream", broken)
    exchange = listening(newest)
    exchange.until(lambda: exchange.messages)
    assert attempts == [False, True] and len(exchange.messages) == Stream.objects.count() == 1


def test_session_has_at_most_four_standalone_streams(newest):
    exchanges = [listening(newest) for _ in range(6)]
    newest.until(lambda: exchanges[0].over and exchanges[1].over)
    newest.sleep(0.05)
    assert not any(exchange.over for exchange in exchanges[2:])


def test_idle_stream_sends_keepalives(newest):
    with given(KEEPALIVE=0.1):
        exchange = listening(newest)
        exchange.until(lambda: exchange.sse.comments)
    assert len(exchange.sse.found) == 1


# The end.


def delete(client):
    return client.open("DELETE", client.path, headers=client.headers()).wait()


def test_delete_ends_the_session(newest, gate):
    call, news = waiting(newest), listening(newest)
    assert delete(newest).status == 204
    call.wait()
    news.wait()
    assert not Session.objects.exists() and not Stream.objects.exists()
    assert newest.post(newest.message("ping", {})).wait().status == 404
    assert newest.listen().wait().status == 404 and delete(newest).status == 404


def test_shutdown_ends_streams_and_lets_calls_finish(client, gate):
    call, news = waiting(client), listening(client)
    finishing = client.loop.create_task(_finish())
    news.wait()
    client.sleep(0)
    assert client.post(client.message("tools/list", {})).wait().status == 503
    if client.revision.priming:
        call.wait()
        assert call.sse.found[-1].retry and not any("result" in one for one in call.messages)
    gate.set()
    client.until(finishing.done)
    finishing.result()
    if not client.revision.priming:
        assert response(call.wait())["content"][0]["text"] == "waited"
    assert Call.objects.get().state == "done"


async def _finish():
    await draining().finish()


def test_sent_events_equal_the_stored_events(newest):
    exchange = waiting(newest, "count", to=20).wait()
    written = Event.objects.order_by("seq").values_list("data", flat=True)
    assert [event.data for event in exchange.sse.found if event.data] == list(written)
    assert [json.loads(data) for data in written] == exchange.messages


def test_events_of_this_process_are_sent_without_reading_them_back(newest, monkeypatch):
    monkeypatch.setattr(poller, "POLL_INTERVAL_SECONDS", 60)
    with CaptureQueriesContext(connections[settings.DJANGO_MCP["DATABASE"]]) as queries:
        exchange = waiting(newest, "count", to=3).wait()
    assert progress(exchange) == [1, 2, 3] and "result" in exchange.messages[-1]
    read = [one["sql"] for one in queries if one["sql"].startswith("SELECT")]
    assert not [sql for sql in read if "django_mcp_event" in sql]
