"""Thousands of HTTP requests that are malformed in one way or in several.

In process, each response is compared with a small model that was written from the specification.
Over sockets, real servers get incomplete, reset, slow and interrupted requests. Afterwards the
tables and the memory have not grown, and a call succeeds.
"""

from __future__ import annotations

import contextlib
import json
import random
import socket
import sqlite3
import struct
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import django_mcp as mcp
from tests.client import PREFIX
from tests.http import BOTH, HttpClient
from tests.servers import Served, around, prepare, request

pytestmark = pytest.mark.slow

VERSION, CAPABILITIES = PREFIX + "protocolVersion", PREFIX + "clientCapabilities"
VALID = {
    "method": "POST", "host": "testserver", "origin": None, "accept": BOTH,
    "content-type": "application/json", "authorization": None, "mcp-session-id": None,
    "last-event-id": None, "version": "2026-07-28", "header": "same", "called": "tools/list",
    "mcp-method": "same", "body": "good", "lacks": None,
}  # fmt: skip
# What else each may be.
FAULTS = {
    "method": ["PUT", "HEAD", "PATCH", "X" * 50],
    "host": ["", "evil.example", "testserver:80:80", "testserver@evil.example", "\xff", "a" * 999],
    "origin": ["null", "", "http://evil.example", "https://testserver", "http://testserver/x"],
    "accept": [None, "application/json", "text/event-stream", "text/html"],
    "content-type": [None, "text/plain", "application/x-www-form-urlencoded", "application/json2"],
    "authorization": ["Bearer", "Bearer x", "Bearer mcp_" + "A" * 43, "Bearer " + "x" * 9_000],
    "mcp-session-id": ["x", "A" * 43, "\xff", ""],
    "last-event-id": ["1-1", "x", "9" * 50],
    "version": ["v999", "2025-11-25", "2026-07-29", "\u2603"],
    "header": [None, "2025-11-25", "v999", ""],
    "called": ["initialize", "ping", "unknown/method", "tools/List", "rpc.x"],
    "mcp-method": [None, "tools/call", "TOOLS/LIST", "\xff"],
    "body": ["deep", "huge", "cut", "bytes", "empty", "batch", "null", "number", "id", "2.0"],
    "lacks": [VERSION, CAPABILITIES, "_meta", "params"],
}  # fmt: skip
LARGEST = 100_000


def body(case):
    """The bytes of a case."""
    meta = {VERSION: case["version"], CAPABILITIES: {}}
    meta.pop(case["lacks"], None)
    params = {} if case["lacks"] == "_meta" else {"_meta": meta}
    message = {"jsonrpc": "2.0", "id": 1, "method": case["called"], "params": params}
    if case["lacks"] == "params":
        del message["params"]
    raw = json.dumps(message).encode()
    return {
        "good": raw, "deep": b"[" * 70 + b"]" * 70, "huge": raw + b" " * LARGEST, "cut": raw[:-5],
        "bytes": raw[:-1] + b', "x": "\xff\xfe"}', "empty": b"", "batch": b"[" + raw + b"]",
        "null": b"null", "number": b"12", "id": raw.replace(b'"id": 1', b'"id": [1]'),
        "2.0": raw.replace(b'"2.0"', b'"1.0"'),
    }[case["body"]]  # fmt: skip


REFUSED = {"host": 400, "origin": 403, "authorization": 401, "accept": 406, "content-type": 415}


def expected(case):
    """The status and the code, by the first thing that is wrong."""
    wrong = {name for name, value in VALID.items() if case[name] != value}
    if "method" in wrong:
        return 405, None if case["method"] == "HEAD" else -32600  # whose answers have no body
    for name, status in REFUSED.items():
        if name in wrong:
            return status, -32600
    if "body" in wrong:
        if case["body"] == "huge":
            return 413, -32600
        malformed = case["body"] in ("deep", "cut", "bytes", "empty")
        return 400, -32700 if malformed else -32600
    header = case["version"] if case["header"] == "same" else case["header"]
    mirrored = case["called"] if case["mcp-method"] == "same" else case["mcp-method"]
    says_version = case["lacks"] not in (VERSION, "_meta", "params")
    # The version first, then the method: one that is not there has no parameters to be wrong.
    # Servers read the bytes of a header as Latin-1: one in UTF-8 differs from the same in the body.
    if says_version and header is not None and header.encode().decode("latin-1") != case["version"]:
        return 400, -32020
    named = case["version"] if says_version else header
    if named is not None and named != VALID["version"]:
        return 400, -32022
    if "called" in wrong:
        return 404, -32601
    if "lacks" in wrong:
        return 400, -32602
    if header is None or mirrored != case["called"]:
        return 400, -32020
    return 200, None


def sent(client, case):
    headers = {name: case[name] for name in list(VALID)[1:8]}
    header = case["version"] if case["header"] == "same" else case["header"]
    headers["mcp-protocol-version"] = header and header.encode()
    headers["mcp-method"] = case["called"] if case["mcp-method"] == "same" else case["mcp-method"]
    client._methods[1] = "tools/list"  # which the answer is held against
    exchange = client.send(case["method"], "/mcp", body(case), headers)
    code = exchange.messages[0].get("error", {}).get("code") if exchange.messages else None
    return exchange.status, code


# Where the message says too little for its revision to be known, its header decides: those cases
# are the ones in which both do not name the newest, and belong to the revisions with sessions.
def is_decided(case):
    header = case["version"] if case["header"] == "same" else case["header"]
    if case["called"] == "initialize" and case["lacks"] in ("_meta", "params"):
        return False  # the beginning of a handshake, whatever the header says
    says = case["body"] == "good" and case["lacks"] is None
    return says or header == "2026-07-28"


CASES = st.fixed_dictionaries(
    {name: st.sampled_from([value] * 8 + FAULTS[name]) for name, value in VALID.items()}
).filter(is_decided)


@pytest.mark.django_db
def test_malformed_requests_get_the_expected_response(settings, monkeypatch):
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = LARGEST
    monkeypatch.setattr(mcp.server, "page", None)  # a browser's visit is under other rules
    with HttpClient() as client:
        seen = set()

        @_storm
        @given(CASES)
        def send_faulty_requests(case):
            assert sent(client, case) == expected(case)
            seen.add(expected(case))
            client.exchanges.clear()

        send_faulty_requests()
        assert client.text("add", a=1, b=2) == "3"
    assert len(seen) >= 10


_storm = settings(
    max_examples=1_000, deadline=None, database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


@pytest.mark.django_db
@pytest.mark.parametrize("name", FAULTS)
def test_each_single_fault_gets_the_expected_response(settings, name):
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = LARGEST
    with HttpClient() as client:
        for value in FAULTS[name]:
            case = VALID | {name: value}
            if is_decided(case):
                assert sent(client, case) == expected(case), value


# Over sockets.


GOOD = request("tools/call", name="add", arguments={"a": 1, "b": 2})


def good(port, message=GOOD):
    raw = json.dumps(message).encode()
    headers = {"Host": f"127.0.0.1:{port}", "Content-Length": str(len(raw))} | around(message)
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"POST /mcp HTTP/1.1\r\n{lines}\r\n".encode() + raw


def reset(sock):
    """Close it as a machine does that was switched off."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


KINDS = ["cut", "reset", "garbage", "flip", "twice", "leave", "stream", "listen", "huge", "slow"]


def send_faulty_request(random_, server):
    """One connection, in one of the ways in which they go wrong."""
    raw = good(server.port)
    slow = good(server.port, request("tools/call", name="ponder", arguments={"seconds": 5}))
    said = good(server.port, request("tools/call", name="count", arguments={"to": 50},
                                     meta={"progressToken": 1}))  # fmt: skip
    listening = good(server.port, request("subscriptions/listen", notifications={}))
    with server.socket(0.2) as sock:
        kind = random_.choice(KINDS)
        if kind in ("cut", "reset"):
            sock.sendall(raw[: random_.randrange(len(raw))])
        elif kind == "garbage":
            sock.sendall(random_.randbytes(random_.randrange(1, 2_000)) + b"\r\n\r\n")
        elif kind == "flip":
            place = random_.randrange(len(raw))
            sock.sendall(raw[:place] + random_.randbytes(1) + raw[place + 1 :])
        elif kind == "twice":
            sock.sendall(raw * random_.randrange(2, 6))
            sock.recv(100)
        elif kind == "huge":
            head = raw.split(b"\r\n\r\n")[0].replace(b"Content-Length: ", b"Content-Length: 9999")
            sock.sendall(head + b"\r\n\r\n" + b"x" * 10_000)
        elif kind == "slow":
            for byte in range(0, 60, 20):
                sock.sendall(raw[byte : byte + 20])
                time.sleep(0.001)
        else:
            sock.sendall({"leave": slow, "stream": said, "listen": listening}[kind])
            if kind != "leave" and random_.random() < 0.5:
                sock.recv(random_.randrange(1, 500))
        if kind == "reset" or random_.random() < 0.3:
            reset(sock)


def rows(folder):
    """How many rows each table of the log has."""
    with contextlib.closing(sqlite3.connect(folder / "mcp.sqlite3")) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return {
            name: database.execute(f'SELECT COUNT(*) FROM "{name}"').fetchone()[0]
            for (name,) in tables
            if name.startswith("django_mcp") and not name.endswith("process")
        }


@pytest.mark.slow
@pytest.mark.parametrize("name", ["uvicorn", "daphne"])
def test_malformed_requests_over_sockets_leak_no_rows_or_memory(name, tmp_path):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    random_ = random.Random(seed)
    with Served(name, prepare(tmp_path)) as server:
        send_faulty_requests(random_, server, 300)  # what is made once, is made
        settled(server)
        before = rows(tmp_path), len(server.call("busy")["content"]), server.resident()
        send_faulty_requests(random_, server, 1_200)
        settled(server)
        assert rows(tmp_path) == before[0]
        assert len(server.call("busy")["content"]) <= before[1] + 2
        assert server.resident() < before[2] * 1.25 + 10_000
        assert server.text("add", a=1, b=2) == "3"
        server.terminate()
        assert server.ended() in server.exit_codes


def send_faulty_requests(random_, server, times):
    for _ in range(times):
        with contextlib.suppress(ConnectionError, TimeoutError):  # the server had enough of it
            send_faulty_request(random_, server)
        assert server.process.poll() is None, server.told()


def settled(server):
    """Calls that were left end when the server looks, and streams when it writes."""
    time.sleep(2)
    assert server.text("add", a=1, b=2) == "3"
