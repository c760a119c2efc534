"""The page of a tool in a real browser, in the official host of MCP Apps, with a real server."""

from __future__ import annotations

import http.client
import mimetypes
import os
import threading
from contextlib import ExitStack, closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tools import conformance_suite

from .conftest import SECONDS, absent
from .looking import CONTRAST, NAMES, OVERFLOW

HOST_PAGE = Path(__file__).parent / "apps_host.html"
IMAGES = Path(__file__).parents[2] / "docs/images"
LARGEST = 100_000  # bytes of an image
# What a host must send if the page declares no domain (MCP Apps, "Host Behavior").
POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; media-src 'self' data:; connect-src 'none'"
)
HEADERS = ("accept", "content-type", "mcp-protocol-version", "mcp-method", "mcp-name")
ATTACK = "<img src=x onerror=\"document.title='attacked'\">"


class Host(ThreadingHTTPServer):
    """The site of a web client: its page, its packages, and its way to the MCP server."""

    def __init__(self, endpoint: str, token: str) -> None:
        super().__init__(("127.0.0.1", 0), HostHandler)
        self.endpoint, self.token = urlsplit(endpoint), token
        self.page = b""
        self.url = f"http://127.0.0.1:{self.server_port}"


class HostHandler(BaseHTTPRequestHandler):
    server: Host

    def do_GET(self):
        path = urlsplit(self.path).path
        if path == "/":
            self._send(HOST_PAGE.read_bytes(), "text/html")
        elif path == "/page":
            self._send(self.server.page, "text/html", {"Content-Security-Policy": POLICY})
        elif path.startswith("/npm/") and ".." not in path:
            file = conformance_suite.PACKAGES / path.removeprefix("/npm/")
            kind = "text/javascript" if file.suffix in (".js", ".mjs") else None
            self._send(file.read_bytes(), kind or mimetypes.guess_type(path)[0] or "text/plain")
        else:
            self.send_error(405)

    def do_PUT(self):
        self.server.page = self._body()
        self._send(b"", "text/plain")

    def do_POST(self):
        at = self.server.endpoint
        headers = {name: self.headers[name] for name in HEADERS if name in self.headers}
        headers |= {"authorization": f"Bearer {self.server.token}"}
        with closing(http.client.HTTPConnection(at.hostname, at.port, timeout=SECONDS)) as server:
            server.request("POST", at.path, self._body(), headers)
            response = server.getresponse()
            kind = response.headers["content-type"] or "text/plain"
            self._send(response.read(), kind, status=response.status)

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers["content-length"] or 0))

    def _send(self, body: bytes, kind: str, more: dict[str, str] | None = None, status: int = 200):
        self.send_response(status)
        headers = {"Content-Type": kind, "Content-Length": str(len(body))} | (more or {})
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="module")
def host(atlas, address):
    if why := conformance_suite.why_absent():
        absent(why)
    conformance_suite.install()
    token = atlas.manage("mcp_token", "create", "--user", "alice", "--name", "host").strip()
    with Host(address, token) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def shown(chromium, host):
    """Return a function that shows the page of a tool: ``shown("itinerary", {"trip": "1"})``.

    It returns the page of the host and the frame with the page of the tool. The test fails at
    messages in the console, such as those of a violated policy, and at requests to other hosts.
    """
    problems: list[str] = []

    def noticed(message):  # the host's transport logs every message to the console
        if message.type in ("error", "warning"):
            problems.append(message.text)

    def requested(request):
        if not request.url.startswith((host.url, "data:")):
            problems.append(f"elsewhere: {request.url[:200]}")

    with ExitStack() as stack:

        def show(name, arguments, theme="light"):
            context = chromium.new_context(viewport={"width": 720, "height": 320})
            stack.enter_context(context).set_default_timeout(SECONDS * 1000)
            page = context.new_page()
            page.on("console", noticed)
            page.on("pageerror", lambda error: problems.append(str(error)))
            page.on("request", requested)
            page.goto(host.url)
            page.wait_for_function("() => Boolean(window.show)")
            found = page.evaluate("([...args]) => show(...args)", [name, arguments, theme])
            (frame,) = (one for one in page.frames if one.url.endswith("/page"))
            frame.get_by_role("heading").wait_for()
            return page, frame, found

        yield show
    assert not problems


PLAN = """
from datetime import date
from django.contrib.auth.models import User
from example_project.atlas import trips
from example_project.atlas.models import City, Trip
alice = User.objects.get(username="alice")
trip = Trip(owner=alice, title=TITLE, starts=date(2027, 4, 3), ends=date(2027, 4, 17))
print([*trips.plan(trip, City.objects.order_by("-population")[:4])][0].trip.pk)
"""
TITLE = "Four large cities"


@pytest.fixture(scope="module")
def trip(host, atlas):
    """The key of a trip of Alice's, with four stops."""
    key = atlas.manage("shell", "-c", f"TITLE = {TITLE!r}\n{PLAN}").split()[-1]
    yield key
    delete = (
        f"from example_project.atlas.models import Trip; Trip.objects.filter(pk={key}).delete()"
    )
    atlas.manage("shell", "-c", delete)


def height_of(frame):
    return frame.evaluate("document.documentElement.getBoundingClientRect().height")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_page_shows_the_result_in_the_official_host(shown, trip, theme):
    page, frame, found = shown("itinerary", {"trip": trip}, theme)
    assert found["app"] == {"name": "itinerary", "version": "1"}
    assert found["page"]["uri"] == "ui://atlas/itinerary" and "_meta" not in found["page"]
    frame.get_by_role("heading", name=TITLE).wait_for()
    assert frame.locator("tbody tr").count() == 3
    # It took the theme and the variables of the host, and told it its size.
    assert frame.evaluate("document.documentElement.style.colorScheme") == theme
    page.wait_for_function(
        "height => document.querySelector('iframe').clientHeight >= height", arg=height_of(frame)
    )
    for defects in (CONTRAST, OVERFLOW, NAMES):
        assert frame.evaluate(defects) == []
    name = IMAGES / f"ui-{theme}.png"
    if os.environ.get("SCREENSHOTS") == "1":
        page.screenshot(path=name, animations="disabled")
    kept, taken = name.read_bytes(), page.screenshot(animations="disabled")
    assert len(kept) < LARGEST and kept[16:24] == taken[16:24]  # width and height in PNG's header
    assert page.evaluate("bridge.teardownResource({})") == {}


def test_page_calls_tools_and_shows_text_as_text(shown, trip):
    page, frame, _ = shown("itinerary", {"trip": trip})
    frame.get_by_role("heading", name=TITLE).wait_for()
    changed = {"name": "update_trip", "arguments": {"trip": trip, "title": ATTACK}}
    try:
        assert not page.evaluate("call => client.callTool(call)", changed).get("isError")
        frame.get_by_role("button", name="Update").click()
        frame.get_by_role("heading", name=ATTACK).wait_for()
        assert frame.title() == "itinerary" and frame.locator("img").count() == 0
    finally:
        changed["arguments"]["title"] = TITLE
        page.evaluate("call => client.callTool(call)", changed)


def test_page_believes_only_its_parent_and_reaches_no_host(shown, trip):
    page, frame, _ = shown("itinerary", {"trip": trip})
    frame.get_by_role("heading", name=TITLE).wait_for()
    forged = {
        "jsonrpc": "2.0", "method": "ui/notifications/tool-result",
        "params": {"isError": True, "content": [{"type": "text", "text": "forged"}]},
    }  # fmt: skip
    # The page's own window posts it. It has arrived when a later message has.
    frame.evaluate(
        "async forged => { postMessage(forged, '*'); await new Promise(done => {"
        " addEventListener('message', ({data}) => data === 'later' && done());"
        " postMessage('later', '*'); }); }",
        forged,
    )
    assert "forged" not in frame.locator("body").inner_text()
    assert frame.evaluate("mcp.sendMessage('How long is it?')") == {}
    assert page.evaluate("sent") == [
        {"role": "user", "content": [{"type": "text", "text": "How long is it?"}]}
    ]
    unknown = frame.evaluate("mcp.request('ui/none').catch(error => error.code)")
    assert unknown == -32601
