"""
Changes, in each database where something changed: written, numbered, read and forgotten.

Rule: whoever saves writes a row without a number, and waits for nobody. Whoever
looks numbers what it sees, under the lock of a row that counts: what has a
lower number was visible earlier, so a reader that keeps the last number misses
nothing. All that is numbered at once has one number, and is read at once.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple, TypeVar

from django.db import connections, models, router, transaction
from django.db.models import F, Q

from ..conf import settings
from ..models import Change
from ..models.changes import sources
from . import clock
from .jobs import BROKEN, reconnecting
from .patience import LOCKS, codes, unlocked
from .rows import is_there

T = TypeVar("T")
# Kinds, and of what each speaks.
ROW = "row"  # a row: its keys, by the label of each registered model that it is of
ROWS = "rows"  # any rows of these models
URI, LIST, PAGE = "uri", "list", "page"  # what was said by hand; with the server, or all
OF_ONE = "of one"  # any of these, for the clients of one server
USER = "user"  # whose permissions; "" is everybody's
GROUP = "group"  # the permissions of its members
STANDING = "standing"  # in whose name something may have to end; "" is anybody
# Two rows that are no changes: what number was given last, and up to which they are forgotten.
LAST, FLOOR = -1, -2
BATCH = 500  # that get one number
KEPT = timedelta(hours=1)  # for who was away
MOST = 1_000_000  # in one database
CHUNK, PARTS = 500, 1_000  # rows forgotten at once; batches numbered before
AGAIN = 60.0  # seconds until a database without the table is looked at again
AWAY = 5.0  # seconds until one that cannot be reached is
_ready: dict[str, float] = {}  # until when it is known whether a database has it
_away: dict[str, float] = {}  # until when one is not asked that could not be reached
_lacking: set[str] = set()
logger = logging.getLogger("django_mcp")


class Tip(NamedTuple):
    """How far changes are numbered, up to which they are forgotten, and what has no number."""

    last: int
    floor: int
    waiting: Sequence[int] = ()


class Found(NamedTuple):
    """A change, as who follows reads it."""

    seq: int
    kind: str
    subject: Any


class Page(NamedTuple):
    """What came after a number, up to another. ``is_whole`` if nothing of it was forgotten."""

    until: int
    changes: Sequence[Found]
    is_whole: bool


# Where.


def aliases() -> set[str]:
    """The databases that hold changes: with rows that are told of, and beside the log."""
    return {alias for alias in {settings.DATABASE, *homes()} if carries(alias)}


def homes() -> set[str]:
    """Where the rows are written that are told of: of registered models, of users and groups."""
    return {router.db_for_write(model) for source in sources for model in source()}


def carries(alias: str) -> bool:
    return router.allow_migrate_model(alias, Change)


def held() -> list[str]:
    """Those of them that have the table; the others are told of once, and looked at again."""
    return sorted(alias for alias in aliases() if _reached(alias, is_ready))


def each(work: Callable[[str], T]) -> dict[str, T | None]:
    """What ``work`` finds in each that has the table; None where it cannot be reached.

    One that is down, or held up, silences no other.
    """
    found = {alias: _reached(alias, partial(_done, work)) for alias in sorted(aliases())}
    return {alias: one for alias, one in found.items() if alias not in _lacking}


def tips() -> dict[str, Tip]:
    """How each stands that can be reached, when what was visible has its number."""
    return {alias: tip for alias, tip in each(numbered).items() if tip is not None}


def _done(work: Callable[[str], T], alias: str) -> T | None:
    if not is_ready(alias):
        return None
    found = work(alias)
    if _away.pop(alias, None) is not None:
        logger.warning("Changes can be read again in the database %r", alias)
    return found


def _reached(alias: str, work: Callable[[str], T]) -> T | None:
    if _away.get(alias, 0.0) > time.monotonic():
        return None
    try:
        return reconnecting(work, alias)
    except BROKEN as error:
        _miss(alias, error)
        return None


def _miss(alias: str, error: Exception) -> None:
    """Told once, until it is back."""
    if codes(error) & LOCKS:
        logger.debug("A transaction of the project's keeps a look at %r waiting", alias)
        return
    if alias not in _away:
        logger.warning("Changes cannot be read in the database %r: %s", alias, error)
    _away[alias] = time.monotonic() + AWAY


def is_ready(alias: str) -> bool:
    """Whether changes can be written there, as far as is known. Asks the database, once."""
    if _ready.get(alias, 0.0) <= time.monotonic():
        found = has_table(alias)
        if not found and alias not in _ready:
            logger.error("The database %r has no table of changes: migrate django_mcp there", alias)
        _ready[alias] = math.inf if found else time.monotonic() + AGAIN
        _lacking.discard(alias) if found else _lacking.add(alias)
    return alias not in _lacking


def has_table(alias: str) -> bool:
    """Whether changes can be written there. Asks the database."""
    if not is_there(alias):
        return False
    connection = connections[alias]
    with connection.cursor() as cursor:
        return Change._meta.db_table in connection.introspection.table_names(cursor)


def _rows(alias: str) -> models.QuerySet[Change]:
    return Change._default_manager.using(alias)


# Writing.


def record(alias: str, *found: tuple[str, Any]) -> None:
    """Write changes down, each a kind and a subject, on the connection of whoever calls.

    By the statement alone: neither a transaction nor a signal of the project's is for them.
    """
    made: list[Any] = [Change(kind=kind, subject=subject) for kind, subject in found]
    fields = [field for field in Change._meta.concrete_fields if not field.primary_key]
    for start in range(0, len(made), CHUNK):
        insert: Any = _rows(alias)._insert  # type: ignore[attr-defined]
        insert(made[start : start + CHUNK], fields, using=alias)


# Numbering.


def tip(alias: str) -> Tip:
    """How it stands, in one query."""
    odd = _rows(alias).filter(Q(pk__lt=0) | Q(seq=None)).order_by("pk")
    found = list(odd.values_list("pk", "seq")[: BATCH + 2])
    marks = {pk: seq or 0 for pk, seq in found if pk < 0}
    waiting = [pk for pk, seq in found if seq is None][:BATCH]
    return Tip(marks.get(LAST, 0), marks.get(FLOOR, 0), waiting)


def numbered(alias: str) -> Tip:
    """The same, when what was visible has its number; of very much, a part."""
    found = tip(alias)
    if not found.waiting:
        return found
    _number(alias, found.waiting)
    return tip(alias)


def _number(alias: str, ids: Sequence[int]) -> None:
    """Give one number to all of these. Who finds somebody else at it leaves it to them."""
    if not _rows(alias).filter(pk=LAST).exists():
        marks = [Change(pk=pk, seq=0, kind="mark", subject="") for pk in (FLOOR, LAST)]
        _rows(alias).bulk_create(marks, ignore_conflicts=True)
    with transaction.atomic(using=alias):
        if not unlocked(_rows(alias).filter(pk=LAST)).update(seq=F("seq") + 1):
            return
        last = _rows(alias).values_list("seq", flat=True).get(pk=LAST)
        _rows(alias).filter(pk__in=ids, seq=None).update(seq=last, at=clock.now())


# Reading.


def after(alias: str, seq: int, last: int) -> Page:
    """What follows a number, up to another: all of it, or as many whole batches as are a page."""
    found = _rows(alias).filter(pk__gt=0, seq__gt=seq, seq__lte=last).order_by("seq", "pk")
    columns: Any = found.values_list("seq", "kind", "subject")
    read = [Found(*one) for one in columns[: BATCH + 1]]
    if len(read) > BATCH:
        read = [one for one in read if one.seq < read[-1].seq]
        last = read[-1].seq
    # Looked at when all was read: what goes now was read.
    floor = _rows(alias).filter(pk=FLOOR).values_list("seq", flat=True).first() or 0
    return Page(last, read, floor <= seq)


# Forgetting.


def prune(alias: str, now: datetime) -> int:
    """Forget what is old, or too much; how many changes are gone."""
    for _ in range(PARTS):
        if not numbered(alias).waiting:
            break
    newest = _rows(alias).order_by("-pk").values_list("pk", flat=True).first() or 0
    old = _rows(alias).filter(Q(at__lt=now - KEPT) | Q(pk__lt=newest - MOST), pk__gt=0)
    found: Any = old.exclude(seq=None).order_by("seq").values_list("pk", "seq")
    count = 0
    while page := list(found[:CHUNK]):
        count += _forget(alias, [pk for pk, _ in page], page[-1][1])
    return count


def _forget(alias: str, ids: Sequence[int], until: int) -> int:
    with transaction.atomic(using=alias):
        _rows(alias).filter(pk=FLOOR, seq__lt=until).update(seq=until)
        return int(_rows(alias).filter(pk__in=ids)._raw_delete(alias) or 0)
