"""Pruning deletes what has ended in small transactions, and keeps open streams and responses."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from django_mcp.models import Call, Event, Session, Step, Stream
from django_mcp.storage import calls, event_log, retention, sessions, streams
from django_mcp.storage import calls as steps

from .rows import ask, call, queries, session

pytestmark = pytest.mark.django_db

NOTHING = {
    "events": 0, "sessions": 0, "calls": 0, "steps": 0, "changes": 0, "interests": 0,
    "visibility_snapshots": 0, "audit_entries": 0,
    "approvals": 0,
}  # fmt: skip
TWO_HOURS, TWO_DAYS = timedelta(hours=2), timedelta(days=2)


def later(age: timedelta):
    return timezone.now() + age


def stream_of(made: Session, count: int = 3, **options) -> tuple[Stream, Call]:
    stream = streams.open(made, calls=[one := call(**options)], messages=["x"] * count)
    return stream, one


def test_open_streams_are_not_pruned():
    made = session()
    stream_of(made)
    streams.open(made, standalone=True)
    assert retention.prune() == NOTHING
    assert retention.prune(now=later(TWO_HOURS)) == NOTHING
    assert Event.objects.count() == 3


def test_ended_stream_keeps_its_response():
    stream, one = stream_of(session())
    event_log.finish(one.pk, 0, "response", stream.pk)
    assert retention.prune() == NOTHING
    assert retention.prune(now=later(TWO_HOURS)) == NOTHING | {"events": 3}
    assert event_log.read(stream.pk, 0) == event_log.final_messages(stream.pk) == [(4, "response")]
    stream.refresh_from_db()
    assert (stream.first, stream.last, stream.size) == (4, 4, 8)
    assert retention.prune(now=later(TWO_HOURS)) == NOTHING


def test_ended_batch_keeps_all_responses():
    made = session()
    stream = streams.open(made, calls=[one := call(1), two := call(2)], messages=["x"])
    event_log.finish(one.pk, 0, "1", stream.pk)
    event_log.append(stream.pk, ["x", "x"])
    event_log.finish(two.pk, 0, "2", stream.pk)
    assert retention.prune(now=later(TWO_HOURS))["events"] == 3
    assert event_log.final_messages(stream.pk) == [(2, "1"), (5, "2")]
    assert streams.states([stream.pk])[stream.pk].first == 5


def test_cancelled_stream_keeps_only_its_row():
    stream, _ = stream_of(made := session())
    calls.cancel(made, "1")
    assert retention.prune(now=later(TWO_HOURS))["events"] == 3
    state = streams.states([stream.pk])[stream.pk]
    assert (state.first, state.last, state.closed) == (4, 3, True)
    assert streams.take(made, stream.pk) and calls.requests(stream.pk) == []


def test_idle_session_is_deleted_with_its_rows():
    idle, busy, asking, seen = (session() for _ in range(4))
    stream, one = stream_of(idle)
    event_log.finish(one.pk, 0, "r", stream.pk)
    streams.open(idle, standalone=True, messages=["news"])
    sessions.subscribe(idle, "a://b")
    stream_of(busy)
    _, asks = stream_of(asking)
    calls.park(asks.pk, 0, [ask()], ["q"], known={}, high_water=None, rounds=1)
    Session.objects.filter(pk=seen.pk).update(last_seen=later(TWO_DAYS))
    counts = retention.prune(now=later(TWO_DAYS))
    assert counts == NOTHING | {"events": 3, "sessions": 1}
    assert set(Session.objects.all()) == {busy, asking, seen}
    assert Stream.objects.count() == 2 and Event.objects.count() == 7


def test_session_that_was_used_in_time_is_not_deleted():
    made = session()
    before = timezone.now() - timedelta(days=1)
    assert not sessions.retire(made.pk, before)
    assert sessions.retire(made.pk, later(TWO_DAYS)) and not sessions.retire(made.pk, before)


def test_cancels_and_steps_are_pruned_by_age():
    made = session()
    calls.cancel(made, "1")
    steps.begin_step("c1", "x")
    assert retention.prune() == NOTHING
    assert retention.prune(now=later(TWO_HOURS)) == NOTHING | {"calls": 1}
    assert Call.objects.count() == 0 and Step.objects.count() == 1
    Step.objects.update(at=timezone.now() - TWO_DAYS)
    assert retention.prune() == NOTHING | {"steps": 1}


def test_pruning_deletes_in_small_transactions(monkeypatch):
    monkeypatch.setattr(retention, "ROWS_PER_TRANSACTION", 10)
    made = session()
    for id in range(3):
        stream, one = stream_of(made, 25, id=id)
        event_log.finish(one.pk, 0, "r", stream.pk)
    with queries() as done:
        assert retention.prune(now=later(TWO_HOURS))["events"] == 75
    deletes = [sql for sql in done() if sql.startswith("DELETE") and "event" in sql]
    assert len(deletes) == 9 and Event.objects.count() == 3
