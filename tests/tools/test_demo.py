"""The demonstration, for real: on a part of the atlas."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, build_opener

import pytest

from tools import serving
from tools.environment import ROOT
from tools.oauth import Person, Refused

posix = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
SOON = 6  # seconds within which Ctrl-C ends it; two, on a machine that has nothing else to do
VERSION = "2026-07-28"
META = "io.modelcontextprotocol/"


@pytest.fixture(scope="module")
def environ(tmp_path_factory):
    """The environment of a demonstration with a database of its own."""
    folder = tmp_path_factory.mktemp("demo")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    return kept | {
        "ATLAS_DATABASE": str(folder / "atlas.sqlite3"),
        "DJANGO_SETTINGS_MODULE": "example_project.settings",
        "TOOLS_ENVIRONMENT": sys.prefix,
        "PYTHONUTF8": "1",
    }


@contextmanager
def starting(environ):
    """Starts the demonstration; what it prints goes where the test wants it."""
    started = []

    def start(*arguments, **options):
        command = [sys.executable, "-m", "tools", "demo", "--largest=3000", *arguments]
        quiet = {"stdin": subprocess.DEVNULL, "text": True, "encoding": "utf-8"}
        process = subprocess.Popen(command, cwd=ROOT, env=environ, **quiet | options)
        started.append(process)
        return process

    try:
        yield start
    finally:
        for process in started:
            process.kill()
            process.communicate()


@pytest.fixture
def demo(environ):
    with starting(environ) as start:
        yield start


def serve(demo, folder):
    """A demonstration that serves: its process, its port, and what it has printed."""
    log, port = folder / "log", serving.free_port()
    with log.open("w") as file:
        process = demo(f"--port={port}", stdout=file, stderr=file)
    serving.wait_for(process, port)
    return process, port, lambda: log.read_text("utf-8")


@pytest.fixture
def served(demo, tmp_path):
    return lambda: serve(demo, tmp_path)


@pytest.fixture(scope="module")
def standing(environ, tmp_path_factory):
    """One that goes on serving, for whoever ends nothing: its port, and what it has printed."""
    with starting(environ) as start:
        _, port, told = serve(start, tmp_path_factory.mktemp("standing"))
        yield port, told


def password_in(text):
    return re.search(r"^  alice +(\S{16})$", text, re.M)[1]


def token_in(text):
    return re.search(r"^  (mcp_\S+)$", text, re.M)[1]


def opened(port, token, message, **headers):
    """The answer to a message; without one, a stream of what the server has to say."""
    request = urllib.request.Request(
        f"{serving.origin(port)}/mcp",
        json.dumps(message).encode() if message else None,
        {"Authorization": f"Bearer {token}", "Content-Type": "application/json",
         "Accept": "application/json, text/event-stream"} | headers,
    )  # fmt: skip
    return urllib.request.urlopen(request, timeout=20)


def ride(port, token):
    """A call that is on its way, and would be for more than a minute."""
    arguments = {"country": "JP", "stops": 10, "seconds": 9}
    meta = {
        META + "protocolVersion": VERSION,
        META + "clientCapabilities": {},
        "progressToken": 1,
    }
    params = {"name": "ride_slow_train", "arguments": arguments, "_meta": meta}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    named = {"Mcp-Method": "tools/call", "Mcp-Name": "ride_slow_train"}
    stream = opened(port, token, message, **named, **{"Mcp-Protocol-Version": VERSION})
    assert b"Tokyo" in stream.readline() + stream.readline()
    return stream


def listen(port, token):
    """A stream of a session's, on which nothing is said."""
    older = "2025-11-25"
    params = {
        "protocolVersion": older,
        "capabilities": {},
        "clientInfo": {"name": "tests", "version": "1"},
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    with opened(port, token, message) as answer:
        assert "Mcp-Session-Id" in answer.headers, answer.read()
        session = {"Mcp-Session-Id": answer.headers["Mcp-Session-Id"]}
    session["Mcp-Protocol-Version"] = older
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    with opened(port, token, ready, **session) as answer:
        assert answer.status == 202
    stream = opened(port, token, None, **session)
    assert stream.readline().startswith(b"id: ")
    return stream


def test_it_serves_until_ctrl_c_with_whatever_is_open(served):
    process, port, told = served()
    token = token_in(told())
    with ride(port, token) as call, listen(port, token) as standing:
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert time.monotonic() - began < SOON
        assert b"about to end" in call.read()
        assert b"retry: " in standing.read()
    assert "Traceback" not in told()


@posix
def test_sigterm_ends_it_too(served):
    process, port, told = served()
    process.terminate()
    assert process.wait(20) == 0
    assert "Traceback" not in told()


def test_a_second_run_has_the_same_token_and_password(served):
    first, port, told = served()
    token, password = token_in(told()), password_in(told())
    first.terminate()
    first.wait(20)
    second, port, told = served()
    assert (token_in(told()), password_in(told())) == (token, password)
    assert "already loaded: 3,000 cities" in told()


def test_it_tells_how_to_connect(standing):
    port, told = standing
    url, text = f"{serving.origin(port)}/mcp", told()
    assert f"The atlas is served at {url}." in text
    for line in ("claude mcp add --transport http", "modelcontextprotocol/inspector --server-url"):
        assert line in text
    assert text.index("Claude Code.") < text.index("Starting ASGI")
    assert text.count("mcp_") == 1  # the token, which no client is given that signs in


def test_who_shows_no_token_is_told_where_to_sign_in(standing):
    port, told = standing
    with pytest.raises(HTTPError, match="401") as refused:
        opened(port, "", {"jsonrpc": "2.0", "id": 1, "method": "ping"}, Authorization="none")
    with refused.value as answer:  # an error that holds the connection open
        url = re.search(r'resource_metadata="([^"]+)"', answer.headers["WWW-Authenticate"])[1]
    with urllib.request.urlopen(url, timeout=20) as answer:
        metadata = json.load(answer)
    assert metadata["resource"] == f"{serving.origin(port)}/mcp"
    assert metadata["authorization_servers"] == [serving.origin(port)]


def test_who_does_as_it_says_can_sign_in_to_the_page(standing):
    port, told = standing
    password = password_in(told())
    browser = build_opener(HTTPCookieProcessor())
    page = f"{serving.origin(port)}/mcp"
    login = f"{serving.origin(port)}/accounts/login/?next=/mcp"
    secret = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', html(browser, login))[1]
    form = {"csrfmiddlewaretoken": secret, "username": "alice", "password": password}
    assert "delete_trip" not in html(browser, page)
    assert "delete_trip" in html(browser, login, urlencode(form).encode())


def test_a_person_whom_the_pages_do_not_let_on_is_told_why(standing):
    port, told = standing
    origin = serving.origin(port)
    login, nowhere = f"{origin}/accounts/login/?next=/mcp", f"{origin}/oauth/authorize?client_id=x"
    wrong, right = Person("alice", "wrong"), Person("alice", password_in(told()))
    for person, url, why in (
        (wrong, login, "The name or the password is not taken."),
        (right, nowhere, "/oauth/authorize answers 400: This did not work"),
        (right, login, "/mcp answers 401"),  # to a program: no page of consent
    ):
        with pytest.raises(Refused, match=re.escape(why)):
            asyncio.run(person.answer(url))


def html(browser, address, form=None):
    request = urllib.request.Request(address, form, {"Accept": "text/html"})
    try:
        with browser.open(request, timeout=20) as answer:
            return answer.read().decode()
    except HTTPError as error:
        with error:
            pytest.fail(f"{address} answers {error.code}: {error.read().decode()[:4000]}")


def test_a_port_that_is_taken_is_told_at_once(demo):
    with socket.socket() as other:
        other.bind((serving.HOST, 0))
        other.listen()
        port = other.getsockname()[1]
        process = demo(f"--port={port}", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"Port {port} is taken" in err and f"--port {port + 1}" in err
    assert out == ""


def test_a_check_talks_both_ways_and_ends(demo):
    process = demo("--check", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    out, _ = process.communicate(timeout=170)
    assert process.returncode == 0, out
    assert "== That was all." in out
    assert "already loaded: 3,000 cities" in out and "Loaded 234,908" not in out
    for way in ("with an access token", "by signing in", "as nobody"):
        assert f"/mcp, {way}\n" in out
    assert "An hour later it had new tokens, and asked nobody." in out
    assert "401, Bearer" in out and "✗" not in out
    assert "claude mcp add --transport http atlas http://127.0.0.1:8000/mcp" in out


def test_over_stdio_is_the_conversation_and_no_server(demo):
    process = demo("--stdio", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0, out
    assert "== That was all." in out
    assert "http://127.0.0.1" not in out
    assert f"claude mcp add atlas -- {sys.executable}" in out
