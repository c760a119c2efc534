"""Sessions over HTTP, what a POST may hold, and the header that names a revision.

The transports pages of all revisions with a handshake; the newest has `test_http.py`.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

import django_mcp as mcp
from django_mcp.models import Session
from django_mcp.protocol.revisions import LATEST, REVISIONS
from tests.http import response

pytestmark = pytest.mark.django_db
UNKNOWN = ("1999-01-01", "banana", "2025-11-25, 2025-06-18", "2025_11_25", "")
PING: dict[str, Any] = {"jsonrpc": "2.0", "id": "p", "method": "ping"}
NOTE: dict[str, Any] = {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}
REPLY: dict[str, Any] = {"jsonrpc": "2.0", "id": "never asked", "result": {}}
FAILED: dict[str, Any] = {"jsonrpc": "2.0", "id": "x", "error": {"code": 1, "message": "no"}}
# What is no message, and has no id that could be read.
MALFORMED = [
    b"", b"{", b"null", b'"x"', b"\xff\xfe", b'{"id": 1}', b'{"jsonrpc": "2.0"}',
    b'{"jsonrpc": "1.0", "method": "notifications/initialized"}',
    b'{"jsonrpc": "2.0", "method": "notifications/initialized", "params": []}',
    b'{"jsonrpc": "2.0", "id": 1, "result": []}',
    b'{"jsonrpc": "2.0", "id": 1, "result": {}, "error": {"code": 1, "message": ""}}',
    b'{"jsonrpc": "2.0", "id": null, "method": "ping"}',
]  # fmt: skip


@pytest.fixture(params=[name for name, revision in REVISIONS.items() if revision.batching])
def batching(request: pytest.FixtureRequest) -> str:
    """Each revision that has batches."""
    return str(request.param)


def request(id: Any, method: str = "ping", **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def end(client: Any, **changed: Any) -> Any:
    """Send a DELETE."""
    return client.send("DELETE", client.path, headers=client.headers(**changed))


# The session.


def test_initialize_response_contains_the_session_id(http, handshake):
    client = http(revision=handshake, initialize=False)
    exchange = client.start(
        "initialize",
        protocolVersion=handshake, capabilities={}, clientInfo={"name": "x", "version": "1"},
    ).wait()  # fmt: skip
    assert response(exchange)["protocolVersion"] == handshake
    assert exchange.headers["mcp-session-id"]


def test_other_responses_contain_no_session_id(http, revision):
    client = http(revision=revision)
    for exchange in [client.start("tools/list"), client.post(NOTE), client.post(b"{")]:
        assert "mcp-session-id" not in exchange.wait().headers


def test_failed_initialize_creates_no_session(http, handshake):
    client = http(revision=handshake, initialize=False)
    exchange = client.start("initialize", protocolVersion=handshake).wait()
    assert exchange.error["code"] == -32602 and "mcp-session-id" not in exchange.headers


def test_session_ids_are_random_visible_ascii(http):
    ids = {http(revision="2025-11-25").session for _ in range(50)}
    assert len(ids) == 50 and all(re.fullmatch(r"[\x21-\x7e]{43,}", id) for id in ids)
    starts = {id[:4] for id in ids}
    assert len(starts) == 50, "they have nothing in common"


@pytest.mark.parametrize("message", [PING, NOTE, REPLY, request(1, "tools/list"), [PING]])
def test_message_without_session_id_gets_400(http, handshake, message):
    client = http(revision=handshake)
    assert client.post(message, mcp_session_id=None).wait().status == 400


def test_get_and_delete_without_session_id_get_400(http, handshake):
    client = http(revision=handshake)
    assert client.listen(mcp_session_id=None).wait().status == 400
    assert end(client, mcp_session_id=None).status == 400


def test_second_initialize_in_a_session_is_rejected(http, handshake):
    client = http(revision=handshake)
    info = {"name": "x", "version": "1"}
    again = client.start(
        "initialize", protocolVersion=handshake, capabilities={}, clientInfo=info
    ).wait()
    assert again.refused == (400, -32600) and client.request("ping") == {}


def test_ended_session_gets_404(http, handshake):
    client = http(revision=handshake)
    assert end(client).status == 204
    for exchange in [client.post(PING), client.post(NOTE), client.post(REPLY), client.listen()]:
        assert exchange.wait().status == 404
    assert client.listen("1-1").wait().status == 404
    assert end(client).status == 404


def test_ended_session_stops_its_calls_and_streams(http, handshake, server):
    stopped = []

    @server.tool(permission=mcp.PUBLIC)
    async def last(request: mcp.Request) -> str:
        await request.alog("info", "begun")
        try:
            await asyncio.sleep(60)
        finally:
            stopped.append(True)
        return "never"

    client = http(revision=handshake, server=server)
    exchange = client.start("tools/call", name="last", arguments={})
    listening = client.listen()
    exchange.until(lambda: exchange.messages)
    assert end(client).status == 204
    assert [m["method"] for m in exchange.wait().messages] == ["notifications/message"]
    assert listening.wait().messages == [] and stopped == [True]


def test_waiting_request_of_an_ended_session_gets_404(http, handshake, server):
    """No response was sent yet, so the client gets the same 404 as later requests."""

    @server.tool(permission=mcp.PUBLIC)
    async def quiet(request: mcp.Request) -> str:
        await asyncio.sleep(60)
        return "never"

    client = http(revision=handshake, server=server)
    exchange = client.start("tools/call", name="quiet", arguments={})
    client.sleep(0.05)
    assert exchange.status is None and end(client).status == 204
    assert exchange.wait().status == 404


def test_ending_a_session_leaves_others_open(http, handshake):
    client, other = http(revision=handshake), http(revision=handshake)
    assert end(client).status == 204
    assert other.request("ping") == {}


# What a POST holds.


@pytest.mark.parametrize("message", [NOTE, REPLY, FAILED, NOTE | {"method": "notifications/new"}])
def test_notifications_and_responses_get_202(http, handshake, message):
    exchange = http(revision=handshake).post(message).wait()
    assert (exchange.status, exchange.body) == (202, b"") and "content-type" not in exchange.headers


@pytest.mark.parametrize("message", [[NOTE], [NOTE, NOTE], [REPLY, FAILED], [NOTE, REPLY]])
def test_batches_of_notifications_and_responses_get_202(http, batching, message):
    exchange = http(revision=batching).post(message).wait()
    assert (exchange.status, exchange.body) == (202, b"") and "content-type" not in exchange.headers


@pytest.mark.parametrize("raw", MALFORMED)
def test_invalid_notification_or_response_gets_400(http, handshake, raw):
    exchange = http(revision=handshake).post(raw).wait()
    assert exchange.status == 400 and "id" not in exchange.messages[0]


@pytest.mark.parametrize("raw", [b"[]", b"[1]", b"[[]]", b'[{"jsonrpc": "2.0"}]'])
def test_invalid_batches_get_400(http, batching, raw):
    assert http(revision=batching).post(raw).wait().status == 400


def test_batch_is_accepted_only_in_revisions_with_batching(http, handshake):
    client = http(revision=handshake)
    exchange = client.post([client.message("ping", {}, id="p"), NOTE]).wait()
    if REVISIONS[handshake].batching:
        assert (exchange.status, exchange.messages) == (200, [[response_to("p", {})]])
    else:
        assert exchange.refused == (400, -32600)


def response_to(id: Any, result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "result": result}


def test_batch_answers_exactly_its_requests(http, batching):
    """The response contains one entry per request and none for other messages."""
    client = http(revision=batching)
    number, text = client.message("ping", {}, id=11), client.message("ping", {}, id="11")
    exchange = client.post([number, NOTE, REPLY, request(12, "no/method"), text, 7]).wait()
    assert exchange.status == 200
    (batch,) = exchange.messages
    errors = [one["error"]["code"] for one in batch if "error" in one]
    assert [one["id"] for one in batch if "result" in one] == [11, "11"]
    assert sorted(errors) == [-32601, -32600]


def test_duplicate_ids_in_a_batch_are_each_answered(http, batching):
    client = http(revision=batching)
    (batch,) = client.post([client.message("ping", {}, id=11)] * 2).wait().messages
    assert [one["id"] for one in batch] == [11, 11]
    assert ["error" in one for one in batch] == [True, False]


def test_batch_size_is_limited_and_initialize_is_rejected(http, batching):
    client = http(revision=batching)
    assert client.refusal([request(n) for n in range(51)]) == (400, -32600)
    opening = request(1, "initialize", protocolVersion=batching, capabilities={})
    assert client.refusal([opening]) == (400, -32600)
    assert client.refusal([opening], mcp_session_id=None) == (400, -32600)


# The header that names the revision.


def test_version_header_may_be_omitted_in_a_session(http, handshake, server):
    @server.tool(permission=mcp.PUBLIC)
    def spoken(request: mcp.Request) -> str:
        return request.revision

    client = http(revision=handshake, server=server, more={"mcp-protocol-version": None})
    assert client.text("spoken") == handshake


def test_other_supported_version_in_the_header_is_ignored(http, handshake, server):
    """It SHOULD be the negotiated version, but another one is tolerated."""

    @server.tool(permission=mcp.PUBLIC)
    def spoken(request: mcp.Request) -> str:
        return request.revision

    client = http(revision=handshake, server=server)
    for other in (name for name, revision in REVISIONS.items() if revision.handshake):
        client.more["mcp-protocol-version"] = other
        assert client.text("spoken") == handshake


@pytest.mark.parametrize("version", UNKNOWN)
@pytest.mark.parametrize("message", [PING, NOTE, REPLY])
def test_message_with_an_invalid_version_header_gets_400(http, handshake, version, message):
    exchange = http(revision=handshake).post(message, mcp_protocol_version=version).wait()
    assert exchange.status == 400 and handshake in exchange.error["data"]["supported"]
    assert exchange.messages[0].get("id") == ("p" if message is PING else None)


@pytest.mark.parametrize("version", UNKNOWN)
def test_get_and_delete_with_an_invalid_version_header_get_400(http, handshake, version):
    client = http(revision=handshake)
    assert client.listen(mcp_protocol_version=version).wait().status == 400
    assert end(client, mcp_protocol_version=version).status == 400
    assert client.request("ping") == {}


@pytest.mark.parametrize("version", UNKNOWN)
def test_invalid_version_header_without_a_session_gets_400(http, version):
    client = http(revision=LATEST.name)
    exchange = client.post(request(11, "tools/list"), mcp_protocol_version=version).wait()
    assert (
        exchange.refused == (400, -32022)
        and exchange.error["data"]["supported"] == [*REVISIONS][::-1]
    )
    assert client.post(NOTE, mcp_protocol_version=version).wait().status == 400


def initialized(http, revision, header):
    """How ``initialize`` is answered when it comes with that version header."""
    client = http(revision=revision, initialize=False, more={"mcp-protocol-version": header})
    about = {"capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    return client.start("initialize", protocolVersion=revision, **about).wait()


@pytest.mark.parametrize("version", [None, *REVISIONS])
def test_initialize_negotiates_the_version_in_its_body(http, handshake, version):
    """The header counts only for requests after the negotiation."""
    assert response(initialized(http, handshake, version))["protocolVersion"] == handshake


@pytest.mark.parametrize("version", UNKNOWN)
def test_initialize_with_an_unsupported_version_header_is_rejected(http, handshake, version):
    """Revisions before 2025-06-18 do not define the header, so there it means nothing."""
    exchange = initialized(http, handshake, version)
    if REVISIONS[handshake].version_header:
        assert exchange.status == 400 and "mcp-session-id" not in exchange.headers
        assert handshake in exchange.error["data"]["supported"]
        assert not Session.objects.exists()
    else:
        assert response(exchange)["protocolVersion"] == handshake


@pytest.mark.parametrize("method", ["ping", "tools/list", "server/discover"])
def test_request_without_version_and_session_gets_400(http, method):
    client = http(revision="2025-11-25", initialize=False)
    assert client.post(request(1, method)).wait().status == 400
