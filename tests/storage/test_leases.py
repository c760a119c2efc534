"""Leases: who beats is alive, who does not is dead, and nobody compares clocks."""

from __future__ import annotations

import threading
import time

import pytest
from django.db import OperationalError, connections
from django.db.backends.signals import connection_created

from django_mcp.conf import settings
from django_mcp.models import Process
from django_mcp.runtime.runtime import environment
from django_mcp.storage import leases
from django_mcp.storage import leases as processes
from django_mcp.storage.leases import HeartbeatObserver, Lease


@pytest.fixture
def clock(monkeypatch):
    """A monotonic clock that the test sets."""
    now = [1000.0]

    class Clock:
        monotonic = staticmethod(lambda: now[0])

    monkeypatch.setattr(leases, "time", Clock)
    return now


@pytest.fixture
def lease():
    made = Lease()
    yield made
    made.end()


def until(condition, seconds=10):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.005)
    return found


def counters():
    return dict(Process.objects.values_list("pk", "beats"))


# Beating.


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_a_process_beats_on_its_own(lease, monkeypatch):
    monkeypatch.setattr(leases, "LEASE_SECONDS", 1.5)
    mine = lease.hold()
    assert lease.hold() == mine and list(counters()) == [mine]
    until(lambda: counters()[mine] >= 3)
    monkeypatch.setattr(leases, "LEASE_SECONDS", 60)  # the last beat is of just now
    assert not lease.is_doubtful
    lease.end()
    assert counters() == {} and not lease.is_doubtful


@pytest.mark.django_db(transaction=True)
def test_who_leaves_something_behind_says_so(lease):
    mine = lease.hold()
    lease.end(holding=True)
    assert counters() == {mine: processes.LEFT} and HeartbeatObserver().dead(counters()) == [mine]


@pytest.mark.django_db(transaction=True)
def test_what_could_not_be_said_in_leaving_is_said_again(lease, monkeypatch):
    mine, leave = lease.hold(), processes.leave
    errors = [OperationalError("database is locked")]

    def broken(id):
        if errors:
            raise errors.pop()
        leave(id)

    monkeypatch.setattr(processes, "leave", broken)
    with pytest.raises(OperationalError):
        lease.end(holding=True)
    lease.end(holding=True)
    assert counters() == {mine: processes.LEFT}


@pytest.mark.django_db(transaction=True)
def test_a_last_beat_does_not_take_back_that_it_ends(lease):
    mine = lease.hold()
    processes.leave(mine)
    assert not processes.beat(mine) and counters() == {mine: processes.LEFT}


@pytest.mark.django_db(transaction=True)
def test_who_was_taken_for_dead_begins_anew(lease, monkeypatch):
    monkeypatch.setattr(leases, "LEASE_SECONDS", 0.06)
    mine = lease.hold()
    Process.objects.all().delete()
    until(lambda: not lease._id)
    assert lease.hold() != mine and len(counters()) == 1


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_who_cannot_beat_is_in_doubt_before_others_think_so(lease, monkeypatch):
    lease.hold()
    monkeypatch.setattr(leases, "LEASE_SECONDS", 4.5)
    monkeypatch.setattr(processes, "beat", broken)
    lease._ending.set()  # the heartbeat that was begun waits for five seconds
    lease._thread.join()
    lease._start()
    began = time.monotonic()
    until(lambda: lease.is_doubtful)
    assert time.monotonic() - began < 4.5
    monkeypatch.undo()


@pytest.mark.django_db(transaction=True)
def test_heartbeat_keeps_its_connection(lease, monkeypatch):
    """With a pool ``CONN_MAX_AGE`` is 0; a heartbeat may not wait for a connection of the pool."""
    monkeypatch.setitem(connections.settings[settings.DATABASE], "CONN_MAX_AGE", 0)
    monkeypatch.setattr(leases, "LEASE_SECONDS", 0.06)
    opened = []

    def note(connection, **kwargs):
        if threading.current_thread().name == "mcp-heartbeat":
            opened.append(connection)

    connection_created.connect(note)
    mine = lease.hold()
    until(lambda: counters()[mine] > 5)
    lease.end()
    connection_created.disconnect(note)
    assert len(opened) == 1


def broken(*args):
    raise OperationalError("gone away")


@pytest.mark.django_db(transaction=True)
def test_what_was_abandoned_is_held_under_another_name(lease):
    mine = lease.hold()
    lease.abandon()
    assert not lease.is_doubtful and lease.hold() != mine
    assert mine in counters()  # for others to see that it is dead


@pytest.mark.django_db
def test_nothing_beats_in_the_midst_of_a_test(lease):
    assert not environment().has_background_services
    mine = lease.hold()
    assert lease._thread is None and not lease.is_doubtful and lease.hold() == mine
    Process.objects.all().delete()  # as the end of a test does
    assert lease.hold() != mine


@pytest.mark.django_db
def test_a_child_of_a_process_holds_nothing_of_it(lease):
    """What ``os.register_at_fork`` calls there."""
    mine = lease.hold()
    lease.forget()
    assert lease._thread is None and lease.hold() != mine


@pytest.mark.django_db(transaction=True)
def test_who_is_in_doubt_claims_nothing_until_it_has_another_name(lease, monkeypatch):
    mine = lease.hold()
    lease._beaten_at -= leases.LEASE_SECONDS
    with pytest.raises(leases.LeaseDoubtful):
        lease.hold()
    stuck = lease._thread
    lease.abandon()
    assert lease.hold() != mine and lease._thread is not stuck
    until(lambda: not stuck.is_alive())


@pytest.mark.django_db(transaction=True)
def test_a_beat_counts_from_before_it_was_sent(lease, monkeypatch):
    lease.hold()
    beat = processes.beat
    monkeypatch.setattr(processes, "beat", lambda id: time.sleep(0.2) or beat(id))
    began = time.monotonic()
    assert lease._beat() and began <= lease._beaten_at < began + 0.2


@pytest.mark.django_db(transaction=True)
def test_a_late_beat_under_a_name_that_was_given_up_means_nothing(lease, monkeypatch):
    lease.hold()

    def given_up(id):
        lease.abandon()
        new.append(lease.hold())
        return False

    new: list[str] = []
    monkeypatch.setattr(processes, "beat", given_up)
    assert lease._beat() and lease.hold() == new[0]


# Watching.


def test_an_answer_that_comes_late_proves_no_more(clock):
    observer = HeartbeatObserver()
    observer.dead({"a": 7})
    asked = clock[0] + leases.LEASE_SECONDS / 2
    clock[0] += leases.LEASE_SECONDS * 2  # this process stood still meanwhile
    assert observer.dead({"a": 7}, asked) == []


def test_a_counter_that_moves_is_a_life(clock):
    observer = HeartbeatObserver()
    for beat in range(10):
        assert observer.dead({"a": beat}) == []
        clock[0] += leases.LEASE_SECONDS / 3


def test_a_counter_that_stands_for_a_lease_is_none(clock):
    observer = HeartbeatObserver()
    assert observer.dead({"a": 7, "b": 1}) == []
    clock[0] += leases.LEASE_SECONDS - 0.01
    assert observer.dead({"a": 7, "b": 2}) == []
    clock[0] += 0.01
    assert observer.dead({"a": 7, "b": 2}) == ["a"]


def test_a_failed_look_proves_nothing(clock):
    observer = HeartbeatObserver()
    observer.dead({"a": 7})
    clock[0] += leases.LEASE_SECONDS - 1
    observer.reset()
    clock[0] += 1
    assert observer.dead({"a": 7}) == []
    clock[0] += leases.LEASE_SECONDS
    assert observer.dead({"a": 7}) == ["a"]


def test_who_is_gone_is_not_remembered(clock):
    observer = HeartbeatObserver()
    observer.dead({"a": 7})
    clock[0] += leases.LEASE_SECONDS
    assert observer.dead({}) == [] and observer.dead({"a": 7}) == []
