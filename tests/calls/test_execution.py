"""Calls run in transactions, in the AROUND context managers, and with few thread hops."""

from __future__ import annotations

import asyncio
import sys
import threading
from contextlib import suppress
from decimal import Decimal
from typing import Annotated

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth import get_user_model
from django.core.exceptions import PermissionDenied
from django.db import connections, transaction
from django.utils import translation

import django_mcp as mcp
from django_mcp.auth import kill_switches
from django_mcp.calls import execution
from django_mcp.protocol.revisions import REVISIONS
from tests.announcing import Announcement, announce
from tests.client import RpcError
from tests.shop.models import Customer, Invoice, Tag

from . import around

ASKED = {"elicitation/create": lambda params: {"action": "accept", "content": {"answer": True}}}


def labels() -> set[str]:
    return set(Tag.objects.values_list("label", flat=True))


def cancelled(client, tool, begun, go=None):
    """Call a tool, and cancel it when it has ``begun``; it may ``go`` on once that is said."""
    id = client.start("tools/call", name=tool)
    client._run(asyncio.to_thread(begun.wait, 60))
    client.notify("notifications/cancelled", requestId=id)
    if go is not None:
        go.set()
    client._run(client.conversation.finish(60))


# The transaction of a synchronous tool.


@pytest.mark.parametrize("how", ["tool", "bug", "denied", "protocol", "question", "once", "exit"])
def test_failed_call_is_rolled_back(connect, server, db, how):
    ends = {
        "tool": lambda request: _raise(mcp.ToolError("no")),
        "bug": lambda request: _raise(KeyError("no")),
        "denied": lambda request: _raise(PermissionDenied("no")),
        "protocol": lambda request: _raise(mcp.ProtocolError("no")),
        "question": lambda request: request.elicit("Sure?"),
        "once": lambda request: request.once("step", lambda: _raise(mcp.ToolError("no"))),
        "exit": lambda request: sys.exit(0),
    }

    @server.tool(permission=mcp.PUBLIC)
    def write(request: mcp.Request) -> str:
        Tag.objects.create(label="written")
        ends[how](request)
        return "done"

    client = connect(server=server)
    response = client.wait(client.start("tools/call", name="write"))
    assert "error" in response or response["result"] != {"content": "done"}
    assert labels() == set()


def _raise(error):
    raise error


def test_successful_call_is_committed(connect, server, db, revision, in_transaction):
    @server.tool(permission=mcp.PUBLIC)
    def write(request: mcp.Request) -> str:
        Tag.objects.create(label="written")
        return f"{in_transaction()}"

    assert connect(server=server, revision=revision).text("write") == "True"
    assert labels() == {"written"}


def test_writes_before_a_question_are_committed_once(connect, server, db, revision):
    @server.tool(permission=mcp.PUBLIC)
    def write(request: mcp.Request) -> str:
        Tag.objects.create(label="written")
        request.ask(places=mcp.Roots())
        return "done"

    answers = {"roots/list": lambda params: {"roots": []}}
    client = connect(server=server, revision=revision, answers=answers)
    assert client.text("write") == "done"
    assert labels() == {"written"}


def test_cancelled_call_is_rolled_back(connect, server, db):
    written, go = threading.Event(), threading.Event()

    @server.tool(permission=mcp.PUBLIC)
    def write(request: mcp.Request) -> str:
        Tag.objects.create(label="written")
        written.set()
        assert go.wait(60)
        request.progress(1)
        return "never"

    cancelled(connect(server=server), "write", written, go)
    assert labels() == set()


def test_cancelled_call_stops_at_its_next_query_but_not_during_rollback(connect, server, db):
    reached, go, steps = threading.Event(), threading.Event(), []

    @server.tool(permission=mcp.PUBLIC)
    def write(request: mcp.Request) -> str:
        with suppress(Exception), transaction.atomic():  # a cancel is no Exception
            Tag.objects.create(label="first")
            reached.set()
            assert go.wait(60)
            steps.append("queries")
            Tag.objects.create(label="second")
            steps.append("goes on")
        steps.append("ate it")
        return "never"

    cancelled(connect(server=server), "write", reached, go)
    assert steps == ["queries"] and labels() == set()


def test_cancellation_before_the_commit_rolls_back(connect, server, db):
    """This holds even if the tool suppresses every exception and runs no further query."""
    reached, go = threading.Event(), threading.Event()

    @server.tool(permission=mcp.PUBLIC)
    def write(request: mcp.Request) -> str:
        Tag.objects.create(label="written")
        reached.set()
        assert go.wait(60)
        with suppress(BaseException):
            request.log("info", "still here")
        return "never"

    cancelled(connect(server=server), "write", reached, go)
    assert labels() == set()


@pytest.mark.parametrize(
    "options, expected",
    [({}, True), ({"atomic": "default"}, True), ({"atomic": False}, False),
     ({"read_only": True}, False)],
)  # fmt: skip
def test_tool_options_decide_whether_a_transaction_is_open(
    connect, server, db, in_transaction, options, expected
):
    @server.tool(permission=mcp.PUBLIC, **options)
    def tool(request: mcp.Request) -> bool:
        return in_transaction()

    assert connect(server=server).call("tool")["structuredContent"] == expected


def test_async_tools_prompts_and_resources_run_without_a_transaction(
    connect, server, db, in_transaction
):
    @server.tool(permission=mcp.PUBLIC)
    async def tool(request: mcp.Request) -> bool:
        return await sync_to_async(in_transaction)()

    @server.prompt(permission=mcp.PUBLIC)
    def prompt(request: mcp.Request) -> str:
        return f"{in_transaction()}"

    @server.resource("shop://transaction", permission=mcp.PUBLIC)
    def resource(request: mcp.Request) -> str:
        return f"{in_transaction()}"

    client = connect(server=server)
    assert client.call("tool")["structuredContent"] is False
    shown = client.request("prompts/get", name="prompt")["messages"][0]["content"]["text"]
    read = client.request("resources/read", uri="shop://transaction")["contents"][0]["text"]
    assert shown == read == "False"


def test_transaction_commits_outside_of_a_test_transaction(connect, server, shared_db):
    done: list[tuple[str, bool]] = []

    @server.tool(permission=mcp.PUBLIC)
    def write(request: mcp.Request, fail: bool) -> str:
        Tag.objects.create(label=f"fail {fail}")
        transaction.on_commit(lambda: done.append(("hook", Tag.objects.exists())))
        done.append(("tool", connections["default"].in_atomic_block))
        if fail:
            raise mcp.ToolError("no")
        return "yes"

    client = connect(server=server)
    assert client.failure("write", fail=True) == "no"
    assert client.text("write", fail=False) == "yes"
    assert labels() == {"fail False"}
    assert done == [("tool", True), ("tool", True), ("hook", True)]


# Commit hooks.


def test_on_commit_hooks_run_before_the_response(connect, server, db, revision):
    said: list[str] = []

    @server.tool(permission=mcp.PUBLIC)
    def tool(request: mcp.Request) -> str:
        transaction.on_commit(lambda: said.append("hook"))
        return "done"

    client = connect(server=server, revision=revision)
    took, client._take = client._take, lambda message: (said.append("answer"), took(message))[1]
    client.text("tool")
    assert said == ["hook", "answer"]


def test_failed_on_commit_hook_fails_the_call(connect, server, db, caplog):
    @server.tool(permission=mcp.PUBLIC)
    def tool(request: mcp.Request) -> str:
        transaction.on_commit(lambda: _raise(mcp.ToolError("The mail was not sent.")))
        return "done"

    assert connect(server=server).failure("tool") == "The mail was not sent."


def test_cancel_during_the_commit_stops_no_on_commit_hook(connect, server, shared_db):
    """The writes are committed, so what follows them must happen too."""
    said, done = list[bool](), threading.Event()

    @server.tool(permission=mcp.PUBLIC)
    def tool(request: mcp.Request) -> str:
        Tag.objects.create(label="written")
        transaction.on_commit(request._stop.set)
        transaction.on_commit(lambda: said.append(Tag.objects.exists()))
        transaction.on_commit(done.set)
        return "done"

    # No second tool may wait for the hooks: it could hold the write lock that the first one needs.
    client = connect(server=server)
    client.start("tools/call", name="tool", arguments={})
    assert client._run(asyncio.to_thread(done.wait, 60))
    client._run(client.conversation.finish(60))
    assert said == [True] and labels() == {"written"}


@pytest.mark.parametrize("question", ["elicit", "once"])
def test_questions_and_steps_in_on_commit_hooks_are_errors(
    connect, server, db, revision, question, caplog
):
    runs: list[int] = []
    asking = {
        "elicit": lambda request: request.roots(),
        "once": lambda request: request.once("key", lambda: 1),
    }

    @server.tool(permission=mcp.PUBLIC)
    def tool(request: mcp.Request) -> str:
        runs.append(1)
        transaction.on_commit(lambda: asking[question](request))
        return "done"

    client = connect(server=server, revision=revision, answers={"roots/list": lambda p: {}})
    assert "logged" in client.failure("tool")
    assert "The client cannot be asked in" in caplog.text and "on commit" in caplog.text
    assert runs == [1] and client.asked == []


def test_durable_block_error_recommends_atomic_false(connect, server, shared_db, caplog):
    @server.tool(permission=mcp.PUBLIC)
    def tool(request: mcp.Request) -> str:
        with transaction.atomic(durable=True):
            return "done"

    @server.tool(permission=mcp.PUBLIC, atomic=False)
    def durable(request: mcp.Request) -> str:
        with transaction.atomic(durable=True):
            return "done"

    client = connect(server=server)
    client.failure("tool")
    assert "declare it with atomic=False" in caplog.text
    assert client.text("durable") == "done"


def test_other_runtime_error_does_not_recommend_atomic_false(connect, server, db, caplog):
    @server.tool(permission=mcp.PUBLIC)
    def tool(request: mcp.Request) -> str:
        raise RuntimeError("out of paper")

    connect(server=server).failure("tool")
    assert "out of paper" in caplog.text and "atomic=False" not in caplog.text


# Unwinding.


def test_except_exception_does_not_catch_a_question(connect, server, db, revision):
    eaten: list[Exception] = []

    @server.tool(permission=mcp.PUBLIC)
    def tool(request: mcp.Request) -> str:
        try:
            return f"{len(request.roots())}"
        except Exception as error:
            eaten.append(error)
            return "ate it"

    @server.tool(permission=mcp.PUBLIC)
    async def atool(request: mcp.Request) -> str:
        try:
            return f"{len(await request.aroots())}"
        except Exception as error:
            eaten.append(error)
            return "ate it"

    answers = {"roots/list": lambda params: {"roots": [{"uri": "file:///home"}]}}
    client = connect(server=server, revision=revision, answers=answers)
    assert client.text("tool") == client.text("atool") == "1"
    assert eaten == [] and len(client.asked) == 2


# What surrounds the project's code.


def allowed(request):
    around.note("permission")
    return True


@pytest.fixture
def observed(server):
    """A server whose every piece of code says that it runs."""

    @server.register(Customer)
    class CustomerResource(mcp.ModelResource):
        permission = staticmethod(allowed)
        fields = ["name", "shout"]
        search_fields = ["name"]
        listed = True

        def get_queryset(self, request):
            around.note("queryset")
            return super().get_queryset(request)

        def has_object_permission(self, request, obj, operation):
            around.note("object permission")
            return True

    @server.tool(permission=allowed)
    def greet(request: mcp.Request, customer: Customer) -> Customer:
        around.note("tool")
        return customer

    @server.tool(permission=allowed)
    async def agreet(request: mcp.Request, customer: Customer) -> Customer:
        await sync_to_async(around.note)("tool")
        return customer

    @server.prompt(permission=allowed)
    def letter(
        request: mcp.Request, customer: Customer, tone: Annotated[str, mcp.Complete(tones)]
    ) -> str:
        around.note("prompt")
        return tone

    return server


def tones(request, text, context):
    around.note("completion")
    return ["kind"]


def shout(customer):
    around.note("result")
    return customer.name.upper()


@pytest.fixture
def customer(invoice, monkeypatch):
    monkeypatch.setattr(Customer, "shout", property(shout), raising=False)
    return invoice.customer


USES = {
    "greet": ("tools/call", {"name": "greet", "arguments": {"customer": "{pk}"}},
              ["permission", "queryset", "object permission", "tool", "result"]),
    "agreet": ("tools/call", {"name": "agreet", "arguments": {"customer": "{pk}"}},
               ["permission", "queryset", "object permission", "tool", "result"]),
    "letter": ("prompts/get", {"name": "letter", "arguments": {"customer": "{pk}", "tone": "x"}},
               ["permission", "queryset", "object permission", "prompt"]),
    "read": ("resources/read", {"uri": "model://shop/customer/{pk}"},
             ["permission", "queryset", "object permission", "result"]),
    "search": ("tools/call", {"name": "search_customer", "arguments": {"query": "Carla"}},
               ["permission", "queryset", "object permission", "result"]),
    "list": ("resources/list", {}, ["permission", "queryset", "object permission"]),
    "tools": ("tools/list", {}, ["permission"]),
    "prompts": ("prompts/list", {}, ["permission"]),
    "complete": ("completion/complete", {"ref": {"type": "ref/prompt", "name": "letter"},
                 "argument": {"name": "tone", "value": ""}}, ["permission", "completion"]),
    "complete model": ("completion/complete", {"ref": {"type": "ref/prompt", "name": "letter"},
                       "argument": {"name": "customer", "value": "Car"}},
                       ["permission", "queryset", "object permission"]),
}  # fmt: skip


def filled(value, pk):
    if isinstance(value, dict):
        return {key: filled(item, pk) for key, item in value.items()}
    return value.replace("{pk}", str(pk)) if isinstance(value, str) else value


@pytest.mark.parametrize("use", USES)
def test_all_project_code_runs_inside_around(connect, observed, alice, customer, around_calls, use):
    method, params, expected = USES[use]
    client = connect(alice, server=observed)
    result = client.request(method, **filled(params, customer.pk))
    assert not result.get("isError"), result
    (passed,) = around_calls
    steps = dict.fromkeys(step for step, _ in passed.within)
    assert [step for step in steps if step in expected] == expected
    assert passed.left == passed.thread and passed.error is None
    assert {thread for _, thread in passed.within} == {passed.thread} != {threading.get_ident()}
    assert passed.request.user == alice


def test_subscriptions_and_notifications_run_inside_around(
    connect, observed, alice, customer, around_calls, handshake
):
    client = connect(alice, server=observed, revision=handshake)
    uri = f"model://shop/customer/{customer.pk}"
    client.request("resources/subscribe", uri=uri)
    announce(Announcement("updated", uri, observed.name))
    client.until(lambda: client.notes)
    assert [
        dict(passed.within).keys() >= {"permission", "queryset"} for passed in around_calls
    ] == [
        True,
        True,
    ]


def test_orm_of_an_async_tool_runs_in_the_thread_of_around(connect, server, db, around_calls):
    @server.tool(permission=mcp.PUBLIC)
    async def tool(request: mcp.Request) -> str:
        threads = {await sync_to_async(threading.get_ident)() for _ in range(2)}
        assert threads == {around_calls[0].thread} and around_calls[0].is_open
        assert threading.current_thread() is threading.main_thread()
        return f"{await Tag.objects.acount()}"

    assert connect(server=server).text("tool") == "0"
    assert around_calls[0].left == around_calls[0].thread != threading.get_ident()


FAILURES = {
    "tool": mcp.ToolError("no"),
    "bug": KeyError("no"),
    "exit": SystemExit(1),
    "stop": StopIteration(),
}


@pytest.mark.parametrize("how", FAILURES)
@pytest.mark.parametrize("tool", ["tool", "atool"])
def test_around_receives_exceptions(connect, server, db, around_calls, tool, how):
    @server.tool(permission=mcp.PUBLIC, name="tool")
    def sync(request: mcp.Request) -> str:
        raise FAILURES[how]

    @server.tool(permission=mcp.PUBLIC, name="atool")
    async def asynchronous(request: mcp.Request) -> str:
        raise FAILURES[how]

    client = connect(server=server)
    words = client.failure(tool)
    assert words == "no" if how == "tool" else "logged" in words
    seen, wanted = around_calls[0].error, FAILURES[how]
    assert seen is wanted or seen.__cause__ is wanted
    assert client.failure(tool) == words  # the server goes on


@pytest.mark.parametrize("tool", ["tool", "atool"])
def test_around_receives_a_question(connect, server, db, around_calls, tool):
    @server.tool(permission=mcp.PUBLIC, name="tool")
    def sync(request: mcp.Request) -> str:
        return f"{request.elicit('Sure?')}"

    @server.tool(permission=mcp.PUBLIC, name="atool")
    async def asynchronous(request: mcp.Request) -> str:
        return f"{await request.aelicit('Sure?')}"

    assert connect(server=server, answers=ASKED).text(tool) == "True"
    assert [type(passed.error).__name__ for passed in around_calls] == ["InputRequired", "NoneType"]


def test_around_receives_a_cancellation(connect, server, db, around_calls):
    begun = threading.Event()

    @server.tool(permission=mcp.PUBLIC)
    async def tool(request: mcp.Request) -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    cancelled(connect(server=server), "tool", begun)
    assert isinstance(around_calls[0].error, asyncio.CancelledError)
    assert around_calls[0].left == around_calls[0].thread


def test_around_managers_nest_in_order_with_internal_ones_innermost(
    connect, server, db, settings, monkeypatch
):
    around.order.clear()
    settings.DJANGO_MCP = {"AROUND": ["tests.calls.around.outer"]}
    monkeypatch.setattr(execution, "around", [around.inner])

    @server.tool(permission=mcp.PUBLIC)
    def tool(request: mcp.Request) -> str:
        around.order.append("tool")
        return "done"

    connect(server=server).text("tool")
    inner = ["enter inner", "tool", "leave inner"]
    assert around.order == ["enter outer", *inner, "leave outer"]


@pytest.mark.parametrize("tool", ["tool", "atool"])
def test_around_cannot_suppress_exceptions(connect, server, db, settings, tool):
    around.order.clear()
    settings.DJANGO_MCP = {"AROUND": ["tests.calls.around.swallowing"]}

    @server.tool(permission=mcp.PUBLIC, name="tool")
    def sync(request: mcp.Request, fail: bool) -> str:
        if fail:
            raise mcp.ToolError("no")
        return f"{request.elicit('Sure?')}"

    @server.tool(permission=mcp.PUBLIC, name="atool")
    async def asynchronous(request: mcp.Request, fail: bool) -> str:
        if fail:
            raise mcp.ToolError("no")
        return f"{await request.aelicit('Sure?')}"

    client = connect(server=server, answers=ASKED)
    assert client.failure(tool, fail=True) == "no"
    assert client.text(tool, fail=False) == "True"
    assert around.order == ["swallowed ToolError", "swallowed InputRequired"]


@pytest.mark.parametrize("fail", [False, True])
@pytest.mark.parametrize("tool", ["tool", "atool"])
def test_around_sets_and_resets_a_context_variable(connect, server, db, settings, tool, fail):
    around.order.clear()
    settings.DJANGO_MCP = {"AROUND": ["tests.calls.around.of_tenant"]}

    def tenant_of_the_call() -> str:
        if fail:
            raise mcp.ToolError(around.tenant.get())
        return around.tenant.get()

    @server.tool(permission=mcp.PUBLIC, name="tool")
    def sync(request: mcp.Request) -> str:
        return tenant_of_the_call()

    @server.tool(permission=mcp.PUBLIC, name="atool")
    async def asynchronous(request: mcp.Request) -> str:
        return f"{tenant_of_the_call()} {await sync_to_async(around.tenant.get)()}"

    client = connect(server=server)
    if fail:
        assert client.failure(tool) == "Acme's"
    else:
        assert client.text(tool) == {"tool": "Acme's", "atool": "Acme's Acme's"}[tool]
    assert around.order == ["Acme's"] and around.tenant.get() == "nobody's"


@pytest.mark.parametrize("tool", ["tool", "atool"])
def test_around_that_raises_on_entry_prevents_the_call(connect, server, db, settings, tool, caplog):
    settings.DJANGO_MCP = {"AROUND": ["tests.calls.around.closed"]}
    done: list[int] = []

    @server.tool(permission=mcp.PUBLIC, name="tool")
    def sync(request: mcp.Request) -> str:
        return f"{done.append(1)}"

    @server.tool(permission=mcp.PUBLIC, name="atool")
    async def asynchronous(request: mcp.Request) -> str:
        return f"{done.append(1)}"

    assert "logged" in connect(server=server).failure(tool)
    assert "the entry is refused" in caplog.text and done == []


@pytest.mark.parametrize("tool", ["tool", "atool"])
def test_around_that_raises_on_exit_closes_the_connections_of_its_thread(
    connect, server, shared_db, settings, tool, opened, caplog, monkeypatch
):
    around.order.clear()
    settings.DJANGO_MCP = {"AROUND": ["tests.calls.around.broken"]}

    @server.tool(permission=mcp.PUBLIC, name="tool")
    def sync(request: mcp.Request) -> str:
        return f"{Tag.objects.count()}"

    @server.tool(permission=mcp.PUBLIC, name="atool")
    async def asynchronous(request: mcp.Request) -> str:
        return f"{await Tag.objects.acount()}"

    for persistent in (None, 0):  # even if they were to be kept
        monkeypatch.setitem(connections.settings["default"], "CONN_MAX_AGE", persistent)
        opened.clear()
        assert "logged" in connect(server=server).failure(tool)
        assert opened and all(one.connection is None for one in opened)
    assert "the exit is blocked" in caplog.text
    assert around.order == ["open True"] * 2


def test_async_tool_holds_no_connection_before_it_uses_the_database(
    connect, server, shared_db, opened, monkeypatch
):
    """Otherwise calls that wait for something else would use up a pool of connections."""
    monkeypatch.setitem(connections.settings["default"], "CONN_MAX_AGE", 0)  # as a pool demands
    held = []

    @server.tool(permission=lambda request: not Tag.objects.exists())
    async def wait(request: mcp.Request) -> str:
        held.extend(one for one in opened if one.connection is not None)
        return "done"

    alice = get_user_model().objects.create_user("alice")
    opened.clear()  # that of the test itself
    assert connect(alice, server=server).text("wait") == "done"
    assert not held
    assert opened


@pytest.mark.parametrize("tool", ["tool", "atool"])
def test_language_activated_by_around_applies_to_one_call(connect, server, db, settings, tool):
    @server.tool(permission=mcp.PUBLIC, name="tool")
    def sync(request: mcp.Request) -> str:
        language = translation.get_language()
        translation.activate("fr")
        return language

    @server.tool(permission=mcp.PUBLIC, name="atool")
    async def asynchronous(request: mcp.Request) -> str:
        language = translation.get_language()
        translation.activate("fr")
        return language

    client = connect(server=server)
    assert [client.text(tool) for _ in range(3)] == ["en-us"] * 3
    settings.DJANGO_MCP = {"AROUND": ["tests.calls.around.in_german"]}
    assert [client.text(tool) for _ in range(3)] == ["de"] * 3
    settings.DJANGO_MCP = {}
    assert client.text(tool) == "en-us"


# Bound rows.


def test_rows_of_a_writing_tool_are_read_from_the_write_database(connect, server, db, monkeypatch):
    asked: list[str] = []

    class Router:
        def db_for_read(self, model, **hints):
            asked.append("read")

        def db_for_write(self, model, **hints):
            asked.append("write")

    from django.db import router

    @server.register(Tag)
    class TagResource(mcp.ModelResource):
        permission = mcp.PUBLIC
        fields = ["label"]

        def get_queryset(self, request):
            return super().get_queryset(request).all()

    @server.tool(permission=mcp.PUBLIC)
    def rename(request: mcp.Request, tag: Tag) -> str:
        return tag.label

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    def show(request: mcp.Request, tag: Tag) -> str:
        return tag.label

    tag = Tag.objects.create(label="x")
    client = connect(server=server)
    monkeypatch.setattr(router, "routers", [Router()])
    assert client.text("rename", tag=tag.pk) == "x" and asked == ["write"]
    asked.clear()
    assert client.text("show", tag=tag.pk) == "x" and asked == ["read"]


# Hops: what a call costs.


@pytest.mark.parametrize("revision", REVISIONS)
def test_calls_cost_the_expected_thread_hops_and_queries(connect, db, revision, jobs, queries):
    """Count jobs in threads and queries of anonymous calls."""
    client = connect(revision=revision)
    costs = {}
    for use, (method, params) in COSTS.items():
        if method in client.revision.requests:
            jobs.clear()
            before = len(queries)
            client.request(method, **params)
            costs[use] = (len(jobs), len(queries) - before)
    assert costs == {use: cost for use, cost in EXPECTED.items() if use in costs}


COSTS = {
    "ping": ("ping", {}),
    "discover": ("server/discover", {}),
    "public sync tool": ("tools/call", {"name": "add", "arguments": {"a": 1}}),
    "public async tool": ("tools/call", {"name": "slow_add", "arguments": {"a": 1, "b": 1}}),
    "public prompt": ("prompts/get", {"name": "visit", "arguments": {"country": "fr",
                                                                     "city": "Paris"}}),
    "public resource": ("resources/read", {"uri": "shop://opening-hours"}),
    "completion": ("completion/complete", {"ref": {"type": "ref/prompt", "name": "visit"},
                                           "argument": {"name": "country", "value": ""}}),
    "list of tools": ("tools/list", {}),
    "list of prompts": ("prompts/list", {}),
    "list of templates": ("resources/templates/list", {}),
    "log level": ("logging/setLevel", {"level": "error"}),
}  # fmt: skip
EXPECTED = {
    "ping": (0, 0),
    "discover": (0, 0),
    "public sync tool": (1, 0),
    "public async tool": (0, 0),
    "public prompt": (1, 0),
    "public resource": (1, 0),
    "completion": (1, 0),
    "list of tools": (1, 0),  # some of the shop's tools ask for a permission by name
    "list of prompts": (0, 0),
    "list of templates": (1, 0),  # a file of a row asks its row's resource
    "log level": (0, 0),
}


def test_list_without_database_access_takes_no_thread_hop(connect, server, jobs, monkeypatch):
    monkeypatch.setattr(kill_switches.cache, "_until", float("inf"))  # the cache is fresh

    @server.tool(permission=mcp.PUBLIC)
    def tool(request: mcp.Request) -> str:
        return ""

    @server.tool
    def private(request: mcp.Request) -> str:
        return ""

    client = connect(server=server)
    assert [one["name"] for one in client.request("tools/list")["tools"]] == ["tool"]
    assert jobs == []


def test_tool_with_rows_takes_one_job(connect, alice, invoice, jobs, queries):
    client = connect(alice)
    jobs.clear()
    client.text("refund", invoice="A-1", reason="x", amount="12.50")
    assert len(jobs) == 1
    assert Invoice.objects.get().total == Decimal("12.50")


def test_async_tool_takes_few_thread_hops(connect, alice, invoice, jobs):
    client = connect(alice)
    jobs.clear()
    client.call("count_invoices")
    # Its argument may be a row: prepare, its own query, leave, close.
    assert len(jobs) == 4 and jobs.count("discard_connections") <= 1


@pytest.mark.parametrize("what", ["row", "rows", "query", "nothing"])
def test_async_tool_that_returns_rows_takes_one_more_thread_hop(connect, server, db, jobs, what):
    values = {
        "row": lambda: Tag.objects.get(),
        "rows": lambda: [Tag.objects.get()],
        "query": lambda: Tag.objects.all(),
        "nothing": lambda: [],
    }
    Tag.objects.create(label="x")

    @server.register(Tag)
    class TagResource(mcp.ModelResource):
        permission = mcp.PUBLIC
        fields = ["label"]

        def get_queryset(self, request):
            return super().get_queryset(request).all()

    value = values[what]()

    async def tool(request: mcp.Request) -> list[Tag]:
        return value

    if what == "row":
        tool.__annotations__["return"] = Tag
    server.tool(permission=mcp.PUBLIC)(tool)
    client = connect(server=server)
    jobs.clear()
    assert not client.call("tool")["isError"]
    assert len(jobs) == (0 if what == "nothing" else 2)  # finish, and close


def test_concurrent_async_calls_close_their_connections_and_threads(
    connect, server, shared_db, opened, monkeypatch
):
    monkeypatch.setattr(kill_switches, "source", [])  # its query would keep a connection
    together = threading.Barrier(10)

    @server.tool(permission=mcp.PUBLIC)
    async def tool(request: mcp.Request) -> str:
        await sync_to_async(together.wait)(5)
        return f"{await Tag.objects.acount()}"

    client = connect(server=server)
    opened.clear()
    ids = [client.start("tools/call", name="tool") for _ in range(10)]
    assert all(client.wait(id)["result"]["content"][0]["text"] == "0" for id in ids)
    assert len(set(opened)) == 10 and all(one.connection is None for one in opened)
    for thread in threading.enumerate():
        if thread.name.startswith("mcp-async"):
            thread.join(5)
            assert not thread.is_alive()


# Who is let in.


def test_forbidden_tool_is_reported_as_unknown(connect, server, db, revision):
    done: list[int] = []

    @server.tool(permission="shop.change_invoice")
    def private(request: mcp.Request) -> str:
        return f"{done.append(1)}"

    client = connect(server=server, revision=revision)
    messages = {}
    for name in ("private", "missing"):
        with pytest.raises(RpcError) as refused:
            client.call(name)
        messages[name] = refused.value.message.replace(name, "it")
    assert messages["private"] == messages["missing"] and done == []


def test_tool_whose_needs_the_client_lacks_does_not_run(connect, server, db, revision):
    done: list[int] = []

    @server.register
    class Write(mcp.Tool):
        permission = mcp.PUBLIC
        needs = ["sampling"]

        def handle(self, request: mcp.Request) -> str:
            return f"{done.append(1)}"

    client = connect(server=server, revision=revision, capabilities={})
    response = client.wait(client.start("tools/call", name="write"))
    if client.revision.capability_errors:
        assert response["error"]["code"] == -32021
        assert response["error"]["data"] == {"requiredCapabilities": {"sampling": {}}}
    else:
        assert "sampling" in response["result"]["content"][0]["text"]
        assert response["result"]["isError"]
    assert done == []
