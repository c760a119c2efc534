"""Graceful shutdown: signals, open requests and calls, and what clients are told."""

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
LONG_SECONDS = 60  # longer than any machine needs for a shutdown without waiting
GRACE = 0.2


class OpenRequest:
    """A request that is open until it is ended or cut."""

    owner = ""

    def __init__(self, *, ends: bool = True, yields: int = 1) -> None:
        self.ends, self.yields, self.cuts = ends, yields, 0
        self.over = asyncio.Event()

    def shut_down(self) -> None:
        if self.ends:
            self.over.set()

    def respond_or_stop(self) -> None:
        self.cancel()

    def cancel(self) -> None:
        self.cuts += 1
        if self.cuts >= self.yields:
            self.over.set()

    async def run(self) -> None:
        with draining().track(self):
            await self.over.wait()


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    """Shorten the grace periods, and use signals that the test runner does not use."""
    monkeypatch.setattr(module, "GRACE_SECONDS", {"SIGUSR1": GRACE, "SIGUSR2": GRACE})
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.1)
    monkeypatch.setattr(module, "CANCEL_SECONDS", 0.1)


@pytest.fixture
def received_signals():
    """The signals that the previous handler received."""
    numbers: list[int] = []
    before = {
        one: signal.signal(one, lambda number, frame: numbers.append(number))
        for one in (NUMBER, OTHER)
    }
    yield numbers
    for one, handler in before.items():
        signal.signal(one, handler)


async def start(*works: OpenRequest) -> list[asyncio.Task[None]]:
    tasks = [asyncio.ensure_future(work.run()) for work in works]
    await asyncio.sleep(0)
    return tasks


# Open requests.


async def test_finish_returns_when_all_requests_have_ended():
    works = OpenRequest(), OpenRequest()
    tasks = await start(*works)
    await asyncio.wait_for(draining().finish(LONG_SECONDS), LONG_SECONDS / 2)
    assert all(task.done() for task in tasks) and not any(work.cuts for work in works)


async def test_open_request_is_cut_after_the_grace_period():
    slow, stubborn = OpenRequest(ends=False), OpenRequest(ends=False, yields=2)
    await start(slow, stubborn)
    begun = time.monotonic()
    await draining().finish(GRACE)
    assert 0.2 <= time.monotonic() - begun < LONG_SECONDS
    assert (slow.cuts, stubborn.cuts) == (1, 2)


async def test_request_that_ends_in_the_grace_period_is_not_cut():
    work = OpenRequest(ends=False)
    await start(work)
    asyncio.get_running_loop().call_later(0.05, work.over.set)
    begun = time.monotonic()
    await asyncio.wait_for(draining().finish(LONG_SECONDS), LONG_SECONDS / 2)
    assert time.monotonic() - begun >= 0.05 and work.cuts == 0


async def test_finish_gives_up_on_requests_that_do_not_end():
    work = OpenRequest(ends=False, yields=100)
    (task,) = await start(work)
    await draining().finish(GRACE)
    assert work.cuts == 3 and not task.done()
    work.over.set()
    await task


@pytest.mark.slow
async def test_request_is_asked_to_end_once():
    work = OpenRequest(ends=False, yields=100)
    await start(work)
    told = []
    work.shut_down = lambda: told.append(1)
    await asyncio.gather(draining().finish(GRACE), draining().finish(GRACE))
    assert told == [1]
    work.over.set()


async def test_finish_returns_at_once_without_open_requests():
    await asyncio.wait_for(draining().finish(LONG_SECONDS), LONG_SECONDS / 2)
    assert draining().is_shutting_down


# Signals.


async def test_signal_is_passed_on_after_all_requests_ended(received_signals):
    work = OpenRequest(ends=False)
    await start(work)
    signal.raise_signal(NUMBER)
    await asyncio.sleep(0.05)
    assert draining().is_shutting_down and received_signals == []
    work.over.set()
    await until(lambda: received_signals)
    assert received_signals == [NUMBER]


async def until(condition):
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - a signal sets no event
            await asyncio.sleep(0.005)


async def test_second_signal_passes_both_on_at_once(received_signals):
    work = OpenRequest(ends=False)
    await start(work)
    signal.raise_signal(NUMBER)
    signal.raise_signal(NUMBER)
    assert received_signals == [NUMBER] * 2  # the first signal is passed on as well
    signal.raise_signal(NUMBER)
    assert received_signals == [NUMBER] * 3
    work.over.set()
    await asyncio.sleep(0.05)
    assert received_signals == [NUMBER] * 3


async def test_second_signal_ends_the_grace_period(received_signals, monkeypatch):
    monkeypatch.setattr(module, "GRACE_SECONDS", {"SIGUSR1": 30.0})
    monkeypatch.setattr(module, "SECOND_SIGNAL_SECONDS", 0.05)
    work = OpenRequest(ends=False)
    (task,) = await start(work)
    signal.raise_signal(NUMBER)
    await asyncio.sleep(0.05)
    signal.raise_signal(NUMBER)
    await asyncio.wait_for(task, 30)
    assert work.cuts == 1 and received_signals == [NUMBER] * 2


async def test_different_second_signal_counts_as_well(received_signals):
    """For example, Ctrl+C after a program has sent SIGTERM."""
    work = OpenRequest(ends=False)
    await start(work)
    signal.raise_signal(NUMBER)
    signal.raise_signal(OTHER)
    assert received_signals == [NUMBER, OTHER]
    work.over.set()


async def test_signal_wakes_an_idle_event_loop(received_signals):
    await start(OpenRequest())
    threading.Timer(0.05, os.kill, (os.getpid(), NUMBER)).start()
    begun = time.monotonic()
    await until(lambda: received_signals)
    assert time.monotonic() - begun < 20


def test_signal_after_the_end_of_the_loop_is_passed_on_at_once(received_signals):
    async def one():
        await start(OpenRequest())

    asyncio.run(one())
    signal.raise_signal(NUMBER)
    assert received_signals == [NUMBER]


def test_several_event_loops_install_one_handler(received_signals):
    """A chain of handlers would end in a ``RecursionError``."""

    async def one():
        await start(OpenRequest())

    for _ in range(20):
        asyncio.run(one())
    handler = signal.getsignal(NUMBER)
    assert isinstance(handler, ShutdownSignalHandler) and not isinstance(
        handler.before, ShutdownSignalHandler
    )


def test_default_action_of_the_signal_ends_the_process():
    """Runs in its own process, which the signal ends."""
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


async def test_ignored_signal_stays_ignored(monkeypatch):
    before = signal.signal(NUMBER, signal.SIG_IGN)
    try:
        OpenRequests()
        assert signal.getsignal(NUMBER) == signal.SIG_IGN
    finally:
        signal.signal(NUMBER, before)


async def test_signal_handler_is_installed_in_the_main_thread_only(received_signals):
    before = signal.getsignal(NUMBER)

    async def elsewhere():
        await start(OpenRequest())

    await asyncio.to_thread(asyncio.run, elsewhere())
    assert signal.getsignal(NUMBER) == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
async def test_signal_in_a_forked_child_is_passed_on_at_once(received_signals):
    """It inherits the handler, but its loop does not run: the signal is passed on at once."""
    draining()
    handler = signal.getsignal(NUMBER)
    handler._process += 1  # as in a forked child
    signal.raise_signal(NUMBER)
    assert received_signals == [NUMBER] and not draining().is_shutting_down


# Responses.


def shut_down(client):
    """Shut down the worker that serves ``client``."""
    client.run(draining_of_this_loop())


async def draining_of_this_loop():
    await draining().finish(GRACE)


def test_listen_is_cancelled_and_answered_at_shutdown(http, server, work):
    client = http(server=server)
    exchange = client.start(
        "subscriptions/listen", id="l", notifications={"toolsListChanged": True}
    )
    client.until(lambda: exchange.messages)
    shut_down(client)
    cancelled, result = exchange.wait().messages[1:]
    assert cancelled["method"] == "notifications/cancelled"
    assert cancelled["params"]["requestId"] == "l"
    assert result["id"] == "l" and result["result"]["resultType"] == "complete"


@pytest.mark.parametrize("tool", ["plod", "ponder"])
def test_call_is_answered_with_503_after_the_grace_period(http, server, work, tool):
    client = http(server=server)
    exchange = client.start("tools/call", id="c", name=tool)
    client.until(work.begun.is_set)
    shut_down(client)
    exchange.wait()
    assert exchange.status == 503 and exchange.headers["retry-after"] == "1"
    assert exchange.messages[0]["id"] == "c" and "error" in exchange.messages[0]
    assert work.ended.is_set()


def test_call_that_finishes_in_the_grace_period_is_answered(http, server, work):
    client = http(server=server)
    exchange = client.start("tools/call", name="ponder")
    client.until(work.begun.is_set)
    client.loop.call_later(0.05, work.go.set)
    shut_down(client)
    assert exchange.wait().status == 200


def test_stream_ends_with_an_error_response_at_shutdown(http, server):
    begun = threading.Event()

    @server.tool(permission=mcp.PUBLIC)
    async def slow(request: mcp.Request) -> str:
        await request.aprogress(1)
        begun.set()
        await asyncio.sleep(60)
        return "never"

    client = http(server=server)
    exchange = client.start("tools/call", id=7, name="slow", _meta={"progressToken": "p"})
    client.until(lambda: exchange.messages)
    shut_down(client)
    assert exchange.wait().messages[-1]["error"]["code"] == -32603
    assert exchange.messages[-1]["id"] == 7 and exchange.ended


def test_new_calls_are_rejected_during_shutdown(http, revision, server, work):
    client = http(server=server, revision=revision)
    shut_down(client)
    exchange = client.start("tools/call", name="save", arguments={"name": "x"}).wait()
    assert exchange.status == 503 and exchange.headers["retry-after"] == "1"
    assert exchange.headers["connection"] == "close"
    assert work.runs == 0


def test_answer_during_shutdown_is_stored_for_another_worker(http, server, work):
    @server.tool(permission=mcp.PUBLIC)
    def ask(request: mcp.Request) -> str:
        work.runs += 1
        return f"answer: {request.elicit('Really?', bool)}"

    client = http(server=server, revision="2025-11-25")
    exchange = client.start("tools/call", name="ask")
    exchange.until(lambda: exchange.messages)
    shut_down(client)
    yes = {"action": "accept", "content": {"answer": True}}
    answer = {"jsonrpc": "2.0", "id": exchange.messages[0]["id"], "result": yes}
    assert client.post(answer).wait().status == 202
    row = Call.objects.get()
    assert (row.state, row.process, row.runs, work.runs) == (RUNNING, "", 0, 1)
    assert list(row.known.values()) == [{"result": yes}] and not Process.objects.exists()


async def test_signal_before_the_first_request_starts_the_shutdown(received_signals):
    """A server that is stopped while it starts still serves its open connections."""

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
    await asyncio.wait_for(_told(received_signals), LONG_SECONDS)
    assert draining().is_shutting_down
    lifespan.cancel()


async def _told(received_signals):
    while not received_signals:  # noqa: ASYNC110 - there is no event to await
        await asyncio.sleep(0.01)


def test_first_request_installs_the_signal_handler_without_lifespan(http, server, received_signals):
    client: HttpClient = http(server=server)
    assert client.open("GET", headers=[("host", "elsewhere.example")]).wait().status == 400
    assert isinstance(signal.getsignal(NUMBER), ShutdownSignalHandler)


def test_lifespan_shutdown_ends_open_requests(http, server, work):
    client: HttpClient = http(server=server)
    exchange = client.start("subscriptions/listen", notifications={"toolsListChanged": True})
    client.until(lambda: exchange.messages)
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
    assert "result" in exchange.wait().messages[-1]
