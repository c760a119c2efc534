"""
Retention: delete old events, idle sessions, calls, steps, changes, interests, approvals and audit
entries.

``prune`` runs in the poller of each process every 10 to 20 minutes, and in ``manage.py mcp_prune``.

Rows are deleted in small transactions, so that nothing waits long for their locks. Open streams
and calls that are not done are left alone. A closed stream keeps its responses as long as its
session exists. The only stream of an HTTP+SSE session is never closed, so its old events are
deleted, responses included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db.models import F, QuerySet, Sum

from ..models import DONE, Call, Event, Session, Stream
from . import approvals, audit_log, calls, change_log, databases
from .databases import erase, one_transaction, rows
from .sessions import expiry_time, retire
from .streams import REPLAY_TIME, cancel_lifetime

ROWS_PER_TRANSACTION = 500  # that are deleted
# How long finished calls of a stream that is never closed are kept, counted from their request.
CALLS_LIFETIME = timedelta(days=1)


def prune(
    *, now: datetime | None = None, on_skipped: Callable[[str], None] | None = None
) -> dict[str, int]:
    """Delete expired rows. Return how many rows of each kind were deleted.

    Old changes are deleted in each database of the project. ``on_skipped`` is called with the alias
    of each of these databases that is locked or cannot be reached.
    """
    now = now or databases.now()
    changes = change_log.each(partial(change_log.prune_changes, now=now))
    for alias, count in changes.items():
        if count is None and on_skipped is not None:
            on_skipped(alias)
    # Rows without a stream, which hold cancels that arrived before their requests.
    early_cancels = rows(Call).filter(stream=None, created__lt=now - cancel_lifetime())
    endless = _endless()
    return {
        "events": sum(_delete_events_of_closed(stream) for stream in _ended(now - REPLAY_TIME))
        + sum([_delete_events_before(stream, now - REPLAY_TIME) for stream in endless]),
        "sessions": sum(_retire(session, expiry_time(now)) for session in _idle(expiry_time(now))),
        "calls": _erase_in_pages(early_cancels)
        + sum([_delete_calls(stream, now - CALLS_LIFETIME) for stream in endless]),
        "steps": calls.delete_expired_steps(),
        "changes": sum(filter(None, changes.values())),
        "interests": change_log.prune_interests(),
        "visibility_snapshots": change_log.prune_snapshots(),
        "audit_entries": audit_log.delete_expired_entries(),
        "approvals": approvals.delete_old(now),
    }


def _ended(before: datetime) -> Iterator[int]:
    """Yield the streams that were closed before that time and still have all events.

    The caller must pass each to ``_delete_events_of_closed`` before it takes the next. That sets
    ``ended`` to None. Otherwise the same streams would be found again and again.
    """
    found = rows(Stream).filter(closed=True, ended__lt=before).order_by("ended")
    while page := list(found.values_list("pk", flat=True)[:ROWS_PER_TRANSACTION]):
        yield from page


def _delete_events_of_closed(stream_id: int) -> int:
    """Delete the events of a closed stream except its responses. Return how many."""
    stream, events = rows(Stream).filter(pk=stream_id), rows(Event).filter(stream=stream_id)
    finished = events.filter(final=True, seq=stream.values("last")[:1]).exists()
    # ``first`` moves before the events are deleted. So a client that resumes the stream meanwhile
    # gets an error, and never a part of the events.
    stream.update(first=F("last") if finished else F("last") + 1)
    count = _erase_in_pages(events.filter(final=False))
    size = events.aggregate(size=Sum("size"))["size"]
    # Without ``ended``, the stream is not found by ``_ended`` again.
    stream.update(size=size or 0, ended=None)
    return count


# Streams that never end.


def _endless() -> list[int]:
    found = rows(Session).filter(transport="sse", current__gt=0)
    return [stream for stream in found.values_list("current", flat=True) if stream]


def _delete_events_before(stream_id: int, before: datetime) -> int:
    """Delete a stream's events from before that time. Return how many."""
    stream, events = rows(Stream).filter(pk=stream_id), rows(Event).filter(stream=stream_id)
    ends = stream.values_list("first", "last").first()
    if ends is None:
        return 0
    (first, last), later = ends, events.filter(created__gte=before).order_by("seq")
    end = later.values_list("seq", flat=True).first() or last + 1
    return sum(
        _delete_range(stream_id, at, min(at + ROWS_PER_TRANSACTION, end))
        for at in range(first, end, ROWS_PER_TRANSACTION)
    )


@one_transaction
def _delete_range(stream_id: int, first: int, end: int) -> int:
    """Delete a range of events at the beginning, unless another process has done so."""
    stream = rows(Stream).filter(pk=stream_id)
    # Of two processes that delete the same range one wins, and only that one changes ``size``.
    if not stream.filter(first=first).update(first=end):
        return 0
    oldest = rows(Event).filter(stream=stream_id, seq__lt=end)
    size = oldest.aggregate(size=Sum("size"))["size"] or 0
    stream.update(size=F("size") - size)
    return erase(oldest)


def _delete_calls(stream_id: int, before: datetime) -> int:
    """Delete a stream's finished calls from before that time. Return how many."""
    finished = rows(Call).filter(stream=stream_id, state=DONE, created__lt=before)
    count = 0
    while page := list(finished.values_list("pk", flat=True)[:ROWS_PER_TRANSACTION]):
        count += _delete_page_of_calls(stream_id, page)
    return count


@one_transaction
def _delete_page_of_calls(stream_id: int, calls: list[int]) -> int:
    """Delete finished calls of an endless stream, and allow as many new ones. Return how many.

    ``pending_responses`` of an endless stream starts at ``models.ENDLESS`` and decreases with each
    response, so the deleted calls are added to it.
    """
    # Lock the stream, so that of two processes that delete the same calls only one counts them.
    rows(Stream).filter(pk=stream_id).update(pending_responses=F("pending_responses"))
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
    _erase_in_pages(rows(Event).filter(stream__session=session_id, stream__closed=True))
    return retire(session_id, before)


def _erase_in_pages(found: QuerySet[Any]) -> int:
    count = 0
    while page := list(found.values_list("pk", flat=True)[:ROWS_PER_TRANSACTION]):
        count += erase(rows(found.model).filter(pk__in=page))
    return count
