"""A call that says a lot: in order from the first word on, and little of it waits."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

import django_mcp as mcp
from django_mcp.delivery import events, streams, writer
from django_mcp.delivery.writer import Writer
from django_mcp.dispatch.durable import docket

from ..delivery.loops import a_loop
from .desk import Desk, text

pytestmark = pytest.mark.django_db
MANY = 3_000


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
def desk(loop, server, waited, before):
    @server.tool(permission=mcp.PUBLIC)
    async def burst(request) -> str:
        """Say a lot, from a thread that is not a job of ours."""
        found = docket().writer._lanes

        def speak():
            for number in range(MANY):
                before.get(number, bool)()
                request.progress(number)
                waited.append(sum(len(lane.waiting) for lane in list(found.values())))

        await asyncio.to_thread(speak)
        return "said"

    return Desk(loop, server)


def test_what_is_said_while_the_stream_is_opened_comes_after_what_was_said_before(
    desk, before, monkeypatch
):
    say, open = Writer.say, streams.open
    opening, said_half, passed_on = (threading.Event() for _ in range(3))

    def opened(*args, **options):
        opening.set()
        assert said_half.wait(10)
        return open(*args, **options)

    def interrupted(self, *args, **options):
        if threading.current_thread() is threading.main_thread():
            passed_on.set()
            time.sleep(0.000_1)
        return say(self, *args, **options)

    before[1] = lambda: opening.wait(10)
    before[MANY // 2] = lambda: said_half.set() or passed_on.wait(10)
    monkeypatch.setattr(streams, "open", opened)
    monkeypatch.setattr(Writer, "say", interrupted)
    *said, response = desk.streamed(desk.call("burst", _token="t")).all()
    assert [one["params"]["progress"] for one in said] == list(range(MANY))
    assert text(response) == "said"


def test_who_says_more_than_is_written_is_slowed_down(desk, waited, monkeypatch):
    append_many = events.append_many

    def slow(said, *args, **options):
        time.sleep(sum(map(len, said.values())) * 0.000_04)  # of each event
        return append_many(said, *args, **options)

    monkeypatch.setattr(events, "append_many", slow)
    desk.streamed(desk.call("burst", _token="t")).all()
    assert len(waited) == MANY and max(waited) < MANY * 0.9


@pytest.mark.parametrize("waiting", [0, 1, writer.TURN - 1, writer.TURN + 1, 10 * writer.TURN - 1])
def test_most_messages_wait_for_nothing(waiting, monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("A pause"))
    writer.pace(waiting)


def test_a_pause_is_longer_the_more_there_waits_and_never_long(monkeypatch):
    paused: list[float] = []
    monkeypatch.setattr(time, "sleep", paused.append)
    for turns in (1, 3, 300):
        writer.pace(turns * writer.TURN)
    assert paused[0] < paused[1] < paused[2] == writer.LONGEST_PAUSE
