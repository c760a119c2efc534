"""JSON-RPC requests, responses, notifications, errors and batches."""

from __future__ import annotations

import re
from typing import Annotated

import pytest
from django.test import override_settings

import django_mcp as mcp
from django_mcp.protocol.jsonrpc import ProtocolError
from django_mcp.protocol.revisions import REVISIONS

from .helpers import NEWEST_CODES, error_member, is_response, replies_to, response_to, to_json

pytestmark = pytest.mark.django_db

YES = {"elicitation/create": lambda params: {"action": "accept", "content": {"answer": True}}}


@pytest.fixture
def busy(server):
    """A server with a tool for every way to answer."""

    @server.tool(permission=mcp.PUBLIC)
    async def speak(request: mcp.Request) -> str:
        await request.aprogress(1, 2, "half")
        await request.alog("error", {"at": 1})
        return "ünïcödé ☃"

    @server.tool(permission=mcp.PUBLIC)
    def ask(request: mcp.Request) -> bool:
        return request.elicit("Sure?")

    @server.tool(permission=mcp.PUBLIC)
    def disguise(request: mcp.Request) -> dict[str, str]:
        return {"resultType": "task", "jsonrpc": "1.0"}

    @server.tool(permission=mcp.PUBLIC)
    def refuse(request: mcp.Request, code: int = 7) -> str:
        raise mcp.ProtocolError("Not so", code=code, data={"inner": [1, {"deep": None}]})

    @server.prompt(permission=mcp.PUBLIC)
    def broken(request: mcp.Request) -> str:
        raise RuntimeError("the password is hunter2")

    @server.prompt(permission=mcp.PUBLIC)
    def strict(
        request: mcp.Request, number: int, other: Annotated[int, mcp.Complete(["1"])]
    ) -> str:
        return f"{number} {other}"

    @server.resource("busy://bee", permission=mcp.PUBLIC)
    def bee(request: mcp.Request) -> str:
        return "buzz"

    return server


def asks(revision):
    return "elicitation/create" in REVISIONS[revision].asks


def converse(client, revision):
    """Say a bit of everything."""
    client.log_level = "debug"
    response_to(client, "tools/list")
    response_to(client, "tools/call", name="speak", _meta={"progressToken": "p"})
    response_to(client, "tools/call", name="disguise")
    if asks(revision):
        assert client.text("ask") == "true"
    response_to(client, "tools/call", name="refuse")
    response_to(client, "no/such/method")


def test_every_sent_message_is_valid_json_rpc(connect, revision, busy):
    client = connect(server=busy, revision=revision, answers=YES)
    converse(client, revision)
    kinds = set()
    for message in client.received:
        assert isinstance(message, dict) and message["jsonrpc"] == "2.0"
        kind = [name for name in ("method", "result", "error") if name in message]
        assert len(kind) == 1
        kinds.add(kind[0])
        if kind == ["method"]:
            notification = message["method"].startswith("notifications/")
            assert ("id" in message) is not notification
        else:
            assert "id" in message and isinstance(message[kind[0]], dict)
    assert kinds == {"method", "result", "error"}


def test_result_type_is_sent_in_revisions_that_define_it(connect, revision, busy):
    client = connect(server=busy, revision=revision)
    converse(connect(server=busy, revision=revision, answers=YES), revision)
    shown = response_to(client, "tools/call", name="disguise")["result"]
    if asks(revision) and not REVISIONS[revision].handshake:
        asked = response_to(client, "tools/call", name="ask")["result"]
        assert asked["resultType"] == "input_required"
        response_to(client, "server/discover")
    results = [message["result"] for message in client.received if "result" in message]
    types = {result.get("resultType") for result in results}
    if REVISIONS[revision].handshake:
        assert types == {None}
    else:
        assert types == {"complete", "input_required"}
        assert shown["resultType"] == "complete"
    # What a tool returns is its own affair, and never taken for the protocol's.
    assert '"resultType": "task"' in shown["content"][0]["text"]


def test_response_has_the_exact_id_of_its_request(connect, revision, busy):
    client = connect(server=busy, revision=revision)
    ids = ["1", 1, "", 0, -7, 2**53, "ü\n☃", "null"]
    started = [client.start("tools/call", id=id, name="disguise") for id in ids]
    for id in started:
        response = client.wait(id)
        assert response["id"] == id and type(response["id"]) is type(id)
    came = [message["id"] for message in client.received[-len(ids) :]]
    assert sorted(map(repr, came)) == sorted(map(repr, ids))


@pytest.mark.parametrize("id", [None, 1.5, True, {}, [1]], ids=repr)
def test_request_with_an_invalid_id_is_rejected(connect, revision, busy, id):
    client = connect(server=busy, revision=revision)
    message = client.message("tools/call", {"name": "disguise"}, id=99)
    (response,) = replies_to(client, message | {"id": id})
    assert response["error"]["code"] == -32600
    assert response.get("id") is None
    assert "result" not in response
    if not REVISIONS[revision].null_ids:
        assert "id" not in response


def test_ids_of_server_requests_are_unique(connect, handshake, server):
    @server.tool(permission=mcp.PUBLIC)
    def places(request: mcp.Request) -> int:
        return len(request.roots())

    answers = {"roots/list": lambda params: {"roots": []}}
    client = connect(server=server, revision=handshake, answers=answers)
    for _ in range(5):
        assert client.text("places") == "0"
        assert client._run(client.conversation.ping())
    assert [asked["method"] for asked in client.asked].count("ping") == 5
    assert len({asked["id"] for asked in client.asked}) == len(client.asked) == 10


def test_base_protocol_works_in_every_revision(connect, revision, busy):
    client = connect(server=busy, revision=revision, answers=YES)
    if REVISIONS[revision].handshake:
        assert client.received[0]["result"]["protocolVersion"] == revision
        assert client.request("ping") == {}
    else:
        assert revision in client.request("server/discover")["supportedVersions"]
    assert client.text("speak") == "ünïcödé ☃"
    if asks(revision):
        assert client.text("ask") == "true"


FEATURES = {
    "tools": ["tools/list", "tools/call"],
    "prompts": ["prompts/list", "prompts/get"],
    "resources": ["resources/list", "resources/read", "resources/templates/list"],
    "completions": ["completion/complete"],
}


def test_methods_of_undeclared_capabilities_are_not_found(connect, revision, server):
    client = connect(server=server, revision=revision)
    if REVISIONS[revision].handshake:
        declared = client.received[0]["result"]["capabilities"]
    else:
        declared = client.request("server/discover")["capabilities"]
    assert declared.keys().isdisjoint(FEATURES)
    for method in [method for methods in FEATURES.values() for method in methods]:
        refused = error_member(client, method, name="x", uri="x://y")
        assert refused["code"] == -32601


# Errors.


def provoke(client, revision):
    """Every error that a single request can be answered with, by what was wrong."""
    wrong = {
        "method": error_member(client, "no/such/" + "x" * 10_000),
        "tool": error_member(client, "tools/call", name="y" * 10_000),
        "nameless": error_member(client, "tools/call"),
        "arguments": error_member(client, "tools/call", name="speak", arguments=[1]),
        "own": error_member(client, "tools/call", name="refuse"),
        "reserved": response_to(client, "tools/call", name="refuse", arguments={"code": -32001}),
        "prompt": error_member(client, "prompts/get", name="nothing"),
        "values": error_member(client, "prompts/get", name="strict", arguments={"number": "x"}),
        "bug": error_member(client, "prompts/get", name="broken"),
        "resource": error_member(client, "resources/read", uri="nothing://x"),
        "cursor": error_member(client, "tools/list", cursor="forged"),
        "completion": error_member(client, "completion/complete", ref={"type": "ref/prompt"}),
    }
    if REVISIONS[revision].handshake:
        wrong["again"] = error_member(client, "initialize", protocolVersion=revision)
        wrong["level"] = error_member(client, "logging/setLevel", level="loud")
    else:
        wrong |= provoke_newest(client)
    return wrong


def provoke_newest(client):
    capability = {"io.modelcontextprotocol/clientCapabilities": {}}
    version = {"io.modelcontextprotocol/protocolVersion": "1900-01-01"}
    (bare,) = replies_to(client, {"jsonrpc": "2.0", "id": 1000, "method": "tools/list"})
    return {
        "capability": error_member(client, "tools/call", name="ask", _meta=capability),
        "version": error_member(client, "tools/list", _meta=version),
        "bare": bare["error"],
        "state": error_member(client, "tools/call", name="ask", requestState="forged"),
        "listen": error_member(client, "subscriptions/listen", notifications=1),
    }


def codes(wrong):
    return {name: found["code"] for name, found in wrong.items() if "code" in found}


def test_errors_have_an_integer_code_and_a_one_sentence_message(connect, revision, busy):
    wrong = provoke(connect(server=busy, revision=revision), revision)
    for name, found in wrong.items():
        if name == "reserved":
            continue
        assert type(found["code"]) is int
        assert 0 < len(found["message"]) <= 300
        assert re.search(r"\n|[.!?]\s+\S", found["message"]) is None


def test_errors_contain_their_data(connect, revision, busy):
    wrong = provoke(connect(server=busy, revision=revision), revision)
    assert wrong["own"]["data"] == {"inner": [1, {"deep": None}]}
    assert wrong["resource"]["data"] == {"uri": "nothing://x"}
    assert "hunter2" not in str(wrong)
    if not REVISIONS[revision].handshake:
        needed = {"elicitation": {"form": {}}}
        assert wrong["capability"]["data"] == {"requiredCapabilities": needed}
        assert wrong["version"]["data"]["requested"] == "1900-01-01"
        assert wrong["version"]["data"]["supported"] == list(REVISIONS)[::-1]


def test_error_contains_the_request_id_if_readable(connect, revision, busy):
    client = connect(server=busy, revision=revision)
    for broken in (
        {"jsonrpc": "1.0", "method": "tools/list"},
        {"jsonrpc": "2.0", "method": 7},
        {"jsonrpc": "2.0", "method": "tools/list", "params": [1]},
        {"jsonrpc": "2.0", "method": "tools/list", "result": {}},
    ):
        for id in ("a", 5):
            (response,) = replies_to(client, broken | {"id": id})
            assert response["id"] == id and response["error"]["code"] == -32600
    (response,) = replies_to(client, b'{"jsonrpc": "2.0", "id": 5, "method": ')
    assert response.get("id") is None and response["error"]["code"] == -32700


def test_newest_revision_sends_only_defined_error_codes(connect, busy):
    client = connect(server=busy)
    found = codes(provoke(client, client.revision.name))
    assert found == {
        "method": -32601, "tool": -32602, "nameless": -32602, "arguments": -32602, "own": 7,
        "prompt": -32602, "values": -32602, "bug": -32603, "resource": -32602, "cursor": -32602,
        "completion": -32602, "capability": -32021, "version": -32022, "bare": found["bare"],
        "state": -32602, "listen": -32602,
    }  # fmt: skip
    assert {code for code in found.values() if code <= -32000} <= NEWEST_CODES


def test_newest_revision_sends_no_retired_error_codes(connect, busy):
    @busy.tool(permission=mcp.PUBLIC)
    def visit(request: mcp.Request) -> str:
        raise mcp.UrlRequired("Sign in first.", "https://shop.example/in")

    client = connect(server=busy)
    assert error_member(client, "resources/read", uri="nothing://x")["code"] == -32602
    asked = response_to(client, "tools/call", name="visit")
    assert asked["result"]["resultType"] == "input_required"
    told = connect(server=busy, capabilities={}).call("visit")
    assert told["isError"]


RESERVED = [-32768, -32700 + 1, -32099, -32042, -32021, -32020, -32019, -32002, -32001, -32000]


@pytest.mark.parametrize("code", RESERVED)
def test_project_cannot_use_reserved_error_codes(connect, busy, code):
    with pytest.raises(ValueError, match="reserved"):
        ProtocolError("Mine", code=code)
    with pytest.raises(ValueError, match="reserved"):
        type("Mine", (mcp.ProtocolError,), {"code": code})
    result = connect(server=busy).call("refuse", code=code)
    assert result["isError"] and str(code) not in str(result)


@pytest.mark.parametrize("code", ["1", 1.0, True, None], ids=repr)
def test_project_error_code_must_be_an_integer(code):
    if code is not None:
        with pytest.raises(TypeError, match="integer"):
            ProtocolError("Mine", code=code)
    with pytest.raises(TypeError, match="integer"):
        type("Mine", (mcp.ProtocolError,), {"code": code})


def test_project_may_use_its_own_error_codes(connect, revision, busy):
    class Mine(mcp.ProtocolError):
        code = 4712

    @busy.tool(permission=mcp.PUBLIC)
    def mine(request: mcp.Request) -> str:
        raise Mine("Closed on Sundays")

    client = connect(server=busy, revision=revision)
    assert error_member(client, "tools/call", name="mine") == {
        "code": 4712,
        "message": "Closed on Sundays",
    }
    assert error_member(client, "tools/call", name="refuse")["code"] == 7


def test_error_data_that_is_not_json_becomes_an_internal_error(connect, revision, busy):
    @busy.tool(permission=mcp.PUBLIC)
    def odd(request: mcp.Request) -> str:
        raise mcp.ProtocolError("Odd", code=1, data={"object": object()})

    client = connect(server=busy, revision=revision)
    assert error_member(client, "tools/call", name="odd")["code"] == -32603
    assert client.text("speak")


@pytest.mark.parametrize("code", [-32000, -32001, -32002, -32021, -32042, -32603, 5])
def test_error_codes_of_the_client_have_no_meaning(connect, code, server):
    @server.tool(permission=mcp.PUBLIC)
    def places(request: mcp.Request) -> str:
        try:
            return str(request.roots())
        except mcp.ClientError as failed:
            return f"{failed.code} {failed}"

    answers = {"roots/list": lambda params: {"code": code, "message": "No."}}
    client = connect(server=server, revision="2025-11-25", answers=answers)
    assert client.text("places") == f"{code} No."


# Notifications.


@pytest.mark.parametrize(
    "notification",
    [
        {"method": "notifications/nothing"},
        {"method": "tools/list"},
        {"method": "tools/call", "params": {"name": "speak"}},
        {"method": "notifications/cancelled"},
        {"method": "notifications/progress", "params": {"progressToken": 1}},
        {"method": "notifications/initialized", "params": [1]},
        {"method": 7},
        {"method": "notifications/cancelled", "params": {"requestId": {}}, "jsonrpc": "1.0"},
    ],
    ids=str,
)
def test_notification_is_never_answered(connect, revision, busy, notification):
    client = connect(server=busy, revision=revision)
    assert replies_to(client, {"jsonrpc": "2.0"} | notification) == []
    assert client.text("speak")
    assert [m for m in client.received if is_response(m) and m.get("id") is None] == []


# Batches.


def test_batch_is_answered_in_2025_03_26(connect, busy):
    client = connect(server=busy, revision="2025-03-26")
    one = client.message("ping", {})
    two = client.message("tools/call", {"name": "speak"})
    three = client.message("no/such", {})
    silent = {"jsonrpc": "2.0", "method": "notifications/nothing"}
    client.send([one, silent, two, three])
    client.until(lambda: isinstance(client.received[-1], list))
    answers = {message["id"]: message for message in client.received[-1]}
    assert answers.keys() == {one["id"], two["id"], three["id"]}
    assert answers[one["id"]]["result"] == {}
    assert answers[three["id"]]["error"]["code"] == -32601
    assert replies_to(client, [silent]) == []


@pytest.mark.parametrize("other", sorted(REVISIONS.keys() - {"2025-03-26"}))
def test_batch_is_rejected_in_other_revisions(connect, busy, other):
    client = connect(server=busy, revision=other)
    (refused,) = replies_to(client, [client.message("tools/call", {"name": "speak"})])
    assert refused["error"]["code"] == -32600 and refused.get("id") is None
    client.settle()
    assert client.received[-1] is refused


def test_batch_with_initialize_is_rejected(connect, busy):
    given = {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {}}
    new = connect(server=busy, revision="2025-11-25", initialize=False)
    hello = new.message("initialize", given)
    (refused,) = replies_to(new, [hello, new.message("ping", {})])
    assert refused["error"]["code"] == -32600
    assert new.initialize()
    client = connect(server=busy, revision="2025-03-26")
    (refused,) = replies_to(client, [client.message("ping", {}), hello])
    assert refused["error"]["code"] == -32600
    assert client.request("ping") == {}


# Bytes.


def test_messages_must_be_utf_8(connect, revision, busy):
    @busy.tool(permission=mcp.PUBLIC)
    def echo(request: mcp.Request, text: str) -> str:
        return text

    client = connect(server=busy, revision=revision)
    message = client.message("tools/call", {"name": "echo", "arguments": {"text": "ÿ☃𝄞"}})
    client.send(to_json(message).encode())
    assert client.wait(message["id"])["result"]["content"][0]["text"] == "ÿ☃𝄞"
    for encoding in ("latin-1", "utf-16"):
        again = client.message("tools/call", {"name": "echo", "arguments": {"text": "ÿ"}})
        (refused,) = replies_to(client, to_json(again).encode(encoding))
        assert refused["error"]["code"] == -32700


@override_settings(DEBUG=True)
def test_error_message_under_debug_is_one_line(connect, busy):
    @busy.prompt(permission=mcp.PUBLIC)
    def lines(request: mcp.Request) -> str:
        raise RuntimeError("one\ntwo")

    found = error_member(connect(server=busy), "prompts/get", name="lines")
    assert found["message"] == "RuntimeError: one two"
