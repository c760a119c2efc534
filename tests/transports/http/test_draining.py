"""The end of the process: heard here first, told to clients, and never kept from the server."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import django_mcp as mcp
from django_mcp.models import RUNNING, Call, Process
from django_mcp.routing import mount
from django_mcp.transports.http import shutdown as module
from django_mcp.transports.http.shutdown import OpenRequests, ShutdownSignalHandler, draining
from tests.http import HttpClient

pytestmark = pytest.mark.django_db
NUMBER, OTHER = signal.SIGUSR1, signal.SIGUSR2
LONG = 60  # seconds, longer than any machine takes for what ends at once
GRACE = 0.2


class Open:
    """An answer that is being made, until it is ended or cut."""

    owner = ""

    def __init__(self, *, ends: bool = True, yields: int = 1) -> None:
        self.ends, self.yields, self.cuts = ends, yields, 0
        self.over = asyncio.Event()

    def end(self) -> None:
        if self.ends:
            self.over.set()

    def late(self) -> None:
        self.cut()

    def cut(self) -> None:
        self.cuts += 1
        if self.cuts >= self.yields:
            self.over.set()

    async def run(self) -> None:
        with draining().working(self):
            await self.over.wait()


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    """Ends come soon, and by a signal that means nothing to the tests."""
    monkeypatch.setattr(module, "GRACE", {"SIGUSR1": GRACE, "SIGUSR2": GRACE})
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.1)
    monkeypatch.setattr(module, "CANCEL_SECONDS", 0.1)


@pytest.fixture
def heard():
    """What the handler that was there first is told."""
    numbers: list[int] = []
    before = {
        one: signal.signal(one, lambda number, frame: numbers.append(number))
        for one in (NUMBER, OTHER)
    }
    yield numbers
    for one, handler in before.items():
        signal.signal(one, handler)


async def started(*works: Open) -> list[asyncio.Task[None]]:
    tasks = [asyncio.ensure_future(work.run()) for work in works]
    await asyncio.sleep(0)
    return tasks


# What is open.


async def test_what_ends_in_words_is_not_waited_for_longer():
    works = Open(), Open()
    tasks = await started(*works)
    await asyncio.wait_for(draining().finish(LONG), LONG / 2)
    assert all(task.done() for task in tasks) and not any(work.cuts for work in works)


async def test_what_goes_on_is_given_a_while_and_then_cut():
    slow, stubborn = Open(ends=False), Open(ends=False, yields=2)
    await started(slow, stubborn)
    begun = time.monotonic()
    await draining().finish(GRACE)
    assert 0.2 <= time.monotonic() - begun < LONG
    assert (slow.cuts, stubborn.cuts) == (1, 2)


async def test_what_finishes_by_itself_is_not_cut():
    work = Open(ends=False)
    await started(work)
    asyncio.get_running_loop().call_later(0.05, work.over.set)
    begun = time.monotonic()
    await asyncio.wait_for(draining().finish(LONG), LONG / 2)
    assert time.monotonic() - begun >= 0.05 and work.cuts == 0


async def test_what_nothing_ends_is_not_waited_for_for_ever():
    work = Open(ends=False, yields=100)
    (task,) = await started(work)
    await draining().finish(GRACE)
    assert work.cuts == 3 and not task.done()
    work.over.set()
    await task


@pytest.mark.slow
async def test_an_end_is_told_once():
    work = Open(ends=False, yields=100)
    await started(work)
    told = []
    work.end = lambda: told.append(1)
    await asyncio.gather(draining().finish(GRACE), draining().finish(GRACE))
    assert told == [1]
    work.over.set()


async def test_with_nothing_open_it_ends_at_once():
    await asyncio.wait_for(draining().finish(LONG), LONG / 2)
    assert draining().ending


# Signals.


async def test_a_signal_goes_on_when_all_has_ended(heard):
    work = Open(ends=False)
    await started(work)
    signal.raise_signal(NUMBER)
    await asyncio.sleep(0.05)
    assert draining().ending and heard == []
    work.over.set()
    await until(lambda: heard)
    assert heard == [NUMBER]


async def until(condition):
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - a signal tells no event
            await asyncio.sleep(0.005)


async def test_at_a_second_signal_both_go_on_at_once(heard):
    work = Open(ends=False)
    await started(work)
    signal.raise_signal(NUMBER)
    signal.raise_signal(NUMBER)
    assert heard == [NUMBER] * 2  # the first one is held back no longer
    signal.raise_signal(NUMBER)
    assert heard == [NUMBER] * 3
    work.over.set()
    await asyncio.sleep(0.05)
    assert heard == [NUMBER] * 3


async def test_at_a_second_signal_calls_get_no_more_time(heard, monkeypatch):
    monkeypatch.setattr(module, "GRACE", {"SIGUSR1": 30.0})
    monkeypatch.setattr(module, "SECOND_SIGNAL_SECONDS", 0.05)
    work = Open(ends=False)
    (task,) = await started(work)
    signal.raise_signal(NUMBER)
    await asyncio.sleep(0.05)
    signal.raise_signal(NUMBER)
    await asyncio.wait_for(task, 30)
    assert work.cuts == 1 and heard == [NUMBER] * 2


async def test_another_signal_is_a_second_one_too(heard):
    """Somebody at a keyboard has lost patience with what a program has begun."""
    work = Open(ends=False)
    await started(work)
    signal.raise_signal(NUMBER)
    signal.raise_signal(OTHER)
    assert heard == [NUMBER, OTHER]
    work.over.set()


async def test_a_signal_interrupts_a_loop_that_sleeps(heard):
    await started(Open())
    threading.Timer(0.05, os.kill, (os.getpid(), NUMBER)).start()
    begun = time.monotonic()
    await until(lambda: heard)
    assert time.monotonic() - begun < 20


def test_a_signal_after_the_loop_goes_on_at_once(heard):
    async def one():
        await started(Open())

    asyncio.run(one())
    signal.raise_signal(NUMBER)
    assert heard == [NUMBER]


def test_many_loops_are_one_handler(heard):
    """One in front of the other would be called in turn, until there is no stack left."""

    async def one():
        await started(Open())

    for _ in range(20):
        asyncio.run(one())
    handler = signal.getsignal(NUMBER)
    assert isinstance(handler, ShutdownSignalHandler) and not isinstance(
        handler.before, ShutdownSignalHandler
    )


def test_what_the_system_would_do_is_done():
    """In a process of its own, which it ends."""
    program = """
import asyncio, os, signal, sys
sys.path.insert(0, os.getcwd())
os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
import django; django.setup()
from django_mcp.models import RUNNING, Call, Process
from django_mcp.routing import mount
from django_mcp.transports.http import shutdown as module
async def main():
    module.draining()
    print("ready", flush=True)
    await asyncio.sleep(20)
asyncio.run(main())
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=os.getcwd()
    )
    try:
        assert process.stdout.readline() == b"ready\n"
        process.terminate()
        assert process.wait(30) == -signal.SIGTERM
    finally:
        process.kill()
        process.stdout.close()


async def test_a_signal_that_is_ignored_stays_so(monkeypatch):
    before = signal.signal(NUMBER, signal.SIG_IGN)
    try:
        OpenRequests()
        assert signal.getsignal(NUMBER) == signal.SIG_IGN
    finally:
        signal.signal(NUMBER, before)


async def test_only_the_main_thread_hears_signals(heard):
    before = signal.getsignal(NUMBER)

    async def elsewhere():
        await started(Open())

    await asyncio.to_thread(asyncio.run, elsewhere())
    assert signal.getsignal(NUMBER) == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
async def test_a_child_that_was_forked_is_not_kept_alive(heard):
    """It has the handler of its parent, and a loop that nobody runs: the signal goes on at once."""
    draining()
    handler = signal.getsignal(NUMBER)
    handler._process += 1  # as it is in a child
    signal.raise_signal(NUMBER)
    assert heard == [NUMBER] and not draining().ending


# What clients see.


def ended(client):
    """Let the process of ``client`` be about to end, and say what became of it."""
    client.run(draining_of_this_loop())


async def draining_of_this_loop():
    await draining().finish(GRACE)


def test_a_listen_ends_in_words(http, server, work):
    client = http(server=server)
    talk = client.start("subscriptions/listen", id="l", notifications={"toolsListChanged": True})
    client.until(lambda: talk.messages)
    ended(client)
    cancelled, result = talk.wait().messages[1:]
    assert cancelled["method"] == "notifications/cancelled"
    assert cancelled["params"]["requestId"] == "l"
    assert result["id"] == "l" and result["result"]["resultType"] == "complete"


@pytest.mark.parametrize("tool", ["plod", "ponder"])
def test_a_call_is_given_a_while_and_then_told(http, server, work, tool):
    client = http(server=server)
    talk = client.start("tools/call", id="c", name=tool)
    client.until(work.begun.is_set)
    ended(client)
    talk.wait()
    assert talk.status == 503 and talk.headers["retry-after"] == "1"
    assert talk.messages[0]["id"] == "c" and "error" in talk.messages[0]
    assert work.ended.is_set()


def test_a_call_that_finishes_in_time_is_answered(http, server, work):
    client = http(server=server)
    talk = client.start("tools/call", name="ponder")
    client.until(work.begun.is_set)
    client.loop.call_later(0.05, work.go.set)
    ended(client)
    assert talk.wait().status == 200


def test_a_stream_ends_by_an_error_of_its_call(http, server):
    begun = threading.Event()

    @server.tool(permission=mcp.PUBLIC)
    async def slow(request: mcp.Request) -> str:
        await request.aprogress(1)
        begun.set()
        await asyncio.sleep(60)
        return "never"

    client = http(server=server)
    talk = client.start("tools/call", id=7, name="slow", _meta={"progressToken": "p"})
    client.until(lambda: talk.messages)
    ended(client)
    assert talk.wait().messages[-1]["error"]["code"] == -32603
    assert talk.messages[-1]["id"] == 7 and talk.ended


def test_nothing_new_is_begun(http, revision, server, work):
    client = http(server=server, revision=revision)
    ended(client)
    talk = client.start("tools/call", name="save", arguments={"name": "x"}).wait()
    assert talk.status == 503 and talk.headers["retry-after"] == "1"
    assert talk.headers["connection"] == "close"
    assert work.runs == 0


def test_an_answer_is_kept_for_others_to_go_on_with(http, server, work):
    @server.tool(permission=mcp.PUBLIC)
    def ask(request: mcp.Request) -> str:
        work.runs += 1
        return f"answer: {request.elicit('Really?', bool)}"

    client = http(server=server, revision="2025-11-25")
    talk = client.start("tools/call", name="ask")
    talk.until(lambda: talk.messages)
    ended(client)
    yes = {"action": "accept", "content": {"answer": True}}
    answer = {"jsonrpc": "2.0", "id": talk.messages[0]["id"], "result": yes}
    assert client.post(answer).wait().status == 202
    row = Call.objects.get()
    assert (row.state, row.process, row.runs, work.runs) == (RUNNING, "", 0, 1)
    assert list(row.known.values()) == [{"result": yes}] and not Process.objects.exists()


async def test_a_signal_is_heard_before_there_was_a_request(heard):
    """A server that is told to end as it begins still serves who is connected by then."""

    async def receive():
        if messages:
            return {"type": messages.pop()}
        await asyncio.Event().wait()

    async def send(message):
        up.set()

    messages, up = ["lifespan.startup"], asyncio.Event()
    lifespan = asyncio.create_task(mount(None)({"type": "lifespan"}, receive, send))
    await up.wait()
    signal.raise_signal(NUMBER)
    await asyncio.wait_for(_told(heard), LONG)
    assert draining().ending
    lifespan.cancel()


async def _told(heard):
    while not heard:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.01)


def test_where_there_is_no_lifespan_the_first_request_is_enough(http, server, heard):
    client: HttpClient = http(server=server)
    assert client.open("GET", headers=[("host", "elsewhere.example")]).wait().status == 400
    assert isinstance(signal.getsignal(NUMBER), ShutdownSignalHandler)


def test_the_lifespan_ends_them_too(http, server, work):
    client: HttpClient = http(server=server)
    talk = client.start("subscriptions/listen", notifications={"toolsListChanged": True})
    client.until(lambda: talk.messages)
    sent: list[str] = []
    events = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]

    async def lived():
        async def receive():
            return events.pop(0)

        async def send(message):
            sent.append(message["type"])

        await client.application({"type": "lifespan"}, receive, send)

    client.run(lived())
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert "result" in talk.wait().messages[-1]
