"""
Events as they are written: many by one statement, and none of them a model.

Rule: a call may say thousands of things, and making a model of each takes longer
than all else that is done with it. So the statement is written here. The messages
are its parameters, and whatever else it holds is numbers and words of our own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from django.db import connections
from django.utils import timezone

from ..conf import settings
from ..models import Event

# Of one statement: events, for some databases count parameters; and their bytes.
MOST, MOST_SIZE = 900, 4_000_000
COLUMNS = ("stream_id", "seq", "data", "size", "final", "nonce", "created")


class Entry(NamedTuple):
    """A message that becomes an event, and where."""

    stream: int
    seq: int
    data: str
    size: int
    final: bool = False


def size_of(message: str) -> int:
    return len(message) if message.isascii() else len(message.encode())


def entry(stream: int, seq: int, message: str, *, final: bool = False) -> Entry:
    return Entry(stream, seq, message, size_of(message), final)


def insert(entries: Iterable[Entry], nonce: str = "") -> None:
    """Insert within the caller's transaction. ``nonce`` names the flush: letters and digits."""
    if not nonce.isalnum() and nonce:
        raise ValueError(f"{nonce!r} is no nonce.")
    for some in _statements(entries):
        _execute(some, nonce)


def _statements(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """Not too many at a time, nor too many bytes, but at least one."""
    some: list[Entry] = []
    size = 0
    for one in entries:
        size += one.size
        if some and (len(some) == MOST or size > MOST_SIZE):
            yield some
            some, size = [], one.size
        some.append(one)
    if some:
        yield some


def _execute(entries: list[Entry], nonce: str) -> None:
    connection = connections[settings.DATABASE]
    name = connection.ops.quote_name
    now = connection.ops.adapt_datetimefield_value(timezone.now())
    into = f"INSERT INTO {name(Event._meta.db_table)} ({', '.join(map(name, COLUMNS))}) VALUES "
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            # It keeps the last 128 statements with all that was bound to them: here it is one.
            row = "(%s, %s, %s, %s, %s, %s, %s)"
            cursor.executemany(into + row, [(*e, nonce, now) for e in entries])
            return
        rest = f"'{nonce}', '{now}')"
        values = [f"({e.stream}, {e.seq}, %s, {e.size}, {e.final}, {rest}" for e in entries]
        cursor.execute(into + ", ".join(values), [e.data for e in entries])
