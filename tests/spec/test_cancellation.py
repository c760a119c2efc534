"""Cancellation of requests by the client and by the server."""

from __future__ import annotations

import asyncio
import logging
import threading
import time

import pytest

import django_mcp as mcp
from django_mcp.changes.api import notify_list_changed
from django_mcp.protocol.revisions import REVISIONS
from tests.shop.models import Company

from .helpers import is_response, replies_to, run_until

pytestmark = pytest.mark.django_db
SECONDS = 60  # to wait for what comes at once, however busy the machine is


class Work:
    """What the tools below are doing, seen from the test."""

    def __init__(self) -> None:
        self.started, self.ended = threading.Event(), threading.Event()
        self.go = threading.Event()
        self.runs = 0


@pytest.fixture
def work(server):
    """A server with tools that go on until somebody stops them."""
    done = server._work = Work()

    @server.tool(permission=mcp.PUBLIC)
    def plod(request: mcp.Request) -> str:
        done.runs += 1
        Company.objects.create(name="Half done")
        done.started.set()
        try:
            for step in range(10_000):
                request.progress(step)
                time.sleep(0.001)
        finally:
            done.ended.set()
        return "never"

    @server.tool(permission=mcp.PUBLIC)
    async def ponder(request: mcp.Request) -> str:
        done.runs += 1
        done.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            done.ended.set()
        return "never"

    @server.tool(permission=mcp.PUBLIC)
    def query(request: mcp.Request) -> str:
        done.started.set()
        try:
            while not done.ended.wait(0.001):
                Company.objects.exists()
        finally:
            done.ended.set()
        return "never"

    @server.tool(permission=mcp.PUBLIC)
    def ask(request: mcp.Request) -> str:
        done.runs += 1
        found = request.ask(one=mcp.Roots(), two=mcp.Sample("A word."))
        return found["two"].text

    @server.tool(permission=mcp.PUBLIC)
    def save(request: mcp.Request, name: str) -> str:
        Company.objects.create(name=name)
        return name

    @server.tool(permission=mcp.PUBLIC)
    async def soon(request: mcp.Request, turns: int) -> str:
        for _ in range(turns):
            await asyncio.sleep(0)
        return "done"

    return done


def cancel(client, id, **more):
    client.notify("notifications/cancelled", requestId=id, **more)


def responses(client, id):
    return [m for m in client.received if is_response(m) and m["id"] == id]


# The client's.


@pytest.mark.parametrize("tool", ["plod", "ponder", "query"])
def test_cancelled_call_stops(connect, revision, server, work, tool):
    client = connect(server=server, revision=revision)
    id = client.start("tools/call", name=tool)
    assert waited(client, work.started)
    cancel(client, id)
    assert waited(client, work.ended)
    assert responses(client, id) == []


def waited(client, event):
    """Whether ``event`` happens while the loop runs."""
    return client._run(asyncio.to_thread(event.wait, SECONDS))


def test_cancelled_call_sends_no_further_message(connect, revision, server, work):
    client = connect(server=server, revision=revision)
    id = client.start("tools/call", name="plod", _meta={"progressToken": "p"})
    client.until(lambda: client.notes)
    cancel(client, id)
    heard = len(client.received)
    assert waited(client, work.ended)
    assert client.text("save", name="after") == "after"
    later = client.received[heard:]
    assert [message for message in later if message.get("id") == id] == []
    assert [message for message in later if message.get("method")] == []


def test_cancelled_call_frees_its_resources_and_writes_nothing(
    connect, revision, server, work, settings
):
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"THREADS": 1, "CONCURRENT_CALLS": 1}
    client = connect(server=server, revision=revision)
    for _ in range(3):
        work.started.clear()
        id = client.start("tools/call", id="again", name="plod", _meta={"progressToken": "p"})
        assert waited(client, work.started)
        cancel(client, id)
        run_until(client, lambda: "again" not in client.conversation._active)
    # The place, the thread, the id, the token and the transaction are free.
    assert client.text("save", name="after") == "after"
    assert list(Company.objects.values_list("name", flat=True)) == ["after"]
    assert client.conversation._tasks == set()


def test_cancellation_of_an_unknown_request_is_ignored(connect, revision, server, work):
    client = connect(server=server, revision=revision)
    over = client.start("tools/call", name="save", arguments={"name": "one"})
    client.wait(over)
    id = client.start("tools/call", name="soon", arguments={"turns": 3})
    for other in (over, "unknown", 4711, str(id)):
        cancel(client, other, reason="a mistake")
    assert client.wait(id)["result"]["content"][0]["text"] == "done"
    assert len(responses(client, over)) == len(responses(client, id)) == 1
    assert Company.objects.get().name == "one"


def test_initialize_cannot_be_cancelled(connect, handshake, server, work):
    client = connect(server=server, revision=handshake, initialize=False)
    given = {"protocolVersion": handshake, "capabilities": {}}
    message = client.message("initialize", given | {"clientInfo": {"name": "x", "version": "1"}})
    client.send(message)
    client.send({"jsonrpc": "2.0", "method": "notifications/cancelled",
                 "params": {"requestId": message["id"]}})  # fmt: skip
    assert client.wait(message["id"])["result"]["protocolVersion"] == handshake


@pytest.mark.parametrize(
    "params", [None, {}, {"requestId": None}, {"requestId": [1]}, {"requestId": 1.5}, {"id": 1}, []]
)
def test_malformed_cancellation_is_ignored(connect, revision, server, work, params):
    client = connect(server=server, revision=revision)
    id = client.start("tools/call", name="soon", arguments={"turns": 3})
    notification = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
    client.send(notification if params is not None else notification | {"params": {}})
    assert client.wait(id)["result"]["content"][0]["text"] == "done"
    assert all("error" not in message for message in client.received)


def test_cancellation_racing_with_the_response_has_one_outcome(connect, revision, server, work):
    client = connect(server=server, revision=revision)
    answered = 0
    for turns in range(40):
        id = client.start("tools/call", name="soon", arguments={"turns": turns % 10})
        for _ in range(turns // 4):
            client._run(asyncio.sleep(0))
        cancel(client, id)
        client.settle()
        answered += len(responses(client, id))
        assert len(responses(client, id)) <= 1
        assert id not in client.conversation._active
    assert 0 < answered < 40  # both have been seen
    assert client.text("soon", turns=0) == "done"


def test_answered_call_was_committed(connect, revision, server, work):
    client = connect(server=server, revision=revision)
    for number in range(20):
        id = client.start("tools/call", name="save", arguments={"name": f"n{number}"})
        if number % 2:
            client.wait(id)
        cancel(client, id)
        run_until(client, lambda id=id: id not in client.conversation._active)
        saved = Company.objects.filter(name=f"n{number}").exists()
        assert saved >= bool(responses(client, id))
        assert len(responses(client, id)) <= 1


def test_cancellation_reason_is_logged_on_one_line(connect, revision, server, work, caplog):
    caplog.set_level(logging.INFO, "django_mcp")
    client = connect(server=server, revision=revision)
    id = client.start("tools/call", name="ponder")
    assert waited(client, work.started)
    cancel(client, id, reason="Changed my mind\nERROR forged" + "x" * 10_000)
    client.settle()
    messages = [one.getMessage() for one in caplog.records]
    (record,) = [text for text in messages if text.startswith("Call cancelled")]
    assert "Changed my mind" in record and "\n" not in record and len(record) < 400


# Ours.


def test_server_cancels_only_its_unanswered_questions(connect, handshake, server, work, caplog):
    caplog.set_level(logging.INFO, "django_mcp")
    client = connect(server=server, revision=handshake)
    id = client.start("tools/call", name="ask")
    client.until(lambda: len(client.asked) == 2)
    first, second = client.asked
    roots = {"jsonrpc": "2.0", "id": first["id"], "result": {"roots": []}}
    assert replies_to(client, roots) == []
    cancel(client, id)
    client.settle()
    (note,) = client.notes
    assert note["method"] == "notifications/cancelled"
    assert note["params"]["requestId"] == second["id"]
    ours = [r.getMessage() for r in caplog.records if second["id"] in r.getMessage()]
    assert len(ours) == 1 and note["params"].get("reason", "") in ours[0]


def test_answer_after_the_server_cancelled_is_ignored(connect, handshake, server, work):
    client = connect(server=server, revision=handshake)
    id = client.start("tools/call", name="ask")
    client.until(lambda: len(client.asked) == 2)
    cancel(client, id)
    client.settle()
    assert work.runs == 1
    for asked in client.asked:
        late = {"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": []}}
        assert replies_to(client, late) == []
        assert replies_to(client, late) == []
    assert work.runs == 1 and responses(client, id) == []
    assert client.text("soon", turns=0) == "done"


def test_server_ends_a_subscription_by_cancelling_its_id(connect, server, work):
    client = connect(server=server)
    ids = [
        client.start("subscriptions/listen", id=id, notifications={"toolsListChanged": True})
        for id in ("a", 7)
    ]
    client.until(lambda: len(client.notes) == 2)
    client._run(client.conversation.close())
    client.settle()
    cancelled = [n for n in client.notes if n["method"] == "notifications/cancelled"]
    assert [note["params"]["requestId"] for note in cancelled] == ids


def test_newest_revision_gets_no_other_cancellation(connect, server, work, settings, committed):
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"QUESTION_TIMEOUT": 0.01}
    client = connect(server=server)
    listen = client.start("subscriptions/listen", notifications={"toolsListChanged": True})
    asked = client.call("ask")
    assert asked["resultType"] == "input_required"
    id = client.start("tools/call", name="plod")
    assert waited(client, work.started)
    cancel(client, id)
    assert waited(client, work.ended)
    cancel(client, listen)  # the client ends it, and is told nothing
    client.settle()
    with committed:
        notify_list_changed(server=server)
    client._run(client.conversation.close())
    client.settle()
    methods = {note["method"] for note in client.notes}
    assert methods == {"notifications/subscriptions/acknowledged"}
    assert REVISIONS[client.revision.name].sends >= methods
