"""
A channel layer of LISTEN and NOTIFY: as much of one as the doorbell's line needs.

Rule: both are on connections of this line's own, which commit each statement by
itself, after what it tells of was committed: PostgreSQL makes transactions that
notify wait for each other. Whoever may connect to the database may notify: what
comes is no more than a reason to look. Who listens through a pool that changes
connections between transactions would hear nothing, and others would hear in its
place: there it is not begun.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any, LiteralString

import psycopg
from django.db import connections
from psycopg import AsyncConnection, AsyncCursor, sql

from .layers import Hopeless

Connection = AsyncConnection[Any]
# What Django gives to its own connections, which are no asyncio's.
NOT_OURS = frozenset(("cursor_factory", "context"))
NAME = "django_mcp doorbell"  # in pg_stat_activity
LISTEN = sql.SQL("LISTEN {}")
POOLED = "There is a pool, such as PgBouncer, before PostgreSQL, and LISTEN does not go through it"


class PostgresLayer:
    """Hears ``group``, and speaks to it. The names of its methods are those of Channels."""

    called = "line through PostgreSQL"
    most = 350  # streams in a message: it has less than 8,000 bytes, and a number up to 20

    def __init__(self, params: dict[str, Any], group: str) -> None:
        self._params, self._group = params, group
        self._open: list[Connection] = []

    async def new_channel(self, prefix: str) -> str:
        """Connect, and listen from here on. Raises ``Hopeless``."""
        hearing, self._saying = [await self._connect() for _ in range(2)]
        try:
            await self._execute(hearing, LISTEN.format(sql.Identifier(self._group)))
        except psycopg.errors.FeatureNotSupported as error:
            raise Hopeless(f"This server does not know LISTEN: {error}") from None
        self._heard: AsyncIterator[psycopg.Notify] = hearing.notifies()
        return f"{prefix}.{uuid.uuid4().hex}"

    async def _connect(self) -> Connection:
        made = await AsyncConnection.connect(**self._params, autocommit=True)
        self._open.append(made)
        cursor = await self._execute(made, "SELECT pg_backend_pid()")
        if await cursor.fetchone() != (made.pgconn.backend_pid,):
            raise Hopeless(POOLED)  # the number that it gave us is not the server's
        return made

    async def group_add(self, group: str, channel: str) -> None:
        """It listens as long as it is connected."""

    async def group_discard(self, group: str, channel: str) -> None:
        """Who is not connected does not listen."""

    async def group_send(self, group: str, message: dict[str, Any]) -> None:
        payload = json.dumps(message, separators=(",", ":"))
        await self._execute(self._saying, "SELECT pg_notify(%s, %s)", (group, payload))

    async def _execute(
        self,
        connection: Connection,
        statement: LiteralString | sql.Composed,
        params: Sequence[str] = (),
    ) -> AsyncCursor[Any]:
        """Who is cut short meanwhile does not wait until the server consents: it may be gone."""
        work = asyncio.ensure_future(connection.execute(statement, params))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            self._finish()
            work.cancel()
            raise

    async def receive(self, channel: str) -> Any:
        """The next message; None if that was none of ours."""
        try:
            return json.loads((await anext(self._heard)).payload)
        except (ValueError, RecursionError):
            return None

    async def close_pools(self) -> None:
        self._finish()

    def _finish(self) -> None:
        """Let the connections go, without a word to the server."""
        for one in self._open:
            one.pgconn.finish()
        self._open.clear()


def params_of(alias: str) -> dict[str, Any]:
    """How Django connects to a database; in a thread of its own kind."""
    given = connections[alias].get_connection_params()
    kept = {name: value for name, value in given.items() if name not in NOT_OURS}
    return {"application_name": NAME, **kept}
