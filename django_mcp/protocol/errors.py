"""
The exceptions that become JSON-RPC error responses, and their codes.

An exception contains all that a response needs: a code, a message, data and an HTTP status.
``revisions.encode_error`` writes it for a revision. Projects and this package raise the same
exceptions. The first line of a class's docstring is its default message, and clients see it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

JSON = dict[str, Any]
Id = str | int

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
