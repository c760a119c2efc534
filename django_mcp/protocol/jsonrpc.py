"""
JSON-RPC 2.0: decode bytes to JSON values, check them as messages, and encode values as one line.

``decode`` limits nesting, size and numbers. Every message that ``read`` returns is well-formed. For
anything else both raise a ``ProtocolError``. This module knows no method, no revision and no
connection.

A ``ProtocolError`` contains all that an error response needs: a code, a message, data and an HTTP
status. ``revisions.encode_error`` writes it for a revision. Projects and this package raise the
same exceptions. The first line of a class's docstring is its default message, and clients see it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NoReturn

JSON = dict[str, Any]
Id = str | int

MAX_DEPTH = 64
MAX_CONTAINERS = 100_000  # objects and arrays of one message: each takes time and memory
MAX_DIGITS = 64
MAX_ID = 1000  # characters: an id is stored, and repeated in each response

# Errors.

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
HEADER_MISMATCH = -32020
MISSING_CAPABILITY = -32021
UNSUPPORTED_VERSION = -32022
# Codes of earlier revisions, which later revisions must not use.
RESOURCE_NOT_FOUND = -32002
URL_ELICITATION_REQUIRED = -32042

STANDARD_CODES = frozenset(
    (PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR)
)
# "New error codes for purposes not defined by this specification SHOULD be allocated outside
# the JSON-RPC reserved range (-32768 to -32000)."
RESERVED_CODES = range(-32768, -31999)


class ProtocolError(Exception):
    """The request could not be served"""

    # The first line of a subclass's docstring is its default message.
    code: int = INTERNAL_ERROR
    http_status: int = 400
    about: Id | None = None  # the id of the request, where it could be read

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "code" in vars(cls) and cls.__module__ != __name__:
            _free_code(cls.code)

    def __init__(
        self,
        message: str | None = None,
        *,
        code: int | None = None,
        data: Any = None,
        about: Id | None = None,
    ) -> None:
        self.message = str(message or "") or (type(self).__doc__ or "").strip().split("\n")[0]
        super().__init__(self.message)
        self.code = self.code if code is None else _free_code(code)
        self.data = data
        self.about = about


def _free_code(code: int) -> int:
    if not isinstance(code, int) or isinstance(code, bool):
        raise TypeError(f"An error code is an integer, not {code!r}.")
    if code in RESERVED_CODES and code not in STANDARD_CODES:
        raise ValueError(f"{code} is reserved by JSON-RPC or MCP: choose one above -32000.")
    return code


class CustomError(ProtocolError):
    """The request could not be served

    An error that a project defines, with a code of its own outside of -32768 to -32000.
    """

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message, code=code, data=data)


class ParseError(ProtocolError):
    """Parse error"""

    code = PARSE_ERROR


class InvalidRequest(ProtocolError):
    """Invalid request"""

    code = INVALID_REQUEST


class MethodNotFound(ProtocolError):
    """Method not found"""

    code = METHOD_NOT_FOUND
    http_status = 404


class InvalidParams(ProtocolError):
    """Invalid params"""

    code = INVALID_PARAMS


class InternalError(ProtocolError):
    """Internal error"""

    code = INTERNAL_ERROR
    http_status = 500


class Overloaded(InternalError):
    """The server has more work than it accepts; try again in a moment."""

    http_status = 503


class ResourceNotFound(ProtocolError):
    """Resource not found"""

    code = INVALID_PARAMS

    def __init__(self, uri: str, message: str | None = None) -> None:
        super().__init__(message, data={"uri": uri})


class HeaderMismatch(ProtocolError):
    """Header mismatch"""

    code = HEADER_MISMATCH


class MissingCapability(ProtocolError):
    """The client lacks a capability that this request needs"""

    code = MISSING_CAPABILITY

    def __init__(self, required: Mapping[str, Any], message: str | None = None) -> None:
        super().__init__(message, data={"requiredCapabilities": dict(required)})


class UnsupportedVersion(ProtocolError):
    """Unsupported protocol version"""

    code = UNSUPPORTED_VERSION

    # ``revisions.encode_error`` fills in the supported versions: they are not known here.
    def __init__(
        self, requested: str, message: str | None = None, *, about: Id | None = None
    ) -> None:
        super().__init__(message, data={"supported": [], "requested": requested}, about=about)


class UrlElicitationRequired(ProtocolError):
    """This request requires more information.

    Each elicitation has ``message``, ``url`` and ``elicitationId``. Only one revision has this
    error; in the others it is an invalid request without data, so ask there instead.
    """

    code = INVALID_REQUEST

    def __init__(self, elicitations: Sequence[Mapping[str, Any]], message: str | None = None):
        super().__init__(message)
        self.elicitations: list[JSON] = [{"mode": "url", **item} for item in elicitations]


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
    if problem := _problem(message):
        about = message.get("id") if "method" in message and is_id(message.get("id")) else None
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
