"""The poller: one look for all, as long as there is something to look for."""

from __future__ import annotations

import asyncio
import threading

import pytest
from django.db import OperationalError
from django.utils import timezone

from django_mcp.delivery import calls, leases, poller, processes, pruning, sessions, streams
from django_mcp.models import PARKED, RUNNING, Call, Session

from .loops import Reader, a_loop
from .rows import ask, call, queries, session

pytestmark = pytest.mark.django_db


class Runner:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.holding: set[int] = set()
        self.stopped, self.overdue, self.taken = [], [], []

    def held(self):
        return self.holding

    def stop(self, ids):
        self.stopped += ids
        self.holding -= set(ids)

    def expired(self, overdue):
        self.overdue.append(overdue)

    def take_over(self, one):
        self.taken.append(one)


@pytest.fixture
def loop(monkeypatch):
    with a_loop(monkeypatch) as made:
        yield made


@pytest.fixture
def runner(loop):
    made = Runner()
    loop.do(lambda: setattr(poller.poller(), "runner", made))
    return made


def wake(loop):
    loop.do(lambda: poller.poller().wake())


def is_running(loop) -> bool:
    task = loop.do(lambda: poller.poller()._task)
    return task is not None and not task.done()


def opened(*made, **options):
    return streams.open(session(), calls=made or [call()], **options)


# While there is something to look for.


def test_it_runs_as_long_as_somebody_reads(loop):
    assert not is_running(loop)
    reader, other = Reader(loop, opened()), Reader(loop, opened())
    assert is_running(loop)
    reader.task.cancel()
    loop.sleep(0.05)
    assert is_running(loop)
    other.task.cancel()
    loop.sleep(0.05)
    assert not is_running(loop)
    Reader(loop, opened())
    assert is_running(loop)


def test_it_runs_as_long_as_a_call_is_worked_on(loop, runner):
    one = call(process=leases.lease.hold())
    opened(one)
    runner.holding.add(one.pk)
    wake(loop)
    loop.sleep(0.1)
    assert is_running(loop) and not runner.stopped
    runner.holding.clear()
    loop.sleep(0.1)
    assert not is_running(loop)


def test_it_is_one_query_for_all_readers(loop):
    for _ in range(20):
        Reader(loop, opened())
    loop.sleep(0.2)
    with queries() as done:
        loop.sleep(0.1)
    looks = [sql for sql in done() if "stream" in sql.lower()]
    assert 1 <= len(looks) <= 8 and len(set(looks)) == 1


def test_it_goes_on_when_the_log_comes_back(loop, monkeypatch, caplog):
    stream = opened()
    reader = Reader(loop, stream)
    loop.sleep(0.05)
    look, broken = streams.look, [OperationalError("gone"), RuntimeError("a bug")]

    def away(ids):
        if broken:
            raise broken.pop(0)
        return look(ids)

    monkeypatch.setattr(streams, "look", away)
    loop.until(lambda: not broken)
    streams.close(stream.pk)
    assert reader.ended()
    assert "The log cannot be read" in caplog.text and "A look at the log failed" in caplog.text


def test_who_is_connected_is_not_idle(loop):
    stream = opened()
    long_ago = timezone.now() - sessions.TOUCHED * 10
    Session.objects.update(last_seen=long_ago)
    Reader(loop, stream)
    loop.sleep(0.1)
    assert Session.objects.get().last_seen > long_ago


@pytest.mark.django_db(transaction=True)
def test_what_is_over_is_forgotten_now_and_then(monkeypatch):
    done = threading.Event()
    monkeypatch.setattr(pruning, "prune", done.set)
    monkeypatch.setattr(poller, "PRUNING", 0.05)
    with a_loop(monkeypatch) as loop:
        Reader(loop, opened())
        loop.until(done.is_set)


# What happens to calls.


def test_a_call_that_was_cancelled_elsewhere_stops(loop, runner):
    one, other = call(1, process=leases.lease.hold()), call(2, process=leases.lease.hold())
    stream = opened(one, other)
    runner.holding |= {one.pk, other.pk}
    wake(loop)
    loop.sleep(0.05)
    calls.cancel(stream.session, "1")
    loop.until(lambda: runner.stopped == [one.pk])
    sessions.end(stream.session)
    loop.until(lambda: runner.stopped == [one.pk, other.pk])


def test_questions_that_nobody_answered_time_out(loop, runner):
    one = call(process="another")
    stream = opened(one)
    late = ask("d", seconds=-1)
    calls.park(one.pk, 0, [late], ["?"], known={}, high_water=None, rounds=1)
    Reader(loop, stream)
    (overdue,) = loop.until(lambda: runner.overdue)
    assert overdue.asks == [late.pk] and overdue.call.pk == one.pk
    assert overdue.call.process == leases.lease.hold()
    loop.sleep(0.05)
    assert len(runner.overdue) == 1


def test_the_calls_of_a_dead_process_are_taken_over(loop, runner, monkeypatch):
    monkeypatch.setattr(leases, "LEASE", 0.15)
    processes.begin("dead")
    running, parked = call(1, process="dead"), call(2, process="dead")
    stream = opened(running, parked)
    calls.park(parked.pk, 0, [ask()], ["?"], known={}, high_water=None, rounds=1)
    Reader(loop, stream)
    (taken,) = loop.until(lambda: runner.taken)
    assert (taken.pk, taken.fence, taken.runs) == (running.pk, 1, 1)
    assert "dead" not in processes.beats()
    assert Call.objects.get(pk=parked.pk).state == PARKED


def test_the_calls_of_a_living_process_are_not(loop, runner, monkeypatch):
    monkeypatch.setattr(leases, "LEASE", 0.15)
    processes.begin("alive")
    stream = opened(call(process="alive"))
    Reader(loop, stream)
    for _ in range(20):
        loop.sleep(0.02)
        processes.beat("alive")
    assert not runner.taken


def test_one_that_has_left_is_not_waited_for(loop, runner):
    processes.begin("left")
    processes.leave("left")
    Reader(loop, opened(call(process="left")))
    assert loop.until(lambda: runner.taken)


def test_a_process_in_doubt_stops_what_it_holds(loop, runner, monkeypatch):
    one = call(process=leases.lease.hold())
    opened(one)
    runner.holding.add(one.pk)
    monkeypatch.setattr(type(leases.lease), "is_doubtful", True)
    wake(loop)
    loop.until(lambda: runner.stopped == [one.pk])
    monkeypatch.undo()
    assert leases.lease.hold() != Call.objects.get(pk=one.pk).process


def test_a_claim_that_nobody_learnt_of_is_found(loop, runner):
    mine = leases.lease.hold()
    known, unknown = call(1, process=mine), call(2, process=mine)
    stream = opened(known, unknown)
    runner.holding.add(known.pk)
    Reader(loop, stream)
    loop.sleep(0.1)
    assert not runner.taken
    loop.do(lambda: setattr(poller.poller(), "is_in_doubt", True))
    (taken,) = loop.until(lambda: runner.taken)
    assert taken.pk == unknown.pk
    assert Call.objects.get(pk=known.pk).fence == 0 and taken.state == RUNNING
    assert not loop.do(lambda: poller.poller().is_in_doubt)


def test_no_claim_is_recounted_while_one_is_on_its_way(loop, runner):
    unknown = call(process=leases.lease.hold())
    Reader(loop, opened(unknown))

    async def claiming():
        async with poller.poller().claiming():
            poller.poller().is_in_doubt = True
            await asyncio.sleep(0.1)
            assert not runner.taken

    loop.run(claiming())
    loop.until(lambda: runner.taken)
