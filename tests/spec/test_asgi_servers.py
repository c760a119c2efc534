"""The endpoint under each supported ASGI server: responses, streams, disconnects and shutdown."""

from __future__ import annotations

import contextlib
import json
import os
import time

import pytest

from django_mcp.protocol.revisions import LATEST_HANDSHAKE
from tests.servers import COMMANDS, Served, around, prepare, request

LISTEN = request("subscriptions/listen", id="l", notifications={"toolsListChanged": True})
SOON = 6  # seconds, of a busy machine, in which a server ends though streams are open
PROGRESS = {"progressToken": "p"}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name != "posix", reason="the tests end servers by signals"),
]


@pytest.fixture(scope="module", params=COMMANDS)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def server(name, tmp_path_factory):
    """One that many tests ask, and none ends."""
    with Served(name, prepare(tmp_path_factory.mktemp(name))) as running:
        yield running


@pytest.fixture
def serve(name, tmp_path):
    """Starts servers of one kind, which the test may end."""
    with contextlib.ExitStack() as stack:

        def started(*options, **more):
            return stack.enter_context(Served(name, prepare(tmp_path), *options, **more))

        yield started


def calling(tool, *, meta=None, **arguments):
    return request("tools/call", id="c", meta=meta, name=tool, arguments=arguments)


def left_behind(server, message):
    """Send a message and have nothing of its answer yet."""
    connection = server.connect()
    connection.request("POST", "/mcp", json.dumps(message), around(message))
    return connection


# Answers.


def test_call_is_answered_as_json(server):
    reply = server.begin(calling("add", a=1, b=2))
    (message,) = reply.messages()
    assert reply.status == 200 and reply.headers["content-type"] == "application/json"
    assert message["id"] == "c" and message["result"]["content"][0]["text"] == "3"


def test_connection_is_kept_alive_for_many_calls(server):
    connection = server.connect()
    for number in range(20):
        message = calling("add", a=number, b=1)
        connection.request("POST", "/mcp", json.dumps(message), around(message))
        result = json.loads(connection.getresponse().read())["result"]
        assert result["content"][0]["text"] == str(number + 1)


def test_notifications_are_streamed_immediately(server):
    reply = server.begin(calling("count", to=4, pause=0.3, meta=PROGRESS))
    assert reply.status == 200 and reply.headers["x-accel-buffering"] == "no"
    assert "content-length" not in reply.headers
    came = [(time.monotonic(), message) for message in reply.messages()]
    assert [m["params"]["progress"] for _, m in came[:-1]] == [1, 2, 3, 4]
    assert came[-1][1]["result"]["content"][0]["text"] == "counted to 4"
    assert came[-1][0] - came[0][0] > 0.6


def test_idle_stream_sends_keepalive_comments(server):
    reply = server.begin(LISTEN)
    next(reply.messages())
    line = b""
    while not line.startswith(b":"):
        line = reply.response.readline()
        assert line
    reply.leave()


@pytest.mark.parametrize("size", [10, 70_000, 190_000])
def test_large_bodies_and_responses_are_transferred(server, size):
    padded = json.dumps(calling("large", size=20 * size)).encode() + b" " * size
    reply = server.begin(padded, headers={"Mcp-Method": "tools/call", "Mcp-Name": "large"})
    (message,) = reply.messages()
    assert len(message["result"]["content"][0]["text"]) == 20 * size


@pytest.mark.parametrize(
    ("method", "changed", "status"),
    [
        ("POST", {"Host": "evil.example"}, 400), ("POST", {"Origin": "http://evil.example"}, 403),
        ("POST", {"Origin": "null"}, 403), ("POST", {"Accept": "text/html"}, 406),
        ("POST", {"Content-Type": "text/plain"}, 415), ("POST", {"Authorization": "Bearer x"}, 401),
        ("POST", {"Mcp-Method": "tools/list"}, 400), ("GET", {}, 405), ("DELETE", {}, 405),
        ("PUT", {}, 405), ("HEAD", {}, 405), ("OPTIONS", {}, 204),
        ("OPTIONS", {"Origin": "http://evil.example"}, 403),
    ],
)  # fmt: skip
def test_error_responses_are_delivered(server, method, changed, status):
    message = calling("add", a=1, b=2)
    connection = server.connect()
    connection.request(method, "/mcp", json.dumps(message), around(message) | changed)
    response = connection.getresponse()
    body = response.read()
    assert response.status == status
    if body:
        assert "error" in json.loads(body)
    # The connection is still good.
    connection.request("POST", "/mcp", json.dumps(message), around(message))
    assert connection.getresponse().status == 200


def test_too_large_body_gets_413(server):
    reply = server.begin(b" " * 250_000, headers={"Mcp-Method": "x"})
    assert reply.status == 413
    assert server.text("add", a=1, b=2) == "3"


# Browsers.


def test_browser_gets_an_html_page(server):
    connection = server.connect()
    browser = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    for method in ("GET", "HEAD", "GET"):
        connection.request(method, "/mcp", headers=browser)
        response = connection.getresponse()
        body = response.read()
        assert (response.status, response.getheader("Content-Type")) == (
            200, "text/html; charset=utf-8",
        )  # fmt: skip
        assert b"<code>whoami</code>" not in body
        assert (b"<code>ponder</code>" in body) == (method == "GET")
    assert "Traceback" not in server.told()


# Leaving.


@pytest.mark.parametrize(("tool", "traces"), [("plod", "plodd"), ("ponder", "ponder")])
def test_disconnect_cancels_the_call(server, tool, traces):
    """The client disconnects before any part of the response."""
    for trace in (f"{traces}ing", f"{traces}ed"):
        (server.folder / trace).unlink(missing_ok=True)
    connection = left_behind(server, calling(tool))
    server.traced(f"{traces}ing")
    assert not (server.folder / f"{traces}ed").exists()
    connection.close()
    server.traced(f"{traces}ed", 10)
    assert server.text("groups") == "0"


def test_disconnect_from_a_stream_cancels_the_call(server):
    for trace in ("pondering", "pondered"):
        (server.folder / trace).unlink(missing_ok=True)
    reply = server.begin(calling("ponder", say=True, meta=PROGRESS))
    next(reply.messages())
    assert not (server.folder / "pondered").exists()
    reply.leave()
    server.traced("pondered", 10)


# Sessions.


def test_session_works_from_initialize_to_delete(server):
    version = LATEST_HANDSHAKE.name
    hello = {"protocolVersion": version, "capabilities": {}}
    hello |= {"clientInfo": {"name": "tests", "version": "1"}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    reply = server.begin(message, headers={"MCP-Protocol-Version": version})
    (answer,) = reply.messages()
    assert answer["result"]["protocolVersion"] == version
    mine = {"MCP-Protocol-Version": version, "Mcp-Session-Id": reply.headers["mcp-session-id"]}
    for body, status in (
        ({"jsonrpc": "2.0", "method": "notifications/initialized", "params": {}}, 202),
        ({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}, 200),
    ):
        assert server.begin(body, headers=mine).status == status
    message = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {
        "name": "count", "arguments": {"to": 3}, "_meta": PROGRESS}}  # fmt: skip
    said = list(server.begin(message, headers=mine).messages())
    assert [m.get("id", m.get("params", {}).get("progress")) for m in said] == [1, 2, 3, 3]
    streaming, ending = server.connect(), server.connect()
    streaming.request("GET", "/mcp", headers=mine | {"Accept": "text/event-stream"})
    stream = streaming.getresponse()
    assert stream.status == 200 and stream.readline().startswith(b"id: ")
    ending.request("DELETE", "/mcp", headers=mine)
    assert ending.getresponse().status == 204
    assert stream.read() is not None  # it ends
    assert server.begin(message, headers=mine).status == 404


# Places.


@pytest.mark.parametrize("name", [name for name, (_, option) in COMMANDS.items() if option])
def test_server_works_below_a_path_prefix(serve):
    server = serve(root="/app")
    # What stands in front may take the prefix away, or leave it, if the server does so too.
    paths = ["/app/mcp", "/app/mcp/"] if server.server == "granian" else ["/mcp", "/mcp/"]
    for path in paths:
        reply = server.begin(calling("add", a=1, b=2), path)
        assert (reply.status, path) == (200, path)
    page = paths[0].replace("mcp", "page/")
    connection = server.connect()
    connection.request("GET", page, headers={"Host": "localhost"})
    response = connection.getresponse()
    assert (response.status, response.read()) == (200, b"Django at /app/page/")
    connection.request("GET", paths[0], headers={"Accept": "text/html", "Host": "localhost"})
    assert b"http://localhost/app/mcp" in connection.getresponse().read()


def test_trailing_slash_is_optional(server):
    for path, status in (("/mcp", 200), ("/mcp/", 200), ("/mcp//", 404), ("/mc", 404)):
        assert server.begin(calling("add", a=1, b=2), path).status == status


# The end.


@pytest.mark.parametrize("how", [Served.terminate, Served.interrupt])
def test_shutdown_ends_streams_with_a_message_and_soon(serve, how):
    server = serve()
    streams = [server.begin(LISTEN).messages() for _ in range(3)]
    for stream in streams:
        assert next(stream)["method"] == "notifications/subscriptions/acknowledged"
    begun = time.monotonic()
    how(server)
    for stream in streams:
        cancelled, result = list(stream)
        assert cancelled["method"] == "notifications/cancelled"
        assert cancelled["params"]["requestId"] == "l"
        assert result["id"] == "l" and result["result"]["resultType"] == "complete"
    code = server.ended(SOON)
    assert time.monotonic() - begun < SOON
    assert code in ((0, 130) if how is Served.interrupt else server.exit_codes)
    assert "Traceback" not in server.told()


def test_shutdown_lets_a_call_finish(serve):
    server = serve()
    connection = left_behind(server, calling("ponder", seconds=1.5))
    server.traced("pondering")
    server.terminate()
    response = connection.getresponse()
    assert response.status == 200
    assert json.loads(response.read())["result"]["content"][0]["text"] == "pondered"
    assert server.ended(10) in server.exit_codes
    assert "Traceback" not in server.told()


def test_interrupt_ends_running_calls_with_503(serve):
    """The client may try again after a second."""
    server = serve()
    connection = left_behind(server, calling("ponder"))
    server.traced("pondering")
    server.interrupt()
    server.ended(5)
    server.traced("pondered", 1)
    response = connection.getresponse()
    assert response.status == 503 and response.getheader("Retry-After") == "1"
    assert json.loads(response.read())["id"] == "c"


def test_second_signal_ends_the_process_at_once(serve):
    server = serve()
    left_behind(server, calling("ponder"))
    server.traced("pondering")
    server.terminate()  # which leaves a call eight seconds
    time.sleep(0.3)
    begun = time.monotonic()
    server.interrupt()
    server.ended(5)
    assert time.monotonic() - begun < SOON
