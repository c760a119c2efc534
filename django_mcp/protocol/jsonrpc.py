"""
JSON-RPC 2.0: decode bytes to JSON values, check them as messages, and encode values as one line.

``decode`` limits nesting, size and numbers. Every message that ``read`` returns is well-formed. For
anything else both raise a ``ProtocolError``, which contains what the error response needs. This
module knows no method, no revision and no connection.
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
MAX_ID = 1000  # characters: an id is stored, and repeated in each response


# From bytes to values.

_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_BRACKETS = bytes(set(range(256)) - _STEP.keys())
_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")


def decode(raw: bytes | str) -> Any:
    """Return the JSON value in ``raw``. Raise ``ParseError``.

    Stricter than ``json.loads``: UTF-8 only, no NaN or infinity, no integers with more than
    ``MAX_DIGITS`` digits, no lone surrogates, at most ``MAX_DEPTH`` levels and ``MAX_CONTAINERS``
    objects and arrays. A byte order mark is skipped (RFC 8259, section 8.1, allows it; pipes of
    some shells add it).
    """
    try:
        text = raw.decode() if isinstance(raw, bytes) else raw
        text = text.removeprefix("\ufeff")
        _bound_containers(text)
        value = _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise ParseError() from error
    # UTF-8 cannot encode surrogates, so bytes contain them only as escapes. Few messages have any,
    # and the check encodes the whole value again.
    if not isinstance(raw, bytes) or _ESCAPED_SURROGATE.search(text):
        _refuse_surrogates(value)
    return value


def _bound_containers(text: str) -> None:
    # Counting is fast, and nearly all messages have few brackets. Only the others need a closer
    # look, because brackets within strings do not count.
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

# Surrogates have no UTF-8 form. Some line readers take the last three characters for newlines. All
# of them occur only within strings.
_UNSAFE = re.compile("[\ud800-\udfff\x85\u2028\u2029]")


def encode(message: Any) -> str:
    """Return ``message`` as one line of JSON.

    Lone surrogates become U+FFFD and non-finite numbers null: JSON has neither. Raise ``TypeError``
    or ``ValueError`` for values that are not JSON.
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
class RequestMessage:
    """A message with an id, which the peer expects a response to."""

    id: Id
    method: str
    params: JSON = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NotificationMessage:
    """A message without an id. It is never answered."""

    method: str
    params: JSON = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ResponseMessage:
    """The peer's response to a request. The id is None if the peer could not read the request."""

    id: Id | None
    result: JSON | None = None
    error: JSON | None = None


Message = RequestMessage | NotificationMessage | ResponseMessage
ID = f"a string of at most {MAX_ID} characters, or an integer"


def read(message: Any) -> Message:
    """Return a decoded value as a message. Raise ``InvalidRequest``.

    The error's ``about`` is the id, if the value is a request whose id could be read.
    """
    if not isinstance(message, dict):
        raise InvalidRequest("A message is a JSON object")
    about = message.get("id") if "method" in message and is_id(message.get("id")) else None
    if problem := _problem(message):
        raise InvalidRequest(problem, about=about)
    if "method" not in message:
        return ResponseMessage(message.get("id"), message.get("result"), message.get("error"))
    params = message.get("params", {})
    if "id" in message:
        return RequestMessage(message["id"], message["method"], params)
    return NotificationMessage(message["method"], params)


def is_id(value: Any) -> bool:
    """Whether a value is valid as an id or a progress token: see ``ID``."""
    if isinstance(value, str):
        return len(value) <= MAX_ID
    return isinstance(value, int) and not isinstance(value, bool)


def _problem(message: JSON) -> str | None:
    """Return what is wrong with a message, as text for the error; None if it is well-formed."""
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
    "MAX_DIGITS", "MAX_ID", "Message", "MethodNotFound", "MissingCapability", "NotificationMessage",
    "Overloaded", "ParseError", "ProtocolError", "RequestMessage", "ResourceNotFound",
    "ResponseMessage", "UnsupportedVersion", "UrlElicitationRequired", "decode", "encode", "is_id",
    "read",
]  # fmt: skip
