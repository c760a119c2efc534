"""
JSON-RPC 2.0: from bytes to messages, and from values back to one line.

The rule of this module: nothing that a peer sends gets past it half understood. What ``read``
returns is well-formed, and whatever is not raises a ``ProtocolError`` that says how to answer.
It knows no method, no revision and no connection.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NoReturn

from .errors import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    JSON,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    PARSE_ERROR,
    RESOURCE_NOT_FOUND,
    UNSUPPORTED_VERSION,
    URL_ELICITATION_REQUIRED,
    CustomError,
    HeaderMismatch,
    Id,
    InternalError,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    MissingCapability,
    Overloaded,
    ParseError,
    ProtocolError,
    ResourceNotFound,
    UnsupportedVersion,
    UrlElicitationRequired,
)

MAX_DEPTH = 64
MAX_CONTAINERS = 100_000  # objects and arrays of one message: each takes time and memory
MAX_DIGITS = 64
MAX_ID = 1000  # characters: an id is kept, and said again with each answer


# From bytes to values.

_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_BRACKETS = bytes(set(range(256)) - _STEP.keys())
_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")


def decode(raw: bytes | str) -> Any:
    """The JSON value in ``raw``; raises ``ParseError``.

    Stricter than ``json.loads``: UTF-8 only, no NaN or infinity, no numbers beyond all measure,
    no lone surrogates, at most ``MAX_DEPTH`` levels and ``MAX_CONTAINERS`` objects and arrays. A
    byte order mark is skipped (RFC 8259, section 8.1, allows it; pipes of some shells add it).
    """
    try:
        text = raw.decode() if isinstance(raw, bytes) else raw
        text = text.removeprefix("\ufeff")
        _bound_containers(text)
        value = _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise ParseError() from error
    if not isinstance(raw, bytes) or _ESCAPED_SURROGATE.search(text):
        _refuse_surrogates(value)
    return value


def _bound_containers(text: str) -> None:
    # Counting is fast, and nearly every message has few brackets: look closer only if not.
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    brackets = _STRING.sub("", text).encode(errors="replace").translate(None, _NO_BRACKETS)
    if brackets.count(b"[") + brackets.count(b"{") > MAX_CONTAINERS:
        raise ValueError("too many objects and arrays")
    if max(accumulate(map(_STEP.__getitem__, brackets)), default=0) > MAX_DEPTH:
        raise ValueError("nested too deeply")


def _refuse_surrogates(value: Any) -> None:
    try:
        _dump(value).encode()
    except UnicodeEncodeError:
        raise ParseError() from None


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError("the number is too large")
    return int(digits)


def _real(digits: str) -> float:
    if not math.isfinite(number := float(digits)):
        raise ValueError("the number is too large")
    return number


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_int=_integer, parse_float=_real, parse_constant=_constant)


# From values to one line.

# The last three are newlines to some readers of lines; they occur only inside of strings.
_UNSAFE = re.compile("[\ud800-\udfff\x85\u2028\u2029]")


def encode(message: Any) -> str:
    """``message`` as one line of JSON, whatever its strings and numbers hold.

    Lone surrogates become U+FFFD and non-finite numbers null: JSON has neither.
    """
    try:
        text = _dump(message)
    except ValueError:
        text = _dump(_finite(message))
    if text.isascii():
        return text
    return _UNSAFE.sub(_spelt_out, text)


def _spelt_out(unsafe: re.Match[str]) -> str:
    return "\ufffd" if _LONE_SURROGATE.match(unsafe[0]) else f"\\u{ord(unsafe[0]):04x}"


_dump = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# From values to messages.


@dataclass(frozen=True, slots=True)
class Request:
    """The peer asks for something and waits for an answer."""

    id: Id
    method: str
    params: JSON = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Notification:
    """The peer says something. It is never answered."""

    method: str
    params: JSON = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Response:
    """The peer answers. The id is None if it could not read what it answers."""

    id: Id | None
    result: JSON | None = None
    error: JSON | None = None


Message = Request | Notification | Response
ID = f"a string of at most {MAX_ID} characters, or an integer"


def read(message: Any) -> Message:
    """The message that a decoded value is; raises ``InvalidRequest``.

    The error's ``about`` is the id if the value is a request whose id could be read.
    """
    if not isinstance(message, dict):
        raise InvalidRequest("A message is a JSON object")
    about = message.get("id") if "method" in message and is_id(message.get("id")) else None
    if problem := _problem(message):
        raise InvalidRequest(problem, about=about)
    if "method" not in message:
        return Response(message.get("id"), message.get("result"), message.get("error"))
    params = message.get("params", {})
    if "id" in message:
        return Request(message["id"], message["method"], params)
    return Notification(message["method"], params)


def is_id(value: Any) -> bool:
    """Whether a value may be an id or a progress token: see ``ID``."""
    if isinstance(value, str):
        return len(value) <= MAX_ID
    return isinstance(value, int) and not isinstance(value, bool)


def _problem(message: JSON) -> str | None:
    """What is wrong with the message, in words, or None."""
    if message.get("jsonrpc") != "2.0":
        return 'jsonrpc must be "2.0"'
    kinds = [kind for kind in ("method", "result", "error") if kind in message]
    if len(kinds) != 1:
        return "A message has exactly one of method, result and error"
    return _PROBLEMS[kinds[0]](message)


def _call_problem(message: JSON) -> str | None:
    if not isinstance(message["method"], str):
        return "method must be a string"
    if "id" in message and not is_id(message["id"]):
        return f"id must be {ID}"
    if not isinstance(message.get("params", {}), dict):
        return "params must be an object"
    return None


def _result_problem(message: JSON) -> str | None:
    if not is_id(message.get("id")):
        return f"id must be {ID}"
    return None if isinstance(message["result"], dict) else "result must be an object"


def _error_problem(message: JSON) -> str | None:
    error = message["error"]
    if message.get("id") is not None and not is_id(message["id"]):
        return f"id must be {ID}"
    if not isinstance(error, dict) or not isinstance(error.get("message"), str):
        return "error must be an object with code and message"
    code = error.get("code")
    integer = isinstance(code, int) and not isinstance(code, bool)
    return None if integer else "code must be an integer"


_PROBLEMS = {"method": _call_problem, "result": _result_problem, "error": _error_problem}

__all__ = [
    "HEADER_MISMATCH", "ID", "INTERNAL_ERROR", "INVALID_PARAMS", "INVALID_REQUEST", "JSON",
    "METHOD_NOT_FOUND", "MISSING_CAPABILITY", "PARSE_ERROR", "RESOURCE_NOT_FOUND",
    "UNSUPPORTED_VERSION", "URL_ELICITATION_REQUIRED", "CustomError", "HeaderMismatch", "Id",
    "InternalError", "InvalidParams", "InvalidRequest", "MAX_CONTAINERS", "MAX_DEPTH",
    "MAX_DIGITS", "MAX_ID", "Message", "MethodNotFound", "MissingCapability", "Notification",
    "Overloaded", "ParseError", "ProtocolError", "Request", "ResourceNotFound", "Response",
    "UnsupportedVersion", "UrlElicitationRequired", "decode", "encode", "is_id", "read",
]  # fmt: skip
