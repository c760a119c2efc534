"""Stored calls: questions and answers, timeouts, cancellation and takeover, also concurrently."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import OperationalError
from django.utils import timezone

from django_mcp.models import DONE, PARKED, RUNNING, Ask, Call, Session, Stream
from django_mcp.storage import calls, databases, event_log, leases, sessions, streams
from django_mcp.storage.streams import cancel_lifetime

from .rows import ask, call, given, is_cancelled, queries, session, together

pytestmark = pytest.mark.django_db


def started_call(made: Session | None = None, **options) -> tuple[Session, Stream, Call]:
    made = made or session()
    stream = streams.open(made, calls=[one := call(**options)])
    return made, stream, one


def parked_call(*asks: Ask, **options) -> tuple[Session, Stream, Call]:
    made, stream, one = started_call(**options)
    values = {"known": {}, "high_water": None, "rounds": 1}
    assert calls.park(one.pk, 0, asks, ["question"] * len(asks), **values)
    return made, stream, one


def refreshed(row):
    row.refresh_from_db()
    return row


def messages_of(stream: Stream) -> list[str]:
    return [data for _, data in event_log.read(stream.pk, 0)]


# Asking.


def test_parking_a_call_stores_its_question_and_known_answers():
    _, stream, one = started_call()
    question = ask("d1", wire={"method": "elicitation/create", "params": {"message": "\0?"}})
    answers = {"d0": {"result": {"a": "\0"}}}
    assert calls.park(one.pk, 0, [question], ["q"], known=answers, high_water=2.5, rounds=1)
    assert (refreshed(one).state, one.process, one.known) == (PARKED, "", answers)
    assert (one.high_water, one.rounds, one.fence) == (2.5, 1, 0)
    assert messages_of(stream) == ["q"] and refreshed(question).call_id == one.pk and question.open


def test_parked_call_cannot_append_finish_or_be_taken_over():
    _, stream, one = parked_call(ask())
    assert event_log.append(stream.pk, ["late"], call=(one.pk, 0)) is None
    assert not event_log.finish(one.pk, 0, "{}", stream.pk)
    assert calls.take_over_orphans("other") == []


@pytest.mark.parametrize("change", [{"fence": 1}, {"cancelled": True}, {"state": DONE}])
def test_call_that_is_fenced_cancelled_or_done_cannot_be_parked(change):
    _, stream, one = started_call()
    Call.objects.filter(pk=one.pk).update(**change)
    values = {"known": {}, "high_water": None, "rounds": 1}
    assert not calls.park(one.pk, 0, [ask()], ["q"], **values)
    assert not calls.park(one.pk, 0, [ask()], ["q"], **values, is_retry=True)
    assert messages_of(stream) == [] and not Ask.objects.exists()


def test_repeated_park_is_accepted_only_as_a_retry():
    _, stream, one = started_call()
    question, values = ask(), {"known": {}, "high_water": None, "rounds": 1}
    assert calls.park(one.pk, 0, [question], ["q"], **values)
    assert not calls.park(one.pk, 0, [question], ["q"], **values)
    assert calls.park(one.pk, 0, [question], ["q"], **values, is_retry=True)
    assert messages_of(stream) == ["q"]


def test_parking_on_a_closed_stream_ends_the_call():
    _, stream, one = started_call()
    streams.close(stream.pk)
    assert not calls.park(one.pk, 0, [ask()], ["q"], known={}, high_water=None, rounds=1)
    assert refreshed(one).state == DONE and not Ask.objects.exists()


def test_question_is_appended_to_a_full_stream():
    _, stream, one = started_call()
    Stream.objects.filter(pk=stream.pk).update(last=10**6, size=10**12)
    assert calls.park(one.pk, 0, [ask()], ["q"], known={}, high_water=None, rounds=1)
    assert event_log.read(stream.pk, 10**6) == [(10**6 + 1, "q")]


# Answering.


def test_last_answer_claims_the_call():
    one_ask, two_ask = ask("d1"), ask("d2")
    made, stream, one = parked_call(one_ask, two_ask, user="7", scopes=["read"])
    assert calls.answer(made, two_ask.pk, {"result": {"n": 2}}, process="p2") is None
    assert refreshed(one).state == PARKED
    claimed = calls.answer(made, one_ask.pk, {"error": {"code": 1}}, process="p1")
    assert claimed == one and (claimed.user, claimed.scopes) == ("7", ["read"])
    assert (claimed.state, claimed.process, claimed.fence) == (RUNNING, "p1", 1)
    assert claimed.known == {"d1": {"error": {"code": 1}}, "d2": {"result": {"n": 2}}}
    stored = refreshed(one)
    assert (stored.state, stored.process, stored.fence) == (RUNNING, "p1", 1)
    assert stored.known == claimed.known
    assert event_log.append(stream.pk, ["on"], call=(one.pk, 1)) == 3


def test_answers_are_added_to_those_of_earlier_rounds():
    made, _, one = parked_call(first := ask("d1"))
    calls.answer(made, first.pk, {"result": 1}, process="p")
    second, known = ask("d2"), refreshed(one).known
    assert calls.park(one.pk, 1, [second], ["q"], known=known, high_water=None, rounds=2)
    assert calls.answer(made, first.pk, {"result": "twice"}, process="p") is None
    claimed = calls.answer(made, second.pk, {"result": 2}, process="p")
    assert claimed.known == {"d1": {"result": 1}, "d2": {"result": 2}} and claimed.fence == 2


def test_empty_answer_resumes_the_call_without_a_value():
    made, _, _ = parked_call(question := ask())
    claimed = calls.answer(made, question.pk, None, process="p")
    assert claimed.known == {} and claimed.state == RUNNING


@pytest.mark.parametrize("id", ["", "a", "A" * 32, "g" * 32, "0" * 32, "0" * 31 + "\0", "é" * 32])
def test_answer_to_an_unknown_question_is_ignored(id):
    made, _, _ = parked_call(ask())
    assert calls.answer(made, id, {"result": 1}, process="p") is None


def test_repeated_answer_is_ignored():
    one_ask, two_ask = ask("d1"), ask("d2")
    made, _, _ = parked_call(one_ask, two_ask)
    calls.answer(made, one_ask.pk, {"result": 1}, process="p")
    assert calls.answer(made, one_ask.pk, {"result": 2}, process="p") is None
    assert (
        calls.open_question(made, one_ask.pk) is None
        and calls.open_question(made, two_ask.pk) == two_ask
    )
    assert calls.answer(made, two_ask.pk, {}, process="p").known["d1"] == {"result": 1}


def test_question_cannot_be_answered_by_another_session():
    made, _, _ = parked_call(question := ask())
    assert calls.open_question(session(), question.pk) is None
    assert calls.answer(session(), question.pk, {"result": 1}, process="p") is None
    assert calls.open_question(made, question.pk) == question


def test_answer_after_cancellation_is_ignored():
    made, _, _ = parked_call(question := ask())
    calls.cancel(made, "1")
    assert calls.answer(made, question.pk, {"result": 1}, process="p") is None


# Deadlines.


def test_unanswered_question_times_out():
    late, open_ask = ask("d1", 5), ask("d2", 50)
    _, stream, one = parked_call(late, open_ask)
    now = timezone.now()
    assert calls.time_out_questions(now, "p") == []
    (found,) = calls.time_out_questions(now + timedelta(seconds=10), "p")
    assert found == (stream.pk, [late.pk], None) and refreshed(one).state == PARKED
    assert calls.time_out_questions(now + timedelta(seconds=10), "p") == []
    (found,) = calls.time_out_questions(now + timedelta(seconds=60), "p")
    assert found.asks == [open_ask.pk] and found.call == one
    assert found.call.known == {"d1": {"timeout": 5.0}, "d2": {"timeout": 50.0}}
    assert (refreshed(one).state, one.process, one.fence) == (RUNNING, "p", 1)
    assert calls.time_out_questions(now + timedelta(seconds=60), "p") == []


def test_timed_out_question_is_withdrawn_once_in_the_same_transaction():
    made, stream, _ = parked_call(late := ask("d1", 5), ask("d2", 50))
    told, later = [], timezone.now() + timedelta(seconds=10)

    def words(session, asks):
        told.append((session, asks))
        return [f"{len(told)}: no longer"]

    calls.time_out_questions(later, "p", words)
    calls.time_out_questions(later, "p", words)
    assert told == [(made, [late.pk])]
    assert event_log.read(stream.pk, 0)[-1] == (refreshed(stream).last, "1: no longer")


def test_failed_withdrawal_leaves_only_its_own_question_open(caplog):
    made, _, _ = parked_call(failing := ask("d1", 5))
    _, _, one = parked_call(later := ask("d2", 6))

    def words(session, asks):
        return [1 / 0] if session == made else []

    (found,) = calls.time_out_questions(timezone.now() + timedelta(seconds=10), "p", words)
    assert (found.asks, found.call) == ([later.pk], one)
    assert refreshed(failing).open and "Question could not be timed out: call=" in caplog.text


def test_outage_ends_the_search_for_overdue_questions():
    """The poll fails and is repeated. Each further call would wait for the database."""
    parked_call(ask("d1", 5))

    def away(session, asks):
        raise OperationalError("gone")

    with pytest.raises(OperationalError):
        calls.time_out_questions(timezone.now() + timedelta(seconds=10), "p", away)


def test_answer_to_a_timed_out_question_is_ignored():
    made, _, _ = parked_call(late := ask("d1", 5))
    calls.time_out_questions(timezone.now() + timedelta(seconds=10), "p")
    assert calls.answer(made, late.pk, {"result": 1}, process="p2") is None


# Cancelling.


def test_cancel_ends_a_running_call_and_closes_its_stream():
    made, stream, one = started_call(params={"secret": 1})
    assert calls.cancel(made, "1") == one
    assert (refreshed(one).state, one.cancelled, one.params) == (DONE, True, {})
    assert refreshed(stream).closed and stream.ended and messages_of(stream) == []
    assert calls.not_running("mine", [one.pk]) == {one.pk}
    assert is_cancelled(made, "1") and not is_cancelled(made, '"1"')
    assert calls.cancel(made, "1") is None and Call.objects.count() == 1


def test_cancel_withdraws_open_questions():
    made, stream, one = parked_call(open_ask := ask("d1"), answered := ask("d2"))
    calls.answer(made, answered.pk, {"result": 1}, process="p")
    before = messages_of(stream)
    found = calls.cancel(
        made, "1", encode_withdrawals=lambda session, asks: [f"{session.pk}: {asks}"]
    )
    assert found == one and not Ask.objects.exists() and refreshed(stream).closed
    assert messages_of(stream) == [*before, f"{made.pk}: {[open_ask.pk]}"]


def test_cancel_in_a_batch_leaves_other_calls_running():
    made = session()
    stream = streams.open(made, calls=[call(1), two := call(2)])
    assert calls.cancel(made, "1")
    assert not refreshed(stream).closed and stream.pending_responses == 1
    assert event_log.finish(two.pk, 0, "{}", stream.pk) and refreshed(stream).closed


def test_cancel_after_the_response_does_nothing():
    made, stream, one = started_call()
    event_log.finish(one.pk, 0, "{}", stream.pk)
    assert calls.cancel(made, "1") is None
    assert not refreshed(one).cancelled and not is_cancelled(made, "1")
    assert Call.objects.count() == 1


def test_cancel_before_the_call_is_stored_is_kept():
    made = session()
    assert calls.cancel(made, '"\\u0000"') is None and is_cancelled(made, '"\\u0000"')
    assert calls.cancel(made, '"\\u0000"') is None and Call.objects.count() == 1
    assert not is_cancelled(session(), '"\\u0000"')


def test_repeated_cancel_restarts_its_lifetime():
    made, early = session(), call()
    calls.cancel(made, "1")
    Call.objects.update(created=databases.now() - timedelta(minutes=1))
    calls.cancel(made, "1")
    streams.open(made, calls=[early])
    assert early.cancelled


def test_expired_cancels_are_deleted_with_the_next_cancel():
    made = session()
    calls.cancel(made, "1")
    Call.objects.update(created=databases.now() - 2 * cancel_lifetime())
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


def test_cancels_without_a_call_are_limited_per_session(monkeypatch):
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


def test_request_ids_of_any_length_are_distinguished():
    made = session()
    long = '"' + "x" * 5000 + '"'
    stream = streams.open(made, calls=[call("x" * 5000), call("x" * 4999 + "y")])
    assert calls.requests(stream.pk)[0] == long
    assert calls.cancel(made, long).request_id == long and not refreshed(stream).closed


# What a process must stop.


def test_not_running_returns_calls_that_the_process_must_stop():
    made, _, kept = started_call()
    _, _, fenced = started_call(made, id=2)
    _, _, gone = started_call()
    other = session()
    _, _, of_other = started_call(other, id=3)
    calls.cancel(made, "2")
    sessions.end(other)
    Call.objects.filter(pk=gone.pk).update(process="taken", fence=1)
    ids = [kept.pk, fenced.pk, gone.pk, of_other.pk]
    with queries() as done:
        assert calls.not_running("mine", ids) == set(ids) - {kept.pk}
    assert len(done()) == 1 and calls.not_running("mine", []) == set()


# Taking over.


def test_running_calls_of_a_dead_process_are_taken_over():
    leases.begin("mine")
    leases.begin("alive")
    made, stream, one = started_call(process="dead")
    _, _, alive = started_call(made, id=2, process="alive")
    _, _, cancelled = started_call(made, id=3, process="dead")
    calls.cancel(made, "3")
    (taken,) = calls.take_over_orphans("mine")
    assert taken == one and (taken.fence, taken.runs, taken.process) == (1, 1, "mine")
    assert (refreshed(one).fence, one.runs, one.process, one.state) == (1, 1, "mine", RUNNING)
    assert refreshed(alive).process == "alive" and refreshed(cancelled).state == DONE
    assert calls.take_over_orphans("mine") == []
    assert not event_log.finish(one.pk, 0, "{}", stream.pk)
    assert event_log.finish(one.pk, 1, "{}", stream.pk)


def test_calls_of_former_ids_are_no_orphans():
    _, _, one = started_call(process="former")
    assert calls.take_over_orphans("mine", ["older", "former"]) == [] and refreshed(one).fence == 0
    assert calls.take_over_orphans("mine", ["older"]) == [one]


def test_claimed_returns_own_calls_that_are_not_known():
    made, _, known = started_call()
    _, _, unknown = started_call(made, id=2)
    assert calls.claimed("mine", [known.pk]) == [unknown]
    assert calls.claimed("new", [known.pk], ["mine", "older"]) == [known, unknown]
    assert refreshed(known).fence == refreshed(unknown).fence == refreshed(unknown).runs == 0


def test_takeover_is_done_in_batches(monkeypatch):
    monkeypatch.setattr(calls, "CALLS_PER_POLL", 2)
    leases.begin("mine")
    made = session()
    for id in range(3):
        started_call(made, id=id, process="dead")
    assert [len(calls.take_over_orphans("mine")) for _ in range(3)] == [2, 1, 0]


# At once.


@pytest.mark.django_db(transaction=True)
def test_one_of_two_concurrent_last_answers_claims_the_call():
    for _ in range(10):
        one_ask, two_ask = ask("d1"), ask("d2")
        made, _, _ = parked_call(one_ask, two_ask)
        claims = together(
            lambda made=made, id=one_ask.pk: calls.answer(made, id, {"n": 1}, process="a"),
            lambda made=made, id=two_ask.pk: calls.answer(made, id, {"n": 2}, process="b"),
        )
        (claimed,) = [claim for claim in claims if claim]
        assert claimed.known == {"d1": {"n": 1}, "d2": {"n": 2}} and claimed.fence == 1
        assert refreshed(claimed).process == ("a" if claims[0] else "b")


@pytest.mark.django_db(transaction=True)
def test_one_of_several_concurrent_answers_to_a_question_counts():
    for _ in range(5):
        made, _, _ = parked_call(question := ask("d"))
        claims = together(
            *[
                lambda n=n, made=made, id=question.pk: calls.answer(made, id, {"n": n}, process="p")
                for n in range(3)
            ]
        )
        (number,) = [n for n, claim in enumerate(claims) if claim]
        assert claims[number].known == {"d": {"n": number}}


@pytest.mark.django_db(transaction=True)
def test_concurrent_answer_timeout_and_cancel_claim_the_call_at_most_once():
    for _ in range(10):
        made, stream, one = parked_call(question := ask("d", -1))
        answered, (*timed_out,), cancelled = together(
            lambda made=made, id=question.pk: calls.answer(made, id, {"n": 1}, process="a"),
            lambda: calls.time_out_questions(timezone.now(), "b"),
            lambda made=made: calls.cancel(made, "1"),
        )
        claims = [answered, *(found.call for found in timed_out)]
        assert len([claim for claim in claims if claim]) <= 1
        assert cancelled is not None and refreshed(one).cancelled and refreshed(stream).closed
        assert not Ask.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_each_orphaned_call_is_taken_over_by_one_process():
    made = session()
    for name in "abc":
        leases.begin(name)
    for id in range(4):
        started_call(made, id=id, process="dead")
    heirs = together(*[lambda name=name: calls.take_over_orphans(name) for name in "abc"])
    taken = [call.pk for each in heirs for call in each]
    assert sorted(taken) == sorted(Call.objects.values_list("pk", flat=True))
    assert set(Call.objects.values_list("fence", flat=True)) == {1}
