"""An answer is cut out of what came, whatever its shape, and held against what was asked."""

import json

import pytest

from benchmarks.wires import (
    MARK,
    NUMBER,
    SECRET,
    STATELESS,
    Wrong,
    cut,
    stateless,
    wire,
    with_token,
)

ADDRESS = ("127.0.0.1", 8000)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


def answer(number, text, **more):
    result = {"content": [{"type": "text", "text": text}], **more}
    return json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode()


def plain(body):
    return HEAD + b"content-length: %d\r\n\r\n" % len(body) + body


def chunked(*parts):
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (*parts, b""))
    return HEAD + b"transfer-encoding: chunked\r\n\r\n" + chunks


BODY = b'{"a": 1}'
EVENTS = b"id: 1-0\r\ndata:\r\n\r\nid: 1-1\r\nevent: message\r\ndata: " + BODY + b"\r\n\r\n"


@pytest.mark.parametrize(
    "response",
    [plain(BODY), plain(EVENTS), chunked(BODY), chunked(BODY[:3], BODY[3:]), chunked(EVENTS)],
)
def test_the_first_whole_response_is_cut_out(response):
    assert cut(response + b"HTTP/1.1 200") == (BODY, b"HTTP/1.1 200")
    for end in range(len(response) - 1):
        assert cut(response[:end]) is None


def test_another_status_is_no_answer():
    with pytest.raises(Wrong, match="503"):
        cut(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n")


def test_a_request_has_its_number_and_its_length():
    asked = stateless(ADDRESS, "add", {"a": NUMBER, "b": 1}).request(5)
    head, body = asked.split(b"\r\n\r\n")
    assert b"Content-Length: %d\r\n" % len(body) in head + b"\r\n" and MARK not in body
    assert json.loads(body)["id"] == 5 and json.loads(body)["params"]["arguments"]["a"] == 5
    assert f"MCP-Protocol-Version: {STATELESS}".encode() in head


def test_a_token_is_shown_once_and_nowhere_else():
    plain, shown = (one(ADDRESS, "add", {"a": NUMBER, "b": 1}) for one in (stateless, with_token))
    assert shown.body == plain.body
    line = b"Authorization: Bearer " + SECRET.encode() + b"\r\n"
    assert shown.head.count(line) == 1 and shown.head.replace(line, b"") == plain.head


@pytest.mark.parametrize(
    "wrong",
    [
        answer(5, "7"),
        answer(4, "6"),
        answer(5, "6", isError=True),
        b'{"jsonrpc": "2.0", "id": 5, "error": {"code": -32603, "message": "no"}}',
    ],
)
def test_what_was_not_asked_for_is_wrong(wrong):
    asked = wire(ADDRESS, {}, {"name": "add", "arguments": {}})
    asked.check(answer(5, "6"), 5)
    with pytest.raises(Wrong, match="To call 5 came"):
        asked.check(wrong, 5)
