"""The outcome in the tool's transaction: with real threads, and what goes wrong in between."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import contextmanager

import pytest
from django.db import OperationalError, connection, connections, transaction

import django_mcp as mcp
from django_mcp.calls import execution, session_output
from django_mcp.calls.session_calls import call_manager
from django_mcp.models import DONE, Call, Event, Session, Step, Stream
from django_mcp.storage import calls, event_log, leases
from tests.shop.models import Company

from ..storage.rows import elsewhere, given
from .session_client import Desk, text

pytestmark = pytest.mark.usefixtures("real_threads", "short_grace")
PUBLIC = {"permission": mcp.PUBLIC}
beside = pytest.mark.skipif(
    connection.vendor == "sqlite", reason="SQLite's one writer is the tool: its outcome follows"
)


@pytest.fixture
def within():
    """What happens in the tool, after it has written."""
    return []


@pytest.fixture
def after(monkeypatch):
    """What happens around the tool's transaction, when that is over."""
    found = []

    @contextmanager
    def manager(request):
        yield
        for one in found:
            one()

    monkeypatch.setattr(execution, "around", [manager])
    return found


@pytest.fixture
def server(server, within):
    def write(request, name="Acme"):
        Company.objects.create(name=name)
        for one in within:
            one()
        return "written"

    @server.tool(**PUBLIC)
    def plain(request) -> str:
        """Write, and be answered at once."""
        return write(request)

    @server.tool(**PUBLIC)
    def speak(request, to: int) -> str:
        """Write, after saying something."""
        for n in range(1, to + 1):
            request.progress(n)
        return write(request)

    @server.tool(**PUBLIC)
    def ask(request) -> str:
        """Ask, and write."""
        return write(request, request.elicit("What name?", str))

    @server.tool(**PUBLIC)
    def step(request) -> str:
        """Write in a step of its own, then fail."""
        request.once("step", lambda: write(request, "in a step"))
        return write(request)

    class Kept(mcp.Tool):
        """Write, and be written down before."""

        durable = True
        permission = mcp.PUBLIC

        def handle(self, request) -> str:
            return write(request)

    @server.tool(**PUBLIC)
    def sized(request) -> str:
        """Write, and answer at length."""
        Company.objects.create(name="Acme")
        return '"' * 20_000

    @server.tool(**PUBLIC)
    async def asized(request) -> str:
        """Answer at length."""
        return '"' * 20_000

    server.register(Kept)
    return server


@pytest.fixture
def desk(loop, server):
    return Desk(loop, server)


def written() -> list[str]:
    return list(Company.objects.order_by("name").values_list("name", flat=True))


def idle(desk):
    desk.loop.until(lambda: not (call_manager()._requests or call_manager()._tasks))


# Together.


@beside
def test_what_was_written_and_the_response_are_one_transaction(desk):
    (response,) = desk.streamed(desk.call("kept")).all()
    idle(desk)
    assert text(response) == "written" and written() == ["Acme"]
    row = Call.objects.get()
    assert (row.atomic, row.state, row.params) == (True, DONE, {})
    if connection.vendor == "postgresql":
        tables = (Company, Call, Event, Stream)
        assert len({_transaction_of(model) for model in tables}) == 1


def _transaction_of(model) -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT xmin::text FROM {model._meta.db_table}")
        return cursor.fetchone()[0]


@beside
def test_what_is_answered_by_json_writes_nothing(desk, after):
    working = desk.loop.do(call_manager)

    def grace_is_over():
        """It is decided all the same."""
        (kept,) = working.running()
        kept.reply.loop.call_soon_threadsafe(lambda: [kept.reply._store_late_calls(), looked.set()])
        assert looked.wait(10)

    looked = threading.Event()
    after.append(grace_is_over)
    (response,) = desk.at_once(desk.call("plain"))
    assert text(response) == "written" and not Call.objects.exists()
    idle(desk)


def test_what_was_said_comes_before_the_response(desk):
    *said, response = desk.streamed(desk.call("speak", "t", to=300)).all()
    assert [one["params"]["progress"] for one in said] == list(range(1, 301))
    assert text(response) == "written" and written() == ["Acme"]


def test_a_call_that_acts_after_its_question_acts_once(desk):
    reading = desk.streamed(desk.call("ask"))
    (asked,) = reading.until(1)
    for _ in range(2):
        desk.answer(asked, {"action": "accept", "content": {"answer": "Bolts"}})
    assert text(reading.all()[-1]) == "written" and written() == ["Bolts"]


def test_steps_are_forgotten_with_the_outcome(desk):
    (response,) = desk.streamed(desk.call("step")).all()
    assert text(response) == "written" and written() == ["Acme", "in a step"]
    idle(desk)
    assert not Step.objects.exists()


@beside
def test_a_slow_ending_of_one_call_of_a_batch(loop, server, after):
    """It is decided without a row, and then another call of its batch needs rows."""
    decided, asking = threading.Event(), threading.Event()

    @server.tool(**PUBLIC)
    async def say(request) -> str:
        """Say something, when the other is decided."""
        while not decided.is_set():  # noqa: ASYNC110 - a thread tells nobody
            await asyncio.sleep(0.005)
        request.progress(1)
        asking.set()
        await asyncio.sleep(0.4)
        return "said"

    def ending():
        decided.set()
        asking.wait(10)
        time.sleep(0.2)

    after.append(ending)
    desk = Desk(loop, server, revision="2025-03-26")
    with given(JSON_GRACE=60):
        reading = desk.streamed(desk.call("plain"), desk.call("say", "t"))
    answers = {one["id"]: text(one) for one in reading.all() if "id" in one}
    assert answers == {1: "written", 2: "said"}
    assert Call.objects.count() == 1
    idle(desk)


# Cancelled, or taken over.


@beside
def test_before_the_commit_the_cancel_wins(desk, within):
    within.append(lambda: elsewhere(calls.cancel, desk.session, "1"))
    assert desk.streamed(desk.call("kept")).all() == []
    idle(desk)
    assert written() == [] and Call.objects.get().cancelled


@beside
def test_after_the_commit_the_answer_does(desk, within):
    late = []

    def cancel():
        late.append(elsewhere(calls.cancel, desk.session, "1"))

    within.append(lambda: transaction.on_commit(cancel))
    (response,) = desk.streamed(desk.call("kept")).all()
    idle(desk)
    assert late == [None] and text(response) == "written" and written() == ["Acme"]


@beside
def test_a_cancel_in_between_waits_for_the_commit(desk, monkeypatch):
    late, threads = [], []

    def cancel():
        try:
            late.append(calls.cancel(desk.session, "1"))
        finally:
            connections.close_all()

    @contextmanager
    def manager(request):
        with transaction.atomic():
            yield
            threads.append(threading.Thread(target=cancel))
            threads[0].start()
            time.sleep(0.3)
            assert not late

    monkeypatch.setattr(execution, "around", [manager])
    (response,) = desk.streamed(desk.call("kept")).all()
    threads[0].join()
    assert late == [None] and text(response) == "written" and written() == ["Acme"]
    idle(desk)


@beside
def test_a_cancel_here_after_the_decision_stops_no_hook(desk, within):
    """The tool's hooks run to their end, queries and all."""
    done, begun = [], threading.Event()

    def hook():
        begun.set()
        time.sleep(0.4)
        done.append(Company.objects.count())

    within.append(lambda: transaction.on_commit(hook))
    reading = desk.streamed(desk.call("kept"))
    desk.loop.until(begun.is_set)
    desk.cancel(1)
    assert text(reading.all()[-1]) == "written"
    idle(desk)
    assert done == [1]


def _take():
    leases.begin("another")
    Call.objects.update(fence=5, process="another")


@beside
def test_who_was_taken_for_dead_is_rolled_back(desk, within):
    within.append(lambda: elsewhere(_take))
    reading = desk.streamed(desk.call("kept"))
    idle(desk)
    assert written() == [] and reading.messages == [] and Call.objects.get().fence == 5


@beside
def test_a_step_of_who_was_taken_for_dead_is_rolled_back(desk, within):
    within.append(lambda: elsewhere(_take))
    desk.streamed(desk.call("step"))
    idle(desk)
    assert written() == [] and not Step.objects.exists()


# What breaks.


def test_a_tool_that_fails_after_it_wrote_is_told_so(desk, within):
    def fail():
        raise mcp.ToolError("No.")

    within.append(fail)
    (response,) = desk.streamed(desk.call("kept")).all()
    assert text(response) == "No." and written() == []


def _commit_breaks(monkeypatch, *, before: bool):
    """The connection of the tool's thread breaks at its commit: ``before`` it, or after."""
    wrapper = type(connections["default"])
    commit = wrapper._commit
    left = [True]

    def broken(self):
        mine = threading.current_thread().name.startswith("mcp-tool")
        if not (mine and left):
            return commit(self)
        left.clear()
        if before:
            self.connection.close()
        else:
            commit(self)
        raise OperationalError("The connection broke.")

    monkeypatch.setattr(wrapper, "_commit", broken)


@beside
def test_a_commit_of_unknown_outcome_that_came_through(desk, monkeypatch):
    _commit_breaks(monkeypatch, before=False)
    (response,) = desk.streamed(desk.call("kept")).all()
    idle(desk)
    assert text(response) == "written" and written() == ["Acme"]
    assert Event.objects.filter(final=True).count() == 1


@beside
def test_a_commit_of_unknown_outcome_that_did_not(desk, monkeypatch):
    _commit_breaks(monkeypatch, before=True)
    (response,) = desk.streamed(desk.call("kept")).all()
    idle(desk)
    assert response["result"]["isError"] and written() == []
    assert Event.objects.filter(final=True).count() == 1


@contextmanager
def holding(session, seconds, then=lambda mine: None):
    """Another process holds the session's lock for a while; the block begins with that."""
    held = threading.Event()

    def hold():
        with transaction.atomic():
            mine = Session.objects.filter(pk=session.pk)
            mine.select_for_update().get()
            held.set()
            time.sleep(seconds)
            then(mine)
        connections.close_all()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(10)
    yield
    thread.join()


@beside
def test_what_cannot_be_written_down_in_time_is_undone(desk, monkeypatch):
    """Another holds the session's row, so that nothing can be opened."""
    monkeypatch.setattr(session_output, "WRITE_TIMEOUT_SECONDS", 0.3)
    with holding(desk.session, 0.8):
        desk.post(desk.call("speak", "t", to=1))
    idle(desk)
    said, final = Event.objects.order_by("seq")
    assert session_output.UNWRITTEN in final.data and written() == []


@beside
def test_a_session_that_ends_before_the_rows_undoes_what_was_done(desk):
    """It is deleted while the first row of the call waits for it."""
    with holding(desk.session, 0.3, lambda mine: mine.delete()):
        reply = desk.post(desk.call("speak", "t", to=1))
    idle(desk)
    assert reply.is_gone and written() == []


@beside
def test_a_step_and_its_value_are_one_transaction(desk, within):
    """The connection breaks in the midst of the step: nothing is left of it."""
    within.append(_cut)
    (response,) = desk.streamed(desk.call("step")).all()
    assert response["result"]["isError"]
    idle(desk)
    assert written() == [] and not Step.objects.exists()


def _cut():
    """As when the process is killed: the database ends what the connection was at."""
    pid = {"postgresql": "pg_backend_pid()", "mysql": "CONNECTION_ID()"}[connection.vendor]
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {pid}")
        number = cursor.fetchone()[0]

    def kill():
        end = {"postgresql": "SELECT pg_terminate_backend(%s)", "mysql": "KILL %s"}
        with connection.cursor() as cursor:
            cursor.execute(end[connection.vendor], [number])

    elsewhere(kill)


def test_a_tool_may_roll_back_what_it_wrote(desk, within):
    within.append(lambda: transaction.set_rollback(True))
    (response,) = desk.streamed(desk.call("kept")).all()
    idle(desk)
    assert text(response) == "written" and written() == []


@pytest.mark.parametrize("tool", ["kept", "plain"])
def test_what_is_let_go_at_the_end_is_fetched(desk, server, tool, within):
    within.append(lambda: manager_of[0].running()[0].active.release())
    manager_of = [desk.loop.do(call_manager)]
    reading = desk.streamed(desk.call(tool))
    idle(desk)
    final = Event.objects.get()
    assert "written" in final.data and written() == ["Acme"] and reading.row.pk == final.stream_id


# Where it cannot be.


def test_elsewhere_the_outcome_follows(desk):
    """In a test's transaction, and on SQLite."""
    if connection.vendor == "sqlite":
        (response,) = desk.streamed(desk.call("kept")).all()
        assert text(response) == "written" and not Call.objects.get().atomic
    assert not execution.may_hold(False) and not execution.may_hold("another")


# More than MariaDB takes at once.


@pytest.mark.skipif(connection.vendor != "mysql", reason="of MariaDB alone")
@pytest.mark.parametrize("tool", ["sized", "asized"])
def test_answer_that_the_database_does_not_take_is_an_error_that_asks_for_less(
    desk, server, monkeypatch, tool
):
    monkeypatch.setitem(event_log._packets, "default", 30_000)
    server.durable = True
    (response,) = desk.streamed(desk.call(tool)).all()
    assert response["result"]["isError"] and "Ask for less at once." in text(response)
    assert written() == [] and Call.objects.get().state == DONE
