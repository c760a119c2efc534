"""The event log: events have consecutive numbers and bounded size, also under concurrency."""

from __future__ import annotations

import itertools
import threading
import time
from datetime import timedelta

import pytest
from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone

from django_mcp.models import DONE, RUNNING, Ask, Call, Event, Stream
from django_mcp.storage import calls, event_log, retention, sessions, streams
from django_mcp.storage.event_log import FULL, EventAddress

from .rows import ask, call, given, queries, session, together

pytestmark = pytest.mark.django_db


def opened(*made: Call, **options) -> Stream:
    return streams.open(session(), calls=made or [call()], **options)


def stored(stream: Stream) -> list[tuple[int, str]]:
    return list(Event.objects.filter(stream=stream).order_by("seq").values_list("seq", "data"))


def seqs(stream: Stream) -> list[int]:
    return [seq for seq, _ in stored(stream)]


# Appending.


def test_events_are_numbered_from_one():
    stream = opened()
    assert event_log.append(stream.pk, ["a", "b"]) == 2
    assert event_log.append(stream.pk, ["c"]) == 3
    assert stored(stream) == [(1, "a"), (2, "b"), (3, "c")]
    stream.refresh_from_db()
    assert (stream.last, stream.size) == (3, 3)


def verb(logged: str) -> str:
    """What a statement does; it may be logged as executed many times."""
    return logged.rpartition(" times: ")[2].split()[0]


def test_append_is_three_statements():
    stream = opened(one := call())
    with queries() as done:
        event_log.append(stream.pk, ["a"] * 100)
    assert list(map(verb, done())) == ["UPDATE", "SELECT", "INSERT"]
    with queries() as done:
        event_log.append(stream.pk, ["a"] * 100, call=(one.pk, 0))
    assert list(map(verb, done())) == ["UPDATE", "SELECT", "INSERT"]


def test_event_size_is_counted_in_bytes():
    stream = opened()
    event_log.append(stream.pk, ["é", "€"])
    assert list(Event.objects.order_by("seq").values_list("size", flat=True)) == [2, 3]
    stream.refresh_from_db()
    assert stream.size == 5


def test_append_many_writes_several_streams_and_skips_closed_ones():
    first, second, third = opened(one := call()), opened(), opened()
    streams.close(third.pk)
    own, plain = EventAddress(first.pk, one.pk, 0), EventAddress(first.pk)
    outcomes = event_log.append_many(
        {
            EventAddress(second.pk): ["x"],
            own: ["a", "b"],
            EventAddress(third.pk): ["y"],
            plain: ["c"],
        }
    )
    assert outcomes == {
        own: 3, plain: 3, EventAddress(second.pk): 1, EventAddress(third.pk): None
    }  # fmt: skip
    assert stored(first) == [(1, "a"), (2, "b"), (3, "c")] and stored(second) == [(1, "x")]
    assert stored(third) == []


def test_appending_no_messages_changes_nothing():
    stream = opened()
    assert event_log.append(stream.pk, []) == 0 and event_log.append_many({}) == {}
    assert stored(stream) == []


def test_append_to_a_missing_stream_returns_none():
    assert event_log.append(10**9, ["a"]) is None


# Fences.


def test_append_with_an_old_fencing_token_is_rejected_without_a_gap():
    stream = opened(one := call(1), two := call(2))
    (taken, _) = calls.take_over_orphans("other")
    assert taken.fence == 1
    old, new, other = (
        EventAddress(stream.pk, one.pk, 0), EventAddress(stream.pk, one.pk, 1),
        EventAddress(stream.pk, two.pk, 1),
    )  # fmt: skip
    outcomes = event_log.append_many({old: ["no"], new: ["a"], other: ["b"]})
    assert outcomes == {old: None, new: 2, other: 2}
    assert stored(stream) == [(1, "a"), (2, "b")]
    stream.refresh_from_db()
    assert (stream.last, stream.size) == (2, 2)


def test_call_cannot_append_to_another_stream():
    stream, foreign = opened(one := call()), opened()
    assert event_log.append(foreign.pk, ["a"], call=(one.pk, 0)) is None
    assert event_log.append(stream.pk, ["a"], call=(one.pk, 0)) == 1
    assert stored(foreign) == []


@pytest.mark.parametrize("change", [{"cancelled": True}, {"state": DONE}, {"fence": 1}])
def test_ended_or_fenced_call_can_neither_append_nor_finish(change):
    stream = opened(one := call())
    Call.objects.filter(pk=one.pk).update(**change)
    assert event_log.append(stream.pk, ["a"], call=(one.pk, 0)) is None
    assert event_log.finish(one.pk, 0, "{}", stream.pk) is None
    stream.refresh_from_db()
    assert stored(stream) == [] and (stream.last, stream.pending_responses, stream.closed) == (
        0,
        1,
        False,
    )


# Bounds.


def test_stream_is_limited_in_events_but_accepts_the_response():
    with given(EVENTS=3):
        stream = opened(one := call())
        assert event_log.append(stream.pk, ["a", "b"]) == 2
        assert event_log.append(stream.pk, ["c", "d"]) == FULL
        assert event_log.append(stream.pk, ["c"]) == 3
        assert event_log.append(stream.pk, ["d"]) == FULL
        assert event_log.finish(one.pk, 0, "{}", stream.pk)
    assert seqs(stream) == [1, 2, 3, 4]


def test_stream_is_limited_in_bytes_but_accepts_the_response():
    with given(RESULT_SIZE=10):
        stream = opened(one := call())
        assert event_log.append(stream.pk, ["0123456789"] * 9) == 9
        assert event_log.append(stream.pk, ["0123456789"] * 2) == FULL
        assert event_log.append(stream.pk, ["0123456789"]) == 10
        assert event_log.append(stream.pk, ["0"]) == FULL
        assert event_log.finish(one.pk, 0, "0123456789", stream.pk)


def test_event_is_limited_to_the_result_size():
    with given(RESULT_SIZE=10):
        stream = opened()
        large, small = EventAddress(stream.pk), EventAddress(opened().pk)
        outcomes = event_log.append_many({large: ["0123456789x"], small: ["0123456789"]})
    assert outcomes == {large: FULL, small: 1} and stored(stream) == []


def test_full_stream_does_not_affect_other_streams_of_the_append():
    with given(EVENTS=1):
        full, free = opened(), opened()
        event_log.append(full.pk, ["a"])
        outcomes = event_log.append_many(
            {EventAddress(full.pk): ["b"], EventAddress(free.pk): ["c"]}
        )
    assert outcomes == {EventAddress(full.pk): FULL, EventAddress(free.pk): 1}


def test_large_messages_are_split_over_several_inserts():
    stream = opened()
    messages = ["x" * 1_500_000] * 7
    with queries() as done:
        event_log.append(stream.pk, messages)
    inserts = [sql for sql in done() if verb(sql) == "INSERT"]
    assert len(inserts) == 4 and seqs(stream) == [1, 2, 3, 4, 5, 6, 7]


# Unknown commits.


def test_retry_of_a_committed_append_writes_nothing():
    stream, other = opened(), opened()
    flush = {EventAddress(stream.pk): ["a", "b"], EventAddress(other.pk): ["c"]}
    event_log.append(stream.pk, ["before"])
    first = event_log.append_many(flush, "n1")
    event_log.append(stream.pk, ["after"])
    assert event_log.append_many(flush, "n1", is_retry=True) == first
    assert seqs(stream) == [1, 2, 3, 4] and seqs(other) == [1]


def test_retry_of_an_uncommitted_append_writes_its_events():
    stream = opened()
    assert event_log.append_many({EventAddress(stream.pk): ["a"]}, "n1", is_retry=True)
    assert event_log.append_many({EventAddress(stream.pk): ["a"]}, "n2") == {
        EventAddress(stream.pk): 2
    }
    assert stored(stream) == [(1, "a"), (2, "a")]


def test_retry_of_a_committed_response_writes_nothing():
    stream = opened(one := call())
    assert event_log.finish(one.pk, 0, "{}", stream.pk)
    assert not event_log.finish(one.pk, 0, "{}", stream.pk)
    assert event_log.finish(one.pk, 0, "{}", stream.pk, is_retry=True)
    assert not event_log.finish(one.pk, 1, "{}", stream.pk, is_retry=True)
    assert seqs(stream) == [1]


def test_retried_response_of_a_cancelled_call_is_rejected():
    made = session()
    stream = streams.open(made, calls=[one := call()])
    calls.cancel(made, "1")
    assert not event_log.finish(one.pk, 0, "{}", stream.pk, is_retry=True)


# Responses.


def test_stream_closes_with_its_last_pending_response():
    stream = opened(one := call(1), two := call(2))
    event_log.append(stream.pk, ["a"])
    assert event_log.finish(one.pk, 0, "1", stream.pk)
    stream.refresh_from_db()
    assert (stream.pending_responses, stream.closed, stream.ended) == (1, False, None)
    assert event_log.finish(two.pk, 0, "2", stream.pk)
    stream.refresh_from_db()
    assert (stream.pending_responses, stream.closed, stream.last) == (0, True, 3) and stream.ended
    assert event_log.append(stream.pk, ["late"]) is None
    assert event_log.final_messages(stream.pk) == [(2, "1"), (3, "2")]
    assert event_log.final_messages(stream.pk, 2) == [(3, "2")]


def test_finished_call_keeps_no_params_or_answers():
    made = session()
    stream = streams.open(made, calls=[one := call(params={"password": "x"})])
    question = ask()
    calls.park(one.pk, 0, [question], ["{}"], known={}, high_water=None, rounds=1)
    claimed = calls.answer(made, question.pk, {"result": {"secret": 1}}, process="mine")
    assert event_log.finish(one.pk, claimed.fence, "{}", stream.pk)
    one.refresh_from_db()
    assert (one.params, one.meta, one.known, one.state) == ({}, {}, {}, DONE)
    assert not Ask.objects.exists()


def test_response_to_a_closed_stream_is_dropped_and_ends_the_call():
    stream = opened(one := call())
    streams.close(stream.pk)
    assert not event_log.finish(one.pk, 0, "{}", stream.pk)
    one.refresh_from_db()
    assert one.state == DONE and stored(stream) == []


# Reading.


def test_read_returns_events_after_the_cursor():
    stream = opened()
    event_log.append(stream.pk, list("abcde"))
    assert event_log.read(stream.pk, 0) == list(enumerate("abcde", 1))
    assert event_log.read(stream.pk, 2, 2) == [(3, "c"), (4, "d")]
    assert event_log.read(stream.pk, 5) == [] and event_log.read(10**9, 0) == []


def test_page_is_limited_in_bytes_beyond_its_first_event(monkeypatch):
    monkeypatch.setattr(event_log, "BYTES_PER_PAGE", 3 * event_log.SMALL_EVENT_BYTES)
    large, huge = "x" * (event_log.SMALL_EVENT_BYTES + 1), "é" * 2 * event_log.SMALL_EVENT_BYTES
    stream = opened()
    event_log.append(stream.pk, ["a", "b", large, large, "c", huge, huge, large, "d"])
    pages, after = [], 0
    while page := event_log.read(stream.pk, after):
        assert page == stored(stream)[after : page[-1][0]]
        after = page[-1][0]
        pages.append(after)
    assert pages == [5, 6, 9]


def test_page_of_large_events_takes_two_queries():
    stream = opened()
    event_log.append(stream.pk, ["x" * (event_log.SMALL_EVENT_BYTES + 1)] * 400)
    with queries() as done:
        page = event_log.read(stream.pk, 0)
    assert 100 < len(page) < 150 and len(done()) == 2
    with queries() as done:
        assert len(event_log.read(stream.pk, 399)) == 1
    assert len(done()) == 1


# Concurrency.


@pytest.mark.django_db(transaction=True)
def test_concurrent_appends_leave_no_gap():
    stream, others = opened(), [opened(), opened()]
    ends: list[list[int]] = [[] for _ in range(8)]

    def append(number: int) -> None:
        for count in itertools.islice(itertools.cycle((1, 2, 3)), 15):
            batch = {EventAddress(stream.pk): [f"{number}"] * count}
            batch |= {EventAddress(others[number % 2].pk): ["x"]}
            ends[number].append(event_log.append_many(batch)[EventAddress(stream.pk)])

    together(*[lambda number=number: append(number) for number in range(8)])
    assert seqs(stream) == list(range(1, 8 * 30 + 1))
    assert [seqs(other) == list(range(1, 61)) for other in others] == [True, True]
    assert all(mine == sorted(mine) for mine in ends)
    assert len(set(itertools.chain(*ends))) == 8 * 15


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_reader_sees_events_in_order_during_concurrent_appends():
    stream, seen = opened(), []

    def read() -> None:
        while len(seen) < 120:
            seen.extend(seq for seq, _ in event_log.read(stream.pk, len(seen)))

    writers = [lambda: [event_log.append(stream.pk, ["a", "b"]) for _ in range(20)]] * 3
    together(read, *writers)
    assert seen == list(range(1, 121))


@pytest.mark.django_db(transaction=True)
def test_appends_to_streams_in_different_orders_do_not_deadlock():
    made = [opened() for _ in range(6)]

    def append(order: list[Stream]) -> None:
        for _ in range(10):
            event_log.append_many({EventAddress(stream.pk): ["x"] for stream in order})

    together(
        *[lambda order=order: append(order) for order in (made, made[::-1], made[2:] + made[:2])]
    )
    assert [len(seqs(stream)) for stream in made] == [30] * 6


@pytest.mark.django_db(transaction=True)
def test_either_response_or_cancel_wins_when_concurrent():
    for _ in range(12):
        made = session()
        stream = streams.open(made, calls=[one := call()])
        finished, cancelled = together(
            lambda pk=one.pk, to=stream.pk: event_log.finish(pk, 0, "{}", to),
            lambda made=made: calls.cancel(made, "1"),
        )
        assert (finished is None) is (cancelled is not None)
        stream.refresh_from_db()
        assert (
            stream.closed
            and stream.pending_responses == 0
            and len(stored(stream)) == (finished is not None)
        )
    assert Call.objects.filter(state=RUNNING).count() == 0


@pytest.mark.django_db(transaction=True)
def test_response_is_committed_once_by_concurrent_finishes():
    for _ in range(5):
        stream = opened(one := call())
        done = together(*[lambda pk=one.pk, to=stream.pk: event_log.finish(pk, 0, "{}", to)] * 4)
        assert [one for one in done if one] == [(1, True, 1)] and seqs(stream) == [1]


@pytest.mark.django_db(transaction=True)
def test_takeover_during_appends_leaves_no_gap():
    def swept():
        while not (taken := calls.take_over_orphans("other")):
            pass  # the append held the lock: the next sweep finds the call
        return taken

    for _ in range(8):
        stream = opened(one := call())
        spoken, taken = together(
            lambda pk=one.pk, to=stream.pk: [
                event_log.append(to, ["a", "b"], call=(pk, 0)) for _ in range(6)
            ],
            swept,
        )
        assert [call.pk for call in taken] == [one.pk]
        counted = [end for end in spoken if end]
        assert spoken == [*counted, *[None] * (6 - len(counted))]
        assert seqs(stream) == list(range(1, 2 * len(counted) + 1))
        event_log.finish(one.pk, 1, "{}", stream.pk)


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("shared_db")
def test_pruning_during_appends_deletes_only_events_of_ended_streams():
    ended = [opened() for _ in range(3)]
    for stream in ended:
        event_log.append(stream.pk, ["x"] * 30)
        streams.close(stream.pk)
    live = opened()

    later = timezone.now() + timedelta(hours=2)
    counts, *_ = together(
        lambda: retention.prune(now=later),
        *[lambda: [event_log.append(live.pk, ["x"]) for _ in range(20)]] * 3,
    )
    assert counts["events"] == 90 and seqs(live) == list(range(1, 61))


def test_duplicate_event_number_violates_a_constraint():
    stream = opened()
    event_log.append(stream.pk, ["a"])
    Stream.objects.filter(pk=stream.pk).update(last=0)
    with pytest.raises(IntegrityError):
        event_log.append(stream.pk, ["b"])


def test_response_in_an_ended_session_is_dropped():
    made = session()
    stream = streams.open(made, calls=[one := call()])
    sessions.end(made)
    assert not event_log.finish(one.pk, 0, "{}", stream.pk, is_retry=True)
    assert not Event.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_retry_waits_for_the_commit_of_the_first_append():
    stream = streams.open(session(), pending_responses=1)
    stored, begun = {EventAddress(stream.pk): ["a", "b"]}, threading.Event()

    def first():
        with transaction.atomic(using=settings.DJANGO_MCP["DATABASE"]):
            outcome = event_log.append_many(stored, "n")
            begun.set()
            time.sleep(0.3)
            return outcome

    def again():
        begun.wait(10)
        return event_log.append_many(stored, "n", is_retry=True)

    assert together(first, again) == [{EventAddress(stream.pk): 2}] * 2
    assert [data for _, data in event_log.read(stream.pk, 0)] == ["a", "b"]
