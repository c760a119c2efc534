"""
JSON-RPC 2.0: decode bytes to JSON values, check them as messages, and encode values as one line.

``decode`` limits nesting, size and numbers. ``check_message`` checks that a value is a well-formed
message. Both raise a ``ProtocolError``. This module knows no method, no revision and no connection.

A ``ProtocolError`` contains all that an error response needs: a code, a message, data and an HTTP
status. ``revisions.encode_error`` writes it for a revision. Projects and this package raise the
same exceptions. The first line of a class's docstring is its default message, and clients see it.
"""

from __future__ import annotations

import json
import math
import re
import secrets
from collections.abc import Mapping, Sequence
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


class InvalidParams(ProtocolError):
    """Invalid params"""

    code = INVALID_PARAMS


class InternalError(ProtocolError):
    """Internal error"""

    code = INTERNAL_ERROR


class Overloaded(InternalError):
    """The server has more work than it accepts; try again in a moment."""


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

_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_BRACKETS = bytes(set(range(256)) - _STEP.keys())
_DIGITS_TO_ZEROS = bytes.maketrans(b"123456789", b"000000000")
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
        # Counting is fast, and nearly all messages have few brackets. Only the others need a closer
        # look, because brackets within strings do not count.
        if text.count("[") + text.count("{") > MAX_DEPTH:
            _bound_containers(text)
        # Checking each integer takes twice as long as reading it, and nearly no message has long
        # ones. If there are more than ``MAX_DIGITS`` digits in a row, this sample of every eighth
        # character has at least ``MAX_DIGITS // 8`` of them in a row.
        sample = text[::8].encode(errors="replace").translate(_DIGITS_TO_ZEROS)
        decoder = _CHECKING_DECODER if b"0" * (MAX_DIGITS // 8) in sample else _DECODER
        value = decoder.decode(text)
    except (ValueError, RecursionError) as error:
        raise ParseError() from error
    # UTF-8 cannot encode surrogates, so bytes contain them only as escapes. Few messages have any,
    # and the check encodes the whole value again.
    if not isinstance(raw, bytes) or _ESCAPED_SURROGATE.search(text):
        _refuse_surrogates(value)
    return value


def _bound_containers(text: str) -> None:
    if "\\" in text:
        text = text.replace("\\\\", "").replace('\\"', "")
    # All quotes now begin or end a string, so every second part is outside of strings.
    outside = "".join(text.split('"')[::2])
    brackets = outside.encode(errors="replace").translate(None, _NO_BRACKETS)
    if len(brackets) > 2 * MAX_CONTAINERS:
        raise ValueError("too many objects and arrays, or brackets that close none")
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


_DECODER = json.JSONDecoder(parse_float=_real, parse_constant=_constant)
_CHECKING_DECODER = json.JSONDecoder(
    parse_int=_integer, parse_float=_real, parse_constant=_constant
)


# From values to one line.

# Some line readers take these for newlines. They occur only within strings.
_LINE_BREAKS = {character: f"\\u{ord(character):04x}" for character in "\x85\u2028\u2029"}
# Checking for circular references takes half of the time. They reach the recursion limit instead.
_OPTIONS: dict[str, Any] = {
    "ensure_ascii": False, "allow_nan": False, "check_circular": False, "separators": (",", ":"),
}  # fmt: skip
_dump = json.JSONEncoder(**_OPTIONS).encode


class EncodedArray:
    """A JSON array whose ``items`` ``encode`` has encoded before. It inserts them unchanged."""

    __slots__ = ("items",)

    def __init__(self, items: Sequence[str]) -> None:
        self.items = items


# Where an encoded array is inserted. No string of a client or project can contain it, because it is
# random and never sent.
_PLACE = secrets.token_hex(16)


def encode(message: Any) -> str:
    """Return ``message`` as one line of JSON.

    Lone surrogates become U+FFFD and non-finite numbers null: JSON has neither. Raise ``TypeError``
    or ``ValueError`` for values that are not JSON.
    """
    arrays: list[EncodedArray] = []

    def keep_place(value: Any) -> str:
        if not isinstance(value, EncodedArray):
            raise TypeError(f"{type(value).__name__} is not JSON")
        arrays.append(value)
        return _PLACE

    dump = json.JSONEncoder(**_OPTIONS, default=keep_place).encode
    try:
        text = dump(message)
    except RecursionError as error:
        raise ValueError("nested too deeply, or a value contains itself") from error
    except ValueError:
        arrays.clear()
        text = dump(_finite(message))
    if not text.isascii():
        text = _printable(text)
    return _inserted(text, arrays) if arrays else text


def _inserted(text: str, arrays: list[EncodedArray]) -> str:
    first, *others = text.split(f'"{_PLACE}"')
    pairs = zip(arrays, others, strict=True)
    return first + "".join(f"[{','.join(array.items)}]{after}" for array, after in pairs)


def _printable(text: str) -> str:
    """Return ``text`` without line breaks and lone surrogates."""
    for character, escape in _LINE_BREAKS.items():
        text = text.replace(character, escape)
    try:
        text.encode()  # much faster than a search for surrogates, which have no UTF-8 form
    except UnicodeEncodeError:
        text = _LONE_SURROGATE.sub("\ufffd", text)
    return text


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# From values to messages.

ID = f"a string of at most {MAX_ID} characters, or an integer"


def check_message(message: Any) -> None:
    """Raise ``InvalidRequest`` unless a decoded value is a request, a notification or a response.

    A request has a method and an id, a notification has a method and no id, and a response has a
    result or an error. The error's ``about`` is the id, if the value is a request whose id could be
    read.
    """
    if not isinstance(message, dict):
        raise InvalidRequest("A message is a JSON object")
    id = message.get("id") if "method" in message and is_id(message.get("id")) else None
    if message.get("jsonrpc") != "2.0":
        raise InvalidRequest('jsonrpc must be "2.0"', about=id)
    if ("method" in message) + ("result" in message) + ("error" in message) != 1:
        raise InvalidRequest("A message has exactly one of method, result and error", about=id)
    if "method" not in message:
        _check_response(message)
    elif not isinstance(message["method"], str):
        raise InvalidRequest("method must be a string", about=id)
    elif "id" in message and id is None:
        raise InvalidRequest(f"id must be {ID}")
    elif not isinstance(message.get("params", {}), dict):
        raise InvalidRequest("params must be an object", about=id)


def _check_response(message: JSON) -> None:
    error, id = message.get("error"), message.get("id")
    # The id of an error is null or absent if the peer could not read the request.
    if not is_id(id) and ("result" in message or id is not None):
        raise InvalidRequest(f"id must be {ID}")
    if "result" in message:
        if not isinstance(message["result"], dict):
            raise InvalidRequest("result must be an object")
    elif not isinstance(error, dict) or not isinstance(error.get("message"), str):
        raise InvalidRequest("error must be an object with code and message")
    elif not isinstance(error.get("code"), int) or isinstance(error["code"], bool):
        raise InvalidRequest("code must be an integer")


def is_id(value: Any) -> bool:
    """Whether a value is valid as an id or a progress token: see ``ID``."""
    if isinstance(value, str):
        return len(value) <= MAX_ID
    return isinstance(value, int) and not isinstance(value, bool)
