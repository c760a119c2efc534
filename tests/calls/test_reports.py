"""Finished calls are reported to observers such as the activity log of the authorization server."""

from __future__ import annotations

import logging

import pytest
from django.core.exceptions import PermissionDenied
from django.http import Http404

import django_mcp as mcp
from django_mcp.calls.records import observers
from django_mcp.oauth.activity import activities
from tests.client import RpcError

ACCEPTED = {"elicitation/create": lambda params: {"action": "accept", "content": {"answer": True}}}


@pytest.fixture
def reported(monkeypatch):
    found = []
    monkeypatch.setattr("django_mcp.calls.records.observers", [found.append])
    return found


def reports_of(reported):
    return [(record.method, record.name) for record in reported if record.is_activity]


def tried(client, method, **params):
    try:
        client.request(method, **params)
    except RpcError:
        return


def test_finished_calls_are_reported_with_principal_and_server(
    connect, server, db, alice, reported
):
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
    assert reports_of(reported) == [
        ("tools/call", "look"), ("tools/call", "watch"), ("prompts/get", "greet"),
        ("resources/read", "terms://now"),
    ]  # fmt: skip
    assert {record.principal.user for record in reported} == {alice}
    assert {record.server for record in reported} == {server}


def test_report_names_the_template_and_not_the_uri(connect, server, db, alice, reported):
    @server.resource("policy://{name}")
    def policy(request: mcp.Request, name: str) -> str:
        return "x"

    client = connect(alice, server=server)
    for number in range(50):
        client.request("resources/read", uri=f"policy://secret-{number}")
    assert set(reports_of(reported)) == {("resources/read", "policy://{name}")}
    assert "secret" not in repr([(record.method, record.name) for record in reported])


def test_rejected_calls_are_not_reported(connect, server, db, alice, reported):
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
    assert reports_of(reported) == []


@pytest.mark.parametrize("is_async", [False, True])
def test_failed_writing_tool_is_reported(connect, server, db, alice, reported, is_async):
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
    assert reports_of(reported) == [("tools/call", name)]


def test_call_with_a_question_is_reported_once(connect, server, db, alice, reported):
    @server.tool
    def refund(request: mcp.Request) -> str:
        return "yes" if request.elicit("Sure?", bool) else "no"

    client = connect(alice, server=server, answers=ACCEPTED)
    client.request("tools/call", name="refund")
    assert reports_of(reported) == [("tools/call", "refund")]


def test_non_atomic_tool_is_reported_when_it_asks(connect, server, db, alice, reported):
    @server.tool(atomic=False)
    def refund(request: mcp.Request) -> str:
        asked.append(reports_of(reported))
        return "yes" if request.elicit("Sure?", bool) else "no"

    asked: list[list[tuple[str, str]]] = []
    client = connect(alice, server=server, answers=ACCEPTED)
    client.request("tools/call", name="refund")
    assert asked[1] == [("tools/call", "refund")]


def test_failed_observer_does_not_fail_the_call(connect, server, db, alice, monkeypatch, caplog):
    def broken(record):
        raise KeyError("broken")

    @server.tool
    def write(request: mcp.Request) -> str:
        return "written"

    monkeypatch.setattr("django_mcp.calls.records.observers", [broken])
    with caplog.at_level(logging.ERROR, "django_mcp"):
        found = connect(alice, server=server).request("tools/call", name="write")
    assert found["content"][0]["text"] == "written"
    assert [record.msg for record in caplog.records] == ["Observer of calls failed: %r"]


def test_authorization_server_observes_calls():
    assert activities.add in observers
