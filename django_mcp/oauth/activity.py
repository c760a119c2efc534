"""
Activity log: counts per day of what clients did for users.

A finished call adds to counts in memory. Some seconds later a background thread writes the counts,
so no request waits for the database. Counts that are not written yet are lost when the process
ends. The log keeps at most ``MAX_ROWS_PER_CLIENT_AND_USER`` rows per client and user, and none
older than ``RETENTION_DAYS``.

``consent_uses`` stores when each consent was last used.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import threading
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import date, datetime, timedelta
from itertools import groupby
from typing import Any, NamedTuple

from django.contrib.auth import get_user_model
from django.db import Error, router, transaction
from django.db.models import F, QuerySet
from django.utils import timezone
from oauth2_provider.models import get_application_model

from ..auth.last_used import SparseLastUsedTimes
from ..calls.records import CallRecord
from ..exceptions import Busy
from ..runtime import threads
from ..storage.databases import delete_in_batches
from .models import MAX_CALL_NAME_LENGTH, MAX_CLIENT_ID_LENGTH, Activity, Consent

WRITE_INTERVAL_SECONDS = 5.0
MAX_PENDING_ROWS = 10_000  # rows that may wait in memory
MAX_ROWS_PER_CLIENT_AND_USER = 100
RETENTION_DAYS = 90
ROWS_PER_STATEMENT = 500  # databases limit what one statement may hold
logger = logging.getLogger("django_mcp.oauth")


class ActivityKey(NamedTuple):
    """The identity of an activity row: what a client did for a user on one day."""

    user: Any
    client_id: str
    server: str
    method: str
    name: str
    day: date

    @property
    def digest(self) -> str:
        """The value of the unique column ``key``. It tells apart names that a collation equates."""
        parts = json.dumps([str(part) for part in self])
        return hashlib.sha256(parts.encode()).hexdigest()


Counts = Mapping[ActivityKey, tuple[int, datetime]]  # number of calls, and the time of the last one


class ActivityCounter:
    """Counts of this process that are not written yet. Safe for several threads."""

    def __init__(self) -> None:
        self._counts: dict[ActivityKey, tuple[int, datetime]] = {}
        # Several event loops may add counts while a background thread takes them out. Without the
        # lock, a count added between the two steps of either would be lost.
        self._lock = threading.Lock()
        self._next_write = 0.0  # monotonic time from which the next write may be scheduled

    def add(self, call: CallRecord) -> None:
        """Count a call. Call it in the event loop. It does not block.

        Calls that did nothing (``CallRecord.is_activity``) are ignored, and calls without a token
        of an OAuth client of this site.
        """
        auth = call.principal.auth
        if auth is None or not call.is_activity:
            return
        if not isinstance(auth.application, get_application_model()):
            return
        at = timezone.now().replace(second=0, microsecond=0)
        key = ActivityKey(
            call.principal.user.pk,
            auth.application.client_id,
            call.server.name[:MAX_CLIENT_ID_LENGTH],
            call.method,
            call.name[:MAX_CALL_NAME_LENGTH],
            at.date(),
        )
        with self._lock:
            if key in self._counts or len(self._counts) < MAX_PENDING_ROWS:
                count, _last = self._counts.get(key, (0, at))
                self._counts[key] = (count + 1, at)
        now = time.monotonic()  # one write for all calls of the next ``WRITE_INTERVAL_SECONDS``
        if now >= self._next_write:
            self._next_write = now + WRITE_INTERVAL_SECONDS
            asyncio.get_running_loop().call_later(WRITE_INTERVAL_SECONDS, self._start_write)

    def _start_write(self) -> None:
        # The thread pool may be full, or the interpreter exits. The next write includes the counts.
        with suppress(Busy, RuntimeError):
            threads.background.run_in_background(self.write)

    def write(self) -> None:
        """Write all counts. Call it in a thread, because it queries the database."""
        with self._lock:
            counts, self._counts = self._counts, {}
        try:
            keys = _keys_of_existing_users(counts)
            for _client_and_user, group in groupby(keys, key=lambda key: key[:2]):
                _write_rows([(key, *counts[key]) for key in group])
        except Error as error:
            logger.info("Activity of clients could not be stored: %s", error)


activities = ActivityCounter()


def _keys_of_existing_users(counts: Counts) -> list[ActivityKey]:
    """Return the keys whose user still exists. An insert for a deleted user would fail.

    They are sorted, so that processes lock the rows in the same order and cannot deadlock.
    """
    pks = sorted({key.user for key in counts})
    users = get_user_model()._base_manager
    existing: set[Any] = set()
    for start in range(0, len(pks), ROWS_PER_STATEMENT):
        batch = users.filter(pk__in=pks[start : start + ROWS_PER_STATEMENT])
        existing.update(batch.values_list("pk", flat=True))
    return sorted(key for key in counts if key.user in existing)


def _write_rows(rows: list[tuple[ActivityKey, int, datetime]]) -> None:
    """Write the rows of one client and one user, in one transaction."""
    with transaction.atomic(using=router.db_for_write(Activity)):
        is_new = [_add_to_row(key, count, at) for key, count, at in rows]
        if any(is_new):
            _delete_surplus_rows(rows[0][0])


def _add_to_row(key: ActivityKey, count: int, at: datetime) -> bool:
    """Add to a row's count, and create the row if necessary. Return whether there was none.

    Another process may insert the row at the same moment. Then the insert is ignored, and the
    UPDATE after it adds to that row.
    """
    row = Activity.objects.filter(key=key.digest)
    changes = {"count": F("count") + count, "at": at}
    if row.update(**changes):
        return False
    empty = Activity(
        key=key.digest,
        user_id=key.user,
        client_id=key.client_id,
        server=key.server,
        method=key.method,
        name=key.name,
        at=at,
    )
    Activity.objects.bulk_create([empty], ignore_conflicts=True)
    row.update(**changes)
    return True


def _delete_surplus_rows(key: ActivityKey) -> None:
    """Delete the rows of a client and user that are too old or too many."""
    rows = Activity.objects.filter(user=key.user, client_id=key.client_id)
    expired_activities().filter(user=key.user, client_id=key.client_id).delete()
    newest = rows.order_by("-at", "-pk").values_list("pk", flat=True)
    end = MAX_ROWS_PER_CLIENT_AND_USER + ROWS_PER_STATEMENT
    if surplus := list(newest[MAX_ROWS_PER_CLIENT_AND_USER:end]):
        rows.filter(pk__in=surplus).delete()


def expired_activities() -> QuerySet[Activity]:
    """Return the rows that are older than ``RETENTION_DAYS``."""
    return Activity.objects.filter(at__lt=timezone.now() - timedelta(days=RETENTION_DAYS))


def delete_expired_activities() -> int:
    """Delete the rows that are older than ``RETENTION_DAYS``. Return how many."""
    return delete_in_batches(expired_activities())


def _write_consent_uses(pairs: Collection[tuple[Any, str]]) -> None:
    """Set ``last_used`` of the consents of these pairs of user and client id."""
    now = timezone.now()
    by_client = sorted(pairs, key=lambda pair: pair[1])
    for client_id, group in groupby(by_client, key=lambda pair: pair[1]):
        consents = Consent.objects.filter(client_id=client_id, user__in=[user for user, _ in group])
        consents.filter(revoked=None).update(last_used=now)


# The verifier notes the pair of user and client at every request with a token.
consent_uses = SparseLastUsedTimes(_write_consent_uses)
