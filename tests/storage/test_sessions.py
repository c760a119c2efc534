"""Sessions: found by their secret id, limited in number, and deleted with all their rows."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import DatabaseError
from django.utils import timezone

from django_mcp.exceptions import Busy
from django_mcp.models import Ask, Call, Event, Session, Step, Stream, Subscription
from django_mcp.storage import calls, event_log, sessions, streams
from django_mcp.storage import calls as steps
from django_mcp.storage.databases import rows

from .rows import announced, ask, call, given, opened, queries, session, together

pytestmark = pytest.mark.django_db


def with_age(one: Session, **ages: timedelta) -> Session:
    rows(Session).filter(pk=one.pk).update(**{k: timezone.now() - age for k, age in ages.items()})
    return one


DAY = timedelta(days=1)


# Finding.


def test_session_is_found_by_its_id_in_one_query():
    id, made = opened(capabilities={"roots": {}}, client_info={"name": "a\0\ud800", "n": 10**30})
    with queries() as done:
        found = sessions.find(id)
    assert len(done()) == 1 and found == made
    assert found.capabilities == {"roots": {}} and found.owner == "alice"
    assert found.client_info == {"name": "a\0\ud800", "n": 10**30}


def test_session_row_does_not_contain_the_secret_id():
    id, made = opened()
    assert len(id) == 43 and id not in str(Session.objects.filter(pk=made.pk).values().get())


@pytest.mark.parametrize("id", ["", "a", "a" * 42, "a" * 44, "é" * 43, "a" * 43 + "\n", "\0" * 43])
def test_malformed_session_id_costs_no_query(id):
    with queries() as done:
        assert sessions.find(id) is None
    assert done() == []


def test_session_ids_are_case_sensitive():
    id, _ = opened()
    assert sessions.find("a" * 43) is None and sessions.find(id.swapcase()) is None


def test_idle_session_is_not_found():
    id, made = opened()
    with given(SESSION_LIFETIME=60):
        assert sessions.find(id)
        with_age(made, last_seen=timedelta(seconds=61))
        assert sessions.find(id) is None


def test_last_seen_is_updated_at_most_once_a_minute():
    id, made = opened()
    with_age(made, last_seen=timedelta(seconds=50))
    with queries() as done:
        sessions.find(id)
    assert len(done()) == 1
    with_age(made, last_seen=timedelta(seconds=70))
    found = sessions.find(id)
    assert timezone.now() - found.last_seen < timedelta(seconds=5)
    made.refresh_from_db()
    assert made.last_seen == found.last_seen


def test_failed_update_of_last_seen_is_logged_only(monkeypatch, caplog):
    id, made = opened()
    before = with_age(made, last_seen=timedelta(hours=1))

    class Broken:
        def update(self, **changes):
            raise DatabaseError("readonly")

    class Rows:
        def filter(self, **where):
            return Broken() if "pk" in where else rows(Session).filter(**where)

    monkeypatch.setattr(sessions, "rows", lambda model: Rows())
    monkeypatch.setattr(sessions, "unlocked", lambda found: found)
    assert sessions.find(id) == before
    assert "could not be updated" in caplog.text and id not in caplog.text


def test_seen_updates_sessions_with_an_open_connection():
    idle, connected = session(), session()
    for one in (idle, connected):
        with_age(one, last_seen=timedelta(hours=1))
    sessions.touch_connected([connected.pk])
    idle.refresh_from_db()
    connected.refresh_from_db()
    assert connected.last_seen - idle.last_seen > timedelta(minutes=59)


# Settling.


def test_session_stores_initialization_and_log_level():
    id, made = opened()
    assert not made.initialized and made.log_level == "info"
    sessions.initialize(made)
    sessions.set_log_level(made, "error")
    found = sessions.find(id)
    assert found.initialized and made.initialized
    assert found.log_level == made.log_level == "error"


def test_initialized_sessions_leave_out_idle_ones():
    ready, _, old, other = session(), session(), session(), session(server="other")
    for one in (ready, old, other):
        sessions.initialize(one)
    with_age(old, last_seen=2 * DAY)
    assert [one.session for one in sessions.initialized_sessions("default")] == [ready.pk]


# Bounds.


def test_number_of_sessions_is_limited_per_owner():
    with given(SESSIONS=2):
        opened(), opened()
        with pytest.raises(Busy, match="too many sessions"):
            opened()
        opened(owner="bob")


ANONYMOUS = {"owner": "", "user": None}


def test_anonymous_sessions_are_limited_per_network():
    with given(SESSIONS=2):
        for remote in ("2001:db8:1:1::5", "2001:db8:1:2::5"):
            opened(remote=remote, **ANONYMOUS)
        with pytest.raises(Busy, match="too many sessions"):
            opened(remote="2001:db8:1:3::5", **ANONYMOUS)
        for remote in ("2001:db8:2::5", "198.51.100.1", "198.51.100.2", ""):
            opened(remote=remote, **ANONYMOUS)


def test_sessions_of_a_user_are_limited_across_networks():
    with given(SESSIONS=2):
        opened(remote="198.51.100.1"), opened(remote="198.51.100.2")
        with pytest.raises(Busy):
            opened(remote="198.51.100.3")
    assert set(Session.objects.values_list("network", flat=True)) == {""}


def test_anonymous_session_replaces_only_sessions_of_its_network():
    with given(SESSIONS=1):
        other, same = (session(remote=f"198.51.100.{number}", **ANONYMOUS) for number in (1, 2))
        Session.objects.update(initialized=True)
        for one in (other, same):
            with_age(one, last_seen=timedelta(minutes=9))
        opened(remote="198.51.100.2", **ANONYMOUS)
    left = set(Session.objects.values_list("pk", flat=True))
    assert other.pk in left and same.pk not in left


def test_unfinished_and_idle_sessions_are_replaced():
    with given(SESSIONS=2):
        unfinished, idle = session(), session()
        sessions.initialize(idle)
        with_age(unfinished, created=timedelta(minutes=2))
        opened()
        with pytest.raises(Busy):
            opened()
        with_age(idle, last_seen=2 * DAY)
        opened()
    assert not {unfinished.pk, idle.pk} & set(Session.objects.values_list("pk", flat=True))


def test_least_recently_used_session_is_replaced():
    """Some clients open sessions without limit; a recently used session is never replaced."""
    with given(SESSIONS=2):
        longest, shorter = session(), session()
        for one, minutes in ((longest, 9), (shorter, 6)):
            sessions.initialize(one)
            with_age(one, last_seen=timedelta(minutes=minutes))
        opened()
        assert set(Session.objects.values_list("pk", flat=True)) & {longest.pk, shorter.pk} == {
            shorter.pk
        }
        opened()
        with pytest.raises(Busy):
            opened()


def test_session_with_a_running_call_is_not_replaced():
    with given(SESSIONS=2):
        asking, resting = session(), session()
        streams.open(asking, calls=[call()])
        for one, minutes in ((asking, 9), (resting, 6)):
            sessions.initialize(one)
            with_age(one, last_seen=timedelta(minutes=minutes))
        opened()
        left = set(Session.objects.values_list("pk", flat=True))
        assert asking.pk in left and resting.pk not in left


def test_uninitialized_session_is_kept_for_a_minute():
    with given(SESSIONS=1):
        with_age(session(), created=timedelta(seconds=50))
        with pytest.raises(Busy):
            opened()


# The end.


def test_ending_a_session_deletes_all_its_rows():
    id, made = opened()
    stream = streams.open(made, calls=[one := call()], messages=["{}"])
    calls.park(one.pk, 0, [ask()], ["{}"], known={}, high_water=None, rounds=1)
    steps.begin_step(f"c{one.pk}", "pay")
    calls.cancel(made, '"early"')
    sessions.subscribe(made, "a://b")
    streams.open(kept := session(), calls=[call()], messages=["{}"])
    assert sessions.end(made) and not sessions.end(made)
    assert sessions.find(id) is None
    left = {model: model.objects.count() for model in (Session, Stream, Event, Call, Ask, Step)}
    assert left == {Session: 1, Stream: 1, Event: 1, Call: 1, Ask: 0, Step: 0}
    assert Subscription.objects.count() == 0
    assert streams.states([stream.pk]) == {} and Stream.objects.get().session_id == kept.pk


def test_operations_on_an_ended_session_fail_or_do_nothing():
    made = session()
    stream = streams.open(made, standalone=True)
    sessions.end(made)
    for late in (
        lambda: streams.open(made),
        lambda: sessions.subscribe(made, "a://b"),
        lambda: sessions.unsubscribe(made, "a://b"),
    ):
        with pytest.raises(sessions.SessionEnded):
            late()
    assert streams.take(made, stream.pk) is None and streams.current(made) is None
    assert announced(made.pk, "{}", "tools") is None
    assert calls.cancel(made, "1") is None
    assert not Session.objects.exists() and not Call.objects.exists()


# Subscriptions.


def test_subscriptions_are_stored_per_session_and_uri():
    made, other = session(), session(server="other")
    uris = ["a://b", "A://b", "a://b ", "a://\0", "a://" + "é" * 400]
    for uri in uris:
        sessions.subscribe(made, uri)
        sessions.subscribe(made, uri)
    sessions.subscribe(other, "a://b")
    assert sessions.subscribed_uris(made) == uris
    assert sessions.subscriber_ids("default", "a://b") == [made.pk]
    assert sessions.subscriber_ids("default", "A://B") == []
    sessions.unsubscribe(made, "a://b")
    sessions.unsubscribe(made, "a://b")
    assert sessions.subscribed_uris(made) == uris[1:]
    assert sessions.subscriber_ids("other", "a://b") == [other.pk]
    made.refresh_from_db()
    assert made.subscriptions == len(uris) - 1


def test_idle_session_is_no_subscriber():
    sessions.subscribe(made := session(), "a://b")
    with_age(made, last_seen=2 * DAY)
    assert sessions.subscriber_ids("default", "a://b") == []


def test_number_of_subscriptions_is_limited(monkeypatch):
    monkeypatch.setattr(sessions, "MAX_SUBSCRIPTIONS_PER_SESSION", 2)
    made = session()
    for uri in ("a://1", "a://2", "a://2"):
        sessions.subscribe(made, uri)
    with pytest.raises(Busy, match="at most 2"):
        sessions.subscribe(made, "a://3")
    sessions.unsubscribe(made, "a://1")
    sessions.subscribe(made, "a://3")
    assert sessions.subscribed_uris(made) == ["a://2", "a://3"]


# Concurrency.


@pytest.mark.django_db(transaction=True)
def test_concurrent_ends_delete_the_session_once():
    for _ in range(5):
        made = session()
        stream = streams.open(made, calls=[one := call()])
        ended = together(
            lambda made=made: sessions.end(made),
            lambda made=made: sessions.end(made),
            lambda pk=stream.pk: [event_log.append(pk, ["{}"] * 3) for _ in range(10)],
            lambda one=one, pk=stream.pk: event_log.finish(one.pk, 0, "{}", pk),
            lambda made=made: calls.cancel(made, "1"),
        )
        assert ended[:2].count(True) == 1
        assert not (Session.objects.exists() or Event.objects.exists() or Call.objects.exists())


@pytest.mark.django_db(transaction=True)
def test_concurrent_subscriptions_to_a_uri_are_stored_once():
    made = session()
    together(*[lambda: sessions.subscribe(made, "a://b")] * 4)
    made.refresh_from_db()
    assert sessions.subscribed_uris(made) == ["a://b"] and made.subscriptions == 1
