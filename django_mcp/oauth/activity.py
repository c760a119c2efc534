"""
What clients did for people, until it is written, and for how long that is kept.

Rule: it is noted in memory and written some seconds later, by nobody who waits. It is lost if the
process ends, which is fine. However much a client does, of one person it leaves ``KEPT`` rows at
most, and none that is older than ``DAYS``.
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

from .. import threads
from ..dispatch.deeds import Deed
from ..exceptions import Busy
from ..uses import SparseUses
from .models import LONGEST_ID, LONGEST_NAME, Activity, Consent

PAUSE = 5.0  # seconds in which what is noted is gathered
MOST = 10_000  # different things that wait to be written
KEPT = 100  # rows of one client and one person
DAYS = 90
AT_ONCE = 500  # rows in one statement: databases limit what it may hold
logger = logging.getLogger("django_mcp")


class Doing(NamedTuple):
    """What is one row: something that a client does for a person on one day."""

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


Noted = Mapping[Doing, tuple[int, datetime]]  # how often, and when last


class Activities:
    """Of one process."""

    def __init__(self) -> None:
        self._noted: dict[Doing, tuple[int, datetime]] = {}
        self._lock = threading.Lock()
        self._due = 0.0

    def note(self, deed: Deed) -> None:
        """In the loop: it never waits. What is no client's of ours is not noted."""
        auth, model = deed.principal.auth, get_application_model()
        if auth is None or not isinstance(auth.application, model):
            return
        at = timezone.now().replace(second=0, microsecond=0)
        whose = deed.principal.user.pk, auth.application.client_id
        names = deed.server[:LONGEST_ID], deed.method, deed.name[:LONGEST_NAME]
        doing = Doing(*whose, *names, at.date())
        with self._lock:
            if doing in self._noted or len(self._noted) < MOST:
                self._noted[doing] = (self._noted.get(doing, (0, at))[0] + 1, at)
        self._attend()

    def _attend(self) -> None:
        """Have it written soon, once for all that comes until then."""
        moment = time.monotonic()
        if moment >= self._due:
            self._due = moment + PAUSE
            asyncio.get_running_loop().call_later(PAUSE, self._begin)

    def _begin(self) -> None:
        with suppress(Busy, RuntimeError):  # too much to do, or the interpreter ends
            threads.notes.begin(self.write)

    def write(self) -> None:
        """In a thread that may ask the database."""
        with self._lock:
            noted, self._noted = self._noted, {}
        try:
            for _whose, doings in groupby(_of_people_there(noted), key=lambda one: one[:2]):
                _write([(one, *noted[one]) for one in doings])
        except Error as error:
            logger.info("What clients did could not be written: %s", error)


activities = Activities()


def _of_people_there(noted: Noted) -> Iterator[Doing]:
    """Those of users who are no more are left out."""
    pks = sorted({doing.user for doing in noted})
    users = get_user_model()._base_manager
    there = {
        pk
        for at in range(0, len(pks), AT_ONCE)
        for pk in users.filter(pk__in=pks[at : at + AT_ONCE]).values_list("pk", flat=True)
    }
    yield from sorted(doing for doing in noted if doing.user in there)


def _write(rows: list[tuple[Doing, int, datetime]]) -> None:
    """What one client did for one person."""
    with transaction.atomic(using=router.db_for_write(Activity)):
        is_new = [_counted(doing, times, at) for doing, times, at in rows]
        if any(is_new):
            _prune(rows[0][0])


def _counted(doing: Doing, times: int, at: datetime) -> bool:
    """Whether there was no row of it yet. Others may make it at the same moment."""
    row, changes = Activity.objects.filter(key=doing.key), {"count": F("count") + times, "at": at}
    if row.update(**changes):
        return False
    user, *names, _day = doing
    columns = dict(zip(("client_id", "server", "method", "name"), names, strict=True))
    new = Activity(key=doing.key, user_id=user, at=at, **columns)
    Activity.objects.bulk_create([new], ignore_conflicts=True)
    row.update(**changes)
    return True


def _prune(doing: Doing) -> None:
    rows = Activity.objects.filter(user=doing.user, client_id=doing.client_id)
    old().filter(user=doing.user, client_id=doing.client_id).delete()
    newest = rows.order_by("-at", "-pk").values_list("pk", flat=True)
    if beyond := list(newest[KEPT : KEPT + AT_ONCE]):
        rows.filter(pk__in=beyond).delete()


def old() -> QuerySet[Activity]:
    """What is too old to be kept."""
    return Activity.objects.filter(at__lt=timezone.now() - timedelta(days=DAYS))


def forget_old() -> int:
    """Delete it, a little at a time; how much that was."""
    total = 0
    while pks := list(old().values_list("pk", flat=True)[:AT_ONCE]):
        total += Activity.objects.filter(pk__in=pks).delete()[0]
    return total


# When it was last used by whom, whatever it did.


def _used(pairs: Collection[tuple[Any, str]]) -> None:
    now = timezone.now()
    by_client = sorted(pairs, key=lambda pair: pair[1])
    for client_id, some in groupby(by_client, key=lambda pair: pair[1]):
        given = Consent.objects.filter(client_id=client_id, user__in=[user for user, _ in some])
        given.filter(revoked=None).update(last_used=now)


uses = SparseUses(_used)
