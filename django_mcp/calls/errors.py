"""Turn exceptions of a call into tool errors or JSON-RPC errors.

Errors that the model can act on become tool errors with their text. Mistakes of the client become
JSON-RPC errors. Any other exception is a bug: it is logged with its traceback, and the client gets
a fixed text, except under DEBUG, because the exception's text may contain secrets.
"""

from __future__ import annotations

import logging
import math
import re
import traceback
from typing import TYPE_CHECKING

from django.conf import settings as django_settings
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import Http404
from django.utils.functional import Promise

from ..declarations.questions import Elicit
from ..exceptions import (
    Busy,
    InsufficientScope,
    InvalidArguments,
    Throttled,
    ToolError,
    Unsupported,
    UrlRequired,
)
from ..protocol.jsonrpc import (
    InternalError,
    InvalidParams,
    InvalidRequest,
    MissingCapability,
    Overloaded,
    ProtocolError,
    UrlElicitationRequired,
)
from .results import JSON, error_result

if TYPE_CHECKING:
    from .call_state import CallRun

logger = logging.getLogger("django_mcp.calls")
RETRY_AFTER = "django-modelcontext/retryAfter"  # in ``_meta`` of the result of a throttled tool
MASKED = "Something went wrong on the server; the error was logged there."


def failure(error: Exception, run: CallRun) -> JSON:
    """Return the tool result for ``error``. Raise ``ProtocolError`` for other methods."""
    try:
        if isinstance(error, UrlRequired):
            error = _send_to_page(error, run)
        if isinstance(error, ProtocolError):
            raise error
        if run.call.method != "tools/call":
            raise _protocol_error(error, run)
        if isinstance(error, Unsupported) and run.call.revision.capability_errors:
            raise MissingCapability(error.required) from error
        result = error_result(_text_of(error, run))
        if isinstance(error, Throttled):
            result["_meta"] = {RETRY_AFTER: _seconds_to_wait(error)}
        return result
    finally:
        # The traceback of a raised error refers to this frame. If the frame referred to the error,
        # the cycle would keep the request in memory until the garbage collector runs.
        del error


def _seconds_to_wait(error: Throttled) -> int:
    return max(1, math.ceil(error.wait))


def _protocol_error(error: Exception, run: CallRun) -> ProtocolError:
    """Return the JSON-RPC error for ``error``."""
    if isinstance(error, Unsupported):
        return MissingCapability(error.required)
    if isinstance(error, InvalidArguments):
        return InvalidParams(_sentence(error.message))
    if isinstance(error, InsufficientScope):
        return InvalidRequest(_sentence(error.message))
    if isinstance(error, Throttled):
        return Overloaded(error.message, data={"retryAfter": _seconds_to_wait(error)})
    return InternalError(_text_of(error, run))


def _text_of(error: Exception, run: CallRun) -> str:
    """Return the text of ``error`` for the caller. The text of a bug is logged instead."""
    text = in_words(error)
    return text if text is not None else _bug(error, run)


def _send_to_page(error: UrlRequired, run: CallRun) -> Exception:
    """Have the client send its user to the page, as the client's revision does that.

    Return the error for the response: ``error`` itself if the client cannot open pages. Raise
    ``InputRequired`` to ask the client.
    """
    if not run.request.can.elicit_url:
        return error
    try:
        Elicit(error._prompt, url=error._template).check()
        if run.call.revision.url_elicitation_error:
            page = {"message": error._prompt, "url": error.url, "elicitationId": error.id}
            return UrlElicitationRequired([page])
        if run.request._may_ask:
            run.request.elicit(error._prompt, url=error._template)
    except Exception as failed_question:  # the user declined, for example
        return failed_question
    return error


def is_bug(error: Exception) -> bool:
    """Whether ``error`` is a bug, whose text the caller must not read."""
    return not isinstance(error, ProtocolError) and in_words(error) is None


def in_words(error: Exception) -> str | None:
    """Return the text of an error that is meant for the caller, or None for a bug."""
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
    """Return the message of ``Http404`` if it is a text.

    Other arguments are for developers, such as the list of URL patterns that the resolver tried.
    """
    message = error.args[0] if error.args else ""
    return str(message) if isinstance(message, str | Promise) and message else "Not found."


def _validation(error: ValidationError) -> str:
    if not hasattr(error, "error_dict"):
        return " ".join(error.messages)
    lines = [f"{field}: {' '.join(messages)}" for field, messages in error.message_dict.items()]
    return " ".join(line.removeprefix("__all__: ") for line in lines)


def _bug(error: Exception, run: CallRun) -> str:
    logger.error("Call failed: %s", run.subject, exc_info=error, extra={"method": run.call.method})
    if django_settings.DEBUG:
        return " ".join("".join(traceback.format_exception_only(error)).split())
    return MASKED


def _sentence(text: str) -> str:
    """Join several sentences into one: "concise single sentence" (schema, Error.message)."""
    return re.sub(r"\.\s+(?=\S)", "; ", text)
