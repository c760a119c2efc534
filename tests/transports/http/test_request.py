"""HTTP requests and responses over ASGI: body limits, headers, timeouts, errors, disconnects."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest

from django_mcp.protocol.jsonrpc import InvalidRequest
from django_mcp.runtime.address_probe import REQUEST_HEADER as ADDRESS_PROBE
from django_mcp.transports.http import request as module
from django_mcp.transports.http.request import (
    MAX_HEADERS,
    MAX_HEADERS_SIZE,
    SINGLE,
    ClientDisconnected,
    Exchange,
    RequestRejected,
    read_headers,
)
from tests.http import Site

pytestmark = pytest.mark.django_db
CALL = {"name": "add", "arguments": {"a": 1, "b": 2}}


@pytest.fixture
def call(http):
    """A client, and the body and headers of a valid call."""
    client = http()
    message = client.message("tools/call", CALL)
    return client, json.dumps(message).encode(), client.headers(message)


def answered(exchange):
    (message,) = exchange.wait().messages
    return exchange.status == 200 and message["result"]["content"][0]["text"] == "3"


# Bodies.


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
def test_body_may_arrive_in_parts(call, size):
    client, raw, headers = call
    parts = [raw[start : start + size] for start in range(0, len(raw), size)]
    for body in (parts, [*parts, b""], [b"", *parts], [raw[:5], b"", b"", raw[5:]]):
        assert answered(client.open("POST", "/mcp", body, headers))


def test_body_of_exactly_the_limit_is_accepted(call, settings):
    client, raw, headers = call
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = len(raw)
    assert answered(client.open("POST", "/mcp", raw, headers))
    assert answered(client.open("POST", "/mcp", [raw[:9], raw[9:]], headers))


@pytest.mark.parametrize("parts", [1, 2, 50])
def test_larger_body_is_rejected_while_it_arrives(call, settings, parts):
    client, raw, headers = call
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = len(raw) - 1
    step = -(-len(raw) // parts)
    body = [raw[start : start + step] for start in range(0, len(raw), step)]
    exchange = client.open("POST", "/mcp", body, headers).wait()
    assert exchange.refused == (413, -32600)
    assert exchange.headers["connection"] == "close"


def test_larger_content_length_is_rejected_before_the_body(call, settings):
    client, raw, headers = call
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = len(raw)
    announced = headers | {"content-length": str(len(raw) + 1)}
    exchange = client.open("POST", "/mcp", [], announced).wait()
    assert exchange.refused == (413, -32600)


def test_body_is_unlimited_if_the_setting_is_none(call, settings):
    client, raw, headers = call
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = None
    padded = raw + b" " * 5_000_000
    announced = headers | {"content-length": str(len(padded))}
    assert answered(client.open("POST", "/mcp", padded, announced))


@pytest.mark.parametrize(
    "length", ["", "-1", "+5", "5, 5", "1e3", "0x10", "\xb2", "9" * 16, "five"]
)
def test_invalid_content_length_is_rejected(call, length):
    client, raw, headers = call
    exchange = client.open("POST", "/mcp", raw, headers | {"content-length": length}).wait()
    assert exchange.refused == (400, -32600)


@pytest.mark.parametrize("method", ["POST", "GET"])
@pytest.mark.parametrize("first", [[], [b'{"json'], [b""]])
def test_missing_body_times_out(http, monkeypatch, method, first):
    """Attack: idle connections, of which a server can hold only a limited number."""
    monkeypatch.setattr(module, "BODY_SECONDS", 0.05)
    client = http(revision="2025-11-25")
    accept = {"accept": "text/event-stream"} if method == "GET" else {}
    exchange = client.open(method, "/mcp", first, client.headers() | accept, more=True)
    assert exchange.wait().refused == (408, -32600)
    assert exchange.headers["connection"] == "close"


def test_slow_body_times_out(call, monkeypatch):
    monkeypatch.setattr(module, "BODY_SECONDS", 0.1)
    client, raw, headers = call
    exchange = client.open("POST", "/mcp", [], headers, more=True)
    for byte in raw:
        client.sleep(0.01)
        if exchange.over:
            break
        exchange.feed(bytes([byte]), more=True)
    assert exchange.wait().refused == (408, -32600)


def test_slow_body_within_the_timeout_is_read(call, monkeypatch):
    monkeypatch.setattr(module, "BODY_SECONDS", 5)
    client, raw, headers = call
    exchange = client.open("POST", "/mcp", [raw[:10]], headers, more=True)
    client.sleep(0.05)
    assert not exchange.over
    exchange.feed(raw[10:])
    assert answered(exchange)


@pytest.mark.parametrize("first", [[], [b'{"json']])
def test_disconnect_during_the_body_gets_no_response(call, first):
    client, _, headers = call
    exchange = client.open("POST", "/mcp", first, headers, more=True)
    exchange.leave()
    exchange.wait()
    assert (exchange.status, exchange.body) == (None, b"")


def test_cancelled_wait_for_the_body_stays_cancelled():
    """``CancelledError`` of another cause is raised."""

    async def waiting() -> None:
        async def receive():
            await asyncio.Event().wait()

        scope = {"method": "POST", "headers": [], "http_version": "1.1"}
        task = asyncio.ensure_future(Exchange(None, scope, receive, None).body())
        await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(waiting())


# Headers.


def test_repeated_relevant_header_is_rejected(call):
    client, raw, headers = call
    given = {
        "origin": "http://testserver", "content-length": str(len(raw)), "host": "testserver",
        "mcp-session-id": "x", "last-event-id": "1-1", "content-encoding": "identity",
        "authorization": "Bearer x", "access-control-request-method": "POST",
        ADDRESS_PROBE: "x",
    }  # fmt: skip
    for name in SINGLE:
        value = (headers | given).get(name)
        if name in ("accept", "x-forwarded-host"):
            continue
        pairs = [*written(headers), (name.encode(), value.encode())]
        if name not in headers or headers[name] is None:
            pairs.append(pairs[-1])
        exchange = client.open("POST", "/mcp", raw, pairs).wait()
        assert exchange.refused == (400, -32600), name
        assert name in exchange.error["message"]


def written(headers):
    return [(name.encode(), value.encode()) for name, value in headers.items() if value is not None]


@pytest.mark.parametrize("name", ["mcp-method", "mcp-name"])
def test_repeated_mcp_header_is_rejected(call, name):
    client, raw, headers = call
    pairs = [*written(headers), (name.encode(), headers[name].encode())]
    assert client.open("POST", "/mcp", raw, pairs).wait().refused == (400, -32020)


def test_accept_header_may_have_several_lines(call):
    client, raw, headers = call
    pairs = written(headers | {"accept": "application/json"})
    pairs.insert(0, (b"accept", b"text/event-stream;q=0.5"))
    assert answered(client.open("POST", "/mcp", raw, pairs))


def test_other_headers_may_be_repeated(call):
    client, raw, headers = call
    pairs = [*written(headers), (b"x-request-id", b"a"), (b"x-request-id", b"b"), (b"cookie", b"c")]
    assert answered(client.open("POST", "/mcp", raw, pairs))


def test_number_and_size_of_headers_are_limited(call):
    client, raw, headers = call
    few = MAX_HEADERS - len(written(headers)) - 1
    many = [*written(headers), *((b"x-%d" % n, b"") for n in range(few))]
    assert answered(client.open("POST", "/mcp", raw, many))
    exchange = client.open("POST", "/mcp", raw, [*many, (b"x", b"")]).wait()
    assert exchange.refused == (431, -32600)
    large = [*written(headers), (b"x", b"x" * MAX_HEADERS_SIZE)]
    assert client.open("POST", "/mcp", raw, large).wait().refused == (431, -32600)


def test_whitespace_around_header_values_is_ignored():
    raw = [(b"host", b" \ttestserver\t "), (b"mcp-session-id", b"\xa0x"), (b"nothing", b"x")]
    assert read_headers(raw) == {"host": "testserver", "mcp-session-id": "\xa0x"}


# Answers.


def test_rejections_are_not_cacheable(call):
    client, raw, headers = call
    for changed in (
        {"accept": "text/html"},
        {"host": "evil.example"},
        {"authorization": "Bearer x"},
    ):
        exchange = client.open("POST", "/mcp", raw, headers | changed).wait()
        assert 400 <= exchange.status < 500 and exchange.headers["cache-control"] == "no-store"


def test_http_2_response_has_no_connection_header(call, settings):
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 10
    client, raw, headers = call
    exchange = client.open("POST", "/mcp", raw, headers, http_version="2").wait()
    assert exchange.status == 413 and "connection" not in exchange.headers


def exchange(sent, scope=None):
    async def send(message):
        if isinstance(sent, type):
            raise sent()
        sent.append(message)

    given = {"method": "POST", "headers": [], "http_version": "1.1"} | (scope or {})
    return Exchange(None, given, None, send)


async def test_error_after_the_start_ends_the_response():
    sent = []
    one = exchange(sent)
    await one.start_sse()
    await one.write(b": half\n")
    await one.refuse(RequestRejected(500, "Something is wrong"))
    await one.refuse(RequestRejected(500, "Something is wrong"))
    assert [message["type"] for message in sent] == [
        "http.response.start", "http.response.body", "http.response.body",
    ]  # fmt: skip
    assert sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


async def test_writing_to_a_lost_connection_raises_client_disconnected():
    await exchange(OSError).refuse(RequestRejected(400, "Something is wrong"))
    for saying in (exchange(ConnectionResetError).json(200, {}), exchange(OSError).start_sse()):
        with pytest.raises(ClientDisconnected):
            await saying


async def test_rejection_may_have_an_empty_body():
    sent = []
    await exchange(sent).refuse(RequestRejected(404))
    assert sent[0]["status"] == 404 and sent[1]["body"] == b""
    assert RequestRejected(404, InvalidRequest("x")).error.message == "x"


# Server errors.


def test_unexpected_error_is_masked_and_logged(call, monkeypatch, caplog):
    client, raw, headers = call

    def broken(exchange):
        raise RuntimeError("the password is hunter2")

    monkeypatch.setattr("django_mcp.transports.http.consumer.guard", broken)
    with caplog.at_level(logging.ERROR, "django_mcp"):
        exchange = client.open("POST", "/mcp", raw, headers).wait()
    assert exchange.status == 500 and b"hunter2" not in exchange.body
    assert "hunter2" in caplog.text


def test_os_error_in_the_handler_is_a_server_error(call, monkeypatch, caplog):
    """For example of a verifier that cannot connect; it is not taken for a disconnect."""
    client, raw, headers = call

    def broken(exchange):
        raise ConnectionRefusedError("nobody there")

    monkeypatch.setattr("django_mcp.transports.http.consumer.guard", broken)
    with caplog.at_level(logging.ERROR, "django_mcp"):
        assert client.open("POST", "/mcp", raw, headers).wait().status == 500
    assert "nobody there" in caplog.text


def test_first_request_of_a_worker_may_be_invalid():
    """A request that is invalid in every way."""
    with Site() as site:
        exchange = site.send("POST", "/mcp", b"\xff", [(b"host", b"a"), (b"host", b"b")])
        assert exchange.status == 400


# Bodies of rejected requests.


@pytest.mark.parametrize("how", [{"content-length": "1000"}, {"transfer-encoding": "chunked"}])
def test_remaining_body_is_read_before_the_rejection(call, how):
    """Closing the connection while the body arrives would lose the response."""
    client, _, headers = call
    refused = headers | {"authorization": "Bearer wrong"} | how
    exchange = client.open("POST", "/mcp", [b"x" * 10], refused, more=True)
    client.sleep(0.02)
    assert not exchange.status
    exchange.feed(b"x" * 990)
    assert exchange.wait().status == 401 and exchange._inbox.empty()


def test_disconnect_before_the_rejection_gets_no_response(call):
    client, _, headers = call
    refused = headers | {"authorization": "Bearer wrong", "content-length": "1000"}
    exchange = client.open("POST", "/mcp", [b"x"], refused, more=True)
    exchange.leave()
    assert exchange.wait().status is None


def test_expect_continue_is_rejected_without_reading_the_body(call):
    client, _, headers = call
    refused = headers | {
        "authorization": "Bearer x",
        "content-length": "9",
        "expect": "100-continue",
    }
    assert client.open("POST", "/mcp", [], refused, more=True).wait().status == 401


def test_remaining_body_is_read_up_to_a_limit(call, monkeypatch):
    """Attack: a rejected client sends on."""
    client, _, headers = call
    refused = headers | {"authorization": "Bearer wrong", "content-length": "150000"}
    exchange = client.open("POST", "/mcp", [b"x" * 10_000] * 15, refused)
    exchange.wait()
    assert not exchange._inbox.empty()
    monkeypatch.setattr(module, "SKIP_SECONDS", 0.05)
    exchange = client.open("POST", "/mcp", [b"x"], refused, more=True)
    assert exchange.wait().status == 401
