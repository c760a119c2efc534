"""Sessions with a single stream (HTTP+SSE): calls, capacity, and commits with unknown outcome."""

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
from django_mcp.storage.databases import one_transaction
from django_mcp.storage.event_log import FULL

from .rows import announced, ask, call, given, queries, together

pytestmark = pytest.mark.django_db
CLIENT_VALUES = {"revision": "2025-06-18", "client_info": {"name": "x"}, "capabilities": {}}
HOUR = timedelta(hours=1, minutes=1)


@pytest.fixture
def session() -> Session:
    return opened()


def opened(**owner) -> Session:
    who = {"server": "default", "owner": "alice", "user": "1", "scopes": None}
    return single.begin_only_stream(sessions.new_id(), **(who | owner))


def stream() -> Stream:
    return Stream.objects.get()


def enter(session, *ids, finals=(), **options) -> list[Call]:
    made = [call(id) for id in ids]
    single.enter_only_stream(session, made, finals, **options)
    return made


def events() -> list[tuple[int, str]]:
    return list(Event.objects.order_by("seq").values_list("seq", "data"))


def test_session_is_created_with_its_stream():
    id = sessions.new_id()
    made = single.begin_only_stream(id, server="default", owner="alice", user="1", scopes=["a"])
    assert sessions.find(id) == made and made.current == stream().pk
    assert (stream().pending_responses, stream().standalone, made.transport) == (
        ENDLESS,
        True,
        "sse",
    )
    assert (
        single.begin_only_stream(id, server="default", owner="alice", user="1", is_retry=True)
        == made
    )
    assert Session.objects.count() == Stream.objects.count() == 1


def test_partly_created_session_gets_its_stream():
    id = sessions.new_id()
    half = {"server": "default", "owner": "", "user": None, "revision": ""}
    sessions.create(id=id, transport="sse", client_info={}, capabilities={}, **half)
    made = single.begin_only_stream(id, server="default", owner="", user=None, is_retry=True)
    assert made.current == stream().pk and Session.objects.count() == 1


def test_session_is_initialized_once(session):
    assert single.introduce(session, "hello", CLIENT_VALUES, "n1")
    assert not single.introduce(session, "again", CLIENT_VALUES, "n2")
    session.refresh_from_db()
    assert session.revision == "2025-06-18" and events() == [(1, "hello")]
    assert single.introduce(session, "hello", CLIENT_VALUES, "n1", is_retry=True)
    assert not single.introduce(session, "other", CLIENT_VALUES, "n3", is_retry=True)
    assert events() == [(1, "hello")]


def test_responses_are_appended_and_the_stream_never_closes(session):
    one, two = enter(session, 1, 2, finals=["refused"])
    assert event_log.finish(one.pk, 0, "1", stream().pk)
    calls.cancel(session, "2")
    (three,) = enter(session, 3)
    assert calls.park(three.pk, 0, [ask()], ["q"], known={}, high_water=None, rounds=1)
    assert events() == [(1, "refused"), (2, "1"), (3, "q")]
    assert not stream().closed and stream().pending_responses == ENDLESS - 2
    assert calls.are_running(stream().pk) is False
    enter(session, 4)
    assert calls.are_running(stream().pk) is True


def test_call_cancelled_before_it_was_stored_gets_no_response(session):
    one = call(1)
    calls.cancel(session, "1")
    single.enter_only_stream(session, [one])
    assert one.cancelled and one.state == DONE and stream().pending_responses == ENDLESS - 1


def test_retry_after_an_unknown_commit_finds_the_calls(session):
    made = [call(1), call(2)]
    at = single.enter_only_stream(session, made, ["said"], "n1")
    before = [one.pk for one in made]
    for one in made:
        one.pk = None
    assert single.enter_only_stream(session, made, ["said"], "n1", is_retry=True) == at
    assert [one.pk for one in made] == before and events() == [(1, "said")]
    # The same requests in another POST do not run again, also after their responses.
    Call.objects.update(state=DONE)
    with pytest.raises(single.DuplicateRequest):
        single.enter_only_stream(session, [call(1), call(2)], (), "n2", is_retry=True)
    assert Call.objects.count() == 2


@pytest.mark.parametrize("state", [RUNNING, PARKED, DONE])
def test_retry_after_an_unknown_commit_finds_calls_taken_over_meanwhile(session, state):
    """The outage was longer than a lease: the process has a new id, others have its calls."""
    made = [call(1, process="before")]
    single.enter_only_stream(session, made, (), "n1")
    Call.objects.update(process="taker", fence=1, state=state)
    made[0].process = "after"
    single.enter_only_stream(session, made, (), "n1", is_retry=True)
    assert Call.objects.count() == 1 and made[0].state == DONE and made[0].fence == 0


def test_retry_after_an_unknown_commit_does_not_repeat_messages(session):
    single.enter_only_stream(session, (), ["said"], "n1")
    single.enter_only_stream(session, (), ["said"], "n1", is_retry=True)
    assert events() == [(1, "said")]
    single.enter_only_stream(session, (), ["said"], "n2", is_retry=True)
    assert events() == [(1, "said"), (2, "said")]


def test_retry_finds_a_call_cancelled_meanwhile(session):
    made = [call(1)]
    single.enter_only_stream(session, made)
    calls.cancel(session, "1")
    single.enter_only_stream(session, made, is_retry=True)
    assert made[0].cancelled and Call.objects.count() == 1


def test_ended_session_accepts_no_calls(session):
    sessions.end(session)
    with pytest.raises(sessions.SessionEnded):
        enter(session, 1)
    assert not single.introduce(session, "hello", CLIENT_VALUES, "n")


def test_entering_a_call_takes_five_statements(session):
    with queries() as done:
        enter(session, 1)
    # session's lock, early cancels, room, end of the stream, the call
    assert len([one for one in done() if "SAVEPOINT" not in one]) == 5


# Capacity.


def test_capacity_is_reserved_for_pending_responses(session):
    with given(EVENTS=3):
        enter(session, 1, finals=["a", "b"])
        with pytest.raises(Busy):
            enter(session, 2, 3)
        with pytest.raises(Busy):
            enter(session, finals=["c", "d"])
        assert Call.objects.count() == 1 and len(events()) == 2


def test_stream_is_limited_in_bytes(session):
    with given(RESULT_SIZE=10):
        enter(session, finals=["x" * 90])
        with pytest.raises(Busy):
            enter(session, finals=["x" * 20])


def test_pruning_frees_capacity(session):
    with given(EVENTS=4):
        enter(session, finals=["1", "2", "3", "4"])
        assert event_log.append(stream().pk, ["5"]) == FULL
        retention.prune(now=timezone.now() + HOUR)
        assert event_log.append(stream().pk, ["5", "6"]) == 6
        enter(session, 1)
    assert events() == [(5, "5"), (6, "6")] and stream().size == 2


def test_only_the_oldest_events_are_pruned(session):
    enter(session, finals=[str(n) for n in range(1, 1_301)])
    old = timezone.now() - HOUR
    Event.objects.filter(seq__in=[*range(1, 1_201), 1_250]).update(created=old)
    assert retention.prune()["events"] == 1_200
    assert [seq for seq, _ in events()] == list(range(1_201, 1_301))
    assert (stream().first, stream().size) == (1_201, 4 * 100)
    assert retention.prune()["events"] == 0


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("shared_db")
def test_concurrent_pruning_counts_each_row_once():
    session = opened()
    enter(session, finals=["ab"] * 1_200)
    one = enter(session, 1)[0]
    calls.cancel(session, "1")
    Call.objects.filter(pk=one.pk).update(created=timezone.now() - timedelta(days=2))
    now = timezone.now() + HOUR
    counts = together(partial(retention.prune, now=now), partial(retention.prune, now=now))
    assert sum(one["events"] for one in counts) == 1_200
    assert sum(one["calls"] for one in counts) == 1
    assert (stream().size, stream().first, stream().pending_responses) == (0, 1_201, ENDLESS)


def test_ended_calls_are_pruned_after_a_day_and_running_ones_kept(session):
    enter(session, *range(1, 6))
    for id in (1, 2):
        calls.cancel(session, json.dumps(id))
    Call.objects.exclude(request_id="2").update(created=timezone.now() - timedelta(days=2))
    assert retention.prune()["calls"] == 1
    assert Call.objects.count() == 4 and stream().pending_responses == ENDLESS - 1


def test_idle_session_is_deleted_with_its_stream(session):
    enter(session, finals=["said"])
    counts = retention.prune(now=timezone.now() + timedelta(days=2))
    assert counts["sessions"] == 1 and not Stream.objects.exists() and not Event.objects.exists()


# Notifications.


def test_notification_without_capacity_is_delivered_to_the_next_connection(session):
    with given(EVENTS=2):
        enter(session, finals=["1", "2"])
        assert announced(session.pk, "news", "tools") is None
        assert announced(session.pk, "news", "tools") is None
        row = Session.objects.get()
        assert (row.current, row.pending_changes) == (
            stream().pk,
            ["tools"],
        ) and not stream().closed
        retention.prune(now=timezone.now() + HOUR)
        assert streams.take(session, stream().pk, lambda marks: [f"told {marks[0]}"])
    assert events() == [(3, "told tools")] and Session.objects.get().pending_changes == []


def test_full_stream_stays_current_if_it_gets_two_notifications_at_once(session):
    with given(EVENTS=1):
        enter(session, finals=["1"])
        two = [("news", "tools"), ("more", "prompts")]
        assert one_transaction(streams.announce_in_transaction)({session.pk: two}) == []
    row = Session.objects.get()
    assert (row.current, row.pending_changes) == (stream().pk, ["tools", "prompts"])
