"""
The errors a project raises or may catch, and the unwindings of a call.

Rule: one small tree per audience. A ``ToolError`` is read by the model, in the
result of the call; a ``ProtocolError`` is read by the client, as a JSON-RPC
error; everything else is a bug, logged in full and masked. An exception's
docstring is its default message.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from inspect import cleandoc
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured

if TYPE_CHECKING:
    from django.core.checks import CheckMessage


def _docstring(kind: type[ToolError]) -> str:
    """The default message: the docstring of the error, or of the one it is a kind of."""
    said = (one.__doc__ for one in kind.__mro__ if issubclass(one, ToolError))
    return cleandoc(next(filter(None, said), kind.__name__))


class ToolError(Exception):
    """The tool could not do what was asked."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or _docstring(type(self)))

    @property
    def message(self) -> str:
        return str(self.args[0])


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
        self.prompt, self.template, self.url = message, url, self._placed(url)

    def _placed(self, url: str) -> str:
        return url.replace("{elicitation_id}", self.id)


class InsufficientScope(ToolError):
    """The client's token is too narrow for it; ``scopes`` are all that this asks for."""

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


class Busy(Exception):
    """The server has more work than it accepts; try again in a moment."""


class AlreadyRegistered(ImproperlyConfigured):
    """The name is taken."""


class Misdeclared(ImproperlyConfigured):
    """What the project declares cannot be served; the messages of the checks say why."""

    def __init__(self, messages: Sequence[CheckMessage]) -> None:
        super().__init__("\n".join(str(message) for message in messages))
        self.messages = messages


class Unwound(BaseException):
    """A run of a call ends here, to be continued. Not an ``Exception``: no code eats it."""


class Asked(Unwound):
    """The run needs answers it does not have."""

    def __init__(self, questions: dict[str, Any]) -> None:
        super().__init__()
        self.questions = questions


class OnceNeeded(Unwound):
    """The run needs a step done, committed and remembered before it can go on."""

    def __init__(self, key: str, function: Callable[[], Any]) -> None:
        super().__init__()
        self.key, self.function = key, function


class Stopped(Unwound):
    """The call was cancelled; nobody waits for what it would have said."""


class Parked(Unwound):
    """The call waits for answers, as rows; whoever brings the last one goes on with it."""
