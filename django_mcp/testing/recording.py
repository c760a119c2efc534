"""
What happens on the server's side while a client of the kit waits: bugs, and queries.

Rule: a call's record holds what that call did and nothing else. It travels in the context, which
every task and job of the call inherits, so that calls beside each other are told apart; what comes
out of a pipe has lost it, and belongs to a call that is alone. Nothing is watched while no client
is open.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from ..dispatch.running import around, queries_through

# What a transaction does on its own account is no query of anybody's code.
UNCOUNTED = ("SAVEPOINT", "RELEASE", "ROLLBACK")
logger = logging.getLogger("django_mcp")


@dataclass(eq=False)
class Record:
    """What one request did: what was wrong, and the SQL of the project's code."""

    bugs: list[BaseException] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)


_current: ContextVar[Record | None] = ContextVar("django_mcp_testing_record", default=None)
_open: list[Record] = []


@contextmanager
def recorded() -> Iterator[Record]:
    """Whatever is begun in this block is written down in one record."""
    record = Record()
    token = _current.set(record)
    _open.append(record)
    try:
        yield record
    finally:
        _open.remove(record)
        _current.reset(token)


def _record() -> Record | None:
    return _current.get() or (_open[0] if len(_open) == 1 else None)


def _note_bug(entry: logging.LogRecord) -> bool:
    """As a filter of the log, which hears of every bug, and keeps nothing from anybody."""
    record = _record()
    error = entry.exc_info[1] if isinstance(entry.exc_info, tuple) else None
    if record is not None and error is not None and entry.levelno >= logging.ERROR:
        record.bugs.append(error)
    return True


@contextmanager
def _note_queries(request: Any) -> Iterator[None]:
    """Around the project's code (``dispatch.running.around``), in the thread that runs it."""
    record = _record()
    if record is None:
        yield
        return

    def note(execute: Any, sql: Any, params: Any, many: Any, context: Any) -> Any:
        # In a test, calls that take turns share a connection: this is about one of them.
        if _record() is record and not str(sql).startswith(UNCOUNTED):
            record.queries.append(str(sql))
        return execute(sql, params, many, context)

    with queries_through(note):
        yield


_lock = threading.Lock()
_clients = 0


def watch() -> None:
    """Begin to write down, for one more client."""
    global _clients
    with _lock:
        _clients += 1
        if _clients == 1:
            logger.addFilter(_note_bug)
            around.append(_note_queries)


def unwatch() -> None:
    """The end of ``watch``, for one client."""
    global _clients
    with _lock:
        _clients -= 1
        if not _clients:
            logger.removeFilter(_note_bug)
            around.remove(_note_queries)
