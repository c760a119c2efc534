"""Time limits: the caller gets an error, the function stops, and nothing is committed."""

from __future__ import annotations

import asyncio
import threading
import time
from types import SimpleNamespace

import pytest
from asgiref.sync import sync_to_async
from django.db import transaction

import django_mcp as mcp
from django_mcp.calls.call_state import TimeGuard
from django_mcp.declarations.request import Request
from django_mcp.exceptions import Stopped
from django_mcp.runtime import threads
from tests.client import RpcError
from tests.shop.models import Company

SECONDS = 60  # to wait for what comes at once, however busy the machine is
LIMIT = 0.05
ROLLED_BACK = "Its database writes were rolled back. Other effects may remain."
UNKNOWN = "It may or may not have taken effect: find out before it is tried again."
YES = {"action": "accept", "content": {"answer": True}}


def wait_for_cancel(request):
    end = time.monotonic() + SECONDS
    while not request.cancelled:
        assert time.monotonic() < end
        time.sleep(0.005)


def eventually(client, condition):
    """Run the client's loop until ``condition`` is true, also if no message arrives."""
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        client.settle()
        time.sleep(0.005)


def slow(request) -> str:
    Company.objects.create(name="Late")
    wait_for_cancel(request)
    return "done"


def said(name, outcome):
    return f"{name} took longer than 0.05 s and was stopped. {outcome}"


# Synchronous functions.


@pytest.mark.parametrize(("options", "outcome"), [
    ({}, ROLLED_BACK),
    ({"transactional": True}, "Its database writes were rolled back."),
    ({"atomic": False}, UNKNOWN),
    ({"read_only": True}, "Nothing was changed."),
])  # fmt: skip
def test_tool_that_takes_too_long_says_what_became_of_its_writes(
    connect, server, db, options, outcome
):
    server.tool(permission=mcp.PUBLIC, timeout=LIMIT, **options)(slow)
    assert connect(server=server).failure("slow") == said("slow", outcome)
    rolled_back = "rolled back" in outcome
    assert Company.objects.filter(name="Late").exists() == (not rolled_back)


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-11-25", "2026-07-28"])
def test_time_limit_over_http(http, server, revision, db):
    server.tool(permission=mcp.PUBLIC, timeout=LIMIT)(slow)
    client = http(server=server, revision=revision)
    assert client.failure("slow") == said("slow", ROLLED_BACK)
    assert not Company.objects.filter(name="Late").exists()


@pytest.mark.usefixtures("real_threads")
def test_caller_does_not_wait_for_a_thread_that_hangs(connect, server):
    goes_on, ended = threading.Event(), []

    @server.tool(permission=mcp.PUBLIC, timeout=LIMIT)
    def hang(request) -> str:
        Company.objects.create(name="Late")
        goes_on.wait(SECONDS)  # as a connection to a server that does not respond
        try:
            Company.objects.count()
        finally:
            ended.append(request.cancelled)
        return "done"

    client = connect(server=server)
    assert client.failure("hang") == said("hang", ROLLED_BACK)
    assert not ended and threads.tools.pending() == 1  # it still counts for the limits of threads
    goes_on.set()
    eventually(client, lambda: threads.tools.pending() == 0)
    assert ended == [True] and not Company.objects.filter(name="Late").exists()


@pytest.mark.usefixtures("real_threads")
def test_thread_stops_at_its_next_query_or_message(connect, server):
    reached = []

    @server.tool(permission=mcp.PUBLIC, timeout=LIMIT)
    def work(request, how: str) -> str:
        wait_for_cancel(request)
        Company.objects.count() if how == "query" else request.progress(1)
        reached.append(how)
        return "done"

    client = connect(server=server)
    for how in ("query", "message"):
        client.failure("work", how=how)
        eventually(client, lambda: threads.tools.pending() == 0)
    assert not reached


def test_commit_and_end_of_the_time_exclude_each_other(server, alice):
    request = Request(mcp.Principal(alice), server)
    guard = TimeGuard(request)
    assert guard.begin_commit() and not guard.expire() and not request.cancelled
    guard = TimeGuard(request)
    assert guard.expire() and request.cancelled and not guard.begin_commit()


def test_function_does_not_begin_after_its_time(server, alice):
    """The caller was told that nothing was changed."""
    guard, work = TimeGuard(Request(mcp.Principal(alice), server)), SimpleNamespace(is_begun=False)
    assert guard.expire()
    with pytest.raises(Stopped):
        guard.begin_function(work)
    assert not work.is_begun


@pytest.mark.usefixtures("real_threads")
def test_call_that_commits_when_its_time_ends_succeeds(connect, server, monkeypatch):
    expiries, asked = [], threading.Event()

    def expire(self):
        expiries.append(EXPIRE(self))
        asked.set()
        return expiries[-1]

    monkeypatch.setattr(TimeGuard, "expire", expire)

    @server.tool(permission=mcp.PUBLIC, timeout=1)
    def write(request) -> str:
        Company.objects.create(name="Late")
        transaction.on_commit(lambda: asked.wait(SECONDS))
        return "written"

    client = connect(server=server)
    assert client.text("write") == "written" and expiries == [False]
    assert Company.objects.filter(name="Late").exists()


EXPIRE = TimeGuard.expire


def test_function_within_its_limit_is_not_affected(connect, server, db):
    @server.tool(permission=mcp.PUBLIC, timeout=SECONDS)
    def write(request, fail: bool) -> str:
        Company.objects.create(name=f"Soon {fail}")
        if fail:
            raise mcp.ToolError("No.")
        return "written"

    client = connect(server=server)
    assert client.text("write", fail=False) == "written"
    assert client.failure("write", fail=True) == "No."
    assert Company.objects.get(name__startswith="Soon").name == "Soon False"


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_time_in_which_the_client_answers_does_not_count(connect, server, revision, db):
    @server.tool(permission=mcp.PUBLIC, timeout=1)
    def ask(request) -> str:
        return str(request.elicit("Sure?"))

    def answer(params):
        time.sleep(1.2)
        return YES

    client = connect(server=server, revision=revision, answers={"elicitation/create": answer},
                     capabilities={"elicitation": {}})  # fmt: skip
    assert client.text("ask") == "True"


def test_steps_may_remain_after_a_rollback(connect, server, db):
    @server.tool(permission=mcp.PUBLIC, timeout=0.5)
    def work(request) -> str:
        request.once("step", lambda: Company.objects.create(name="Step").pk)
        wait_for_cancel(request)
        return "done"

    assert UNKNOWN in connect(server=server).failure("work")
    assert Company.objects.filter(name="Step").exists()


# Asynchronous functions.


@pytest.mark.parametrize(("options", "outcome"), [
    ({}, UNKNOWN), ({"read_only": True}, "Nothing was changed."),
])  # fmt: skip
def test_asynchronous_function_is_cancelled(connect, server, db, options, outcome):
    ended = []

    async def wait(request) -> str:
        try:
            await asyncio.sleep(SECONDS)
        finally:
            ended.append("cleaned up")
        return "done"

    server.tool(permission=mcp.PUBLIC, timeout=LIMIT, **options)(wait)
    assert connect(server=server).failure("wait") == said("wait", outcome)
    assert ended == ["cleaned up"]


def test_thread_of_an_asynchronous_function_stops_at_its_next_query(
    connect, server, invoice, alice
):
    reached = []

    @server.tool(permission="shop.change_invoice", timeout=LIMIT)
    async def work(request) -> str:
        def query():
            wait_for_cancel(request)
            Company.objects.count()
            reached.append("after the query")

        await sync_to_async(query)()
        return "done"

    assert said("work", UNKNOWN) == connect(alice, server=server).failure("work")
    assert not reached


def test_timeout_of_the_function_itself_is_not_its_time_limit(connect, server, db):
    @server.tool(permission=mcp.PUBLIC, timeout=SECONDS)
    async def work(request) -> str:
        raise TimeoutError("of another server")

    assert "took longer" not in connect(server=server).failure("work")


# Resources, prompts, cancels and checks.


def test_resource_and_prompt_have_time_limits(connect, server, db):
    @server.resource("shop://slow", permission=mcp.PUBLIC, timeout=LIMIT)
    def slow(request) -> str:
        wait_for_cancel(request)
        return "done"

    server.prompt(permission=mcp.PUBLIC, timeout=LIMIT)(slow)
    client = connect(server=server)
    for method, params in (
        ("resources/read", {"uri": "shop://slow"}),
        ("prompts/get", {"name": "slow"}),
    ):
        with pytest.raises(RpcError, match="slow took longer than 0.05 s"):
            client.request(method, **params)


def test_tools_of_a_model_resource_have_its_time_limit(connect, server, invoice, alice):
    class InvoiceResource(mcp.ModelResource):
        permission = mcp.AUTHENTICATED
        timeout = LIMIT
        fields = ["number"]
        search_fields = ["number"]

        def get_queryset(self, request):
            wait_for_cancel(request)
            return super().get_queryset(request).all()

    server.register(type(invoice), InvoiceResource)
    failure = connect(alice, server=server).failure("search_invoice", query="A")
    assert failure == said("search_invoice", "Nothing was changed.")


@pytest.mark.parametrize("tool", ["sync", "asynchronous"])
def test_call_with_a_time_limit_can_be_cancelled(connect, server, db, tool):
    running, stopped = threading.Event(), []

    @server.tool(permission=mcp.PUBLIC, timeout=SECONDS)
    def sync(request) -> str:
        running.set()
        wait_for_cancel(request)
        stopped.append("sync")
        return "done"

    @server.tool(permission=mcp.PUBLIC, timeout=SECONDS)
    async def asynchronous(request) -> str:
        running.set()
        try:
            await asyncio.sleep(SECONDS)
        finally:
            stopped.append("asynchronous")
        return "done"

    client = connect(server=server)
    id = client.start("tools/call", name=tool, arguments={})
    eventually(client, running.is_set)
    client.notify("notifications/cancelled", requestId=id)
    eventually(client, lambda: stopped == [tool])


@pytest.mark.parametrize("timeout", [0, -1, True, "30"])
def test_timeout_is_a_number_of_seconds(server, timeout):
    server.tool(permission=mcp.PUBLIC, timeout=timeout)(slow)
    (found,) = server.check()
    assert found.id == "django_mcp.E067" and repr(timeout) in found.msg
