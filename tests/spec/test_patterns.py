"""In the newest revision only the client sends requests."""

from __future__ import annotations

import pytest

import django_mcp as mcp
from django_mcp.protocol.revisions import LATEST
from tests.client import EVERYTHING

from .helpers import is_response

pytestmark = pytest.mark.django_db
ANSWERS = {
    "elicitation/create": lambda params: {"action": "accept", "content": {"answer": True}},
    "sampling/createMessage": lambda params: {
        "role": "assistant",
        "model": "m",
        "content": {"type": "text", "text": "word"},
    },
    "roots/list": lambda params: {"roots": []},
}


def test_newest_revision_asks_in_results_and_sends_no_requests(connect, server):
    @server.tool(permission=mcp.PUBLIC)
    def sync(request: mcp.Request) -> str:
        sure = request.elicit("Sure?")
        return f"{sure} {request.sample('Say it.').text} {request.roots()}"

    @server.tool(permission=mcp.PUBLIC)
    async def asynchronous(request: mcp.Request) -> str:
        found = await request.aask(a=mcp.Elicit("Sure?", bool), b=mcp.Roots(), c=mcp.Sample("Go."))
        return f"{found['a']} {found['c'].text} {found['b']}"

    @server.tool(permission=mcp.PUBLIC)
    def visit(request: mcp.Request) -> str:
        raise mcp.UrlRequired("Sign in.", "https://shop.example/in")

    client = connect(server=server, revision=LATEST.name, answers=ANSWERS)
    assert client.text("sync") == "True word []"
    assert client.text("asynchronous") == "True word []"
    bare = connect(server=server, revision=LATEST.name, capabilities=EVERYTHING)
    (asked,) = bare.call("visit")["inputRequests"].values()
    assert asked["method"] == "elicitation/create" and asked["params"]["mode"] == "url"
    assert client._run(client.conversation.ping(seconds=5))  # there is none, and none is sent
    methods = {asked["method"] for asked in client.asked}
    assert methods == ANSWERS.keys()
    for message in client.received + bare.received:
        assert is_response(message) or "id" not in message
