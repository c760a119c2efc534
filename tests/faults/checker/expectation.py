"""Expected contents of a stream: event ids, and the texts that follow from a seed.

A stream is checked twice. Each connection must continue after its cursor without gaps, duplicates
or swaps of ids. All connections together must contain the texts of the seed in order, and one
response.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from .findings import Findings
from .sse import Event
from .words import TRIMMED

ID = re.compile(r"([0-9a-f]+)(-)([0-9]+)(?:-[0-9]+)?\Z")
OLD_ID = re.compile(r"([A-Za-z0-9_-]{43})(\.)([0-9]+)(?:\.[0-9]+)?\Z")  # of HTTP+SSE
JSON = dict[str, Any]


class Stream:
    """All events that were read from one stream, over all connections."""

    def __init__(self, findings: Findings, label: str, ids: re.Pattern[str] = ID) -> None:
        self.findings, self.label, self.began = findings, label, time.monotonic()
        self.id: str | None = None
        self._ids, self._between = ids, "-"
        self.texts: dict[int, str] = {}
        self.empty: set[str | None] = set()  # the ids of the empty events
        self.last = 0
        self.may_be_trimmed = False  # whether somebody forgot what is over, since it began
        self.is_trimmed = False

    def place(self, id: str | None) -> int | None:
        """Return the number in an event id. Report an id of another stream, and return None."""
        found = self._ids.match(id or "")
        if found is None:
            self.findings.add("wrong", f"{self.label}: {id!r} is no event id")
            return None
        if self.id is None:
            self.id, self._between = found[1], found[2]
        if self.id != found[1]:
            self.findings.add("wrong", f"{self.label}: event {id} on stream {self.id}")
            return None
        return int(found[3])

    def keep(self, number: int, text: str) -> bool:
        """Store an event. Return whether no connection had read it before."""
        if number not in self.texts:
            self.texts[number] = text
            self.last = max(self.last, number)
            return True
        if self.texts[number] != text and not self._is_forgotten(text):
            self.findings.add("wrong", f"{self.label}: event {number} says two things")
        return False

    def _is_forgotten(self, text: str) -> bool:
        """Whether it is the error for a resumed stream whose events were pruned."""
        return self.may_be_trimmed and TRIMMED in text

    def messages(self) -> list[JSON]:
        """Return the messages in the order of their numbers. ``Reading`` reports gaps."""
        texts = [json.loads(self.texts[number]) for number in sorted(self.texts)]
        return [one for text in texts for one in (text if isinstance(text, list) else [text])]

    @property
    def cursor(self) -> str:
        return self.cursor_at(self.last)

    def cursor_at(self, number: int) -> str:
        return f"{self.id}{self._between}{number}"


class Reading:
    """The events that one connection receives after a cursor."""

    def __init__(self, stream: Stream, after: int = 0, *, primes: bool = True) -> None:
        self.stream, self.at, self.primes = stream, after, primes
        self.began_at = after
        self.retry: int | None = None
        self.count = self.marks = 0  # of messages, and of empty events
        self._missing: set[int] = set()
        self._seen: set[int] = set()

    def take(self, event: Event) -> tuple[int, JSON] | None:
        """Handle an event. Return its number and message if no connection had read it before."""
        self.retry = event.retry if event.retry is not None else self.retry
        number = self.stream.place(event.id)
        if number is None:
            return None
        self.stream.findings.counts["events"] += 1
        if not event.data:
            if event.id in self.stream.empty:
                self._add_finding("duplicated", f"the id {event.id} of an empty event")
            self.stream.empty.add(event.id)
            self._mark(number)
            return None
        if self.stream.may_be_trimmed and self._is_left(number, event.data):
            self.at, self.stream.is_trimmed = number, True
        else:
            self._follow(number)
        self.count += 1
        if self.stream.keep(number, event.data):
            return number, json.loads(event.data)
        return None

    def _is_left(self, number: int, text: str) -> bool:
        """Whether it is an event that pruning keeps: the response, or the error in place of it."""
        resumes = self.began_at == self.at < number - 1 and not self.count
        return TRIMMED in text or (resumes and "method" not in json.loads(text))

    @property
    def is_released(self) -> bool:
        """Whether the server asked the client to reconnect."""
        return self.marks > 1

    def _mark(self, number: int) -> None:
        """Handle an empty event at the begin or end of a connection. Its id is the cursor."""
        self.marks += 1
        if not self.primes:
            self._add_finding(
                "wrong", f"an empty event {number} to a client that takes it for a message"
            )
        if number > self.at:
            self._missing.update(range(self.at + 1, number + 1))
            self.at = number
        elif number < self.at:
            self._add_finding("wrong", f"a cursor back at {number} after {self.at}")

    def _follow(self, number: int) -> None:
        if number in self._seen:
            self._add_finding("duplicated", f"event {number}")
        elif number in self._missing:
            self._missing.discard(number)
            self._add_finding("disordered", f"event {number} after {self.at}")
        elif number <= self.at:
            self._add_finding("duplicated", f"event {number} after the cursor {self.at}")
        self._seen.add(number)
        if number > self.at:
            self._missing.update(range(self.at + 1, number))
            self.at = number

    def end(self) -> None:
        """Report the events that are missing at the end of the connection."""
        if self._missing:
            first, last = min(self._missing), max(self._missing)
            self._add_finding("lost", f"events {first} to {last} ({len(self._missing)})")
            self._missing.clear()

    def _add_finding(self, kind: str, what: str) -> None:
        self.stream.findings.add(kind, f"{self.stream.label} stream {self.stream.id}: {what}")


def compare(findings: Findings, label: str, wanted: Sequence[str], said: Sequence[str]) -> bool:
    """Return whether the texts are exactly ``wanted``. Report each kind of difference."""
    if list(wanted) == list(said):
        return True
    places = {text: number for number, text in enumerate(wanted)}
    unknown = [text for text in said if text not in places]
    twins = [text for text, count in Counter(said).items() if count > 1 and text in places]
    missing = [number for text, number in places.items() if text not in set(said)]
    numbers = [places[text] for text in dict.fromkeys(said) if text in places]
    swapped = [b for a, b in zip(numbers, numbers[1:], strict=False) if b < a]
    for kind, found in (
        ("wrong", unknown), ("duplicated", twins), ("lost", missing), ("disordered", swapped),
    ):  # fmt: skip
        if found:
            what = f"{len(found)} of {len(wanted)} messages, first {found[0]}"
            findings.add(kind, f"{label}: {what}")
    return False


class RequestMessages:
    """The messages of a stream that concern one request."""

    def __init__(self, messages: Sequence[JSON], id: Any, token: Any) -> None:
        self.progress: list[float] = []
        self.said: list[str] = []
        self.responses: list[JSON] = []
        self.after = 0  # messages about it that come after its response
        for message in messages:
            self._take(message, id, token)

    def _take(self, message: JSON, id: Any, token: Any) -> None:
        params = message.get("params") or {}
        if message.get("method") == "notifications/progress":
            if params.get("progressToken") == token:
                self.progress.append(params["progress"])
                self.said.append(params.get("message", ""))
                self.after += bool(self.responses)
        elif "method" not in message and message.get("id") == id:
            self.responses.append(message)

    @property
    def rises(self) -> bool:
        return all(a < b for a, b in zip(self.progress, self.progress[1:], strict=False))
