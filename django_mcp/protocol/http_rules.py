"""
HTTP rules of MCP: header names, content negotiation, mirrored headers, and response statuses.

These are pure functions. Headers are parsed by the grammar of RFC 9110. Long values are not cached,
so that clients cannot fill the memory.

Some headers mirror the body of a request, so that proxies can route by them. A mirrored header must
have exactly the value in the body, and occur once; otherwise the request is rejected
(streamable-http, "Server Validation"). A proxy decides by the header and the server runs the body,
so a difference would bypass the proxy's rules. Error messages name the header and repeat no value.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any

from .jsonrpc import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    MAX_DIGITS,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
    HeaderMismatch,
    InvalidParams,
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

# The query parameter with the session id in the URL of HTTP+SSE.
SESSION_PARAM = "session_id"

# The first headers of a response.
JSON_HEADERS = ((b"content-type", b"application/json"),)
SSE_HEADERS = (
    (b"content-type", b"text/event-stream"),
    # No proxy may cache, compress or buffer a stream.
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

MAX_CACHED_LENGTH = 500  # characters; real clients send few different values, and short ones


def accepts(value: str | None) -> frozenset[str]:
    """Return which of JSON and event stream an ``Accept`` header allows.

    Without a header, return nothing. RFC 9110 would allow anything, but MCP clients MUST send it,
    and those that do not would not expect a stream.
    """
    if not value:
        return frozenset()
    read = _accepts if len(value) <= MAX_CACHED_LENGTH else _accepts.__wrapped__
    return read(value)


def takes_page(accept: str | None) -> bool:
    """Whether an ``Accept`` header names HTML, as those of browsers do, and no event stream.

    Wildcards do not count, because nearly every client sends ``*/*``.
    """
    listed = _listed(accept or "")
    return listed.get(HTML_TYPE, False) and not listed.get(SSE_TYPE, False)


def is_json(content_type: str | None) -> bool:
    """Whether a body of that type is JSON in UTF-8."""
    if not content_type:
        return False
    read = _is_json if len(content_type) <= MAX_CACHED_LENGTH else _is_json.__wrapped__
    return read(content_type)


@lru_cache(maxsize=128)
def _accepts(value: str) -> frozenset[str]:
    listed = _listed(value)
    return frozenset(type_ for type_, ranges in _RANGES.items() if _taken(listed, ranges))


def _listed(value: str) -> dict[str, bool]:
    """Return the media ranges of an ``Accept`` header, and whether each is allowed (q > 0)."""
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


# The status of a response that is not sent on a stream.

# "For HTTP, the response status code MUST be 400 Bad Request": schema, HeaderMismatchError,
# MissingRequiredClientCapabilityError, UnsupportedProtocolVersionError; streamable-http, "If the
# server does not implement the requested RPC method, it MUST respond with 404 Not Found".
_OF_AN_ANSWER = {
    HEADER_MISMATCH: 400,
    METHOD_NOT_FOUND: 404,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
}
# Before there is a call, invalid params mean that a field of _meta is missing, which is 400 too
# (basic, "_meta"). In the response to a call they mean an unknown tool or resource, and the
# specification names no status. The Python SDK sends 400 and the TypeScript SDK 200. Here it is
# 200, because clients should fall back to an older revision at a 400 whose error they do not
# recognize (streamable-http, "Backward Compatibility").
_OF_A_REFUSAL = _OF_AN_ANSWER | {PARSE_ERROR: 400, INVALID_REQUEST: 400, INVALID_PARAMS: 400}
# With a handshake both SDKs answer every well-formed request by 200, also with an error. They
# answer 400 to anything that is no message, or not allowed in this phase ("an HTTP error status
# code (e.g., 400 Bad Request)" in the transports pages of all revisions with sessions).
_OF_A_REFUSAL_IN_A_SESSION = {PARSE_ERROR: 400, INVALID_REQUEST: 400}
_STATUS: dict[tuple[bool, bool], Mapping[int, int]] = {
    (False, False): _OF_A_REFUSAL,
    (False, True): _OF_AN_ANSWER,
    (True, False): _OF_A_REFUSAL_IN_A_SESSION,
    (True, True): {},
}


def status(response: Mapping[str, Any], *, handshake: bool, called: bool) -> int:
    """Return the HTTP status of a JSON-RPC response that is sent as JSON.

    ``handshake`` says whether the revision has a handshake. ``called`` says whether the request
    became a call, or was rejected before.
    """
    if (error := response.get("error")) is None:
        return 200
    if response.get("id") is None:
        return 400  # the request could not be read
    return _STATUS[handshake, called].get(error["code"], 200)


# Headers that mirror the body of a request.

# Headers by name in lower case. None stands for a repeated header or one with invalid characters.
Mirrored = Mapping[str, str | None]

# The parameter that Mcp-Name mirrors, by method. The tasks methods are from the extension
# io.modelcontextprotocol/tasks.
NAMED = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}

# "HTTP header field values must consist of visible ASCII characters (0x21-0x7E), space (0x20),
# and horizontal tab (0x09)."
_VALID = re.compile(rb"[\t\x20-\x7e]*\Z")
_SENTINEL = re.compile(r"=\?base64\?(.*)\?=\Z", re.DOTALL)
# A JSON number, but without an exponent: a few characters would become millions of digits.
_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?\Z")


def mirrored(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str | None]:
    """Return the headers of a request that mirror its body (``Mcp-...``)."""
    found: dict[str, str | None] = {}
    for name, value in raw:
        if name[:4].lower() == b"mcp-":
            key = name.lower().decode("latin-1")
            value = value.strip(b" \t")
            is_valid = key not in found and _VALID.match(value)
            found[key] = value.decode("ascii") if is_valid else None
    return found


def check_routing(headers: Mirrored, version: str, method: str, params: Mapping[str, Any]) -> None:
    """Raise ``HeaderMismatch`` unless the standard headers have the values of the request.

    Raise ``InvalidParams`` first if the body lacks the name that a header should mirror.
    """
    key = NAMED.get(method)
    name = None if key is None else params.get(key)
    if key is not None and not isinstance(name, str):
        raise InvalidParams(f"{key} must be a string")
    # Only Mcp-Name and Mcp-Param-* may be Base64, so these two are compared without decoding.
    if headers.get(PROTOCOL_VERSION) != version:
        raise _mismatch(headers, PROTOCOL_VERSION, "MCP-Protocol-Version", "the body")
    if headers.get(METHOD) != method:
        raise _mismatch(headers, METHOD, "Mcp-Method", "the body")
    if key is not None:
        given = headers.get(NAME)
        if given is not None and given.startswith("=?"):  # it may be Base64
            given = decoded(given)
        if given != name:
            raise _mismatch(headers, NAME, "Mcp-Name", f"params.{key}")


def _mismatch(headers: Mirrored, key: str, title: str, place: str) -> HeaderMismatch:
    """Return the error about a header that is missing, or differs from the value in ``place``."""
    if key not in headers:
        return HeaderMismatch(f"The {title} header is missing")
    if headers[key] is None:
        return HeaderMismatch(f"The {title} header is repeated, or has invalid characters")
    return HeaderMismatch(f"The {title} header differs from {place}")


def decoded(value: str) -> str | None:
    """Return a header's value, decoded if it is wrapped as Base64; None if that is malformed."""
    if (wrapped := _SENTINEL.match(value)) is None:
        return value
    try:
        plain = base64.b64decode(wrapped[1])
        # Only the canonical Base64 is accepted: comparing checks alphabet, padding and unused bits.
        return plain.decode() if base64.b64encode(plain).decode() == wrapped[1] else None
    except ValueError:
        return None


def check_parameters(
    headers: Mirrored,
    arguments: Mapping[str, Any] | None,
    parameters: Iterable[tuple[tuple[str, ...], str]],
) -> None:
    """Raise ``HeaderMismatch`` unless the ``Mcp-Param-*`` headers have the values of the arguments.

    ``parameters`` are the paths of arguments and their names in ``x-mcp-header``. Other headers
    with that prefix are ignored.
    """
    for path, name in parameters:
        _check_parameter(headers, name, ".".join(path), _at(path, arguments))


def _check_parameter(headers: Mirrored, name: str, argument: str, value: Any) -> None:
    key, title = PARAM_PREFIX + name.lower(), f"Mcp-Param-{name}"
    if not isinstance(value, str | int | float):
        # Null or absent: "Server MUST NOT expect the header". If there is one, a proxy has routed
        # the request by a value that is not in the body. The same holds for an object or a list,
        # which clients cannot mirror. Without a header, the tool's schema rejects those with a
        # better message.
        if key in headers:
            raise HeaderMismatch(f"The {title} header is there, and no argument {argument} for it")
        return
    if (given := headers.get(key)) is None:
        raise _mismatch(headers, key, title, f"the argument {argument}")
    if (plain := decoded(given)) is None:
        raise HeaderMismatch(f"The {title} header is malformed Base64")
    if not _equal(plain, value):
        raise _mismatch(headers, key, title, f"the argument {argument}")


def _at(path: tuple[str, ...], value: Any) -> Any:
    for step in path:
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def _equal(given: str, value: str | int | float) -> bool:
    if isinstance(value, str):
        return given == value
    if isinstance(value, bool):
        return given == ("true" if value else "false")
    # "Servers SHOULD compare the header value and the body value numerically": as decimals, because
    # two different numbers may round to the same float.
    if len(given) > MAX_DIGITS or not _DECIMAL.match(given):
        return False
    return Decimal(given) == Decimal(repr(value))
