"""
Activity log: counts per day of what clients did for users.

Calls are counted in memory and written by a background thread some seconds later, so that no
request waits for it. Counts that are not written yet are lost when the process ends. The log keeps
at most ``MAX_ROWS_PER_CLIENT_AND_USER`` rows per client and user, and none older than
``RETENTION_DAYS``.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import threading
import time
from collections.abc import Collection, Iterator, Mapping
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
from ..calls.execution import CallRecord
from ..exceptions import Busy
from ..runtime import threads
from .models import MAX_CALL_NAME_LENGTH, MAX_CLIENT_ID_LENGTH, Activity, Consent

WRITE_INTERVAL_SECONDS = 5.0  # seconds between two writes
MAX_PENDING_ROWS = 10_000  # rows that may wait in memory
MAX_ROWS_PER_CLIENT_AND_USER = 100  # rows of one client and one user
RETENTION_DAYS = 90
ROWS_PER_STATEMENT = 500  # rows in one statement: databases limit what it may hold
logger = logging.getLogger("django_mcp")


class ActivityKey(NamedTuple):
    """The identity of an activity row: what a client did for a user on one day."""

    user: Any
    client_id: str
    server: str
    method: str
    name: str
    day: date

    @property
    def key(self) -> str:
        named = json.dumps([str(part) for part in self])
        return hashlib.sha256(named.encode()).hexdigest()


Noted = Mapping[ActivityKey, tuple[int, datetime]]  # how often, and the time of the last one


class ActivityCounter:
    """Counts of this process that are not written yet. Safe for several threads."""

    def __init__(self) -> None:
        self._noted: dict[ActivityKey, tuple[int, datetime]] = {}
        self._lock = threading.Lock()
        self._due = 0.0

    def note(self, call: CallRecord) -> None:
        """Count a call, in the event loop. It does not block.

        Calls that come with no token of an OAuth client of this site are ignored.
        """
        auth, model = call.principal.auth, get_application_model()
        if auth is None or not isinstance(auth.application, model):
            return
        at = timezone.now().replace(second=0, microsecond=0)
        whose = call.principal.user.pk, auth.application.client_id
        names = call.server[:MAX_CLIENT_ID_LENGTH], call.method, call.name[:MAX_CALL_NAME_LENGTH]
        doing = ActivityKey(*whose, *names, at.date())
        with self._lock:
            if doing in self._noted or len(self._noted) < MAX_PENDING_ROWS:
                self._noted[doing] = (self._noted.get(doing, (0, at))[0] + 1, at)
        self._attend()

    def _attend(self) -> None:
        """Schedule one write for all calls of the next ``WRITE_INTERVAL_SECONDS`` seconds."""
        moment = time.monotonic()
        if moment >= self._due:
            self._due = moment + WRITE_INTERVAL_SECONDS
            asyncio.get_running_loop().call_later(WRITE_INTERVAL_SECONDS, self._begin)

    def _begin(self) -> None:
        with suppress(Busy, RuntimeError):  # the thread pool is full, or the interpreter exits
            threads.background.run_in_background(self.write)

    def write(self) -> None:
        """Write all counts. Call it in a thread, because it queries the database."""
        with self._lock:
            noted, self._noted = self._noted, {}
        try:
            for _whose, doings in groupby(_of_people_there(noted), key=lambda one: one[:2]):
                _write([(one, *noted[one]) for one in doings])
        except Error as error:
            logger.info("Activity of clients could not be stored: %s", error)


activities = ActivityCounter()


def _of_people_there(noted: Noted) -> Iterator[ActivityKey]:
    """Yield the rows whose user still exists, sorted: an insert for another one would fail."""
    pks = sorted({doing.user for doing in noted})
    users = get_user_model()._base_manager
    there = {
        pk
        for at in range(0, len(pks), ROWS_PER_STATEMENT)
        for pk in users.filter(pk__in=pks[at : at + ROWS_PER_STATEMENT]).values_list(
            "pk", flat=True
        )
    }
    yield from sorted(doing for doing in noted if doing.user in there)


def _write(rows: list[tuple[ActivityKey, int, datetime]]) -> None:
    """Write the rows of one client and one user, in one transaction."""
    with transaction.atomic(using=router.db_for_write(Activity)):
        is_new = [_counted(doing, times, at) for doing, times, at in rows]
        if any(is_new):
            _prune(rows[0][0])


def _counted(doing: ActivityKey, times: int, at: datetime) -> bool:
    """Add to a row's count, and create the row if necessary. Return whether there was none.

    Another process may insert the row at the same moment. Then the insert is ignored, and the
    UPDATE after it adds to that row.
    """
    row, changes = Activity.objects.filter(key=doing.key), {"count": F("count") + times, "at": at}
    if row.update(**changes):
        return False
    user, *names, _day = doing
    columns = dict(zip(("client_id", "server", "method", "name"), names, strict=True))
    new = Activity(key=doing.key, user_id=user, at=at, **columns)
    Activity.objects.bulk_create([new], ignore_conflicts=True)
    row.update(**changes)
    return True


def _prune(doing: ActivityKey) -> None:
    rows = Activity.objects.filter(user=doing.user, client_id=doing.client_id)
    old().filter(user=doing.user, client_id=doing.client_id).delete()
    newest = rows.order_by("-at", "-pk").values_list("pk", flat=True)
    if beyond := list(
        newest[MAX_ROWS_PER_CLIENT_AND_USER : MAX_ROWS_PER_CLIENT_AND_USER + ROWS_PER_STATEMENT]
    ):
        rows.filter(pk__in=beyond).delete()


def old() -> QuerySet[Activity]:
    """Return the rows that are older than ``RETENTION_DAYS``."""
    return Activity.objects.filter(at__lt=timezone.now() - timedelta(days=RETENTION_DAYS))


def forget_old() -> int:
    """Delete the rows that are older than ``RETENTION_DAYS``, in batches. Return how many."""
    total = 0
    while pks := list(old().values_list("pk", flat=True)[:ROWS_PER_STATEMENT]):
        total += Activity.objects.filter(pk__in=pks).delete()[0]
    return total


# Time of the last use of each consent, for every request.


def _used(pairs: Collection[tuple[Any, str]]) -> None:
    now = timezone.now()
    by_client = sorted(pairs, key=lambda pair: pair[1])
    for client_id, some in groupby(by_client, key=lambda pair: pair[1]):
        given = Consent.objects.filter(client_id=client_id, user__in=[user for user, _ in some])
        given.filter(revoked=None).update(last_used=now)


uses = SparseLastUsedTimes(_used)
