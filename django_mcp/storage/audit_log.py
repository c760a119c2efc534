"""
The audit log: insert its entries, and delete the old ones.

``AuditWriter`` commits the entries of calls that end at the same time together, at most 50 in one
statement. Entries that arrive during a commit are written by the next one. A call waits until its
entry is committed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from django.db import connections, router
from django.utils import timezone

from ..conf import settings
from ..models import AuditEntry
from ..runtime import threads
from ..runtime.runtime import Service
from .databases import delete_in_batches

logger = logging.getLogger("django_mcp.calls")
ENTRIES_PER_STATEMENT = 50  # SQLite limits the parameters of a statement


class NewEntry(NamedTuple):
    """The columns of an ``AuditEntry`` in their order, without the key.

    Making and inserting model instances would take longer than a short call. ``arguments`` is JSON.
    ``at`` is a naive time if ``USE_TZ`` is False.
    """

    at: datetime
    server: str
    method: str
    name: str
    user: str | None
    username: str
    client: str
    client_name: str
    session: int | None
    transport: str
    revision: str
    approval: int | None
    arguments: str | None
    outcome: str
    error: str
    duration: float
    queries: int
    rows_written: int
    trace_id: str


def database() -> str:
    """Return the alias of the database of the audit log."""
    return router.db_for_write(AuditEntry)


def insert(entries: Sequence[NewEntry], alias: str | None = None) -> None:
    """Insert entries, in the caller's transaction if there is one in that database.

    ``alias`` is what ``database`` returns, if the caller knows it.
    """
    connection = connections[alias := alias or database()]
    adapted = connection.ops.adapt_datetimefield_value
    for start in range(0, len(entries), ENTRIES_PER_STATEMENT):
        some = entries[start : start + ENTRIES_PER_STATEMENT]
        values = chain.from_iterable((adapted(entry.at), *entry[1:]) for entry in some)
        with connection.cursor() as cursor:
            cursor.execute(_statement(alias, connection.vendor, len(some)), tuple(values))


@lru_cache(maxsize=2 * ENTRIES_PER_STATEMENT)
def _statement(alias: str, vendor: str, count: int) -> str:
    """Return the SQL that inserts ``count`` entries.

    The common case, a single statement, is atomic without a transaction.
    """
    quote = connections[alias].ops.quote_name
    fields = [field for field in AuditEntry._meta.concrete_fields if not field.primary_key]
    columns = [str(field.column) for field in fields]
    row = f"({', '.join(['%s'] * len(columns))})"
    into = f"{quote(AuditEntry._meta.db_table)} ({', '.join(map(quote, columns))})"
    return f"INSERT INTO {into} VALUES {', '.join([row] * count)}"


class AuditWriter:
    """Writes the entries of one event loop, several in one statement."""

    def __init__(self) -> None:
        self._waiting: list[tuple[NewEntry, asyncio.Future[None]]] = []
        self._task: asyncio.Task[None] | None = None

    async def write(self, entry: NewEntry) -> None:
        """Commit an entry. If that fails, the error is logged with the identifiers of the entry."""
        loop = asyncio.get_running_loop()
        written: asyncio.Future[None] = loop.create_future()
        self._waiting.append((entry, written))
        if self._task is None:
            # A separate task: cancelling this call must not cancel the batch of others.
            self._task = loop.create_task(self._write_all())
        await written

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                # One statement: if the database rejects it, it has stored none of its entries.
                batch = self._waiting[:ENTRIES_PER_STATEMENT]
                del self._waiting[:ENTRIES_PER_STATEMENT]
                try:
                    await self._write([entry for entry, _ in batch])
                finally:
                    for _, written in batch:
                        if not written.done():  # it is if its call was cancelled
                            written.set_result(None)
        finally:
            self._task = None

    async def _write(self, entries: Sequence[NewEntry]) -> None:
        try:
            await threads.audit.run(insert, entries)
        except Exception:
            # One of them may have made the statement fail, so insert each on its own. If the
            # connection broke, the statement may have been committed. Then these are second entries
            # of the same calls: for an audit log, two entries are better than none.
            for entry in entries:
                try:
                    await threads.audit.run(insert, [entry])
                except Exception:
                    logger.exception(
                        "Audit entry not stored: method=%s name=%r user=%r client=%r outcome=%s",
                        entry.method, entry.name, entry.user, entry.client, entry.outcome,
                    )  # fmt: skip


audit_writer = Service(AuditWriter)


def delete_expired_entries() -> int:
    """Delete the entries that are older than ``AUDIT_DAYS``. Return how many."""
    if settings.AUDIT_DAYS is None:
        return 0
    rows = AuditEntry._default_manager.using(database())
    before = timezone.now() - timedelta(days=settings.AUDIT_DAYS)
    return delete_in_batches(rows.filter(at__lt=before))
