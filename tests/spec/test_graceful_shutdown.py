"""SIGTERM under each ASGI server and under load.

The process ends each connection as the revision of its client allows, and another process resumes
unfinished calls at once. Source: the guarantees of delivery, "Draining".
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import threading
import time
from typing import Any

import pytest

from django_mcp.calls.recovery import LOST
from tests.servers import COMMANDS, Reply, Served, prepare, request

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name != "posix", reason="ends are told by signals here"),
]
GRACE, SLACK = 8, 6  # seconds: as documented, and of a busy machine
LISTEN = request("subscriptions/listen", id="l", notifications={"toolsListChanged": True})
OLD, NEW = "2025-06-18", "2025-11-25"
PROGRESS = {"progressToken": "p"}
OPTIONS = {"hypercorn": ("--graceful-timeout", "15")}  # it hears signals first, as documented


@pytest.fixture(params=COMMANDS)
def serve(request, tmp_path):
    """Starts servers of one kind, on the same databases."""
    folder = prepare(tmp_path)
    with contextlib.ExitStack() as stack:
        options = OPTIONS.get(request.param, ())
        yield lambda: stack.enter_context(Served(request.param, folder, *options))


class Client:
    """One session, of which any server may be asked."""

    def __init__(self, server: Served, revision: str) -> None:
        self.server, self.revision, self._ids = server, revision, itertools.count(1)
        self.headers = {"MCP-Protocol-Version": revision}
        hello = {
            "protocolVersion": revision, "capabilities": {},
            "clientInfo": {"name": "tests", "version": "1"},
        }  # fmt: skip
        reply = self.post("initialize", **hello)
        list(reply.messages())
        self.headers["Mcp-Session-Id"] = reply.headers["mcp-session-id"]
        note = {"jsonrpc": "2.0", "method": "notifications/initialized", "params": {}}
        server.begin(note, headers=self.headers).leave()

    def post(self, method: str, **params: Any) -> Reply:
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        return self.server.begin(message, headers=self.headers)

    def call(self, tool: str, **arguments: Any) -> Reply:
        return self.post("tools/call", name=tool, arguments=arguments, _meta=PROGRESS)

    def get(self, last: str | None = None) -> Reply:
        connection = self.server.connect()
        more = {} if last is None else {"Last-Event-ID": last}
        connection.request(
            "GET", "/mcp", headers=self.headers | more | {"Accept": "text/event-stream"}
        )
        return Reply(connection, connection.getresponse())


def text(message: dict[str, Any]) -> str:
    return str(message["result"]["content"][0]["text"])


def test_sigterm_releases_each_client_as_its_revision_allows(serve):
    server = serve()
    old, new = Client(server, OLD), Client(server, NEW)
    primed = new.call("retry", name="primed")
    spoken = old.call("retry", name="spoken", say=True)
    silent, risky = old.call("retry", name="silent"), old.call("risk", name="risky")
    timely = old.call("ponder", seconds=3)
    streams = [new.get(), old.get()]
    listen = server.begin(LISTEN).messages()
    assert next(listen)["method"] == "notifications/subscriptions/acknowledged"
    alone = threading.Thread(target=_asked, args=(server, answers := []))
    alone.start()
    for name in ("primed", "spoken", "silent", "risky", "alone", "pondering"):
        server.traced(name)
    server.terminate()
    begun = time.monotonic()
    # At once: whoever can come back is told so, and nothing new begins.
    *_, cursor = primed.events()
    ends = [list(stream.events()) for stream in streams]
    cancelled, result = list(listen)
    assert time.monotonic() - begun < SLACK
    assert cursor.retry and ends[0][-1].retry and ends[1] == []
    assert cancelled["method"] == "notifications/cancelled"
    assert result["result"]["resultType"] == "complete"
    for begin in (lambda: new.post("tools/list"), lambda: server.begin(request("tools/list"))):
        with contextlib.suppress(ConnectionError):  # some servers listen no more
            reply = begin()
            assert (reply.status, reply.headers["retry-after"]) == (503, "1")
            assert "id" in next(reply.messages())
    # Within the time that calls have:
    assert text(list(timely.messages())[-1]) == "pondered"
    # At its end: who cannot come back is answered, in a way that is safe to believe.
    (again,), (lost,) = list(silent.messages()), list(risky.messages())
    assert again["error"]["data"]["retryAfter"]
    assert text(lost) == LOST and lost["result"]["isError"]
    said = list(spoken.events())
    assert [json.loads(one.data)["params"]["progress"] for one in said] == [1]
    alone.join(GRACE + SLACK)
    assert [(a["id"], "error" in a) for a in answers] == [("c", True)]
    assert time.monotonic() - begun > GRACE - 1
    assert server.ended(SLACK) in server.exit_codes
    # And what was left goes on elsewhere.
    old.server = new.server = other = serve()
    began = time.monotonic()
    for client, last in ((new, cursor.id), (old, said[-1].id)):
        assert text(list(client.get(last).messages())[-1]) == "done at last"
    assert time.monotonic() - began < SLACK  # it was left, and no lease had to run out
    assert "Traceback" not in server.told() + other.told()


def _asked(server: Served, answers: list[Any]) -> None:
    reply = server.begin(request("tools/call", id="c", name="retry", arguments={"name": "alone"}))
    answers += reply.messages()


def test_another_process_resumes_calls_at_once_after_sigterm(serve):
    server, other = serve(), serve()
    client = Client(server, NEW)
    Client(other, NEW)  # so that it looks after sessions
    (event,) = itertools.islice(client.call("retry", name="left").events(), 1)
    server.traced("left")
    server.terminate()
    assert server.ended(GRACE + SLACK) in server.exit_codes
    began = time.monotonic()
    client.server = other
    assert text(list(client.get(event.id).messages())[-1]) == "done at last"
    assert time.monotonic() - began < SLACK


# Under load.


class Load(threading.Thread):
    """A client that calls, again and again, until nobody is there; nothing may surprise it."""

    def __init__(self, client: Client | None, server: Served) -> None:
        super().__init__(daemon=True)
        self.client, self.server = client, server
        self.done = self.refused = 0
        self.left: list[str] = []  # where streams ended that go on elsewhere
        self.wrong: list[Any] = []

    def run(self) -> None:
        try:
            while not self.refused:
                reply = self._call()
                try:
                    self._take(reply)
                finally:
                    reply.leave()
        except (ConnectionError, http.client.HTTPException):
            self.refused += 1  # some servers stop listening at once

    def _call(self) -> Reply:
        if self.client is not None:
            return self.client.call("count", to=10, pause=0.01)
        return self.server.begin(
            request("tools/call", meta=PROGRESS, name="count", arguments={"to": 10, "pause": 0.01})
        )

    def _take(self, reply: Reply) -> None:
        if reply.status == 503:
            self.refused += 1
            if reply.headers.get("retry-after") != "1":
                self.wrong.append(reply.headers)
            return
        events = list(reply.events())
        messages = [json.loads(event.data) for event in events if event.data]
        steps = [m["params"]["progress"] for m in messages if "method" in m]
        if steps != list(range(1, len(steps) + 1)):
            self.wrong.append(steps)
        if messages and "result" in messages[-1] and len(steps) == 10:
            self.done += 1
        elif self.client is not None and events and events[-1].retry:
            self.left.append(str(events[-1].id))
        else:
            self.wrong.append(events)


def test_sigterm_under_load_truncates_no_response(serve):
    server = serve()
    revisions = [None, OLD, NEW] * 4
    loads = [Load(r and Client(server, r), server) for r in revisions]
    for load in loads:
        load.start()
    server.until(lambda: all(load.done > 1 for load in loads), "no load")
    begun = time.monotonic()
    server.terminate()
    for load in loads:
        load.join(GRACE + SLACK)
    assert server.ended(SLACK) in server.exit_codes
    assert time.monotonic() - begun < GRACE  # each call takes a moment
    assert [load.wrong for load in loads if load.wrong] == []
    assert sum(load.refused for load in loads) > 0
    other = serve()
    for load in loads:
        for cursor in load.left:
            load.client.server = other
            assert text(list(load.client.get(cursor).messages())[-1]) == "counted to 10"
    assert "Traceback" not in server.told()
