"""The broadcast cursor: one process delivers a page of changes, and each session gets it once."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_mcp.models import BroadcastCursor, Event, Session, Subscription
from django_mcp.storage import change_log, databases, leases, sessions, streams

from .rows import session, together

pytestmark = pytest.mark.django_db
NAME = "default"


def current_cursor() -> BroadcastCursor:
    return change_log.cursor_of(NAME, 0)


def claim(process: str = "a", until: int = 5):
    return change_log.claim(current_cursor(), until, process)


@pytest.fixture
def sessions_with_streams():
    """Return the ids of three sessions, and a function that returns the messages of each."""
    made = [session(), session(), session()]
    found = [streams.open(one, standalone=True) for one in made]

    def said():
        events = [Event.objects.filter(stream=one).order_by("seq") for one in found]
        return [list(one.values_list("data", flat=True)) for one in events]

    return [one.pk for one in made], said


def notifications(*ids, text="x"):
    return {id: [(text, f"uri:{text}")] for id in ids}


def test_page_is_claimed_by_one_process():
    leases.begin("a")
    turn = claim("a")
    assert turn == (NAME, 1, 0, 5, 0)
    assert claim("b") is None
    assert claim("a", 9).until == 5  # the same process again
    leases.end("a")
    assert claim("b", 9) == (NAME, 3, 0, 5, 0)


def test_process_continues_the_page_of_its_former_id():
    leases.begin("former")
    claim("former")
    assert claim("new") is None
    found = change_log.claim(current_cursor(), 9, "new", ("older", "former"))
    assert found == (NAME, 2, 0, 5, 0) and current_cursor().holder == "new"


def test_progress_is_stored_with_the_notifications(sessions_with_streams):
    ids, said = sessions_with_streams
    turn = claim()
    assert len(change_log.deliver(turn, notifications(*ids[:2]))) == 2
    assert current_cursor().notified == ids[1] and current_cursor().seq == 0
    change_log.deliver(turn, notifications(ids[2]), is_last_chunk=True)
    assert (current_cursor().notified, current_cursor().seq) == (0, 5) and said() == [["x"]] * 3
    assert claim("b", 7).after == 5


def test_takeover_of_a_page_notifies_no_session_twice(sessions_with_streams):
    ids, said = sessions_with_streams
    turn = claim("a")
    change_log.deliver(turn, notifications(ids[0]))
    other = claim("b")
    assert other.notified == ids[0]
    for is_last_chunk in (False, True):
        with pytest.raises(change_log.ClaimLost):
            change_log.deliver(turn, notifications(*ids[1:]), is_last_chunk=is_last_chunk)
    change_log.deliver(other, notifications(*ids[1:]), is_last_chunk=True)
    assert said() == [["x"]] * 3


def test_retry_after_an_unknown_commit_delivers_nothing_twice(sessions_with_streams):
    ids, said = sessions_with_streams
    turn = claim()
    change_log.deliver(turn, notifications(ids[0]), is_retry=True)
    assert change_log.deliver(turn, notifications(ids[0]), is_retry=True) == []
    change_log.deliver(turn, notifications(ids[1]), is_last_chunk=True)
    assert change_log.deliver(turn, notifications(ids[1]), is_last_chunk=True, is_retry=True) == []
    assert said() == [["x"], ["x"], []]
    with pytest.raises(change_log.ClaimLost):
        change_log.deliver(turn._replace(claim=7), notifications(ids[2]), is_retry=True)


def test_page_without_subscribers_advances_the_cursor():
    assert change_log.deliver(claim(), {}, is_last_chunk=True) == [] and current_cursor().seq == 5


def test_visibility_is_stored_in_the_transaction_of_the_delivery(sessions_with_streams):
    ids, said = sessions_with_streams
    sessions.subscribe(Session.objects.get(pk=ids[0]), "a://b", "shop.tag 1")
    one = Subscription.objects.get()
    turn = claim()
    change_log.deliver(
        turn, notifications(ids[0]), [(one.pk, False, "shop.tag 2")], is_last_chunk=True
    )
    one.refresh_from_db()
    assert (one.visible, one.row_ref) == (False, "shop.tag 2")
    with pytest.raises(change_log.ClaimLost):
        change_log.deliver(turn, {}, [(one.pk, True, "")], is_last_chunk=True)
    one.refresh_from_db()
    assert not one.visible


def test_periodic_work_is_due_for_one_process(monkeypatch):
    assert [change_log.restart_if_due("x", 3600.0) for _ in range(3)] == [True, False, False]
    ahead = databases.now() + timedelta(seconds=3601)
    monkeypatch.setattr(databases, "now", lambda: ahead)
    assert [change_log.restart_if_due("x", 3600.0) for _ in range(2)] == [True, False]
    monkeypatch.undo()
    assert change_log.restart_if_due("x", 3600.0)  # a clock was put back


@pytest.mark.django_db(transaction=True)
def test_page_is_claimed_by_one_of_several_threads(shared_db):
    leases.begin("a")
    found = current_cursor()
    turns = together(*[lambda: change_log.claim(found, 5, "a")] * 4)
    assert len([one for one in turns if one is not None]) == 1
