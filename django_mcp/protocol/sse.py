"""
Server-sent events: how a message, a cursor or a sign of life is written to a stream.

The rule: a field is one line. What would break out of it raises, and is never written.
"""

from __future__ import annotations

import re

_BREAKS = re.compile(r"[\r\n]")
_BREAKS_ID = re.compile(r"[\r\n\0]")  # an id with NUL is ignored by readers
_CURSOR = re.compile(r"(0|[1-9][0-9]{0,18})-(0|[1-9][0-9]{0,18})\Z")
MAX_NUMBER = 2**63 - 1  # what a database keeps in a big integer


def event(
    data: str, id: str | None = None, retry: int | None = None, event: str | None = None
) -> bytes:
    """One event. ``data`` is one line; with an ``id``, a client resumes after it."""
    named = "" if event is None else f"event: {_line(event)}\n"
    marked = "" if id is None else f"id: {_id(id)}\n"
    delayed = "" if retry is None else f"retry: {_milliseconds(retry)}\n"
    return f"{named}{marked}{delayed}data: {_line(data)}\n\n".encode()


def priming(id: str, retry: int | None = None) -> bytes:
    """The empty event that gives a client a cursor to resume from."""
    return event("", id, retry)


def comment(text: str = "") -> bytes:
    """What clients ignore, and keeps a quiet connection open."""
    return f":{_line(text)}\n\n".encode()


def _line(text: str) -> str:
    if _BREAKS.search(text):
        raise ValueError("A field of an event is one line.")
    return text


def _id(text: str) -> str:
    # An empty id would make the client forget its cursor.
    if not text or _BREAKS_ID.search(text):
        raise ValueError("The id of an event is one line, and neither empty nor with NUL.")
    return text


def _milliseconds(retry: int) -> int:
    if retry < 0:
        raise ValueError("A client cannot try again in the past.")
    return int(retry)


# The ids of events: the cursors from which streams are resumed.


def event_id(stream: int, seq: int) -> str:
    return f"{stream}-{seq}"


def cursor(text: str | None) -> tuple[int, int] | None:
    """The stream and the sequence number of an event id; None if it was never given out."""
    if (found := _CURSOR.match(text or "")) is None:
        return None
    stream, seq = int(found[1]), int(found[2])
    return (stream, seq) if max(stream, seq) <= MAX_NUMBER else None
