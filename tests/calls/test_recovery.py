"""Calls whose process died, and calls that were claimed when the connection broke."""

from __future__ import annotations

from contextlib import suppress

import pytest
from django.db import DataError, OperationalError, connection

import django_mcp as mcp
from django_mcp.auth import kill_switches
from django_mcp.calls.recovery import LOST, UNDONE
from django_mcp.calls.session_calls import call_manager
from django_mcp.exceptions import Busy
from django_mcp.models import DONE, RUNNING, Ask, Call, Process, Session, Stream
from django_mcp.runtime import threads
from django_mcp.storage import calls, event_log, leases, streams
from django_mcp.storage import calls as steps
from django_mcp.storage.poller import poller

from ..storage.rows import call
from .session_client import Desk, dead, left_behind, reading, text

pytestmark = pytest.mark.usefixtures("real_threads", "short_grace")
PUBLIC = {"permission": mcp.PUBLIC}
ACME = {"action": "accept", "content": {"answer": "Acme"}}
IS_BESIDE = connection.vendor != "sqlite"


@pytest.fixture
def server(server, runs, gate):
    @server.tool(read_only=True, **PUBLIC)
    async def look(request) -> str:
        """Change nothing."""
        runs.append("look")
        for n in range(1, 7):
            request.progress(n, 6)
        return "looked"

    @server.tool(**PUBLIC)
    async def act(request) -> str:
        """Change something."""
        runs.append("act")
        return "acted"

    @server.tool(**PUBLIC)
    def write(request) -> str:
        """Write to the database."""
        runs.append("write")
        return "written"

    @server.tool(idempotent=True, **PUBLIC)
    def again(request) -> str:
        """Do what may be done twice."""
        runs.append("again")
        return "done"

    @server.tool(idempotent=True, **PUBLIC)
    def wait_again(request) -> str:
        """Wait in the first run only."""
        runs.append("wait_again")
        if len(runs) == 1:
            gate.wait(10)
        return "waited again"

    @server.tool(**PUBLIC)
    def wait(request) -> str:
        """Wait, in a thread."""
        gate.wait(10)
        return "waited"

    @server.tool(**PUBLIC)
    def ask_and_wait(request) -> str:
        """Ask, then wait."""
        request.elicit("Go on?", bool)
        gate.wait(10)
        return "waited"

    class Pure(mcp.Tool):
        """Do nothing but write to the database."""

        permission = mcp.PUBLIC
        transactional = True

        def handle(self, request) -> str:
            runs.append("pure")
            return "pure"

    @server.tool(**PUBLIC)
    def ask(request) -> str:
        """Ask, and act on the answer."""
        name = request.elicit("What name?", str)
        runs.append(name)
        return name

    @server.tool(**PUBLIC)
    def step(request) -> str:
        """Do a step."""
        request.once("step", lambda: runs.append("step"))
        return "stepped"

    server.register(Pure)
    return server


def fill(gate):
    """Have as many jobs wait for threads as may."""
    with suppress(Busy):
        while True:
            threads.tools._submit(lambda: gate.wait(10))


@pytest.fixture
def desk(loop, server):
    return Desk(loop, server)


def idle(desk):
    desk.loop.until(lambda: not (call_manager()._requests or call_manager()._tasks))


# Of a process that died.


@pytest.mark.parametrize(("tool", "answer"), [("look", "looked"), ("again", "done")])
def test_what_does_no_harm_runs_again(desk, runs, tool, answer):
    assert text(left_behind(desk, tool).all()[-1]) == answer
    assert Call.objects.get().runs == 1 and runs == [tool]


def test_a_process_that_began_while_the_database_was_away_waits_for_it(desk, runs, monkeypatch):
    """Nothing is known of switches then, and nobody could say whether the call may run."""
    away = [OperationalError("away") for _ in range(3)]

    def known():
        if away:
            raise away.pop()
        return frozenset()

    desk.server.durable = True
    monkeypatch.setattr(kill_switches, "source", [known])
    kill_switches.forget()
    (response,) = desk.streamed(desk.call("act")).all()
    assert text(response) == "acted" and runs == ["act"] and not away


@pytest.mark.parametrize("tool", ["act", "write", "pure"])
def test_what_acts_is_not_done_twice(desk, runs, tool):
    (response,) = left_behind(desk, tool).all()
    assert response["result"]["isError"] and text(response) == LOST and runs == []


def test_what_held_its_outcome_was_rolled_back(desk, runs):
    (response,) = left_behind(desk, "write", atomic=True).all()
    assert text(response) == (UNDONE if IS_BESIDE else LOST) and runs == []


def test_what_has_steps_was_rolled_back_in_part(desk, runs):
    stream = streams.open(desk.fresh(), calls=[call(1, params={"name": "write"})])
    row = Call.objects.get()
    steps.begin(f"c{row.pk}", "step")
    steps.keep(f"c{row.pk}", "step", 1)
    dead(stream, atomic=True)
    desk.loop.do(call_manager)
    (response,) = reading(desk, stream).all()
    assert text(response) == LOST and runs == []


def test_what_is_all_in_its_transaction_runs_again(desk, runs):
    (response,) = left_behind(desk, "pure", atomic=True).all()
    assert (text(response), runs) == (("pure", ["pure"]) if IS_BESIDE else (LOST, []))


@pytest.mark.parametrize(
    ("tool", "answer"),
    [("wait_again", "waited again"), ("wait", UNDONE if IS_BESIDE else LOST)],
    ids=["repeatable", "other"],
)
def test_calls_of_an_abandoned_id_are_taken_over_when_they_have_ended(
    desk, runs, gate, monkeypatch, tool, answer
):
    """As after an outage. The process waits until its thread has ended, and for no lease."""
    monkeypatch.setattr(leases, "LEASE_SECONDS", 600.0)
    found = desk.streamed(desk.call(tool))
    row, before = Call.objects.get(), leases.lease.hold()
    assert row.process == before
    with monkeypatch.context() as patch:
        patch.setattr(type(leases.lease), "is_doubtful", True)
        desk.loop.until(lambda: not leases.lease._id)
    desk.loop.until(lambda: leases.lease._id and not poller().is_in_doubt)
    assert Call.objects.get().process == before
    gate.set()
    assert text(found.all()[-1]) == answer
    idle(desk)
    after = Call.objects.get()
    assert (after.fence, after.runs, after.state) == (row.fence + 1, 1, DONE)


def test_one_that_kills_its_process_is_not_run_for_ever(desk, runs):
    (response,) = left_behind(desk, "look", runs=2).all()
    assert text(response) == LOST and runs == []


def test_one_that_is_no_longer_declared_may_have_taken_effect(desk):
    (response,) = left_behind(desk, "unheard of").all()
    assert text(response) == LOST


def test_one_whose_server_is_gone_is_answered(desk):
    Session.objects.update(server="another")
    (response,) = left_behind(desk, "look").all()
    assert text(response) == LOST


def test_what_is_no_tool_runs_again(desk):
    stream = streams.open(desk.fresh(), calls=[call(1, method="tools/list", params={})])
    dead(stream)
    desk.loop.do(call_manager)
    (response,) = reading(desk, stream).all()
    assert {tool["name"] for tool in response["result"]["tools"]} >= {"act", "look"}


def test_progress_goes_on_from_where_it_was(desk):
    """The progress value MUST increase with each notification (utilities/progress)."""
    said = [
        _progress("t", 1), _progress("t", 4), _progress("another", 9),
        {"jsonrpc": "2.0", "method": "notifications/message", "params": {
            "level": "info", "data": "notifications/progress"}},
    ]  # fmt: skip
    *found, response = left_behind(desk, "look", said).all()
    mine = [one["params"] for one in found if one["method"] == "notifications/progress"]
    assert [one["progress"] for one in mine if one["progressToken"] == "t"] == [1, 4, 5, 6]
    assert text(response) == "looked"


def _progress(token, done):
    params = {"progressToken": token, "progress": done}
    return {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}


# Claimed here, when the connection broke.


def claimed(desk, tool, **changes) -> Stream:
    """A call of this process, of which nothing in it knows."""
    stream = streams.open(desk.fresh(), calls=[call(1, params={"name": tool})])
    desk.loop.do(call_manager)
    Call.objects.update(process=leases.lease.hold(), **changes)
    resume(desk)
    return stream


def resume(desk):
    row = Call.objects.get()
    desk.loop.do(lambda: call_manager().resume(row))


def resumed(desk, tool, **changes):
    return reading(desk, claimed(desk, tool, **changes)).all()[-1]


def test_what_an_answer_brought_here_goes_on(desk, runs):
    assert text(resumed(desk, "act", fence=1)) == "acted" and runs == ["act"]
    assert Call.objects.get().runs == 0


@pytest.mark.parametrize("before", [{"fence": 0}, {"fence": 2, "runs": 1}])
def test_what_has_begun_before_is_taken_over(desk, runs, before):
    assert text(resumed(desk, "act", **before)) == LOST and runs == []


def test_what_was_left_without_a_response_is_not_begun_again(desk, runs):
    stream = claimed(desk, "ask", fence=1)
    found = reading(desk, stream)
    found.until(1)
    desk.loop.until(lambda: not call_manager().held())
    Call.objects.update(state="running", process=leases.lease.hold())
    Ask.objects.all().delete()
    resume(desk)
    assert text(found.all()[-1]) == LOST and runs == []


def unheard(monkeypatch):
    """The connection breaks right after an answer is committed."""
    answer, left = calls.answer, [True]

    def broken(*args, **options):
        found = answer(*args, **options)
        if left:
            left.clear()
            raise OperationalError("The connection broke.")
        return found

    monkeypatch.setattr(calls, "answer", broken)


def test_an_answer_whose_commit_was_not_heard_of_counts_once(desk, runs, monkeypatch):
    reading = desk.streamed(desk.call("ask"))
    (asked,) = reading.until(1)
    unheard(monkeypatch)
    desk.answer(asked, ACME)
    assert text(reading.all()[-1]) == "Acme"
    desk.answer(asked, {"action": "accept", "content": {"answer": "Bolts"}})
    idle(desk)
    assert runs == ["Acme"] and Call.objects.get().state == DONE


def test_the_streams_that_are_worked_on_are_known(desk, gate):
    found = desk.streamed(desk.call("wait"))
    assert desk.loop.do(lambda: list(call_manager().streams())) == [found.row.pk]
    gate.set()
    found.all()
    idle(desk)
    assert not desk.loop.do(lambda: list(call_manager().streams()))


# That cannot go on.


def test_one_that_cannot_go_on_is_answered(desk, runs):
    """Another project's process has the answer, or its user's standing cannot be told."""
    Session.objects.update(server="another")
    assert resumed(desk, "act", fence=1)["error"]["code"] == -32603 and runs == []
    assert Call.objects.get().state == DONE


def refusing(monkeypatch, times, words="acted"):
    """The log takes no response that holds these words, so many times."""
    finish, left = event_log.finish, [True] * times

    def refused(call, fence, message, *args, **options):
        if words in message and left:
            left.pop()
            raise DataError("No.")
        return finish(call, fence, message, *args, **options)

    monkeypatch.setattr(event_log, "finish", refused)


def test_a_response_that_the_log_does_not_take_becomes_an_error(desk, monkeypatch):
    refusing(monkeypatch, 1)
    response = resumed(desk, "act", fence=1)
    assert response["error"]["code"] == -32603
    idle(desk)
    assert Call.objects.get().state == DONE and not desk.loop.do(lambda: call_manager().held())


def test_one_that_no_answer_could_be_written_for_is_begun_again(desk, runs, monkeypatch):
    refusing(monkeypatch, 2, "")
    stream = claimed(desk, "look", fence=1)
    desk.loop.until(lambda: runs)
    idle(desk)
    assert Call.objects.get().state == RUNNING
    found = reading(desk, stream)
    desk.loop.until(lambda: poller()._recount_timer.make_due() or len(runs) == 2)
    assert text(found.all()[-1]) == "looked"
    row = Call.objects.get()
    assert (row.runs, row.fence) == (1, 2)


# Where no thread is free.


def test_what_was_taken_over_waits_for_a_thread(desk, runs, gate):
    fill(gate)
    assert desk.post(desk.call("again")).is_overloaded
    found = left_behind(desk, "again")
    desk.loop.sleep(0.3)
    assert found.messages == [] and runs == []
    gate.set()
    assert text(found.all()[-1]) == "done"


def test_what_was_answered_waits_for_a_thread(desk, runs, gate):
    found = desk.streamed(desk.call("ask"))
    (asked,) = found.until(1)
    fill(gate)
    desk.answer(asked, ACME)
    desk.loop.sleep(0.3)
    assert found.messages == [asked]
    gate.set()
    assert text(found.all()[-1]) == "Acme"


def test_what_has_done_a_step_waits_for_a_thread(desk, runs, gate, monkeypatch):
    done = threads.tools._done

    def and_filled(owner, job):
        done(owner, job)
        if runs and not gate.is_set():
            fill(gate)

    monkeypatch.setattr(threads.tools, "_done", and_filled)
    found = desk.streamed(desk.call("step"))
    desk.loop.until(lambda: runs)
    desk.loop.sleep(0.3)
    assert found.messages == []
    gate.set()
    assert text(found.all()[-1]) == "stepped" and runs == ["step"]


# Where the process is about to end.


def ending(desk, whether=True):
    desk.loop.do(lambda: setattr(call_manager(), "is_ending", whether))


def sweep(desk):
    """As after a third of a lease."""
    desk.loop.do(lambda: (poller()._takeover_timer.make_due(), poller()._poll_now.set()))


@pytest.mark.parametrize("before", [0, 3])
def test_whoever_is_about_to_end_leaves_it_to_others_to_go_on(desk, runs, before):
    found = desk.streamed(desk.call("ask"))
    (asked,) = found.until(1)
    Call.objects.update(runs=before)
    ending(desk)
    desk.answer(asked, ACME)
    sweep(desk)
    desk.loop.sleep(0.3)
    row = Call.objects.get()
    assert (row.state, row.process, runs) == (RUNNING, "", [])
    ending(desk, whether=False)
    sweep(desk)
    assert text(found.all()[-1]) == "Acme" and runs == ["Acme"]


def test_an_answer_to_whoever_is_about_to_end_counts_once_too(desk, runs, monkeypatch):
    found = desk.streamed(desk.call("ask"))
    (asked,) = found.until(1)
    ending(desk)
    unheard(monkeypatch)
    desk.answer(asked, ACME)
    desk.answer(asked, {"action": "accept", "content": {"answer": "Bolts"}})
    ending(desk, whether=False)
    sweep(desk)
    assert text(found.all()[-1]) == "Acme" and runs == ["Acme"]


def test_who_would_not_come_back_is_answered_here(loop, server, runs):
    desk = Desk(loop, server, revision="2025-06-18")
    found = desk.streamed(desk.call("ask"))
    (asked,) = found.until(1)
    ending(desk)
    desk.answer(asked, ACME)
    assert text(found.all()[-1]) == "Acme"


def test_who_has_ended_begins_nothing_and_has_no_name(loop, server, runs):
    desk = Desk(loop, server, revision="2025-06-18")
    found = desk.streamed(desk.call("ask"))
    (asked,) = found.until(1)
    desk.loop.run(_finish())
    desk.answer(asked, ACME)
    assert Call.objects.get().process == "" and not Process.objects.exists() and runs == []


async def _finish() -> None:
    await call_manager().finish()


# What the poller finds.


def test_a_call_that_an_answer_has_brought_back_since_goes_on(desk, gate):
    """The look found it parked; when its word comes, the call runs again."""
    found = desk.streamed(desk.call("ask_and_wait"))
    (asked,) = found.until(1)
    parked = Call.objects.get().pk
    desk.answer(asked, {"action": "accept", "content": {"answer": True}})
    desk.loop.until(lambda: call_manager().held())
    desk.loop.do(lambda: call_manager().recheck([parked, parked + 1]))
    desk.loop.sleep(0.2)
    gate.set()
    assert text(found.all()[-1]) == "waited"
