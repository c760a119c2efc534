"""
What a call may ask of the client: input from its user, a sample from its model, its roots.

Rule: a question is a value. It knows how to be written, what the client must
be able to do to be asked, and what its answer means. It waits for nothing:
``Request`` looks for the answer and unwinds the call when there is none.

Sources: client/elicitation, client/sampling and client/roots of each revision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from django.utils.functional import Promise

from ..exceptions import ClientError, Declined, TimedOut
from ..protocol.capabilities import needed
from . import sampling
from .content import Content, Message
from .cursors import digest

if TYPE_CHECKING:
    from .request import Request

MISSING: Any = object()


class WrongAnswer(ValueError):
    """The answer does not fit the question, which is asked again."""


class Question:
    """Something to ask the client."""

    method: str
    key: str | None = None
    timeout: float | None = None  # seconds; None: QUESTION_TIMEOUT

    def params(self) -> dict[str, Any]:
        """The parameters of the request, in the newest revision's words."""
        raise NotImplementedError

    @property
    def looks_up(self) -> bool:
        """Whether writing or reading it may ask the database, which a loop must not."""
        return False

    def of(self, request: Request) -> Question:
        """The question as it is asked of ``request``'s user."""
        return self

    def check(self) -> None:
        """Raises ``ValueError`` for what must not be asked of anybody."""

    def required(self) -> dict[str, Any]:
        """The client capabilities without which it may not be asked."""
        return needed(self.method, self.params())

    def read(self, answer: Mapping[str, Any]) -> Any:
        """What ``answer`` means. Raises ``WrongAnswer`` or what the tool shall see."""
        raise NotImplementedError

    def again(self, wrong: str) -> Question:
        """The question as it is asked of somebody whose answer was ``wrong``, in words."""
        return self

    def wire(self) -> dict[str, Any]:
        return {"method": self.method, "params": self.params()}

    def digest(self, occurrence: int) -> str:
        """Names exactly this question: another message or schema is another question."""
        return digest(self.wire(), occurrence)


@dataclass(frozen=True)
class Elicit(Question):
    """Ask the user: a form of ``schema``, or something to do at ``url``.

    ``schema`` is bool, str, int, float, a ``Literal``, an enum, a list of
    either, a flat pydantic model or dataclass, a Django form, or a JSON schema
    as a dict. The answer is a value of that type (a form's ``cleaned_data``).
    A Django form is a class, or an unbound form that was made with arguments;
    rows of registered models are offered to those who may see them.
    """

    message: str | Promise
    schema: Any = None
    key: str | None = None
    default: Any = MISSING
    url: str | None = None
    timeout: float | None = None
    method = "elicitation/create"
    _request: ClassVar[Request | None] = None

    def __post_init__(self) -> None:
        # The text of another object may show anything, a row's for example.
        if not isinstance(self.message, str | Promise):
            kind = type(self.message).__name__
            raise TypeError(f"A question's message is text, not a value of type {kind}.")
        object.__setattr__(self, "message", str(self.message))  # it may be a lazy translation

    def params(self) -> dict[str, Any]:
        if self.url is not None:
            return {"mode": "url", "message": self.message, "url": self.url}
        return {"mode": "form", "message": self.message, "requestedSchema": self._form.schema}

    def of(self, request: Request) -> Elicit:
        if not self.looks_up:
            return self
        made = replace(self)
        object.__setattr__(made, "_request", request)
        return made

    @property
    def looks_up(self) -> bool:
        return hasattr(self.schema, "base_fields")  # a Django form's choices may be rows

    @cached_property  # a form's choices may be rows, which are looked up where it is asked
    def _form(self) -> Any:
        from .elicitation_forms import (
            form_for,  # pydantic is not imported before a question is asked
        )

        return form_for(bool if self.schema is None else self.schema, self._request)

    def check(self) -> None:
        from . import elicitation_checks

        if self.url is not None:
            wrong = elicitation_checks.url_problem(self.url.replace("{elicitation_id}", "0"))
            if wrong:
                raise ValueError(f"{self.url!r} {wrong}: nobody can be sent there.")
            return
        if found := elicitation_checks.secrets(
            bool if self.schema is None else self.schema, str(self.message)
        ):
            raise ValueError(f"A form must not ask for secrets ({', '.join(found)}): use url=.")
        elicitation_checks.warn_of_links(self.params())

    def read(self, answer: Mapping[str, Any]) -> Any:
        action = answer.get("action")
        if action in ("decline", "cancel"):
            return self._without(action)
        if action != "accept":
            raise WrongAnswer("An answer has an action: accept, decline or cancel.")
        if self.url is not None:
            return True
        content = answer.get("content")
        if not isinstance(content, dict):
            raise WrongAnswer("An accepted form has content.")
        return self._form.read(content)

    def again(self, wrong: str) -> Question:
        made = replace(self, message=f"{self.message}\n\n{wrong[:500]}")
        if self.url is None:  # it is written in the loop, where no rows can be looked up
            made.__dict__["_form"] = self._form
        return made

    def _without(self, action: str) -> Any:
        if self.default is MISSING:
            raise Declined(action=action)
        return self.default


@dataclass(frozen=True)
class Sampled:
    """What the client's model said.

    ``content`` is a list of content blocks as dicts; ``text`` joins the texts;
    ``tool_uses`` are the tools the model wants called, each a dict with ``id``,
    ``name`` and ``input``.
    """

    content: list[dict[str, Any]]
    model: str
    role: str = "assistant"
    stop_reason: str | None = None

    @property
    def text(self) -> str:
        return "\n".join(block["text"] for block in self.content if block.get("type") == "text")

    @property
    def tool_uses(self) -> list[dict[str, Any]]:
        return [block for block in self.content if block.get("type") == "tool_use"]


@dataclass(frozen=True)
class Sample(Question):
    """Ask the client's model to go on from ``messages``.

    ``messages`` is what the user says, or a list of messages. A message is a string, an
    ``mcp.Image`` or ``mcp.Audio`` (of the user), an ``mcp.Message`` or a ``{"role", "content"}``
    dict; the content of the last two may be a list of several. ``preferences`` are hints and
    priorities (0 to 1) as the specification names them; ``tools`` are tool definitions and
    need the client's ``sampling.tools``.
    """

    messages: str | Content | Message | Sequence[Any]
    max_tokens: int = 1000
    system: str | None = None
    preferences: Mapping[str, Any] | None = None
    temperature: float | None = None
    stop_sequences: Sequence[str] | None = None
    include_context: str | None = None
    metadata: Mapping[str, Any] | None = None
    tools: Sequence[Mapping[str, Any]] | None = None
    tool_choice: str | None = None
    key: str | None = None
    timeout: float | None = None
    method = "sampling/createMessage"

    def params(self) -> dict[str, Any]:
        choice = {"mode": self.tool_choice} if self.tool_choice else None
        optional = {
            "systemPrompt": self.system and str(self.system),
            "modelPreferences": self.preferences and dict(self.preferences),
            "temperature": self.temperature,
            "stopSequences": self.stop_sequences and list(self.stop_sequences),
            "includeContext": self.include_context,
            "metadata": self.metadata and dict(self.metadata),
            "tools": [dict(tool) for tool in self.tools] if self.tools else None,
            "toolChoice": choice,
        }
        given = {name: value for name, value in optional.items() if value is not None}
        said = str(self.messages) if isinstance(self.messages, Promise) else self.messages
        messages = sampling.messages(said, self.tools)
        return {"messages": messages, "maxTokens": self.max_tokens} | given

    def check(self) -> None:
        sampling.check_options(self.max_tokens, self.include_context, self.tool_choice)

    def read(self, answer: Mapping[str, Any]) -> Sampled:
        try:
            content = sampling.said(answer)
        except ValueError as error:
            raise WrongAnswer(str(error)) from None
        return Sampled(
            content=content,
            model=str(answer.get("model", "")),
            role=str(answer.get("role", "assistant")),
            stop_reason=answer.get("stopReason"),
        )


@dataclass(frozen=True)
class Root:
    """A folder or file of the client's, as a ``file://`` URI."""

    uri: str
    name: str = ""


@dataclass(frozen=True)
class Roots(Question):
    """Ask which folders the client works in."""

    key: str | None = None
    timeout: float | None = None
    method = "roots/list"

    def digest(self, occurrence: int) -> str:
        """Always the same: a call asks once, and the answer is good for all of it."""
        return super().digest(1)

    def params(self) -> dict[str, Any]:
        return {}

    def read(self, answer: Mapping[str, Any]) -> list[Root]:
        roots = answer.get("roots")
        listed: list[Any] = roots if isinstance(roots, list) else [None]
        if not all(isinstance(root, dict) and "uri" in root for root in listed):
            raise WrongAnswer("Roots come as a list of URIs.")
        found = [Root(str(root["uri"]), str(root.get("name") or "")) for root in listed]
        for root in found:
            # A tool takes a root for a folder. Asked again, the client would say the same.
            if not root.uri.lower().startswith("file://"):
                raise ClientError(f"A root is a file:// URI, not {root.uri[:200]!r}.", code=-32602)
        return found


def read_answer(question: Question, answer: Mapping[str, Any]) -> Any:
    """The value of a stored answer: ``{"result"}``, ``{"error"}`` or ``{"timeout"}``."""
    if "timeout" in answer:
        raise TimedOut()
    if "error" in answer:
        error = answer["error"]
        raise ClientError(str(error.get("message") or ""), code=int(error.get("code") or 0))
    result = answer.get("result")
    if not isinstance(result, Mapping):
        raise WrongAnswer("An answer is an object.")
    return question.read(result)
