"""In the newest revision each request contains all that is needed to serve it."""

from __future__ import annotations

import asyncio

import pytest

import django_mcp as mcp
from django_mcp.protocol.revisions import LATEST
from tests.client import PREFIX

from .helpers import error_member, replies_to

pytestmark = pytest.mark.django_db
YES = {"action": "accept", "content": {"answer": True}}


@pytest.fixture
def pair(server):
    """A server with a tool that asks, one that says who calls, and two that meet."""
    meeting = {}

    @server.tool(permission=mcp.PUBLIC)
    def ask(request: mcp.Request, what: str = "Sure?") -> str:
        return str(request.elicit(what))

    @server.tool(permission=mcp.PUBLIC)
    def who(request: mcp.Request) -> str:
        request.log("info", "heard")
        return f"{request.client_info.get('name')} {request.can.elicit} {request.can.roots}"

    @server.tool(permission=mcp.PUBLIC)
    async def meet(request: mcp.Request, name: str, other: str) -> str:
        mine = meeting.setdefault(name, asyncio.Event())
        theirs = meeting.setdefault(other, asyncio.Event())
        mine.set()
        await theirs.wait()  # neither goes on without the other
        await request.aprogress(1, message=name)
        await request.alog("info", name)
        return f"{request.client_info['name']}: {name}"

    return server


def said_of(name, capabilities=None, **more):
    """What a request says of its client."""
    return {
        PREFIX + "clientInfo": {"name": name, "version": "1"},
        PREFIX + "clientCapabilities": capabilities or {},
    } | more


def test_request_is_served_by_its_own_meta(connect, pair):
    client = connect(server=pair, revision=LATEST.name)
    able = said_of("able", {"elicitation": {}, "roots": {}}, **{PREFIX + "logLevel": "debug"})
    for _ in range(2):
        first = client.request("tools/call", name="who", _meta=able)
        assert first["content"][0]["text"] == "able True True"
        assert len(client.notes) == 1
        client.notes.clear()
        second = client.request("tools/call", name="who", _meta=said_of("bare"))
        assert second["content"][0]["text"] == "bare False False"
        assert client.notes == []  # nor is the other's log level its own
        assert client.request("tools/call", name="ask", _meta=able)["inputRequests"]
        assert (
            error_member(client, "tools/call", name="ask", _meta=said_of("bare"))["code"] == -32021
        )
        old = {PREFIX + "protocolVersion": "2025-11-25"}
        assert error_member(client, "tools/list", _meta=old)["code"] == -32022
    # What earlier requests said is not remembered.
    bare = {"_meta": {PREFIX + "protocolVersion": LATEST.name}}
    for id, params in (("a", bare), ("b", {})):
        message = {"jsonrpc": "2.0", "id": id, "method": "tools/list", "params": params}
        (refused,) = replies_to(client, message)
        assert refused["id"] == id and refused["error"]["code"] in (-32602, -32600)


def test_concurrent_requests_of_one_connection_are_independent(connect, pair):
    client = connect(server=pair, revision=LATEST.name)
    ids = {}
    for name, other in (("a", "b"), ("b", "a")):
        level = {PREFIX + "logLevel": "info"} if name == "a" else {}
        ids[name] = client.start(
            "tools/call",
            name="meet",
            arguments={"name": name, "other": other},
            _meta=said_of(name, progressToken=f"token {name}", **level),
        )
    for name, id in ids.items():
        assert client.wait(id)["result"]["content"][0]["text"] == f"{name}: {name}"
    progress = [n["params"] for n in client.notes if n["method"] == "notifications/progress"]
    assert {p["progressToken"]: p["message"] for p in progress} == {"token a": "a", "token b": "b"}
    logged = [n["params"]["data"] for n in client.notes if n["method"] == "notifications/message"]
    assert logged == ["a"]


def test_call_continues_on_another_connection(connect, pair, alice):
    one, two = (connect(alice, server=pair, revision=LATEST.name) for _ in range(2))
    asked = one.call("ask")
    (key,) = asked["inputRequests"]
    answered = two.request(
        "tools/call",
        name="ask",
        arguments={},
        requestState=asked["requestState"],
        inputResponses={key: YES},
    )
    assert answered["content"][0]["text"] == "True"
    listed = one.request("tools/list")
    assert two.request("tools/list")["tools"] == listed["tools"]


def test_cursor_is_valid_on_another_connection(connect, pair, settings):
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"PAGE_SIZE": 2}
    one, two = (connect(server=pair, revision=LATEST.name) for _ in range(2))
    cursor = one.request("tools/list")["nextCursor"]
    (last,) = two.request("tools/list", cursor=cursor)["tools"]
    assert last["name"] == "meet"


def test_state_across_requests_is_sent_by_the_client(connect, pair):
    client = connect(server=pair, revision=LATEST.name)
    asked = client.call("ask")
    (key,) = asked["inputRequests"]
    # Without the state nothing is known of the question, though it was asked just now.
    anew = client.request("tools/call", name="ask", arguments={}, inputResponses={key: YES})
    assert anew["resultType"] == "input_required"
    assert anew["requestState"] != asked["requestState"]
    # Two questions may be open at once, and each state leads to its own.
    other = client.call("ask", what="Really?")
    (second,) = other["inputRequests"]
    for state, name, what in (
        (other, second, {"what": "Really?"}),
        (asked, key, {}),
    ):
        done = client.request(
            "tools/call",
            name="ask",
            arguments=what,
            requestState=state["requestState"],
            inputResponses={name: YES},
        )
        assert done["content"][0]["text"] == "True"
    id = client.start("subscriptions/listen", notifications={"toolsListChanged": True})
    client.until(lambda: client.notes)
    assert client.notes[0]["params"]["_meta"][PREFIX + "subscriptionId"] == id
