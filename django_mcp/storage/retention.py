"""
Retention: delete old events, idle sessions, calls, steps, changes and interests.

Rows are deleted in small transactions, so that nothing waits long for their locks. Open streams
and calls that are not done are left alone. A closed stream keeps its responses as long as its
session exists, within a limit of bytes. The only stream of an HTTP+SSE session is never closed:
its expiry_time events are deleted, responses included.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db.models import F, QuerySet, Sum

from ..models import DONE, Call, Event, Session, Stream
from . import calls as steps
from . import change_log, databases
from .databases import erase, one_transaction, rows
from .sessions import expiry_time, retire
from .streams import KEPT, cancel_kept

ROWS_PER_TRANSACTION = 500  # rows deleted in one transaction
# How long finished calls of a stream that is never closed are kept, counted from their request.
CALLS_KEPT = timedelta(days=1)


def prune(*, now: datetime | None = None) -> dict[str, int]:
    """Delete expired rows. Return how many rows of each kind were deleted."""
    now = now or databases.now()
    early = rows(Call).filter(stream=None, created__lt=now - cancel_kept())
    endless = _endless()
    return {
        "events": sum(_trim(stream) for stream in _ended(now - KEPT))
        + sum([_wear(stream, now - KEPT) for stream in endless]),
        "sessions": sum(_retire(session, expiry_time(now)) for session in _idle(expiry_time(now))),
        "calls": _erase_slowly(early)
        + sum([_forget_calls(stream, now - CALLS_KEPT) for stream in endless]),
        "steps": steps.expire(),
        "changes": sum(
            filter(None, change_log.each(partial(change_log.prune_changes, now=now)).values())
        ),
        "interests": change_log.prune_interests(),
        "visibility_snapshots": change_log.prune_snapshots(),
    }


def _ended(before: datetime) -> Iterator[int]:
    """Yield the streams that were closed before that time and still have all events."""
    found = rows(Stream).filter(closed=True, ended__lt=before).order_by("ended")
    while page := list(found.values_list("pk", flat=True)[:ROWS_PER_TRANSACTION]):
        yield from page


def _trim(stream_id: int) -> int:
    """Delete the events of a closed stream except its responses. Return how many."""
    # ``first`` moves before the events are deleted, so that readers notice the gap.
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
    """Delete a stream's events from before that time. Return how many."""
    stream, events = rows(Stream).filter(pk=stream_id), rows(Event).filter(stream=stream_id)
    place = stream.values_list("first", "last").first()
    if place is None:
        return 0
    (first, last), later = place, events.filter(created__gte=before).order_by("seq")
    end = later.values_list("seq", flat=True).first() or last + 1
    return sum(
        _cut(stream_id, at, min(at + ROWS_PER_TRANSACTION, end))
        for at in range(first, end, ROWS_PER_TRANSACTION)
    )


@one_transaction
def _cut(stream_id: int, first: int, end: int) -> int:
    """Delete a range of events at the beginning, unless another process has done so."""
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
    while page := list(over.values_list("pk", flat=True)[:ROWS_PER_TRANSACTION]):
        count += _forget(stream_id, page)
    return count


@one_transaction
def _forget(stream_id: int, calls: list[int]) -> int:
    """Delete calls, and make room for as many on their stream by raising ``pending_responses``."""
    rows(Stream).filter(pk=stream_id).update(
        pending_responses=F("pending_responses")
    )  # lock the stream
    count = erase(rows(Call).filter(pk__in=calls))
    rows(Stream).filter(pk=stream_id).update(pending_responses=F("pending_responses") + count)
    return count


def _idle(before: datetime) -> Iterator[int]:
    busy = rows(Call).exclude(state=DONE).values("session_id")
    found = rows(Session).filter(last_seen__lt=before).exclude(pk__in=busy).order_by("last_seen")
    yield from list(found.values_list("pk", flat=True))


def _retire(session_id: int, before: datetime) -> bool:
    """Delete an idle session. Most of its events are deleted in small transactions before."""
    closed = {"closed": True, "ended": databases.now()}
    rows(Stream).filter(session=session_id, closed=False, pending_responses__lte=0).update(**closed)
    _erase_slowly(rows(Event).filter(stream__session=session_id, stream__closed=True))
    return retire(session_id, before)


def _erase_slowly(found: QuerySet[Any]) -> int:
    count = 0
    while page := list(found.values_list("pk", flat=True)[:ROWS_PER_TRANSACTION]):
        count += erase(rows(found.model).filter(pk__in=page))
    return count
