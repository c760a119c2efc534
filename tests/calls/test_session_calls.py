"""Calls of sessions: JSON or streamed responses, cancellation, questions, and several workers."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress

import pytest
from django.db import OperationalError, connection

import django_mcp as mcp
from django_mcp.calls.execution import shares_transaction
from django_mcp.calls.session_calls import call_manager
from django_mcp.calls.session_output import PostResponse
from django_mcp.models import DONE, PARKED, RUNNING, Ask, Call, Event, Session, Step, Stream
from django_mcp.storage import calls, event_log, event_writer, leases, poller, sessions, streams
from django_mcp.storage import leases as processes
from django_mcp.storage.stream_reader import StreamEnd

from ..storage import rows
from ..storage.rows import call, given, together
from .session_client import ClientStream, SessionClient, text

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("short_grace")]
PUBLIC = {"permission": mcp.PUBLIC}


@pytest.fixture
def server(server, gate, runs):
    async def passed():
        while not gate.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.002)

    @server.tool(**PUBLIC)
    async def add(request, a: int, b: int) -> int:
        """Add."""
        return a + b

    @server.tool(**PUBLIC)
    async def wait(request) -> str:
        """Wait."""
        runs.append("wait")
        await passed()
        return "waited"

    @server.tool(read_only=True, **PUBLIC)
    async def look(request) -> str:
        """Wait, and change nothing."""
        runs.append("look")
        await passed()
        return "looked"

    @server.tool(**PUBLIC)
    def count(request, to: int) -> str:
        """Count, in a thread."""
        for n in range(1, to + 1):
            request.progress(n, to)
        return "counted"

    @server.tool(**PUBLIC)
    async def say_and_wait(request) -> str:
        """Speak, and wait."""
        request.progress(1)
        await passed()
        request.progress(2)
        return "said"

    @server.tool(**PUBLIC)
    def ask(request) -> str:
        """Ask."""
        runs.append("ask")
        return f"answer: {request.elicit('Really?', bool)}"

    @server.tool(**PUBLIC)
    def ask_twice(request) -> str:
        """Ask two questions at once, then one more."""
        request.progress(1)
        found = request.ask(a=mcp.Elicit("A?", str), b=mcp.Elicit("B?", str))
        request.progress(2)
        more = request.elicit(f"And after {found['a']}{found['b']}?", str)
        return found["a"] + found["b"] + more

    @server.tool(**PUBLIC)
    def once_and_ask(request) -> str:
        """Do a step, then ask."""
        number = request.once("step", lambda: runs.append("step") or len(runs))
        return f"{number} {request.elicit('Go on?', bool)}"

    @server.tool(**PUBLIC)
    async def once_and_wait(request) -> str:
        """Do a step, then wait."""
        await request.aonce("step", lambda: 1)
        runs.append("after the step")
        await passed()
        return "done"

    @server.tool(**PUBLIC)
    async def release(request) -> str:
        """Let the connection go."""
        request.progress(1)
        await request.arelease_stream()
        await passed()
        return "released"

    @server.tool(**PUBLIC)
    def broken(request) -> set:
        """Return what is no JSON."""
        return {1}

    @server.tool(idempotent=True, **PUBLIC)
    async def linger(request) -> str:
        """Take a cancel for nothing, as a thread does."""
        runs.append("linger")
        while not gate.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.002)
        return "lingered"

    @server.tool(**PUBLIC)
    def say_and_ask(request, count: int) -> str:
        """Speak before a question and after it."""
        for n in range(count):
            request.progress(n + 1)
        request.elicit("Go on?", bool)
        for n in range(count, 2 * count):
            request.progress(n + 1)
        return "said"

    @server.tool(**PUBLIC)
    async def wait_and_step(request) -> str:
        """Do a step when it may."""
        request.progress(1)
        runs.append("begun")
        await passed()
        await request.aonce("step", lambda: runs.append("step") or 1)
        return "stepped"

    class Kept(mcp.Tool):
        """Written down before it runs."""

        durable = True
        permission = mcp.PUBLIC

        def handle(self, request) -> str:
            runs.append(Call.objects.get(state=RUNNING).method)
            return "kept"

    server.register(Kept)
    return server


@pytest.fixture
def client(loop, server):
    return SessionClient(loop, server)


def progress(message) -> float:
    assert message["method"] == "notifications/progress"
    return message["params"]["progress"]


# At once.


def test_fast_call_is_answered_as_json(client):
    (response,) = client.json_responses(client.call("add", a=1, b=2))
    assert text(response) == "3" and not Stream.objects.exists()


def test_repr_of_a_call_contains_no_arguments(client):
    with given(JSON_GRACE=60):
        (running,) = client.start(client.call("add", a=1, b="secret")).calls
        assert repr(running) == "<SessionCall id=1 method='tools/call' row=None>"
    (stored,) = client.open_stream(client.call("wait")).reply.calls
    assert repr(stored) == f"<SessionCall id=2 method='tools/call' row=tools/call #{stored.row.pk}>"


def test_fast_batch_is_answered_as_one(loop, server):
    client = SessionClient(loop, server, revision="2025-03-26")
    wrong = {"jsonrpc": "2.0", "id": 99, "method": 7}
    found = client.json_responses(client.call("add", a=1, b=2), client.call("add", a=3, b=4), wrong)
    by_id = {one["id"]: one for one in found}
    assert text(by_id[1]) == "3" and text(by_id[2]) == "7" and "error" in by_id[99]


def test_call_rejected_before_it_began_contains_retry_after(client, gate):
    with given(CONCURRENT_CALLS=2):
        waiting = [client.start(client.call("wait")) for _ in range(2)]
        refused = client.post(client.call("add", a=1, b=2))
        assert refused.responses[0]["error"]["data"] == {"retryAfter": 1}
        other = SessionClient(client.loop, client.server)
        assert text(other.post(other.call("add", a=1, b=2)).responses[0]) == "3"
    gate.set()
    for one in waiting:
        client.loop.until(one.answered.done)


def test_request_id_of_a_running_call_is_rejected(client, gate):
    first = client.start(client.call("wait") | {"id": "x"})
    (refused,) = client.post(client.call("add", a=1, b=2) | {"id": "x"}).responses
    assert refused["error"]["code"] == -32600
    (other,) = client.post(client.call("add", a=1, b=2) | {"id": 1}).responses
    assert text(other) == "3"
    gate.set()
    client.loop.until(first.answered.done)


# Written down.


def test_call_that_exceeds_the_json_grace_is_stored(client, gate):
    reading = client.open_stream(client.call("wait"))
    row = Call.objects.get()
    assert (row.state, row.process, row.stream_id) == (RUNNING, leases.lease.hold(), reading.row.pk)
    gate.set()
    (response,) = reading.all()
    assert text(response) == "waited"
    row.refresh_from_db()
    assert (row.state, row.params) == (DONE, {})


def test_notifications_are_delivered_before_the_response(client, gate):
    reading = client.open_stream(client.call("say_and_wait", "t"))
    assert [progress(one) for one in reading.until(1)] == [1]
    gate.set()
    *said, response = reading.all()
    assert [progress(one) for one in said] == [1, 2] and text(response) == "said"


def test_many_notifications_of_a_thread_are_complete_and_in_order(client):
    reading = client.open_stream(client.call("count", "t", to=500))
    *said, response = reading.all()
    assert [progress(one) for one in said] == list(range(1, 501)) and text(response) == "counted"


def test_stream_of_a_batch_ends_with_its_last_response(loop, server, gate):
    client = SessionClient(loop, server, revision="2025-03-26")
    reading = client.open_stream(
        client.call("add", a=1, b=2), client.call("wait"), client.call("count", "t", to=3)
    )
    gate.set()
    found = reading.all()
    answers = {one["id"]: text(one) for one in found if "id" in one}
    assert answers == {1: "3", 2: "waited", 3: "counted"}
    assert [progress(one) for one in found if "id" not in one] == [1, 2, 3]


def test_durable_tool_is_stored_before_it_runs(client, runs):
    (response,) = client.open_stream(client.call("kept")).all()
    assert text(response) == "kept" and runs == ["tools/call"]


def test_every_tool_of_a_durable_server_is_stored(client):
    client.server.durable = True
    assert text(client.open_stream(client.call("add", a=1, b=2)).all()[0]) == "3"
    assert client.post(client.message("tools/list")).stream is None


def test_call_continues_after_its_connection_closes(client, gate):
    reading = client.open_stream(client.call("wait"))
    reading.reader.task.cancel()
    client.loop.sleep(0.05)
    gate.set()
    client.loop.until(lambda: not call_manager().running_ids())
    assert Call.objects.get().state == DONE
    assert text(stored_messages(client, reading.row)[-1]) == "waited"


def stored_messages(client, stream):
    found = Event.objects.filter(stream=stream).order_by("seq")
    return [json.loads(data) for data in found.values_list("data", flat=True)]


def test_call_that_another_worker_took_over_is_not_run_here(client, runs, monkeypatch):
    insert, tried = PostResponse._insert_rows, []

    def inserting(self, *args, is_retry):
        stream = insert(self, *args, is_retry=is_retry)
        tried.append(is_retry)
        if not is_retry:
            Call.objects.update(process="taker", fence=1)
            raise OperationalError("The connection is gone.")
        return stream

    monkeypatch.setattr(PostResponse, "_insert_rows", inserting)
    client.server.durable = True
    client.start(client.call("look"))
    client.loop.until(lambda: tried == [False, True] and not call_manager()._requests)
    assert not runs and Call.objects.get().process == "taker"


def test_call_with_too_many_notifications_gets_an_error(client):
    with given(EVENTS=20):
        reading = client.open_stream(client.call("count", "t", to=2000))
        *said, response = reading.all()
    assert response["result"]["isError"] and "more messages than" in text(response)
    assert len(said) <= 20 and [progress(one) for one in said] == list(range(1, len(said) + 1))


def test_notifications_sent_while_the_call_is_stored_are_kept(client, monkeypatch):
    insert = PostResponse._insert_rows

    def inserting(self, *args, **options):
        for n in range(1, 4):
            self.calls[0].send({"jsonrpc": "2.0", "method": "notifications/message", "params": n})
        return insert(self, *args, **options)

    monkeypatch.setattr(PostResponse, "_insert_rows", inserting)
    monkeypatch.setattr(event_writer, "MAX_TOTAL_QUEUED_SIZE", 1)
    *said, response = client.open_stream(client.call("kept")).all()
    assert [one["params"] for one in said] == [1, 2, 3] and text(response) == "kept"


def test_result_that_is_not_json_is_an_internal_error(client, monkeypatch):
    from django_mcp.calls import runner

    monkeypatch.setattr(runner.CallRunner, "_result", lambda self, call, result: {"id": {1}})
    (response,) = client.open_stream(client.call("kept")).all()
    assert response["error"]["code"] == -32603


# Letting the connection go.


def test_released_connection_ends_and_the_call_continues(client, gate):
    reading = client.open_stream(client.call("release", "t"))
    assert reading.reader.ended() is StreamEnd.RELEASED and progress(reading.messages[0]) == 1
    gate.set()
    client.loop.until(lambda: not call_manager().running_ids())
    assert text(stored_messages(client, reading.row)[-1]) == "released"


def test_connection_of_a_client_that_cannot_reconnect_is_not_released(loop, server, gate):
    client = SessionClient(loop, server, revision="2025-06-18")
    reading = client.open_stream(client.call("release", "t"))
    reading.until(1)
    gate.set()
    assert text(reading.all()[-1]) == "released" and reading.reader.ending is StreamEnd.FINISHED


# Cancelling.


def test_cancelled_call_in_memory_is_not_answered(client, runs, gate):
    reply = client.start(client.call("wait"))
    client.loop.until(lambda: runs)
    client.cancel(1)
    assert client.loop.run(asyncio.wait_for(asyncio.shield(reply.answered), 5)) is False
    assert reply.responses == [] and not Stream.objects.exists()
    assert not Call.objects.exclude(state=DONE, cancelled=True, stream=None).exists()


def test_call_cancelled_before_it_was_stored_is_stored_as_cancelled(client, runs, gate):
    """Its thread continues after the grace period; the call is not run again or answered."""
    reply = client.start(client.call("linger"))
    client.loop.until(lambda: runs)
    client.cancel(1)
    client.loop.until(lambda: reply.stream is not None)
    row = Call.objects.get(stream=reply.stream)
    assert (row.state, row.cancelled) == (DONE, True)
    gate.set()
    client.loop.until(lambda: not call_manager().running_ids())
    assert ClientStream(client, reply).all() == [] and runs == ["linger"]


def test_cancelled_call_ends_its_stream_without_an_event(client, gate):
    reading = client.open_stream(client.call("wait"))
    client.cancel(1)
    assert reading.all() == [] and reading.reader.ending is StreamEnd.FINISHED
    row = Call.objects.get()
    assert (row.state, row.cancelled) == (DONE, True)
    gate.set()
    client.loop.sleep(0.05)
    assert Stream.objects.get().last == 0


def test_call_cancelled_by_another_process_stops(client, gate):
    reading = client.open_stream(client.call("wait"))
    calls.cancel(client.session, "1")
    assert reading.all() == []
    client.loop.until(lambda: not call_manager().running_ids())


def test_cancellation_before_the_call_is_stored_takes_effect(client, runs, gate):
    reply = client.start(client.call("wait"))
    client.loop.until(lambda: runs)
    calls.cancel(client.session, "1")  # at a process that knows nothing of the call
    client.loop.until(reply.answered.done)
    assert reply.stream is not None
    row = Stream.objects.get()
    assert row.closed and row.last == 0
    client.loop.until(lambda: not call_manager().running_ids())


def test_one_call_of_a_batch_is_cancelled(loop, server, gate):
    client = SessionClient(loop, server, revision="2025-03-26")
    reading = client.open_stream(client.call("wait"), client.call("wait"))
    client.cancel(1)
    gate.set()
    (response,) = reading.all()
    assert response["id"] == 2


def test_cancellation_of_a_finished_call_is_ignored(client):
    (response,) = client.open_stream(client.call("kept")).all()
    client.cancel(1)
    client.cancel("another")
    assert text(response) == "kept" and Call.objects.filter(cancelled=True).count() == 1


# Asking.


def test_question_parks_the_call_and_its_answer_resumes_it(client, runs):
    reading = client.open_stream(client.call("ask"))
    (asked,) = reading.until(1)
    assert asked["method"] == "elicitation/create"
    row = Call.objects.get()
    assert (row.state, row.process) == (PARKED, "") and not client.loop.do(
        lambda: call_manager().running_ids()
    )
    client.answer(asked, {"action": "accept", "content": {"answer": True}})
    assert text(reading.all()[-1]) == "answer: True" and runs == ["ask", "ask"]
    assert not Ask.objects.exists()


def test_call_resumes_after_all_questions_of_a_round_are_answered(client):
    reading = client.open_stream(client.call("ask_twice", "t"))
    said, a, b = reading.until(3)
    client.answer(b, {"action": "accept", "content": {"answer": "b"}})
    client.loop.sleep(0.05)
    assert Call.objects.get().state == PARKED
    client.answer(a, {"action": "accept", "content": {"answer": "a"}})
    again, more = reading.until(5)[3:]
    client.answer(more, {"action": "accept", "content": {"answer": "c"}})
    assert text(reading.all()[-1]) == "abc"
    assert [progress(one) for one in (said, again)] == [1, 2]


def test_invalid_answer_repeats_the_question(client):
    reading = client.open_stream(client.call("ask"))
    (asked,) = reading.until(1)
    client.answer(asked, {"nonsense": 1})
    again = reading.until(2)[1]
    assert again["method"] == "elicitation/create" and again["id"] != asked["id"]
    client.answer(again, {"action": "accept", "content": {"answer": False}})
    assert text(reading.all()[-1]) == "answer: False"


def test_error_response_answers_the_question(client):
    reading = client.open_stream(client.call("ask"))
    (asked,) = reading.until(1)
    client.answer(asked, error={"code": -1, "message": "no dialog"})
    response = reading.all()[-1]
    assert response["result"]["isError"] and "no dialog" in text(response)


def test_duplicate_late_and_unknown_answers_are_ignored(client, runs):
    reading = client.open_stream(client.call("ask"))
    (asked,) = reading.until(1)
    yes = {"action": "accept", "content": {"answer": True}}
    client.answer({"id": "f" * 32}, yes)
    client.answer({"id": 7}, yes)
    other = SessionClient(client.loop, client.server)
    other.answer(asked, yes)
    assert Call.objects.get().state == PARKED
    for _ in range(3):
        client.answer(asked, yes)
    assert text(reading.all()[-1]) == "answer: True" and len(runs) == 2
    client.answer(asked, yes)


@pytest.mark.slow
def test_unanswered_question_is_cancelled_after_the_timeout(client):
    with given(JSON_GRACE=0.15, QUESTION_TIMEOUT=0.2):
        reading = client.open_stream(client.call("ask"))
        found = reading.all()
    asked, withdrawn, response = found
    assert withdrawn["method"] == "notifications/cancelled"
    assert withdrawn["params"]["requestId"] == asked["id"]
    assert response["result"]["isError"] and "in time" in text(response)


def test_question_waits_until_the_client_is_initialized(loop, server):
    client = SessionClient(loop, server, initialized=False)
    reading = client.open_stream(client.call("ask"))
    loop.sleep(0.3)
    assert reading.messages == [] and Call.objects.get().state == RUNNING
    sessions.initialize(client.session)
    (asked,) = reading.until(1)
    client.answer(asked, {"action": "accept", "content": {"answer": True}})
    assert text(reading.all()[-1]) == "answer: True"


def test_question_to_an_uninitialized_client_times_out(loop, server):
    client = SessionClient(loop, server, initialized=False)
    with given(JSON_GRACE=0.15, QUESTION_TIMEOUT=0.3):
        (response,) = client.open_stream(client.call("ask")).all()
    assert response["result"]["isError"]


def test_question_to_a_client_without_the_capability_is_an_error(loop, server):
    client = SessionClient(loop, server, capabilities={})
    (response,) = client.json_responses(client.call("ask"))
    assert response["result"]["isError"] and "elicitation" in text(response)


def test_cancelled_call_cancels_its_question(client):
    reading = client.open_stream(client.call("ask"))
    (asked,) = reading.until(1)
    client.cancel(1)
    withdrawn = reading.all()[-1]
    assert withdrawn["method"] == "notifications/cancelled"
    assert withdrawn["params"]["requestId"] == asked["id"]
    client.answer(asked, {"action": "accept", "content": {"answer": True}})
    assert Call.objects.get().cancelled and Stream.objects.get().last == 2


def test_step_happens_once_in_several_runs(client, runs):
    reading = client.open_stream(client.call("once_and_ask"))
    (asked,) = reading.until(1)
    assert Step.objects.get().call == f"c{Call.objects.get().pk}"
    client.answer(asked, {"action": "accept", "content": {"answer": True}})
    assert text(reading.all()[-1]) == "1 True" and runs == ["step"]
    client.loop.until(lambda: not call_manager()._tasks)
    assert not Step.objects.exists()


def test_call_of_a_user_deactivated_before_the_answer_is_cancelled(loop, server, alice):
    @server.tool
    def private(request) -> str:
        """For users."""
        return f"{request.user} {request.elicit('?', bool)}"

    client = SessionClient(loop, server, alice)
    yes = {"action": "accept", "content": {"answer": True}}
    reading = client.open_stream(client.call("private"))
    client.answer(reading.until(1)[0], yes)
    assert text(reading.all()[-1]) == "alice True"
    reading = client.open_stream(client.call("private"))
    alice.is_active = False
    alice.save()
    client.answer(asked := reading.until(1)[0], yes)
    assert reading.all() == [asked]  # and nothing more is said
    assert Call.objects.latest("pk").cancelled


# Taking over.


def test_worker_that_lost_its_call_stores_no_response(client, gate):
    reading = client.open_stream(client.call("wait"))
    processes.begin("another")
    Call.objects.update(fence=5, process="another")
    gate.set()
    client.loop.until(lambda: not call_manager().running_ids())
    row = Call.objects.get()
    assert (row.state, row.fence) == (RUNNING, 5) and reading.messages == []


def test_call_continues_when_the_row_of_its_worker_was_deleted(client, runs, gate, monkeypatch):
    monkeypatch.setattr(leases, "LEASE_SECONDS", 0.15)
    reading = client.open_stream(client.call("wait"))
    processes.end(leases.lease.hold())
    leases.lease.abandon()  # as the next heartbeat or poll does
    client.loop.sleep(0.5)
    gate.set()
    assert [text(one) for one in reading.all()] == ["waited"]
    assert runs == ["wait"] and Call.objects.get().fence == 0


def test_worker_that_lost_its_call_deletes_no_steps(client, runs, gate):
    """The new owner of the call may run it again."""
    found = client.open_stream(client.call("once_and_wait"))
    client.loop.until(lambda: runs)
    processes.begin("another")
    Call.objects.update(fence=5, process="another")
    gate.set()
    client.loop.until(lambda: not (call_manager().running_ids() or call_manager()._tasks))
    assert found.messages == [] and Step.objects.get().value == 1


def test_ended_session_stops_its_calls(client, gate):
    reading = client.open_stream(client.call("wait"))
    client.loop.run(_end(client.load_session()))
    assert reading.reader.ended() in (StreamEnd.GONE, StreamEnd.FINISHED)
    assert not Session.objects.exists() and not client.loop.do(lambda: call_manager().running_ids())


async def _end(session) -> None:
    await call_manager().end(session)


def test_session_ended_by_another_process_stops_its_calls(client, gate):
    reading = client.open_stream(client.call("wait"))
    sessions.end(client.session)
    assert reading.reader.ended() is StreamEnd.GONE
    client.loop.until(lambda: not call_manager().running_ids())


def test_call_of_an_ended_session_is_not_stored(client, runs, gate):
    with given(JSON_GRACE=60):  # however slow the machine is
        reply = client.start(client.call("wait"))
    client.loop.until(lambda: runs)
    sessions.end(client.session)
    client.loop.do(reply.start_storing)
    client.loop.until(reply.answered.done)
    assert reply.has_session_ended and reply.stream is None


def test_session_with_too_many_streams_answers_as_json(client, gate, monkeypatch):
    monkeypatch.setattr(streams, "MAX_STREAMS_PER_SESSION", 0)
    reply = client.start(client.call("say_and_wait", "t"))
    client.loop.sleep(0.3)
    gate.set()
    client.loop.until(reply.answered.done)
    assert reply.stream is None and text(reply.responses[0]) == "said"
    (response,) = client.post(client.call("ask")).responses
    assert response["result"]["isError"] and "Too many requests" in text(response)
    (refused,) = client.post(client.call("kept")).responses
    assert refused["error"]["data"] == {"retryAfter": 1}


# The end.


def test_no_state_is_left_when_all_calls_are_done(client, gate):
    gate.set()
    client.open_stream(client.call("kept")).all()
    client.post(client.call("add", a=1, b=2))

    def idle():
        working = call_manager()
        return not (working._requests or working._rows or working._claimed or working._tasks)

    client.loop.until(idle)
    task = client.loop.do(lambda: poller.poller()._task)
    assert task is None or task.done()


def test_worker_that_lost_its_call_runs_no_step(client, runs, gate):
    reading = client.open_stream(client.call("wait_and_step", "t"))
    client.loop.until(lambda: runs)
    Call.objects.filter(stream=reading.row).update(fence=7, process="another's")
    gate.set()
    client.loop.until(lambda: not call_manager().running_ids())
    assert not Step.objects.exists() and (runs == ["begun"] or shares_transaction(True))


def test_notifications_over_the_limit_after_a_question_are_an_error(client):
    with given(EVENTS=10):
        reading = client.open_stream(client.call("say_and_ask", "t", count=6))
        *said, asked = reading.until(7)
        client.answer(asked, {"action": "accept", "content": {"answer": True}})
        *said, response = reading.all()
    assert "more messages than its client" in json.dumps(response)
    assert "error" in response or response["result"]["isError"]


# The same request id at two workers.


def at_another_worker(session, message, **changes):
    """Its row, as another process has written it."""
    made = call(message["id"], params=message["params"], process="another")
    streams.open(session, calls=[made])
    Call.objects.filter(pk=made.pk).update(**changes)


@pytest.mark.parametrize("state", [RUNNING, PARKED, DONE])
def test_durable_request_with_an_id_known_to_another_worker_is_rejected(client, runs, gate, state):
    processes.begin("another")
    message = client.call("wait")
    at_another_worker(client.load_session(), message, state=state)
    client.server.durable = True
    reply = client.post(message)
    (response,) = reply.responses
    assert response["error"]["message"] == (
        "A request with this id was received before in this session. Use another id."
    )
    assert reply.stream is None and runs == [] and Call.objects.count() == 1
    assert Session.objects.get().streams == 1


def test_durable_request_sent_again_after_its_response_does_not_run_again(client, runs):
    message = client.call("kept")
    assert text(client.open_stream(message).all()[-1]) == "kept"
    (response,) = client.post(message).responses
    assert response["error"]["code"] == -32600 and runs == ["tools/call"]


@pytest.mark.skipif(connection.vendor != "mysql", reason="MariaDB limits a statement")
def test_durable_request_too_large_for_the_database_is_rejected(client, runs, monkeypatch):
    monkeypatch.setitem(event_log._packets, "default", 2_000)
    (response,) = client.post(client.call("kept", note="x" * 1_000)).responses
    assert response["error"]["code"] == -32600 and "Send less." in response["error"]["message"]
    assert runs == [] and Call.objects.count() == 0


def test_other_requests_of_a_batch_with_a_rejected_one_are_answered(loop, server, gate, runs):
    gate.set()
    client = SessionClient(loop, server, revision="2025-03-26")
    processes.begin("another")
    twin, other = client.call("wait"), client.call("add", a=1, b=2)
    at_another_worker(client.load_session(), twin)
    server.durable = True
    found = {one["id"]: one for one in client.open_stream(twin, other).all()}
    assert found[twin["id"]]["error"]["code"] == -32600
    assert text(found[other["id"]]) == "3" and runs == []


def test_durable_request_received_by_two_workers_runs_once(shared_db):
    """The lock of the session orders them."""
    made = rows.session()

    def open():
        try:
            return streams.open(made, calls=[call(7)], unbegun=["7"]).pk
        except streams.DuplicateRequest as error:
            return error.ids

    found = together(open, open)
    assert [one for one in found if one == {"7"}] == [{"7"}] and Call.objects.count() == 1
