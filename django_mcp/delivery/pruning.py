"""
Forgetting what nobody comes back for.

Rule: a little at a time, so that nobody waits for it: what ended streams said
first, then sessions that were idle for their lifetime. A stream that is open
and a call that is under way or waits for an answer are left alone; their
deadlines end them. The responses of a stream stay as long as its session. Only
of a stream that never ends the beginning is forgotten, responses and all.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db.models import F, QuerySet, Sum

from ..models import DONE, Call, Event, Session, Stream
from . import changes, clock, interests, sights, steps
from .rows import erase, one_transaction, rows
from .sessions import oldest, retire

CHUNK = 500  # rows of a transaction
KEPT = timedelta(hours=1)  # for who resumes a stream that has ended, or is at what never ends
CALLS_KEPT = timedelta(days=1)  # on such a stream, from their beginning: none runs so long


def prune(*, now: datetime | None = None) -> dict[str, int]:
    """Forget what is over; how many rows of each kind are gone."""
    now = now or clock.now()
    early = rows(Call).filter(stream=None, created__lt=now - KEPT)
    endless = _endless()
    return {
        "events": sum(_trim(stream) for stream in _ended(now - KEPT))
        + sum([_wear(stream, now - KEPT) for stream in endless]),
        "sessions": sum(_retire(session, oldest(now)) for session in _idle(oldest(now))),
        "calls": _erase_slowly(early)
        + sum([_forget_calls(stream, now - CALLS_KEPT) for stream in endless]),
        "steps": steps.expire(),
        "changes": sum(filter(None, changes.each(partial(changes.prune, now=now)).values())),
        "interests": interests.prune(),
        "sights": sights.prune(),
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


# Streams that never end.


def _endless() -> list[int]:
    found = rows(Session).filter(transport="sse", current__gt=0)
    return [stream for stream in found.values_list("current", flat=True) if stream]


def _wear(stream_id: int, before: datetime) -> int:
    """Forget the beginning of a stream, up to the first event that is not from before."""
    stream, events = rows(Stream).filter(pk=stream_id), rows(Event).filter(stream=stream_id)
    place = stream.values_list("first", "last").first()
    if place is None:
        return 0
    (first, last), later = place, events.filter(created__gte=before).order_by("seq")
    end = later.values_list("seq", flat=True).first() or last + 1
    return sum(_cut(stream_id, at, min(at + CHUNK, end)) for at in range(first, end, CHUNK))


@one_transaction
def _cut(stream_id: int, first: int, end: int) -> int:
    """Forget a stretch at the beginning, unless another process was quicker."""
    stream = rows(Stream).filter(pk=stream_id)
    if not stream.filter(first=first).update(first=end):
        return 0
    worn = rows(Event).filter(stream=stream_id, seq__lt=end)
    size = worn.aggregate(size=Sum("size"))["size"] or 0
    stream.update(size=F("size") - size)
    return erase(worn)


def _forget_calls(stream_id: int, before: datetime) -> int:
    over = rows(Call).filter(stream=stream_id, state=DONE, created__lt=before)
    count = 0
    while page := list(over.values_list("pk", flat=True)[:CHUNK]):
        count += _forget(stream_id, page)
    return count


@one_transaction
def _forget(stream_id: int, calls: list[int]) -> int:
    """There is room again for as many."""
    rows(Stream).filter(pk=stream_id).update(owed=F("owed"))  # its lock
    count = erase(rows(Call).filter(pk__in=calls))
    rows(Stream).filter(pk=stream_id).update(owed=F("owed") + count)
    return count


def _idle(before: datetime) -> Iterator[int]:
    busy = rows(Call).exclude(state=DONE).values("session_id")
    found = rows(Session).filter(last_seen__lt=before).exclude(pk__in=busy).order_by("last_seen")
    yield from list(found.values_list("pk", flat=True))


def _retire(session_id: int, before: datetime) -> bool:
    """End an idle session, most of its rows in little steps."""
    closed = {"closed": True, "ended": clock.now()}
    rows(Stream).filter(session=session_id, closed=False, owed__lte=0).update(**closed)
    _erase_slowly(rows(Event).filter(stream__session=session_id, stream__closed=True))
    return retire(session_id, before)


def _erase_slowly(found: QuerySet[Any]) -> int:
    count = 0
    while page := list(found.values_list("pk", flat=True)[:CHUNK]):
        count += erase(rows(found.model).filter(pk__in=page))
    return count
