"""
Questions of a tool, put to whoever sits at the terminal.

Rule: nobody is asked where nobody sits: what the options do not answer is an error then, with
the option that would. What is asked goes to stderr, so that stdout is the tool's alone.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from django.core.management.base import CommandError

from ..declare.schemas import violations
from ..declare.words import Line, kind, lines
from ..testing.questions import CANCEL, DECLINE
from .output import printable
from .values import PAIR, typed

JSON = dict[str, Any]


class Ended(Exception):
    """Whoever sits there wants to say no more."""


class Asking:
    """Answers questions from ``given``, which are ``KEY=VALUE``, or by asking.

    What is asked goes to ``write``. ``agrees`` says yes to every yes-or-no
    question, ``asks`` is whether somebody sits there; where not, an answer that
    is not given raises ``CommandError``.
    """

    def __init__(
        self,
        reading: TextIO,
        write: Callable[[str], None],
        given: Sequence[str],
        *,
        agrees: bool,
        asks: bool,
    ) -> None:
        self._reading, self._write, self._agrees, self.asks = reading, write, agrees, asks
        self._given: dict[str, list[str]] = {}
        for one in given:
            pair = PAIR.fullmatch(one)
            if pair is None or pair["sign"] != "=":
                raise CommandError(f"{one!r} is no answer: write --answer KEY=VALUE.", returncode=2)
            self._given.setdefault(pair["name"], []).append(pair["text"])

    # As the kit asks (``testing.questions``).

    async def elicit(self, message: str, schema: JSON) -> Any:
        fields = {line.name: line for line in lines(schema)}
        known = self._known(fields, schema)
        if not self.asks and not known:
            raise CommandError(_unanswered(message, fields))
        self._say(message)
        return self._asked(lambda: self._filled_in(fields, schema, known))

    async def visit(self, message: str, url: str) -> Any:
        self._say(f"{message}\n{url}")
        if not self.asks:
            raise CommandError("The tool sends its user to a page: run it at a terminal.")
        return self._asked(lambda: bool(self._line("Press Enter when it is done: ")) or True)

    async def sample(self, messages: Sequence[JSON]) -> Any:
        self._say("The tool asks for what a model would write to this:")
        for message in messages:
            self._say(f"  {message.get('role', '')}: {_text(message.get('content'))}")
        return self._asked(lambda: self._line("> "))

    def _asked(self, ask: Any) -> Any:
        try:
            return ask()
        except Ended:
            self._say("")
            return DECLINE
        except KeyboardInterrupt:
            self._say("")
            return CANCEL

    # Forms.

    def _known(self, fields: Mapping[str, Line], schema: JSON) -> JSON:
        """The answers that need no asking; of several of one name, each serves one question."""
        found: JSON = {}
        for name in fields:
            if listed := self._given.get(name):
                part = schema["properties"][name]
                several = part.get("type") == "array"
                texts = listed if several else [listed.pop(0) if len(listed) > 1 else listed[0]]
                found[name] = _fitting(name, texts, part, schema)
            elif self._agrees and fields[name].type == "yes or no":
                found[name] = True
        return found

    def _filled_in(self, fields: Mapping[str, Line], schema: JSON, known: JSON) -> JSON:
        answers = dict(known)
        for name, line in fields.items():
            if name not in answers and self.asks:
                found = self._field(line, schema, alone=len(fields) == 1)
                answers |= {} if found is None else {name: found}
        return answers

    def _field(self, line: Line, schema: JSON, *, alone: bool) -> Any:
        """What is typed for one field; None if it is left out."""
        part = schema["properties"][line.name]
        title = part.get("title") or ("" if alone else line.name)
        default = f" [{line.default}]" if line.default else ""
        told = f"{title} ({line.type}){default}: ".strip()
        for choice in part.get("oneOf", ()):
            self._say(f"  {choice.get('const')}  {choice.get('title', '')}".rstrip())
        while True:
            text = self._line(told)
            if not text and (line.default or not line.required):
                return part.get("default")
            if not text:
                self._say("It is required; Ctrl-D declines to answer.")
                continue
            try:
                return _fitting(line.name, _parts(text, part), part, schema)
            except CommandError as error:
                self._say(str(error))

    # The terminal.

    def _say(self, words: str) -> None:
        self._write(printable(words, keep="\n") + "\n")

    def _line(self, told: str) -> str:
        with _interruptible():
            self._write(printable(told) + " ")
            line = self._reading.readline()
        if not line:
            raise Ended
        return line.strip()


def _fitting(name: str, texts: Sequence[str], part: JSON, schema: JSON) -> Any:
    """The value of a field. Raises ``CommandError`` for what the tool would not take."""
    try:
        found = typed(name, texts, part, schema)
    except ValueError as error:
        raise CommandError(str(error)) from None
    if wrong := violations({"properties": {name: part}}, {name: found}):
        wanted = kind(part)
        raise CommandError(wrong[0] if wanted in wrong[0] else f"{wrong[0]} ({wanted})")
    return found


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C ends the reading: an event loop would hear of it when a line has come."""
    before = signal.getsignal(signal.SIGINT)
    with suppress(ValueError):  # this is not the main thread
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        with suppress(ValueError, TypeError):  # nor, perhaps, was it Python that had set it
            signal.signal(signal.SIGINT, before)


def _parts(text: str, part: Mapping[str, Any]) -> list[str]:
    """The values in a line: of several choices, separated by commas."""
    if part.get("type") != "array" or text.startswith("["):
        return [text]
    return [one.strip() for one in text.split(",")]


def _text(content: Any) -> str:
    blocks = content if isinstance(content, list) else [content]
    return " ".join(
        str(one.get("text") or one.get("type")) for one in blocks if isinstance(one, dict)
    )


def _unanswered(message: str, fields: Mapping[str, Line]) -> str:
    told = " ".join(f"--answer {line.name}=VALUE ({line.type})" for line in fields.values())
    return f"The tool asks: {message}\nThere is nobody to ask here. Answer by {told}."
