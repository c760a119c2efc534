"""Calls of sessions: JSON at once or rows; cancelled, asked, taken over, wherever they are."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress

import pytest
from django.db import OperationalError, connection

import django_mcp as mcp
from django_mcp.calls.execution import beside
from django_mcp.calls.session_calls import call_manager
from django_mcp.calls.session_output import PostResponse
from django_mcp.models import DONE, PARKED, RUNNING, Ask, Call, Event, Session, Step, Stream
from django_mcp.storage import calls, event_log, event_writer, leases, poller, sessions, streams
from django_mcp.storage import leases as processes
from django_mcp.storage.stream_reader import StreamEnd

from ..storage import rows
from ..storage.rows import call, given, together
from .session_client import Desk, Reading, text

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
def desk(loop, server):
    return Desk(loop, server)


def progress(message) -> float:
    assert message["method"] == "notifications/progress"
    return message["params"]["progress"]


# At once.


def test_what_is_done_at_once_is_answered_by_json(desk):
    (response,) = desk.at_once(desk.call("add", a=1, b=2))
    assert text(response) == "3" and not Stream.objects.exists()


def test_a_batch_is_answered_as_one(loop, server):
    desk = Desk(loop, server, revision="2025-03-26")
    wrong = {"jsonrpc": "2.0", "id": 99, "method": 7}
    found = desk.at_once(desk.call("add", a=1, b=2), desk.call("add", a=3, b=4), wrong)
    by_id = {one["id"]: one for one in found}
    assert text(by_id[1]) == "3" and text(by_id[2]) == "7" and "error" in by_id[99]


def test_what_was_refused_before_it_began_says_when_to_try_again(desk, gate):
    with given(CONCURRENT_CALLS=2):
        waiting = [desk.start(desk.call("wait")) for _ in range(2)]
        refused = desk.post(desk.call("add", a=1, b=2))
        assert refused.is_overloaded and refused.responses[0]["error"]["data"] == {"retryAfter": 1}
        other = Desk(desk.loop, desk.server)
        assert text(other.post(other.call("add", a=1, b=2)).responses[0]) == "3"
    gate.set()
    for one in waiting:
        desk.loop.until(one.answered.done)


def test_an_id_is_used_once_at_a_time(desk, gate):
    first = desk.start(desk.call("wait") | {"id": "x"})
    (refused,) = desk.post(desk.call("add", a=1, b=2) | {"id": "x"}).responses
    assert refused["error"]["code"] == -32600
    (other,) = desk.post(desk.call("add", a=1, b=2) | {"id": 1}).responses
    assert text(other) == "3"
    gate.set()
    desk.loop.until(first.answered.done)


# Written down.


def test_after_the_grace_there_are_rows(desk, gate):
    reading = desk.streamed(desk.call("wait"))
    row = Call.objects.get()
    assert (row.state, row.process, row.stream_id) == (RUNNING, leases.lease.hold(), reading.row.pk)
    gate.set()
    (response,) = reading.all()
    assert text(response) == "waited"
    row.refresh_from_db()
    assert (row.state, row.params) == (DONE, {})


def test_what_is_said_comes_before_the_answer_and_at_once(desk, gate):
    reading = desk.streamed(desk.call("say_and_wait", "t"))
    assert [progress(one) for one in reading.until(1)] == [1]
    gate.set()
    *said, response = reading.all()
    assert [progress(one) for one in said] == [1, 2] and text(response) == "said"


def test_a_burst_from_a_thread_is_complete_and_in_order(desk):
    reading = desk.streamed(desk.call("count", "t", to=500))
    *said, response = reading.all()
    assert [progress(one) for one in said] == list(range(1, 501)) and text(response) == "counted"


def test_a_batch_ends_with_its_last_answer(loop, server, gate):
    desk = Desk(loop, server, revision="2025-03-26")
    reading = desk.streamed(
        desk.call("add", a=1, b=2), desk.call("wait"), desk.call("count", "t", to=3)
    )
    gate.set()
    found = reading.all()
    answers = {one["id"]: text(one) for one in found if "id" in one}
    assert answers == {1: "3", 2: "waited", 3: "counted"}
    assert [progress(one) for one in found if "id" not in one] == [1, 2, 3]


def test_a_durable_tool_is_written_down_before_it_runs(desk, runs):
    (response,) = desk.streamed(desk.call("kept")).all()
    assert text(response) == "kept" and runs == ["tools/call"]


def test_every_tool_of_a_durable_server_is(desk):
    desk.server.durable = True
    assert text(desk.streamed(desk.call("add", a=1, b=2)).all()[0]) == "3"
    assert desk.post(desk.message("tools/list")).stream is None


def test_a_call_outlives_its_connection(desk, gate):
    reading = desk.streamed(desk.call("wait"))
    reading.reader.task.cancel()
    desk.loop.sleep(0.05)
    gate.set()
    desk.loop.until(lambda: not call_manager().held())
    assert Call.objects.get().state == DONE
    assert text(desk_messages(desk, reading.row)[-1]) == "waited"


def desk_messages(desk, stream):
    found = Event.objects.filter(stream=stream).order_by("seq")
    return [json.loads(data) for data in found.values_list("data", flat=True)]


def test_a_call_that_others_have_taken_over_before_its_commit_was_known_is_theirs(
    desk, runs, monkeypatch
):
    insert, tried = PostResponse._insert, []

    def inserting(self, *args, again):
        stream = insert(self, *args, again=again)
        tried.append(again)
        if not again:
            Call.objects.update(process="taker", fence=1)
            raise OperationalError("The connection is gone.")
        return stream

    monkeypatch.setattr(PostResponse, "_insert", inserting)
    desk.server.durable = True
    desk.start(desk.call("look"))
    desk.loop.until(lambda: tried == [False, True] and not call_manager()._requests)
    assert not runs and Call.objects.get().process == "taker"


def test_who_says_too_much_is_told_by_an_error(desk):
    with given(EVENTS=20):
        reading = desk.streamed(desk.call("count", "t", to=2000))
        *said, response = reading.all()
    assert response["result"]["isError"] and "more messages than" in text(response)
    assert len(said) <= 20 and [progress(one) for one in said] == list(range(1, len(said) + 1))


def test_what_is_said_while_rows_are_made_is_not_too_much_for_the_log(desk, monkeypatch):
    insert = PostResponse._insert

    def inserting(self, *args, **options):
        for n in range(1, 4):
            self.calls[0].send({"jsonrpc": "2.0", "method": "notifications/message", "params": n})
        return insert(self, *args, **options)

    monkeypatch.setattr(PostResponse, "_insert", inserting)
    monkeypatch.setattr(event_writer, "MAX_TOTAL_QUEUED_SIZE", 1)
    *said, response = desk.streamed(desk.call("kept")).all()
    assert [one["params"] for one in said] == [1, 2, 3] and text(response) == "kept"


def test_what_holds_no_json_is_an_error(desk, monkeypatch):
    from django_mcp.calls import runner

    monkeypatch.setattr(runner.CallRunner, "_result", lambda self, call, result: {"id": {1}})
    (response,) = desk.streamed(desk.call("kept")).all()
    assert response["error"]["code"] == -32603


# Letting the connection go.


def test_a_released_connection_ends_and_the_call_goes_on(desk, gate):
    reading = desk.streamed(desk.call("release", "t"))
    assert reading.reader.ended() is StreamEnd.RELEASED and progress(reading.messages[0]) == 1
    gate.set()
    desk.loop.until(lambda: not call_manager().held())
    assert text(desk_messages(desk, reading.row)[-1]) == "released"


def test_an_older_client_would_not_come_back(loop, server, gate):
    desk = Desk(loop, server, revision="2025-06-18")
    reading = desk.streamed(desk.call("release", "t"))
    reading.until(1)
    gate.set()
    assert text(reading.all()[-1]) == "released" and reading.reader.ending is StreamEnd.FINISHED


# Cancelling.


def test_a_cancelled_call_in_memory_is_not_answered(desk, runs, gate):
    reply = desk.start(desk.call("wait"))
    desk.loop.until(lambda: runs)
    desk.cancel(1)
    assert desk.loop.run(asyncio.wait_for(asyncio.shield(reply.answered), 5)) is False
    assert reply.responses == [] and not Stream.objects.exists()
    assert not Call.objects.exclude(state=DONE, cancelled=True, stream=None).exists()


def test_what_was_cancelled_before_it_was_a_row_does_not_come_back(desk, runs, gate):
    """Its thread goes on, and the grace ends; nobody runs it again, and nothing is answered."""
    reply = desk.start(desk.call("linger"))
    desk.loop.until(lambda: runs)
    desk.cancel(1)
    desk.loop.until(lambda: reply.stream is not None)
    row = Call.objects.get(stream=reply.stream)
    assert (row.state, row.cancelled) == (DONE, True)
    gate.set()
    desk.loop.until(lambda: not call_manager().held())
    assert Reading(desk, reply).all() == [] and runs == ["linger"]


def test_a_cancelled_call_ends_its_stream_without_an_event(desk, gate):
    reading = desk.streamed(desk.call("wait"))
    desk.cancel(1)
    assert reading.all() == [] and reading.reader.ending is StreamEnd.FINISHED
    row = Call.objects.get()
    assert (row.state, row.cancelled) == (DONE, True)
    gate.set()
    desk.loop.sleep(0.05)
    assert Stream.objects.get().last == 0


def test_a_call_that_another_process_cancels_stops_here(desk, gate):
    reading = desk.streamed(desk.call("wait"))
    calls.cancel(desk.session, "1")
    assert reading.all() == []
    desk.loop.until(lambda: not call_manager().held())


def test_a_cancel_that_came_before_the_row(desk, runs, gate):
    reply = desk.start(desk.call("wait"))
    desk.loop.until(lambda: runs)
    calls.cancel(desk.session, "1")  # at a process that knows nothing of the call
    desk.loop.until(reply.answered.done)
    assert reply.stream is not None
    row = Stream.objects.get()
    assert row.closed and row.last == 0
    desk.loop.until(lambda: not call_manager().held())


def test_one_call_of_a_batch(loop, server, gate):
    desk = Desk(loop, server, revision="2025-03-26")
    reading = desk.streamed(desk.call("wait"), desk.call("wait"))
    desk.cancel(1)
    gate.set()
    (response,) = reading.all()
    assert response["id"] == 2


def test_a_cancel_for_what_is_over_does_nothing(desk):
    (response,) = desk.streamed(desk.call("kept")).all()
    desk.cancel(1)
    desk.cancel("another")
    assert text(response) == "kept" and Call.objects.filter(cancelled=True).count() == 1


# Asking.


def test_a_question_parks_the_call_and_its_answer_goes_on_with_it(desk, runs):
    reading = desk.streamed(desk.call("ask"))
    (asked,) = reading.until(1)
    assert asked["method"] == "elicitation/create"
    row = Call.objects.get()
    assert (row.state, row.process) == (PARKED, "") and not desk.loop.do(
        lambda: call_manager().held()
    )
    desk.answer(asked, {"action": "accept", "content": {"answer": True}})
    assert text(reading.all()[-1]) == "answer: True" and runs == ["ask", "ask"]
    assert not Ask.objects.exists()


def test_several_questions_and_several_rounds(desk):
    reading = desk.streamed(desk.call("ask_twice", "t"))
    said, a, b = reading.until(3)
    desk.answer(b, {"action": "accept", "content": {"answer": "b"}})
    desk.loop.sleep(0.05)
    assert Call.objects.get().state == PARKED
    desk.answer(a, {"action": "accept", "content": {"answer": "a"}})
    again, more = reading.until(5)[3:]
    desk.answer(more, {"action": "accept", "content": {"answer": "c"}})
    assert text(reading.all()[-1]) == "abc"
    assert [progress(one) for one in (said, again)] == [1, 2]


def test_an_answer_that_answers_nothing_is_asked_for_again(desk):
    reading = desk.streamed(desk.call("ask"))
    (asked,) = reading.until(1)
    desk.answer(asked, {"nonsense": 1})
    again = reading.until(2)[1]
    assert again["method"] == "elicitation/create" and again["id"] != asked["id"]
    desk.answer(again, {"action": "accept", "content": {"answer": False}})
    assert text(reading.all()[-1]) == "answer: False"


def test_an_error_is_an_answer(desk):
    reading = desk.streamed(desk.call("ask"))
    (asked,) = reading.until(1)
    desk.answer(asked, error={"code": -1, "message": "no dialog"})
    response = reading.all()[-1]
    assert response["result"]["isError"] and "no dialog" in text(response)


def test_answers_that_come_twice_late_or_unasked_are_ignored(desk, runs):
    reading = desk.streamed(desk.call("ask"))
    (asked,) = reading.until(1)
    yes = {"action": "accept", "content": {"answer": True}}
    desk.answer({"id": "f" * 32}, yes)
    desk.answer({"id": 7}, yes)
    other = Desk(desk.loop, desk.server)
    other.answer(asked, yes)
    assert Call.objects.get().state == PARKED
    for _ in range(3):
        desk.answer(asked, yes)
    assert text(reading.all()[-1]) == "answer: True" and len(runs) == 2
    desk.answer(asked, yes)


@pytest.mark.slow
def test_a_question_that_nobody_answers_is_withdrawn(desk):
    with given(JSON_GRACE=0.15, QUESTION_TIMEOUT=0.2):
        reading = desk.streamed(desk.call("ask"))
        found = reading.all()
    asked, withdrawn, response = found
    assert withdrawn["method"] == "notifications/cancelled"
    assert withdrawn["params"]["requestId"] == asked["id"]
    assert response["result"]["isError"] and "in time" in text(response)


def test_nothing_is_asked_before_the_client_is_ready(loop, server):
    desk = Desk(loop, server, initialized=False)
    reading = desk.streamed(desk.call("ask"))
    loop.sleep(0.3)
    assert reading.messages == [] and Call.objects.get().state == RUNNING
    sessions.initialize(desk.session)
    (asked,) = reading.until(1)
    desk.answer(asked, {"action": "accept", "content": {"answer": True}})
    assert text(reading.all()[-1]) == "answer: True"


def test_a_client_that_is_never_ready_is_not_waited_for(loop, server):
    desk = Desk(loop, server, initialized=False)
    with given(JSON_GRACE=0.15, QUESTION_TIMEOUT=0.3):
        (response,) = desk.streamed(desk.call("ask")).all()
    assert response["result"]["isError"]


def test_a_client_that_cannot_be_asked(loop, server):
    desk = Desk(loop, server, capabilities={})
    (response,) = desk.at_once(desk.call("ask"))
    assert response["result"]["isError"] and "elicitation" in text(response)


def test_a_cancelled_question(desk):
    reading = desk.streamed(desk.call("ask"))
    (asked,) = reading.until(1)
    desk.cancel(1)
    withdrawn = reading.all()[-1]
    assert withdrawn["method"] == "notifications/cancelled"
    assert withdrawn["params"]["requestId"] == asked["id"]
    desk.answer(asked, {"action": "accept", "content": {"answer": True}})
    assert Call.objects.get().cancelled and Stream.objects.get().last == 2


def test_a_step_happens_once_however_often_the_call_runs(desk, runs):
    reading = desk.streamed(desk.call("once_and_ask"))
    (asked,) = reading.until(1)
    assert Step.objects.get().call == f"c{Call.objects.get().pk}"
    desk.answer(asked, {"action": "accept", "content": {"answer": True}})
    assert text(reading.all()[-1]) == "1 True" and runs == ["step"]
    desk.loop.until(lambda: not call_manager()._tasks)
    assert not Step.objects.exists()


def test_who_may_not_sign_in_by_the_time_of_the_answer_gets_none(loop, server, alice):
    @server.tool
    def private(request) -> str:
        """For users."""
        return f"{request.user} {request.elicit('?', bool)}"

    desk = Desk(loop, server, alice)
    yes = {"action": "accept", "content": {"answer": True}}
    reading = desk.streamed(desk.call("private"))
    desk.answer(reading.until(1)[0], yes)
    assert text(reading.all()[-1]) == "alice True"
    reading = desk.streamed(desk.call("private"))
    alice.is_active = False
    alice.save()
    desk.answer(asked := reading.until(1)[0], yes)
    assert reading.all() == [asked]  # and nothing more is said
    assert Call.objects.latest("pk").cancelled


# Taking over.


def test_who_was_taken_for_dead_has_no_outcome(desk, gate):
    reading = desk.streamed(desk.call("wait"))
    processes.begin("another")
    Call.objects.update(fence=5, process="another")
    gate.set()
    desk.loop.until(lambda: not call_manager().held())
    row = Call.objects.get()
    assert (row.state, row.fence) == (RUNNING, 5) and reading.messages == []


def test_who_was_taken_for_dead_forgets_no_steps(desk, runs, gate):
    """Whoever has the call now may run it again."""
    found = desk.streamed(desk.call("once_and_wait"))
    desk.loop.until(lambda: runs)
    processes.begin("another")
    Call.objects.update(fence=5, process="another")
    gate.set()
    desk.loop.until(lambda: not (call_manager().held() or call_manager()._tasks))
    assert found.messages == [] and Step.objects.get().value == 1


def test_a_session_that_ends_stops_its_calls(desk, gate):
    reading = desk.streamed(desk.call("wait"))
    desk.loop.run(_end(desk.fresh()))
    assert reading.reader.ended() in (StreamEnd.GONE, StreamEnd.FINISHED)
    assert not Session.objects.exists() and not desk.loop.do(lambda: call_manager().held())


async def _end(session) -> None:
    await call_manager().end(session)


def test_a_session_that_ends_elsewhere_stops_its_calls_too(desk, gate):
    reading = desk.streamed(desk.call("wait"))
    sessions.end(desk.session)
    assert reading.reader.ended() is StreamEnd.GONE
    desk.loop.until(lambda: not call_manager().held())


def test_a_session_that_ended_before_the_rows(desk, runs, gate):
    reply = desk.start(desk.call("wait"))
    desk.loop.until(lambda: runs)
    sessions.end(desk.session)
    desk.loop.until(reply.answered.done)
    assert reply.is_gone and reply.stream is None


def test_a_session_with_too_many_streams_still_answers(desk, gate, monkeypatch):
    monkeypatch.setattr(streams, "MAX_STREAMS_PER_SESSION", 0)
    reply = desk.start(desk.call("say_and_wait", "t"))
    desk.loop.sleep(0.3)
    gate.set()
    desk.loop.until(reply.answered.done)
    assert reply.stream is None and text(reply.responses[0]) == "said"
    (response,) = desk.post(desk.call("ask")).responses
    assert response["result"]["isError"] and "Too many requests" in text(response)
    assert desk.post(desk.call("kept")).is_overloaded


# The end.


def test_nothing_is_left_when_all_is_done(desk, gate):
    gate.set()
    desk.streamed(desk.call("kept")).all()
    desk.post(desk.call("add", a=1, b=2))

    def idle():
        working = call_manager()
        return not (working._requests or working._rows or working._claimed or working._tasks)

    desk.loop.until(idle)
    task = desk.loop.do(lambda: poller.poller()._task)
    assert task is None or task.done()


def test_a_call_that_is_no_longer_mine_does_no_step(desk, runs, gate):
    reading = desk.streamed(desk.call("wait_and_step", "t"))
    desk.loop.until(lambda: runs)
    Call.objects.filter(stream=reading.row).update(fence=7, process="another's")
    gate.set()
    desk.loop.until(lambda: not call_manager().held())
    assert not Step.objects.exists() and (runs == ["begun"] or beside(True))


def test_what_does_not_fit_after_a_question_is_no_success(desk):
    with given(EVENTS=10):
        reading = desk.streamed(desk.call("say_and_ask", "t", count=6))
        *said, asked = reading.until(7)
        desk.answer(asked, {"action": "accept", "content": {"answer": True}})
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
def test_durable_request_whose_id_another_worker_has_or_had_is_refused(desk, runs, gate, state):
    processes.begin("another")
    message = desk.call("wait")
    at_another_worker(desk.fresh(), message, state=state)
    desk.server.durable = True
    reply = desk.post(message)
    (response,) = reply.responses
    assert response["error"]["message"] == (
        "A request with this id was received before in this session. Use another id."
    )
    assert reply.stream is None and runs == [] and Call.objects.count() == 1
    assert Session.objects.get().streams == 1


def test_durable_request_that_is_sent_again_after_its_response_does_not_run_again(desk, runs):
    message = desk.call("kept")
    assert text(desk.streamed(message).all()[-1]) == "kept"
    (response,) = desk.post(message).responses
    assert response["error"]["code"] == -32600 and runs == ["tools/call"]


@pytest.mark.skipif(connection.vendor != "mysql", reason="MariaDB limits a statement")
def test_durable_request_that_the_database_does_not_take_is_refused(desk, runs, monkeypatch):
    monkeypatch.setitem(event_log._packets, "default", 2_000)
    (response,) = desk.post(desk.call("kept", note="x" * 1_000)).responses
    assert response["error"]["code"] == -32600 and "Send less." in response["error"]["message"]
    assert runs == [] and Call.objects.count() == 0


def test_other_requests_of_a_batch_are_answered_beside_one_that_is_refused(
    loop, server, gate, runs
):
    gate.set()
    desk = Desk(loop, server, revision="2025-03-26")
    processes.begin("another")
    twin, other = desk.call("wait"), desk.call("add", a=1, b=2)
    at_another_worker(desk.fresh(), twin)
    server.durable = True
    found = {one["id"]: one for one in desk.streamed(twin, other).all()}
    assert found[twin["id"]]["error"]["code"] == -32600
    assert text(found[other["id"]]) == "3" and runs == []


def test_two_workers_that_get_one_durable_request_at_once_run_it_once(shared_db):
    """The lock of the session orders them."""
    made = rows.session()

    def open():
        try:
            return streams.open(made, calls=[call(7)], unbegun=["7"]).pk
        except streams.DuplicateRequest as error:
            return error.ids

    found = together(open, open)
    assert [one for one in found if one == {"7"}] == [{"7"}] and Call.objects.count() == 1
