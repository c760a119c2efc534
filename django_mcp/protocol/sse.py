"""
Encoding of server-sent events: messages, cursors and keep-alive comments.

Every field is one line. A value with a line break raises ``ValueError``, because it could inject
fields or events.
"""

from __future__ import annotations

import re

_BREAKS_ID = re.compile(r"[\r\n\0]")  # an id with NUL is ignored by readers
MAX_NUMBER = 2**63 - 1  # the largest number of an event: the maximum of a BigIntegerField


def event(
    data: str, id: str | None = None, retry: int | None = None, event: str | None = None
) -> bytes:
    """Return one event. ``data`` is one line. A client can resume after an event with an ``id``.

    ``retry`` is the client's delay before it reconnects, in milliseconds.
    """
    named = "" if event is None else f"event: {_line(event)}\n"
    marked = "" if id is None else f"id: {_id(id)}\n"
    delayed = "" if retry is None else f"retry: {_milliseconds(retry)}\n"
    return f"{named}{marked}{delayed}data: {_line(data)}\n\n".encode()


def priming(id: str, retry: int | None = None) -> bytes:
    """Return the empty event that gives a client a cursor to resume from."""
    return event("", id, retry)


def comment(text: str = "") -> bytes:
    """Return a comment, which clients ignore. It keeps an idle connection open."""
    return f":{_line(text)}\n\n".encode()


def _line(text: str) -> str:
    if "\n" in text or "\r" in text:  # much faster than a regular expression
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
