"""
Whether this process lives, and whether clients should be sent to it: for those who watch it.

Rule: beside Django, so that no middleware, host or redirect is in the way. Liveness asks nobody,
for nothing is better after a restart when a database is gone. Readiness asks each database one
question, at most once a second however often it is asked itself, and waits for a bounded time. Both
answer in fixed words: what is wrong in detail is in the log.
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

from .. import threads
from ..conf import settings
from ..delivery.jobs import PerLoop
from ..delivery.leases import lease
from ..exceptions import Busy
from ..models import Token
from ..transports.http.draining import draining

if TYPE_CHECKING:
    from ..transports.http.exchanges import Application

logger = logging.getLogger("django_mcp")
APP = "django_mcp"
FRESH, PATIENCE = 1.0, 3.0  # seconds: that an answer is believed, and that one is waited for
PLAIN = [(b"content-type", b"text/plain; charset=utf-8"), (b"cache-control", b"no-store")]


def addresses(below: str) -> dict[str, Application]:
    """The pair, by path."""
    place = below.strip("/")
    return {f"{place}/live": live, f"{place}/ready": ready}


async def live(scope: Any, receive: Any, send: Any) -> None:
    await _answer(scope, send, 200, "alive")


async def ready(scope: Any, receive: Any, send: Any) -> None:
    if lacking := await readiness().lacking():
        await _answer(scope, send, 503, f"not ready: {', '.join(lacking)}")
    else:
        await _answer(scope, send, 200, "ready")


async def _answer(scope: Any, send: Any, status: int, words: str) -> None:
    headers = list(PLAIN)
    if scope["method"] not in ("GET", "HEAD"):
        status, words, headers = 405, "GET or HEAD", [*headers, (b"allow", b"GET, HEAD")]
    body = f"{words}\n".encode()
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body if scope["method"] != "HEAD" else b""})


class Readiness:
    """What one loop knows of it."""

    def __init__(self) -> None:
        self._looking: asyncio.Task[None] | None = None
        self._at, self._found = -math.inf, ""
        self._told: tuple[str, ...] = ()

    async def lacking(self) -> tuple[str, ...]:
        """In a word each; nothing if clients are welcome."""
        found = tuple(_lacking_here()) or tuple(filter(None, [await self._databases()]))
        if found != self._told:
            logger.warning("Not ready: %s", ", ".join(found)) if found else logger.info("Ready")
            self._told = found
        return found

    async def _databases(self) -> str:
        """What the last look found; many wait for one, and none for long."""
        loop = asyncio.get_running_loop()
        if self._looking is None and loop.time() - self._at >= FRESH:
            self._looking = loop.create_task(self._look())
        if self._looking is not None:
            done, _ = await asyncio.wait([self._looking], timeout=PATIENCE)
            if not done:
                return "database"
        return self._found

    async def _look(self) -> None:
        try:
            self._found = await threads.lookups.run(_unmigrated)
        except Busy:
            self._found = "threads"
        except Exception as error:
            logger.warning("A database cannot be asked: %s", error)
            self._found = "database"
        finally:
            self._at, self._looking = asyncio.get_running_loop().time(), None


readiness = PerLoop(Readiness)


def _lacking_here() -> Iterator[str]:
    """Without asking anybody."""
    if draining().ending:
        yield "ending"
    if not threads.is_ready():
        yield "threads"
    if lease.is_doubtful:
        yield "heartbeat"


# In a thread.


def _unmigrated() -> str:
    """Whether a database lacks what this version needs. It must be there to be asked."""
    aliases = {settings.DATABASE, router.db_for_write(Token)}
    return "" if all(_known() <= _applied(alias) for alias in aliases) else "migrations"


def _applied(alias: str) -> set[str]:
    recorder = MigrationRecorder(connections[alias])
    try:
        return set(recorder.migration_qs.filter(app=APP).values_list("name", flat=True))
    except DatabaseError:
        if recorder.has_table():
            raise
        return set()


@cache
def _known() -> set[str]:
    """The migrations of this app, wherever the project keeps them."""
    package, _ = MigrationLoader.migrations_module(APP)
    if package is None:
        return set()
    found = pkgutil.iter_modules(import_module(package).__path__)
    return {one.name for one in found if not one.ispkg and one.name[0] not in "_~"}
