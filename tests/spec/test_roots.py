"""roots/list: asked of clients that declare it, once per call."""

from __future__ import annotations

import pytest

import django_mcp as mcp
from django_mcp.protocol.revisions import REVISIONS

from .helpers import error_member

pytestmark = pytest.mark.django_db
ROOTS = "roots/list"


@pytest.fixture
def rooted(server):
    @server.tool(permission=mcp.PUBLIC)
    def where(request: mcp.Request, times: int = 1) -> str:
        found = [" ".join(root.uri for root in request.roots()) for _ in range(times)]
        return " | ".join(found)

    @server.tool(permission=mcp.PUBLIC)
    def somewhere(request: mcp.Request) -> str:
        if not request.can.roots:
            return "no idea"
        try:
            return f"{len(request.roots())} roots"
        except mcp.ToolError as unavailable:
            return f"unavailable: {unavailable}"

    @server.tool(permission=mcp.PUBLIC)
    def between(request: mcp.Request) -> str:
        first = request.roots()
        request.elicit("Go on?", default=None)
        return " ".join(root.name for root in [*first, *request.roots(key="again")])

    return server


def listing(*uris):
    return {"roots": [{"uri": uri, "name": uri[-1]} for uri in uris]}


def test_roots_are_requested_from_clients_that_declare_them(connect, revision, rooted):
    bare = connect(server=rooted, revision=revision, capabilities={"sampling": {}})
    assert bare.text("somewhere") == "no idea"
    if REVISIONS[revision].handshake:
        assert "does not support roots" in bare.failure("where")
    else:
        refused = error_member(bare, "tools/call", name="where")
        assert refused["code"] == -32021
        assert refused["data"] == {"requiredCapabilities": {"roots": {}}}
    assert bare.asked == []
    for declared in ({}, {"listChanged": True}):
        able = connect(
            server=rooted, revision=revision, capabilities={"roots": declared},
            answers={ROOTS: lambda params: listing("file:///a")},
        )  # fmt: skip
        assert able.text("where") == "file:///a"
        assert able.text("somewhere") == "1 roots"


def test_next_call_receives_changed_roots(connect, revision, rooted):
    now = ["file:///a"]
    client = connect(
        server=rooted, revision=revision, answers={ROOTS: lambda params: listing(*now)}
    )
    assert client.text("where") == "file:///a"
    now[:] = ["file:///b", "file:///c"]
    if REVISIONS[revision].handshake:
        before = len(client.received)
        client.notify("notifications/roots/list_changed")
        client.settle()
        assert len(client.received) == before
    assert client.text("where") == "file:///b file:///c"
    now.clear()
    assert client.text("where") == ""


def test_roots_changed_notification_causes_no_request(connect, handshake, rooted):
    client = connect(server=rooted, revision=handshake)
    for params in ({}, {"_meta": {}}, {"unknown": 1}):
        client.notify("notifications/roots/list_changed", **params)
    client.settle()
    assert client.asked == [] and client.notes == []


UNAVAILABLE = [{"code": -32601, "message": "Gone."}, {"code": -32603, "message": "Gone."}]


@pytest.mark.parametrize("failure", UNAVAILABLE)
def test_roots_error_of_the_client_can_be_handled(connect, handshake, rooted, failure):
    client = connect(server=rooted, revision=handshake, answers={ROOTS: lambda params: failure})
    assert client.text("somewhere") == "unavailable: Gone."
    assert client.failure("where") == "Gone."


def test_empty_roots_list_is_empty(connect, revision, rooted):
    client = connect(server=rooted, revision=revision, answers={ROOTS: lambda params: listing()})
    assert client.text("somewhere") == "0 roots"


@pytest.mark.parametrize("broken", [{}, {"roots": None}, {"roots": [{}]}, {"roots": ["/a"]}])
def test_invalid_roots_answer_repeats_the_request(connect, revision, rooted, broken):
    answers = [broken, listing("file:///a")]
    client = connect(
        server=rooted, revision=revision, answers={ROOTS: lambda params: answers.pop(0)}
    )
    assert client.text("where") == "file:///a"


def test_roots_that_are_not_file_uris_are_an_error(connect, revision, rooted):
    """It "MUST be a `file://` URI in the current specification"."""
    answers = {ROOTS: lambda params: listing("file:///a", "https://example.com/a")}
    client = connect(server=rooted, revision=revision, answers=answers)
    assert "file://" in client.failure("where")
    assert len(client.asked) == 1  # the client would answer the same again
    assert client.text("somewhere").startswith("unavailable")


def test_roots_are_requested_once_per_call(connect, revision, rooted):
    answers = {ROOTS: lambda params: listing("file:///a")}
    client = connect(server=rooted, revision=revision, answers=answers)
    assert client.text("where", times=3) == "file:///a | file:///a | file:///a"
    assert len(client.asked) == 1
    assert client.text("where", times=2) == "file:///a | file:///a"
    assert len(client.asked) == 2  # the roots of one call are not another's


@pytest.mark.parametrize(
    "name", [name for name, one in REVISIONS.items() if "elicitation/create" in one.asks]
)
def test_roots_are_kept_while_a_call_asks_other_questions(connect, name, rooted):
    answers = {
        ROOTS: lambda params: listing("file:///a"),
        "elicitation/create": lambda params: {"action": "decline"},
    }
    client = connect(server=rooted, revision=name, answers=answers)
    assert client.text("between") == "a a"
    assert [one["method"] for one in client.asked] == [ROOTS, "elicitation/create"]
