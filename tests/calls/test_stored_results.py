"""The response is stored in the tool's transaction, or not at all."""

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
from .session_client import SessionClient, text

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
def client(loop, server):
    return SessionClient(loop, server)


def written() -> list[str]:
    return list(Company.objects.order_by("name").values_list("name", flat=True))


def idle(client):
    client.loop.until(lambda: not (call_manager()._requests or call_manager()._tasks))


# Together.


@beside
def test_response_is_stored_in_the_transaction_of_the_tool(client):
    (response,) = client.open_stream(client.call("kept")).all()
    idle(client)
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
def test_call_answered_as_json_stores_nothing(client, after):
    working = client.loop.do(call_manager)

    def grace_is_over():
        """Store late calls now, although the response was already decided."""
        (kept,) = working.running()
        kept.post.loop.call_soon_threadsafe(lambda: [kept.post._store_late_calls(), looked.set()])
        assert looked.wait(10)

    looked = threading.Event()
    after.append(grace_is_over)
    (response,) = client.json_responses(client.call("plain"))
    assert text(response) == "written" and not Call.objects.exists()
    idle(client)


def test_notifications_are_stored_before_the_response(client):
    *said, response = client.open_stream(client.call("speak", "t", to=300)).all()
    assert [one["params"]["progress"] for one in said] == list(range(1, 301))
    assert text(response) == "written" and written() == ["Acme"]


def test_call_acts_once_after_a_repeated_answer(client):
    reading = client.open_stream(client.call("ask"))
    (asked,) = reading.until(1)
    for _ in range(2):
        client.answer(asked, {"action": "accept", "content": {"answer": "Bolts"}})
    assert text(reading.all()[-1]) == "written" and written() == ["Bolts"]


def test_steps_are_deleted_with_the_response(client):
    (response,) = client.open_stream(client.call("step")).all()
    assert text(response) == "written" and written() == ["Acme", "in a step"]
    idle(client)
    assert not Step.objects.exists()


@beside
def test_batch_stores_only_the_call_that_still_runs(loop, server, after):
    """One call finishes without being stored, then another one of its batch is stored."""
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
    client = SessionClient(loop, server, revision="2025-03-26")
    with given(JSON_GRACE=60):
        reading = client.open_stream(client.call("plain"), client.call("say", "t"))
    answers = {one["id"]: text(one) for one in reading.all() if "id" in one}
    assert answers == {1: "written", 2: "said"}
    assert Call.objects.count() == 1
    idle(client)


# Cancelled, or taken over.


@beside
def test_cancellation_before_the_commit_rolls_back(client, within):
    within.append(lambda: elsewhere(calls.cancel, client.session, "1"))
    assert client.open_stream(client.call("kept")).all() == []
    idle(client)
    assert written() == [] and Call.objects.get().cancelled


@beside
def test_cancellation_after_the_commit_is_too_late(client, within):
    late = []

    def cancel():
        late.append(elsewhere(calls.cancel, client.session, "1"))

    within.append(lambda: transaction.on_commit(cancel))
    (response,) = client.open_stream(client.call("kept")).all()
    idle(client)
    assert late == [None] and text(response) == "written" and written() == ["Acme"]


@beside
def test_cancellation_during_the_commit_waits_for_it(client, monkeypatch):
    late, threads = [], []

    def cancel():
        try:
            late.append(calls.cancel(client.session, "1"))
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
    (response,) = client.open_stream(client.call("kept")).all()
    threads[0].join()
    assert late == [None] and text(response) == "written" and written() == ["Acme"]
    idle(client)


@beside
def test_cancellation_after_the_decision_does_not_stop_on_commit_hooks(client, within):
    """The hooks of the tool run to their end, including their queries."""
    done, begun = [], threading.Event()

    def hook():
        begun.set()
        time.sleep(0.4)
        done.append(Company.objects.count())

    within.append(lambda: transaction.on_commit(hook))
    reading = client.open_stream(client.call("kept"))
    client.loop.until(begun.is_set)
    client.cancel(1)
    assert text(reading.all()[-1]) == "written"
    idle(client)
    assert done == [1]


def _take():
    leases.begin("another")
    Call.objects.update(fence=5, process="another")


@beside
def test_call_of_a_worker_that_lost_it_is_rolled_back(client, within):
    within.append(lambda: elsewhere(_take))
    reading = client.open_stream(client.call("kept"))
    idle(client)
    assert written() == [] and reading.messages == [] and Call.objects.get().fence == 5


@beside
def test_step_of_a_worker_that_lost_its_call_is_rolled_back(client, within):
    within.append(lambda: elsewhere(_take))
    client.open_stream(client.call("step"))
    idle(client)
    assert written() == [] and not Step.objects.exists()


# What breaks.


def test_failed_tool_is_rolled_back_and_answered(client, within):
    def fail():
        raise mcp.ToolError("No.")

    within.append(fail)
    (response,) = client.open_stream(client.call("kept")).all()
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
def test_commit_with_a_lost_reply_that_succeeded_is_answered_once(client, monkeypatch):
    _commit_breaks(monkeypatch, before=False)
    (response,) = client.open_stream(client.call("kept")).all()
    idle(client)
    assert text(response) == "written" and written() == ["Acme"]
    assert Event.objects.filter(final=True).count() == 1


@beside
def test_commit_with_a_lost_reply_that_failed_is_an_error(client, monkeypatch):
    _commit_breaks(monkeypatch, before=True)
    (response,) = client.open_stream(client.call("kept")).all()
    idle(client)
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
def test_call_that_cannot_be_stored_in_time_is_rolled_back(client, monkeypatch):
    """Another transaction locks the session, so that no stream can be opened."""
    monkeypatch.setattr(session_output, "WRITE_TIMEOUT_SECONDS", 0.3)
    with holding(client.session, 0.8):
        client.post(client.call("speak", "t", to=1))
    idle(client)
    said, final = Event.objects.order_by("seq")
    assert session_output.UNWRITTEN in final.data and written() == []


@beside
def test_session_that_ends_before_the_call_is_stored_rolls_it_back(client):
    """The session is deleted while the insert of the call waits for its lock."""
    with holding(client.session, 0.3, lambda mine: mine.delete()):
        reply = client.post(client.call("speak", "t", to=1))
    idle(client)
    assert reply.has_session_ended and written() == []


@beside
def test_step_and_its_result_are_one_transaction(client, within):
    """The connection breaks during the step, and nothing of it is stored."""
    within.append(_cut)
    (response,) = client.open_stream(client.call("step")).all()
    assert response["result"]["isError"]
    idle(client)
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


def test_tool_may_roll_back_its_own_writes(client, within):
    within.append(lambda: transaction.set_rollback(True))
    (response,) = client.open_stream(client.call("kept")).all()
    idle(client)
    assert text(response) == "written" and written() == []


@pytest.mark.parametrize("tool", ["kept", "plain"])
def test_response_of_a_released_call_is_stored(client, server, tool, within):
    within.append(lambda: manager_of[0].running()[0].active.release())
    manager_of = [client.loop.do(call_manager)]
    reading = client.open_stream(client.call(tool))
    idle(client)
    final = Event.objects.get()
    assert "written" in final.data and written() == ["Acme"] and reading.row.pk == final.stream_id


# Where it cannot be.


def test_response_is_stored_after_the_transaction_on_sqlite(client):
    """The same holds in the transaction of a test."""
    if connection.vendor == "sqlite":
        (response,) = client.open_stream(client.call("kept")).all()
        assert text(response) == "written" and not Call.objects.get().atomic
    assert not execution.can_store_result_in_transaction(
        False
    ) and not execution.can_store_result_in_transaction("another")


# More than MariaDB takes at once.


@pytest.mark.skipif(connection.vendor != "mysql", reason="of MariaDB alone")
@pytest.mark.parametrize("tool", ["sized", "asized"])
def test_response_too_large_for_the_database_is_an_error(client, server, monkeypatch, tool):
    monkeypatch.setitem(event_log._packets, "default", 30_000)
    server.durable = True
    (response,) = client.open_stream(client.call(tool)).all()
    assert response["result"]["isError"] and "Ask for less data." in text(response)
    assert written() == [] and Call.objects.get().state == DONE
