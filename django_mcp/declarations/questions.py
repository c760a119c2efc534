"""Questions of a call to the client: input from its user, a sample from its model, its roots.

A ``Question`` is a value. It knows its parameters, the client capabilities that it requires and how
to read an answer. It does not wait: ``Request`` looks for the answer, and ends the run of the call
if there is none yet. The call runs again with the answer.

Messages of a sampling request are checked before they are sent and after they arrive ("Both parties
SHOULD validate message content", client/sampling). Each tool use is followed by its result in the
next message, which contains nothing but tool results.

Sources: client/elicitation, client/sampling and client/roots of each revision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.utils.functional import Promise

from ..exceptions import ClientError, Declined, TimedOut, WrongAnswer
from ..protocol import content
from ..protocol.capabilities import needed
from .content import Content, Message
from .cursors import digest
from .schemas import violations

if TYPE_CHECKING:
    from .request import Request

MISSING: Any = object()


class Question:
    """A question to the client.

    ``key`` names the question in the request, and ``timeout`` is in seconds (None: the setting
    ``QUESTION_TIMEOUT``).
    """

    method: str
    key: str | None = None
    timeout: float | None = None

    def params(self) -> dict[str, Any]:
        """Return the parameters of the request, in the form of the newest revision."""
        raise NotImplementedError

    @property
    def needs_thread(self) -> bool:
        """Whether writing or reading it may query the database, so that it must run in a thread."""
        return False

    def bind(self, request: Request) -> Question:
        """Return the question for the user of ``request``."""
        return self

    def check(self) -> None:
        """Raise ``ValueError`` if the question must not be asked of any client."""

    def required(self) -> dict[str, Any]:
        """Return the client capabilities that the question requires."""
        return needed(self.method, self.params())

    def read(self, answer: Mapping[str, Any]) -> Any:
        """Return the value of ``answer``. Raise ``WrongAnswer``, or an error for the tool."""
        raise NotImplementedError

    def repeat_with_error(self, message: str) -> Question:
        """Return the question to ask after a wrong answer. ``message`` says what was wrong."""
        return self

    def wire(self) -> dict[str, Any]:
        """Return the ``method`` and ``params`` of the request."""
        return {"method": self.method, "params": self.params()}

    def digest(self, occurrence: int) -> str:
        """Return an identifier of this question. Another message or schema has another one.

        ``occurrence`` counts equal questions of one call.
        """
        return digest(self.wire(), occurrence)


@dataclass(frozen=True)
class Elicit(Question):
    """Ask the user: with a form of ``schema``, or with something to do at ``url``.

    ``schema`` is bool, str, int, float, a ``Literal``, an enum, a list of a ``Literal`` or an enum,
    a flat pydantic model or dataclass, a Django form, or a JSON Schema as a dict. A Django form is
    a class, or an unbound form that was made with arguments. Of the rows of a registered model, the
    form offers only those that the user may see.

    The answer is a value of that type (a form's ``cleaned_data``), or True for a URL. If the user
    declines or cancels, it is ``default``, or ``Declined`` is raised without one.
    """

    message: str | Promise
    schema: Any = None
    key: str | None = None
    default: Any = MISSING
    url: str | None = None
    timeout: float | None = None
    method = "elicitation/create"
    _request: Request | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # str() of another object may show anything, for example all columns of a row.
        if not isinstance(self.message, str | Promise):
            kind = type(self.message).__name__
            raise TypeError(f"A question's message must be text, not a value of type {kind}.")
        object.__setattr__(self, "message", str(self.message))  # it may be a lazy translation

    def params(self) -> dict[str, Any]:
        if self.url is not None:
            return {"mode": "url", "message": self.message, "url": self.url}
        return {"mode": "form", "message": self.message, "requestedSchema": self._form.schema}

    def bind(self, request: Request) -> Elicit:
        if not self.needs_thread:
            return self
        bound = replace(self)
        object.__setattr__(bound, "_request", request)
        return bound

    @property
    def needs_thread(self) -> bool:
        return hasattr(self.schema, "base_fields")  # the choices of a Django form may be rows

    @cached_property
    def _form(self) -> Any:
        # Made when the question is asked: the choices may be rows, which queries the database, and
        # the import of pydantic makes the start of every command slower.
        from .elicitation_forms import form_for

        return form_for(bool if self.schema is None else self.schema, self._request)

    def check(self) -> None:
        from . import elicitation_forms

        if self.url is not None:
            wrong = elicitation_forms.url_problem(self.url.replace("{elicitation_id}", "0"))
            if wrong:
                raise ValueError(f"The URL {self.url!r} of a question {wrong}.")
            return
        if found := elicitation_forms.find_secret_fields(
            bool if self.schema is None else self.schema, str(self.message)
        ):
            raise ValueError(f"A form must not ask for secrets ({', '.join(found)}). Use url=.")
        elicitation_forms.warn_of_links(self.params())

    def read(self, answer: Mapping[str, Any]) -> Any:
        action = answer.get("action")
        if action in ("decline", "cancel"):
            return self._declined(action)
        if action != "accept":
            raise WrongAnswer("The action of an answer must be accept, decline or cancel.")
        if self.url is not None:
            return True
        content = answer.get("content")
        if not isinstance(content, dict):
            raise WrongAnswer("The content of an accepted form must be an object.")
        return self._form.read(content)

    def repeat_with_error(self, message: str) -> Question:
        question = replace(self, message=f"{self.message}\n\n{message[:500]}")
        if self.url is None:
            # Reuse the form. The event loop writes the question, where queries are not allowed.
            question.__dict__["_form"] = self._form
        return question

    def _declined(self, action: str) -> Any:
        if self.default is MISSING:
            raise Declined(action=action)
        return self.default


@dataclass(frozen=True)
class Sampled:
    """The response of the client's model.

    ``content`` is a list of content blocks as dicts. ``text`` joins the texts. ``tool_uses`` are
    the tools that the model wants to call, each a dict with ``id``, ``name`` and ``input``.
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
    """Ask the client's model to continue from ``messages``.

    ``messages`` is one message or a list. A message is a string, an ``mcp.Image`` or ``mcp.Audio``
    (of the user), an ``mcp.Message`` or a ``{"role", "content"}`` dict. The content of the last two
    may be a list. ``preferences`` are hints and priorities (0 to 1) with the names of the
    specification. ``max_tokens`` limits the response. ``include_context`` is "none", "thisServer"
    or "allServers". ``tools`` are tool definitions and require the client capability
    ``sampling.tools``, and ``tool_choice`` is "auto", "required" or "none".
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
        plain = str(self.messages) if isinstance(self.messages, Promise) else self.messages
        messages = sampling_messages(plain, self.tools)
        return {"messages": messages, "maxTokens": self.max_tokens} | given

    def check(self) -> None:
        check_sampling_options(self.max_tokens, self.include_context, self.tool_choice)

    def read(self, answer: Mapping[str, Any]) -> Sampled:
        try:
            content = returned_blocks(answer)
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
    """A folder or file of the client, as a ``file://`` URI."""

    uri: str
    name: str = ""


@dataclass(frozen=True)
class Roots(Question):
    """Ask which folders the client works in."""

    key: str | None = None
    timeout: float | None = None
    method = "roots/list"

    def digest(self, occurrence: int) -> str:
        """Return the same identifier for every occurrence, so that a call asks for roots once."""
        return super().digest(1)

    def params(self) -> dict[str, Any]:
        return {}

    def read(self, answer: Mapping[str, Any]) -> list[Root]:
        roots = answer.get("roots")
        listed: list[Any] = roots if isinstance(roots, list) else [None]
        if not all(isinstance(root, dict) and "uri" in root for root in listed):
            raise WrongAnswer("Roots must be a list of objects with a URI.")
        found = [Root(str(root["uri"]), str(root.get("name") or "")) for root in listed]
        for root in found:
            # Tools open roots as folders. The error is final: asked again, the client would give
            # the same answer.
            if not root.uri.lower().startswith("file://"):
                raise ClientError(
                    f"A root must be a file:// URI, not {root.uri[:200]!r}.", code=-32602
                )
        return found


def read_answer(question: Question, answer: Mapping[str, Any]) -> Any:
    """Return the value of a stored answer: ``{"result"}``, ``{"error"}`` or ``{"timeout"}``."""
    if "timeout" in answer:
        raise TimedOut()
    if "error" in answer:
        error = answer["error"]
        raise ClientError(str(error.get("message") or ""), code=int(error.get("code") or 0))
    result = answer.get("result")
    if not isinstance(result, Mapping):
        raise WrongAnswer("An answer must be an object.")
    return question.read(result)


# The messages of a sampling request, and the content that the client's model returns.

# The types of content blocks in sampling, and the roles whose messages may contain them.
ROLES_OF_BLOCKS = {
    "text": ("user", "assistant"),
    "image": ("user", "assistant"),
    "audio": ("user", "assistant"),
    "tool_use": ("assistant",),
    "tool_result": ("user",),
}


def sampling_messages(
    given: Any, tools: Sequence[Mapping[str, Any]] | None
) -> list[dict[str, Any]]:
    """Return ``given`` as messages. Raise ``ValueError`` for messages that may not be sent."""
    several = isinstance(given, list | tuple)
    written = [_message(one) for one in (given if several else [given])]
    for message in written:
        for block in _blocks(message["content"]):
            _check_block(block, message["role"])
    _check_pairs(written)
    _check_results(written, tools or ())
    return written


def check_sampling_options(max_tokens: Any, include_context: Any, tool_choice: Any) -> None:
    """Raise ``ValueError`` for an option that the specification does not have."""
    if not isinstance(max_tokens, int) or isinstance(max_tokens, bool) or max_tokens < 1:
        raise ValueError("max_tokens must be a positive integer.")
    if include_context not in (None, "none", "thisServer", "allServers"):
        raise ValueError("include_context must be none, thisServer or allServers.")
    if tool_choice not in (None, "auto", "required", "none"):
        raise ValueError("tool_choice must be auto, required or none.")


def _message(message: Any) -> dict[str, Any]:
    """Return a message as a dict. Text and content without a role are messages of the user."""
    if isinstance(message, Message):
        message = {"role": message.role, "content": message.content}
    elif not isinstance(message, Mapping):
        message = {"role": "user", "content": message}
    body = message.get("content")
    if message.get("role") not in content.ROLES or not body:
        raise ValueError("A message must have content, and the role user or assistant.")
    written = [_block(one) for one in body] if isinstance(body, list | tuple) else _block(body)
    return {**message, "content": written}


def _block(value: Any) -> Any:
    """Return a string or content as a block. A dict already is one."""
    if isinstance(value, str):
        return content.text(value)
    return value.block() if isinstance(value, Content) else value


def _blocks(value: Any) -> list[Any]:
    """Return the blocks of a message's content, which is one block or a list."""
    return value if isinstance(value, list) else [value]


def _check_block(block: Any, role: str) -> None:
    """Raise ``ValueError`` unless a message of ``role`` may contain the block."""
    content.check(block)
    if role not in ROLES_OF_BLOCKS.get(block["type"], ()):
        raise ValueError(
            f"In sampling, a message of the {role} cannot contain a block of type {block['type']}."
        )


def _blocks_of_type(message: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [block for block in _blocks(message["content"]) if block["type"] == kind]


def _check_pairs(written: Sequence[dict[str, Any]]) -> None:
    """Raise ``ValueError`` unless the next message after a tool use contains its result."""
    waiting: list[str] = []
    for message in written:
        results = _blocks_of_type(message, "tool_result")
        if results and len(results) != len(_blocks(message["content"])):
            raise ValueError("A message with tool results must not contain anything else.")
        if sorted(block["toolUseId"] for block in results) != sorted(waiting):
            raise ValueError("Every tool use must have one tool result in the next message.")
        waiting = [block["id"] for block in _blocks_of_type(message, "tool_use")]
    if waiting:
        raise ValueError("The results of the tools that the last message uses are missing.")


def _check_results(written: Sequence[dict[str, Any]], tools: Sequence[Mapping[str, Any]]) -> None:
    """Raise ``ValueError`` if the structured content of a result does not fit its tool's schema."""
    schemas = {tool.get("name"): tool.get("outputSchema") for tool in tools}
    named = {use["id"]: use["name"] for one in written for use in _blocks_of_type(one, "tool_use")}
    for result in (result for one in written for result in _blocks_of_type(one, "tool_result")):
        schema = schemas.get(named[result["toolUseId"]])
        if schema is None or "structuredContent" not in result or result.get("isError"):
            continue
        if wrong := violations(dict(schema), result["structuredContent"]):
            raise ValueError(f"A tool's result does not fit its schema: {'; '.join(wrong)}")


def returned_blocks(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the blocks that the model returned. Raise ``ValueError`` if they are invalid."""
    found = [_known_members(block) for block in _blocks(answer.get("content"))]
    for block in found:
        _check_block(block, str(answer.get("role", "assistant")))
    return found


def _known_members(block: Any) -> Any:
    """Return a block without members that the specification does not have."""
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(kind, str) or kind not in ROLES_OF_BLOCKS:
        return block
    return {key: value for key, value in block.items() if key in content.BLOCKS[kind][1]}
