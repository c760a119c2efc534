"""The initialize handshake: order of messages, negotiation, and timeouts."""

from __future__ import annotations

import time

import pytest

import django_mcp as mcp
from django_mcp.changes.api import notify_list_changed
from django_mcp.protocol.revisions import LATEST_HANDSHAKE, REVISIONS

from .helpers import error_member, replies_to, response_to, run_until

pytestmark = pytest.mark.django_db
ROOTS = {"roots/list": lambda params: {"roots": [{"uri": "file:///home"}]}}


@pytest.fixture
def asking(server):
    """A server with a tool that asks, and says what came of it."""
    server._runs = 0

    @server.tool(permission=mcp.PUBLIC)
    def places(request: mcp.Request, seconds: float | None = None) -> str:
        server._runs += 1
        try:
            return " ".join(root.uri for root in request.roots(timeout=seconds))
        except mcp.TimedOut:
            return "nobody answered"

    @server.tool(permission=mcp.PUBLIC)
    def add(request: mcp.Request, a: int, b: int) -> int:
        request.progress(1, 2, "adding")
        return a + b

    return server


@pytest.fixture
def impatient(settings):
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"QUESTION_TIMEOUT": 0.05}


def hello(client, version):
    given = {
        "protocolVersion": version,
        "capabilities": client.capabilities,
        "clientInfo": {"name": "x", "version": "1"},
    }
    return response_to(client, "initialize", **given)


# The handshake.


def test_only_ping_is_served_before_initialize(connect, handshake, asking):
    client = connect(server=asking, revision=handshake, initialize=False)
    for method in ("tools/list", "tools/call", "resources/read", "logging/setLevel"):
        assert error_member(client, method, name="add", arguments={})["code"] == -32600
    client.notify("notifications/initialized")
    assert error_member(client, "tools/call", name="places")["code"] == -32600
    assert asking._runs == 0
    assert client.request("ping") == {}
    client.initialize()
    assert client.text("add", a=1, b=2) == "3"


def test_initialize_returns_version_capabilities_and_server_info(connect, handshake):
    client = connect(revision=handshake)
    result = client.received[0]["result"]
    assert result["serverInfo"]["name"] == "tests" and result["serverInfo"]["version"] == "1.0"
    assert result["protocolVersion"] == handshake
    assert {"tools", "prompts", "resources", "logging"} <= result["capabilities"].keys()
    assert result["instructions"] == "Ask for invoices."


def test_server_sends_no_requests_before_the_initialized_notification(
    connect, handshake, asking, committed
):
    client = connect(server=asking, revision=handshake, initialize=False, answers=ROOTS)
    hello(client, handshake)
    call = client.start("tools/call", name="places")
    run_until(client, lambda: asking._runs)
    with committed:
        notify_list_changed(server=asking)
    client.settle()
    assert client.asked == [] and client.notes == []
    client.notify("notifications/initialized")
    assert client.wait(call)["result"]["content"][0]["text"] == "file:///home"
    assert [asked["method"] for asked in client.asked] == ["roots/list"]


def test_supported_revision_is_accepted(connect, handshake):
    client = connect(revision=handshake, initialize=False)
    assert hello(client, handshake)["result"]["protocolVersion"] == handshake
    assert str(client.conversation.connection.revision) == handshake


@pytest.mark.parametrize("version", ["1999-01-01", "2099-12-31", "2026-07-28", "", "latest"])
def test_unsupported_revision_is_answered_with_the_latest_handshake_revision(connect, version):
    client = connect(revision=LATEST_HANDSHAKE.name, initialize=False)
    assert hello(client, version)["result"]["protocolVersion"] == "2025-11-25"
    client.notify("notifications/initialized")
    assert client.text("add", a=1) == "2"


def test_negotiated_revision_is_used(connect, handshake, asking):
    client = connect(server=asking, revision=handshake)
    token = {"progressToken": "t"}
    result = client.request("tools/call", name="add", arguments={"a": 1, "b": 2}, _meta=token)
    revision = REVISIONS[handshake]
    assert ("structuredContent" in result) is revision.structured_content
    (progress,) = client.notes
    assert ("message" in progress["params"]) is (handshake != "2024-11-05")
    assert "resultType" not in result
    (add,) = [tool for tool in client.request("tools/list")["tools"] if tool["name"] == "add"]
    assert ("outputSchema" in add) is revision.structured_content


def test_only_capabilities_declared_by_both_sides_are_used(connect, handshake, asking, committed):
    client = connect(server=asking, revision=handshake, capabilities={})
    assert "does not support roots" in client.failure("places")
    assert client.asked == []
    assert "prompts" not in client.received[0]["result"]["capabilities"]
    with committed:
        notify_list_changed(server=asking)
    client.until(lambda: client.notes)
    client.settle()
    assert [note["method"] for note in client.notes] == ["notifications/tools/list_changed"]
    assert error_member(client, "prompts/list")["code"] == -32601
    assert error_member(client, "resources/subscribe", uri="x://y")["code"] == -32601


def test_failed_initialize_may_be_repeated(connect, handshake, asking):
    client = connect(server=asking, revision=handshake, initialize=False, capabilities={})
    valid = {"capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    for version in (None, 7, {}):
        assert (
            error_member(client, "initialize", protocolVersion=version, **valid)["code"] == -32602
        )
    missing = error_member(
        client, "initialize", protocolVersion=handshake, capabilities=[], clientInfo={}
    )
    assert missing["code"] == -32602
    client.initialize()
    assert error_member(client, "initialize", protocolVersion=handshake)["code"] == -32600
    assert "roots" in client.failure("places")
    assert client.text("add", a=1, b=2) == "3"


# Waiting.


def test_questions_and_pings_time_out(connect, handshake, asking, impatient):
    client = connect(server=asking, revision=handshake)
    assert client.text("places") == "nobody answered"
    assert client._run(client.conversation.ping(seconds=5))  # answered
    client._reply = lambda message: None  # the client falls silent
    assert not client._run(client.conversation.ping(seconds=0.05))


def test_question_to_an_uninitialized_client_times_out(connect, handshake, asking, impatient):
    client = connect(server=asking, revision=handshake, initialize=False, answers=ROOTS)
    hello(client, handshake)
    assert client.text("places") == "nobody answered"
    assert client.asked == [] and client.notes == []


def test_timed_out_question_is_cancelled(connect, handshake, asking, impatient):
    client = connect(server=asking, revision=handshake)
    assert client.text("places") == "nobody answered"
    (asked,) = client.asked
    (cancelled,) = client.notes
    assert cancelled["method"] == "notifications/cancelled"
    assert cancelled["params"]["requestId"] == asked["id"]
    late = {"jsonrpc": "2.0", "id": asked["id"], "result": ROOTS["roots/list"]({})}
    assert replies_to(client, late) == []
    assert asking._runs == 2  # the question, and its end


def test_question_may_set_its_own_timeout(connect, handshake, asking):
    client = connect(server=asking, revision=handshake)
    assert client.text("places", seconds=0.05) == "nobody answered"
    with_time = client.start("tools/call", name="places", arguments={"seconds": 30})
    client.until(lambda: len(client.asked) == 2)
    client.answers = ROOTS
    client._reply(client.asked[1])
    assert client.wait(with_time)["result"]["content"][0]["text"] == "file:///home"


def test_progress_does_not_extend_the_timeout(connect, handshake, asking, impatient):
    client = connect(server=asking, revision=handshake)
    call = client.start("tools/call", name="places")
    client.until(lambda: client.asked)
    token, step, began = client.asked[0]["id"], 0, time.monotonic()
    while not (answered := [one for one in client.received if one.get("id") == call]):
        assert time.monotonic() - began < 20  # 400 times the deadline
        client.notify("notifications/progress", progressToken=token, progress=step)
        client.settle()
        step += 1
    assert answered[0]["result"]["content"][0]["text"] == "nobody answered"
