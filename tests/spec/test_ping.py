"""Ping in both directions, and what follows a missing answer."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

import django_mcp as mcp
from django_mcp.conf import DEFAULTS
from django_mcp.models import Session, Stream
from django_mcp.transports.http.streams import ping_timer

from .helpers import replies_to, request_error

pytestmark = pytest.mark.django_db


@pytest.fixture
def busy(server):
    """A server with a tool that waits until the test lets it go on."""
    server._go = threading.Event()

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    def wait(request: mcp.Request) -> str:
        while not (server._go.wait(0.01) or request.cancelled):
            pass
        return "done"

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    async def rest(request: mcp.Request) -> str:
        await request.alog("info", "resting")
        while not server._go.is_set():  # noqa: ASYNC110 - a test sets it
            await asyncio.sleep(0.001)
        return "done"

    yield server
    server._go.set()


def test_ping_is_answered_at_once_with_an_empty_result(connect, busy, handshake):
    client = connect(server=busy, revision=handshake, initialize=False)
    assert client.request("ping") == {}
    client.initialize()
    call = client.start("tools/call", name="wait")
    for id in ("a", 1000):
        assert client.wait(client.start("ping", id=id)) == {
            "jsonrpc": "2.0",
            "id": id,
            "result": {},
        }
    assert client.request("ping", _meta={"progressToken": 1}) == {}
    assert all(message.get("id") != call for message in client.received)  # that goes on
    busy._go.set()
    assert client.wait(call)["result"]["content"][0]["text"] == "done"


def test_newest_revision_has_no_ping(connect, busy):
    assert request_error(connect(server=busy), "ping").code == -32601


def mute(client):
    """Let the client answer nothing."""
    client._reply = lambda message: None
    return client


def pinged(client, seconds):
    """What a ping finds, and how long that took."""
    before = time.monotonic()
    found = client._run(client.conversation.ping(seconds))
    return found, time.monotonic() - before


def test_ping_waits_for_the_given_timeout(connect, busy, handshake):
    client = connect(server=busy, revision=handshake)
    client.settle()
    found, took = pinged(client, 60)
    assert found and took < 50  # for no longer than it needs
    (ping,) = client.asked
    assert ping == {"jsonrpc": "2.0", "id": ping["id"], "method": "ping"}
    for seconds in (0.02, 0.2):
        found, took = pinged(mute(client), seconds)
        assert not found and seconds * 0.9 <= took < 50


def test_unanswered_ping_fails_and_is_logged(connect, busy, handshake, caplog):
    client = mute(connect(server=busy, revision=handshake))
    client.settle()
    assert not pinged(client, 0.02)[0]
    (record,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert record.name.startswith("django_mcp") and "ping" in record.getMessage()
    late = {"jsonrpc": "2.0", "id": client.asked[-1]["id"], "result": {}}
    assert replies_to(client, late) == []  # it failed, and stays failed
    assert not pinged(client, 0.02)[0]
    client._reply = type(client)._reply.__get__(client)
    assert pinged(client, 60)[0]  # the next is asked anew


def test_error_response_answers_a_ping(connect, busy, handshake):
    answers = {"ping": lambda params: {"code": -32601, "message": "No."}}
    client = connect(server=busy, revision=handshake, answers=answers)
    client.settle()
    assert pinged(client, 60)[0]  # somebody is there


def test_connection_without_ping_answers_can_be_closed(connect, busy, handshake):
    """A transport closes the connection after missed pings, and its calls stop."""
    client = mute(connect(server=busy, revision=handshake))
    call = client.start("tools/call", name="wait")

    async def care() -> None:
        missed = 0
        while missed < 2:
            missed += not await client.conversation.ping(0.02)
        await asyncio.wait_for(client.conversation.close(), 60)

    client._run(care())
    assert all(message.get("id") != call for message in client.received)
    assert request_error(client, "ping").code == -32600
    again = connect(server=busy, revision=handshake)  # and is welcome to come back
    assert again.request("ping") == {}


# Periodic pings of clients that listen.


@pytest.fixture
def listener(http, busy, handshake, settings):
    """A client with a stream for news, and a function that lets the interval pass."""
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"PING_INTERVAL": 3600}
    client = http(server=busy, revision=handshake)
    client.news = client.listen()
    client.until(lambda: client.news.status)

    def pass_interval(times: int = 1) -> None:
        for _ in range(times):
            client.loop.call_soon(lambda: ping_timer()._fire())
            client.settle()

    client.pass_interval = pass_interval
    return client


def pinged_on(exchange):
    return [one for one in exchange.messages if one.get("method") == "ping"]


def next_ping(listener, count=1):
    """The ping that comes when the interval has passed."""
    listener.pass_interval(2 if count == 1 else 1)
    listener.until(lambda: len(pinged_on(listener.news)) == count)
    return pinged_on(listener.news)[-1]


def noted(listener, ping):
    """Wait until a worker has noted the answer to a ping."""
    for _ in range(1_000):
        if Stream.objects.filter(pong=ping["id"]).exists():
            return
        listener.sleep(0.01)
    raise TimeoutError


def test_listening_client_is_pinged_repeatedly(listener):
    found = []
    for count in range(1, 4):
        found.append(next_ping(listener, count))
        noted(listener, found[-1])
    assert not listener.news.ended and len({ping["id"] for ping in found}) == 3
    # They are no part of what is resumed.
    assert all(event.id is None for event in listener.news.sse.found if "ping" in event.data)
    assert listener.request("ping") == {}


def test_listening_client_without_ping_answers_is_disconnected(listener, caplog):
    mute(listener)
    next_ping(listener)
    assert not listener.news.ended
    listener.pass_interval()
    listener.news.wait()
    assert len(pinged_on(listener.news)) == 1
    (record,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert record.name.startswith("django_mcp") and "did not answer a ping" in record.getMessage()
    assert f"session={Session.objects.get().pk}" in record.getMessage()
    # The session goes on: the client may listen again.
    again = listener.listen()
    again.until(lambda: again.status)
    assert again.status == 200 and listener.request("ping") == {}


def test_error_response_answers_a_ping_of_a_listening_client(listener):
    mute(listener)
    refusal = {"code": -32601, "message": "No."}
    ping = next_ping(listener)
    listener.post({"jsonrpc": "2.0", "id": ping["id"], "error": refusal}).wait()
    next_ping(listener, 2)
    assert not listener.news.ended


def test_ping_cannot_be_answered_by_another_session(listener, http, busy, handshake):
    mute(listener)
    ping = next_ping(listener)
    other = http(server=busy, revision=handshake)
    for id in (ping["id"], "ping-x", "ping-", ping["id"] + "0"):
        other.post({"jsonrpc": "2.0", "id": id, "result": {}}).wait()
    listener.pass_interval()
    listener.news.wait()


def test_stream_of_a_call_contains_no_pings(listener, busy):
    """What is sent there SHOULD relate to the request (basic/transports)."""
    call = listener.start("tools/call", name="rest")
    call.until(lambda: call.messages)
    next_ping(listener)
    busy._go.set()
    assert pinged_on(call.wait()) == []


@pytest.mark.parametrize("interval", [0, None])
def test_pings_can_be_turned_off(listener, settings, interval):
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"PING_INTERVAL": interval}
    assert ping_timer._create()._period() == 0


def test_ping_interval_is_a_setting(http, busy, settings, db):
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"PING_INTERVAL": 0.01}
    client = http(server=busy, revision="2025-11-25")
    news = client.listen()
    news.until(lambda: pinged_on(news))
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"PING_INTERVAL": 3600}
    assert DEFAULTS["PING_INTERVAL"] >= 60  # "Excessive pinging SHOULD be avoided"
