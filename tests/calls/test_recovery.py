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
from .session_client import SessionClient, abandon_call, abandoned_call, resume_stream, text

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
            threads.tools.submit(lambda: gate.wait(10))


@pytest.fixture
def client(loop, server):
    return SessionClient(loop, server)


def idle(client):
    client.loop.until(lambda: not (call_manager()._requests or call_manager()._tasks))


# Of a process that died.


@pytest.mark.parametrize(("tool", "answer"), [("look", "looked"), ("again", "done")])
def test_abandoned_read_only_or_idempotent_tool_runs_again(client, runs, tool, answer):
    assert text(abandoned_call(client, tool).all()[-1]) == answer
    assert Call.objects.get().runs == 1 and runs == [tool]


def test_call_waits_for_kill_switches_while_the_database_is_unreachable(client, runs, monkeypatch):
    """Without the kill switches it is unknown whether the call may run."""
    away = [OperationalError("away") for _ in range(3)]

    def known():
        if away:
            raise away.pop()
        return frozenset()

    client.server.durable = True
    monkeypatch.setattr(kill_switches, "source", [known])
    kill_switches.forget()
    (response,) = client.open_stream(client.call("act")).all()
    assert text(response) == "acted" and runs == ["act"] and not away


@pytest.mark.parametrize("tool", ["act", "write", "pure"])
def test_abandoned_tool_with_effects_does_not_run_again(client, runs, tool):
    (response,) = abandoned_call(client, tool).all()
    assert response["result"]["isError"] and text(response) == LOST and runs == []


def test_abandoned_call_that_stores_its_result_atomically_was_rolled_back(client, runs):
    (response,) = abandoned_call(client, "write", atomic=True).all()
    assert text(response) == (UNDONE if IS_BESIDE else LOST) and runs == []


def test_abandoned_call_with_a_step_is_reported_as_lost(client, runs):
    stream = streams.open(client.load_session(), calls=[call(1, params={"name": "write"})])
    row = Call.objects.get()
    steps.begin_step(f"c{row.pk}", "step")
    steps.store_step_value(f"c{row.pk}", "step", 1)
    abandon_call(stream, atomic=True)
    client.loop.do(call_manager)
    (response,) = resume_stream(client, stream).all()
    assert text(response) == LOST and runs == []


def test_abandoned_call_with_effects_only_in_its_transaction_runs_again(client, runs):
    (response,) = abandoned_call(client, "pure", atomic=True).all()
    assert (text(response), runs) == (("pure", ["pure"]) if IS_BESIDE else (LOST, []))


@pytest.mark.parametrize(
    ("tool", "answer"),
    [("wait_again", "waited again"), ("wait", UNDONE if IS_BESIDE else LOST)],
    ids=["repeatable", "other"],
)
def test_process_takes_over_its_own_calls_after_their_threads_end(
    client, runs, gate, monkeypatch, tool, answer
):
    """This happens after an outage. The process waits for its thread, not for the lease."""
    monkeypatch.setattr(leases, "LEASE_SECONDS", 600.0)
    found = client.open_stream(client.call(tool))
    row, before = Call.objects.get(), leases.lease.hold()
    assert row.process == before
    with monkeypatch.context() as patch:
        patch.setattr(type(leases.lease), "is_doubtful", True)
        client.loop.until(lambda: not leases.lease._id)
    client.loop.until(lambda: leases.lease._id and not poller().needs_reconciliation)
    assert Call.objects.get().process == before
    gate.set()
    assert text(found.all()[-1]) == answer
    idle(client)
    after = Call.objects.get()
    assert (after.fence, after.runs, after.state) == (row.fence + 1, 1, DONE)


def test_call_that_kills_its_process_runs_a_limited_number_of_times(client, runs):
    (response,) = abandoned_call(client, "look", runs=2).all()
    assert text(response) == LOST and runs == []


def test_abandoned_call_of_a_removed_tool_is_reported_as_lost(client):
    (response,) = abandoned_call(client, "unheard of").all()
    assert text(response) == LOST


def test_abandoned_call_of_a_removed_server_is_reported_as_lost(client):
    Session.objects.update(server="another")
    (response,) = abandoned_call(client, "look").all()
    assert text(response) == LOST


def test_abandoned_request_other_than_a_tool_call_runs_again(client):
    stream = streams.open(client.load_session(), calls=[call(1, method="tools/list", params={})])
    abandon_call(stream)
    client.loop.do(call_manager)
    (response,) = resume_stream(client, stream).all()
    assert {tool["name"] for tool in response["result"]["tools"]} >= {"act", "look"}


def test_progress_of_a_rerun_continues_after_stored_progress(client):
    """The progress value MUST increase with each notification (utilities/progress)."""
    said = [
        _progress("t", 1), _progress("t", 4), _progress("another", 9),
        {"jsonrpc": "2.0", "method": "notifications/message", "params": {
            "level": "info", "data": "notifications/progress"}},
    ]  # fmt: skip
    *found, response = abandoned_call(client, "look", said).all()
    mine = [one["params"] for one in found if one["method"] == "notifications/progress"]
    assert [one["progress"] for one in mine if one["progressToken"] == "t"] == [1, 4, 5, 6]
    assert text(response) == "looked"


def _progress(token, done):
    params = {"progressToken": token, "progress": done}
    return {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}


# Claimed here, when the connection broke.


def claimed(client, tool, **changes) -> Stream:
    """A call of this process, of which nothing in it knows."""
    stream = streams.open(client.load_session(), calls=[call(1, params={"name": tool})])
    client.loop.do(call_manager)
    Call.objects.update(process=leases.lease.hold(), **changes)
    resume(client)
    return stream


def resume(client):
    row = Call.objects.get()
    client.loop.do(lambda: call_manager().resume(row))


def resumed(client, tool, **changes):
    return resume_stream(client, claimed(client, tool, **changes)).all()[-1]


def test_call_claimed_by_an_answer_runs(client, runs):
    assert text(resumed(client, "act", fence=1)) == "acted" and runs == ["act"]
    assert Call.objects.get().runs == 0


@pytest.mark.parametrize("before", [{"fence": 0}, {"fence": 2, "runs": 1}])
def test_claimed_call_that_began_before_is_reported_as_lost(client, runs, before):
    assert text(resumed(client, "act", **before)) == LOST and runs == []


def test_started_call_without_a_response_is_reported_as_lost(client, runs):
    stream = claimed(client, "ask", fence=1)
    found = resume_stream(client, stream)
    found.until(1)
    client.loop.until(lambda: not call_manager().running_ids())
    Call.objects.update(state="running", process=leases.lease.hold())
    Ask.objects.all().delete()
    resume(client)
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


def test_answer_counts_once_after_a_commit_with_a_lost_reply(client, runs, monkeypatch):
    reading = client.open_stream(client.call("ask"))
    (asked,) = reading.until(1)
    unheard(monkeypatch)
    client.answer(asked, ACME)
    assert text(reading.all()[-1]) == "Acme"
    client.answer(asked, {"action": "accept", "content": {"answer": "Bolts"}})
    idle(client)
    assert runs == ["Acme"] and Call.objects.get().state == DONE


def test_manager_lists_the_streams_of_its_calls(client, gate):
    found = client.open_stream(client.call("wait"))
    assert client.loop.do(lambda: list(call_manager().streams())) == [found.row.pk]
    gate.set()
    found.all()
    idle(client)
    assert not client.loop.do(lambda: list(call_manager().streams()))


# That cannot go on.


def test_claimed_call_that_cannot_run_gets_an_error(client, runs):
    """The server is unknown to this process, or the user cannot be checked."""
    Session.objects.update(server="another")
    assert resumed(client, "act", fence=1)["error"]["code"] == -32603 and runs == []
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


def test_response_that_cannot_be_stored_becomes_an_error(client, monkeypatch):
    refusing(monkeypatch, 1)
    response = resumed(client, "act", fence=1)
    assert response["error"]["code"] == -32603
    idle(client)
    assert Call.objects.get().state == DONE and not client.loop.do(
        lambda: call_manager().running_ids()
    )


def test_call_whose_responses_cannot_be_stored_runs_again(client, runs, monkeypatch):
    refusing(monkeypatch, 2, "")
    stream = claimed(client, "look", fence=1)
    client.loop.until(lambda: runs)
    idle(client)
    assert Call.objects.get().state == RUNNING
    found = resume_stream(client, stream)
    client.loop.until(lambda: poller()._reconciliation_timer.make_due() or len(runs) == 2)
    assert text(found.all()[-1]) == "looked"
    row = Call.objects.get()
    assert (row.runs, row.fence) == (1, 2)


# Where no thread is free.


def test_recovered_call_waits_for_a_thread(client, runs, gate):
    fill(gate)
    (refused,) = client.post(client.call("again")).responses
    assert "retryAfter" in refused["error"]["data"]
    found = abandoned_call(client, "again")
    client.loop.sleep(0.3)
    assert found.messages == [] and runs == []
    gate.set()
    assert text(found.all()[-1]) == "done"


def test_answered_call_waits_for_a_thread(client, runs, gate):
    found = client.open_stream(client.call("ask"))
    (asked,) = found.until(1)
    fill(gate)
    client.answer(asked, ACME)
    client.loop.sleep(0.3)
    assert found.messages == [asked]
    gate.set()
    assert text(found.all()[-1]) == "Acme"


def test_call_after_a_step_waits_for_a_thread(client, runs, gate, monkeypatch):
    end = threads.tools._end

    def and_filled(job):
        end(job)
        if runs and not gate.is_set():
            fill(gate)

    monkeypatch.setattr(threads.tools, "_end", and_filled)
    found = client.open_stream(client.call("step"))
    client.loop.until(lambda: runs)
    client.loop.sleep(0.3)
    assert found.messages == []
    gate.set()
    assert text(found.all()[-1]) == "stepped" and runs == ["step"]


# Where the process is about to end.


def ending(client, whether=True):
    client.loop.do(lambda: setattr(call_manager(), "is_ending", whether))
    # A poll that began before may still take calls over.
    client.loop.until(lambda: not poller()._claims_open)


def sweep(client):
    """As after a third of a lease."""
    client.loop.do(lambda: (poller()._takeover_timer.make_due(), poller()._poll_now.set()))


@pytest.mark.parametrize("before", [0, 3])
def test_stopping_process_leaves_answered_calls_to_others(client, runs, before):
    found = client.open_stream(client.call("ask"))
    (asked,) = found.until(1)
    Call.objects.update(runs=before)
    ending(client)
    client.answer(asked, ACME)
    sweep(client)
    client.loop.sleep(0.3)
    row = Call.objects.get()
    assert (row.state, row.process, runs) == (RUNNING, "", [])
    ending(client, whether=False)
    sweep(client)
    assert text(found.all()[-1]) == "Acme" and runs == ["Acme"]


def test_answer_received_by_a_stopping_process_counts_once(client, runs, monkeypatch):
    found = client.open_stream(client.call("ask"))
    (asked,) = found.until(1)
    ending(client)
    unheard(monkeypatch)
    client.answer(asked, ACME)
    client.answer(asked, {"action": "accept", "content": {"answer": "Bolts"}})
    ending(client, whether=False)
    sweep(client)
    assert text(found.all()[-1]) == "Acme" and runs == ["Acme"]


def test_stopping_process_runs_answered_calls_of_clients_that_cannot_reconnect(loop, server, runs):
    client = SessionClient(loop, server, revision="2025-06-18")
    found = client.open_stream(client.call("ask"))
    (asked,) = found.until(1)
    ending(client)
    client.answer(asked, ACME)
    assert text(found.all()[-1]) == "Acme"


def test_stopped_process_claims_no_calls(loop, server, runs):
    client = SessionClient(loop, server, revision="2025-06-18")
    found = client.open_stream(client.call("ask"))
    (asked,) = found.until(1)
    client.loop.run(_finish())
    client.answer(asked, ACME)
    assert Call.objects.get().process == "" and not Process.objects.exists() and runs == []


async def _finish() -> None:
    await call_manager().finish()


# What the poller finds.


def test_call_that_was_answered_after_the_recheck_began_continues(client, gate):
    """The recheck found the call parked, and meanwhile an answer resumed it."""
    found = client.open_stream(client.call("ask_and_wait"))
    (asked,) = found.until(1)
    parked = Call.objects.get().pk
    client.answer(asked, {"action": "accept", "content": {"answer": True}})
    client.loop.until(lambda: call_manager().running_ids())
    client.loop.do(lambda: call_manager().stop_if_lost([parked, parked + 1]))
    client.loop.sleep(0.2)
    gate.set()
    assert text(found.all()[-1]) == "waited"
