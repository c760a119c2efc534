"""The HTTP+SSE transport: its stream, its POST address, resumption, limits, ownership, shutdown."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from typing import Any
from urllib.parse import urljoin

import pytest
from django.test import override_settings
from django.utils import timezone

import django_mcp as mcp
from django_mcp.calls.callers import revocation_checker
from django_mcp.changes.feed import change_feed
from django_mcp.declarations import server as declared
from django_mcp.exceptions import Busy
from django_mcp.models import DONE, Call, Event, Session, Stream, Token
from django_mcp.routing import as_asgi
from django_mcp.storage import retention, streams
from django_mcp.storage.streams import states
from django_mcp.transports.http import legacy_sse as transport
from django_mcp.transports.http.request import Exchange
from django_mcp.transports.http.shutdown import draining
from django_mcp.transports.http.streams import ping_timer
from django_mcp.verifiers.personal_tokens import revoke
from tests.announcing import Announcement, announce
from tests.client import RpcError
from tests.http import ELSEWHERE, HttpClient
from tests.sse import STREAM, SseClient, gapless
from tests.storage.rows import given

from ..session_tools import add_session_tools

pytestmark = pytest.mark.django_db
TWO_HOURS = timedelta(hours=2)
NEWS = "notifications/tools/list_changed"


@pytest.fixture
def server(server, gate):
    server.sse = True

    add_session_tools(server)

    @server.tool(permission=mcp.PUBLIC)
    async def wait(request) -> str:
        """Report progress, wait, report progress again."""
        await request.aprogress(1)
        while not gate.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.002)
        await request.aprogress(2)
        return "waited"

    @server.tool(permission=mcp.PUBLIC)
    async def release(request) -> str:
        """Release the connection, where the transport allows it."""
        await request.arelease_stream()
        return "released"

    @server.tool
    async def whoami(request, waits: bool = False) -> str:
        """For users."""
        while waits and not gate.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.002)
        return str(request.user)

    return server


@pytest.fixture
def another() -> Iterator[mcp.Server]:
    """A second server, forgotten after the test."""
    yield mcp.Server("another", sse=True)
    declared._servers.pop("another", None)


@pytest.fixture
def connect(db: None, server) -> Iterator[Callable[..., Any]]:
    """Makes clients, and closes them."""
    with ExitStack() as stack:

        def made(*args: Any, kind: type[HttpClient] = SseClient, **options: Any) -> Any:
            paths = {"path": f"/{server.path}/sse"} if kind is SseClient else {}
            return stack.enter_context(kind(*args, **{"server": server, **paths, **options}))

        yield made


@pytest.fixture
def client(connect) -> SseClient:
    return connect()


def token_of(user, name="one", **options) -> str:
    return str(Token.make(user, name, **options)[1])


def waiting(client, tool="wait", **arguments) -> Any:
    """Start a call and return its id."""
    meta = {"_meta": {"progressToken": "t"}}
    id = client.ask("tools/call", name=tool, arguments=arguments, **meta)
    return id


def eventually(client, condition) -> None:
    """Run the loop until the condition on rows holds."""
    for _ in range(1_000):
        if condition():
            return
        client.sleep(0.01)
    raise TimeoutError


def progress(client) -> list[float]:
    told = (one for one in client.messages if one.get("method") == "notifications/progress")
    return [one["params"]["progress"] for one in told]


def stream_of() -> Stream:
    return Stream.objects.get()


# The stream and the address.


def test_session_is_opened_by_get_and_initialized_by_post(connect, handshake):
    client = connect(initialize=False, revision=handshake)
    row = Session.objects.get()
    assert (row.revision, row.initialized, row.transport) == ("", False, "sse")
    assert row.host == "testserver"
    client.initialize()
    row.refresh_from_db()
    assert (row.revision, row.initialized) == (handshake, True)
    assert client.text("add", a=1, b=2) == "3" and gapless(client)
    assert client.streams[0].headers["cache-control"] == "no-store, no-transform"


def test_main_endpoint_serves_the_stream_too(connect, server):
    client = connect(kind=HttpClient, revision="2024-11-05", initialize=False)
    message = client.message("initialize", {"protocolVersion": "2024-11-05"})
    refused = client.post(message, accept="application/json").wait()
    assert refused.status == 406  # a client that knows one transport falls back
    older = connect(path=f"/{server.path}/")
    assert older.post_path == f"/{server.path}/" and older.text("add", a=1, b=2) == "3"


def test_sse_path_serves_the_newer_transport_too(connect, server):
    client = connect(kind=HttpClient, revision="2025-11-25", initialize=False)
    client.path = f"/{server.path}/sse"
    client.initialize()
    assert client.session and client.text("add", a=1, b=2) == "3"
    listening = client.listen()
    assert listening.until(lambda: listening.is_stream)


@pytest.mark.parametrize(
    ("root", "path"), [("/app", "/app{}"), ("/app", "{}"), ("/app/", "/app{}")]
)
def test_post_address_includes_the_root_path(connect, server, root, path):
    client = connect(initialize=False, opens=False)
    at = path.format(f"/{server.path}/sse")
    exchange = client.open("GET", at, headers=STREAM, root_path=root)
    (event,) = exchange.until(lambda: exchange.sse.found)
    assert event.data.startswith("/app/mcp/a%20test%27s%20own/sse?session_id=")


@pytest.mark.parametrize("path", ["//evil.example/x", "/\\evil.example", "/a\r\ndata: //evil"])
def test_post_address_never_names_another_host(server, path):
    """The application ignores its path, so a client can request any path."""
    with SseClient(application=as_asgi(server), server=server, opens=False, initialize=False) as it:
        exchange = it.open("GET", path, headers=STREAM)
        (event,) = exchange.until(lambda: exchange.sse.found)
        joined = urljoin("https://shop.example/", event.data)
        assert joined.startswith("https://shop.example/") and "\\" not in event.data


def test_post_address_includes_the_script_name(connect):
    with override_settings(FORCE_SCRIPT_NAME="/app"):
        assert connect(initialize=False).address.startswith("/app/mcp/")


def test_transport_is_404_unless_enabled(connect, server):
    client = connect()
    server.sse = False
    other = connect(kind=HttpClient, revision="2025-11-25", initialize=False)
    assert other.open("GET", f"/{server.path}/sse", headers=STREAM).wait().status == ELSEWHERE
    assert other.open("GET", f"/{server.path}", headers=STREAM).wait().status == 400
    scope = {"query_string": client.query.encode()}
    message = client.message("ping", {})
    refused = other.post(message, path=f"/{server.path}", scope=scope).wait()
    assert refused.status == 400 and "Mcp-Session-Id" in refused.error["message"]


def test_get_with_the_latest_revision_is_405(client):
    more = {"mcp-protocol-version": "2026-07-28"}
    assert client.open("GET", client.path, headers=STREAM | more).wait().status == 405


@pytest.mark.parametrize("accept", [None, "*/*", "text/event-stream;q=0.5"])
def test_get_needs_no_accept_header(client, accept):
    """An ``Accept`` header is not required, but it must allow event streams."""
    headers = {} if accept is None else {"accept": accept}
    exchange = client.open("GET", client.path, headers=headers)
    exchange.until(lambda: exchange.status)
    assert exchange.status == 200 and exchange.is_stream
    refused = client.open("GET", client.path, headers={"accept": "application/json"}).wait()
    assert refused.status == 406


def test_browser_gets_the_html_page(client):
    client.strict = False  # Django sends header names in mixed case
    exchange = client.open("GET", client.path, headers={"accept": "text/html,*/*;q=0.8"}).wait()
    assert exchange.status == 200 and exchange.headers["content-type"].startswith("text/html")


# Messages.


def test_calls_are_answered_on_the_stream_as_they_finish(connect, handshake, gate):
    client = connect(revision=handshake)
    slow = waiting(client)
    assert client.text("add", a=1, b=2) == "3"
    gate.set()
    assert client.answer_to(slow)["result"]["content"][0]["text"] == "waited"
    assert progress(client) == [1, 2] and gapless(client)
    assert not Call.objects.exclude(state=DONE).exists()
    stream = stream_of()
    assert not stream.closed and stream.last == len(client.seqs())


def test_messages_of_a_call_precede_its_response(client):
    id = client.ask("tools/call", name="count", arguments={"to": 300}, _meta={"progressToken": "t"})
    client.answer_to(id)
    assert progress(client) == list(range(1, 301)) and client.messages[-1]["id"] == id


def test_question_is_answered_by_another_post(connect):
    yes = {"elicitation/create": lambda params: {"action": "accept", "content": {"answer": True}}}
    client = connect(revision="2025-06-18", answers=yes)
    assert client.text("ask") == "answer: True"
    assert len(client.asked) == 1 and Call.objects.get(method="tools/call").rounds == 1


def test_notification_cancels_a_call(client, gate):
    id = waiting(client)
    client.until(lambda: progress(client))
    client.notify("notifications/cancelled", requestId=id)
    eventually(client, lambda: Call.objects.get(request_id=json.dumps(id)).cancelled)
    assert client.text("add", a=1, b=2) == "3"
    assert not any(one.get("id") == id for one in client.messages if "method" not in one)


def test_cancel_of_an_unknown_id_does_not_stop_a_later_call(client):
    client.notify("notifications/cancelled", requestId=77)
    client.ask("tools/call", id=77, name="add", arguments={"a": 1, "b": 2})
    assert client.answer_to(77)["result"]["content"][0]["text"] == "3"


def test_client_is_pinged_on_its_stream(client):
    for _ in range(2):  # a ping interval passes
        client.loop.call_soon(lambda: ping_timer()._fire())
        client.settle()
    client.until(lambda: [one for one in client.asked if one["method"] == "ping"])
    (ping,) = client.asked
    client.accepted({"jsonrpc": "2.0", "id": ping["id"], "result": {}})
    assert Stream.objects.get().pong == ping["id"]


def test_requests_of_a_batch_are_answered_separately(connect):
    client = connect(revision="2025-03-26")
    batch = [
        client.message("tools/call", {"name": "add", "arguments": {"a": n, "b": 1}}) for n in (1, 2)
    ]
    client.accepted([*batch, {"jsonrpc": "2.0", "method": "notifications/x"}])
    texts = [client.answer_to(one["id"])["result"]["content"][0]["text"] for one in batch]
    assert texts == ["2", "3"]


def test_release_keeps_the_connection_open(client):
    """The connection also serves other calls."""
    assert client.text("release") == "released" and not client.streams[0].over


def test_request_errors_are_sent_on_the_stream(client):
    with pytest.raises(RpcError) as raised:
        client.request("no/such")
    assert raised.value.code == -32601
    with pytest.raises(RpcError) as raised:
        client.initialize()
    assert raised.value.code == -32600


def test_only_ping_is_allowed_before_initialize(connect):
    client = connect(initialize=False)
    with pytest.raises(RpcError) as raised:
        client.request("tools/list")
    assert raised.value.code == -32600
    client.request("ping")
    with pytest.raises(RpcError):
        client.request("initialize", protocolVersion=7)
    assert not Session.objects.get().revision
    client.initialize()
    assert client.text("add", a=1, b=2) == "3"


def test_one_of_two_concurrent_initializations_succeeds(connect):
    client = connect(initialize=False)
    given = {"protocolVersion": "2024-11-05", "capabilities": {}}
    given["clientInfo"] = {"name": "x", "version": "1"}
    messages = [client.message("initialize", given) for _ in range(2)]
    exchanges = [client.post(message) for message in messages]
    assert [exchange.wait().status for exchange in exchanges] == [202, 202]
    answers = [client.answer_to(message["id"]) for message in messages]
    assert sorted("error" in answer for answer in answers) == [False, True]


def test_stateless_request_is_an_unknown_method(client):
    """So a client of the latest revision learns to initialize."""
    fresh = HttpClient(server=client.server, initialize=False)
    with fresh:
        client.accepted(fresh.message("server/discover", {}, id=5))
    assert client.answer_to(5)["error"]["code"] == -32601


def test_malformed_message_is_rejected(client):
    assert client.refusal(b"{") == (400, -32700)
    assert client.refusal({"hello": 1}) == (400, -32600)
    assert client.refusal(client.message("ping", {}), content_type="text/plain")[0] == 415
    assert client.refusal(client.message("ping", {}), content_encoding="gzip")[0] == 415
    with override_settings(DATA_UPLOAD_MAX_MEMORY_SIZE=10):
        assert client.refusal(client.message("ping", {}))[0] == 413


def test_notifications_get_no_response(client):
    client.notify("notifications/roots/list_changed")
    client.notify("notifications/unheard_of")
    client.accepted({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": 7})
    assert client.seqs() == [1]


def test_call_is_stored_before_the_post_is_accepted(client, monkeypatch):
    seen = []
    insert = streams.enter_only_stream

    def entered(*args: Any, **options: Any) -> int:
        seen.append(Call.objects.count())
        return insert(*args, **options)

    monkeypatch.setattr(streams, "enter_only_stream", entered)
    exchange = client.post(
        client.message("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
    )
    assert exchange.wait().status == 202 and Call.objects.count() == 1 and seen == [0]


def test_full_stream_rejects_the_call(client, monkeypatch):
    def full(*args: Any, **options: Any) -> int:
        raise Busy("Full.")

    monkeypatch.setattr(streams, "enter_only_stream", full)
    message = client.message("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
    exchange = client.post(message).wait()
    assert exchange.status == 503 and exchange.headers["retry-after"] and exchange.messages[0]["id"]
    assert client.post({"jsonrpc": "2.0", "id": 9, "method": 7}).wait().status == 503
    assert not Call.objects.exists()


# Notifications.


def test_notification_is_sent_on_the_stream(client):
    announce(Announcement("list_changed", "tools", client.server.name))
    client.until(lambda: [one for one in client.notes if one["method"] == NEWS])


def test_notification_during_a_disconnect_is_sent_on_resumption(client):
    client.streams[0].leave()
    announce(Announcement("list_changed", "tools", client.server.name))
    eventually(client, lambda: stream_of().last == 2)
    client.open_stream(client.last)
    client.until(lambda: [one for one in client.notes if one["method"] == NEWS])
    assert gapless(client)


# Broken connections.


def test_disconnect_loses_no_messages(connect, gate, handshake):
    client = connect(revision=handshake)
    id = waiting(client)
    client.until(lambda: progress(client))
    client.streams[0].leave()
    gate.set()
    eventually(client, lambda: not Call.objects.exclude(state=DONE).exists())
    client.open_stream(client.last)
    assert client.answer_to(id)["result"]["content"][0]["text"] == "waited"
    assert progress(client) == [1, 2] and gapless(client)
    assert client.text("add", a=1, b=2) == "3"


def test_stream_can_be_resumed_after_every_event(client):
    client.text("count", to=3)
    everything = client.streams[0].sse.found[:]
    for at, event in enumerate(everything):
        again = client.open("GET", client.path, headers=STREAM | {"last-event-id": event.id})
        again.until(lambda again=again, at=at: len(again.sse.found) == len(everything) - at)
        first, *rest = again.sse.found
        assert (first.event, first.data) == ("endpoint", client.address)
        assert first.id.startswith(f"{event.id}.")  # the same position, with a new id
        assert rest == everything[at + 1 :]
        resumed = client.open("GET", client.path, headers=STREAM | {"last-event-id": first.id})
        resumed.until(lambda resumed=resumed, at=at: len(resumed.sse.found) == len(everything) - at)
        assert resumed.sse.found[0].id not in (first.id, event.id)
        assert resumed.sse.found[1:] == rest


def test_resumption_takes_over_the_stream(client):
    (first,) = client.streams
    client.open_stream(client.last)
    first.wait()
    assert client.text("add", a=1, b=2) == "3" and gapless(client)


def test_slow_client_gets_all_events(client):
    client.streams[0].stalled.clear()
    id = client.ask("tools/call", name="count", arguments={"to": 300}, _meta={"progressToken": "t"})
    client.sleep(0.3)
    client.streams[0].stalled.set()
    client.answer_to(id)
    assert progress(client) == list(range(1, 301)) and gapless(client)


@pytest.mark.parametrize("last", ["", "1-1", "x", f"{'A' * 43}.-1", f"{'A' * 43}.{10**19}"])
def test_malformed_event_id_is_rejected(client, last):
    exchange = client.open(
        "GET", client.path, headers=STREAM | {"last-event-id": last or "é"}
    ).wait()
    assert exchange.refused == (400, -32600)


def test_unknown_event_id_is_rejected(client):
    key = client.last.split(".")[0]
    ahead = STREAM | {"last-event-id": f"{key}.99"}
    assert client.open("GET", client.path, headers=ahead).wait().status == 400
    unknown = STREAM | {"last-event-id": f"{'A' * 43}.0"}
    assert client.open("GET", client.path, headers=unknown).wait().status == 404


# The end of a session.


def test_idle_session_expires_after_its_connection(client):
    client.streams[0].leave()
    assert client.post(client.message("ping", {})).wait().status == 202
    Session.objects.update(last_seen=timezone.now() - timedelta(days=2))
    assert client.post(client.message("ping", {})).wait().status == 404
    assert client.open_stream(client.last).wait().status == 404


def test_delete_at_the_post_address_ends_the_session(connect, alice):
    client, other = connect(token_of(alice)), connect()
    scope = {"query_string": client.query.encode()}
    headers = client.headers(authorization=None)
    assert client.open("DELETE", client.post_path, headers=headers, **scope).wait().status == 401
    exchange = client.open("DELETE", client.post_path, headers=client.headers(), **scope)
    assert exchange.wait().status == 204
    client.streams[0].wait()
    assert Session.objects.count() == 1 and other.text("add", a=1, b=2) == "3"


def test_old_events_are_pruned_and_the_stream_continues(client):
    client.text("count", to=5)
    assert retention.prune(now=timezone.now() + TWO_HOURS)["events"] == stream_of().last
    assert (stream_of().size, stream_of().first) == (0, stream_of().last + 1)
    assert client.text("add", a=1, b=2) == "3" and gapless(client)
    last, first = client.last, client.streams[0].sse.found[1].id
    assert client.open_stream(last).is_stream
    assert client.text("add", a=1, b=2) == "3"
    lost = client.open("GET", client.path, headers=STREAM | {"last-event-id": first}).wait()
    assert lost.status == 404 and not Session.objects.exists()
    assert client.post(client.message("ping", {})).wait().status == 404
    assert client.streams[-1].wait()


# Limits.


def test_message_limit_ends_the_call_and_pruning_frees_capacity(client, server):
    with given(EVENTS=20):
        meta = {"_meta": {"progressToken": "t"}}
        result = client.request("tools/call", name="count", arguments={"to": 100}, **meta)
        assert result["isError"] and "more messages than" in result["content"][0]["text"]
        room = 20 - states([stream_of().pk])[stream_of().pk].last
        for n in range(max(room, 0)):
            client.request("ping", _n=n)
        refused = client.post(client.message("ping", {})).wait()
        assert refused.status == 503 and refused.headers["retry-after"]
        announce(Announcement("list_changed", "tools", server.name))
        eventually(client, lambda: Session.objects.get().pending_changes)
        assert Session.objects.get().current == stream_of().pk and not stream_of().closed
        retention.prune(now=timezone.now() + TWO_HOURS)
        client.request("ping")
        client.open_stream(client.last)
        client.until(lambda: [one for one in client.notes if one["method"] == NEWS])
        assert not Session.objects.get().pending_changes and gapless(client)


def test_cancelled_calls_count_towards_the_limit(client, gate):
    with given(EVENTS=3, SESSION_LIFETIME=10**6):
        for id in (71, 72, 73):
            client.ask("tools/call", id=id, name="wait", arguments={})
            client.notify("notifications/cancelled", requestId=id)
        assert client.post(client.message("ping", {})).wait().status == 503
        assert retention.prune(now=timezone.now() + timedelta(days=2))["calls"] == 3
        client.request("ping")


def test_session_limit_is_status_503(connect):
    with given(SESSIONS=2):
        connect(), connect()
        refused = connect(initialize=False, opens=False).open_stream().wait()
        assert refused.status == 503 and refused.headers["retry-after"]


def test_uninitialized_sessions_are_replaced_by_new_ones(connect):
    with given(SESSIONS=2):
        flood = [connect(initialize=False) for _ in range(2)]
        Session.objects.update(created=timezone.now() - timedelta(minutes=2))
        assert connect().text("add", a=1, b=2) == "3"
        for one in flood:
            one.streams[0].wait()


# Ownership.


def test_session_is_bound_to_its_token(connect, alice, bob):
    client = connect(token_of(alice))
    assert client.text("whoami") == "alice"
    bobs, again = token_of(bob), token_of(alice, "two")
    for authorization, status in ((f"Bearer {bobs}", 404), (f"Bearer {again}", 404), (None, 401)):
        message = client.message("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
        assert client.post(message, authorization=authorization).wait().status == status
        headers = STREAM | {"last-event-id": client.last, "authorization": authorization}
        assert client.open("GET", client.path, headers=headers).wait().status == status
    assert not Call.objects.filter(params__contains="add").exists()
    assert client.text("whoami") == "alice"


def test_post_address_does_not_allow_reading_the_stream(client):
    """The address appears in the logs of proxies."""
    id = client.query.removeprefix("session_id=")
    headers = STREAM | {"last-event-id": f"{id}.0"}
    assert client.open("GET", client.path, headers=headers).wait().status == 404
    assert id not in client.last and client.last.split(".")[0] not in client.address
    stored = [str(vars(row)) for model in (Session, Stream, Event) for row in model.objects.all()]
    assert not any(id in row or client.last.split(".")[0] in row for row in stored)


def test_session_is_bound_to_its_transport(connect, client, server):
    other = connect(kind=HttpClient, revision="2025-11-25")
    id = client.query.removeprefix("session_id=")
    message = client.message("ping", {})
    assert other.post(message, mcp_session_id=id).wait().status == 404
    scope = {"query_string": f"session_id={other.session}".encode()}
    assert client.post(message, scope=scope).wait().status == 404
    assert other.listen(mcp_session_id=id).wait().status == 404
    assert other.open("DELETE", f"/{server.path}", headers=other.headers(mcp_session_id=id)).wait()
    assert client.text("add", a=1, b=2) == "3"


def test_session_is_bound_to_its_server(client, another):
    another.tool(permission=mcp.PUBLIC)(public)
    with HttpClient(server=another, initialize=False) as other:
        scope = {"query_string": client.query.encode()}
        assert other.post(client.message("ping", {}), scope=scope).wait().status == 404


def public(request: mcp.Request) -> str:
    return "for all"


def test_anonymous_session_is_challenged_for_private_tools(client):
    message = client.message("tools/call", {"name": "whoami", "arguments": {}})
    exchange = client.post(message).wait()
    assert exchange.status == 401 and exchange.headers["www-authenticate"]
    assert not Call.objects.exists()


def test_server_without_public_declarations_requires_a_token(another):
    another.tool(public)
    with SseClient(server=another, initialize=False, opens=False) as client:
        exchange = client.open("GET", f"/{another.path}/sse", headers=STREAM).wait()
        assert exchange.status == 401 and not Session.objects.exists()
        wrong = STREAM | {"authorization": "Bearer mcp_wrong"}
        assert client.open("GET", f"/{another.path}/sse", headers=wrong).wait().status == 401


def test_host_and_origin_are_checked_first(client):
    message = client.message("ping", {})
    assert client.post(message, host="evil.example").wait().status == 400
    assert client.post(message, origin="https://evil.example").wait().status == 403
    for more, status in (({"host": "evil.example"}, 400), ({"origin": "null"}, 403)):
        assert client.open("GET", client.path, headers=STREAM | more).wait().status == status
    own = {"origin": "http://testserver"}
    exchange = client.open("GET", client.path, headers=STREAM | own)
    exchange.until(lambda: exchange.sse.found)
    assert exchange.headers["access-control-allow-origin"] == "http://testserver"
    asks = own | {"access-control-request-method": "POST"}
    scope = {"query_string": client.query.encode()}
    assert client.open("OPTIONS", client.path, headers=asks, **scope).wait().status == 204


@pytest.mark.parametrize(
    "query", ["", "session_id=", "session_id=x", "session_id=" + "A" * 43, "x=" + "y" * 500]
)
def test_unknown_post_address_is_rejected(client, query):
    exchange = client.post(
        client.message("ping", {}), scope={"query_string": query.encode()}
    ).wait()
    assert exchange.status in (400, 404, 406) and not exchange.is_stream


# Token expiry and revocation.


@pytest.mark.slow
def test_connection_ends_when_its_token_expires_and_can_be_resumed(connect, alice, gate):
    token, secret = Token.make(alice, "s", expires=timezone.now() + timedelta(seconds=4))
    client = connect(secret)
    id = waiting(client, "whoami", waits=True)
    client.streams[0].wait(20)
    assert client.open_stream(client.last).wait().status == 401
    Token.objects.filter(pk=token.pk).update(expires=None)
    client.open_stream(client.last)
    gate.set()
    assert client.answer_to(id)["result"]["content"][0]["text"] == "alice"


def test_revocation_ends_connection_and_calls(connect, alice):
    token, secret = Token.make(alice, "s")
    client = connect(secret)
    waiting(client, "whoami", waits=True)
    revoke(Token.objects.filter(pk=token.pk))
    client.run(looked())
    client.streams[0].wait()
    eventually(client, lambda: Call.objects.get(method="tools/call").cancelled)
    assert client.post(client.message("ping", {})).wait().status == 401


@pytest.mark.parametrize(("check", "status"), [("calls", 400), ("news", 404)])
def test_narrower_token_cannot_resume_the_stream(connect, alice, monkeypatch, check, status):
    client = connect(token_of(alice))
    client.text("whoami")
    asked = {"calls": "covers", "news": "may_read_notifications"}[check]
    monkeypatch.setattr(transport, asked, lambda *args: False)
    assert client.open_stream(client.last).wait().status == status


# Shutdown.


def test_idle_stream_ends_at_once_at_shutdown(client):
    client.loop.create_task(drained(60))
    client.streams[0].wait()
    assert client.post(client.message("ping", {})).wait().status == 503
    assert client.open("GET", client.path, headers=STREAM).wait().status == 503
    again = client.open_stream(client.last)  # the client may reconnect to another worker
    assert again.wait().status == 200


def test_stream_waits_for_its_calls_at_shutdown(client, gate):
    id = waiting(client)
    client.loop.create_task(drained(60))
    client.sleep(0.3)
    assert not client.streams[0].over
    gate.set()
    client.streams[0].wait()
    assert client.answer_to(id)["result"]["content"][0]["text"] == "waited" and gapless(client)


def test_stream_ends_after_the_grace_period(client, gate):
    waiting(client)
    client.loop.create_task(drained(0.2))
    client.streams[0].wait()
    gate.set()


@pytest.mark.slow
def test_stream_resumed_during_shutdown_ends_at_once(client, gate):
    """Its calls may run in another worker, for longer than this one lives."""
    waiting(client)
    client.streams[0].leave()
    client.run(drained(0))
    assert client.open_stream(client.last).wait().status == 200
    gate.set()


async def looked() -> None:
    await revocation_checker().check()


def test_message_possibly_stored_during_shutdown_is_not_rejected_as_retryable(client, monkeypatch):
    enter, refuse, told = streams.enter_only_stream, Exchange.refuse, threading.Event()

    def slow(*args, **options):
        client.loop.call_soon_threadsafe(lambda: client.loop.create_task(drained(0.05)))
        assert told.wait(20)
        return enter(*args, **options)

    async def refused(self, why):
        await refuse(self, why)
        told.set()

    monkeypatch.setattr(streams, "enter_only_stream", slow)
    monkeypatch.setattr(Exchange, "refuse", refused)
    exchange = client.post(client.message("ping", {})).wait()
    assert exchange.status == 500 and "may not have been processed" in str(exchange.messages)
    eventually(client, Call.objects.exists)


async def drained(grace: float) -> None:
    await draining().finish(grace)


def test_sessions_are_notified_by_the_process_that_serves_them(client):
    assert any(feed.broadcaster for loop, feed in change_feed.instances() if loop is client.loop)
