"""
Liveness and readiness probes for load balancers and orchestrators.

They are ASGI applications outside Django's request handling, so that middleware, ALLOWED_HOSTS or
redirects cannot make them fail. Liveness queries nothing, because a restart does not help when a
database is down. Readiness checks the database of sessions and that of tokens in a thread, at most
once per second and event loop, and waits at most ``TIMEOUT_SECONDS`` for it.

The log has the details of the reasons for "not ready", which are one word each:

- "shutdown": the process shuts down
- "threads": too many threads are stuck
- "heartbeat": the last heartbeat is too old
- "database": a database cannot be queried
- "migrations": a migration of this app is not applied
"""

from __future__ import annotations

import asyncio
import logging
import math
import pkgutil
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from django.db import DatabaseError, connections, router
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from ..conf import settings
from ..exceptions import Busy
from ..models import Token
from ..runtime import threads
from ..runtime.runtime import Service
from ..storage.leases import lease
from ..transports.http.shutdown import draining

if TYPE_CHECKING:
    from ..transports.http.request import Application

logger = logging.getLogger("django_mcp")
APP = "django_mcp"
CACHE_SECONDS = 1.0  # for which the result of a check is used
TIMEOUT_SECONDS = 3.0  # to wait for a check
PLAIN = [(b"content-type", b"text/plain; charset=utf-8"), (b"cache-control", b"no-store")]


def probes(prefix: str) -> dict[str, Application]:
    """Return the applications for liveness and readiness, by path."""
    path = prefix.strip("/")
    return {f"{path}/live": live, f"{path}/ready": ready}


async def live(scope: Any, receive: Any, send: Any) -> None:
    """Answer 200. This fails only if the event loop does not run."""
    await _answer(scope, send, 200, "alive")


async def ready(scope: Any, receive: Any, send: Any) -> None:
    """Answer 200 if the process can serve clients, else 503 and the reasons."""
    if problems := await readiness().problems():
        await _answer(scope, send, 503, f"not ready: {', '.join(problems)}")
    else:
        await _answer(scope, send, 200, "ready")


async def _answer(scope: Any, send: Any, status: int, text: str) -> None:
    headers = list(PLAIN)
    if scope["method"] not in ("GET", "HEAD"):
        status, text, headers = 405, "GET or HEAD", [*headers, (b"allow", b"GET, HEAD")]
    body = f"{text}\n".encode()
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body if scope["method"] != "HEAD" else b""})


class Readiness:
    """The cached readiness of this process, for one event loop."""

    def __init__(self) -> None:
        self._checking: asyncio.Task[None] | None = None
        self._checked_at, self._last_problem = -math.inf, ""
        self._logged: tuple[str, ...] = ()

    async def problems(self) -> tuple[str, ...]:
        """Return the reasons why the process is not ready, one word each; () if it is ready."""
        found = tuple(_local_problems()) or tuple(filter(None, [await self._lookup_problem()]))
        if found != self._logged:
            if found:
                logger.warning("Not ready: %s", ", ".join(found))
            else:
                logger.info("Ready")
            self._logged = found
        return found

    async def _lookup_problem(self) -> str:
        """Return "database", "migrations" or "threads", or "". All callers share one check."""
        loop = asyncio.get_running_loop()
        if self._checking is None and loop.time() - self._checked_at >= CACHE_SECONDS:
            self._checking = loop.create_task(self._check_database())
        if self._checking is not None:
            # Not ``wait_for``, which would cancel the check that other callers wait for.
            done, _ = await asyncio.wait([self._checking], timeout=TIMEOUT_SECONDS)
            if not done:
                return "database"
        return self._last_problem

    async def _check_database(self) -> None:
        try:
            self._last_problem = await threads.lookups.run(_migration_problem)
        except Busy:
            self._last_problem = "threads"
        except Exception as error:
            logger.warning("A database cannot be queried: %s", error)
            self._last_problem = "database"
        finally:
            self._checked_at, self._checking = asyncio.get_running_loop().time(), None


readiness = Service(Readiness)


def _local_problems() -> Iterator[str]:
    """Yield the reasons that need no query."""
    if draining().is_shutting_down:
        yield "shutdown"
    if not threads.is_ready():
        yield "threads"
    if lease.is_doubtful:
        yield "heartbeat"


# Queries, which run in a thread.


def _migration_problem() -> str:
    """Return "migrations" if one of this app is not applied, else "". Raise if a query fails."""
    aliases = {settings.DATABASE, router.db_for_write(Token)}
    return (
        ""
        if all(_migration_names() <= _applied_migrations(alias) for alias in aliases)
        else "migrations"
    )


def _applied_migrations(alias: str) -> set[str]:
    recorder = MigrationRecorder(connections[alias])
    try:
        return set(recorder.migration_qs.filter(app=APP).values_list("name", flat=True))
    except DatabaseError:
        # Without the table no migration has run. If it exists, the error has another cause.
        if recorder.has_table():
            raise
        return set()


@cache
def _migration_names() -> set[str]:
    """Return the names of this app's migrations, as Django's ``MigrationLoader`` finds them."""
    package, _ = MigrationLoader.migrations_module(APP)
    if package is None:
        return set()
    found = pkgutil.iter_modules(import_module(package).__path__)
    return {one.name for one in found if not one.ispkg and one.name[0] not in "_~"}
