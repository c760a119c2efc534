"""Turns: one process tells a page, and whoever goes on tells nobody twice."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_mcp.models import BroadcastCursor, Event, Session, Subscription
from django_mcp.storage import change_log, databases, leases, sessions, streams

from .rows import session, together

pytestmark = pytest.mark.django_db
NAME = "default"


def standing() -> BroadcastCursor:
    return change_log.cursor_of(NAME, 0)


def taken(process: str = "a", until: int = 5):
    return change_log.claim(standing(), until, process)


@pytest.fixture
def told():
    """Sessions with a stream each, and what was said on them."""
    made = [session(), session(), session()]
    found = [streams.open(one, standalone=True) for one in made]

    def said():
        events = [Event.objects.filter(stream=one).order_by("seq") for one in found]
        return [list(one.values_list("data", flat=True)) for one in events]

    return [one.pk for one in made], said


def news(*ids, text="x"):
    return {id: [(text, f"uri:{text}")] for id in ids}


def test_a_page_is_told_by_one():
    leases.begin("a")
    turn = taken("a")
    assert turn == (NAME, 1, 0, 5, 0)
    assert taken("b") is None
    assert taken("a", 9).until == 5  # its own, again
    leases.end("a")
    assert taken("b", 9) == (NAME, 3, 0, 5, 0)


def test_a_process_continues_the_page_of_its_former_id():
    leases.begin("former")
    taken("former")
    assert taken("new") is None
    found = change_log.claim(standing(), 9, "new", ("older", "former"))
    assert found == (NAME, 2, 0, 5, 0) and standing().holder == "new"


def test_how_far_it_came_is_written_with_what_was_told(told):
    ids, said = told
    turn = taken()
    assert len(change_log.deliver(turn, news(*ids[:2]))) == 2
    assert standing().notified == ids[1] and standing().seq == 0
    change_log.deliver(turn, news(ids[2]), over=True)
    assert (standing().notified, standing().seq) == (0, 5) and said() == [["x"]] * 3
    assert taken("b", 7).after == 5


def test_who_goes_on_tells_nobody_twice(told):
    ids, said = told
    turn = taken("a")
    change_log.deliver(turn, news(ids[0]))
    other = taken("b")
    assert other.notified == ids[0]
    for over in (False, True):
        with pytest.raises(change_log.ClaimLost):
            change_log.deliver(turn, news(*ids[1:]), over=over)
    change_log.deliver(other, news(*ids[1:]), over=True)
    assert said() == [["x"]] * 3


def test_a_commit_of_which_nobody_knows_is_not_repeated(told):
    ids, said = told
    turn = taken()
    change_log.deliver(turn, news(ids[0]), again=True)
    assert change_log.deliver(turn, news(ids[0]), again=True) == []
    change_log.deliver(turn, news(ids[1]), over=True)
    assert change_log.deliver(turn, news(ids[1]), over=True, again=True) == []
    assert said() == [["x"], ["x"], []]
    with pytest.raises(change_log.ClaimLost):
        change_log.deliver(turn._replace(claim=7), news(ids[2]), again=True)


def test_a_page_that_concerns_nobody_is_over_too():
    assert change_log.deliver(taken(), {}, over=True) == [] and standing().seq == 5


def test_what_is_seen_now_is_kept_in_the_same_transaction(told):
    ids, said = told
    sessions.subscribe(Session.objects.get(pk=ids[0]), "a://b", "shop.tag 1")
    one = Subscription.objects.get()
    turn = taken()
    change_log.deliver(turn, news(ids[0]), [(one.pk, False, "shop.tag 2")], over=True)
    one.refresh_from_db()
    assert (one.visible, one.place) == (False, "shop.tag 2")
    with pytest.raises(change_log.ClaimLost):
        change_log.deliver(turn, {}, [(one.pk, True, "")], over=True)
    one.refresh_from_db()
    assert not one.visible


def test_it_is_time_for_one_of_all_who_ask(monkeypatch):
    assert [change_log.is_due("x", 3600.0) for _ in range(3)] == [True, False, False]
    ahead = databases.now() + timedelta(seconds=3601)
    monkeypatch.setattr(databases, "now", lambda: ahead)
    assert [change_log.is_due("x", 3600.0) for _ in range(2)] == [True, False]
    monkeypatch.undo()
    assert change_log.is_due("x", 3600.0)  # a clock was put back


@pytest.mark.django_db(transaction=True)
def test_of_many_who_want_a_turn_one_has_it(shared_db):
    leases.begin("a")
    found = standing()
    turns = together(*[lambda: change_log.claim(found, 5, "a")] * 4)
    assert len([one for one in turns if one is not None]) == 1
