"""Requests without a session: responses, validation, disconnects, overload and listening."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
import time
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

import django_mcp as mcp
from django_mcp.changes.subscriptions import listener_registry
from django_mcp.runtime import threads
from django_mcp.transports.http import stateless
from django_mcp.transports.http.stateless import ListenResponse
from tests.client import PREFIX
from tests.http import BOTH
from tests.shop.models import Company

pytestmark = pytest.mark.django_db
VERSION, CAPABILITIES, INFO = (
    PREFIX + name for name in ("protocolVersion", "clientCapabilities", "clientInfo")
)
STREAM = {
    "content-type": "text/event-stream",
    "cache-control": "no-store, no-transform",
    "x-accel-buffering": "no",
}


@pytest.fixture
def talker(server):
    """A server whose tools send progress and log messages."""

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    def speak(request: mcp.Request, steps: int = 3) -> str:
        for step in range(steps):
            request.progress(step + 1, steps)
            request.log("info", f"step {step + 1}")
        return "spoken"

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    async def aspeak(request: mcp.Request, steps: int = 3) -> str:
        for step in range(steps):
            await request.aprogress(step + 1, steps)
            await asyncio.to_thread(request.log, "info", f"step {step + 1}")
        return "spoken"

    @server.register
    class Region(mcp.Tool):
        permission = mcp.PUBLIC
        read_only = True
        input_schema = {
            "type": "object",
            "properties": {
                "place": {
                    "type": "object",
                    "properties": {"name": {"type": "string", "x-mcp-header": "Region"}},
                },
                "number": {"type": "integer", "x-mcp-header": "Number"},
                "sure": {"type": "boolean", "x-mcp-header": "Sure"},
            },
        }

        def handle(self, request: mcp.Request, **given: Any) -> str:
            return json.dumps(given)

    return server


# Answers.


def test_call_without_messages_is_answered_as_json(http, talker):
    exchange = http(server=talker).start("tools/call", name="speak").wait()
    assert exchange.headers["content-type"] == "application/json"
    assert not exchange.is_stream and len(exchange.messages) == 1


@pytest.mark.parametrize("tool", ["speak", "aspeak"])
def test_call_with_messages_is_answered_as_a_stream(http, talker, tool):
    client = http(server=talker)
    client.log_level = "info"
    token = {"_meta": {"progressToken": "p"}}
    exchange = client.start("tools/call", name=tool, **token).wait()
    assert exchange.status == 200 and exchange.headers == STREAM
    kinds = [m.get("method", "result").rpartition("/")[2] for m in exchange.messages]
    assert kinds == ["progress", "message"] * 3 + ["result"]
    assert [event.id for event in exchange.sse.found] == [None] * 7  # the stream cannot be resumed
    assert not exchange.sse.comments


def test_messages_are_sent_only_if_requested(http, talker):
    """Without progress token and log level there are no messages, and so no stream."""
    client = http(server=talker)
    client.log_level = "error"
    assert not client.start("tools/call", name="speak").wait().is_stream


def test_question_is_asked_by_an_input_required_result(http):
    client = http()
    exchange = client.start("tools/call", name="introduce").wait()
    assert (
        exchange.messages[0]["result"]["resultType"] == "input_required" and exchange.status == 200
    )
    client.answers = {
        "elicitation/create": lambda asked: {
            "action": "accept", "content": {"name": "Bo", "age": 7}
        },
        "sampling/createMessage": lambda asked: {
            "role": "assistant", "content": {"type": "text", "text": "Hi Bo"},
            "model": "m", "stopReason": "endTurn",
        },
    }  # fmt: skip
    assert client.text("introduce") == "Hi Bo"
    assert all(
        "method" not in message for exchange in client.exchanges for message in exchange.messages
    )


@pytest.mark.parametrize("id", [0, -1, 2**53, "", "1", "\u2603", "x" * 100, "a\nb"])
def test_response_has_the_id_of_its_request(http, id):
    client = http()
    for method, params, status in (
        ("tools/list", {}, 200), ("unknown/method", {}, 404), ("tools/call", {"name": "x"}, 401),
        ("resources/read", {}, 400),
    ):  # fmt: skip
        exchange = client.start(method, id=id, **params).wait()
        assert (exchange.status, exchange.messages[0]["id"]) == (status, id)
    wrong = without(client.message("tools/list", {}, id=id), VERSION)
    assert client.post(wrong).wait().messages[0]["id"] == id


def test_concurrent_requests_with_equal_ids_are_independent(http, talker):
    """Many requests with the same id run at the same time."""
    client = http(server=talker)
    exchanges = [
        client.start("tools/call", id=1, name="speak", arguments={"steps": steps},
                     _meta={"progressToken": "p"})
        for steps in range(1, 20)
    ]  # fmt: skip
    for steps, exchange in enumerate(exchanges, 1):
        said = [m["params"]["total"] for m in exchange.wait().messages[:-1]]
        assert said == [steps] * steps


# Validation.


def changed(message, *path, **values):
    """Return a copy of a message with values at a path set, or removed if ``None``."""
    copy = json.loads(json.dumps(message))
    place = copy
    for step in path:
        place = place[step]
    for name, value in values.items():
        if value is None:
            place.pop(name, None)
        else:
            place[name] = value
    return copy


def without(message, key):
    copy = json.loads(json.dumps(message))
    del copy["params"]["_meta"][key]
    return copy


def versioned(message, version):
    copy = json.loads(json.dumps(message))
    copy["params"]["_meta"][VERSION] = version
    return copy


@pytest.mark.parametrize(
    ("raw", "refused"),
    [
        (b"", (400, -32700)),
        (b"{", (400, -32700)),
        (b"\xff\xfe{}", (400, -32700)),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "\xff"}', (400, -32700)),
        (b"[" * 100 + b"]" * 100, (400, -32700)),
        (b'{"a":' * 65 + b"1" + b"}" * 65, (400, -32700)),
        (b'{"a": NaN}', (400, -32700)),
        (b'{"a": 1' + b"0" * 500 + b"}", (400, -32700)),
        (b'{"a": "\\ud800"}', (400, -32700)),
        (b"null", (400, -32600)),
        (b"1", (400, -32600)),
        (b'"x"', (400, -32600)),
        (b"{}", (400, -32600)),
        (b"[]", (400, -32600)),
        (b"[{}]", (400, -32600)),
        (b'[{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}]', (400, -32600)),
        (b'{"jsonrpc": "1.0", "id": 1, "method": "tools/list"}', (400, -32600)),
        (b'{"jsonrpc": "2.0", "id": null, "method": "tools/list"}', (400, -32600)),
        (b'{"jsonrpc": "2.0", "id": 1.5, "method": "tools/list"}', (400, -32600)),
        (b'{"jsonrpc": "2.0", "id": 1, "method": 7}', (400, -32600)),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": []}', (400, -32600)),
        (b'{"jsonrpc": "2.0", "id": 1, "result": {}}', (400, -32600)),
        (b'{"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": ""}}', (400, -32600)),
        (b'{"jsonrpc": "2.0", "method": "notifications/x", "params": 1}', (400, -32600)),
        (b'{"jsonrpc": "2.0", "method": "notifications/x"}', (202, None)),
        (b'{"jsonrpc": "2.0", "method": "notifications/initialized"}', (202, None)),
        (b'{"jsonrpc": "2.0", "method": "notifications/cancelled"}', (202, None)),
        (
            b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}',
            (202, None),
        ),
        (b'\xef\xbb\xbf{"jsonrpc": "2.0", "method": "notifications/x"}', (202, None)),
    ],
)  # fmt: skip
def test_malformed_request_is_rejected(http, raw, refused):
    exchange = http().post(raw, mcp_method=None).wait()
    assert exchange.refused == refused
    assert bool(exchange.body) == (exchange.status != 202)
    if exchange.messages:
        assert exchange.messages[0].get("id") in (None, 1)


@pytest.mark.parametrize(
    "method",
    [
        "initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe",
        "unknown/method", "", "tools/Call", "tools/call ", "rpc.discover", "x" * 10_000,
    ],
)  # fmt: skip
def test_unknown_method_is_404(http, method):
    client = http()
    assert client.refusal(client.message(method, {})) in ((404, -32601), (400, -32020))
    if method.strip() == method != "":
        assert client.refusal(client.message(method, {})) == (404, -32601)


@pytest.mark.parametrize("method", ["no/method", "tasks/get", "ping"])
def test_unknown_method_is_reported_before_its_parameters_are_checked(http, method):
    client = http()
    good = client.message(method, {})
    for message in (
        good, changed(good, params={}), changed(good, params={"_meta": []}),
        without(good, CAPABILITIES), without(good, VERSION), changed(good, "params", taskId=7),
        changed(good, "params", requestState=7),
    ):  # fmt: skip
        assert client.refusal(message) == (404, -32601), message


def test_method_of_a_missing_capability_is_reported_before_its_parameters(http, server):
    """A server without prompts does not support their methods."""
    server.tool(lambda request: "x", name="only", permission=mcp.PUBLIC)
    client = http(server=server)
    good = client.message("prompts/get", {})
    for message in (good, changed(good, params={}), without(good, CAPABILITIES)):
        assert client.refusal(message) == (404, -32601), message
    assert client.refusal(client.message("tools/call", {})) == (400, -32602)


LADDER = {
    # The checks in their order: the expected error, and a function that causes it.
    "token": ((401, -32600), lambda m: (m, {"authorization": "Bearer x"})),
    "accept": ((406, -32600), lambda m: (m, {"accept": "application/json"})),
    "content-type": ((415, -32600), lambda m: (m, {"content_type": "text/plain"})),
    "version": ((400, -32022), lambda m: (versioned(m, "v999"), {"mcp_protocol_version": "v999"})),
    "method": ((404, -32601), lambda m: (changed(m, method="nothing"), None)),
    "missing": ((400, -32602), lambda m: (without(m, CAPABILITIES), {})),
    "mismatch": ((400, -32020), lambda m: (m, {"mcp_method": "tools/lis"})),
}


@pytest.mark.parametrize("first", LADDER)
@pytest.mark.parametrize("second", LADDER)
def test_first_of_two_errors_is_reported(http, first, second):
    client = http()
    message, headers = client.message("tools/list", {}), {}
    for name in dict.fromkeys((second, first)):
        message, more = LADDER[name][1](message)
        more = {"mcp_method": message["method"]} if more is None else more
        headers |= more if name != "method" or "mcp_method" not in headers else {}
    order = list(LADDER)
    expected = LADDER[min(first, second, key=order.index)][0]
    assert client.refusal(message, **headers) == expected


def test_missing_metadata_is_rejected(http):
    client = http()
    message = client.message("server/discover", {})
    for wrong in (
        without(message, VERSION), without(message, CAPABILITIES), versioned(message, 7),
        changed(message, "params", _meta=None), changed(message, params=None),
        changed(message, "params", _meta=[]),
    ):  # fmt: skip
        assert client.refusal(wrong) == (400, -32602)
    assert client.post(without(message, INFO)).wait().status == 200


@pytest.mark.parametrize("version", ["v999.0.0", "2025-11-25", "2026-07-29", "", "2026-07-28 ,x"])
def test_unsupported_version_is_rejected_with_the_supported_ones(http, version):
    client = http()
    message = versioned(client.message("server/discover", {}), version)
    exchange = client.post(message, mcp_protocol_version=version or None).wait()
    assert exchange.refused == (400, -32022)
    data = exchange.error["data"]
    known = client.request("server/discover")["supportedVersions"]
    assert data["requested"] == version and set(data["supported"]) == set(known)
    assert client.refusal(message, mcp_protocol_version="2026-07-28") == (400, -32020)


def test_headers_must_match_the_body(http):
    client = http()
    message = client.message("tools/call", {"name": "add", "arguments": {"a": 1}})
    for wrong in (
        {"mcp_method": None}, {"mcp_method": "tools/list"}, {"mcp_method": "TOOLS/CALL"},
        {"mcp_name": None}, {"mcp_name": "ADD"}, {"mcp_name": "add2"}, {"mcp_name": ""},
        {"mcp_name": "=?base64?YWRk"}, {"mcp_name": "=?base64?!?="}, {"mcp_name": "\xe4"},
        {"mcp_protocol_version": None}, {"mcp_protocol_version": "2025-11-25"},
        {"mcp_protocol_version": "2026-07-28\xa0"}, {"mcp_method": "tools/call\x00"},
    ):  # fmt: skip
        assert client.refusal(message, **wrong) == (400, -32020), wrong
    for right in (
        {"mcp_method": " tools/call\t"}, {"mcp_name": "=?base64?YWRk?="}, {"mcp_name": "add "},
        {"mcp_param_unknown": "x"}, {"last_event_id": "1-1"}, {"mcp_session_id": "x"},
    ):  # fmt: skip
        assert client.post(message, **right).wait().status == 200, right


def test_parameter_headers_must_match_the_arguments(http, talker):
    client = http(server=talker)
    for name in ("eu", "H\xe4mburg \u2603", " padded ", "=?base64?x?=", "a\nb", ""):
        assert json.loads(client.text("region", place={"name": name})) == {"place": {"name": name}}
    given = {"place": {"name": "eu"}, "number": 42, "sure": True}
    message = client.message("tools/call", {"name": "region", "arguments": given})
    for name, wrong in {
        "Region": (None, "us", "EU", "", "=?base64?ZQ==?=", "\xff"),
        "Number": (None, "43", "4_2", "0x2a", "42e0", "\u0664", "4 2", ""),
        "Sure": (None, "True", "1", "yes", "false"),
    }.items():
        for value in wrong:
            encoded = value if value is None else value.encode("utf-8").decode("latin-1")
            changed = {f"mcp-param-{name}": encoded}
            assert client.refusal(message, **changed) == (400, -32020), (name, value)
    assert client.post(message, **{"mcp-param-Number": "42.0"}).wait().status == 200
    lacking = client.message("tools/call", {"name": "region", "arguments": {"number": None}})
    assert client.refusal(lacking, **{"mcp-param-Region": "eu"}) == (400, -32020)
    assert client.refusal(lacking, **{"mcp-param-Number": "42"}) == (400, -32020)


def test_repeated_parameter_header_is_rejected(http, talker):
    client = http(server=talker)
    message = client.message("tools/call", {"name": "region", "arguments": {"number": 42}})
    pairs = [(name.encode(), v.encode()) for name, v in client.headers(message).items() if v]
    raw = json.dumps(message).encode()
    assert client.open("POST", client.path, raw, pairs).wait().status == 200
    pairs.append((b"Mcp-Param-NUMBER", b"42"))
    assert client.open("POST", client.path, raw, pairs).wait().refused == (400, -32020)


def test_missing_client_capability_is_reported(http):
    client = http(capabilities={})
    exchange = client.start("tools/call", name="introduce").wait()
    assert exchange.refused == (400, -32021)
    assert exchange.error["data"]["requiredCapabilities"] == {"elicitation": {"form": {}}}


def test_errors_of_the_call_have_status_200(http):
    client = http()
    for how, code in (("protocol", 4711), ("tool", None), ("bug", None)):
        exchange = client.start("tools/call", name="fail", arguments={"how": how}).wait()
        assert exchange.status == 200
        assert exchange.messages[0].get("error", {}).get("code") == code
    assert client.start("tools/call", name="add", arguments={"a": "x"}).wait().status == 200
    exchange = client.start("resources/read", uri="policy://unknown").wait()
    assert (exchange.status, exchange.error["message"]) == (200, "There is no such policy.")


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_get_and_delete_are_405(http, method):
    client = http()
    for headers in ({"accept": "text/event-stream"}, {"last-event-id": "1-1", "accept": BOTH}, {}):
        exchange = client.send(
            method, "/mcp", headers={"mcp-protocol-version": "2026-07-28"} | headers
        )
        assert exchange.status == 405 and exchange.headers["allow"] == "POST"


def test_result_that_cannot_be_serialized_is_an_error(http, server, monkeypatch, caplog):
    @server.tool(permission=mcp.PUBLIC)
    async def odd(request: mcp.Request, say: bool = False) -> str:
        if say:
            await request.aprogress(1)
        return "x"

    from django_mcp.protocol.connection import Connection

    result = Connection.result
    spoil = lambda self, call, given: result(self, call, given) | {"result": {"x": {1, 2}}}  # noqa: E731
    client = http(server=server)
    monkeypatch.setattr(Connection, "result", spoil)
    plain = client.start("tools/call", name="odd").wait()
    expected = client.start("tools/call", name="odd", arguments={"say": True},
                        _meta={"progressToken": 1}).wait()  # fmt: skip
    for exchange in (plain, expected):
        assert exchange.messages[-1]["error"]["code"] == -32603
        assert exchange.messages[-1]["id"] in (1, 2)
    assert "cannot be encoded" in caplog.text


# Disconnects.


@pytest.fixture
def one_thread(settings):
    """Use one thread for tools, with a queue of the given size."""

    def queue(size):
        threads.tools.shutdown()
        settings.DJANGO_MCP = settings.DJANGO_MCP | {"THREADS": 1, "QUEUE": size}

    yield queue
    threads.tools.shutdown()


@pytest.mark.parametrize("after", [0, 0.06])
@pytest.mark.parametrize("tool", ["plod", "ponder"])
def test_disconnect_cancels_the_call(http, server, work, tool, after):
    client = http(server=server)
    exchange = client.start("tools/call", name=tool)
    client.until(work.begun.is_set)
    client.sleep(after)
    begun = time.monotonic()
    exchange.leave()
    client.until(work.ended.is_set)
    exchange.wait()
    assert time.monotonic() - begun < 20
    assert (exchange.status, exchange.body) == (None, b"")
    assert not Company.objects.filter(name="Half done").exists()


def test_disconnect_frees_the_thread_of_the_call(http, server, work, one_thread):
    one_thread(0)
    client = http(server=server)
    for name in "abc":
        work.begun.clear()
        exchange = client.start("tools/call", name="plod")
        client.until(work.begun.is_set)
        exchange.leave()
        exchange.wait()
        assert client.text("save", name=name) == name
    assert set(Company.objects.values_list("name", flat=True)) == set("abc")
    assert asyncio.all_tasks(client.loop) == set()


def test_disconnect_during_a_stream_cancels_the_call(http, server):
    ended = threading.Event()

    @server.tool(permission=mcp.PUBLIC)
    def babble(request: mcp.Request) -> str:
        try:
            for step in range(100_000):
                request.progress(step)
                time.sleep(0.0005)
        finally:
            ended.set()
        return "never"

    client = http(server=server)
    exchange = client.start("tools/call", name="babble", _meta={"progressToken": "p"})
    client.until(lambda: exchange.messages)
    exchange.leave()
    heard = len(exchange.messages)
    client.until(ended.is_set)
    exchange.wait()
    assert len(exchange.messages) == heard


def test_disconnect_after_the_call_keeps_its_changes(http, server, work):
    """The call has finished, so its changes stay committed."""
    client = http(server=server)
    exchange = client.start("tools/call", name="save", arguments={"name": "kept"})
    exchange.left = True
    exchange.wait()
    assert Company.objects.filter(name="kept").exists()
    assert client.text("save", name="next") == "next"


def test_queued_call_of_a_disconnected_client_never_runs(http, server, work, one_thread):
    one_thread(5)
    client = http(server=server)
    first = client.start("tools/call", name="plod")
    client.until(work.begun.is_set)
    waiting = client.start("tools/call", name="save", arguments={"name": "never"})
    client.sleep(0.05)
    waiting.leave()
    waiting.wait()
    work.go.set()
    first.wait()
    assert work.runs == 1 and not Company.objects.filter(name="never").exists()


def test_tool_that_ignores_cancellation_runs_on_without_a_response(http, server, caplog):
    """A coroutine that ignores its cancellation may run on; its result is dropped."""
    go, begun = asyncio.Event(), threading.Event()

    @server.tool(permission=mcp.PUBLIC)
    async def stubborn(request: mcp.Request) -> str:
        begun.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await go.wait()
        return "here"

    client = http(server=server)
    exchange = client.start("tools/call", name="stubborn")
    client.until(begun.is_set)
    exchange.leave()
    client.sleep(0.02)
    assert not exchange.over
    go.set()
    client.sleep(0)
    exchange.wait()
    assert (exchange.status, exchange.body, caplog.text) == (None, b"", "")


# Overload.


def test_overload_is_rejected_before_the_call_runs(http, server, work, one_thread):
    one_thread(0)
    client = http(server=server)
    first = client.start("tools/call", name="plod")
    client.until(work.begun.is_set)
    for _ in range(3):
        exchange = client.start(
            "tools/call", id="mine", name="save", arguments={"name": "x"}
        ).wait()
        assert exchange.status == 503 and int(exchange.headers["retry-after"]) >= 1
        assert exchange.messages[0]["id"] == "mine" and "error" in exchange.messages[0]
    assert work.runs == 1
    work.go.set()
    assert first.wait().status == 200
    assert client.text("save", name="x") == "x"


def test_too_many_token_lookups_are_rejected(http, private, secret, monkeypatch):
    monkeypatch.setattr(threads.lookups, "_queue", -2)
    exchange = http(secret, server=private).start("tools/list").wait()
    assert exchange.status == 503 and int(exchange.headers["retry-after"]) >= 1
    assert threads.lookups.pending() == 0


# Listening.


ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


def listening(client, **wanted):
    exchange = client.start("subscriptions/listen", notifications=wanted)
    client.until(lambda: exchange.messages)
    return exchange


def expected(exchange):
    return [m.get("method", "result").removeprefix("notifications/") for m in exchange.messages]


def test_listen_is_acknowledged_and_then_notified(
    http, server, work, django_capture_on_commit_callbacks
):
    client = http(server=server)
    exchange = listening(client, toolsListChanged=True, resourceSubscriptions=["open://a"])
    assert (exchange.status, exchange.headers) == (200, STREAM)
    assert expected(exchange) == ["subscriptions/acknowledged"]
    with django_capture_on_commit_callbacks(execute=True):
        mcp.notify_list_changed("tools", "prompts", server=server)
        mcp.notify_changed("open://a", server=server)
        mcp.notify_changed("open://b", server=server)
    client.until(lambda: len(exchange.messages) == 3)
    assert sorted(expected(exchange)[1:]) == ["resources/updated", "tools/list_changed"]
    tag = PREFIX + "subscriptionId"
    assert {m["params"]["_meta"][tag] for m in exchange.messages} == {1}
    exchange.leave()
    exchange.wait()
    assert len(exchange.messages) == 3


def test_listener_is_removed_after_a_disconnect(http, server, work):
    client = http(server=server)
    exchanges = [listening(client, toolsListChanged=True) for _ in range(5)]
    ((_, registry),) = [one for one in listener_registry.instances() if one[1]._listeners]
    assert len(registry._listeners) == 5
    for exchange in exchanges:
        exchange.leave()
        exchange.wait()
    assert not registry._listeners


def test_idle_listen_sends_keepalives(http, server, work, settings):
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"KEEPALIVE": 0.03}
    client = http(server=server)
    exchange = listening(client, toolsListChanged=True)
    client.until(lambda: exchange.sse.comments > 2)
    assert expected(exchange) == ["subscriptions/acknowledged"]


def test_number_of_listens_is_limited(http, server, work, monkeypatch):
    monkeypatch.setattr("django_mcp.transports.http.stateless.MAX_LISTENS_PER_PROCESS", 2)
    client = http(server=server)
    first = [listening(client, toolsListChanged=True) for _ in range(2)]
    exchange = client.start("subscriptions/listen", notifications={}).wait()
    assert exchange.status == 503 and "retry-after" in exchange.headers
    first[0].leave()
    first[0].wait()
    assert listening(client, toolsListChanged=True).status == 200


# Order of messages.


def test_messages_of_threads_precede_the_response(http, server, caplog):
    """Eight threads log until the tool returns, in twenty calls."""
    said: list[str] = []

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    def chorus(request: mcp.Request, number: int) -> str:
        def sing(voice: int) -> None:
            for line in range(10):
                request.log("info", f"{number} {voice} {line}")
                said.append(f"{number} {voice} {line}")

        voices = [threading.Thread(target=sing, args=(voice,)) for voice in range(8)]
        for voice in voices:
            voice.start()
        for voice in voices:
            voice.join()
        return "sung"

    client = http(server=server)
    client.log_level = "info"
    with caplog.at_level(logging.WARNING):
        for number in range(20):
            said.clear()
            exchange = client.start(
                "tools/call", name="chorus", arguments={"number": number}
            ).wait()
            heard = [m["params"]["data"] for m in exchange.messages[:-1]]
            assert sorted(heard) == sorted(said) and "result" in exchange.messages[-1]
            for voice in range(8):
                lines = [text for text in heard if text.split()[1] == str(voice)]
                assert lines == [f"{number} {voice} {line}" for line in range(10)]


def test_messages_of_threads_after_the_response_are_dropped(http, server):
    go = threading.Event()
    threads_: list[threading.Thread] = []

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    def leave(request: mcp.Request) -> str:
        def late() -> None:
            while not go.wait(0.0001):
                request.log("info", "late")

        threads_.append(threading.Thread(target=late))
        threads_[-1].start()
        time.sleep(0.005)
        return "left"

    client = http(server=server)
    client.log_level = "info"
    try:
        for _ in range(10):
            exchange = client.start("tools/call", name="leave").wait()
            assert "result" in exchange.messages[-1] and exchange.ended
        client.sleep(0.02)
    finally:
        go.set()
        for thread in threads_:
            thread.join()


def test_event_loops_of_several_threads_count_their_subscriptions_correctly(monkeypatch):
    """Each thread is an event loop that serves clients. They count in the same place."""

    async def nothing(*args: Any) -> None: ...

    registry = SimpleNamespace(add=bool, remove=bool, follow=nothing)
    monkeypatch.setattr(stateless, "listener_registry", lambda: registry)
    rechecker = SimpleNamespace(start_if_needed=bool)
    monkeypatch.setattr(stateless, "permission_rechecker", lambda: rechecker)
    monkeypatch.setattr(stateless, "followed_models", lambda wanted, row_refs: ())
    monkeypatch.setattr(stateless, "expiry_of", bool)
    monkeypatch.setattr(stateless, "until", lambda *args: nullcontext())
    before, errors = dict(ListenResponse.open), []

    def serve(thread: int) -> None:
        async def listen_often() -> None:
            for number in range(300):
                response = object.__new__(ListenResponse)
                principal: Any = SimpleNamespace(limit_keys=(f"{thread} {number}",))
                response._exchange = SimpleNamespace(principal=principal)  # type: ignore[assignment]
                response.subscriptions = SimpleNamespace(  # type: ignore[assignment]
                    set_principal=bool, listen=nothing
                )
                await response.listen(1, {}, {})

        try:
            asyncio.run(listen_often())
        except Exception as error:
            errors.append(error)

    # Many open subscriptions make each count take longer, so that threads meet in it.
    others = {(f"other {number}",): 1 for number in range(500)}
    monkeypatch.setattr(ListenResponse, "open", type(ListenResponse.open)(before | others))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        serving = [threading.Thread(target=serve, args=(number,)) for number in range(4)]
        for thread in serving:
            thread.start()
        for thread in serving:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert errors == [] and dict(ListenResponse.open) == before | others
