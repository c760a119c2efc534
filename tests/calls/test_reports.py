"""What is told to those who keep account of what clients did, and what is not."""

from __future__ import annotations

import logging

import pytest
from django.core.exceptions import PermissionDenied
from django.http import Http404

import django_mcp as mcp
from django_mcp.calls.reports import observers
from django_mcp.oauth.apps import record_activity
from tests.client import RpcError

ACCEPTED = {"elicitation/create": lambda params: {"action": "accept", "content": {"answer": True}}}


@pytest.fixture
def reported(monkeypatch):
    found = []
    monkeypatch.setattr("django_mcp.calls.reports.observers", [found.append])
    return found


def told(reported):
    return [(record.method, record.name) for record in reported]


def tried(client, method, **params):
    try:
        client.request(method, **params)
    except RpcError:
        return


def test_what_was_answered_was_done_by_whom_and_where(connect, server, db, alice, reported):
    @server.tool(read_only=True)
    def look(request: mcp.Request) -> str:
        return "it"

    @server.tool(read_only=True)
    async def watch(request: mcp.Request) -> str:
        return "it"

    @server.prompt
    def greet(request: mcp.Request) -> str:
        return "Hello"

    @server.resource("terms://now")
    def terms(request: mcp.Request) -> str:
        return "None"

    client = connect(alice, server=server)
    client.request("tools/call", name="look")
    client.request("tools/call", name="watch")
    client.request("prompts/get", name="greet")
    client.request("resources/read", uri="terms://now")
    assert told(reported) == [
        ("tools/call", "look"), ("tools/call", "watch"), ("prompts/get", "greet"),
        ("resources/read", "terms://now"),
    ]  # fmt: skip
    assert {record.principal.user for record in reported} == {alice}
    assert {record.server for record in reported} == {server.name}


def test_ten_thousand_addresses_are_one_template(connect, server, db, alice, reported):
    @server.resource("policy://{name}")
    def policy(request: mcp.Request, name: str) -> str:
        return "x"

    client = connect(alice, server=server)
    for number in range(50):
        client.request("resources/read", uri=f"policy://secret-{number}")
    assert set(told(reported)) == {("resources/read", "policy://{name}")}
    assert "secret" not in repr([(record.method, record.name) for record in reported])


def test_what_was_refused_or_is_not_there_was_not_done(connect, server, db, alice, reported):
    @server.tool(permission="shop.refund_invoice")
    def refund(request: mcp.Request, reason: str) -> str:
        return "refunded"

    @server.tool
    def write(request: mcp.Request, line: int) -> str:
        return "written"

    @server.resource("policy://{name}")
    def policy(request: mcp.Request, name: str) -> str:
        raise Http404

    @server.resource("letter://{name}")
    def letter(request: mcp.Request, name: str) -> str:
        raise PermissionDenied

    client = connect(alice, server=server)
    tried(client, "tools/call", name="refund", arguments={"reason": "x"})
    tried(client, "tools/call", name="<script>", arguments={})
    tried(client, "tools/call", name="write", arguments={"line": "no number"})
    tried(client, "resources/read", uri="policy://x")
    tried(client, "resources/read", uri="letter://x")
    tried(client, "resources/read", uri="nothing://x")
    tried(client, "prompts/get", name="nothing")
    client.request("tools/list")
    assert reported == []


@pytest.mark.parametrize("is_async", [False, True])
def test_what_may_have_written_before_it_failed_was_done(
    connect, server, db, alice, reported, is_async
):
    @server.tool
    def write(request: mcp.Request) -> str:
        raise KeyError("a bug")

    @server.tool(name="awrite")
    async def awrite(request: mcp.Request) -> str:
        raise mcp.ToolError("no")

    @server.tool(read_only=True)
    def look(request: mcp.Request) -> str:
        raise mcp.ToolError("no")

    name = "awrite" if is_async else "write"
    client = connect(alice, server=server)
    client.request("tools/call", name=name)
    client.request("tools/call", name="look")
    assert told(reported) == [("tools/call", name)]


def test_who_asks_first_and_acts_then_did_it_once(connect, server, db, alice, reported):
    @server.tool
    def refund(request: mcp.Request) -> str:
        return "yes" if request.elicit("Sure?", bool) else "no"

    client = connect(alice, server=server, answers=ACCEPTED)
    client.request("tools/call", name="refund")
    assert told(reported) == [("tools/call", "refund")]


def test_what_wrote_before_it_asked_was_done_though_nobody_answers(
    connect, server, db, alice, reported
):
    @server.tool(atomic=False)
    def refund(request: mcp.Request) -> str:
        asked.append(told(reported))
        return "yes" if request.elicit("Sure?", bool) else "no"

    asked: list[list[tuple[str, str]]] = []
    client = connect(alice, server=server, answers=ACCEPTED)
    client.request("tools/call", name="refund")
    assert asked[1] == [("tools/call", "refund")]


def test_who_keeps_account_fails_no_call(connect, server, db, alice, monkeypatch, caplog):
    def broken(record):
        raise KeyError("broken")

    @server.tool
    def write(request: mcp.Request) -> str:
        return "written"

    monkeypatch.setattr("django_mcp.calls.reports.observers", [broken])
    with caplog.at_level(logging.ERROR, "django_mcp"):
        found = connect(alice, server=server).request("tools/call", name="write")
    assert found["content"][0]["text"] == "written"
    assert [record.getMessage() for record in caplog.records] == [
        "Activity of a client could not be recorded"
    ]


def test_the_authorization_server_keeps_account():
    assert record_activity in observers
