"""The HTTP consumer: dispatch of requests, content negotiation, the HTML page, disconnects."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import contextmanager

import pytest
from asgiref.testing import ApplicationCommunicator
from channels.consumer import AsyncConsumer
from django.db import DEFAULT_DB_ALIAS, connections

import django_mcp as mcp
from django_mcp.conf import settings
from django_mcp.models import Session, Token
from django_mcp.routing import as_asgi
from django_mcp.transports.http.consumer import MCPConsumer
from tests.http import BOTH, response

pytestmark = pytest.mark.django_db


def test_consumer_is_a_channels_consumer(server):
    assert issubclass(MCPConsumer, AsyncConsumer)
    assert callable(MCPConsumer.as_asgi(server=server))


async def test_consumer_rejects_single_messages(server):
    with pytest.raises(NotImplementedError):
        await MCPConsumer(server).dispatch({"type": "http.request"})


async def test_consumer_runs_under_any_asgi_server(server):
    @server.tool(permission=mcp.PUBLIC, read_only=True)
    async def add(request: mcp.Request, a: int, b: int) -> int:
        return a + b

    scope = {"type": "http", "method": "OPTIONS", "path": "/", "headers": [(b"host", b"localhost")]}
    talking = ApplicationCommunicator(as_asgi(server), scope)
    await talking.send_input({"type": "http.request"})
    assert (await talking.receive_output(30))["status"] == 204
    assert (await talking.receive_output(30)) == {
        "type": "http.response.body", "body": b"", "more_body": False,
    }  # fmt: skip
    await talking.wait(30)


# Before ``migrate``.


@contextmanager
def without_table(model, alias):
    """Simulate a database before ``migrate`` by renaming the table of a model."""
    table, elsewhere = model._meta.db_table, "not_there_yet"
    with connections[alias].cursor() as cursor:
        cursor.execute(f"ALTER TABLE {table} RENAME TO {elsewhere}")
    try:
        yield
    finally:
        with connections[alias].cursor() as cursor:
            cursor.execute(f"ALTER TABLE {elsewhere} RENAME TO {table}")


@pytest.mark.parametrize("with_token", [False, True])
def test_requests_before_migrate_get_503_with_the_command(
    http, server, shared_db, with_token, caplog
):
    server.tool(permission=mcp.PUBLIC, name="act")(lambda request: "done")
    alias = DEFAULT_DB_ALIAS if with_token else settings.DATABASE
    token = "mcp_" + "x" * 43 if with_token else None
    client = http(token, server=server, revision="2025-11-25", initialize=False)
    with without_table(Token if with_token else Session, alias):
        exchange = client.start("initialize", **client.introduction).wait()
    assert exchange.refused == (503, -32603)
    assert "manage.py migrate" in exchange.error["message"]
    assert exchange.headers["retry-after"]
    (told,) = [
        one for one in caplog.records if one.name.startswith("django_mcp") and one.levelno >= 30
    ]
    assert "manage.py migrate" in told.message and not told.exc_info


# Rate limits.


def test_rate_limit_is_a_tool_error_or_status_503(http, revision, settings, server):
    """As documented in ``docs/how-to/http.md``."""
    settings.DJANGO_MCP = {**settings.DJANGO_MCP, "THROTTLES": {"calls": "1/month"}}
    server.tool(permission=mcp.PUBLIC, name="act")(lambda request: "done")
    server.prompt(permission=mcp.PUBLIC, name="say")(lambda request: "said")
    client = http(server=server, revision=revision)
    first, beyond = (client.start("tools/call", name="act", arguments={}).wait() for _ in "ab")
    assert (first.status, beyond.status) == (200, 200)
    results = [response(exchange) for exchange in (first, beyond)]
    assert [bool(one.get("isError")) for one in results] == [False, True]
    assert "Too many calls: 1 per 30 days. Try again in" in results[1]["content"][0]["text"]
    prompt = client.start("prompts/get", name="say").wait()
    error, seconds = prompt.messages[-1]["error"], prompt.headers["retry-after"]
    assert prompt.status == 503 and 0 < int(seconds) <= 30 * 86_400
    assert error["code"] == -32603 and error["data"] == {"retryAfter": int(seconds)}


# Content negotiation.


@pytest.mark.parametrize(
    ("accept", "has_outcome"),
    [
        (BOTH, True), ("text/event-stream,application/json", True), ("*/*", True),
        ("application/*, text/*", True), ("APPLICATION/JSON;q=0.1, Text/Event-Stream", True),
        (None, False), ("", False), ("application/json", False), ("text/event-stream", False),
        ("application/json, text/event-stream;q=0", False), ("text/html, application/json", False),
        ("application/jsonp, text/event-streams", False),
        ("application/json text/event-stream", False),
    ],
)  # fmt: skip
def test_post_must_accept_json_and_event_streams(http, revision, accept, has_outcome):
    client = http(revision=revision)
    exchange = client.post(client.message("tools/list", {}), accept=accept).wait()
    assert exchange.refused == (406, -32600) if not has_outcome else exchange.status == 200


@pytest.mark.parametrize(
    ("accept", "has_outcome"),
    [
        ("text/event-stream", True), ("text/*", True), ("*/*;q=0.1", True), (BOTH, True),
        (None, False), ("application/json", False), ("text/event-stream;q=0, text/*", False),
    ],
)  # fmt: skip
def test_get_must_accept_event_streams(http, handshake, accept, has_outcome):
    client = http(revision=handshake)
    headers = client.headers() | {"accept": accept}
    exchange = client.open("GET", "/mcp", headers=headers)
    if has_outcome:
        client.until(lambda: exchange.status)
        assert exchange.is_stream
    else:
        assert exchange.wait().refused == (406, -32600)


# The HTML page.

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


async def page(scope, receive, send):
    """An ASGI application in place of the page, whose body has two parts."""
    first = await receive()
    assert first == {"type": "http.request", "body": b"", "more_body": False}
    headers = [(b"content-type", b"text/html"), (b"set-cookie", b"a=b")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"The ", "more_body": True})
    await send({"type": "http.response.body", "body": b"page"})


@pytest.fixture
def visit(http):
    def visited(method="GET", page=page, body=b"", **headers):
        client = http(application=MCPConsumer.as_asgi(server=mcp.server, page=page))
        given = {"accept": BROWSER} | {name.replace("_", "-"): h for name, h in headers.items()}
        return client.send(method, "/mcp", body, given)

    return visited


@pytest.mark.parametrize(
    "accept",
    [
        BROWSER, "text/html", "*/*, TEXT/HTML;q=0.1", "text/html;level=1",
        "text/html, text/event-stream;q=0",
    ],
)  # fmt: skip
def test_get_that_accepts_html_returns_the_page(visit, accept):
    exchange = visit(accept=accept)
    assert (exchange.status, exchange.body) == (200, b"The page")
    head = visit("HEAD", accept=accept)
    assert (head.status, head.body, head.headers) == (200, b"", exchange.headers)


@pytest.mark.parametrize(
    ("headers", "refused"),
    [
        ({"accept": None}, (406, -32600)), ({"accept": "*/*;q=0"}, (406, -32600)),
        ({"accept": "application/json"}, (406, -32600)), ({"accept": "image/*"}, (406, -32600)),
        ({"accept": "text/html;q=0"}, (406, -32600)), ({"accept": "text/htmlx"}, (406, -32600)),
        ({"mcp_protocol_version": "2026-07-28"}, (405, -32600)),
        ({"mcp_protocol_version": "2025-11-25"}, (400, -32600)),
        ({"mcp_session_id": "x"}, (404, -32600)), ({"last_event_id": "1"}, (400, -32600)),
        ({"accept": "text/html, text/event-stream"}, (400, -32600)),
        ({"accept": "text/*"}, (400, -32600)), ({"accept": "*/*"}, (400, -32600)),
        ({"host": "evil.example"}, (400, -32600)),
        ({"origin": "http://evil.example"}, (403, -32600)),
        ({"content_length": "3000000"}, (413, -32600)), ({"content_length": "x"}, (400, -32600)),
    ],
)  # fmt: skip
def test_other_get_requests_are_handled_by_the_protocol(visit, headers, refused):
    assert visit(**headers).refused == refused


@pytest.mark.parametrize("method", ["POST", "DELETE", "PUT", "OPTIONS", "HEAD"])
def test_other_methods_do_not_return_the_page(visit, method):
    accept = "text/event-stream" if method == "HEAD" else BROWSER
    assert b"page" not in visit(method, accept=accept).body


def test_page_has_no_cors_headers(visit):
    exchange = visit(origin="http://testserver")
    assert exchange.body == b"The page" and "access-control-allow-origin" not in exchange.headers


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_html_request_without_a_page_is_rejected(visit, method):
    assert visit(method, page=None).status == (405 if method == "HEAD" else 400)


def test_error_of_the_page_is_logged_and_not_disclosed(visit, caplog):
    async def broken(scope, receive, send):
        raise ValueError("secret")

    async def broken_later(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"Some", "more_body": True})
        raise ValueError("secret")

    assert visit(page=broken).refused == (500, -32603)
    exchange = visit(page=broken_later)
    assert (exchange.status, exchange.body) == (200, b"Some")
    assert caplog.text.count("ValueError: secret") == 2


def test_page_receives_the_disconnect(http, caplog):
    told = []

    async def patient(scope, receive, send):
        told.extend([await receive(), await receive()])
        await send({"type": "http.response.start", "status": 200, "headers": []})

    client = http(application=MCPConsumer.as_asgi(server=mcp.server, page=patient))
    exchange = client.open("GET", "/mcp", headers={"accept": BROWSER})
    exchange.leave()
    exchange.wait()
    assert [message["type"] for message in told] == ["http.request", "http.disconnect"]
    assert not caplog.records


@pytest.mark.parametrize(
    ("kind", "is_json"),
    [
        ("application/json", True), ("Application/JSON; charset=UTF-8", True),
        ('application/json;charset="utf-8"', True), ("application/json; profile=x", True),
        (None, False), ("", False), ("text/plain", False), ("application/jsonp", False),
        ("application/json, text/plain", False), ("application/json; charset=latin-1", False),
        ("application/x-www-form-urlencoded", False), ("multipart/form-data", False),
        ("text/plain; application/json", False),
    ],
)  # fmt: skip
def test_post_must_be_json(http, revision, kind, is_json):
    """A form of another site can send the other types without a preflight request."""
    client = http(revision=revision)
    exchange = client.post(client.message("tools/list", {}), content_type=kind).wait()
    assert exchange.refused == (415, -32600) if not is_json else exchange.status == 200


@pytest.mark.parametrize("coding", ["gzip", "br", "deflate, identity", "x"])
def test_compressed_body_is_rejected(http, revision, coding):
    """Attack: a decompression bomb."""
    client = http(revision=revision)
    exchange = client.post(client.message("tools/list", {}), content_encoding=coding).wait()
    assert exchange.refused == (415, -32600) and exchange.headers["accept-encoding"] == "identity"
    exchange = client.post(client.message("tools/list", {}), content_encoding="Identity").wait()
    assert exchange.status == 200


# Dispatch.


def test_request_with_metadata_ignores_the_session_header(http):
    """If its headers contradict its metadata, it is rejected for that."""
    session, client = http(revision="2025-11-25").session, http()
    message = client.message("tools/list", {})
    for header in (None, "2025-11-25", "2024-11-05", "v999"):
        exchange = client.post(message, mcp_protocol_version=header, mcp_session_id=session).wait()
        assert exchange.refused == (400, -32020)
        assert "mcp-session-id" not in exchange.headers


@pytest.mark.parametrize("header", [None, "2024-11-05", "2025-11-25", "2026-07-28"])
def test_initialize_creates_a_session_whatever_the_version_header(http, handshake, header):
    """Clients send any version before one is negotiated."""
    client = http(revision=handshake, initialize=False)
    given = {
        "protocolVersion": handshake, "capabilities": {},
        "clientInfo": {"name": "x", "version": "1"},
    }  # fmt: skip
    exchange = client.post(
        client.message("initialize", given), mcp_protocol_version=header, mcp_method="initialize"
    ).wait()
    assert exchange.status == 200 and exchange.messages[0]["result"]["protocolVersion"] == handshake
    id = exchange.headers["mcp-session-id"]
    assert len(id) >= 22 and all(0x21 <= ord(character) <= 0x7E for character in id)


def test_endpoint_serves_clients_with_and_without_sessions(http):
    older, newer = http(revision="2025-06-18"), http()
    assert older.text("add", a=1, b=2) == newer.text("add", a=1, b=2) == "3"


# Disconnects.


def test_failure_of_receive_cancels_the_call(http, server, work, caplog):
    client = http(server=server)
    exchange = client.start("tools/call", name="ponder")
    client.until(work.begun.is_set)

    async def broken():
        raise RuntimeError("no more messages")

    exchange._inbox.put_nowait({"type": "http.request"})  # other messages are ignored
    client.sleep(0.05)
    assert not exchange.over

    message = client.message("tools/call", {"name": "ponder"})
    scope = client._scope(message)
    raw = json.dumps(message).encode()
    first = [{"type": "http.request", "body": raw}]
    sent: list[object] = []

    async def receive():
        return first.pop() if first else await broken()

    async def send(message):
        sent.append(message)

    work.begun.clear(), work.ended.clear()
    client.run(asyncio.wait_for(client.application(scope, receive, send), 5))
    assert work.ended.is_set() and sent == []
    assert "The connection of a client failed" in caplog.text
    work.go.set()
    exchange.wait()


def test_cancelled_application_task_cancels_the_call(http, server, work):
    """Some servers cancel tasks at shutdown: the call is stopped and ``CancelledError`` raised."""
    client = http(server=server)
    message = client.message("tools/call", {"name": "ponder"})
    raw = json.dumps(message).encode()
    first = [{"type": "http.request", "body": raw}]

    async def stopped():
        async def receive():
            return first.pop() if first else await asyncio.Event().wait()

        task = asyncio.ensure_future(client.application(client._scope(message), receive, None))
        await asyncio.to_thread(work.begun.wait, 5)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        client.run(stopped())
    assert work.ended.is_set()


def test_fast_calls_create_no_disconnect_task(http, monkeypatch):
    """A task that waits for the disconnect would cost more than the response."""
    watched = []
    from django_mcp.transports.http.request import Exchange

    left = Exchange.left

    async def counted(self):
        watched.append(self)
        await left(self)

    monkeypatch.setattr(Exchange, "left", counted)
    monkeypatch.setattr("django_mcp.transports.http.shutdown.FIRST_CHECK_SECONDS", 5)
    client = http()
    for _ in range(20):
        client.text("add", a=1, b=2)
    assert watched == []


@pytest.mark.slow
def test_requests_leave_no_threads_and_tasks(http, secret):
    client = http(secret)
    client.text("add", a=1, b=2)
    before = threading.active_count()
    for _ in range(20):
        client.text("add", a=1, b=2)
        exchange = client.start("subscriptions/listen", notifications={"toolsListChanged": True})
        client.until(lambda exchange=exchange: exchange.messages)
        exchange.leave()
        exchange.wait()
    client.settle()
    assert threading.active_count() <= before + 1
    assert asyncio.all_tasks(client.loop) == set()
