"""
What the doctor says to a server as a client would, and what it makes of an answer.

Rule: what comes back is somebody else's: of any size, form and language.
"""

from __future__ import annotations

import json
from typing import Any

from ...protocol import http
from ...protocol.envelope import PREFIX
from ...protocol.revisions import LATEST, REVISIONS

JSON = dict[str, Any]
BOTH = "application/json, text/event-stream"
SESSIONS = max(name for name, one in REVISIONS.items() if one.handshake)
INFO = {"name": "mcp_doctor", "version": "1"}


def request(method: str, params: JSON | None = None, id: int | None = 1) -> bytes:
    """A message of a revision with sessions: a request, or without an ``id`` a notification."""
    numbered = {} if id is None else {"id": id}
    given = {} if params is None else {"params": params}
    return json.dumps({"jsonrpc": "2.0", "method": method, **numbered, **given}).encode()


def standing_alone(method: str) -> bytes:
    """A request of the newest revision."""
    said = {"protocolVersion": LATEST.name, "clientCapabilities": {}, "clientInfo": INFO}
    return request(method, {"_meta": {PREFIX + key: value for key, value in said.items()}})


def around(method: str = "server/discover") -> dict[str, str]:
    """The headers of a request of the newest revision."""
    return typed() | {http.PROTOCOL_VERSION: LATEST.name, http.METHOD: method}


def typed() -> dict[str, str]:
    return {"Content-Type": "application/json", "Accept": BOTH}


DISCOVER = standing_alone("server/discover")
INITIALIZE = request(
    "initialize", {"protocolVersion": SESSIONS, "capabilities": {}, "clientInfo": INFO}
)


def message(body: bytes) -> JSON:
    """The response in a body, plain or the last of a stream; empty if there is none."""
    text = body.decode("utf-8", "replace").replace("\r\n", "\n")
    found: JSON = {}
    for candidate in [text, *_data(text)]:
        try:
            read = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        if isinstance(read, dict) and read.get("jsonrpc") == "2.0" and "method" not in read:
            found = read
    return found


def _data(text: str) -> list[str]:
    """What the events of a stream hold."""
    blocks = (block.split("\n") for block in text.split("\n\n"))
    marked = ([line[5:].strip() for line in lines if line[:5] == "data:"] for lines in blocks)
    return ["\n".join(lines) for lines in marked if lines]


def is_answer(body: bytes) -> bool:
    """Whether somebody answered who speaks MCP."""
    return bool(message(body))


def result(body: bytes) -> JSON:
    found = message(body).get("result")
    return found if isinstance(found, dict) else {}


def error(body: bytes) -> JSON:
    found = message(body).get("error")
    return found if isinstance(found, dict) else {}


def counted(number: int, more: str = "") -> str:
    return f"{number}{more} tool{'' if number == 1 else 's'}"
