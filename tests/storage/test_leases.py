"""Leases: a process with a heartbeat is alive, one without is dead, and no clocks are compared."""

from __future__ import annotations

import threading
import time

import pytest
from django.db import OperationalError, connections
from django.db.backends.signals import connection_created

from django_mcp.conf import settings
from django_mcp.models import Process
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


# Heartbeats.


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_heartbeat_thread_increments_the_counter(lease, monkeypatch):
    monkeypatch.setattr(leases, "LEASE_SECONDS", 1.5)
    mine = lease.hold()
    assert lease.hold() == mine and list(counters()) == [mine]
    until(lambda: counters()[mine] >= 3)
    monkeypatch.setattr(leases, "LEASE_SECONDS", 60)  # the last heartbeat has just been stored
    assert not lease.is_doubtful
    lease.end()
    assert counters() == {} and not lease.is_doubtful


@pytest.mark.django_db(transaction=True)
def test_process_that_ends_while_holding_calls_is_marked_as_left(lease):
    mine = lease.hold()
    lease.end(holding=True)
    assert counters() == {mine: processes.LEFT} and HeartbeatObserver().dead(counters()) == [mine]


@pytest.mark.django_db(transaction=True)
def test_failed_leave_can_be_repeated(lease, monkeypatch):
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
def test_late_heartbeat_does_not_undo_leaving(lease):
    mine = lease.hold()
    processes.leave(mine)
    assert not processes.beat(mine) and counters() == {mine: processes.LEFT}


@pytest.mark.django_db(transaction=True)
def test_process_whose_row_was_deleted_gets_a_new_id(lease, monkeypatch):
    monkeypatch.setattr(leases, "LEASE_SECONDS", 0.06)
    mine = lease.hold()
    Process.objects.all().delete()
    until(lambda: not lease._id)
    assert lease.hold() != mine and len(counters()) == 1


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_process_without_heartbeat_is_doubtful_before_its_lease_expires(lease, monkeypatch):
    lease.hold()
    monkeypatch.setattr(leases, "LEASE_SECONDS", 4.5)
    monkeypatch.setattr(processes, "beat", broken)
    lease._ending.set()  # the running heartbeat sleeps for five seconds
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
def test_abandoned_lease_is_replaced_by_a_new_id(lease):
    mine = lease.hold()
    lease.abandon()
    assert not lease.is_doubtful and lease.hold() != mine
    assert mine in counters()  # others must see that it is dead


@pytest.mark.django_db
def test_no_heartbeat_thread_runs_in_a_transaction_of_a_test(lease):
    mine = lease.hold()
    assert lease._thread is None and not lease.is_doubtful and lease.hold() == mine


@pytest.mark.django_db
def test_forked_child_gets_its_own_lease(lease):
    """``Lease.forget`` is called in the child by ``os.register_at_fork``."""
    mine = lease.hold()
    lease.forget()
    assert lease._thread is None and lease.hold() != mine


@pytest.mark.django_db(transaction=True)
def test_doubtful_lease_cannot_be_held_until_it_is_abandoned(lease, monkeypatch):
    mine = lease.hold()
    lease._beaten_at -= leases.LEASE_SECONDS
    with pytest.raises(leases.LeaseDoubtful):
        lease.hold()
    stuck = lease._thread
    lease.abandon()
    assert lease.hold() != mine and lease._thread is not stuck
    until(lambda: not stuck.is_alive())


@pytest.mark.django_db(transaction=True)
def test_lease_time_counts_from_before_the_heartbeat_was_sent(lease, monkeypatch):
    lease.hold()
    beat = processes.beat
    monkeypatch.setattr(processes, "beat", lambda id: time.sleep(0.2) or beat(id))
    began = time.monotonic()
    assert lease._beat() and began <= lease._beaten_at < began + 0.2


@pytest.mark.django_db(transaction=True)
def test_late_heartbeat_of_an_abandoned_id_is_ignored(lease, monkeypatch):
    lease.hold()

    def given_up(id):
        lease.abandon()
        new.append(lease.hold())
        return False

    new: list[str] = []
    monkeypatch.setattr(processes, "beat", given_up)
    assert lease._beat() and lease.hold() == new[0]


@pytest.mark.parametrize("alive", [True, False])
@pytest.mark.django_db(transaction=True)
def test_late_heartbeat_does_not_change_a_lease_that_begins_meanwhile(lease, monkeypatch, alive):
    former, new = lease.hold(), []

    def replace():
        lease.abandon()
        new.append(lease.hold())

    replacing = threading.Thread(target=replace)

    class Checked(threading.Event):
        """The lease is replaced just after the heartbeat has seen that it was not."""

        def is_set(self):
            replacing.start()
            replacing.join(0.3)
            return False

    lease._ending.set()
    lease._ending = Checked()
    monkeypatch.setattr(processes, "begin", lambda id: None)
    monkeypatch.setattr(processes, "beat", lambda id: time.sleep(0.1) or alive)
    began = time.monotonic()
    assert lease._beat()
    replacing.join()
    assert lease.hold() == new[0] != former and lease._beaten_at >= began + 0.1


@pytest.mark.django_db(transaction=True)
def test_id_that_was_replaced_is_not_abandoned_again(lease):
    former = lease.hold()
    lease.abandon()
    mine = lease.hold()
    lease.abandon(only=former)
    assert lease.hold() == mine and lease.former == (former,)
    lease.abandon(only=mine)
    assert lease.hold() != mine and lease.former == (former, mine)


# Observing other processes.


def test_late_observation_does_not_prove_death(clock):
    observer = HeartbeatObserver()
    observer.dead({"a": 7})
    asked = clock[0] + leases.LEASE_SECONDS / 2
    clock[0] += leases.LEASE_SECONDS * 2  # this process was suspended meanwhile
    assert observer.dead({"a": 7}, asked) == []


def test_process_with_a_moving_counter_is_alive(clock):
    observer = HeartbeatObserver()
    for beat in range(10):
        assert observer.dead({"a": beat}) == []
        clock[0] += leases.LEASE_SECONDS / 3


def test_process_whose_counter_stops_for_a_lease_is_dead(clock):
    observer = HeartbeatObserver()
    assert observer.dead({"a": 7, "b": 1}) == []
    clock[0] += leases.LEASE_SECONDS - 0.01
    assert observer.dead({"a": 7, "b": 2}) == []
    clock[0] += 0.01
    assert observer.dead({"a": 7, "b": 2}) == ["a"]


def test_failed_observation_restarts_the_lease_time(clock):
    observer = HeartbeatObserver()
    observer.dead({"a": 7})
    clock[0] += leases.LEASE_SECONDS - 1
    observer.reset()
    clock[0] += 1
    assert observer.dead({"a": 7}) == []
    clock[0] += leases.LEASE_SECONDS
    assert observer.dead({"a": 7}) == ["a"]


def test_processes_without_a_row_are_forgotten(clock):
    observer = HeartbeatObserver()
    observer.dead({"a": 7})
    clock[0] += leases.LEASE_SECONDS
    assert observer.dead({}) == [] and observer.dead({"a": 7}) == []


# Rows of processes.


@pytest.mark.django_db
def test_counter_is_incremented_until_the_process_ends():
    leases.begin("a")
    leases.begin("b")
    assert leases.beats() == {"a": 0, "b": 0}
    assert leases.beat("a") and leases.beat("a") and leases.beats() == {"a": 2, "b": 0}
    leases.end("b")
    leases.end("b")
    assert leases.beats() == {"a": 2}


@pytest.mark.django_db
def test_heartbeat_of_an_ended_process_is_rejected():
    leases.begin("a")
    leases.end("a")
    assert not leases.beat("a") and leases.beats() == {}
