"""Conversations over a pipe: concurrent calls, batches, cancellation, questions and the end."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import threading
import time
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser
from django.db import OperationalError

import django_mcp as mcp
from django_mcp.auth.principal import Principal
from django_mcp.calls.call_state import ActiveCall
from django_mcp.exceptions import Busy, Stopped
from django_mcp.runtime import threads
from django_mcp.transports.pipe import Conversation, PipeOutput
from tests.announcing import Announcement, announce
from tests.client import RpcError
from tests.shop.models import Tag

SECONDS = 60  # to wait for what comes at once, however busy the machine is


@pytest.fixture
def work(server):
    """A server whose tools wait to be let go, synchronously or not."""
    state = SimpleNamespace(go=threading.Event(), begun=[], ended=[])

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    def hold(request: mcp.Request, name: str = "") -> str:
        """Hold a thread."""
        state.begun.append(name)
        try:
            while not state.go.wait(0.005):
                request.progress(time.monotonic())
        finally:
            state.ended.append(name)
        return f"held {name}"

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    async def ahold(request: mcp.Request, name: str = "") -> str:
        state.begun.append(name)
        try:
            await until(state.go.is_set)
        finally:
            state.ended.append(name)
        return f"held {name}"

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    async def quick(request: mcp.Request, name: str = "") -> str:
        return f"quick {name}"

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    def ask(request: mcp.Request) -> str:
        return f"{len(request.roots())} roots"

    yield state
    state.go.set()


async def until(condition):
    """What threads do sets no event of the loop's."""
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def start(client, tool, name="", **options):
    return client.start("tools/call", name=tool, arguments={"name": name}, **options)


def call(client, tool, name="", id=None):
    return client.message("tools/call", {"name": tool, "arguments": {"name": name}}, id=id)


def text(response):
    return response["result"]["content"][0]["text"]


def begun(client, work, count=1):
    client._run(asyncio.to_thread(_await, lambda: len(work.begun) >= count))


def _await(condition):
    until = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.001)


def cancel(client, id):
    client.notify("notifications/cancelled", requestId=id)


def finish(client):
    client._run(client.conversation.finish(SECONDS))
    client.settle()


def responses(client):
    return [message for message in client.received if "method" not in message]


# Concurrent calls.


@pytest.mark.parametrize("tool", ["hold", "ahold"])
def test_later_call_may_be_answered_earlier(connect, server, work, revision, tool):
    client = connect(server=server, revision=revision)
    slow = start(client, tool, "a")
    begun(client, work)
    assert client.text("quick", name="b") == "quick b"
    work.go.set()
    assert text(client.wait(slow)) == "held a"


def test_number_and_text_ids_are_distinct(connect, server, work, revision):
    client = connect(server=server, revision=revision)
    start(client, "hold", "number", id=1_000)
    start(client, "hold", "text", id="1000")
    begun(client, work, 2)
    work.go.set()
    assert text(client.wait(1_000)) == "held number"
    assert text(client.wait("1000")) == "held text"


def test_id_of_a_running_call_is_rejected(connect, server, work, revision):
    client = connect(server=server, revision=revision)
    start(client, "hold", "first", id="same")
    begun(client, work)
    second = start(client, "quick", "second", id="same")
    assert client.wait(second)["error"]["code"] == -32600
    work.go.set()
    finish(client)
    assert text(responses(client)[-1]) == "held first"
    assert text(client.wait(start(client, "quick", "third", id="same"))) == "quick third"


@pytest.mark.parametrize("tool", ["hold", "ahold"])
def test_calls_beyond_the_limit_are_rejected_before_they_run(
    connect, server, work, revision, settings, tool
):
    settings.DJANGO_MCP = {"CONCURRENT_CALLS": 3}
    client = connect(server=server, revision=revision)
    ids = [start(client, tool, "in") for _ in range(3)]
    begun(client, work, 3)
    refused = client.wait(start(client, tool, "out"))["error"]
    assert refused["code"] == -32603 and "Too many" in refused["message"]
    assert refused["data"] == {"retryAfter": 1}  # as over HTTP
    if client.revision.handshake:
        assert client.request("ping") == {}  # a ping is never rejected
    work.go.set()
    assert all(text(client.wait(id)) == "held in" for id in ids)
    assert client.text("quick", name="again") == "quick again"
    assert "out" not in work.begun


def test_listens_do_not_count_as_calls(connect, server, work, settings):
    settings.DJANGO_MCP = {"CONCURRENT_CALLS": 1}
    client = connect(server=server)
    for _ in range(3):
        client.start("subscriptions/listen", notifications={"toolsListChanged": True})
    client.until(lambda: len(client.notes) == 3)
    assert client.text("quick", name="x") == "quick x"


SHARE = 7  # of the ten threads, for all anonymous clients


def test_calls_beyond_the_threads_are_queued(connect, server, work, settings):
    settings.DJANGO_MCP = {"QUEUE": 100}
    client = connect(server=server)
    ids = [start(client, "hold", str(number)) for number in range(30)]
    begun(client, work, SHARE)
    assert len(work.begun) == SHARE
    work.go.set()
    assert [text(client.wait(id)) for id in ids] == [f"held {number}" for number in range(30)]


def test_full_queue_rejects_the_call_without_effect(connect, server, work, settings):
    settings.DJANGO_MCP = {"QUEUE": 1}
    client = connect(server=server)
    ids = [start(client, "hold", "in") for _ in range(SHARE + 1)]
    begun(client, work, SHARE)
    with pytest.raises(RpcError, match="more work than it accepts") as refused:
        client.call("hold", name="out")
    assert refused.value.code == -32603
    work.go.set()
    assert all(text(client.wait(id)) == "held in" for id in ids) and "out" not in work.begun


# Batches.


@pytest.fixture
def batching(connect, server, work):
    return connect(server=server, revision="2025-03-26")


def sent(client, *entries):
    """Send a batch of ``entries``, wait for the end, and return the new messages."""
    before = len(client.received)
    client._run(client._send(list(entries)))
    finish(client)
    return client.received[before:]


def test_batch_is_answered_by_one_batch(batching, work):
    entries = [call(batching, "quick", str(number)) for number in range(50)]
    (answers,) = sent(batching, *entries)
    found = {answer["id"]: text(answer) for answer in answers}
    assert found == {entry["id"]: f"quick {n}" for n, entry in enumerate(entries)}


def test_batch_is_answered_after_its_last_call(batching, work):
    entries = [call(batching, "hold", "slow"), call(batching, "quick", "fast")]
    batching._run(batching._send(entries))
    begun(batching, work)
    batching.settle()
    assert batching.text("quick", name="another") == "quick another"
    before = len(batching.received)
    work.go.set()
    finish(batching)
    (answers,) = batching.received[before:]
    assert {text(answer) for answer in answers} == {"held slow", "quick fast"}


def test_batch_of_notifications_gets_no_response(batching):
    notification = {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}
    assert sent(batching, notification, notification) == []


def test_batch_response_contains_errors_and_results(batching):
    good = call(batching, "quick", "good")
    unknown = batching.message("no/such", {})
    taken = call(batching, "quick", "again", id=good["id"])
    (answers,) = sent(batching, 1, good, unknown, taken, {"jsonrpc": "2.0", "id": 9}, "x")
    codes = [answer["error"]["code"] for answer in answers if "error" in answer]
    assert sorted(codes) == [-32601, -32600, -32600, -32600, -32600]
    assert [text(answer) for answer in answers if "result" in answer] == ["quick good"]


def test_batch_of_rejected_entries_is_answered_at_once(batching, settings, work):
    settings.DJANGO_MCP = {"CONCURRENT_CALLS": 1}
    id = start(batching, "hold")
    begun(batching, work)
    before = len(batching.received)
    batching._run(batching._send([call(batching, "quick"), call(batching, "quick")]))
    batching.settle()
    answers = [message for message in batching.received[before:] if isinstance(message, list)]
    assert [[answer["error"]["code"] for answer in one] for one in answers] == [[-32603, -32603]]
    work.go.set()
    batching.wait(id)
    (answers,) = sent(batching, 1, {"jsonrpc": "2.0", "method": "notifications/unknown"})
    assert [answer["error"]["code"] for answer in answers] == [-32600]


@pytest.mark.parametrize("size", [0, 51])
def test_size_of_a_batch_is_limited(batching, size):
    entries = [call(batching, "quick") for _ in range(size)]
    (answer,) = sent(batching, *entries)
    assert answer["error"]["code"] == -32600


def test_call_cancelled_in_its_own_batch_never_runs(batching, work):
    entries = [call(batching, "hold", "a"), call(batching, "quick", "b")]
    stop = {"jsonrpc": "2.0", "method": "notifications/cancelled",
            "params": {"requestId": entries[0]["id"]}}  # fmt: skip
    (answers,) = sent(batching, *entries, stop)
    assert [text(answer) for answer in answers] == ["quick b"] and work.begun == []
    assert batching.conversation._active == {}


def test_batch_of_cancelled_calls_gets_no_response(batching, work):
    entries = [call(batching, "hold"), call(batching, "ahold")]
    stops = [{"jsonrpc": "2.0", "method": "notifications/cancelled",
              "params": {"requestId": entry["id"]}} for entry in entries]  # fmt: skip
    assert sent(batching, *entries, *stops) == []
    assert batching.text("quick", name="x") == "quick x"


def test_answers_may_arrive_in_a_batch(batching):
    id = batching.start("tools/call", name="ask")
    batching.until(lambda: batching.asked)
    answer = {"jsonrpc": "2.0", "id": batching.asked[0]["id"], "result": {"roots": []}}
    batching._run(batching._send([answer, call(batching, "quick", "x")]))
    assert text(batching.wait(id)) == "0 roots"
    finish(batching)
    batches = [message for message in batching.received if isinstance(message, list)]
    assert [[text(one) for one in batch] for batch in batches] == [["quick x"]]


# Cancellation.


@pytest.mark.parametrize("tool", ["hold", "ahold"])
def test_cancelled_call_gets_no_response(connect, server, work, revision, tool):
    client = connect(server=server, revision=revision)
    id = start(client, tool, "a", _meta={"progressToken": 1})
    begun(client, work)
    cancel(client, id)
    cancel(client, id)
    finish(client)
    assert work.ended == ["a"] and responses(client)[1:] == [] == list(client.conversation._active)
    assert not [note for note in client.notes if note["method"] != "notifications/progress"]


def test_queued_call_never_runs_after_its_cancellation(connect, server, work, settings):
    client = connect(server=server)
    for _ in range(SHARE):
        start(client, "hold", "in")
    begun(client, work, SHARE)
    queued = start(client, "hold", "queued")
    client.settle()
    cancel(client, queued)
    client.settle()
    assert len(client.conversation._active) == SHARE
    work.go.set()
    finish(client)
    assert work.begun == ["in"] * SHARE and len(responses(client)) == SHARE


def test_cancelling_a_call_withdraws_its_question(connect, server, work, handshake):
    client = connect(server=server, revision=handshake)
    id = client.start("tools/call", name="ask")
    client.until(lambda: client.asked)
    cancel(client, id)
    finish(client)
    (note,) = client.notes
    assert note["method"] == "notifications/cancelled"
    assert note["params"]["requestId"] == client.asked[0]["id"]
    before = len(client.received)
    client.send({"jsonrpc": "2.0", "id": client.asked[0]["id"], "result": {"roots": []}})
    client.settle()
    assert client.received[before:] == []


async def test_messages_after_the_response_are_not_sent(server):
    """For example by a thread that a tool has started, or after an ignored cancellation."""
    requests: list[Any] = []

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    async def leave(request: mcp.Request) -> str:
        requests.append(request)
        request.log("error", "in time")
        return "done"

    pipe = Pipe(server)
    pipe.write("tools/call", 1, name="leave", log="error")
    await until(lambda: len(pipe.sent) == 2)
    requests[0].log("error", "too late")
    requests[0].progress(1)
    assert [message.get("method") for message in pipe.sent] == ["notifications/message", None]
    await pipe.conversation.close()


def test_active_call_without_a_task_can_be_stopped():
    said: list[str] = []
    active = ActiveCall(None, PipeOutput(said.append))
    active.send("one")
    active.cancel()
    active.cancel()
    active.send("two")
    assert active.stop.is_set and said == ["one"]


def test_cancel_right_after_the_call_leaves_nothing_active(connect, server, work, revision):
    """The task of the call has not started yet."""
    client = connect(server=server, revision=revision)
    message = call(client, "quick")

    async def both():
        client.send(message)
        params = {"requestId": message["id"]}
        client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})

    before = len(client.received)
    client._run(both())
    finish(client)
    assert client.conversation._active == {} and client.received[before:] == []


# Questions.


@pytest.fixture
def asking(server):
    """Add tools that ask questions, and return the list of steps they have run."""
    steps: list[str] = []

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    def several(request: mcp.Request) -> str:
        step = request.once("step", lambda: steps.append("step") or len(steps))
        roots = request.roots()
        word = request.sample("A word.").text
        return f"{step} {len(roots)} {word}"

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    def failing(request: mcp.Request) -> str:
        def step() -> None:
            raise mcp.ToolError("The step is not to be done.")

        return f"{request.once('step', step)}"

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    def sign_in(request: mcp.Request, after: bool = False) -> str:
        if not steps:
            raise mcp.UrlRequired("Sign in.", "https://shop.example/in?id={elicitation_id}")
        return "signed in"

    return steps


ANSWERS = {
    "roots/list": lambda params: {"roots": [{"uri": "file:///home"}]},
    "sampling/createMessage": lambda params: {
        "role": "assistant", "model": "m", "content": {"type": "text", "text": "word"}},
}  # fmt: skip


def test_call_continues_with_its_answers(connect, server, asking, db, revision):
    client = connect(server=server, revision=revision, answers=ANSWERS)
    assert client.text("several") == "1 1 word"
    assert [one["method"] for one in client.asked] == ["roots/list", "sampling/createMessage"]
    assert asking == ["step"]


def test_failed_step_fails_the_call(connect, server, asking, db, revision):
    client = connect(server=server, revision=revision)
    assert client.failure("failing") == "The step is not to be done."


def test_client_is_notified_when_url_elicitation_completes(connect, server, asking):
    client = connect(server=server, revision="2025-11-25")
    error = client.wait(client.start("tools/call", name="sign_in"))["error"]
    assert error["code"] == -32042
    (page,) = error["data"]["elicitations"]
    announce(Announcement("elicitation_complete", "another", server.name))
    announce(Announcement("elicitation_complete", page["elicitationId"], "another server"))
    for _ in range(2):
        announce(Announcement("elicitation_complete", page["elicitationId"], server.name))
    client.until(lambda: client.notes)
    client.settle()
    (note,) = client.notes
    assert note["method"] == "notifications/elicitation/complete"
    assert note["params"]["elicitationId"] == page["elicitationId"]


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18"])
def test_older_client_gets_no_completion_notification(connect, server, asking, revision):
    client = connect(server=server, revision=revision)
    assert "https://shop.example/in" in client.failure("sign_in")
    client.conversation._questions.expect("x")
    announce(Announcement("elicitation_complete", "x", server.name))
    client.settle()
    assert client.notes == []


def test_client_is_pinged(connect, server, handshake):
    client = connect(server=server, revision=handshake, initialize=False)
    assert (
        client._run(client.conversation.ping(SECONDS)) is True
    )  # without a session no ping is sent
    assert client.asked == []
    client.initialize()
    assert client._run(client.conversation.ping(SECONDS)) is True
    assert [one["method"] for one in client.asked] == ["ping"]
    client.answers["ping"] = None
    client._reply = lambda message: None
    assert client._run(client.conversation.ping(0.01)) is False


def test_log_level_belongs_to_the_conversation(connect, server, handshake):
    @server.tool(permission=mcp.PUBLIC, read_only=True)
    def exchange(request: mcp.Request) -> str:
        for level in ("debug", "info", "error"):
            request.log(level, level)
        return "done"

    client = connect(server=server, revision=handshake)
    another = connect(server=server, revision=handshake)
    client.request("logging/setLevel", level="error")
    for one, expected in ((client, ["error"]), (another, ["info", "error"])):
        one.text("exchange")
        assert [note["params"]["data"] for note in one.notes] == expected


def test_subscriptions_belong_to_the_conversation(connect, server, handshake):
    @server.resource("shop://news", permission=mcp.PUBLIC)
    def news(request: mcp.Request) -> str:
        return "none"

    client, another = (connect(server=server, revision=handshake) for _ in range(2))
    client.request("resources/subscribe", uri="shop://news")
    announce(Announcement("updated", "shop://news", server.name))
    client.until(lambda: client.notes)
    client.request("resources/unsubscribe", uri="shop://news")
    announce(Announcement("updated", "shop://news", server.name))
    another.settle()
    client.settle()
    assert len(client.notes) == 1 and another.notes == []


# Errors.


def test_cancelled_error_from_a_tool_is_an_internal_error(connect, server, revision, caplog):
    @server.tool(permission=mcp.PUBLIC, read_only=True)
    async def tool(request: mcp.Request) -> str:
        raise asyncio.CancelledError

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    async def deeper(request: mcp.Request) -> str:
        task = asyncio.ensure_future(asyncio.sleep(100))
        asyncio.get_running_loop().call_soon(task.cancel)
        return f"{await task}"

    client = connect(server=server, revision=revision)
    for name in ("tool", "deeper"):
        response = client.wait(client.start("tools/call", name=name))
        assert response["error"]["code"] == -32603
    assert "Call failed: method=tools/call" in caplog.text


def test_stopped_tool_gets_no_response(connect, server):
    @server.tool(permission=mcp.PUBLIC, read_only=True)
    async def tool(request: mcp.Request) -> str:
        raise Stopped

    client = connect(server=server)
    client.start("tools/call", name="tool")
    finish(client)
    assert client.received == [] and client.conversation._active == {}


class Pipe:
    """A conversation whose input and output the test controls."""

    def __init__(self, server: Any, principal: Any = None) -> None:
        self.sent: list[Any] = []
        self.conversation = Conversation(server, principal or self.nobody, self.sent.append)

    async def nobody(self) -> Principal:
        return Principal(AnonymousUser())

    def write(self, method: str, id: Any = 1, log: str = "error", **params: Any) -> None:
        meta = {
            "io.modelcontextprotocol/logLevel": log,
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        message = {
            "jsonrpc": "2.0",
            "id": id,
            "method": method,
            "params": {"_meta": meta, **params},
        }
        self.conversation.receive(json.dumps(message))


@pytest.mark.parametrize(
    "error, code, words",
    [
        (Busy("Come back later."), -32603, "Come back later."),
        (OperationalError("the password is hunter2"), -32603, "Internal error"),
        (mcp.ProtocolError("No", code=4711), 4711, "No"),
    ],
)
async def test_failing_principal_fails_the_call(server, error, code, words):
    async def principal():
        raise error

    @server.tool(permission=mcp.PUBLIC)
    def nothing(request: mcp.Request) -> None:
        """A server without tools has no tools/list."""

    pipe = Pipe(server, principal)
    pipe.write("tools/list")
    await pipe.conversation.finish(SECONDS)
    (response,) = pipe.sent
    assert (response["error"]["code"], response["error"]["message"]) == (code, words)
    await pipe.conversation.close()


def test_user_is_checked_again_for_every_call(connect, server, alice):
    @server.tool(read_only=True)
    def whoami(request: mcp.Request) -> str:
        return request.user.username

    client = connect(alice, server=server)
    assert client.text("whoami") == "alice"
    client.user.is_active = False
    with pytest.raises(RpcError, match="Unknown tool"):
        client.call("whoami")
    client.user.is_active = True
    assert client.text("whoami") == "alice"


def test_user_is_checked_again_for_every_round(connect, server, alice, handshake):
    @server.tool(read_only=True)
    def ask(request: mcp.Request) -> str:
        request.roots()
        return request.user.username

    client = connect(alice, server=server, revision=handshake)
    id = client.start("tools/call", name="ask")
    client.until(lambda: client.asked)
    client.user.is_active = False
    client._run(client._send(
        {"jsonrpc": "2.0", "id": client.asked[0]["id"], "result": {"roots": []}}
    ))  # fmt: skip
    assert client.wait(id)["error"]["code"] == -32602


def test_result_that_cannot_be_serialized_is_an_internal_error(
    connect, server, work, revision, caplog
):
    client = connect(server=server, revision=revision)
    server.extensions["x.example/odd"] = {"set": {1, 2}}  # which is not validated
    if client.revision.handshake:
        response = client.wait(client.start("initialize", **HANDSHAKE | {
            "protocolVersion": revision}))  # fmt: skip
        assert response["error"]["code"] == -32600  # the session is initialized already
        return
    response = client.wait(client.start("server/discover"))
    assert response["error"]["code"] == -32603 and "cannot be encoded" in caplog.text
    assert client.text("quick", name="x") == "quick x"


HANDSHAKE = {"capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}


@pytest.mark.parametrize("raw", [b"", b"\xff", b"{", b"[1", "nul", b"1e999", b'"\\ud800"'])
def test_unreadable_message_is_a_parse_error(connect, server, revision, raw):
    client = connect(server=server, revision=revision)
    before = len(client.received)
    client.send(raw)
    client.settle()
    (refused,) = client.received[before:]
    assert refused["error"]["code"] == -32700 and refused.get("id") is None


@pytest.mark.parametrize("id", [None, 1.5, True, [1]])
def test_request_with_an_invalid_id_is_rejected_without_an_id(connect, server, revision, id):
    client = connect(server=server, revision=revision)
    before = len(client.received)
    client.send({"jsonrpc": "2.0", "id": id, "method": "tools/list"})
    client.settle()
    (refused,) = client.received[before:]
    assert refused["error"]["code"] == -32600 and refused.get("id") is None


def test_other_notifications_are_logged_and_not_answered(connect, server, work, handshake, caplog):
    caplog.set_level(logging.DEBUG, "django_mcp")
    client = connect(server=server, revision=handshake)
    before = len(client.received)
    client.notify("notifications/roots/list_changed")
    client.settle()
    assert client.received[before:] == []
    assert "roots/list_changed" in caplog.text


# The end.


async def test_close_leaves_no_tasks_and_jobs(server, work):
    tasks = asyncio.all_tasks()
    pipe = Pipe(server)
    pipe.write("tools/call", 1, name="hold", arguments={"name": "sync"})
    pipe.write("tools/call", 2, name="ahold", arguments={"name": "async"})
    pipe.write("subscriptions/listen", 3, notifications={"toolsListChanged": True})
    await until(lambda: len(work.begun) == 2 and pipe.sent)
    await pipe.conversation.close()
    assert sorted(work.ended) == ["async", "sync"]
    assert asyncio.all_tasks() == tasks and threads.tools.pending() == 0
    assert [m.get("method", m.get("id")) for m in pipe.sent] == [
        "notifications/subscriptions/acknowledged", "notifications/cancelled", 3,
    ]  # fmt: skip
    await pipe.conversation.close()


async def test_close_does_not_wait_forever(server, work):
    stuck, let_go = threading.Event(), threading.Event()

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    def deaf(request: mcp.Request) -> str:
        stuck.set()
        let_go.wait(2 * SECONDS)
        return "never"

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    async def stubborn(request: mcp.Request) -> str:
        while not let_go.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue
        return "never"

    pipe = Pipe(server)
    pipe.write("tools/call", 1, name="deaf")
    pipe.write("tools/call", 2, name="stubborn")
    await asyncio.to_thread(stuck.wait, SECONDS)
    before = time.monotonic()
    await pipe.conversation.close(0.1)
    assert time.monotonic() - before < SECONDS
    let_go.set()
    await until(lambda: not threads.tools.pending() and len(asyncio.all_tasks()) == 1)
    assert pipe.sent == []
    gc.collect()


async def test_finish_waits_for_calls_and_not_for_listens(server, work):
    pipe = Pipe(server)
    await pipe.conversation.finish(SECONDS)
    pipe.write("subscriptions/listen", 1, notifications={"toolsListChanged": True})
    pipe.write("tools/call", 2, name="hold")
    await until(lambda: work.begun)
    await pipe.conversation.finish(0.01)
    assert not [m for m in pipe.sent if m.get("id") == 2]
    work.go.set()
    await pipe.conversation.finish(SECONDS)
    await asyncio.sleep(0)
    assert [m["id"] for m in pipe.sent if "id" in m] == [2]
    await pipe.conversation.close()


@pytest.mark.parametrize("kind", ["request", "notification", "stateless"])
def test_closed_conversation_rejects_requests(connect, server, work, kind):
    client = connect(server=server, revision="2025-11-25")
    client._run(client.conversation.close())
    before = len(client.received)
    if kind == "request":
        assert client.wait(start(client, "quick"))["error"]["code"] == -32600
    elif kind == "stateless":
        meta = {"_meta": client.envelope()}
        assert client.wait(client.start("tools/list", **meta))["error"]["code"] == -32600
    else:
        client.notify("notifications/roots/list_changed")
        client.settle()
        assert client.received[before:] == []
    assert work.begun == []


def test_conversation_of_a_closed_loop_gets_no_notifications(server, work):
    pipe: list[Pipe] = []

    async def begin():
        pipe.append(Pipe(server))

    asyncio.run(begin())
    announce(Announcement("list_changed", "tools", server.name))  # raises nothing
    assert pipe[0].sent == []


@pytest.mark.slow
def test_unclosed_conversation_is_garbage_collected(server, work):
    async def begin():
        return weakref.ref(Pipe(server))

    left = asyncio.run(begin())
    asyncio.run(begin())  # a new loop replaces the services of a closed one
    gc.collect()
    assert left() is None


def test_conversation_requires_valid_declarations(connect, server):
    server.register(Tag)
    with pytest.raises(Exception, match="never applied"):
        connect(server=server)
