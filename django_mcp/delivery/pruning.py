"""
Forgetting what nobody comes back for.

Rule: a little at a time, so that nobody waits for it: what ended streams said
first, then sessions that were idle for their lifetime. A stream that is open
and a call that is under way or waits for an answer are left alone; their
deadlines end them. The responses of a stream stay as long as its session.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F, QuerySet, Sum
from django.utils import timezone

from ..models import DONE, Call, Event, Session, Stream
from . import steps
from .rows import erase, rows
from .sessions import oldest, retire

CHUNK = 500  # rows of a transaction
KEPT = timedelta(hours=1)  # for who resumes a stream that has ended


def prune(*, now: datetime | None = None) -> dict[str, int]:
    """Forget what is over; how many rows of each kind are gone."""
    now = now or timezone.now()
    early = rows(Call).filter(stream=None, created__lt=now - KEPT)
    return {
        "events": sum(_trim(stream) for stream in _ended(now - KEPT)),
        "sessions": sum(_retire(session, oldest(now)) for session in _idle(oldest(now))),
        "calls": _erase_slowly(early),
        "steps": steps.expire(),
    }


def _ended(before: datetime) -> Iterator[int]:
    """The streams that ended before, and were not trimmed yet."""
    found = rows(Stream).filter(closed=True, ended__lt=before).order_by("ended")
    while page := list(found.values_list("pk", flat=True)[:CHUNK]):
        yield from page


def _trim(stream_id: int) -> int:
    """Forget what a stream said besides its responses. Who reads it is told first."""
    stream, events = rows(Stream).filter(pk=stream_id), rows(Event).filter(stream=stream_id)
    finished = events.filter(final=True, seq=stream.values("last")[:1]).exists()
    stream.update(first=F("last") if finished else F("last") + 1)
    count = _erase_slowly(events.filter(final=False))
    size = events.aggregate(size=Sum("size"))["size"]
    stream.update(size=size or 0, ended=None)
    return count


def _idle(before: datetime) -> Iterator[int]:
    busy = rows(Call).exclude(state=DONE).values("session_id")
    found = rows(Session).filter(last_seen__lt=before).exclude(pk__in=busy).order_by("last_seen")
    yield from list(found.values_list("pk", flat=True))


def _retire(session_id: int, before: datetime) -> bool:
    """End an idle session, most of its rows in little steps."""
    closed = {"closed": True, "ended": timezone.now()}
    rows(Stream).filter(session=session_id, closed=False, owed__lte=0).update(**closed)
    _erase_slowly(rows(Event).filter(stream__session=session_id, stream__closed=True))
    return retire(session_id, before)


def _erase_slowly(found: QuerySet[Any]) -> int:
    count = 0
    while page := list(found.values_list("pk", flat=True)[:CHUNK]):
        count += erase(rows(found.model).filter(pk__in=page))
    return count
