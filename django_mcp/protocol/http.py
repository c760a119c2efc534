"""
What HTTP says around a message: the names of headers, media types, and the status of an answer.

The rule: values in, values out. A header is read by the grammar of RFC 9110, and what a client
may send at any length is kept by no cache.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from .errors import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
)

# Names of headers, as ASGI writes them: in lower case.
PROTOCOL_VERSION = "mcp-protocol-version"
METHOD = "mcp-method"
NAME = "mcp-name"
PARAM_PREFIX = "mcp-param-"
SESSION_ID = "mcp-session-id"
LAST_EVENT_ID = "last-event-id"

JSON_TYPE = "application/json"
SSE_TYPE = "text/event-stream"
HTML_TYPE = "text/html"

# What the address of HTTP+SSE says its session in.
SESSION_PARAM = "session_id"

# What a response begins with.
JSON_HEADERS = ((b"content-type", b"application/json"),)
SSE_HEADERS = (
    (b"content-type", b"text/event-stream"),
    # No proxy may keep, compress or hold back what is to be read at once.
    (b"cache-control", b"no-store, no-transform"),
    (b"x-accel-buffering", b"no"),
)

# "The client MUST include an Accept header": of both types to POST, of a stream to GET.
NEEDED = {"GET": frozenset((SSE_TYPE,)), "POST": frozenset((JSON_TYPE, SSE_TYPE))}

# From the most specific range to the least; the first that is listed decides (RFC 9110, 12.5.1).
_RANGES = {
    JSON_TYPE: (JSON_TYPE, "application/*", "*/*"),
    SSE_TYPE: (SSE_TYPE, "text/*", "*/*"),
}
_MEMBERS = re.compile(r'(?:[^,"]|"(?:[^"\\]|\\.)*+"?)++')
_PARAMETERS = re.compile(r'(?:[^;"]|"(?:[^"\\]|\\.)*+"?)++')
_NEVER = re.compile(r"q\s*=\s*0(?:\.0*)?\Z", re.I)
_CHARSET = re.compile(r'charset\s*=\s*(?:utf-?8|"utf-?8")\Z', re.I)

LONGEST_CACHED = 500  # clients send few different values; only a hostile one sends long ones


def acceptable(http_method: str, accept: str | None) -> bool:
    """Whether the client takes every type with which a request of this method may be answered."""
    return NEEDED.get(http_method, frozenset()) <= accepts(accept)


def accepts(value: str | None) -> frozenset[str]:
    """Which of JSON and an event stream an ``Accept`` header takes.

    No header takes nothing: RFC 9110 would have it take anything, but clients MUST send it, and
    those that do not would be surprised by a stream.
    """
    if not value:
        return frozenset()
    return (_accepts if len(value) <= LONGEST_CACHED else _accepts.__wrapped__)(value)


def takes_page(accept: str | None) -> bool:
    """Whether an ``Accept`` header asks for a page, as those of browsers do, and for no stream.

    Both count by name alone: ``*/*`` stands in the headers of everybody.
    """
    listed = _listed(accept or "")
    return listed.get(HTML_TYPE, False) and not listed.get(SSE_TYPE, False)


def is_json(content_type: str | None) -> bool:
    """Whether a body of that type is JSON in UTF-8."""
    if not content_type:
        return False
    return (_is_json if len(content_type) <= LONGEST_CACHED else _is_json.__wrapped__)(content_type)


@lru_cache(maxsize=128)
def _accepts(value: str) -> frozenset[str]:
    listed = _listed(value)
    return frozenset(type_ for type_, ranges in _RANGES.items() if _taken(listed, ranges))


def _listed(value: str) -> dict[str, bool]:
    """The ranges of an ``Accept`` header, and whether each is taken at all."""
    listed: dict[str, bool] = {}
    for member in _MEMBERS.findall(value):
        name, parameters = _parts(member)
        taken = not any(_NEVER.match(parameter) for parameter in parameters)
        listed[name] = taken or listed.get(name, False)
    return listed


def _taken(listed: Mapping[str, bool], ranges: tuple[str, ...]) -> bool:
    return next((listed[range_] for range_ in ranges if range_ in listed), False)


@lru_cache(maxsize=128)
def _is_json(value: str) -> bool:
    name, parameters = _parts(value)
    charsets = [part for part in parameters if part.lower().startswith("charset")]
    return name == JSON_TYPE and all(map(_CHARSET.match, charsets))


def _parts(media_type: str) -> tuple[str, list[str]]:
    name, _, rest = media_type.partition(";")
    return name.strip().lower(), [part.strip() for part in _PARAMETERS.findall(rest)]


# The status of what is answered before a stream has begun.

# "For HTTP, the response status code MUST be 400 Bad Request": schema, HeaderMismatchError,
# MissingRequiredClientCapabilityError, UnsupportedProtocolVersionError; streamable-http, "If the
# server does not implement the requested RPC method, it MUST respond with 404 Not Found".
_OF_AN_ANSWER = {
    HEADER_MISMATCH: 400,
    METHOD_NOT_FOUND: 404,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
}
# Before there is a call, invalid params are a field of _meta that is missing, which is 400 too
# (basic, "_meta"). In the answer to a call they are an unknown tool or resource: the specification
# names no status. The Python SDK says 400 and the TypeScript SDK 200. Here it is 200, since clients
# are told to fall back to an older revision at a 400 whose error they do not recognize
# (streamable-http, "Backward Compatibility").
_OF_A_REFUSAL = _OF_AN_ANSWER | {PARSE_ERROR: 400, INVALID_REQUEST: 400, INVALID_PARAMS: 400}
# With a handshake both SDKs answer every well-formed request by 200, errors included, and refuse
# by 400 what is no message, or not legal now ("an HTTP error status code (e.g., 400 Bad
# Request)" in the transports pages of all that have sessions).
_OF_A_REFUSAL_IN_A_SESSION = {PARSE_ERROR: 400, INVALID_REQUEST: 400}
_STATUS: dict[tuple[bool, bool], Mapping[int, int]] = {
    (False, False): _OF_A_REFUSAL,
    (False, True): _OF_AN_ANSWER,
    (True, False): _OF_A_REFUSAL_IN_A_SESSION,
    (True, True): {},
}


def status(response: Mapping[str, Any], *, handshake: bool, called: bool) -> int:
    """The HTTP status of a JSON-RPC response that is sent as JSON.

    ``handshake`` is of the revision that is spoken; ``called`` says whether the request became a
    call, whose answer this is, or was refused before.
    """
    if (error := response.get("error")) is None:
        return 200
    if response.get("id") is None:
        return 400  # no request was understood
    return _STATUS[handshake, called].get(error["code"], 200)
