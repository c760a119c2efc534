"""
What a failure is called on the wire.

Rule: what the model can act on is said to the model; what is the client's
mistake is a JSON-RPC error; a bug is logged in full and masked, except under
DEBUG, because its text may hold anything.
"""

from __future__ import annotations

import logging
import re
import traceback
from typing import TYPE_CHECKING

from django.conf import settings as django_settings
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import Http404
from django.utils.functional import Promise

from ..declare.questions import Elicit
from ..exceptions import (
    Busy,
    InsufficientScope,
    InvalidArguments,
    ToolError,
    Unsupported,
    UrlRequired,
)
from ..protocol.jsonrpc import (
    InternalError,
    InvalidParams,
    InvalidRequest,
    MissingCapability,
    ProtocolError,
    UrlElicitationRequired,
)
from .results import JSON, error_result

if TYPE_CHECKING:
    from .runs import Run

logger = logging.getLogger("django_mcp")
MASKED = "Something went wrong on the server; the error was logged there."


def failure(error: Exception, run: Run) -> JSON:
    """The result that says ``error``. Raises ``ProtocolError`` where the method has none."""
    if isinstance(error, UrlRequired):
        error = _sent_there(error, run)
    if run.call.method == "tools/call":
        return error_result(tool_failure(error, run))
    raise protocol_error(error, run)


def protocol_error(error: Exception, run: Run) -> ProtocolError:
    """``error`` as the error of a method that has no other way to say it."""
    if isinstance(error, ProtocolError):
        return error
    if isinstance(error, Unsupported):
        return MissingCapability(error.required)
    if isinstance(error, InvalidArguments):
        return InvalidParams(_sentence(error.message))
    if isinstance(error, InsufficientScope):
        return InvalidRequest(_sentence(error.message))
    words = in_words(error)
    return InternalError(words if words is not None else _bug(error, run))


def tool_failure(error: Exception, run: Run) -> str:
    """``error`` as words for the model. Raises ``ProtocolError`` where it is one."""
    if isinstance(error, ProtocolError):
        raise error
    if isinstance(error, Unsupported) and run.call.revision.capability_errors:
        raise MissingCapability(error.required) from error
    words = in_words(error)
    return words if words is not None else _bug(error, run)


def _sent_there(error: UrlRequired, run: Run) -> Exception:
    """What is still wrong once the client has opened the page, in the way its revision has."""
    if not run.request.can.elicit_url:
        return error
    try:
        Elicit(error.prompt, url=error.template).check()
        if run.call.revision.url_elicitation_error:
            page = {"message": error.prompt, "url": error.url, "elicitationId": error.id}
            return UrlElicitationRequired([page])
        if run.request.asks:
            run.request.elicit(error.prompt, url=error.template)
    except Exception as answered:  # declined, say
        return answered
    return error


def in_words(error: Exception) -> str | None:
    """What the project meant the caller to read, or None for a bug."""
    if isinstance(error, ToolError | Busy):
        return str(error)
    if isinstance(error, ValidationError):
        return _validation(error)
    if isinstance(error, PermissionDenied):
        return str(error) or "Permission denied."
    if isinstance(error, Http404):
        return _not_found(error)
    return None


def _not_found(error: Http404) -> str:
    """Its words; what is none is for developers, as the resolver's list of all that it tried."""
    said = error.args[0] if error.args else ""
    return str(said) if isinstance(said, str | Promise) and said else "Not found."


def _validation(error: ValidationError) -> str:
    if not hasattr(error, "error_dict"):
        return " ".join(error.messages)
    lines = [f"{field}: {' '.join(words)}" for field, words in error.message_dict.items()]
    return " ".join(line.removeprefix("__all__: ") for line in lines)


def _bug(error: Exception, run: Run) -> str:
    logger.error("%s failed", run.subject, exc_info=error, extra={"method": run.call.method})
    if django_settings.DEBUG:
        return " ".join("".join(traceback.format_exception_only(error)).split())
    return MASKED


def _sentence(words: str) -> str:
    """Several sentences as one: "concise single sentence" (schema, Error.message)."""
    return re.sub(r"\.\s+(?=\S)", "; ", words)
