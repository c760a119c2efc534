"""
Results that a test client received, with assertions, and the record of what each request did.

Each assertion returns the result, so that assertions can be chained. A failed assertion shows all
that was received: text, data, and exceptions that the server logged. ``Listed`` is a list of items
as they were received, with look-up by name.

``recorded`` collects the bugs and SQL queries of one call. The record is in a context variable,
which tasks and jobs of the call inherit, so concurrent calls have separate records. Over stdio the
context is lost, so only a single running call can be recorded. Nothing is recorded while no client
is open.
"""

from __future__ import annotations

import base64
import json
import logging
import threading
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NoReturn, Self

from ..calls.execution import around, queries_through
from ..runtime import outages

JSON = dict[str, Any]


# Savepoints are made by transactions, not by the project's code.
UNCOUNTED = ("SAVEPOINT", "RELEASE", "ROLLBACK")


@dataclass(eq=False)
class RequestRecord:
    """The bugs and the project's SQL queries during one request."""

    bugs: list[BaseException] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)


_current: ContextVar[RequestRecord | None] = ContextVar("django_mcp_testing_record", default=None)
_open: list[RequestRecord] = []


@contextmanager
def recorded() -> Iterator[RequestRecord]:
    """Yield a record of what the calls do that start in this block."""
    record = RequestRecord()
    token = _current.set(record)
    _open.append(record)
    try:
        yield record
    finally:
        _open.remove(record)
        _current.reset(token)


def _record() -> RequestRecord | None:
    return _current.get() or (_open[0] if len(_open) == 1 else None)


def _note_bug(entry: logging.LogRecord) -> bool:
    """Record logged exceptions. This is a log filter that lets every record pass."""
    record = _record()
    error = entry.exc_info[1] if isinstance(entry.exc_info, tuple) else None
    if record is not None and error is not None and entry.levelno >= logging.ERROR:
        record.bugs.append(error)
    return True


@contextmanager
def _note_queries(request: Any) -> Iterator[None]:
    """Record queries in the thread that runs the project's code (``calls.execution.around``)."""
    record = _record()
    if record is None:
        yield
        return

    def note(execute: Any, sql: Any, params: Any, many: Any, context: Any) -> Any:
        # In a test, calls share one connection. Only the queries of this call are recorded.
        if _record() is record and not str(sql).startswith(UNCOUNTED):
            record.queries.append(str(sql))
        return execute(sql, params, many, context)

    with queries_through(note):
        yield


_lock = threading.Lock()
_clients = 0


def watch() -> None:
    """Start recording for one more client."""
    global _clients
    with _lock:
        _clients += 1
        if _clients == 1:
            for name in outages.LOGGER_NAMES:
                logging.getLogger(name).addFilter(_note_bug)
            around.append(_note_queries)


def unwatch() -> None:
    """Stop recording for one client."""
    global _clients
    with _lock:
        _clients -= 1
        if not _clients:
            for name in outages.LOGGER_NAMES:
                logging.getLogger(name).removeFilter(_note_bug)
            around.remove(_note_queries)


# Results.


class Listed(list[JSON]):
    """A list of items as received. A name or URI is ``in`` it if an item has that name or URI."""

    def __contains__(self, one: object) -> bool:
        return one in self.names if isinstance(one, str) else super().__contains__(one)

    @property
    def names(self) -> list[str]:
        """The names of the items, and their URIs or URI templates."""
        keys = ("name", "uri", "uriTemplate")
        return [item[key] for item in self for key in keys if key in item]

    def named(self, name: str) -> JSON:
        """Return the item with that name or URI. Raise ``LookupError``."""
        for item in self:
            if name in Listed([item]).names:
                return item
        raise LookupError(f"There is no {name!r}; there are: {', '.join(self.names)}.")


UNAUTHORIZED = 401
# How messages begin for what does not exist, or not for this caller.
UNKNOWN = ("Unknown tool: ", "Unknown prompt: ", "Resource not found")
# keys of a content block that hold no text to read
UNSEEN = frozenset(("type", "data", "blob", "mimeType"))
MISSING: Any = object()


class RpcError(Exception):
    """A JSON-RPC error of the server: ``code``, ``message`` and ``data``.

    ``status`` is the HTTP status, or None for other transports.
    """

    def __init__(self, error: JSON, status: int | None = None) -> None:
        super().__init__(error)
        self.code, self.message, self.data = error["code"], error["message"], error.get("data")
        self.status = status


@dataclass(frozen=True)
class Answer:
    """The response to a request: a result or an error.

    ``raw`` is the result as received, empty if there is an ``error``. ``queries`` are the SQL
    statements of the project's code, ``bugs`` the exceptions that the server logged during the
    call.
    """

    subject: str
    raw: JSON
    error: RpcError | None = None
    record: RequestRecord = field(default_factory=RequestRecord, repr=False)

    @property
    def queries(self) -> list[str]:
        """SQL of permission checks, binding, the code and its result, without savepoints."""
        return self.record.queries

    @property
    def bugs(self) -> list[BaseException]:
        """Exceptions that the server logged during the call."""
        return self.record.bugs

    @property
    def is_error(self) -> bool:
        """Whether the request failed, by a JSON-RPC error or a tool error."""
        return self.error is not None

    @property
    def code(self) -> int | None:
        """The code of the JSON-RPC error, or None."""
        return None if self.error is None else self.error.code

    @property
    def text(self) -> str:
        """All text that was received, or the error's message."""
        return self._said() if self.error is None else self.error.message

    def _said(self) -> str:
        raise NotImplementedError

    def _seen(self) -> str:
        """Return the text in which ``assert_sees`` searches."""
        return self.text

    # Assertions.

    def assert_ok(self) -> Self:
        """Assert that it did not fail."""
        if self.is_error:
            self._fail("failed")
        return self

    def assert_error(self, words: str = "") -> Self:
        """Assert that it failed with an error for the caller that contains ``words``."""
        if not self.is_error:
            self._fail("did not fail")
        if words not in self.text:
            self._fail(f"failed without saying {words!r}")
        return self

    def assert_unknown(self) -> Self:
        """Assert that the thing does not exist for this caller, or that they may not use it."""
        error = self.error
        if error is None or not (error.status == UNAUTHORIZED or error.message.startswith(UNKNOWN)):
            self._fail("is there for this caller")
        return self

    def assert_sees(self, *words: Any) -> Self:
        """Assert that texts or data contain each of ``words``."""
        seen = self._seen()
        for one in map(str, words):
            if one not in seen:
                self._fail(f"does not show {one!r}")
        return self

    def assert_does_not_see(self, *words: Any) -> Self:
        """Assert that texts and data contain none of ``words``."""
        seen = self._seen()
        for one in map(str, words):
            if one in seen:
                self._fail(f"shows {one!r}")
        return self

    def assert_num_queries(self, number: int) -> Self:
        """Assert how many queries the project's code made: see ``queries``."""
        if len(self.queries) != number:
            listed = "\n".join(f"  {place}. {sql}" for place, sql in enumerate(self.queries, 1))
            self._fail(f"took {len(self.queries)} queries, not {number}", listed)
        return self

    def _fail(self, what: str, shown: str | None = None) -> NoReturn:
        raise AssertionError(f"{self.subject} {what}.\n{shown or self._description()}")

    def _description(self) -> str:
        bugs = "".join("".join(traceback.format_exception(bug)) for bug in self.bugs)
        logged = f"\nThe server logged:\n{bugs}" if bugs else ""
        if self.error is not None:
            status = f" (HTTP {self.error.status})" if self.error.status else ""
            data = "" if self.error.data is None else f"\n{_to_json(self.error.data, 2)}"
            return f"Error {self.error.code}{status}: {self.error.message}{data}{logged}"
        return f"What was got:\n{_to_json(self.raw, 2)}{logged}"


class Result(Answer):
    """The result of ``Client.call``."""

    @property
    def is_error(self) -> bool:
        return self.error is not None or bool(self.raw.get("isError"))

    @property
    def content(self) -> list[JSON]:
        """The content blocks, as received."""
        found: list[JSON] = self.raw.get("content", [])
        return found

    @property
    def data(self) -> Any:
        """The structured content. In revisions without it, the text parsed as JSON.

        Raise ``AssertionError`` if the tool failed or returned neither.
        """
        self.assert_ok()
        parsed = _read(self.text)
        found = self.raw.get("structuredContent", parsed)
        if found is MISSING:
            self._fail("gave no data")
        # In older revisions structured content is an object, so other values are wrapped in
        # "result". The text has the value without the wrapper.
        return parsed if found == {"result": parsed} else found

    def _said(self) -> str:
        return "\n".join(one["text"] for one in self.content if one.get("type") == "text")

    def _seen(self) -> str:
        return self.text if self.error is not None else _everything(self.raw)

    def assert_data(self, expected: Any = MISSING, /, **members: Any) -> Self:
        """Assert that the data equal ``expected``, or are an object with these ``members``."""
        data = self.data
        if expected is not MISSING and data != expected:
            self._fail(f"gave other data than {expected!r}")
        for name, value in members.items():
            if not isinstance(data, Mapping) or data.get(name, MISSING) != value:
                self._fail(f"gave no {name}={value!r}")
        return self


class ReadResult(Answer):
    """The result of ``Client.read``."""

    @property
    def contents(self) -> list[JSON]:
        """The contents as received, usually one."""
        found: list[JSON] = self.raw.get("contents", [])
        return found

    @property
    def data(self) -> Any:
        """The text parsed as JSON. Raise ``AssertionError`` if it is not JSON."""
        found = _read(self.assert_ok().text)
        if found is MISSING:
            self._fail("is no JSON")
        return found

    @property
    def blob(self) -> bytes:
        """The bytes of the first binary contents. Raise ``AssertionError`` if there are none."""
        for one in self.assert_ok().contents:
            if "blob" in one:
                return base64.b64decode(one["blob"])
        self._fail("has no bytes")

    def _said(self) -> str:
        return "\n".join(one["text"] for one in self.contents if "text" in one)


class Prompted(Answer):
    """The result of ``Client.prompt``."""

    @property
    def messages(self) -> list[JSON]:
        """The messages, each with ``role`` and ``content``."""
        found: list[JSON] = self.raw.get("messages", [])
        return found

    def _said(self) -> str:
        blocks = (message["content"] for message in self.messages)
        return "\n".join(block["text"] for block in blocks if block.get("type") == "text")


def _read(text: str) -> Any:
    """Return the text parsed as JSON, or ``MISSING``."""
    try:
        return json.loads(text)
    except ValueError:
        return MISSING


def _everything(raw: JSON) -> str:
    """Return all visible text of a result: texts at any depth, and the data as JSON."""
    data = [_to_json(raw["structuredContent"])] if "structuredContent" in raw else []
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


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, indent=indent, ensure_ascii=False)
