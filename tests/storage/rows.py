"""Helpers for the tests of the session database: rows, concurrent threads, captured queries."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from django.conf import settings
from django.db import connections
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from django_mcp.models import Ask, Call, Session
from django_mcp.storage import sessions, streams
from django_mcp.storage.databases import digest_of, one_transaction

PATIENCE = 60
T = TypeVar("T")


def session(**options: Any) -> Session:
    return opened(**options)[1]


def opened(**options: Any) -> tuple[str, Session]:
    """Create a session. Return its secret id and the row."""
    given = {
        "server": "default", "owner": "alice", "user": "1", "revision": "2025-11-25",
        "client_info": {"name": "test"}, "capabilities": {},
    }  # fmt: skip
    return sessions.create(**(given | options))


def call(id: Any = 1, **options: Any) -> Call:
    """Return a call that is not stored yet."""
    given = {"method": "tools/call", "params": {"name": "add"}, "process": "mine"}
    return Call(request_id=json.dumps(id), **(given | options))


def ask(digest: str = "d", seconds: float = 600, **options: Any) -> Ask:
    """Return a question that is not stored yet."""
    given = {
        "id": uuid.uuid4().hex, "key": "ask-1", "wire": {"method": "roots/list", "params": {}},
    }  # fmt: skip
    return Ask(digest=digest, seconds=seconds, **(given | options))


@one_transaction
def announced(session_id: int, message: str, mark: str) -> int | None:
    """Append a notification to the session's current stream, and return the stream's id.

    Without a current stream, store the mark and return ``None``.
    """
    return next(iter(streams.announce_in_transaction({session_id: [(message, mark)]})), None)


def is_cancelled(made: Session, request_id: str) -> bool:
    """Return whether the request was cancelled, whether or not its call is stored."""
    digest = digest_of(request_id)
    return Call.objects.filter(session=made, request_digest=digest, cancelled=True).exists()


def given(**keys: Any) -> override_settings:
    """Override values of the setting ``DJANGO_MCP``."""
    return override_settings(DJANGO_MCP={**settings.DJANGO_MCP, **keys})


def together(*functions: Callable[[], Any]) -> list[Any]:
    """Call all functions at the same time, each in a thread with its own connection."""
    barrier = threading.Barrier(len(functions))

    def one(function: Callable[[], Any]) -> Any:
        try:
            barrier.wait(PATIENCE)
            return function()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(functions)) as pool:
        futures = [pool.submit(one, function) for function in functions]
        return [future.result(PATIENCE) for future in futures]


def elsewhere(function: Callable[..., T], *args: Any) -> T:
    """Call the function on another database connection, as another process would."""
    found: T = together(lambda: function(*args))[0]
    return found


@contextmanager
def queries() -> Iterator[Callable[[], list[str]]]:
    """Capture the SQL statements of a block, without those that begin or end transactions."""
    alias = settings.DJANGO_MCP["DATABASE"]
    with CaptureQueriesContext(connections[alias]) as captured:
        yield lambda: [
            query["sql"]
            for query in captured.captured_queries
            if not query["sql"].startswith(("BEGIN", "COMMIT", "SAVEPOINT", "RELEASE"))
        ]
