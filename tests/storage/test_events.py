"""The log: no gap, no double, no room beyond the bounds but for responses; also all at once."""

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


def said(stream: Stream) -> list[tuple[int, str]]:
    return list(Event.objects.filter(stream=stream).order_by("seq").values_list("seq", "data"))


def seqs(stream: Stream) -> list[int]:
    return [seq for seq, _ in said(stream)]


# Appending.


def test_events_are_numbered_from_one():
    stream = opened()
    assert event_log.append(stream.pk, ["a", "b"]) == 2
    assert event_log.append(stream.pk, ["c"]) == 3
    assert said(stream) == [(1, "a"), (2, "b"), (3, "c")]
    stream.refresh_from_db()
    assert (stream.last, stream.size) == (3, 3)


def verb(logged: str) -> str:
    """What a statement does; it may be logged as executed many times."""
    return logged.rpartition(" times: ")[2].split()[0]


def test_an_append_is_three_statements():
    stream = opened(one := call())
    with queries() as done:
        event_log.append(stream.pk, ["a"] * 100)
    assert list(map(verb, done())) == ["UPDATE", "SELECT", "INSERT"]
    with queries() as done:
        event_log.append(stream.pk, ["a"] * 100, call=(one.pk, 0))
    assert list(map(verb, done())) == ["UPDATE", "SELECT", "INSERT"]


def test_size_is_counted_in_bytes():
    stream = opened()
    event_log.append(stream.pk, ["é", "€"])
    assert list(Event.objects.order_by("seq").values_list("size", flat=True)) == [2, 3]
    stream.refresh_from_db()
    assert stream.size == 5


def test_many_streams_in_one_transaction():
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
    assert said(first) == [(1, "a"), (2, "b"), (3, "c")] and said(second) == [(1, "x")]
    assert said(third) == []


def test_nothing_to_say():
    stream = opened()
    assert event_log.append(stream.pk, []) == 0 and event_log.append_many({}) == {}
    assert said(stream) == []


def test_a_stream_there_is_not():
    assert event_log.append(10**9, ["a"]) is None


# Fences.


def test_who_was_fenced_says_nothing_and_leaves_no_gap():
    stream = opened(one := call(1), two := call(2))
    (taken, _) = calls.orphans("other")
    assert taken.fence == 1
    old, new, other = (
        EventAddress(stream.pk, one.pk, 0), EventAddress(stream.pk, one.pk, 1),
        EventAddress(stream.pk, two.pk, 1),
    )  # fmt: skip
    outcomes = event_log.append_many({old: ["no"], new: ["a"], other: ["b"]})
    assert outcomes == {old: None, new: 2, other: 2}
    assert said(stream) == [(1, "a"), (2, "b")]
    stream.refresh_from_db()
    assert (stream.last, stream.size) == (2, 2)


def test_no_call_speaks_on_the_stream_of_another():
    stream, foreign = opened(one := call()), opened()
    assert event_log.append(foreign.pk, ["a"], call=(one.pk, 0)) is None
    assert event_log.append(stream.pk, ["a"], call=(one.pk, 0)) == 1
    assert said(foreign) == []


@pytest.mark.parametrize("change", [{"cancelled": True}, {"state": DONE}, {"fence": 1}])
def test_who_may_not_speak_may_not_end_either(change):
    stream = opened(one := call())
    Call.objects.filter(pk=one.pk).update(**change)
    assert event_log.append(stream.pk, ["a"], call=(one.pk, 0)) is None
    assert event_log.finish(one.pk, 0, "{}", stream.pk) is False
    stream.refresh_from_db()
    assert said(stream) == [] and (stream.last, stream.pending_responses, stream.closed) == (
        0,
        1,
        False,
    )


# Bounds.


def test_a_stream_holds_so_many_events_and_the_response():
    with given(EVENTS=3):
        stream = opened(one := call())
        assert event_log.append(stream.pk, ["a", "b"]) == 2
        assert event_log.append(stream.pk, ["c", "d"]) == FULL
        assert event_log.append(stream.pk, ["c"]) == 3
        assert event_log.append(stream.pk, ["d"]) == FULL
        assert event_log.finish(one.pk, 0, "{}", stream.pk)
    assert seqs(stream) == [1, 2, 3, 4]


def test_a_stream_holds_so_many_bytes_and_the_response():
    with given(RESULT_SIZE=10):
        stream = opened(one := call())
        assert event_log.append(stream.pk, ["0123456789"] * 9) == 9
        assert event_log.append(stream.pk, ["0123456789"] * 2) == FULL
        assert event_log.append(stream.pk, ["0123456789"]) == 10
        assert event_log.append(stream.pk, ["0"]) == FULL
        assert event_log.finish(one.pk, 0, "0123456789", stream.pk)


def test_an_event_is_no_larger_than_a_result():
    with given(RESULT_SIZE=10):
        stream = opened()
        large, small = EventAddress(stream.pk), EventAddress(opened().pk)
        outcomes = event_log.append_many({large: ["0123456789x"], small: ["0123456789"]})
    assert outcomes == {large: FULL, small: 1} and said(stream) == []


def test_what_is_refused_costs_the_others_nothing():
    with given(EVENTS=1):
        full, free = opened(), opened()
        event_log.append(full.pk, ["a"])
        outcomes = event_log.append_many(
            {EventAddress(full.pk): ["b"], EventAddress(free.pk): ["c"]}
        )
    assert outcomes == {EventAddress(full.pk): FULL, EventAddress(free.pk): 1}


def test_no_statement_is_larger_than_servers_take():
    stream = opened()
    messages = ["x" * 1_500_000] * 7
    with queries() as done:
        event_log.append(stream.pk, messages)
    inserts = [sql for sql in done() if verb(sql) == "INSERT"]
    assert len(inserts) == 4 and seqs(stream) == [1, 2, 3, 4, 5, 6, 7]


# Unknown commits.


def test_a_flush_that_came_through_is_not_written_again():
    stream, other = opened(), opened()
    flush = {EventAddress(stream.pk): ["a", "b"], EventAddress(other.pk): ["c"]}
    event_log.append(stream.pk, ["before"])
    first = event_log.append_many(flush, "n1")
    event_log.append(stream.pk, ["after"])
    assert event_log.append_many(flush, "n1", again=True) == first
    assert seqs(stream) == [1, 2, 3, 4] and seqs(other) == [1]


def test_a_flush_that_did_not_is():
    stream = opened()
    assert event_log.append_many({EventAddress(stream.pk): ["a"]}, "n1", again=True)
    assert event_log.append_many({EventAddress(stream.pk): ["a"]}, "n2") == {
        EventAddress(stream.pk): 2
    }
    assert said(stream) == [(1, "a"), (2, "a")]


def test_an_outcome_that_came_through_is_not_written_again():
    stream = opened(one := call())
    assert event_log.finish(one.pk, 0, "{}", stream.pk)
    assert not event_log.finish(one.pk, 0, "{}", stream.pk)
    assert event_log.finish(one.pk, 0, "{}", stream.pk, again=True)
    assert not event_log.finish(one.pk, 1, "{}", stream.pk, again=True)
    assert seqs(stream) == [1]


def test_a_cancel_is_no_outcome_that_came_through():
    made = session()
    stream = streams.open(made, calls=[one := call()])
    calls.cancel(made, "1")
    assert not event_log.finish(one.pk, 0, "{}", stream.pk, again=True)


# Outcomes.


def test_a_stream_closes_with_the_last_response_it_owes():
    stream = opened(one := call(1), two := call(2))
    event_log.append(stream.pk, ["a"])
    assert event_log.finish(one.pk, 0, "1", stream.pk)
    stream.refresh_from_db()
    assert (stream.pending_responses, stream.closed, stream.ended) == (1, False, None)
    assert event_log.finish(two.pk, 0, "2", stream.pk)
    stream.refresh_from_db()
    assert (stream.pending_responses, stream.closed, stream.last) == (0, True, 3) and stream.ended
    assert event_log.append(stream.pk, ["late"]) is None
    assert event_log.finals(stream.pk) == [(2, "1"), (3, "2")]
    assert event_log.finals(stream.pk, 2) == [(3, "2")]


def test_a_call_that_is_over_keeps_nothing_that_was_said_to_it():
    made = session()
    stream = streams.open(made, calls=[one := call(params={"password": "x"})])
    question = ask()
    calls.park(one.pk, 0, [question], ["{}"], known={}, high_water=None, rounds=1)
    claimed = calls.answer(made, question.pk, {"result": {"secret": 1}}, process="mine")
    assert event_log.finish(one.pk, claimed.fence, "{}", stream.pk)
    one.refresh_from_db()
    assert (one.params, one.meta, one.known, one.state) == ({}, {}, {}, DONE)
    assert not Ask.objects.exists()


def test_an_outcome_for_a_stream_that_was_closed():
    stream = opened(one := call())
    streams.close(stream.pk)
    assert not event_log.finish(one.pk, 0, "{}", stream.pk)
    one.refresh_from_db()
    assert one.state == DONE and said(stream) == []


# Reading.


def test_reading_after_a_cursor():
    stream = opened()
    event_log.append(stream.pk, list("abcde"))
    assert event_log.read(stream.pk, 0) == list(enumerate("abcde", 1))
    assert event_log.read(stream.pk, 2, 2) == [(3, "c"), (4, "d")]
    assert event_log.read(stream.pk, 5) == [] and event_log.read(10**9, 0) == []


def test_a_page_is_one_event_and_a_bound_of_bytes_more(monkeypatch):
    monkeypatch.setattr(event_log, "BYTES_PER_PAGE", 3 * event_log.SMALL_EVENT_BYTES)
    large, huge = "x" * (event_log.SMALL_EVENT_BYTES + 1), "é" * 2 * event_log.SMALL_EVENT_BYTES
    stream = opened()
    event_log.append(stream.pk, ["a", "b", large, large, "c", huge, huge, large, "d"])
    pages, after = [], 0
    while page := event_log.read(stream.pk, after):
        assert page == said(stream)[after : page[-1][0]]
        after = page[-1][0]
        pages.append(after)
    assert pages == [5, 6, 9]


def test_a_page_of_what_is_large_takes_one_query_more():
    stream = opened()
    event_log.append(stream.pk, ["x" * (event_log.SMALL_EVENT_BYTES + 1)] * 400)
    with queries() as done:
        page = event_log.read(stream.pk, 0)
    assert 100 < len(page) < 150 and len(done()) == 2
    with queries() as done:
        assert len(event_log.read(stream.pk, 399)) == 1
    assert len(done()) == 1


# At once.


@pytest.mark.django_db(transaction=True)
def test_eight_append_at_once_and_no_number_is_missing():
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
def test_a_reader_never_sees_a_later_event_before_an_earlier_one():
    stream, seen = opened(), []

    def read() -> None:
        while len(seen) < 120:
            seen.extend(seq for seq, _ in event_log.read(stream.pk, len(seen)))

    writers = [lambda: [event_log.append(stream.pk, ["a", "b"]) for _ in range(20)]] * 3
    together(read, *writers)
    assert seen == list(range(1, 121))


@pytest.mark.django_db(transaction=True)
def test_many_streams_in_any_order_do_not_lock_each_other_out():
    made = [opened() for _ in range(6)]

    def append(order: list[Stream]) -> None:
        for _ in range(10):
            event_log.append_many({EventAddress(stream.pk): ["x"] for stream in order})

    together(
        *[lambda order=order: append(order) for order in (made, made[::-1], made[2:] + made[:2])]
    )
    assert [len(seqs(stream)) for stream in made] == [30] * 6


@pytest.mark.django_db(transaction=True)
def test_an_outcome_and_a_cancel_one_wins():
    for _ in range(12):
        made = session()
        stream = streams.open(made, calls=[one := call()])
        finished, cancelled = together(
            lambda pk=one.pk, to=stream.pk: event_log.finish(pk, 0, "{}", to),
            lambda made=made: calls.cancel(made, "1"),
        )
        assert finished is (cancelled is None)
        stream.refresh_from_db()
        assert (
            stream.closed and stream.pending_responses == 0 and len(said(stream)) == int(finished)
        )
    assert Call.objects.filter(state=RUNNING).count() == 0


@pytest.mark.django_db(transaction=True)
def test_an_outcome_is_committed_once():
    for _ in range(5):
        stream = opened(one := call())
        done = together(*[lambda pk=one.pk, to=stream.pk: event_log.finish(pk, 0, "{}", to)] * 4)
        assert sorted(done) == [False, False, False, True] and seqs(stream) == [1]


@pytest.mark.django_db(transaction=True)
def test_who_is_taken_over_while_speaking_leaves_no_gap():
    def swept():
        while not (taken := calls.orphans("other")):
            pass  # it held the lock just then: the next sweep finds it
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
def test_pruning_while_others_append():
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


def test_two_events_never_have_one_number():
    stream = opened()
    event_log.append(stream.pk, ["a"])
    Stream.objects.filter(pk=stream.pk).update(last=0)
    with pytest.raises(IntegrityError):
        event_log.append(stream.pk, ["b"])


def test_an_outcome_of_a_session_that_has_ended():
    made = session()
    stream = streams.open(made, calls=[one := call()])
    sessions.end(made)
    assert not event_log.finish(one.pk, 0, "{}", stream.pk, again=True)
    assert not Event.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_flush_that_is_still_at_its_commit_is_waited_for():
    stream = streams.open(session(), pending_responses=1)
    said, begun = {EventAddress(stream.pk): ["a", "b"]}, threading.Event()

    def first():
        with transaction.atomic(using=settings.DJANGO_MCP["DATABASE"]):
            outcome = event_log.append_many(said, "n")
            begun.set()
            time.sleep(0.3)
            return outcome

    def again():
        begun.wait(10)
        return event_log.append_many(said, "n", again=True)

    assert together(first, again) == [{EventAddress(stream.pk): 2}] * 2
    assert [data for _, data in event_log.read(stream.pk, 0)] == ["a", "b"]
