"""
What a client got, and assertions about it that read aloud.

Rule: an assertion gives back what it is about, so that they make a sentence, and one that fails
shows everything that was got: words, data, and the bug behind them.
"""

from __future__ import annotations

import base64
import json
import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, Self

from .recording import Record

JSON = dict[str, Any]
UNAUTHORIZED = 401
# How a server says that there is no such thing, at least not for this caller.
UNKNOWN = ("Unknown tool: ", "Unknown prompt: ", "Resource not found")
UNSEEN = frozenset(("type", "data", "blob", "mimeType"))  # of a content block
MISSING: Any = object()


class RpcError(Exception):
    """The server answered with a JSON-RPC error: ``code``, ``message`` and ``data``.

    ``status`` is that of the HTTP answer, where there is one.
    """

    def __init__(self, error: JSON, status: int | None = None) -> None:
        super().__init__(error)
        self.code, self.message, self.data = error["code"], error["message"], error.get("data")
        self.status = status


@dataclass(frozen=True)
class Answer:
    """An answer of the server: a result as it came over the wire, or an error.

    ``raw`` is the result, empty where there is an error; ``queries`` are the SQL statements of the
    project's code, and ``bugs`` the exceptions that the server logged meanwhile.
    """

    subject: str
    raw: JSON
    error: RpcError | None = None
    record: Record = field(default_factory=Record, repr=False)

    @property
    def queries(self) -> list[str]:
        """SQL of permissions, binding, the code itself and its result; no transaction's own."""
        return self.record.queries

    @property
    def bugs(self) -> list[BaseException]:
        """What the server logged as errors while it worked on this."""
        return self.record.bugs

    @property
    def is_error(self) -> bool:
        """Whether it failed, in whichever way."""
        return self.error is not None

    @property
    def code(self) -> int | None:
        """The code of a JSON-RPC error."""
        return None if self.error is None else self.error.code

    @property
    def text(self) -> str:
        """Every text that was got, or the words of the error."""
        return self._said() if self.error is None else self.error.message

    def _said(self) -> str:
        raise NotImplementedError

    def _seen(self) -> str:
        """All in which ``assert_sees`` looks."""
        return self.text

    # Assertions.

    def assert_ok(self) -> Self:
        """It did not fail."""
        if self.is_error:
            self._fail("failed")
        return self

    def assert_error(self, words: str = "") -> Self:
        """It failed, in a way that the caller is told of, and ``words`` are in what is told."""
        if not self.is_error:
            self._fail("did not fail")
        if words not in self.text:
            self._fail(f"failed without saying {words!r}")
        return self

    def assert_unknown(self) -> Self:
        """For this caller there is no such thing: what may not be used does not exist."""
        error = self.error
        if error is None or not (error.status == UNAUTHORIZED or error.message.startswith(UNKNOWN)):
            self._fail("is there for this caller")
        return self

    def assert_sees(self, *words: Any) -> Self:
        """Each of ``words`` is somewhere in what was got, texts and data."""
        seen = self._seen()
        for one in map(str, words):
            if one not in seen:
                self._fail(f"does not show {one!r}")
        return self

    def assert_does_not_see(self, *words: Any) -> Self:
        """None of ``words`` is anywhere in what was got."""
        seen = self._seen()
        for one in map(str, words):
            if one in seen:
                self._fail(f"shows {one!r}")
        return self

    def assert_num_queries(self, number: int) -> Self:
        """The project's code took so many queries: ``queries`` says which count."""
        if len(self.queries) != number:
            listed = "\n".join(f"  {place}. {sql}" for place, sql in enumerate(self.queries, 1))
            self._fail(f"took {len(self.queries)} queries, not {number}", listed)
        return self

    def _fail(self, what: str, shown: str | None = None) -> NoReturn:
        raise AssertionError(f"{self.subject} {what}.\n{shown or self._told()}")

    def _told(self) -> str:
        bugs = "".join("".join(traceback.format_exception(bug)) for bug in self.bugs)
        logged = f"\nThe server logged:\n{bugs}" if bugs else ""
        if self.error is not None:
            status = f" (HTTP {self.error.status})" if self.error.status else ""
            data = "" if self.error.data is None else f"\n{_dumped(self.error.data, 2)}"
            return f"Error {self.error.code}{status}: {self.error.message}{data}{logged}"
        return f"What was got:\n{_dumped(self.raw, 2)}{logged}"


class Result(Answer):
    """What ``Client.call`` got from a tool."""

    @property
    def is_error(self) -> bool:
        return self.error is not None or bool(self.raw.get("isError"))

    @property
    def content(self) -> list[JSON]:
        """The content blocks, as they came."""
        found: list[JSON] = self.raw.get("content", [])
        return found

    @property
    def data(self) -> Any:
        """The structured content; what the text holds as JSON, where a revision has no other.

        ``AssertionError`` if the tool failed, or said nothing of the kind.
        """
        self.assert_ok()
        told = _read(self.text)
        found = self.raw.get("structuredContent", told)
        if found is MISSING:
            self._fail("gave no data")
        # Older revisions have objects only, and what is none within one: the text tells.
        return told if found == {"result": told} else found

    def _said(self) -> str:
        return "\n".join(one["text"] for one in self.content if one.get("type") == "text")

    def _seen(self) -> str:
        return self.text if self.error is not None else _everything(self.raw)

    def assert_data(self, expected: Any = MISSING, /, **members: Any) -> Self:
        """The data are ``expected``, or an object with at least these ``members``."""
        data = self.data
        if expected is not MISSING and data != expected:
            self._fail(f"gave other data than {expected!r}")
        for name, value in members.items():
            if not isinstance(data, Mapping) or data.get(name, MISSING) != value:
                self._fail(f"gave no {name}={value!r}")
        return self


class Contents(Answer):
    """What ``Client.read`` got from a resource."""

    @property
    def contents(self) -> list[JSON]:
        """The contents, as they came: mostly one."""
        found: list[JSON] = self.raw.get("contents", [])
        return found

    @property
    def data(self) -> Any:
        """What the text holds as JSON. ``AssertionError`` if there is none."""
        found = _read(self.assert_ok().text)
        if found is MISSING:
            self._fail("is no JSON")
        return found

    @property
    def blob(self) -> bytes:
        """The bytes of the first contents that are bytes. ``AssertionError`` if none are."""
        for one in self.assert_ok().contents:
            if "blob" in one:
                return base64.b64decode(one["blob"])
        self._fail("has no bytes")

    def _said(self) -> str:
        return "\n".join(one["text"] for one in self.contents if "text" in one)


class Prompted(Answer):
    """What ``Client.prompt`` got from a prompt."""

    @property
    def messages(self) -> list[JSON]:
        """The messages, each with a ``role`` and its ``content``."""
        found: list[JSON] = self.raw.get("messages", [])
        return found

    def _said(self) -> str:
        blocks = (message["content"] for message in self.messages)
        return "\n".join(block["text"] for block in blocks if block.get("type") == "text")


def _read(text: str) -> Any:
    """The JSON that a text is, or MISSING."""
    try:
        return json.loads(text)
    except ValueError:
        return MISSING


def _everything(raw: JSON) -> str:
    """What people and models see of a result: texts of any depth, and the data as JSON."""
    data = [_dumped(raw["structuredContent"])] if "structuredContent" in raw else []
    return "\n".join([*_texts(raw.get("content", ())), *data])


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from () if key in UNSEEN else _texts(inner)
    elif isinstance(value, Iterable):
        for inner in value:
            yield from _texts(inner)


def _dumped(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, indent=indent, ensure_ascii=False)
