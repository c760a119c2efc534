"""The endpoint itself, in every revision; and streams in the newest, where a call is its request.

What holds for sessions alone is in `test_http_sessions.py` and `test_http_streams.py`.
"""

from __future__ import annotations

from typing import Any

import pytest

import django_mcp as mcp
from django_mcp.models import Token
from django_mcp.protocol.revisions import LATEST, REVISIONS

pytestmark = pytest.mark.django_db
FOREIGN = ("https://evil.example", "http://testserver.evil.example", "null", "file://", "http://")


@pytest.fixture
def private(server: Any) -> Any:
    """A server whose one tool is for users, and tells who is calling."""

    @server.tool
    def me(request: mcp.Request) -> str:
        return str(request.user.get_username())

    return server


@pytest.fixture
def public(server: Any) -> Any:
    """A server whose tools are for everybody."""

    @server.tool(permission=mcp.PUBLIC)
    async def ask(request: mcp.Request) -> str:
        await request.aprogress(1, 2)
        return (await request.asample("?", max_tokens=5)).text

    @server.tool(permission=mcp.PUBLIC)
    async def change(request: mcp.Request) -> str:
        mcp.notify_list_changed("tools", server=server)
        await request.aprogress(1, 2)
        return "changed"

    return server


def test_one_path_accepts_all_messages_and_streams(http, revision):
    client = http(revision=revision)
    found = {client.path}
    assert client.request("tools/list")["tools"]
    if REVISIONS[revision].handshake:
        exchange = client.listen()
        assert exchange.until(lambda: exchange.status) == 200
    else:
        exchange = client.start("subscriptions/listen", notifications={"toolsListChanged": True})
        assert exchange.until(lambda: exchange.messages)
    assert {exchange.scope["path"] for exchange in client.exchanges} == found


@pytest.mark.parametrize("origin", FOREIGN)
@pytest.mark.parametrize("method", ["POST", "GET", "DELETE", "OPTIONS"])
def test_foreign_origin_gets_403_for_every_method(http, revision, method, origin):
    client = http(revision=revision)
    headers = client.headers(client.message("tools/list", {}), origin=origin)
    exchange = client.send(method, client.path, b"{}", headers)
    assert exchange.status == 403 and "access-control-allow-origin" not in exchange.headers
    assert all("id" not in message for message in exchange.messages)
    assert client.request("tools/list"), "nothing came of it"


def test_own_origin_is_served(http, revision):
    assert http(revision=revision, more={"origin": "http://testserver"}).request("tools/list")


def test_every_request_must_contain_the_token(http, revision, private, alice):
    """The session id does not authenticate the caller."""
    token = Token.make(alice, "x")[1]
    client = http(token, revision=revision, server=private)
    assert client.text("me") == "alice"
    listening = client.listen(authorization=None).wait().status
    assert listening == (401 if REVISIONS[revision].handshake else 405)
    for wrong in (None, "Bearer wrong", f"Bearer {token}x"):
        message = client.message("tools/call", {"name": "me", "arguments": {}})
        exchange = client.post(message, authorization=wrong).wait()
        assert exchange.status == 401 and exchange.headers["www-authenticate"].startswith("Bearer ")
    assert client.text("me") == "alice"


def test_user_is_identified_by_the_token_only(http, revision, private, alice, bob):
    """Neither claims of the client nor headers of a proxy count."""
    words = {"user": "alice", "sub": "alice", "username": "alice"}
    client = http(Token.make(bob, "x")[1], revision=revision, server=private)
    client.more = {"remote-user": "alice", "x-forwarded-user": "alice", "from": "alice"}
    call = {"name": "me", "arguments": {}, "_meta": words}
    assert client.request("tools/call", **call)["content"][0]["text"] == "bob"


def test_request_is_answered_as_json_or_as_a_stream(http, revision, public):
    client = http(revision=revision, server=public)
    token = {"_meta": {"progressToken": 1}}
    plain = client.start("tools/list").wait()
    told = client.start("tools/call", name="change", arguments={}, **token).wait()
    assert plain.headers["content-type"] == "application/json" and len(plain.messages) == 1
    assert told.headers["content-type"] == "text/event-stream"
    assert told.headers["x-accel-buffering"] == "no"
    assert "result" in told.messages[-1] and told.ended


def test_newest_revision_sends_no_requests_on_a_stream(http, public):
    client = http(server=public)
    token = {"_meta": {"progressToken": 1}}
    exchange = client.start("tools/call", name="ask", arguments={}, **token).wait()
    methods = [message.get("method") for message in exchange.messages]
    assert methods == ["notifications/progress", None]
    (question,) = exchange.messages[-1]["result"]["inputRequests"].values()
    assert question["method"] == "sampling/createMessage" and "id" not in question


def test_stream_of_the_newest_revision_contains_only_its_request(http, public):
    client = http(server=public)
    listening = client.start("subscriptions/listen", notifications={"toolsListChanged": True})
    listening.until(lambda: listening.messages)
    token = {"_meta": {"progressToken": 7}}
    exchange = client.start("tools/call", name="change", arguments={}, **token).wait()
    listening.until(lambda: len(listening.messages) == 2)
    said = [message.get("method") for message in exchange.messages]
    assert said == ["notifications/progress", None]
    assert exchange.messages[0]["params"]["progressToken"] == 7
    heard = [message["method"].rpartition("/")[2] for message in listening.messages]
    assert heard == ["acknowledged", "list_changed"]


@pytest.mark.parametrize("revision", [LATEST.name])
def test_newest_revision_ignores_or_rejects_session_features(http, revision):
    client = http(revision=revision)
    headers = {"accept": "text/event-stream", "mcp-protocol-version": revision}
    assert client.send("GET", client.path, headers=headers).status == 405
    assert client.send("DELETE", client.path, headers=headers).status == 405
    exchange = client.start("tools/list").wait()
    again = client.post(
        client.message("tools/list", {}), mcp_session_id="x", last_event_id="1-1"
    ).wait()
    assert again.messages[0]["result"] == exchange.messages[0]["result"]
    assert "mcp-session-id" not in again.headers
