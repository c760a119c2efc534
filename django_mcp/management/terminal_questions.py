"""
Questions of a tool at the terminal, for ``manage.py mcp_call``.

The command calls the tool through the test client, which calls ``elicit``, ``visit`` and ``sample``
of ``TerminalQuestions`` when the tool asks. If nobody can be prompted, as in a pipe or with
``--no-input``, a question that the options do not answer is an error that names the option. Prompts
go to stderr, so that stdout has only the tool's result.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from django.core.management.base import CommandError

from ..declarations.schema_summary import PropertyLine, kind, lines
from ..declarations.schemas import violations
from ..testing.questions import CANCEL, DECLINE, Refusal
from .arguments import PAIR, typed_value
from .output import printable

JSON = dict[str, Any]


class InputEnded(Exception):
    """The user ended the input (Ctrl-D)."""


class TerminalQuestions:
    """Answer questions from ``answers``, which are ``KEY=VALUE`` texts, or by prompting.

    Prompts go to ``write``. ``answers_yes`` answers yes to every yes-or-no field that ``answers``
    lacks. ``can_prompt`` is whether a person can be prompted. If not, a question whose required
    fields lack an answer raises ``CommandError``.
    """

    def __init__(
        self,
        input_stream: TextIO,
        write: Callable[[str], None],
        answers: Sequence[str],
        *,
        answers_yes: bool,
        can_prompt: bool,
    ) -> None:
        self._input_stream, self._write = input_stream, write
        self._answers_yes, self.can_prompt = answers_yes, can_prompt
        self._answers: dict[str, list[str]] = {}
        for one in answers:
            pair = PAIR.fullmatch(one)
            if pair is None or pair["sign"] != "=":  # ":=" is for the JSON of arguments
                hint = "write --answer KEY=VALUE."
                raise CommandError(f"{one!r} is not an answer: {hint}", returncode=2)
            self._answers.setdefault(pair["name"], []).append(pair["text"])

    # The functions that the test client calls (``testing.questions``).

    async def elicit(self, message: str, schema: JSON) -> Any:
        fields = {line.name: line for line in lines(schema)}
        known = self._answers_of_options(fields, schema)
        if not self.can_prompt:
            missing = {name: one for name, one in fields.items() if name not in known}
            if not known or any(one.required for one in missing.values()):
                raise CommandError(_unanswered_message(message, missing))
        self._say(message)
        return self._answer_or_refusal(lambda: self._fill_in(fields, schema, known))

    async def visit(self, message: str, url: str) -> Any:
        self._say(f"{message}\n{url}")
        if not self.can_prompt:
            raise CommandError(
                "The tool sends the user to a web page. Run the command in a terminal, without "
                "--no-input."
            )
        answer = self._answer_or_refusal(lambda: self._read_line("Press Enter when it is done: "))
        return answer if isinstance(answer, Refusal) else True

    async def sample(self, messages: Sequence[JSON]) -> Any:
        self._say("The tool asks for the answer of a language model to this:")
        for message in messages:
            self._say(f"  {message.get('role', '')}: {_text(message.get('content'))}")
        answer = self._answer_or_refusal(lambda: self._read_line("> "))
        if isinstance(answer, Refusal):  # only elicitations have a result that declines
            raise CommandError("The tool asked for the answer of a language model and got none.")
        return answer

    def _answer_or_refusal(self, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except InputEnded:
            self._say("")
            return DECLINE
        except KeyboardInterrupt:
            self._say("")
            return CANCEL

    # Forms.

    def _answers_of_options(self, fields: Mapping[str, PropertyLine], schema: JSON) -> JSON:
        """Return the answers that options give.

        If an option gives several values for one field, each answers one question, and the last
        one all that follow. A field that is an array takes all of them each time.
        """
        found: JSON = {}
        for name in fields:
            if listed := self._answers.get(name):
                part = schema["properties"][name]
                several = part.get("type") == "array"
                texts = listed if several else [listed.pop(0) if len(listed) > 1 else listed[0]]
                found[name] = _checked_value(name, texts, part, schema)
            elif self._answers_yes and schema["properties"][name].get("type") == "boolean":
                found[name] = True
        return found

    def _fill_in(self, fields: Mapping[str, PropertyLine], schema: JSON, known: JSON) -> JSON:
        answers = dict(known)
        for name, field in fields.items():
            if name not in answers and self.can_prompt:
                found = self._ask_field(field, schema, alone=len(fields) == 1)
                answers |= {} if found is None else {name: found}
        return answers

    def _ask_field(self, field: PropertyLine, schema: JSON, *, alone: bool) -> Any:
        """Prompt for one field. Return None if it is left out."""
        part = schema["properties"][field.name]
        title = part.get("title") or ("" if alone else field.name)
        default = f" [{field.default}]" if field.default else ""
        label = f"{title} ({field.type}){default}: ".strip()
        for choice in part.get("oneOf", ()):
            self._say(f"  {choice.get('const')}  {choice.get('title', '')}".rstrip())
        while True:
            text = self._read_line(label)
            if not text and (field.default or not field.required):
                return part.get("default")
            if not text:
                self._say("It is required; Ctrl-D declines to answer.")
                continue
            try:
                return _checked_value(field.name, _parts(text, part), part, schema)
            except CommandError as error:
                self._say(str(error))

    # The terminal.

    def _say(self, text: str) -> None:
        # The tool wrote the text: escape sequences in it could rewrite the terminal.
        self._write(printable(text, keep="\n") + "\n")

    def _read_line(self, label: str) -> str:
        with _interruptible():
            self._write(printable(label) + " ")
            text = self._input_stream.readline()
        if not text:
            raise InputEnded
        return text.strip()


def _checked_value(name: str, texts: Sequence[str], part: JSON, schema: JSON) -> Any:
    """Return the value of a field. Raise ``CommandError`` if the tool would reject it."""
    try:
        found = typed_value(name, texts, part, schema)
    except ValueError as error:
        raise CommandError(str(error)) from None
    if problems := violations({"properties": {name: part}}, {name: found}):
        type, message = kind(part), problems[0]
        raise CommandError(message if type in message else f"{message} ({type})")
    return found


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C interrupt reading. The event loop would handle it only after a line was read."""
    before = signal.getsignal(signal.SIGINT)
    with suppress(ValueError):  # only the main thread may set handlers
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        # ValueError: not the main thread. TypeError: the old handler was not set by Python.
        with suppress(ValueError, TypeError):
            signal.signal(signal.SIGINT, before)


def _parts(text: str, part: Mapping[str, Any]) -> list[str]:
    """Return the values in a line. Several choices are separated by commas."""
    if part.get("type") != "array" or text.startswith("["):
        return [text]
    return [one.strip() for one in text.split(",")]


def _text(content: Any) -> str:
    blocks = content if isinstance(content, list) else [content]
    return " ".join(
        str(one.get("text") or one.get("type")) for one in blocks if isinstance(one, dict)
    )


def _unanswered_message(message: str, fields: Mapping[str, PropertyLine]) -> str:
    options = " ".join(f"--answer {line.name}=VALUE ({line.type})" for line in fields.values())
    return f"The tool asks: {message}\nNo user can be asked here. Answer by {options}."
