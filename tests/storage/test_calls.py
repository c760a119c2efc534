"""Calls as rows: asked, answered, cancelled, taken over; of two who compete one wins."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from django_mcp.models import DONE, PARKED, RUNNING, Ask, Call, Session, Stream
from django_mcp.storage import calls, databases, event_log, leases, sessions, streams
from django_mcp.storage.streams import cancel_kept

from .rows import ask, call, given, is_cancelled, queries, session, together

pytestmark = pytest.mark.django_db


def started(made: Session | None = None, **options) -> tuple[Session, Stream, Call]:
    made = made or session()
    stream = streams.open(made, calls=[one := call(**options)])
    return made, stream, one


def parked(*asks: Ask, **options) -> tuple[Session, Stream, Call]:
    made, stream, one = started(**options)
    values = {"known": {}, "high_water": None, "rounds": 1}
    assert calls.park(one.pk, 0, asks, ["question"] * len(asks), **values)
    return made, stream, one


def fresh(row):
    row.refresh_from_db()
    return row


def said(stream: Stream) -> list[str]:
    return [data for _, data in event_log.read(stream.pk, 0)]


# Asking.


def test_a_call_that_asks_is_only_rows():
    _, stream, one = started()
    question = ask("d1", wire={"method": "elicitation/create", "params": {"message": "\0?"}})
    answers = {"d0": {"result": {"a": "\0"}}}
    assert calls.park(one.pk, 0, [question], ["q"], known=answers, high_water=2.5, rounds=1)
    assert (fresh(one).state, one.process, one.known) == (PARKED, "", answers)
    assert (one.high_water, one.rounds, one.fence) == (2.5, 1, 0)
    assert said(stream) == ["q"] and fresh(question).call_id == one.pk and question.open


def test_a_parked_call_says_nothing_and_has_no_outcome():
    _, stream, one = parked(ask())
    assert event_log.append(stream.pk, ["late"], call=(one.pk, 0)) is None
    assert not event_log.finish(one.pk, 0, "{}", stream.pk)
    assert calls.orphans("other") == []


@pytest.mark.parametrize("change", [{"fence": 1}, {"cancelled": True}, {"state": DONE}])
def test_who_no_longer_has_the_call_asks_nothing(change):
    _, stream, one = started()
    Call.objects.filter(pk=one.pk).update(**change)
    values = {"known": {}, "high_water": None, "rounds": 1}
    assert not calls.park(one.pk, 0, [ask()], ["q"], **values)
    assert not calls.park(one.pk, 0, [ask()], ["q"], **values, again=True)
    assert said(stream) == [] and not Ask.objects.exists()


def test_what_was_parked_already_is_not_parked_again():
    _, stream, one = started()
    question, values = ask(), {"known": {}, "high_water": None, "rounds": 1}
    assert calls.park(one.pk, 0, [question], ["q"], **values)
    assert not calls.park(one.pk, 0, [question], ["q"], **values)
    assert calls.park(one.pk, 0, [question], ["q"], **values, again=True)
    assert said(stream) == ["q"]


def test_nobody_is_asked_on_a_closed_stream():
    _, stream, one = started()
    streams.close(stream.pk)
    assert not calls.park(one.pk, 0, [ask()], ["q"], known={}, high_water=None, rounds=1)
    assert fresh(one).state == DONE and not Ask.objects.exists()


def test_a_question_has_room_on_a_full_stream():
    _, stream, one = started()
    Stream.objects.filter(pk=stream.pk).update(last=10**6, size=10**12)
    assert calls.park(one.pk, 0, [ask()], ["q"], known={}, high_water=None, rounds=1)
    assert event_log.read(stream.pk, 10**6) == [(10**6 + 1, "q")]


# Answering.


def test_the_last_answer_claims_the_call():
    one_ask, two_ask = ask("d1"), ask("d2")
    made, stream, one = parked(one_ask, two_ask, user="7", scopes=["read"])
    assert calls.answer(made, two_ask.pk, {"result": {"n": 2}}, process="p2") is None
    assert fresh(one).state == PARKED
    claimed = calls.answer(made, one_ask.pk, {"error": {"code": 1}}, process="p1")
    assert claimed == one and (claimed.user, claimed.scopes) == ("7", ["read"])
    assert (claimed.state, claimed.process, claimed.fence) == (RUNNING, "p1", 1)
    assert claimed.known == {"d1": {"error": {"code": 1}}, "d2": {"result": {"n": 2}}}
    stored = fresh(one)
    assert (stored.state, stored.process, stored.fence) == (RUNNING, "p1", 1)
    assert stored.known == claimed.known
    assert event_log.append(stream.pk, ["on"], call=(one.pk, 1)) == 3


def test_answers_join_those_from_before():
    made, _, one = parked(first := ask("d1"))
    calls.answer(made, first.pk, {"result": 1}, process="p")
    second, known = ask("d2"), fresh(one).known
    assert calls.park(one.pk, 1, [second], ["q"], known=known, high_water=None, rounds=2)
    assert calls.answer(made, first.pk, {"result": "twice"}, process="p") is None
    claimed = calls.answer(made, second.pk, {"result": 2}, process="p")
    assert claimed.known == {"d1": {"result": 1}, "d2": {"result": 2}} and claimed.fence == 2


def test_what_answers_nothing_leaves_the_question_unanswered():
    made, _, _ = parked(question := ask())
    claimed = calls.answer(made, question.pk, None, process="p")
    assert claimed.known == {} and claimed.state == RUNNING


@pytest.mark.parametrize("id", ["", "a", "A" * 32, "g" * 32, "0" * 32, "0" * 31 + "\0", "é" * 32])
def test_an_answer_to_nothing(id):
    made, _, _ = parked(ask())
    assert calls.answer(made, id, {"result": 1}, process="p") is None


def test_an_answer_that_comes_twice_is_ignored():
    one_ask, two_ask = ask("d1"), ask("d2")
    made, _, _ = parked(one_ask, two_ask)
    calls.answer(made, one_ask.pk, {"result": 1}, process="p")
    assert calls.answer(made, one_ask.pk, {"result": 2}, process="p") is None
    assert calls.asked(made, one_ask.pk) is None and calls.asked(made, two_ask.pk) == two_ask
    assert calls.answer(made, two_ask.pk, {}, process="p").known["d1"] == {"result": 1}


def test_another_session_answers_nothing():
    made, _, _ = parked(question := ask())
    assert calls.asked(session(), question.pk) is None
    assert calls.answer(session(), question.pk, {"result": 1}, process="p") is None
    assert calls.asked(made, question.pk) == question


def test_an_answer_after_the_cancel_is_ignored():
    made, _, _ = parked(question := ask())
    calls.cancel(made, "1")
    assert calls.answer(made, question.pk, {"result": 1}, process="p") is None


# Deadlines.


def test_a_question_that_nobody_answers_times_out():
    late, open_ask = ask("d1", 5), ask("d2", 50)
    _, stream, one = parked(late, open_ask)
    now = timezone.now()
    assert calls.overdue(now, "p") == []
    (found,) = calls.overdue(now + timedelta(seconds=10), "p")
    assert found == (stream.pk, [late.pk], None) and fresh(one).state == PARKED
    assert calls.overdue(now + timedelta(seconds=10), "p") == []
    (found,) = calls.overdue(now + timedelta(seconds=60), "p")
    assert found.asks == [open_ask.pk] and found.call == one
    assert found.call.known == {"d1": {"timeout": 5.0}, "d2": {"timeout": 50.0}}
    assert (fresh(one).state, one.process, one.fence) == (RUNNING, "p", 1)
    assert calls.overdue(now + timedelta(seconds=60), "p") == []


def test_a_question_that_times_out_is_withdrawn_in_the_same_breath():
    made, stream, _ = parked(late := ask("d1", 5), ask("d2", 50))
    told, later = [], timezone.now() + timedelta(seconds=10)

    def words(session, asks):
        told.append((session, asks))
        return [f"{len(told)}: no longer"]

    calls.overdue(later, "p", words)
    calls.overdue(later, "p", words)
    assert told == [(made, [late.pk])]
    assert event_log.read(stream.pk, 0)[-1] == (fresh(stream).last, "1: no longer")


def test_a_question_that_cannot_be_withdrawn_has_not_timed_out():
    parked(late := ask("d1", 5))
    with pytest.raises(ZeroDivisionError):
        calls.overdue(timezone.now() + timedelta(seconds=10), "p", lambda session, asks: 1 / 0)
    assert fresh(late).open


def test_an_answer_to_a_question_that_timed_out_is_ignored():
    made, _, _ = parked(late := ask("d1", 5))
    calls.overdue(timezone.now() + timedelta(seconds=10), "p")
    assert calls.answer(made, late.pk, {"result": 1}, process="p2") is None


# Cancelling.


def test_a_cancel_stops_a_running_call_and_ends_its_stream():
    made, stream, one = started(params={"secret": 1})
    assert calls.cancel(made, "1") == one
    assert (fresh(one).state, one.cancelled, one.params) == (DONE, True, {})
    assert fresh(stream).closed and stream.ended and said(stream) == []
    assert calls.cancelled_of("mine", [one.pk]) == {one.pk}
    assert is_cancelled(made, "1") and not is_cancelled(made, '"1"')
    assert calls.cancel(made, "1") is None and Call.objects.count() == 1


def test_a_cancel_withdraws_the_questions():
    made, stream, one = parked(open_ask := ask("d1"), answered := ask("d2"))
    calls.answer(made, answered.pk, {"result": 1}, process="p")
    before = said(stream)
    found = calls.cancel(made, "1", words=lambda session, asks: [f"{session.pk}: {asks}"])
    assert found == one and not Ask.objects.exists() and fresh(stream).closed
    assert said(stream) == [*before, f"{made.pk}: {[open_ask.pk]}"]


def test_a_cancel_in_a_batch_leaves_the_others():
    made = session()
    stream = streams.open(made, calls=[call(1), two := call(2)])
    assert calls.cancel(made, "1")
    assert not fresh(stream).closed and stream.pending_responses == 1
    assert event_log.finish(two.pk, 0, "{}", stream.pk) and fresh(stream).closed


def test_a_cancel_that_comes_after_the_answer_does_nothing():
    made, stream, one = started()
    event_log.finish(one.pk, 0, "{}", stream.pk)
    assert calls.cancel(made, "1") is None
    assert not fresh(one).cancelled and not is_cancelled(made, "1")
    assert Call.objects.count() == 1


def test_a_cancel_for_a_call_without_a_row_is_kept():
    made = session()
    assert calls.cancel(made, '"\\u0000"') is None and is_cancelled(made, '"\\u0000"')
    assert calls.cancel(made, '"\\u0000"') is None and Call.objects.count() == 1
    assert not is_cancelled(session(), '"\\u0000"')


def test_a_cancel_that_is_repeated_is_kept_from_its_last_time():
    made, early = session(), call()
    calls.cancel(made, "1")
    Call.objects.update(created=databases.now() - timedelta(minutes=1))
    calls.cancel(made, "1")
    streams.open(made, calls=[early])
    assert early.cancelled


def test_old_cancels_without_a_call_are_deleted_with_the_next():
    made = session()
    calls.cancel(made, "1")
    Call.objects.update(created=databases.now() - 2 * cancel_kept())
    calls.cancel(made, "2")
    assert is_cancelled(made, "2") and not is_cancelled(made, "1")


@pytest.mark.parametrize(("grace", "cancelled"), [(0.5, False), (4, True)])
def test_cancel_is_kept_until_each_process_has_stored_what_it_received(grace, cancelled):
    """A call is stored ``JSON_GRACE`` seconds after its request arrived, at another process."""
    made, late = session(), call()
    with given(JSON_GRACE=grace):
        calls.cancel(made, "1")
        Call.objects.update(created=databases.now() - timedelta(seconds=3.5))
        late.created = databases.now() - timedelta(seconds=4)
        streams.open(made, calls=[late])
    assert bool(late.cancelled) is cancelled


def test_cancels_without_a_call_are_bounded(monkeypatch):
    monkeypatch.setattr(calls, "MAX_STORED_CANCELS", 3)
    made, other = session(), session()
    calls.cancel(other, "0")
    for id in range(5):
        calls.cancel(made, str(id))
    assert [is_cancelled(made, str(id)) for id in range(5)] == [
        False,
        False,
        True,
        True,
        True,
    ]
    assert is_cancelled(other, "0")


def test_a_request_id_of_any_length():
    made = session()
    long = '"' + "x" * 5000 + '"'
    stream = streams.open(made, calls=[call("x" * 5000), call("x" * 4999 + "y")])
    assert calls.requests(stream.pk)[0] == long
    assert calls.cancel(made, long).request_id == long and not fresh(stream).closed


# What a process must stop.


def test_which_calls_a_process_must_stop():
    made, _, kept = started()
    _, _, fenced = started(made, id=2)
    _, _, gone = started()
    other = session()
    _, _, of_other = started(other, id=3)
    calls.cancel(made, "2")
    sessions.end(other)
    Call.objects.filter(pk=gone.pk).update(process="taken", fence=1)
    ids = [kept.pk, fenced.pk, gone.pk, of_other.pk]
    with queries() as done:
        assert calls.cancelled_of("mine", ids) == set(ids) - {kept.pk}
    assert len(done()) == 1 and calls.cancelled_of("mine", []) == set()


# Taking over.


def test_the_calls_of_the_dead_are_taken_over():
    leases.begin("mine")
    leases.begin("alive")
    made, stream, one = started(process="dead")
    _, _, alive = started(made, id=2, process="alive")
    _, _, cancelled = started(made, id=3, process="dead")
    calls.cancel(made, "3")
    (taken,) = calls.orphans("mine")
    assert taken == one and (taken.fence, taken.runs, taken.process) == (1, 1, "mine")
    assert (fresh(one).fence, one.runs, one.process, one.state) == (1, 1, "mine", RUNNING)
    assert fresh(alive).process == "alive" and fresh(cancelled).state == DONE
    assert calls.orphans("mine") == []
    assert not event_log.finish(one.pk, 0, "{}", stream.pk)
    assert event_log.finish(one.pk, 1, "{}", stream.pk)


def test_what_i_claimed_without_knowing():
    made, _, known = started()
    _, _, unknown = started(made, id=2)
    assert calls.claimed("mine", [known.pk]) == [unknown]
    assert calls.claimed("new", [known.pk], ["mine", "older"]) == [known, unknown]
    assert fresh(known).fence == fresh(unknown).fence == fresh(unknown).runs == 0


def test_those_of_a_dead_process_are_many(monkeypatch):
    monkeypatch.setattr(calls, "CALLS_PER_POLL", 2)
    leases.begin("mine")
    made = session()
    for id in range(3):
        started(made, id=id, process="dead")
    assert [len(calls.orphans("mine")) for _ in range(3)] == [2, 1, 0]


# At once.


@pytest.mark.django_db(transaction=True)
def test_of_two_last_answers_exactly_one_claims():
    for _ in range(10):
        one_ask, two_ask = ask("d1"), ask("d2")
        made, _, _ = parked(one_ask, two_ask)
        claims = together(
            lambda made=made, id=one_ask.pk: calls.answer(made, id, {"n": 1}, process="a"),
            lambda made=made, id=two_ask.pk: calls.answer(made, id, {"n": 2}, process="b"),
        )
        (claimed,) = [claim for claim in claims if claim]
        assert claimed.known == {"d1": {"n": 1}, "d2": {"n": 2}} and claimed.fence == 1
        assert fresh(claimed).process == ("a" if claims[0] else "b")


@pytest.mark.django_db(transaction=True)
def test_of_two_answers_to_one_question_one_counts():
    for _ in range(5):
        made, _, _ = parked(question := ask("d"))
        claims = together(
            *[
                lambda n=n, made=made, id=question.pk: calls.answer(made, id, {"n": n}, process="p")
                for n in range(3)
            ]
        )
        (number,) = [n for n, claim in enumerate(claims) if claim]
        assert claims[number].known == {"d": {"n": number}}


@pytest.mark.django_db(transaction=True)
def test_an_answer_a_deadline_and_a_cancel():
    for _ in range(10):
        made, stream, one = parked(question := ask("d", -1))
        answered, (*timed_out,), cancelled = together(
            lambda made=made, id=question.pk: calls.answer(made, id, {"n": 1}, process="a"),
            lambda: calls.overdue(timezone.now(), "b"),
            lambda made=made: calls.cancel(made, "1"),
        )
        claims = [answered, *(found.call for found in timed_out)]
        assert len([claim for claim in claims if claim]) <= 1
        assert cancelled is not None and fresh(one).cancelled and fresh(stream).closed
        assert not Ask.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_the_dead_have_one_heir_for_each_call():
    made = session()
    for name in "abc":
        leases.begin(name)
    for id in range(4):
        started(made, id=id, process="dead")
    heirs = together(*[lambda name=name: calls.orphans(name) for name in "abc"])
    taken = [call.pk for each in heirs for call in each]
    assert sorted(taken) == sorted(Call.objects.values_list("pk", flat=True))
    assert set(Call.objects.values_list("fence", flat=True)) == {1}
