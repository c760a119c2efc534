"""The poller: when it runs, what one poll does, and how it handles calls and errors."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace

import pytest
from django.db import OperationalError
from django.utils import timezone

from django_mcp.exceptions import Busy
from django_mcp.models import DONE, PARKED, RUNNING, Call, Session
from django_mcp.runtime import threads
from django_mcp.storage import (
    calls,
    event_log,
    leases,
    poller,
    retention,
    sessions,
    streams,
    wakeups,
)
from django_mcp.storage import leases as processes
from django_mcp.storage.jobs import run_with_retries
from tests.unreachable import unreachable

from .loops import Loop, Reader, a_loop
from .rows import ask, call, queries, session

pytestmark = pytest.mark.django_db


class FakeCallRunner:
    """A call runner that records what the poller asks of it."""

    is_ending = False

    def __init__(self) -> None:
        self.holding: set[int] = set()
        self.on: set[int] = set()
        self.stopped, self.overdue, self.taken, self.resumed = [], [], [], []

    def running_ids(self):
        return self.holding

    def streams(self):
        return self.on

    def stop_if_lost(self, ids):
        self.stop(ids)

    def stop(self, ids):
        self.stopped += ids
        self.holding -= set(ids)

    def handle_timeout(self, overdue):
        self.overdue.append(overdue)

    def withdrawal_messages(self, session, asks):
        return [f"{session.pk} no longer waits for {ask}" for ask in asks]

    def resume(self, one):
        self.resumed.append(one)

    def take_over(self, one):
        self.taken.append(one)


@pytest.fixture
def runner(loop):
    made = FakeCallRunner()
    loop.do(lambda: setattr(poller.poller(), "call_manager", made))
    return made


def wake(loop):
    loop.do(lambda: poller.poller().start_if_needed())


def is_running(loop) -> bool:
    task = loop.do(lambda: poller.poller()._task)
    return task is not None and not task.done()


def until_it_ends(loop):
    made = loop.do(poller.poller)
    loop.until(lambda: made._task is None or made._task.done())


def opened(*made, **options):
    return streams.open(session(), calls=made or [call()], **options)


# When it runs.


def test_poller_runs_while_a_stream_is_read(loop):
    assert not is_running(loop)
    reader, other = Reader(loop, opened()), Reader(loop, opened())
    assert is_running(loop)
    reader.task.cancel()
    loop.sleep(0.05)
    assert is_running(loop)
    other.task.cancel()
    until_it_ends(loop)
    Reader(loop, opened())
    assert is_running(loop)


def test_poller_runs_while_a_call_runs(loop, runner):
    one = call(process=leases.lease.hold())
    opened(one)
    runner.holding.add(one.pk)
    wake(loop)
    loop.sleep(0.1)
    assert is_running(loop) and not runner.stopped
    runner.holding.clear()
    until_it_ends(loop)


def test_one_query_serves_all_readers(loop):
    for _ in range(20):
        Reader(loop, opened())
    loop.sleep(0.2)
    with queries() as done:
        loop.sleep(0.1)
    looks = [sql for sql in done() if "stream" in sql.lower()]
    assert 1 <= len(looks) <= 8 and len(set(looks)) == 1 and "SUM" in looks[0]


@pytest.mark.slow
def test_poll_after_a_failed_poll_finds_the_same_events(loop, runner, monkeypatch):
    one = call(process=leases.lease.hold())
    stream = opened(one)
    reader = Reader(loop, stream)
    made = loop.do(poller.poller)
    loop.run(made._poll())
    runner.holding.add(one.pk)
    not_running, broken = calls.not_running, [OperationalError("gone")]
    monkeypatch.setattr(
        calls, "not_running", lambda *of: raised(broken.pop()) if broken else not_running(*of)
    )
    event_log.append(stream.pk, ["a"])
    assert reader.until(1) and not broken


@pytest.mark.slow
def test_poller_continues_after_an_outage_and_an_error(loop, monkeypatch, caplog):
    stream = opened()
    reader = Reader(loop, stream)
    loop.sleep(0.05)
    totals, broken = streams.totals, [unreachable(), RuntimeError("a bug")]

    def away(ids):
        if broken:
            raise broken.pop(0)
        return totals(ids)

    monkeypatch.setattr(streams, "totals", away)
    loop.until(lambda: not broken)
    streams.close(stream.pk)
    assert reader.ended()
    assert "cannot be reached: " in caplog.text
    assert "Poll of the session database failed" in caplog.text


def test_session_with_an_open_stream_is_marked_as_seen(loop):
    stream = opened()
    long_ago = timezone.now() - sessions.LAST_SEEN_PRECISION * 10
    Session.objects.update(last_seen=long_ago)
    Reader(loop, stream)
    loop.sleep(0.1)
    assert Session.objects.get().last_seen > long_ago


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_poller_prunes_periodically(monkeypatch):
    done = threading.Event()
    monkeypatch.setattr(retention, "prune", done.set)
    monkeypatch.setattr(poller, "PRUNE_INTERVAL_SECONDS", 0.05)
    with a_loop(monkeypatch) as loop:
        Reader(loop, opened())
        loop.until(done.is_set)


# What happens to calls.


def test_call_cancelled_by_another_process_is_stopped(loop, runner):
    one, other = call(1, process=leases.lease.hold()), call(2, process=leases.lease.hold())
    stream = opened(one, other)
    runner.holding |= {one.pk, other.pk}
    wake(loop)
    loop.sleep(0.05)
    calls.cancel(stream.session, "1")
    loop.until(lambda: runner.stopped == [one.pk])
    sessions.end(stream.session)
    loop.until(lambda: runner.stopped == [one.pk, other.pk])


def test_overdue_question_is_passed_to_the_runner_once(loop, runner):
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


@pytest.mark.slow
def test_overdue_question_is_withdrawn_even_if_the_poll_fails(loop, runner, monkeypatch):
    one = call(process="another")
    stream = opened(one)
    late = ask("d", seconds=-1)
    calls.park(one.pk, 0, [late], ["?"], known={}, high_water=None, rounds=1)
    monkeypatch.setattr(calls, "take_over_orphans", lambda *given: raised(RuntimeError("a bug")))
    reader = Reader(loop, stream)
    assert reader.until(2)[1][1] == f"{stream.session_id} no longer waits for {late.pk}"
    assert not runner.overdue


def test_ending_runner_gets_no_new_calls(loop, runner):
    runner.is_ending = True
    left = call(1, process="nobody")
    parked = call(2, process="nobody")
    Reader(loop, opened(left, parked))
    calls.park(parked.pk, 0, [ask("d", -1)], ["?"], known={}, high_water=None, rounds=1)
    loop.sleep(0.2)
    assert not (runner.taken or runner.overdue)
    runner.is_ending = False
    loop.until(lambda: runner.taken and runner.overdue)


def test_poller_takes_over_running_calls_of_a_dead_process(loop, runner, monkeypatch):
    monkeypatch.setattr(leases, "LEASE_SECONDS", 0.15)
    processes.begin("dead")
    running, parked = call(1, process="dead"), call(2, process="dead")
    stream = opened(running, parked)
    calls.park(parked.pk, 0, [ask()], ["?"], known={}, high_water=None, rounds=1)
    Reader(loop, stream)
    (taken,) = loop.until(lambda: runner.taken)
    assert (taken.pk, taken.fence, taken.runs) == (running.pk, 1, 1)
    assert "dead" not in processes.beats()
    assert Call.objects.get(pk=parked.pk).state == PARKED


def test_calls_of_a_living_process_are_not_taken_over(loop, runner, monkeypatch):
    monkeypatch.setattr(leases, "LEASE_SECONDS", 0.15)
    processes.begin("alive")
    stream = opened(call(process="alive"))
    Reader(loop, stream)
    for _ in range(20):
        loop.sleep(0.02)
        processes.beat("alive")
    assert not runner.taken


def test_calls_of_a_process_that_left_are_taken_over_at_once(loop, runner):
    processes.begin("left")
    processes.leave("left")
    Reader(loop, opened(call(process="left")))
    assert loop.until(lambda: runner.taken)


def test_process_with_a_doubtful_lease_stops_its_calls(loop, runner, monkeypatch):
    one = call(process=leases.lease.hold())
    opened(one)
    runner.holding.add(one.pk)
    monkeypatch.setattr(type(leases.lease), "is_doubtful", True)
    wake(loop)
    loop.until(lambda: runner.stopped == [one.pk])
    monkeypatch.undo()
    assert leases.lease.hold() != Call.objects.get(pk=one.pk).process


def test_calls_of_an_abandoned_id_are_resumed_at_once_unless_they_still_run(
    loop, runner, monkeypatch
):
    """Nobody else runs calls of an id that this process gave up, so no lease has to expire."""
    monkeypatch.setattr(leases, "LEASE_SECONDS", 600.0)
    former = leases.lease.hold()
    ended, running = call(1, process=former), call(2, process=former)
    Reader(loop, opened(ended, running))
    made = loop.do(poller.poller)
    loop.until(lambda: made._states and not made._reconciliation_timer.restart_if_due())
    runner.holding = {ended.pk, running.pk}
    runner.stop = runner.stop_if_lost = lambda ids: runner.holding.discard(ended.pk)
    with monkeypatch.context() as patch:
        patch.setattr(type(leases.lease), "is_doubtful", True)
        loop.until(lambda: not leases.lease._id)
    loop.until(lambda: runner.resumed)
    assert [one.pk for one in runner.resumed] == [ended.pk]
    assert leases.lease.hold() != former and not runner.taken
    runner.holding.clear()
    loop.until(lambda: running.pk in [one.pk for one in runner.resumed])


def test_claimed_call_without_a_runner_is_resumed_in_doubt(loop, runner):
    mine = leases.lease.hold()
    known, unknown = call(1, process=mine), call(2, process=mine)
    stream = opened(known, unknown)
    runner.holding.add(known.pk)
    Reader(loop, stream)
    loop.sleep(0.1)
    assert not runner.resumed
    loop.do(lambda: setattr(poller.poller(), "needs_reconciliation", True))
    (resumed,) = loop.until(lambda: runner.resumed)
    assert resumed.pk == unknown.pk and resumed.state == RUNNING
    assert set(Call.objects.values_list("fence", "runs")) == {(0, 0)} and not runner.taken
    assert not loop.do(lambda: poller.poller().needs_reconciliation)


def test_claimed_call_without_a_runner_is_resumed_at_the_second_reconciliation(
    loop, runner, monkeypatch
):
    monkeypatch.setattr(leases, "LEASE_SECONDS", 1.5)
    opened(unknown := call(process=leases.lease.hold()))
    Reader(loop, opened())
    made = loop.do(poller.poller)
    loop.until(lambda: made._not_running)
    assert not runner.resumed
    resumed, *_ = loop.until(lambda: runner.resumed)
    assert resumed.pk == unknown.pk


def test_poll_does_not_need_the_log_thread_pool(loop, runner, monkeypatch):
    opened(one := call(process=leases.lease.hold()))
    runner.holding.add(one.pk)

    def full(*given):
        raise Busy

    monkeypatch.setattr(threads.log, "submit", full)
    Call.objects.filter(pk=one.pk).update(cancelled=True, state=DONE)
    wake(loop)
    loop.until(lambda: runner.stopped == [one.pk])


def test_claims_are_not_reconciled_during_a_claim(loop, runner):
    unknown = call(process=leases.lease.hold())
    Reader(loop, opened(unknown))

    async def claiming():
        async with poller.poller().claiming():
            poller.poller().needs_reconciliation = True
            await asyncio.sleep(0.1)
            assert not runner.resumed

    loop.run(claiming())
    loop.until(lambda: runner.resumed)


def test_reconciliation_follows_at_once_after_the_last_claim(monkeypatch):
    """A process that claims calls all the time reconciles them nevertheless."""
    with a_loop(monkeypatch, 30) as loop:
        made = FakeCallRunner()
        loop.do(lambda: setattr(poller.poller(), "call_manager", made))
        Reader(loop, opened(call(process=leases.lease.hold())))

        async def claiming():
            async with poller.poller().claiming():
                poller.poller().needs_reconciliation = True
            while not made.resumed:
                async with poller.poller().claiming():
                    await asyncio.sleep(0.01)

        loop.run(asyncio.wait_for(claiming(), 20))
        loop.do(lambda: setattr(poller.poller(), "call_manager", None))


def test_claim_does_not_wait_for_a_stopped_poller(loop, runner):
    Reader(loop, opened())
    made = loop.do(poller.poller)
    loop.until(lambda: made._is_pausing)

    async def stopped():
        made._task.cancel()
        made._stop()
        made.needs_reconciliation = True
        for _ in range(2):
            async with made.claiming():
                pass

    loop.run(asyncio.wait_for(stopped(), 20))


def test_claim_with_a_broken_connection_is_reconciled(loop, runner):
    unknown = call(process=leases.lease.hold())
    Reader(loop, opened(unknown))
    broken = [OperationalError("gone")]

    async def claiming():
        async with poller.poller().claiming():
            await run_with_retries(lambda: broken and raised(broken.pop()))

    loop.run(claiming())
    (resumed,) = loop.until(lambda: runner.resumed)
    assert resumed.pk == unknown.pk


def raised(error):
    raise error


def test_calls_of_another_event_loop_are_known(loop, runner):
    theirs = call(process=leases.lease.hold())
    stream = opened(theirs)

    class Elsewhere:
        def running_ids(self):
            return {theirs.pk}

    other = asyncio.new_event_loop()
    try:

        async def attended():
            poller.poller()._call_manager = Elsewhere()

        other.run_until_complete(attended())
        Reader(loop, stream)
        loop.do(lambda: setattr(poller.poller(), "needs_reconciliation", True))
        loop.until(lambda: not poller.poller.instances()[0][1].needs_reconciliation)
        assert not runner.resumed
    finally:
        other.close()


def test_calls_that_the_poll_of_another_event_loop_claimed_are_not_resumed(loop, runner):
    """Between the commit of that poll and the start of the call, the call runs in no loop."""
    opened(one := call(process="another"))
    calls.park(one.pk, 0, [ask("d", -1)], ["?"], known={}, high_water=None, rounds=1)
    other, theirs, made = Loop(), FakeCallRunner(), loop.do(poller.poller)
    try:
        other.do(lambda: setattr(poller.poller(), "_call_manager", theirs))
        other.begin(other.do(poller.poller)._poll())  # this loop stops before it gets the result
        assert Call.objects.get().state == RUNNING and not theirs.overdue
        made.needs_reconciliation = True
        loop.run(made._poll())
        assert not runner.resumed and made.needs_reconciliation
        (overdue,) = other.until(lambda: theirs.overdue)
        theirs.holding.add(overdue.call.pk)
        loop.run(made._poll())
        assert not runner.resumed and not made.needs_reconciliation
    finally:
        other.close()


# How often it polls.


def pause(loop) -> float:
    return loop.do(lambda: poller.poller()._pause_seconds())


@pytest.fixture
def slow_loop(monkeypatch):
    with a_loop(monkeypatch, 0.2) as made:
        yield made


@pytest.mark.parametrize(
    ("cost", "prompt", "expected"),
    [(0.1, False, 0.2), (0.3, False, 0.3), (9, False, 1.0), (0.1, True, 1.0)],
)
def test_pause_depends_on_the_cost_of_polls_and_on_wakeups(slow_loop, cost, prompt, expected):
    Reader(slow_loop, opened())

    def given():
        poller.poller()._cost = cost
        wakeups.channel_layer().is_working = prompt

    slow_loop.do(given)
    assert pause(slow_loop) == pytest.approx(expected)


def test_single_slow_poll_does_not_change_the_pause(slow_loop, monkeypatch):
    monkeypatch.setattr(poller, "POLL_INTERVAL_SECONDS", 60)  # no other polls than these
    Reader(slow_loop, opened())
    took = iter((0.001, 5.0, 0.002))
    made = slow_loop.do(poller.poller)
    read = made._read_rows
    made._read_rows = lambda *given: replace(read(*given), cost=next(took))

    async def looks():
        costs = []
        for _ in range(3):
            await made._poll()
            costs.append(made._cost)
        return costs

    assert slow_loop.run(looks()) == [0.0, 0.001, 0.002]


def test_wakeup_from_another_process_makes_readers_read(slow_loop, monkeypatch):
    monkeypatch.setattr(poller, "POLL_INTERVAL_SECONDS", 20.0)
    stream = opened()
    reader = Reader(slow_loop, stream)
    slow_loop.sleep(0.3)  # the next regular poll is far away
    event_log.append(stream.pk, ["a"])
    slow_loop.do(lambda: poller.poller().receive_wakeup([stream.pk, stream.pk + 1]))
    began = time.monotonic()
    assert reader.until(1) == [(1, "a")] and time.monotonic() - began < 10


def test_wakeup_for_a_running_call_polls_at_once(monkeypatch):
    with a_loop(monkeypatch, 30) as loop:
        made, one = FakeCallRunner(), call(process=leases.lease.hold())
        stream = opened(one)
        made.holding.add(one.pk)
        made.on.add(stream.pk)
        loop.do(lambda: setattr(poller.poller(), "call_manager", made))
        calls.cancel(stream.session, "1")
        loop.do(lambda: poller.poller().receive_wakeup([stream.pk + 1]))
        loop.sleep(0.05)
        assert not made.stopped
        loop.do(lambda: poller.poller().receive_wakeup([stream.pk]))
        loop.until(lambda: made.stopped == [one.pk])


def test_number_of_queries_does_not_depend_on_the_number_of_streams(loop, runner):
    one = call(process=leases.lease.hold())
    opened(one)
    Reader(loop, opened())
    made = loop.do(poller.poller)
    made._takeover_timer = poller.PeriodicTimer(lambda: 60.0, at_once=False)
    made._timeout_timer = poller.PeriodicTimer(lambda: 0.0)

    def counted():
        """No other poll runs meanwhile, and nothing is known from the poll before."""
        task = loop.do(lambda: made._task)
        loop.do(task.cancel)
        loop.until(task.done)
        made._totals = ([], ())
        with queries() as done:
            made._read_rows(made._wakeups.streams(), (), [one.pk])
        return len(done())

    few = counted()
    for _ in range(30):
        Reader(loop, opened())
    assert counted() == few


@pytest.mark.parametrize(("took", "worked", "cost"), [(0.3, 0.01, 1.2), (0.1, 0.01, 0.5)])
def test_cost_of_a_poll_combines_duration_and_thread_time(loop, monkeypatch, took, worked, cost):
    made = loop.do(poller.poller)
    clocks = {"perf_counter": iter((10.0, 10.0 + took)), "thread_time": iter((1.0, 1.0 + worked))}
    for name, times in clocks.items():
        monkeypatch.setattr(poller.time, name, times.__next__)
    assert made._read_rows((), (), ()).cost == pytest.approx(cost)


# Without readers and calls.


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_idle_worker_takes_over_calls_of_a_dead_process(monkeypatch):
    monkeypatch.setattr(leases, "LEASE_SECONDS", 1.5)
    processes.begin("dead")
    opened(call(process="dead"))
    with a_loop(monkeypatch) as loop:
        runner = FakeCallRunner()
        loop.do(lambda: setattr(poller.poller(), "call_manager", runner))
        (taken,) = loop.until(lambda: runner.taken)
        assert taken.runs == 1 and is_running(loop)
        loop.do(lambda: setattr(poller.poller(), "call_manager", None))
        loop.until(lambda: not poller.poller.instances()[-1][1]._task)


@pytest.mark.django_db(transaction=True)
def test_new_reader_ends_a_long_pause(monkeypatch):
    monkeypatch.setattr(leases, "LEASE_SECONDS", 60.0)  # so that a busy machine is no long pause
    with a_loop(monkeypatch) as loop:
        loop.do(lambda: setattr(poller.poller(), "call_manager", FakeCallRunner()))
        loop.sleep(0.1)
        stream = opened()
        reader = Reader(loop, stream)
        loop.sleep(0.05)
        event_log.append(stream.pk, ["a"])  # as another process does
        began = time.monotonic()
        assert reader.until(1) and time.monotonic() - began < leases.LEASE_SECONDS / 6
        loop.do(lambda: setattr(poller.poller(), "call_manager", None))


# Polls that hang.


def test_process_with_a_doubtful_lease_stops_calls_during_a_hanging_poll(loop, runner, monkeypatch):
    one = call(process=leases.lease.hold())
    opened(one)
    runner.holding.add(one.pk)
    go_on = threading.Event()
    monkeypatch.setattr(calls, "not_running", lambda *given: go_on.wait(10) and set())
    monkeypatch.setattr(leases, "LEASE_SECONDS", 0.4)
    wake(loop)
    try:
        loop._runner.run(asyncio.sleep(0.1))  # a poll hangs now
        monkeypatch.setattr(type(leases.lease), "is_doubtful", True)

        loop._runner.run(asyncio.sleep(0.2))
        assert not go_on.is_set() and runner.stopped == [one.pk]
    finally:
        go_on.set()


def test_process_declared_dead_takes_over_nothing(loop, runner):
    mine = leases.lease.hold()
    made = loop.do(poller.poller)
    opened(call(process="dead"))
    processes.end(mine)
    assert made._take_over_orphans(mine) == [] and Call.objects.get().process == "dead"
    assert leases.lease.hold() != mine


def test_calls_continue_when_the_row_of_their_process_was_deleted(loop, runner):
    """They run here. A second run would begin, and nothing could stop the first one."""
    mine = leases.lease.hold()
    opened(one := call(process=mine))
    runner.holding.add(one.pk)
    made = loop.do(poller.poller)
    processes.end(mine)
    assert made._take_over_orphans(mine) == []  # it gives up the id
    new = leases.lease.hold()
    assert new != mine and made._take_over_orphans(new) == []
    assert Call.objects.get().fence == 0
    runner.holding.clear()
    loop.do(lambda: setattr(made, "needs_reconciliation", True))
    wake(loop)
    loop.run(made._poll())
    assert [one.pk for one in runner.resumed] == [one.pk] and not runner.taken


# Shutdown.


def test_lease_ends_with_the_last_event_loop(loop, runner):
    """Another process would take over the calls that still run in another loop."""
    mine = leases.lease.hold()
    other = Loop()
    try:
        theirs = other.do(poller.poller)
        other.do(lambda: setattr(theirs, "call_manager", FakeCallRunner()))
        loop.run(loop.do(poller.poller).close())
        assert mine in processes.beats() and leases.lease.hold() == mine
        other.run(theirs.close())
        assert mine not in processes.beats()
    finally:
        other.close()


def test_lease_ends_although_another_event_loop_was_closed_before(loop, runner):
    mine = leases.lease.hold()
    other = Loop()
    other.do(lambda: setattr(poller.poller(), "call_manager", FakeCallRunner()))
    other.close()
    loop.run(loop.do(poller.poller).close())
    assert mine not in processes.beats()
