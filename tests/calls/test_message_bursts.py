"""Calls that send many messages keep their order and slow down to the speed of the database."""

from __future__ import annotations

import asyncio
import threading
import time
from types import SimpleNamespace

import pytest

import django_mcp as mcp
from django_mcp.calls.call_state import ActiveCall
from django_mcp.calls.session_calls import call_manager
from django_mcp.runtime import threads
from django_mcp.storage import event_log, event_writer, streams
from django_mcp.storage.event_writer import EventWriter

from ..storage.loops import a_loop
from ..storage.rows import given
from .session_client import SessionClient, text

pytestmark = pytest.mark.django_db
MANY = 3_000
LARGE = 90_000 * "x"


@pytest.fixture
def loop(monkeypatch):
    with a_loop(monkeypatch, period=60) as made:
        yield made


@pytest.fixture
def waited():
    """How many messages waited, each time something was said."""
    return []


@pytest.fixture
def before():
    """What is done before a message of that number is said."""
    return {}


@pytest.fixture
def client(loop, server, waited, before):
    loop.writer = loop.do(call_manager).writer

    @server.tool(permission=mcp.PUBLIC)
    async def burst(request) -> str:
        """Say a lot, from a thread that is not a job of ours."""
        found = call_manager().writer._queues

        def speak():
            for number in range(MANY):
                before.get(number, bool)()
                request.progress(number)
                waited.append(sum(len(lane.waiting) for lane in list(found.values())))

        await asyncio.to_thread(speak)
        return "said"

    @server.tool(permission=mcp.PUBLIC)
    def large(request, count: int) -> str:
        """Say large messages, from a thread."""
        for number in range(count):
            request.progress(number, message=LARGE)
            waited.append(loop.writer.waiting_size)
        return "said"

    @server.tool(permission=mcp.PUBLIC)
    async def alarge(request, count: int) -> str:
        """The same in the loop."""
        for number in range(count):
            await request.aprogress(number, message=LARGE)
            waited.append(loop.writer.waiting_size)
        return "said"

    @server.tool(permission=mcp.PUBLIC)
    async def asmall(request, count: int) -> str:
        """Send many small messages from asynchronous code."""
        for number in range(count):
            await request.aprogress(number)
            waited.append(sum(len(queue.waiting) for queue in loop.writer._queues.values()))
        return "said"

    @server.tool(permission=mcp.PUBLIC)
    async def never_waits(request, count: int) -> str:
        """The same, and the loop has no turn."""
        for number in range(count):
            request.progress(number, message=LARGE)
        return "said"

    return SessionClient(loop, server)


def test_messages_keep_their_order_while_the_stream_is_opened(client, before, monkeypatch):
    queue_message, open = EventWriter.queue_message, streams.open
    opening, said_half, passed_on = (threading.Event() for _ in range(3))

    def opened(*args, **options):
        opening.set()
        assert said_half.wait(10)
        return open(*args, **options)

    def interrupted(self, *args, **options):
        if threading.current_thread() is threading.main_thread():
            passed_on.set()
            time.sleep(0.000_1)
        return queue_message(self, *args, **options)

    before[1] = lambda: opening.wait(10)
    before[MANY // 2] = lambda: said_half.set() or passed_on.wait(10)
    monkeypatch.setattr(streams, "open", opened)
    monkeypatch.setattr(EventWriter, "queue_message", interrupted)
    *said, response = client.open_stream(client.call("burst", _token="t")).all()
    assert [one["params"]["progress"] for one in said] == list(range(MANY))
    assert text(response) == "said"


def test_sender_is_slowed_down_to_the_speed_of_the_database(client, waited, monkeypatch):
    append_many = event_log.append_many

    def slow(said, *args, **options):
        time.sleep(sum(map(len, said.values())) * 0.000_04)  # of each event
        return append_many(said, *args, **options)

    monkeypatch.setattr(event_log, "append_many", slow)
    client.open_stream(client.call("burst", _token="t")).all()
    assert len(waited) == MANY and max(waited) < MANY * 0.9


@pytest.mark.parametrize(
    "waiting",
    [
        0,
        1,
        event_writer.MESSAGES_PER_PAUSE - 1,
        event_writer.MESSAGES_PER_PAUSE + 1,
        10 * event_writer.MESSAGES_PER_PAUSE - 1,
    ],
)
def test_short_queue_causes_no_pause(waiting):
    assert event_writer.pause_seconds(waiting) == 0


def test_pause_grows_with_the_queue_up_to_a_limit():
    queued = (turns * event_writer.MESSAGES_PER_PAUSE for turns in (1, 3, 300))
    short, long, longest = map(event_writer.pause_seconds, queued)
    assert 0 < short < long < longest == event_writer.MAX_PAUSE_SECONDS


@pytest.mark.usefixtures("real_threads")
@pytest.mark.parametrize("tool", ["large", "alarge"])
def test_call_with_many_large_messages_is_slowed_down_and_completes(client, waited, tool):
    """9 MB, which is more than may wait."""
    found = client.open_stream(client.call(tool, "t", count=100)).all()
    assert text(found[-1]) == "said" and len(found) == 101
    assert max(waited) <= event_writer.PACED_SIZE + len(LARGE) + 1_000


def test_call_that_overflows_the_queue_without_a_pause_is_ended(client):
    (*found, last) = client.open_stream(client.call("never_waits", "t", count=100)).all()
    assert last["result"]["isError"] and "8 MB" in text(last) and "aprogress" in text(last)


@pytest.fixture
def sleeps(monkeypatch):
    """Record for each ``time.sleep`` whether it runs in an event loop and under a call's lock."""
    recorded = SimpleNamespace(in_loop=[], locked=[], calls=[])
    sleep, created = time.sleep, ActiveCall.__init__

    def recording(seconds):
        recorded.in_loop.append(asyncio._get_running_loop() is not None)
        recorded.locked.append(any(active._lock.locked() for active in recorded.calls))
        sleep(seconds)

    def remember(self, *args, **options):
        created(self, *args, **options)
        recorded.calls.append(self)

    monkeypatch.setattr(time, "sleep", recording)
    monkeypatch.setattr(ActiveCall, "__init__", remember)
    return recorded


def test_async_tool_never_sleeps_in_the_event_loop(client, sleeps):
    found = client.open_stream(client.call("asmall", "t", count=1_000)).all()
    assert text(found[-1]) == "said" and len(found) == 1_001
    assert not any(sleeps.in_loop)


def test_thread_sleeps_without_the_lock_of_its_call(client, sleeps):
    client.open_stream(client.call("burst", "t")).all()
    assert False in sleeps.in_loop and not any(sleeps.locked)


def test_async_call_with_many_small_messages_is_slowed_down_and_completes(client, waited):
    count = event_writer.MAX_QUEUED_MESSAGES + 1_000
    found = client.open_stream(client.call("asmall", "t", count=count)).all()
    assert text(found[-1]) == "said" and len(found) == count + 1
    assert max(waited) < event_writer.MAX_QUEUED_MESSAGES


@pytest.mark.usefixtures("real_threads")
def test_cancelled_thread_stops_waiting_for_the_queue(loop, client, waited, monkeypatch):
    """The loop ends a call under a lock: a thread that waited there would stop the loop."""
    monkeypatch.setattr(EventWriter, "_begin", lambda self: None)  # nothing is written any more
    message = client.call("large", "t", count=100)
    with given(JSON_GRACE=0.05):
        reply = client.post(message)
    loop.until(lambda: len(waited) > 20)
    (kept,) = reply.calls
    loop.do(kept.cancel)
    loop.until(lambda: kept.active.task.done() and threads.tools.pending() == 0, 5)
