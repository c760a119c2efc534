"""What the tests of the log share: rows, threads that meet, counted queries."""

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
    """A session's id, and the session."""
    given = {
        "server": "default", "owner": "alice", "user": "1", "revision": "2025-11-25",
        "client_info": {"name": "test"}, "capabilities": {},
    }  # fmt: skip
    return sessions.create(**(given | options))


def call(id: Any = 1, **options: Any) -> Call:
    """A call that is no row yet."""
    given = {"method": "tools/call", "params": {"name": "add"}, "process": "mine"}
    return Call(request_id=json.dumps(id), **(given | options))


def ask(digest: str = "d", seconds: float = 600, **options: Any) -> Ask:
    """A question that is no row yet."""
    given = {
        "id": uuid.uuid4().hex, "key": "ask-1", "wire": {"method": "roots/list", "params": {}},
    }  # fmt: skip
    return Ask(digest=digest, seconds=seconds, **(given | options))


@one_transaction
def announced(session_id: int, message: str, mark: str) -> int | None:
    """Say it on the session's current stream, which is returned; or keep its mark, and None."""
    return next(iter(streams.announce_here({session_id: [(message, mark)]})), None)


def is_cancelled(made: Session, request_id: str) -> bool:
    """Whether a cancel came for a request, with or without a row of its call."""
    digest = digest_of(request_id)
    return Call.objects.filter(session=made, request_digest=digest, cancelled=True).exists()


def given(**keys: Any) -> override_settings:
    """``DJANGO_MCP`` with other values."""
    return override_settings(DJANGO_MCP={**settings.DJANGO_MCP, **keys})


def together(*functions: Callable[[], Any]) -> list[Any]:
    """What they return, each in a thread and on a connection of its own, all at once."""
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
    """What it returns on another connection, as in another process."""
    found: T = together(lambda: function(*args))[0]
    return found


@contextmanager
def queries() -> Iterator[Callable[[], list[str]]]:
    """The statements of a block, without those that frame a transaction."""
    alias = settings.DJANGO_MCP["DATABASE"]
    with CaptureQueriesContext(connections[alias]) as captured:
        yield lambda: [
            query["sql"]
            for query in captured.captured_queries
            if not query["sql"].startswith(("BEGIN", "COMMIT", "SAVEPOINT", "RELEASE"))
        ]
