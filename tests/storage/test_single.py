"""Sessions of one stream: calls on it, room for them, and commits of which nobody knows."""

from __future__ import annotations

import json
from datetime import timedelta
from functools import partial

import pytest
from django.utils import timezone

from django_mcp.exceptions import Busy
from django_mcp.models import DONE, ENDLESS, PARKED, RUNNING, Call, Event, Session, Stream
from django_mcp.storage import calls, event_log, retention, sessions, streams
from django_mcp.storage import streams as single
from django_mcp.storage.event_log import FULL

from .rows import announced, ask, call, given, queries, together

pytestmark = pytest.mark.django_db
TOLD = {"revision": "2025-06-18", "client_info": {"name": "x"}, "capabilities": {}}
HOUR = timedelta(hours=1, minutes=1)


@pytest.fixture
def session() -> Session:
    return opened()


def opened(**owner) -> Session:
    who = {"server": "default", "owner": "alice", "user": "1", "scopes": None}
    return single.begin_only_stream(sessions.new_id(), **(who | owner))


def stream() -> Stream:
    return Stream.objects.get()


def entered(session, *ids, finals=(), **options) -> list[Call]:
    made = [call(id) for id in ids]
    single.enter_only_stream(session, made, finals, **options)
    return made


def said() -> list[tuple[int, str]]:
    return list(Event.objects.order_by("seq").values_list("seq", "data"))


def test_a_session_begins_with_its_stream():
    id = sessions.new_id()
    made = single.begin_only_stream(id, server="default", owner="alice", user="1", scopes=["a"])
    assert sessions.find(id) == made and made.current == stream().pk
    assert (stream().pending_responses, stream().standalone, made.transport) == (
        ENDLESS,
        True,
        "sse",
    )
    assert (
        single.begin_only_stream(id, server="default", owner="alice", user="1", again=True) == made
    )
    assert Session.objects.count() == Stream.objects.count() == 1


def test_a_session_of_which_only_half_was_begun_gets_its_stream():
    id = sessions.new_id()
    half = {"server": "default", "owner": "", "user": None, "revision": ""}
    sessions.create(id=id, transport="sse", client_info={}, capabilities={}, **half)
    made = single.begin_only_stream(id, server="default", owner="", user=None, again=True)
    assert made.current == stream().pk and Session.objects.count() == 1


def test_a_session_is_introduced_once(session):
    assert single.introduce(session, "hello", TOLD, "n1")
    assert not single.introduce(session, "again", TOLD, "n2")
    session.refresh_from_db()
    assert session.revision == "2025-06-18" and said() == [(1, "hello")]
    assert single.introduce(session, "hello", TOLD, "n1", again=True)
    assert not single.introduce(session, "other", TOLD, "n3", again=True)
    assert said() == [(1, "hello")]


def test_calls_are_answered_on_it_and_it_never_closes(session):
    one, two = entered(session, 1, 2, finals=["refused"])
    assert event_log.finish(one.pk, 0, "1", stream().pk)
    calls.cancel(session, "2")
    (three,) = entered(session, 3)
    assert calls.park(three.pk, 0, [ask()], ["q"], known={}, high_water=None, rounds=1)
    assert said() == [(1, "refused"), (2, "1"), (3, "q")]
    assert not stream().closed and stream().pending_responses == ENDLESS - 2
    assert calls.are_running(stream().pk) is False
    entered(session, 4)
    assert calls.are_running(stream().pk) is True


def test_a_call_that_was_cancelled_before_is_owed_nothing(session):
    one = call(1)
    calls.cancel(session, "1")
    single.enter_only_stream(session, [one])
    assert one.cancelled and one.state == DONE and stream().pending_responses == ENDLESS - 1


def test_of_an_unknown_commit_the_calls_are_found_again(session):
    made = [call(1), call(2)]
    at = single.enter_only_stream(session, made, ["said"], "n1")
    before = [one.pk for one in made]
    for one in made:
        one.pk = None
    assert single.enter_only_stream(session, made, ["said"], "n1", again=True) == at
    assert [one.pk for one in made] == before and said() == [(1, "said")]
    # The same requests in another POST do not run again, also after their responses.
    Call.objects.update(state=DONE)
    with pytest.raises(single.DuplicateRequest):
        single.enter_only_stream(session, [call(1), call(2)], (), "n2", again=True)
    assert Call.objects.count() == 2


@pytest.mark.parametrize("state", [RUNNING, PARKED, DONE])
def test_of_an_unknown_commit_calls_are_found_that_were_taken_over_since(session, state):
    """The log was away for longer than a lease: it has another name, and others its calls."""
    made = [call(1, process="before")]
    single.enter_only_stream(session, made, (), "n1")
    Call.objects.update(process="taker", fence=1, state=state)
    made[0].process = "after"
    single.enter_only_stream(session, made, (), "n1", again=True)
    assert Call.objects.count() == 1 and made[0].state == DONE and made[0].fence == 0


def test_of_an_unknown_commit_what_is_only_said_is_found_again(session):
    single.enter_only_stream(session, (), ["said"], "n1")
    single.enter_only_stream(session, (), ["said"], "n1", again=True)
    assert said() == [(1, "said")]
    single.enter_only_stream(session, (), ["said"], "n2", again=True)
    assert said() == [(1, "said"), (2, "said")]


def test_a_cancelled_call_is_found_again_as_such(session):
    made = [call(1)]
    single.enter_only_stream(session, made)
    calls.cancel(session, "1")
    single.enter_only_stream(session, made, again=True)
    assert made[0].cancelled and Call.objects.count() == 1


def test_in_a_session_that_has_ended_nothing_is_entered(session):
    sessions.end(session)
    with pytest.raises(sessions.SessionEnded):
        entered(session, 1)
    assert not single.introduce(session, "hello", TOLD, "n")


def test_entering_a_call_is_few_statements(session):
    with queries() as done:
        entered(session, 1)
    # session's lock, early cancels, room, end of the stream, the call
    assert len([one for one in done() if "SAVEPOINT" not in one]) == 5


# Room.


def test_there_is_room_for_every_answer_that_is_owed(session):
    with given(EVENTS=3):
        entered(session, 1, finals=["a", "b"])
        with pytest.raises(Busy):
            entered(session, 2, 3)
        with pytest.raises(Busy):
            entered(session, finals=["c", "d"])
        assert Call.objects.count() == 1 and len(said()) == 2


def test_bytes_are_bounded_too(session):
    with given(RESULT_SIZE=10):
        entered(session, finals=["x" * 90])
        with pytest.raises(Busy):
            entered(session, finals=["x" * 20])


def test_what_is_forgotten_makes_room(session):
    with given(EVENTS=4):
        entered(session, finals=["1", "2", "3", "4"])
        assert event_log.append(stream().pk, ["5"]) == FULL
        retention.prune(now=timezone.now() + HOUR)
        assert event_log.append(stream().pk, ["5", "6"]) == 6
        entered(session, 1)
    assert said() == [(5, "5"), (6, "6")] and stream().size == 2


def test_the_beginning_is_forgotten_and_never_the_middle(session):
    entered(session, finals=[str(n) for n in range(1, 1_301)])
    old = timezone.now() - HOUR
    Event.objects.filter(seq__in=[*range(1, 1_201), 1_250]).update(created=old)
    assert retention.prune()["events"] == 1_200
    assert [seq for seq, _ in said()] == list(range(1_201, 1_301))
    assert (stream().first, stream().size) == (1_201, 4 * 100)
    assert retention.prune()["events"] == 0


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("shared_db")
def test_two_who_forget_at_once_forget_once():
    session = opened()
    entered(session, finals=["ab"] * 1_200)
    one = entered(session, 1)[0]
    calls.cancel(session, "1")
    Call.objects.filter(pk=one.pk).update(created=timezone.now() - timedelta(days=2))
    now = timezone.now() + HOUR
    counts = together(partial(retention.prune, now=now), partial(retention.prune, now=now))
    assert sum(one["events"] for one in counts) == 1_200
    assert sum(one["calls"] for one in counts) == 1
    assert (stream().size, stream().first, stream().pending_responses) == (0, 1_201, ENDLESS)


def test_calls_are_forgotten_after_a_day_and_those_that_run_never(session):
    entered(session, *range(1, 6))
    for id in (1, 2):
        calls.cancel(session, json.dumps(id))
    Call.objects.exclude(request_id="2").update(created=timezone.now() - timedelta(days=2))
    assert retention.prune()["calls"] == 1
    assert Call.objects.count() == 4 and stream().pending_responses == ENDLESS - 1


def test_an_idle_session_goes_with_all_it_has(session):
    entered(session, finals=["said"])
    counts = retention.prune(now=timezone.now() + timedelta(days=2))
    assert counts["sessions"] == 1 and not Stream.objects.exists() and not Event.objects.exists()


# News.


def test_news_that_find_no_room_are_told_to_the_next_connection(session):
    with given(EVENTS=2):
        entered(session, finals=["1", "2"])
        assert announced(session.pk, "news", "tools") is None
        assert announced(session.pk, "news", "tools") is None
        row = Session.objects.get()
        assert (row.current, row.pending_changes) == (
            stream().pk,
            ["tools"],
        ) and not stream().closed
        retention.prune(now=timezone.now() + HOUR)
        assert streams.take(session, stream().pk, lambda marks: [f"told {marks[0]}"])
    assert said() == [(3, "told tools")] and Session.objects.get().pending_changes == []
