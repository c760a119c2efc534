"""The client of the kit, driven over each transport and in each revision."""

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


def test_a_tool_is_called(anywhere):
    anywhere.call("add", a=1, b=2).assert_ok().assert_data(3).assert_sees("3")


def test_a_tool_with_an_object_for_its_key(anywhere, alice, invoice):
    told = anywhere.acting_as(alice).call("refund", invoice=invoice, reason="broken", amount="2.5")
    told.assert_ok().assert_data(number="A-1", amount="2.5").assert_data(
        {"number": "A-1", "amount": "2.5", "reason": "broken"}
    )
    invoice.refresh_from_db()
    assert invoice.status == Invoice.Status.DRAFT


def test_what_may_not_be_used_is_unknown(anywhere, alice, bob, invoice):
    first, second = anywhere.acting_as(alice), anywhere.acting_as(bob)
    assert "refund" in first.tools()
    assert "refund" not in second.tools()
    assert first.tools().named("refund")["inputSchema"]["required"] == ["invoice", "reason"]
    second.call("refund", invoice=invoice, reason="x").assert_unknown()
    second.read(invoice).assert_unknown()
    first.read(invoice).assert_ok().assert_sees("A-1", "Carla")
    anywhere.call("refund", invoice=invoice, reason="x").assert_unknown()
    anywhere.prompt("reminder", customer=invoice.customer).assert_unknown()


def test_a_tool_that_fails(anywhere, alice, invoice, bob):
    anywhere.call("fail", how="tool").assert_error("Sunday")
    failed = anywhere.acting_as(alice).call("refund", invoice="A-2", reason="x")
    failed.assert_error("There is no invoice 'A-2'")
    assert failed.is_error and failed.code is None


def test_a_bug_is_raised_as_itself(anywhere):
    with pytest.raises(RuntimeError, match="hunter2") as raised:
        anywhere.call("fail", how="bug")
    assert raised.traceback[-1].path.name == "mcp.py"
    anywhere.call("add", a=1).assert_ok()  # it is of no other call


def test_or_kept_beside_what_the_client_is_told(anywhere):
    told = anywhere.acting_as(None, raise_exceptions=False).call("fail", how="bug")
    told.assert_error("Something went wrong")
    assert [str(bug) for bug in told.bugs] == ["the password is hunter2"]
    with pytest.raises(AssertionError, match=r"(?s)Something went wrong.*hunter2"):
        told.assert_ok()


def test_a_prompt(anywhere, alice, invoice):
    told = anywhere.acting_as(alice).prompt("reminder", customer=invoice.customer, tone="firm")
    told.assert_ok().assert_sees("firm", "Carla")
    assert [one["role"] for one in told.messages] == ["user"]
    anywhere.prompt("visit", country="fr", city="Paris").assert_sees("Paris", "When?")


def test_a_resource(anywhere):
    assert anywhere.read("shop://opening-hours").data == {"monday": "9-17"}
    assert anywhere.read("policy://returns").text == "# returns"
    anywhere.read("policy://nothing").assert_error("no such policy")
    anywhere.read("nothing://here").assert_unknown()


def test_completion(anywhere):
    assert anywhere.complete("visit", "city", "P", country="fr") == ["Paris"]
    assert anywhere.complete("policy://{name}", "name", "re") == ["returns"]
    with pytest.raises(RpcError):
        anywhere.complete("nothing", "city")


def test_lists_are_whole(anywhere, settings):
    settings.DJANGO_MCP = {**settings.DJANGO_MCP, "PAGE_SIZE": 2}
    everything = [anywhere.tools(), anywhere.resources(), anywhere.templates(), anywhere.prompts()]
    assert [len(one) for one in everything] == [8, 1, 1, 1]
    assert "shop://opening-hours" in anywhere.resources()
    assert "policy://{name}" in anywhere.templates()


def test_the_server_introduces_itself(anywhere):
    info = anywhere.info()
    assert info["instructions"] == "Ask for invoices." and "tools" in info["capabilities"]


def test_progress_and_logs(anywhere):
    assert anywhere.call("slow_add", a=1, b=1).data == 2
    assert [tuple(one)[:2] for one in anywhere.progress] == [(1, 3), (2, 3), (3, 3)]
    assert [(one.level, one.data, one.logger) for one in anywhere.logs] == [
        ("info", {"step": step}, "shop") for step in (1, 2, 3)
    ]


def test_a_level_of_logs(anywhere):
    client = anywhere.acting_as(None, log_level="error")
    client.call("slow_add", a=1, b=1).assert_ok()
    assert not client.logs and len(client.progress) == 3


def test_a_call_is_cancelled(anywhere):
    call = anywhere.start("slow_add", a=1, b=1, steps=100_000)
    anywhere.until(lambda: len(anywhere.progress) > 2)
    assert not call.is_done
    call.cancel()
    assert call.is_done
    with pytest.raises(asyncio.CancelledError):
        call.result()
    anywhere.call("add", a=1).assert_ok()


def test_a_call_is_waited_for(anywhere):
    call = anywhere.start("slow_add", a=1, b=1)
    assert call.result().data == 2


def test_a_call_that_takes_too_long_is_cancelled(transport, revision, server, db):
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
def asks(server):
    """A server that asks."""

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
def asking(anywhere, asks):
    return anywhere.acting_as(None, server=asks)


@pytest.fixture(params=[one.name for one in REVISIONS.values() if "elicitation/create" in one.asks])
def forms(request, db, transport, asks):
    """A client of each revision that has forms."""
    with Client(server=asks, transport=transport, revision=request.param) as client:
        yield client


def test_a_question_is_answered_by_a_value(forms):
    assert forms.answers(elicit=True).call("confirm").text == "True"
    assert forms.answers(elicit={"answer": False}).call("confirm").text == "False"
    assert [one["params"]["message"] for one in forms.asked] == ["Really?", "Really?"]


def test_or_by_a_function_which_may_use_the_database(forms, alice):
    def sure(message: str, schema: dict[str, Any]) -> bool:
        assert (message, list(schema["properties"])) == ("Really?", ["answer"])
        assert threading.current_thread() is threading.main_thread()
        return User.objects.count() == 1

    assert forms.answers(elicit=sure).call("confirm").text == "True"


def test_or_by_a_function_that_awaits(forms):
    async def sure(message: str, schema: dict[str, Any]) -> bool:
        await asyncio.sleep(0)
        return True

    assert forms.answers(elicit=sure).call("confirm").text == "True"


@pytest.mark.parametrize("how", [DECLINE, CANCEL])
def test_a_user_may_decline(forms, how):
    forms.answers(elicit=how).call("confirm").assert_error("declined")


def test_a_question_that_nobody_answers_fails_the_test(forms):
    with pytest.raises(Unanswered, match=r"'Really\?'.*answers\(elicit=\.\.\.\)"):
        forms.call("confirm")
    assert forms.answers(elicit=True).call("confirm").text == "True"


def test_what_an_answer_raises_is_raised(forms):
    def broken(message: str, schema: dict[str, Any]) -> bool:
        raise LookupError("no such thing")

    with pytest.raises(LookupError, match="no such thing"):
        forms.answers(elicit=broken).call("confirm")


def test_sampling_and_roots(asking):
    asking.answers(sample=lambda messages: f"hello {len(messages)}", roots=["file:///a"])
    assert asking.call("greet").text == "hello 1"
    assert asking.call("where").data == ["file:///a"]


def test_a_client_that_cannot_be_asked(asking):
    client = asking.acting_as(None, capabilities={})
    told = client.call("greet").assert_error()
    assert "sampling" in f"{told.text} {told.error and told.error.data}"


# The user.


def test_a_user_is_seen_as_they_are_now(anywhere, alice, invoice):
    client = anywhere.acting_as(alice)
    client.call("refund", invoice=invoice, reason="x", amount=1).assert_ok()
    alice.user_permissions.clear()
    client.call("refund", invoice=invoice, reason="x", amount=1).assert_unknown()
    alice.user_permissions.add(Permission.objects.get(codename="change_invoice"))
    client.call("refund", invoice=invoice, reason="x", amount=1).assert_ok()


def test_scopes(db, transport, revision, server):
    @server.tool(scope="a")
    def scopes(request: mcp.Request) -> list[str]:
        return ["none"] if request.auth is None else sorted(request.auth.scopes)

    user = User.objects.create_user("carol")
    with Client(user, server=server, transport=transport, revision=revision) as client:
        assert client.call("scopes").data == ["none"]
        assert client.acting_as(user, scopes=["b", "a"]).call("scopes").data == ["a", "b"]
        assert client.acting_as(user, scopes=[]).call("scopes").data == []


# The database, and what is left alone.


def test_queries_are_those_of_the_projects_code(anywhere, alice, invoice):
    told = anywhere.acting_as(alice).call("refund", invoice=invoice, reason="x", amount=1)
    told.assert_num_queries(4)  # two of permissions, one that binds, one that saves
    with pytest.raises(AssertionError, match=r"(?s)took 4 queries, not 3.*1\. SELECT.*4\. UPDATE"):
        told.assert_num_queries(3)
    anywhere.call("add", a=1).assert_num_queries(0)


def test_over_memory_a_call_takes_no_other_query(alice, invoice, django_assert_num_queries):
    with Client(alice) as client, django_assert_num_queries(4 + 2):  # a savepoint, and its end
        client.call("refund", invoice=invoice, reason="x", amount=1).assert_num_queries(4)


def test_a_language_of_the_test_is_that_of_the_call(server, db):
    @server.tool(permission=mcp.PUBLIC, read_only=True)
    def language(request: mcp.Request) -> str:
        return translation.get_language()

    with Client(server=server) as client, translation.override("de"):
        assert client.call("language").text == "de"


def test_nothing_is_left(db, transport, revision):
    before = set(threading.enumerate())
    with Client(transport=transport, revision=revision) as client:
        client.call("add", a=1)
    assert are_connections_free()
    new = {one.name for one in set(threading.enumerate()) - before}
    assert not {
        name
        for name in new
        if not name.startswith("mcp-tool")
        and "lookup" not in name
        and "mcp-log" not in name
        and not name.startswith("asyncio")
    }
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")


def test_a_closed_client_may_be_closed_again(db):
    client = Client()
    client.call("add", a=1)
    client.close()


# Mistakes.


def test_options_are_checked():
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


def test_a_server_by_its_name(db):
    made = Server("by name")
    made.tool(permission=mcp.PUBLIC, read_only=True)(ping)
    with Client(server="by name") as client:
        assert client.call("ping").text == "pong"


def ping(request: mcp.Request) -> str:
    return "pong"


def test_a_server_with_mistakes_is_not_served(server):
    @server.tool
    def untyped(request, what):
        """No type."""

    with pytest.raises(Misdeclared, match="E020"), Client(server=server):
        pass


async def test_within_a_loop_it_says_what_to_use():
    client = Client()
    with pytest.raises(RuntimeError, match="use AsyncClient"):
        client.call("add", a=1)


def test_a_condition_that_does_not_come_true_is_not_waited_for_ever(db):
    with Client() as client:
        begun = time.monotonic()
        with pytest.raises(TimeoutError):
            client.until(lambda: False, seconds=0.05)
        assert time.monotonic() - begun < 5


# What the tests of this project add.


def test_a_message_that_does_not_conform_fails_the_test(db, monkeypatch):
    """The oracle is plugged in, whoever makes the client."""
    monkeypatch.setattr(mcp.server._catalog.tools["add"], "_definition", lambda: {"name": "add"})
    with Client() as client, pytest.raises(AssertionError, match="inputSchema"):
        client.tools()


@pytest.mark.parametrize(
    ("allowed", "debug"), [(["testserver"], False), ([], True), (["127.0.0.1"], False)]
)
def test_the_site_answers_to_its_host(db, settings, transport, server, allowed, debug):
    """In tests of a new project it has no name but Django's own, outside of tests not even that."""
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"URL": "http://127.0.0.1:8000"}
    settings.ALLOWED_HOSTS, settings.DEBUG = allowed, debug

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    def host(request) -> str:
        """The name of the site."""
        return request.http.get_host()

    with Client(server=server, transport=transport) as client:
        told = client.call("host").assert_ok()
    assert told.text in ("testserver", "127.0.0.1:8000")
