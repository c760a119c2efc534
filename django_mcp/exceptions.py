"""
Exceptions that a project raises or catches, and exceptions that end a run of a call.

A ``ToolError`` is for the language model: its message is in the result of the call. A
``ProtocolError`` is for the client: it becomes a JSON-RPC error. Any other exception is a bug. It
is logged in full, and the client receives a generic message. The docstring of a ``ToolError`` is
its default message.

Subclasses of ``RunEnded`` end a run of a call so that the call continues later or stops.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Sequence
from inspect import cleandoc
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured
from django.db import InterfaceError

if TYPE_CHECKING:
    from django.core.checks import CheckMessage
    from django.utils.functional import Promise


def _docstring(kind: type[ToolError]) -> str:
    """Return the default message: the docstring of the class or of its nearest base with one."""
    said = (one.__doc__ for one in kind.__mro__ if issubclass(one, ToolError))
    return cleandoc(next(filter(None, said), kind.__name__))


class ToolError(Exception):
    """The tool could not do what was asked."""

    def __init__(self, message: str | Promise | None = None) -> None:
        super().__init__(str(message or _docstring(type(self))))

    @property
    def message(self) -> str:
        return str(self.args[0])


class TooLarge(ToolError):
    """The answer is larger than the database takes at once. Ask for less at once."""


class Throttled(ToolError):
    """This was called too often."""

    def __init__(self, message: str | None = None, *, wait: float) -> None:
        """``wait`` is in how many seconds a call can succeed. The text says so."""
        said = message or _docstring(type(self))
        super().__init__(f"{said} Try again in {_duration(wait)}.")
        self.wait = wait


def _duration(seconds: float) -> str:
    """Return a duration as a model reads it without computing: "12 s", "3 hours"."""
    for unit, name in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= 2 * unit:
            return f"{math.ceil(seconds / unit)} {name}"
    return f"{max(1, math.ceil(seconds))} s"


class TimeLimitExceeded(ToolError):
    """It took longer than it may take, and was stopped."""


class Declined(ToolError):
    """The user declined to answer."""

    def __init__(self, message: str | None = None, *, action: str = "decline") -> None:
        super().__init__(message)
        self.action = action


class TimedOut(ToolError):
    """Nobody answered the question in time."""


class ClientError(ToolError):
    """The client answered a question with an error."""

    def __init__(self, message: str | None = None, *, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class Unsupported(ToolError):
    """This client cannot be asked what the call needs to know."""

    def __init__(self, required: dict[str, Any], message: str | None = None) -> None:
        names = ", ".join(sorted(required))
        super().__init__(message or f"This client does not support {names}, which the call needs.")
        self.required = required


class UrlRequired(ToolError):
    """Something must be done in the browser first.

    ``{elicitation_id}`` in ``url`` becomes the id by which to report that it is done.
    """

    def __init__(self, message: str, url: str) -> None:
        self.id = uuid.uuid4().hex
        super().__init__(f"{message} Open {self._placed(url)} and try again.")
        self._prompt, self._template, self.url = message, url, self._placed(url)

    def _placed(self, url: str) -> str:
        return url.replace("{elicitation_id}", self.id)


class InsufficientScope(ToolError):
    """The client's token lacks scopes for it; ``scopes`` are all that this asks for."""

    def __init__(self, scopes: Sequence[str], message: str | None = None) -> None:
        names = " ".join(scopes)
        super().__init__(
            message
            or f"This client may not do that yet: it needs the scope {names}. "
            "Connect it again and agree to that, or let it ask for it."
        )
        self.scopes = tuple(scopes)


class InvalidArguments(ToolError):
    """The arguments do not fit the tool's schema."""


class UnknownModel(InvalidArguments):
    """A generic tool has no such model, or the caller may not use the model."""


class WrongAnswer(ValueError):
    """The answer does not fit the question. The client is asked again."""


class Busy(Exception):
    """The server has more work than it accepts; try again in a moment."""


class AlreadyRegistered(ImproperlyConfigured):
    """The name is taken."""


class Misdeclared(ImproperlyConfigured):
    """The declarations have errors. ``messages`` are those of the system checks."""

    def __init__(self, messages: Sequence[CheckMessage]) -> None:
        super().__init__("\n".join(str(message) for message in messages))
        self.messages = messages


class RunEnded(BaseException):
    """End a run of a call.

    It derives from ``BaseException`` so that ``except Exception`` in a project's code does not
    swallow it.
    """


class InputRequired(RunEnded):
    """The run needs answers of the client that it does not have yet."""

    def __init__(self, questions: dict[str, Any]) -> None:
        super().__init__()
        self.questions = questions


class OnceNeeded(RunEnded):
    """The run needs a step (``request.once``) to be executed, committed and stored first."""

    def __init__(self, key: str, function: Callable[[], Any]) -> None:
        super().__init__()
        self.key, self.function = key, function


class Stopped(RunEnded):
    """The call was cancelled. Nobody waits for its response."""


class ApprovalRequired(RunEnded):
    """The call waits for the decision of a second person about the request ``approval``.

    The approver needs ``permission``. ``is_new`` says that this run has made the request.
    """

    def __init__(self, approval: int, permission: str, *, is_new: bool) -> None:
        super().__init__()
        self.approval, self.permission, self.is_new = approval, permission, is_new


class CallParked(RunEnded):
    """The call waits for answers and is stored as rows.

    The worker that receives the last answer continues it.
    """


class LeaseDoubtful(InterfaceError):
    """Other processes may count this process as dead. It must stop its calls first."""
