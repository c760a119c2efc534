"""
The HTTP requests of a call, as bytes: stateless (2026-07-28), or in a session (2025-11-25).

Standard library only. Every response is compared with the expected one. It may be JSON or a stream
of events, with a length or in chunks.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

JSON = dict[str, Any]
PREFIX = "io.modelcontextprotocol/"
CLIENT = {"name": "benchmark", "version": "1"}
STATELESS, SESSION = "2026-07-28", "2025-11-25"
TOKEN = "2026-07-28 with a token"
SESSION_TOKEN = "2025-11-25 with a token"
LIST = "tools/list"
SECRET = "the-access-token-of-alice"  # it opens nothing but the benchmarks
# Replaced in the body by the id of each call.
NUMBER = 987654321
MARK = b"%d" % NUMBER


class WrongResponse(Exception):
    """A response that is not the expected one."""


@dataclass(frozen=True)
class CallTemplate:
    """The HTTP request of a call: its head without the length, its body without the id."""

    tool: str
    head: bytes
    body: bytes

    def request(self, number: int) -> bytes:
        body = self.body.replace(MARK, b"%d" % number)
        return self.head % len(body) + body

    def check(self, answer: bytes, number: int) -> None:
        message = json.loads(answer)
        result = message.get("result") or {}
        content = result.get("content") or [{}]
        text, expected = content[0].get("text"), EXPECTED[self.tool](number)
        if message.get("id") != number or result.get("isError") or text != expected:
            raise WrongResponse(f"The response to call {number} is {answer[:500]!r}")


@dataclass(frozen=True)
class ListTemplate(CallTemplate):
    """The HTTP request of a list of tools, which are `count`."""

    count: int = 0

    def check(self, answer: bytes, number: int) -> None:
        message = json.loads(answer)
        names = {tool["name"] for tool in message.get("result", {}).get("tools", ())}
        if message.get("id") != number or len(names) != self.count or "add" not in names:
            raise WrongResponse(f"{len(names)} tools in the response {answer[:500]!r}")


def stateless(address: tuple[str, int], tool: str, arguments: JSON) -> CallTemplate:
    """Return a call of a tool, or with `LIST` a list of as many tools as `count` says."""
    meta = {
        f"{PREFIX}protocolVersion": STATELESS,
        f"{PREFIX}clientCapabilities": {},
        f"{PREFIX}clientInfo": CLIENT,
    }
    headers = {"MCP-Protocol-Version": STATELESS}
    if tool == LIST:
        made = template(address, headers | {"Mcp-Method": LIST}, {"_meta": meta}, LIST)
        return ListTemplate(LIST, made.head, made.body, arguments["count"])
    headers |= {"Mcp-Method": "tools/call", "Mcp-Name": tool}
    return template(address, headers, {"name": tool, "arguments": arguments, "_meta": meta})


def with_token(address: tuple[str, int], tool: str, arguments: JSON) -> CallTemplate:
    plain = stateless(address, tool, arguments)
    head = plain.head.replace(b"\r\n", b"\r\nAuthorization: Bearer %b\r\n" % SECRET.encode(), 1)
    return replace(plain, head=head)


def in_session(
    address: tuple[str, int], tool: str, arguments: JSON, token: str = ""
) -> CallTemplate:
    headers = {"MCP-Protocol-Version": SESSION, **open_session(address, token)}
    return template(address, headers, {"name": tool, "arguments": arguments})


def in_session_with_token(address: tuple[str, int], tool: str, arguments: JSON) -> CallTemplate:
    return in_session(address, tool, arguments, SECRET)


def template(
    address: tuple[str, int], headers: JSON, params: JSON, method: str = "tools/call"
) -> CallTemplate:
    lines = {"Host": "{}:{}".format(*address), **ACCEPTED, **headers, "Content-Length": "%d"}
    head = "POST /mcp HTTP/1.1\r\n" + "".join(f"{name}: {it}\r\n" for name, it in lines.items())
    message = {"jsonrpc": "2.0", "id": NUMBER, "method": method, "params": params}
    body = json.dumps(message, separators=(",", ":")).encode()
    return CallTemplate(params.get("name", method), head.encode() + b"\r\n", body)


TEMPLATES: dict[str, Callable[[tuple[str, int], str, JSON], CallTemplate]] = {
    STATELESS: stateless,
    SESSION: in_session,
    TOKEN: with_token,
    SESSION_TOKEN: in_session_with_token,
}
ACCEPTED = {
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
}
EXPECTED: dict[str, Callable[[int], str]] = {
    "add": lambda number: str(number + 1),
    "add_sync": lambda number: str(number + 1),
    "add_with_progress": lambda number: str(number + 1),
    "city": lambda number: '{"name": "City 7", "population": 7000}',
}


def open_session(address: tuple[str, int], token: str = "") -> JSON:
    """Open and initialize a session, and return the headers that its requests need."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    params = {"protocolVersion": SESSION, "capabilities": {}, "clientInfo": CLIENT}
    opened = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    response = post(address, opened, headers)
    session = response.headers["mcp-session-id"]
    headers |= {"Mcp-Session-Id": session} if session else {}
    done = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    post(address, done | {"params": {}}, headers | {"MCP-Protocol-Version": SESSION})
    return headers


def post(address: tuple[str, int], message: JSON, headers: JSON) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(*address, timeout=20)
    connection.request("POST", "/mcp", json.dumps(message), ACCEPTED | headers)
    response = connection.getresponse()
    body = response.read()
    connection.close()
    if response.status not in (200, 202):
        raise WrongResponse(f"{message['method']}: {response.status} {body[:500]!r}")
    return response


def split_response(buffer: bytes) -> tuple[bytes, bytes] | None:
    """Return the body of the first response in `buffer` and the rest; None if it is incomplete."""
    end = buffer.find(b"\r\n\r\n")
    if end < 0:
        return None
    head, body = buffer[:end].lower(), buffer[end + 4 :]
    if not head.startswith((b"http/1.1 200", b"http/1.1 202")):
        raise WrongResponse(buffer[:800].decode(errors="replace"))
    at = head.find(b"content-length:")
    if at < 0:
        return join_chunks(body)
    length = int(head[at + 15 :].split(b"\r\n", 1)[0])
    return (data(body[:length]), body[length:]) if len(body) >= length else None


def join_chunks(body: bytes) -> tuple[bytes, bytes] | None:
    whole, at = b"", 0
    while (end := body.find(b"\r\n", at)) >= 0:
        size = int(body[at:end], 16)
        at = end + 4 + size
        if len(body) < at:
            return None
        if not size:
            return data(whole), body[at:]
        whole += body[end + 2 : end + 2 + size]
    return None


def data(body: bytes) -> bytes:
    """Return the message in a body: the body itself, or the data of its last event with data."""
    if body.startswith(b"{"):
        return body
    found = [line[5:].strip() for line in body.splitlines() if line.startswith(b"data:")]
    return next((one for one in reversed(found) if one), b"null")
