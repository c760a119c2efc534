"""Steps run once in a call: how long their results are kept, and which are rejected."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from django.db import transaction

import django_mcp as mcp
from django_mcp.calls import once
from django_mcp.calls.once import InMemorySteps
from django_mcp.exceptions import ToolError
from django_mcp.storage import calls
from tests.shop.models import Company

SECONDS = 60  # to wait for what comes at once, however busy the machine is
YES = {"action": "accept", "content": {"answer": True}}
ANSWERS = {"elicitation/create": lambda params: YES}


@pytest.fixture
def steps():
    return InMemorySteps()


# What is remembered.


def test_step_begins_once_and_its_result_is_kept(steps):
    assert steps.begin("call", "key")
    with pytest.raises(ToolError, match="is already running"):
        steps.begin("call", "key")
    steps.keep("call", "key", 5)
    assert not steps.begin("call", "key")
    assert steps.values_of("call") == {"key": 5}
    assert steps.begin("call", "other") and steps.begin("another", "key")


def test_failed_step_may_begin_again(steps):
    assert steps.begin("call", "key")
    steps.fail("call", "key")
    steps.fail("unknown", "key")
    assert steps.begin("call", "key")
    steps.keep("call", "key", 1)
    assert steps.begin("call", "other")
    steps.fail("call", "other")
    assert steps.values_of("call") == {"key": 1}


def test_forgotten_calls_do_not_count_for_the_limit(steps, monkeypatch):
    monkeypatch.setattr(once, "MAX_CALLS_WITH_STEPS", 1)
    for number in range(3):
        assert steps.begin(str(number), "key")
        steps.fail(str(number), "key")
    assert steps.begin("call", "key")
    steps.keep("call", "key", 1)
    steps.forget("call")
    assert steps.values_of("call") == {} and steps.begin("next", "key")


def test_step_beyond_the_limits_is_rejected_before_it_runs(steps, monkeypatch):
    monkeypatch.setattr(once, "MAX_CALLS_WITH_STEPS", 2)
    monkeypatch.setattr(calls, "MAX_STEPS_PER_CALL", 1)
    for call in ("a", "b"):
        assert steps.begin(call, "key")
        steps.keep(call, "key", 1)
    with pytest.raises(ToolError, match="too many steps"):
        steps.begin("c", "key")
    with pytest.raises(ToolError, match="at most 1 step"):
        steps.begin("a", "other")
    assert steps.values_of("a") == {"key": 1}


def test_finished_step_is_not_rejected_at_the_limit(steps, monkeypatch):
    """A second retry of a call may begin a step after the first retry has finished the last one."""
    monkeypatch.setattr(calls, "MAX_STEPS_PER_CALL", 1)
    assert steps.begin("call", "key")
    steps.keep("call", "key", 1)
    assert not steps.begin("call", "key")


def test_steps_are_kept_until_the_request_state_expires(steps, monkeypatch, settings):
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"STATE_LIFETIME": 100}
    now = time.monotonic()
    for age, call in ((-201, "old"), (-199, "young")):
        monkeypatch.setattr(time, "monotonic", lambda age=age: now + age)
        steps.begin(call, "key")
        steps.keep(call, "key", call)
    monkeypatch.setattr(time, "monotonic", lambda: now)
    assert steps.begin("new", "key")
    assert steps.values_of("old") == {} and steps.values_of("young") == {"key": "young"}
    monkeypatch.setattr(time, "monotonic", lambda: now + 150)
    steps.begin("newer", "key")
    assert steps.values_of("young") == {"key": "young"}  # it was looked at in the meantime


# In a call.


@pytest.fixture
def charging(server):
    """A tool that charges once, asks, and then fails if it is told to."""
    server._charged = 0

    def charge(name):
        server._charged += 1
        Company.objects.create(name=name)
        return {"receipt": server._charged}

    @server.tool(permission=mcp.PUBLIC)
    def order(request: mcp.Request, fail: bool = False) -> dict[str, int]:
        receipt = request.once("charge", lambda: charge("charged"))
        Company.objects.create(name="ordered")
        request.log("info", "ordered")
        if fail:
            raise mcp.ToolError("Out of stock.")
        return receipt

    return server


@pytest.mark.django_db
def test_step_is_committed_although_its_call_is_rolled_back(connect, revision, charging):
    client = connect(server=charging, revision=revision)
    assert client.failure("order", fail=True) == "Out of stock."
    assert [company.name for company in Company.objects.all()] == ["charged"]
    assert charging._charged == 1


@pytest.mark.django_db
def test_calls_do_not_share_steps(connect, revision, server):
    made = []

    @server.tool(permission=mcp.PUBLIC)
    def number(request: mcp.Request) -> int:
        first = request.once("number", lambda: made.append(1) or len(made))
        return first + request.once("number", lambda: 1 / 0) * 100

    client = connect(server=server, revision=revision)
    assert [client.text("number") for _ in range(3)] == ["101", "202", "303"]


@pytest.mark.django_db
def test_failed_step_is_rolled_back_and_runs_again(connect, revision, server):
    tries = []

    def step():
        tries.append(transaction.get_connection().in_atomic_block)
        Company.objects.create(name=f"try {len(tries)}")
        if len(tries) == 1:
            raise mcp.ToolError("The bank is closed.")
        return "done"

    @server.tool(permission=mcp.PUBLIC)
    def pay(request: mcp.Request) -> str:
        return request.once("pay", step)

    client = connect(server=server, revision=revision)
    assert client.failure("pay") == "The bank is closed."
    assert client.text("pay") == "done"
    assert [company.name for company in Company.objects.all()] == ["try 2"]
    assert tries == [True, True]


@pytest.mark.django_db
@pytest.mark.parametrize("value", [object(), {1, 2}, "x" * 100_001])
def test_step_with_a_large_or_non_json_result_is_rolled_back(connect, server, value):
    @server.tool(permission=mcp.PUBLIC)
    def keep(request: mcp.Request) -> str:
        return str(request.once("keep", lambda: (Company.objects.create(name="kept"), value)[1]))

    assert "went wrong" in connect(server=server).failure("keep")
    assert not Company.objects.exists()


@pytest.mark.django_db
def test_question_or_step_inside_a_step_is_an_error(connect, server):
    @server.tool(permission=mcp.PUBLIC)
    def ask(request: mcp.Request) -> str:
        return request.once("ask", lambda: str(request.elicit("Sure?")))

    @server.tool(permission=mcp.PUBLIC)
    def nest(request: mcp.Request) -> int:
        return request.once("outer", lambda: request.once("inner", lambda: 1))

    client = connect(server=server, answers=ANSWERS)
    for tool in ("ask", "nest"):
        assert "went wrong" in client.failure(tool)
    assert client.asked == []


@pytest.mark.django_db
def test_step_of_an_async_tool_runs_once(connect, revision, server):
    done = []

    async def step():
        done.append(await Company.objects.acount())
        return len(done)

    @server.tool(permission=mcp.PUBLIC)
    async def work(request: mcp.Request) -> int:
        await request.aonce("first", lambda: None)
        return await request.aonce("step", step)

    client = connect(server=server, revision=revision)
    assert client.text("work") == "1" and done == [0]


def test_concurrent_run_of_the_same_step_is_rejected(connect, shared_db, server):
    go, here, late, done, runs = (*(threading.Event() for _ in range(3)), [], [])

    def step():
        assert go.wait(SECONDS)
        done.append(1)
        return len(done)

    @server.tool(permission=mcp.PUBLIC, atomic=False)
    def redeem(request: mcp.Request) -> int:
        request.elicit("Redeem?")
        runs.append(request)
        if len(runs) == 3:  # this one has looked, and comes when it is done
            here.set()
            assert late.wait(SECONDS)
        return request.once("redeem", step)

    client = connect(server=server)
    asked = client.call("redeem")
    (key,) = asked["inputRequests"]
    more = {"requestState": asked["requestState"], "inputResponses": {key: YES}}
    first = client.start("tools/call", name="redeem", arguments={}, **more)
    second = client.start("tools/call", name="redeem", arguments={}, **more)
    client.until(lambda: any(m.get("id") in (first, second) for m in client.received))
    refused = client.received[-1]
    assert done == []
    assert "is already running" in str(refused)
    third = client.start("tools/call", name="redeem", arguments={}, **more)
    assert client._run(asyncio.to_thread(here.wait, SECONDS))
    go.set()
    (other,) = {first, second} - {refused["id"]}
    assert client.wait(other)["result"]["content"][0]["text"] == "1"
    late.set()
    assert client.wait(third)["result"]["content"][0]["text"] == "1"
    assert done == [1]


@pytest.mark.django_db
def test_steps_of_a_finished_handshake_call_are_forgotten(connect, handshake, charging):
    client = connect(server=charging, revision=handshake)
    before = set(once.in_memory_steps._calls)
    client.call("order")
    client.call("order", fail=True)
    assert set(once.in_memory_steps._calls) == before
    assert charging._charged == 2
