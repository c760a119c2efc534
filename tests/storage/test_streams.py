"""Streams: opening, the current stream of a session, reconnection, release and limits."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import pytest
from django.conf import settings
from django.db import transaction

from django_mcp.exceptions import Busy
from django_mcp.models import DONE, Ask, Call, Event, Session, Stream
from django_mcp.storage import calls, databases, event_log, sessions, streams
from django_mcp.storage.streams import StreamState

from .rows import announced, ask, call, given, queries, session, together

pytestmark = pytest.mark.django_db


def messages_of(stream: Stream) -> list[str]:
    return [data for _, data in event_log.read(stream.pk, 0)]


def notices(marks):
    return [f"changed {mark}" for mark in marks]


def refreshed(row):
    row.refresh_from_db()
    return row


# Opening.


def test_stream_is_opened_with_calls_messages_and_responses():
    made = session()
    one, two = call(1), call("1", params={"a": "\0"})
    stream = streams.open(made, calls=[one, two], messages=["a", "b"], finals=["r"])
    assert messages_of(stream) == ["a", "b", "r"] and event_log.final_messages(stream.pk) == [
        (3, "r")
    ]
    assert streams.states([stream.pk]) == {
        stream.pk: StreamState(stream.pk, 3, 1, False, False, 1, 0)
    }  # fmt: skip
    assert (refreshed(stream).pending_responses, stream.size) == (2, 3)
    assert calls.requests(stream.pk) == ["1", '"1"'] and Call.objects.get(pk=two.pk) == two
    assert refreshed(two).params == {"a": "\0"} and refreshed(made).streams == 1


def test_stream_without_pending_responses_is_closed_at_once():
    stream = streams.open(session(), finals=["r"])
    assert refreshed(stream).closed and stream.ended and stream.pending_responses == 0


def test_stream_may_have_more_pending_responses_than_calls():
    stream = streams.open(session(), calls=[one := call()], pending_responses=2)
    assert event_log.finish(one.pk, 0, "{}", stream.pk)
    assert not refreshed(stream).closed and stream.pending_responses == 1


def test_call_cancelled_before_it_is_stored_ends_at_once():
    made, one, two = session(), call(1, meta={"a": 1}), call(2)
    assert calls.cancel(made, "1") is None
    stream = streams.open(made, calls=[one, two])
    assert one.cancelled and not two.cancelled and refreshed(stream).pending_responses == 1
    assert (refreshed(one).state, one.params, one.meta) == (DONE, {}, {})
    assert not event_log.finish(one.pk, 0, "{}", stream.pk)
    assert event_log.finish(two.pk, 0, "{}", stream.pk) and refreshed(stream).closed
    # The cancel referred to that call. A later call of the same id is another one.
    assert not streams.open(made, calls=[again := call(1)]).closed and not again.cancelled


def test_cancel_does_not_affect_a_call_received_later():
    made = session()
    calls.cancel(made, "1")
    stream = streams.open(made, calls=[later := call(1)])
    assert not later.cancelled and not stream.closed


def test_cancel_without_a_call_is_kept_for_two_seconds():
    made, one = session(), call(1, created=databases.now() - timedelta(minutes=1))
    calls.cancel(made, "1")
    Call.objects.update(created=databases.now() - timedelta(seconds=2.1))
    streams.open(made, calls=[one])
    assert not one.cancelled


def test_stream_whose_calls_were_all_cancelled_is_closed():
    made, one = session(), call(1)
    calls.cancel(made, "1")
    stream = streams.open(made, calls=[one], messages=["a"])
    assert refreshed(stream).closed and stream.pending_responses == 0


def test_request_ids_that_differ_in_case_or_type_are_distinct():
    made, one, two = session(), call("a"), call(1)
    for id in ('"A"', '"1"'):
        calls.cancel(made, id)
    streams.open(made, calls=[one, two])
    assert not one.cancelled and not two.cancelled


def test_cancel_does_not_affect_another_session():
    one = call(1)
    calls.cancel(session(), "1")
    streams.open(session(), calls=[one])
    assert not one.cancelled


def test_retry_of_a_committed_open_returns_the_same_stream():
    made = session()
    stream = streams.open(made, calls=[one := call()], messages=["a"], nonce="n1")
    calls.cancel(made, "1")
    same = streams.open(made, calls=[again := call()], messages=["a"], nonce="n1", is_retry=True)
    assert same == stream and again.pk == one.pk and again.cancelled and again.stream_id == same.pk
    assert refreshed(made).streams == 1 and Event.objects.count() == 1
    other = streams.open(made, calls=[call(2)], nonce="n2", is_retry=True)
    assert other != stream and Stream.objects.count() == 2


# Limits.


def test_streams_that_ended_long_ago_are_deleted_for_new_ones(monkeypatch):
    monkeypatch.setattr(streams, "MAX_STREAMS_PER_SESSION", 4)
    monkeypatch.setattr(streams, "STREAMS_PER_DELETE", 2)
    made = session()
    ours = [streams.open(made, calls=[one := call(n)]) for n in range(4)]
    calls.park(one.pk, 0, [ask()], ["q"], known={}, high_water=None, rounds=1)
    for n in (3, 1, 0):
        calls.cancel(made, str(n))
    with pytest.raises(Busy, match="in an hour"):  # the client may still reconnect
        streams.open(made, calls=[call(5)])
    ended = databases.now() - streams.REPLAY_TIME
    Stream.objects.filter(pk=ours[0].pk).update(ended=ended + timedelta(minutes=1))
    Stream.objects.filter(pk=ours[1].pk).update(ended=None)  # trimmed
    Stream.objects.filter(pk=ours[3].pk).update(ended=ended - timedelta(minutes=1))
    fifth = streams.open(made, calls=[call(5)])
    assert set(Stream.objects.values_list("pk", flat=True)) == {ours[0].pk, ours[2].pk, fifth.pk}
    assert Ask.objects.count() == 0 and Event.objects.count() == 0 and Call.objects.count() == 3
    assert refreshed(made).streams == 3
    streams.open(made, calls=[call(6)])
    with pytest.raises(Busy):
        streams.open(made, calls=[call(7)])
    assert refreshed(made).streams == 4


def stream_with_response(session, id, size):
    """Return an ended stream with a response of that size."""
    stream = streams.open(session, calls=[one := call(id)])
    assert event_log.finish(one.pk, 0, "x" * size, stream.pk)
    return stream


def test_stored_responses_of_a_session_have_a_byte_budget(monkeypatch):
    """Above it the oldest responses are deleted, except in other sessions and open streams."""
    monkeypatch.setattr(streams, "SIZE_CHECKED_ONE_IN", 1)
    monkeypatch.setattr(streams, "max_closed_bytes", lambda: 1_000)
    other, made = session(), session()
    theirs = stream_with_response(other, 1, 900)
    ours = [stream_with_response(made, id, 400) for id in range(4)]
    running = streams.open(made, calls=[call(4)], messages=["y" * 2_000])
    assert [refreshed(one).size for one in (theirs, *ours)] == [900, 0, 0, 400, 400]
    assert [len(messages_of(one)) for one in (theirs, *ours, running)] == [1, 0, 0, 1, 1, 1]
    assert (ours[0].last, ours[0].first, ours[0].ended) == (1, 2, None)


def test_byte_budget_is_checked_at_random_openings(monkeypatch):
    made, looked = session(), []
    monkeypatch.setattr(streams, "SIZE_CHECKED_ONE_IN", 10)
    monkeypatch.setattr(streams, "_delete_oldest_events", looked.append)
    monkeypatch.setattr(streams, "randrange", lambda below: 0 if below == 10 else 1 / 0)
    streams.open(made)
    monkeypatch.setattr(streams, "randrange", lambda below: 7)
    streams.open(made)
    assert looked == [made.pk]
    streams.open(made, calls=[call(id) for id in range(8)])  # the more calls, the more often
    assert looked == [made.pk] * 2


# Standalone streams.


def test_latest_standalone_stream_is_current():
    made = session()
    assert streams.current(made) is None
    first = streams.open(made, standalone=True)
    second = streams.open(made, standalone=True)
    assert streams.current(made) == made.current == second.pk
    assert not refreshed(first).closed and not second.closed
    assert announced(made.pk, "hi", "tools") == second.pk
    assert (messages_of(first), messages_of(second)) == ([], ["hi"])


def test_notification_without_a_stream_is_delivered_by_the_next_stream():
    made = session()
    for mark in ("tools", "prompts", "tools"):
        assert announced(made.pk, "hi", mark) is None
    assert refreshed(made).pending_changes == ["tools", "prompts"]
    stream = streams.open(made, standalone=True, messages=["missed"], encode_marks=notices)
    assert messages_of(stream) == ["changed tools", "changed prompts", "missed"]
    assert refreshed(made).pending_changes == []
    assert messages_of(streams.open(made, standalone=True, encode_marks=notices)) == []


def test_notices_an_unread_stream_are_repeated_by_the_next():
    """The process or the connection may have failed before anything was sent."""
    made = session()
    announced(made.pk, "changed tools", "tools")
    first = streams.open(made, standalone=True, encode_marks=notices, nonce="a")
    for mark in ("prompts", "tools"):
        announced(made.pk, f"changed {mark}", mark)
    streams.close(first.pk)
    announced(made.pk, "changed resources", "resources")
    second = streams.open(made, standalone=True, encode_marks=notices, nonce="b")
    assert messages_of(second) == ["changed prompts", "changed tools", "changed resources"]
    announced(made.pk, "changed tools", "tools")
    third = streams.open(made, standalone=True, encode_marks=notices, nonce="c")
    assert messages_of(third) == ["changed prompts", "changed resources", "changed tools"]
    streams.take(made, second.pk, notices)
    streams.note_sent(third.pk)
    assert messages_of(streams.open(made, standalone=True, encode_marks=notices, nonce="d")) == []


def test_notices_an_unread_stream_move_to_the_resumed_stream():
    made = session()
    first = streams.open(made, standalone=True, encode_marks=notices, nonce="a")
    streams.note_sent(first.pk)
    announced(made.pk, "a", "a")
    streams.leave(made.pk, first.pk, 1)
    announced(made.pk, "changed tools", "tools")
    second = streams.open(made, standalone=True, encode_marks=notices, nonce="b")
    announced(made.pk, "changed prompts", "prompts")
    streams.leave(made.pk, second.pk, 1, unread=True)
    assert refreshed(second).closed and not refreshed(first).closed
    streams.close(streams.open(made, standalone=True, messages=["others"], nonce="c").pk)
    for _ in range(2):
        streams.take(made, first.pk, notices)
    assert messages_of(first) == ["a", "changed tools", "changed prompts"]


def test_taken_stream_stays_open_after_an_unread_leave():
    stream = streams.open(made := session(), standalone=True)
    streams.take(made, stream.pk, notices)
    streams.leave(made.pk, stream.pk, 2, unread=True)
    assert not refreshed(stream).closed and refreshed(stream).released == 2


def test_notification_without_capacity_on_a_resumed_stream_is_kept():
    with given(EVENTS=1):
        made = session()
        first, second = (streams.open(made, standalone=True, nonce=n) for n in "ab")
        announced(made.pk, "changed tools", "tools")
        streams.leave(made.pk, second.pk, 1, unread=True)
        announced(made.pk, "a", "a")
        assert messages_of(first) == ["a"]
        streams.take(made, first.pk, notices)
        assert messages_of(first) == ["a"]
        assert "changed tools" in messages_of(
            streams.open(made, standalone=True, encode_marks=notices)
        )


def test_full_stream_is_closed_and_its_notification_kept():
    with given(EVENTS=1):
        made = session()
        stream = streams.open(made, standalone=True)
        assert announced(made.pk, "a", "tools") == stream.pk
        assert announced(made.pk, "b", "uri:a://b") is None
    assert refreshed(stream).closed and messages_of(stream) == ["a"]
    assert refreshed(made).current is None and made.pending_changes == ["uri:a://b"]


def test_notification_for_a_closed_stream_is_kept():
    made = session()
    streams.close(streams.open(made, standalone=True).pk)
    assert announced(made.pk, "a", "tools") is None
    assert refreshed(made).current is None and made.pending_changes == ["tools"]


def test_number_of_kept_notifications_is_limited(monkeypatch):
    monkeypatch.setattr(streams, "MAX_NOTIFICATIONS", 2)
    made = session()
    for mark in "abcb":
        announced(made.pk, "hi", mark)
    assert set(refreshed(made).pending_changes) == {"b", "c"}


def test_fifth_standalone_stream_closes_a_released_one_first():
    made = session()
    four = [streams.open(made, standalone=True) for _ in range(4)]
    streams.release(four[2].pk)
    streams.open(made, standalone=True)
    assert [refreshed(one).closed for one in four] == [False, False, True, False]
    streams.open(made, standalone=True)
    assert [refreshed(one).closed for one in four] == [True, False, True, False]


def test_opening_a_stream_takes_few_statements():
    made = session()
    with queries() as done:
        streams.open(made, calls=[call()], messages=["a", "b"])
    assert len(done()) == 5, done()
    with queries() as done:
        streams.open(made, standalone=True, encode_marks=notices)
    assert len(done()) == 6, done()


# Connections.


def test_taking_a_stream_assigns_a_reader_number():
    made = session()
    stream = streams.open(made, calls=[call()], messages=["a"])
    assert streams.take(made, stream.pk) == StreamState(stream.pk, 1, 1, False, False, 2, 0)
    assert streams.take(made, stream.pk).reader == 3
    streams.release(stream.pk)
    state = streams.states([stream.pk])[stream.pk]
    assert (state.reader, state.released) == (3, 3)
    assert streams.take(made, stream.pk)[-2:] == (4, 3)


@pytest.mark.parametrize("id", [0, -1, 10**9, 2**63, 10**30])
def test_unknown_stream_cannot_be_taken(id):
    assert streams.take(session(), id) is None


def test_stream_of_another_session_cannot_be_taken():
    stream = streams.open(session(), calls=[call()])
    assert streams.take(session(), stream.pk) is None
    assert streams.states([stream.pk])[stream.pk].reader == 1


def test_closed_stream_can_be_taken():
    stream = streams.open(made := session(), calls=[call()])
    streams.close(stream.pk)
    assert streams.take(made, stream.pk).closed


def test_resumed_standalone_stream_becomes_current():
    made = session()
    first, second = (streams.open(made, standalone=True) for _ in range(2))
    assert streams.take(made, first.pk).standalone
    assert streams.current(made) == first.pk and not refreshed(second).closed
    streams.close(second.pk)
    streams.take(made, second.pk)
    assert streams.current(made) == first.pk


def test_resumed_stream_receives_kept_notifications():
    made = session()
    first, second = (streams.open(made, standalone=True) for _ in range(2))
    streams.close(second.pk)
    announced(made.pk, "a", "tools")
    assert streams.take(made, first.pk, notices).last == 1
    assert messages_of(first) == ["changed tools"] and refreshed(made).pending_changes == []


def test_notifications_go_to_a_stream_that_is_still_read():
    made = session()
    first, second, third = (streams.open(made, standalone=True) for _ in range(3))
    streams.leave(made.pk, second.pk, 1)
    assert streams.current(made) == third.pk
    streams.leave(made.pk, third.pk, 1)
    assert announced(made.pk, "m", "tools") == first.pk
    streams.leave(made.pk, first.pk, 1)
    assert announced(made.pk, "m", "prompts") is None
    assert refreshed(made).pending_changes == ["prompts"]
    state = streams.take(made, second.pk, notices)
    assert state is not None and streams.current(made) == second.pk
    assert messages_of(second) == ["changed prompts"] and messages_of(first) == ["m"]


def test_leave_by_an_older_reader_does_nothing():
    made = session()
    stream = streams.open(made, standalone=True)
    streams.take(made, stream.pk)
    streams.leave(made.pk, stream.pk, 1)
    assert streams.current(made) == stream.pk and refreshed(stream).released == 0


def test_stream_of_another_session_cannot_be_left():
    made, other = session(), session()
    stream = streams.open(made, standalone=True)
    streams.leave(other.pk, stream.pk, 1)
    assert streams.current(made) == stream.pk
    sessions.end(made)
    with pytest.raises(sessions.SessionEnded):
        streams.leave(made.pk, stream.pk, 1)


def test_closing_a_stream_twice_keeps_its_end_time():
    stream = streams.open(session(), calls=[call()])
    streams.close(stream.pk)
    ended = refreshed(stream).ended
    streams.close(stream.pk)
    assert refreshed(stream).ended == ended


def test_states_of_many_streams_take_one_query():
    made = session()
    ids = [streams.open(made, calls=[call(n)]).pk for n in range(5)]
    with queries() as done:
        assert list(streams.states(ids)) == ids
    assert len(done()) == 1


# Concurrency.


@pytest.mark.django_db(transaction=True)
def test_concurrent_takes_get_distinct_reader_numbers():
    stream = streams.open(made := session(), standalone=True)
    taken = together(*[lambda: streams.take(made, stream.pk).reader] * 4)
    assert sorted(taken) == [2, 3, 4, 5]


@pytest.mark.django_db(transaction=True)
def test_notifications_during_reconnects_are_delivered_exactly_once():
    made = session()

    def announce(kind: str) -> None:
        for number in range(15):
            announced(made.pk, f"changed {kind}{number}", f"{kind}{number}")

    def reconnect() -> None:
        for _ in range(8):
            streams.close(streams.open(made, standalone=True, encode_marks=notices).pk)

    together(lambda: announce("a"), lambda: announce("b"), reconnect)
    last = streams.open(made, standalone=True, encode_marks=notices)
    heard = list(Event.objects.values_list("data", flat=True))
    assert sorted(heard) == sorted(f"changed {kind}{n}" for kind in "ab" for n in range(15))
    assert streams.current(made) == last.pk


@pytest.mark.django_db(transaction=True)
def test_concurrent_cancel_and_open_always_cancel_the_call():
    for _ in range(10):
        made = session()
        one = call(1)
        stream, found = together(
            lambda made=made, one=one: streams.open(made, calls=[one]),
            lambda made=made: calls.cancel(made, "1"),
        )
        assert one.cancelled is (found is None)
        assert refreshed(one).cancelled and refreshed(stream).closed
        assert Call.objects.filter(session=made.pk).count() == 1


@pytest.mark.django_db(transaction=True)
def test_concurrently_opened_streams_are_all_counted():
    made = session()
    together(*[lambda n=n: streams.open(made, calls=[call(n)]) for n in range(6)])
    together(*[lambda: streams.open(made, standalone=True)] * 6)
    assert Session.objects.get().streams == Stream.objects.count() == 12
    assert Stream.objects.filter(standalone=True, closed=False).count() == 4


def test_ended_session_opens_no_stream():
    sessions.end(made := session())
    with pytest.raises(sessions.SessionEnded):
        streams.open(made, calls=[call()], nonce="n", is_retry=True)
    assert not Stream.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_retry_waits_for_the_commit_of_the_first_open():
    made = session()
    begun = threading.Event()

    def first():
        with transaction.atomic(using=settings.DJANGO_MCP["DATABASE"]):
            stream = streams.open(made, calls=[call()], nonce="n")
            begun.set()
            time.sleep(0.3)
            return stream

    def again():
        begun.wait(10)
        return streams.open(made, calls=[call()], nonce="n", is_retry=True)

    assert len(set(together(first, again))) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda one: event_log.append(one.pk, ["a"]),
        lambda one: streams.close(one.pk),
        lambda one: streams.take(one.session, one.pk),
        lambda one: streams.release(one.pk),
        lambda one: streams.erase_streams([one.pk]),
    ],
    ids=["said", "closed", "taken", "released", "gone"],
)
def test_totals_change_with_every_change_of_a_stream(change):
    made = session()
    one, other = (streams.open(made, calls=[call(id)]) for id in (1, 2))
    before = streams.totals([one.pk, other.pk])
    assert streams.totals([one.pk, other.pk]) == before != streams.totals([one.pk])
    change(one)
    assert streams.totals([one.pk, other.pk]) != before
