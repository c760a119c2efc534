"""Servers with a deliberate defect: each loses, repeats or swaps an event, or loses a change.

The defect is in one place: on the wire, where the ids agree with the events; in the event log,
where the ids are correct; or in the change log. The checker must find it from the seeds and the
saves alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

EVERY = 25  # one of so many messages of a process is affected
EVENT = re.compile(rb".*?\n\n", re.DOTALL)


class Stream:
    """The events of one connection."""

    def __init__(self, wrong: OnTheWire, count: Callable[[], int]) -> None:
        self._wrong, self._count, self._rest = wrong, count, b""
        self.held = b""

    def pass_on(self, body: bytes) -> bytes:
        whole = self._rest + body
        events = EVENT.findall(whole)
        self._rest = whole[sum(map(len, events)) :]
        return b"".join(map(self._one, events))

    def _one(self, event: bytes) -> bytes:
        if self._wrong.word in event and self._count() % self._wrong.every == 0:
            return self._wrong.corrupt(self, event)
        held, self.held = self.held, b""
        return event + held


def drop(stream: Stream, event: bytes) -> bytes:
    return b""


def twice(stream: Stream, event: bytes) -> bytes:
    return 2 * event


def swap(stream: Stream, event: bytes) -> bytes:
    """Send it after the next event."""
    stream.held += event
    return b""


class OnTheWire(NamedTuple):
    """A defect on the wire: which messages, of which requests, and every how many."""

    corrupt: Callable[[Stream, bytes], bytes]
    word: bytes = b"notifications/"
    every: int = EVERY
    method: str = ""


ON_THE_WIRE = {
    "drop": OnTheWire(drop),
    "twice": OnTheWire(twice),
    "swap": OnTheWire(swap),
    "resume": OnTheWire(drop, every=1, method="GET"),
    "told-twice": OnTheWire(twice, word=b"resources/updated", every=1, method="POST"),
}


def mutated(application: Any, name: str) -> Any:
    if name not in ON_THE_WIRE:
        return application
    counted, wrong = iter(range(1, 2**62)).__next__, ON_THE_WIRE[name]

    async def served(scope: Any, receive: Any, send: Any) -> None:
        if wrong.method not in ("", scope.get("method")):
            return await application(scope, receive, send)
        stream = Stream(wrong, counted)
        is_stream = False

        async def sent(message: Any) -> None:
            nonlocal is_stream
            if message["type"] == "http.response.start":
                is_stream = any(b"event-stream" in value for _, value in message["headers"])
            elif message["type"] == "http.response.body" and is_stream:
                message = {**message, "body": stream.pass_on(message.get("body", b""))}
            await send(message)

        await application(scope, receive, sent)

    return served


# In the event log.

OFTEN = 2  # of the statements that hold two words of one stream, of which one suffers
EVENTS = re.compile(r"INSERT INTO \S*django_mcp_event\W")
PLACE = re.compile(r"\((\d+), \d+, %s,")  # of each row: its stream
WORD, NOTHING = (
    '"notifications/progress"',
    ('{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"debug","data":0}}'),
)
Texts = tuple[str, str]


def among_statements(name: str) -> list[Any]:
    """Return the execute wrappers that corrupt stored data."""
    if name in IN_CHANGES:
        return [forgetting]
    return [EventCorruption(IN_THE_LOG[name])] if name in IN_THE_LOG else []


class EventCorruption:
    """Changes the texts of two consecutive events, and keeps their numbers."""

    statements = iter(range(1, 2**62))

    def __init__(self, corrupt: Callable[[str, str], Texts]) -> None:
        self._corrupt = corrupt

    def __call__(self, execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        if EVENTS.match(str(sql)[:80]) and (many or PLACE.search(sql)):
            params = list(params)
            rows = [row[2] for row in params] if many else params
            streams = [row[0] for row in params] if many else PLACE.findall(sql)
            self._change(params, list(zip(streams, rows, strict=True)), many=many)
        return execute(sql, params, many, context)

    def _change(self, params: list[Any], rows: list[tuple[Any, str]], *, many: bool) -> None:
        at = next(_said_together(rows), None)
        if at is None or next(self.statements) % OFTEN:
            return
        for row, text in enumerate(self._corrupt(rows[at][1], rows[at + 1][1]), at):
            params[row] = (*params[row][:2], text, *params[row][3:]) if many else text


def _said_together(rows: list[tuple[Any, str]]) -> Iterator[int]:
    """Iterate over positions at which two progress messages of a stream follow each other."""
    for at, ((stream, text), (following, next_text)) in enumerate(pairwise(rows)):
        if stream == following and WORD in text and WORD in next_text:
            yield at


IN_THE_LOG: dict[str, Callable[[str, str], Texts]] = {
    "log-drop": lambda one, other: (one, NOTHING),
    "log-twice": lambda one, other: (one, one),
    "log-swap": lambda one, other: (other, one),
}


# In the change log.

CHANGES = re.compile(r"INSERT INTO \S*django_mcp_change\W")
IN_CHANGES = ("untold",)


def forgetting(execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
    """Record a change without the row that it concerns."""
    if CHANGES.match(str(sql)[:80]):
        params = tuple("{}" if str(one).startswith("{") else one for one in params)
    return execute(sql, params, many, context)


# Each mutant, and how the checker must classify it.
MUTANTS = {
    "drop": "lost", "twice": "duplicated", "swap": "disordered", "resume": "lost",
    "log-drop": "lost", "log-twice": "duplicated", "log-swap": "disordered",
    "untold": "lost", "told-twice": "duplicated",
}  # fmt: skip
# The scenarios that are run for each mutant.
CALLS, SAVES = ("recite", "act"), ("saved", "listen")
TRIED = dict.fromkeys(MUTANTS, CALLS) | {"untold": SAVES, "told-twice": SAVES}
