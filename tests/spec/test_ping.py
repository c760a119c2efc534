"""Ping, either way: answered at once, and what it means when it is not."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

import django_mcp as mcp

from .seen import refusal
from .talk import said

pytestmark = pytest.mark.django_db


@pytest.fixture
def busy(server):
    """A server with a tool that waits until the test lets it go on."""
    server.go = threading.Event()

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    def wait(request: mcp.Request) -> str:
        while not (server.go.wait(0.01) or request.cancelled):
            pass
        return "done"

    yield server
    server.go.set()


def test_a_ping_is_answered_at_once_with_nothing(connect, busy, handshake):
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
    busy.go.set()
    assert client.wait(call)["result"]["content"][0]["text"] == "done"


def test_the_newest_revision_has_no_ping(connect, busy):
    assert refusal(connect(server=busy), "ping").code == -32601


def mute(client):
    """Let the client answer nothing."""
    client._reply = lambda message: None
    return client


def pinged(client, seconds):
    """What a ping finds, and how long that took."""
    before = time.monotonic()
    found = client._run(client.conversation.ping(seconds))
    return found, time.monotonic() - before


def test_a_ping_waits_as_long_as_its_transport_says(connect, busy, handshake):
    client = connect(server=busy, revision=handshake)
    client.settle()
    found, took = pinged(client, 60)
    assert found and took < 50  # for no longer than it needs
    (ping,) = client.asked
    assert ping == {"jsonrpc": "2.0", "id": ping["id"], "method": "ping"}
    for seconds in (0.02, 0.2):
        found, took = pinged(mute(client), seconds)
        assert not found and seconds * 0.9 <= took < 50


def test_an_unanswered_ping_is_a_failure_and_is_logged(connect, busy, handshake, caplog):
    client = mute(connect(server=busy, revision=handshake))
    client.settle()
    assert not pinged(client, 0.02)[0]
    (record,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert record.name == "django_mcp" and "ping" in record.getMessage()
    late = {"jsonrpc": "2.0", "id": client.asked[-1]["id"], "result": {}}
    assert said(client, late) == []  # it failed, and stays failed
    assert not pinged(client, 0.02)[0]
    client._reply = type(client)._reply.__get__(client)
    assert pinged(client, 60)[0]  # the next is asked anew


def test_an_error_is_an_answer_too(connect, busy, handshake):
    answers = {"ping": lambda params: {"code": -32601, "message": "No."}}
    client = connect(server=busy, revision=handshake, answers=answers)
    client.settle()
    assert pinged(client, 60)[0]  # somebody is there


def test_a_connection_that_answers_no_ping_may_be_ended(connect, busy, handshake):
    """As a transport would: whoever does not answer is let go, and what they began stops."""
    client = mute(connect(server=busy, revision=handshake))
    call = client.start("tools/call", name="wait")

    async def care() -> None:
        missed = 0
        while missed < 2:
            missed += not await client.conversation.ping(0.02)
        await asyncio.wait_for(client.conversation.close(), 60)

    client._run(care())
    assert all(message.get("id") != call for message in client.received)
    assert refusal(client, "ping").code == -32600
    again = connect(server=busy, revision=handshake)  # and is welcome to come back
    assert again.request("ping") == {}
