"""
HTTP headers that mirror the body of a request, so that proxies can route by them.

A mirrored header must have exactly the value in the body, and occur once; otherwise the request is
rejected (streamable-http, "Server Validation"). A proxy decides by the header and the server runs
the body, so a difference would bypass the proxy's rules. Error messages name the header and repeat
no value.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from .errors import HeaderMismatch, InvalidParams
from .http_rules import METHOD, NAME, PARAM_PREFIX, PROTOCOL_VERSION
from .jsonrpc import MAX_DIGITS

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
            found[key] = None if key in found else _readable(value)
    return found


def _readable(value: bytes) -> str | None:
    value = value.strip(b" \t")
    return value.decode("ascii") if _VALID.match(value) else None


def check_routing(headers: Mirrored, version: str, method: str, params: Mapping[str, Any]) -> None:
    """Raise ``HeaderMismatch`` unless the standard headers have the values of the request.

    Raise ``InvalidParams`` first if the body lacks the name that a header should mirror.
    """
    name = _name(method, params)
    _check_equal(headers, PROTOCOL_VERSION, "MCP-Protocol-Version", version)
    _check_equal(headers, METHOD, "Mcp-Method", method)
    if name is not None and decoded(_present(headers, NAME, "Mcp-Name")) != name:
        raise HeaderMismatch(f"The Mcp-Name header differs from params.{NAMED[method]}")


def _name(method: str, params: Mapping[str, Any]) -> str | None:
    if (key := NAMED.get(method)) is None:
        return None
    if not isinstance(name := params.get(key), str):
        raise InvalidParams(f"{key} must be a string")
    return name


def _check_equal(headers: Mirrored, key: str, title: str, expected: str) -> None:
    # Only Mcp-Name and Mcp-Param-* may be Base64, so these two are compared without decoding.
    if _present(headers, key, title) != expected:
        raise HeaderMismatch(f"The {title} header differs from the body")


def _present(headers: Mirrored, key: str, title: str) -> str:
    if key not in headers:
        raise HeaderMismatch(f"The {title} header is missing")
    if (value := headers[key]) is None:
        raise HeaderMismatch(f"The {title} header is repeated, or has invalid characters")
    return value


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
    given = decoded(_present(headers, key, title))
    if given is None:
        raise HeaderMismatch(f"The {title} header is malformed Base64")
    if not _equal(given, value):
        raise HeaderMismatch(f"The {title} header differs from the argument {argument}")


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
