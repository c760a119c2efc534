"""``Client``, over each transport and in each revision."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.utils import translation

import django_mcp as mcp
from django_mcp.declarations.server import Server
from django_mcp.exceptions import Misdeclared
from django_mcp.protocol.revisions import REVISIONS
from django_mcp.testing import CANCEL, DECLINE, Client, RpcError, Unanswered
from django_mcp.testing.environment import are_connections_free
from tests.shop.models import Invoice


def test_call_returns_data_and_text(anonymous_client):
    anonymous_client.call("add", a=1, b=2).assert_ok().assert_data(3).assert_sees("3")


def test_model_instance_can_be_an_argument(anonymous_client, alice, invoice):
    result = anonymous_client.acting_as(alice).call(
        "refund", invoice=invoice, reason="broken", amount="2.5"
    )
    result.assert_ok().assert_data(number="A-1", amount="2.5").assert_data(
        {"number": "A-1", "amount": "2.5", "reason": "broken"}
    )
    invoice.refresh_from_db()
    assert invoice.status == Invoice.Status.DRAFT


def test_forbidden_tools_resources_and_prompts_are_unknown(anonymous_client, alice, bob, invoice):
    first, second = anonymous_client.acting_as(alice), anonymous_client.acting_as(bob)
    assert "refund" in first.tools()
    assert "refund" not in second.tools()
    assert first.tools().named("refund")["inputSchema"]["required"] == ["invoice", "reason"]
    second.call("refund", invoice=invoice, reason="x").assert_unknown()
    second.read(invoice).assert_unknown()
    first.read(invoice).assert_ok().assert_sees("A-1", "Carla")
    anonymous_client.call("refund", invoice=invoice, reason="x").assert_unknown()
    anonymous_client.prompt("reminder", customer=invoice.customer).assert_unknown()


def test_tool_error_is_a_failed_result(anonymous_client, alice, invoice, bob):
    anonymous_client.call("fail", how="tool").assert_error("Sunday")
    failed = anonymous_client.acting_as(alice).call("refund", invoice="A-2", reason="x")
    failed.assert_error("There is no invoice 'A-2'")
    assert failed.is_error and failed.code is None


def test_exception_of_a_tool_is_raised_in_the_test(anonymous_client):
    with pytest.raises(RuntimeError, match="hunter2") as raised:
        anonymous_client.call("fail", how="bug")
    assert raised.traceback[-1].path.name == "mcp.py"
    anonymous_client.call("add", a=1).assert_ok()  # the exception belongs to the earlier call only


def test_exception_is_recorded_if_raise_exceptions_is_off(anonymous_client):
    result = anonymous_client.acting_as(None, raise_exceptions=False).call("fail", how="bug")
    result.assert_error("Something went wrong")
    assert [str(bug) for bug in result.bugs] == ["the password is hunter2"]
    with pytest.raises(AssertionError, match=r"(?s)Something went wrong.*hunter2"):
        result.assert_ok()


def test_prompt_returns_messages(anonymous_client, alice, invoice):
    result = anonymous_client.acting_as(alice).prompt(
        "reminder", customer=invoice.customer, tone="firm"
    )
    result.assert_ok().assert_sees("firm", "Carla")
    assert [one["role"] for one in result.messages] == ["user"]
    anonymous_client.prompt("visit", country="fr", city="Paris").assert_sees("Paris", "When?")


def test_read_returns_data_and_text(anonymous_client):
    assert anonymous_client.read("shop://opening-hours").data == {"monday": "9-17"}
    assert anonymous_client.read("policy://returns").text == "# returns"
    anonymous_client.read("policy://nothing").assert_error("no such policy")
    anonymous_client.read("nothing://here").assert_unknown()


def test_complete_returns_values(anonymous_client):
    assert anonymous_client.complete("visit", "city", "P", country="fr") == ["Paris"]
    assert anonymous_client.complete("policy://{name}", "name", "re") == ["returns"]
    with pytest.raises(RpcError):
        anonymous_client.complete("nothing", "city")


def test_lists_contain_all_pages(anonymous_client, settings):
    settings.DJANGO_MCP = {**settings.DJANGO_MCP, "PAGE_SIZE": 2}
    everything = [
        anonymous_client.tools(),
        anonymous_client.resources(),
        anonymous_client.templates(),
        anonymous_client.prompts(),
    ]
    assert [len(one) for one in everything] == [8, 1, 1, 1]
    assert "shop://opening-hours" in anonymous_client.resources()
    assert "policy://{name}" in anonymous_client.templates()


def test_info_returns_instructions_and_capabilities(anonymous_client):
    info = anonymous_client.info()
    assert info["instructions"] == "Ask for invoices." and "tools" in info["capabilities"]


def test_progress_and_log_messages_are_recorded(anonymous_client):
    assert anonymous_client.call("slow_add", a=1, b=1).data == 2
    assert [tuple(one)[:2] for one in anonymous_client.progress] == [(1, 3), (2, 3), (3, 3)]
    assert [(one.level, one.data, one.logger) for one in anonymous_client.logs] == [
        ("info", {"step": step}, "shop") for step in (1, 2, 3)
    ]


def test_log_level_limits_log_messages(anonymous_client):
    client = anonymous_client.acting_as(None, log_level="error")
    client.call("slow_add", a=1, b=1).assert_ok()
    assert not client.logs and len(client.progress) == 3


def test_call_can_be_cancelled(anonymous_client):
    call = anonymous_client.start("slow_add", a=1, b=1, steps=100_000)
    anonymous_client.until(lambda: len(anonymous_client.progress) > 2)
    assert not call.is_done
    call.cancel()
    assert call.is_done
    with pytest.raises(asyncio.CancelledError):
        call.result()
    anonymous_client.call("add", a=1).assert_ok()


def test_started_call_returns_its_result(anonymous_client):
    call = anonymous_client.start("slow_add", a=1, b=1)
    assert call.result().data == 2


def test_call_that_times_out_is_cancelled(transport, revision, server, db):
    ended = threading.Event()

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    async def slow(request: mcp.Request) -> str:
        try:
            await asyncio.sleep(30)
        finally:
            ended.set()
        return "at last"

    with (
        Client(server=server, transport=transport, revision=revision, seconds=0.3) as client,
        pytest.raises(TimeoutError, match="tools/call was not answered within"),
    ):
        client.call("slow")
    assert ended.wait(30)


# Questions.


@pytest.fixture
def asking_server(server):
    """Register tools that ask questions."""

    @server.tool(permission=mcp.PUBLIC)
    def confirm(request: mcp.Request) -> str:
        return f"{request.elicit('Really?', bool)}"

    @server.tool(permission=mcp.PUBLIC)
    def greet(request: mcp.Request) -> str:
        return request.sample("Say hello.").text

    @server.tool(permission=mcp.PUBLIC)
    def where(request: mcp.Request) -> list[str]:
        return [root.uri for root in request.roots()]

    return server


@pytest.fixture
def asking_client(anonymous_client, asking_server):
    return anonymous_client.acting_as(None, server=asking_server)


@pytest.fixture(params=[one.name for one in REVISIONS.values() if "elicitation/create" in one.asks])
def form_client(request, db, transport, asking_server):
    """Yield a client for each revision that has forms."""
    with Client(server=asking_server, transport=transport, revision=request.param) as client:
        yield client


def test_question_is_answered_with_a_value(form_client):
    assert form_client.answers(elicit=True).call("confirm").text == "True"
    assert form_client.answers(elicit={"answer": False}).call("confirm").text == "False"
    assert [one["params"]["message"] for one in form_client.asked] == ["Really?", "Really?"]


def test_question_is_answered_by_a_function_that_uses_the_database(form_client, alice):
    def sure(message: str, schema: dict[str, Any]) -> bool:
        assert (message, list(schema["properties"])) == ("Really?", ["answer"])
        assert threading.current_thread() is threading.main_thread()
        return User.objects.count() == 1

    assert form_client.answers(elicit=sure).call("confirm").text == "True"


def test_question_is_answered_by_an_async_function(form_client):
    async def sure(message: str, schema: dict[str, Any]) -> bool:
        await asyncio.sleep(0)
        return True

    assert form_client.answers(elicit=sure).call("confirm").text == "True"


@pytest.mark.parametrize("how", [DECLINE, CANCEL])
def test_question_can_be_declined_or_cancelled(form_client, how):
    form_client.answers(elicit=how).call("confirm").assert_error("declined")


def test_unanswered_question_raises(form_client):
    with pytest.raises(Unanswered, match=r"'Really\?'.*answers\(elicit=\.\.\.\)"):
        form_client.call("confirm")
    assert form_client.answers(elicit=True).call("confirm").text == "True"


def test_exception_of_an_answer_function_is_raised(form_client):
    def broken(message: str, schema: dict[str, Any]) -> bool:
        raise LookupError("no such thing")

    with pytest.raises(LookupError, match="no such thing"):
        form_client.answers(elicit=broken).call("confirm")


def test_sampling_and_roots_are_answered(asking_client):
    asking_client.answers(sample=lambda messages: f"hello {len(messages)}", roots=["file:///a"])
    assert asking_client.call("greet").text == "hello 1"
    assert asking_client.call("where").data == ["file:///a"]


def test_client_without_capabilities_is_not_asked(asking_client):
    client = asking_client.acting_as(None, capabilities={})
    result = client.call("greet").assert_error()
    assert "sampling" in f"{result.text} {result.error and result.error.data}"


# The user.


def test_permission_changes_of_the_user_apply_to_the_next_call(anonymous_client, alice, invoice):
    client = anonymous_client.acting_as(alice)
    client.call("refund", invoice=invoice, reason="x", amount=1).assert_ok()
    alice.user_permissions.clear()
    client.call("refund", invoice=invoice, reason="x", amount=1).assert_unknown()
    alice.user_permissions.add(Permission.objects.get(codename="change_invoice"))
    client.call("refund", invoice=invoice, reason="x", amount=1).assert_ok()


def test_scopes_of_the_client_are_in_the_request(db, transport, revision, server):
    @server.tool(scope="a")
    def scopes(request: mcp.Request) -> list[str]:
        return ["none"] if request.auth is None else sorted(request.auth.scopes)

    user = User.objects.create_user("carol")
    with Client(user, server=server, transport=transport, revision=revision) as client:
        assert client.call("scopes").data == ["none"]
        assert client.acting_as(user, scopes=["b", "a"]).call("scopes").data == ["a", "b"]
        assert client.acting_as(user, scopes=[]).call("scopes").data == []


# The database and side effects.


def test_assert_num_queries_counts_queries_of_the_projects_code(anonymous_client, alice, invoice):
    result = anonymous_client.acting_as(alice).call("refund", invoice=invoice, reason="x", amount=1)
    result.assert_num_queries(4)  # two for permissions, one to bind, one to save
    with pytest.raises(AssertionError, match=r"(?s)took 4 queries, not 3.*1\. SELECT.*4\. UPDATE"):
        result.assert_num_queries(3)
    anonymous_client.call("add", a=1).assert_num_queries(0)


def test_call_in_memory_makes_no_other_queries_than_the_savepoint(
    alice, invoice, django_assert_num_queries
):
    with (
        Client(alice) as client,
        django_assert_num_queries(4 + 2),
    ):  # the savepoint adds two queries
        client.call("refund", invoice=invoice, reason="x", amount=1).assert_num_queries(4)


def test_call_has_the_language_of_the_test(server, db):
    @server.tool(permission=mcp.PUBLIC, read_only=True)
    def language(request: mcp.Request) -> str:
        return translation.get_language()

    with Client(server=server) as client, translation.override("de"):
        assert client.call("language").text == "de"


def test_closed_client_leaves_no_threads_and_open_connections(db, transport, revision):
    before = set(threading.enumerate())
    with Client(transport=transport, revision=revision) as client:
        client.call("add", a=1)
    assert are_connections_free()
    pools = ("mcp-tool", "mcp-lookup", "mcp-log", "asyncio")
    new = [one for one in threading.enumerate() if not one.name.startswith(pools)]
    for thread in set(new) - before:
        thread.join(60)  # the thread that reads a pipe ends just after its last message
        assert not thread.is_alive(), thread.name
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")


def test_client_can_be_used_and_closed_without_a_with_block(db):
    client = Client()
    client.call("add", a=1)
    client.close()


# Invalid use.


def test_invalid_options_raise():
    with pytest.raises(TypeError, match="no option serve; see Options"):
        Client(serve=mcp.server)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match=r"no transport 'pigeon'; there are: memory, http, stdio"):
        Client(transport="pigeon")
    with pytest.raises(ValueError, match="no revision '2020-01-01'"):
        Client(revision="2020-01-01")
    with pytest.raises(LookupError, match="no server 'nowhere'"):
        Client(server="nowhere")
    with pytest.raises(TypeError, match="Nobody asks for elicits; answers: elicit, visit"):
        Client(answers={"elicits": True})


def test_server_can_be_given_by_name(db):
    made = Server("by name")
    made.tool(permission=mcp.PUBLIC, read_only=True)(ping)
    with Client(server="by name") as client:
        assert client.call("ping").text == "pong"


def ping(request: mcp.Request) -> str:
    return "pong"


def test_server_with_errors_raises(server):
    @server.tool
    def untyped(request, what):
        """No type."""

    with pytest.raises(Misdeclared, match="E020"), Client(server=server):
        pass


async def test_client_inside_an_event_loop_raises():
    client = Client()
    with pytest.raises(RuntimeError, match="use AsyncClient"):
        client.call("add", a=1)


def test_until_times_out(db):
    with Client() as client:
        begun = time.monotonic()
        with pytest.raises(TimeoutError):
            client.until(lambda: False, seconds=0.05)
        assert time.monotonic() - begun < 5


# Hooks of this project's test suite.


def test_message_that_violates_the_specification_fails_the_test(db, monkeypatch):
    """The test suite validates the messages of all clients."""
    tool = mcp.server._catalog.tools["add"]
    monkeypatch.setattr(tool, "_encoded_definition", lambda *args: '{"name": "add"}')
    with Client() as client, pytest.raises(AssertionError, match="inputSchema"):
        client.tools()


@pytest.mark.parametrize(
    ("allowed", "debug"), [(["testserver"], False), ([], True), (["127.0.0.1"], False)]
)
def test_host_of_the_request_is_allowed(db, settings, transport, server, allowed, debug):
    """A new project allows only Django's test host in tests, and no host otherwise."""
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"URL": "http://127.0.0.1:8000"}
    settings.ALLOWED_HOSTS, settings.DEBUG = allowed, debug

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    def host(request) -> str:
        """The name of the site."""
        return request.http.get_host()

    with Client(server=server, transport=transport) as client:
        result = client.call("host").assert_ok()
    assert result.text in ("testserver", "127.0.0.1:8000")
