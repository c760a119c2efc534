"""
Of which models anybody wants to know when their rows change.

Rule: whoever saves asks at most once a second, in a thread of our own and on
its connection, and writes a change down where it cannot be told. So who is
first to want to know waits until everybody has asked again; from then on
nothing is passed over.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Collection
from datetime import timedelta

from django.db import DatabaseError, OperationalError, connections
from django.db.models import Exists, Min, OuterRef

from .. import threads
from ..conf import settings
from ..models import Interest, Session, Subscription
from . import changes, clock
from .rows import erase, is_there, rows

logger = logging.getLogger("django_mcp")
FRESH = 1.0  # seconds for which an answer is good
MARGIN = 0.2  # seconds more, until it is used
PATIENCE = 1.0  # seconds that whoever saves waits for it
PAUSE = 5.0  # seconds until it is asked again where that was not enough
SAID_AGAIN = 600.0  # seconds after which a process says it again
UNSEEN = timedelta(days=1)  # ahead of the clock: who was just written down counts from later
FORGOTTEN = timedelta(hours=1)  # after which it is thought to be gone
SESSIONS, LISTS = "", "lists"  # the holder for subscriptions of sessions, and for their lists
ANYTHING = "?"  # as a model: whatever is said by hand


# Who wants to know.


def declare(holder: str, models: Collection[str]) -> float:
    """From now on; and how many seconds it takes until nothing is passed over."""
    if not is_there(settings.DATABASE):
        raise OperationalError(f"The database {settings.DATABASE!r} is not there yet")
    now = clock.now()
    # Who saves may not see it for as long as it waits for a lock: it counts from the commit on.
    made = [Interest(holder=holder, model=model, since=now + UNSEEN, at=now) for model in models]
    rows(Interest).bulk_create(
        made, update_conflicts=True, update_fields=["at"],
        unique_fields=_unique(),
    )  # fmt: skip
    now, said = clock.now(), rows(Interest).filter(model__in=models)
    said.filter(holder=holder, since__gt=now).update(since=now)
    known = said.values_list("model").annotate(Min("since"))
    age = min((now - since for _, since in known), default=timedelta())
    return FRESH + MARGIN - min(FRESH + MARGIN, max(0.0, age.total_seconds()))


def _unique() -> list[str] | None:
    features = connections[settings.DATABASE].features
    return ["holder", "model"] if features.supports_update_conflicts_with_target else None


def prune() -> int:
    """Forget whom nobody has heard of for long. What sessions want they need not say again."""
    old = rows(Interest).filter(at__lt=clock.now() - FORGOTTEN)
    theirs = Exists(rows(Subscription).filter(place__startswith=OuterRef("model")))
    unwanted = list(old.filter(holder=SESSIONS).exclude(theirs).values_list("pk", flat=True))
    if not rows(Session).exists():
        unwanted += old.filter(holder=LISTS).values_list("pk", flat=True)
    gone = erase(old.exclude(holder__in=(SESSIONS, LISTS)))
    return gone + erase(rows(Interest).filter(pk__in=unwanted, at__lt=clock.now() - FORGOTTEN))


# Whoever saves.


class Watched:
    """The models that anybody wants to know of, as this process last heard."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._models: frozenset[str] = frozenset()
        self._is_known = False
        self._until = 0.0
        self._ready: frozenset[str] = frozenset()  # the databases that have a table of changes
        self.is_possible = True  # to want to know: there is a table to say it in

    def __call__(self, models: Collection[str]) -> bool:
        """Whether anybody wants to know of one of these; yes, where that cannot be told."""
        with self._lock:
            if time.monotonic() >= self._until:
                self._ask()
            return not self._is_known or not self._models.isdisjoint(models)

    def _ask(self) -> None:
        began = time.monotonic()
        try:
            self._models = threads.interests.wait(self._look, PATIENCE)
            self._is_known, self._until = True, began + FRESH
        except Exception as error:
            logger.warning("Nobody can tell who wants to know of changes: %s", error)
            self._is_known, self._until = False, time.monotonic() + PAUSE

    def _look(self) -> frozenset[str]:
        found = look()
        if not found and not (self._is_known and self.is_possible):
            self.is_possible = is_possible()
        if found:
            self._ready = frozenset(changes.held())
        return found

    def is_ready(self, alias: str) -> bool:
        """Whether changes may be written to a database: it has their table."""
        return alias in self._ready

    def forget(self) -> None:
        """Ask again at the next save."""
        self._until = 0.0


def look() -> frozenset[str]:
    """The models that anybody wants to know of. Where there is no such table, nobody can."""
    if not is_there(settings.DATABASE):
        return frozenset()
    try:
        return frozenset(rows(Interest).values_list("model", flat=True).distinct())
    except DatabaseError:
        if is_possible():
            raise
        return frozenset()


def is_possible() -> bool:
    """Whether there is a table to say it in. Asks the database."""
    if not is_there(settings.DATABASE):
        return False
    connection = connections[settings.DATABASE]
    with connection.cursor() as cursor:
        return Interest._meta.db_table in connection.introspection.table_names(cursor)


watched = Watched()


def _forget() -> None:
    """In a child of this process nobody is there who could be asked."""
    watched.__init__()  # type: ignore[misc]
    threads.interests.__init__("interest", lambda: 1)  # type: ignore[misc]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
