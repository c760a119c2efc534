"""
Channel layer over PostgreSQL's LISTEN and NOTIFY, with the methods that
``wakeups.ChannelLayerConnection`` uses.

It has two connections of its own in autocommit mode. NOTIFY is not sent in the transaction that
writes events, because PostgreSQL serializes the commits of transactions that notify.

Every user of the database can send notifications, so a message is only a hint to read the rows.
LISTEN does not work through a pool that assigns connections by transaction, such as PgBouncer.
That is detected, and ``ImproperlyConfigured`` is raised.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any, LiteralString

import psycopg
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from psycopg import AsyncConnection, AsyncCursor, sql

Connection = AsyncConnection[Any]
# Parameters of Django's connections that do not work for asyncio connections.
NOT_OURS = frozenset(("cursor_factory", "context"))
NAME = "django_mcp wakeups"  # in pg_stat_activity
LISTEN = sql.SQL("LISTEN {}")
POOLED = "A pooler, such as PgBouncer, is in front of PostgreSQL, and LISTEN does not go through it"


class PostgresLayer:
    """Send to one group and receive from it. The method names are those of Channels."""

    description = "LISTEN connection to PostgreSQL"
    is_in_database = True  # the server is that of the session database
    max_streams = 350  # streams in a message: it has less than 8,000 bytes, and a number up to 20

    def __init__(self, params: dict[str, Any], group: str) -> None:
        self._params, self._group = params, group
        self._open: list[Connection] = []

    async def new_channel(self, prefix: str) -> str:
        """Connect, and listen from here on. Raise ``ImproperlyConfigured``."""
        listener, self._sender = [await self._connect() for _ in range(2)]
        try:
            await self._execute(listener, LISTEN.format(sql.Identifier(self._group)))
        except psycopg.errors.FeatureNotSupported as error:
            raise ImproperlyConfigured(f"This server does not know LISTEN: {error}") from None
        self._notifications: AsyncIterator[psycopg.Notify] = listener.notifies()
        return f"{prefix}.{uuid.uuid4().hex}"

    async def _connect(self) -> Connection:
        made = await AsyncConnection.connect(**self._params, autocommit=True)
        self._open.append(made)
        cursor = await self._execute(made, "SELECT pg_backend_pid()")
        if await cursor.fetchone() != (made.pgconn.backend_pid,):
            # A pool made up the process id that it sent when this connected.
            raise ImproperlyConfigured(POOLED)
        return made

    async def group_add(self, group: str, channel: str) -> None:
        """Do nothing: it listens as long as it is connected."""

    async def group_discard(self, group: str, channel: str) -> None:
        """Do nothing: a closed connection does not listen."""

    async def group_send(self, group: str, message: dict[str, Any]) -> None:
        payload = json.dumps(message, separators=(",", ":"))
        await self._execute(self._sender, "SELECT pg_notify(%s, %s)", (group, payload))

    async def _execute(
        self,
        connection: Connection,
        statement: LiteralString | sql.Composed,
        params: Sequence[str] = (),
    ) -> AsyncCursor[Any]:
        """Execute a statement. If cancelled, close the connections without waiting for the server.

        psycopg would ask the server to cancel the statement, which may be unreachable.
        """
        work = asyncio.ensure_future(connection.execute(statement, params))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            self._finish()
            work.cancel()
            raise

    async def receive(self, channel: str) -> Any:
        """Return the next message, or None if it is not JSON."""
        try:
            return json.loads((await anext(self._notifications)).payload)
        except (ValueError, RecursionError):
            return None

    async def close_pools(self) -> None:
        self._finish()

    def _finish(self) -> None:
        """Close the connections without sending anything to the server."""
        for one in self._open:
            one.pgconn.finish()
        self._open.clear()


def params_of(alias: str) -> dict[str, Any]:
    """Return the parameters with which Django connects to a database. Call it in a thread."""
    given = connections[alias].get_connection_params()
    kept = {name: value for name, value in given.items() if name not in NOT_OURS}
    return {"application_name": NAME, **kept}
