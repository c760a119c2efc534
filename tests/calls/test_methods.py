"""The MCP methods as a client uses them, in every revision."""

from __future__ import annotations

from typing import Literal

import pytest
from django.http import Http404

import django_mcp as mcp
from django_mcp.calls.methods import METHODS
from django_mcp.protocol.revisions import REVISIONS
from tests.client import RpcError


def names(items):
    return [item["name"] for item in items]


@pytest.mark.django_db
def test_lists_contain_what_anonymous_clients_may_use(connect, revision):
    client = connect(revision=revision)
    listed = names(client.all("tools/list", "tools"))
    assert "add" in listed and "refund" not in listed and "search_invoice" not in listed
    assert names(client.all("prompts/list", "prompts")) == ["visit"]
    assert names(client.all("resources/list", "resources")) == ["opening_hours"]
    assert names(client.all("resources/templates/list", "resourceTemplates")) == ["policy"]


def test_lists_contain_what_the_user_may_use(connect, alice, bob, invoice, revision):
    client = connect(alice, revision=revision)
    assert {"refund", "search_invoice"} <= set(names(client.all("tools/list", "tools")))
    assert "refund" not in names(connect(bob).all("tools/list", "tools"))
    listed = client.all("resources/list", "resources")
    assert [one["uri"] for one in listed][0] == "shop://opening-hours"
    assert listed[1]["uri"].startswith("model://shop/company/")


def test_tools_call_returns_the_result(connect, revision):
    client = connect(revision=revision)
    assert client.text("add", a=2) == "3"


def test_resources_read_returns_only_rows_that_the_user_sees(
    connect, alice, bob, invoice, revision
):
    client = connect(alice, revision=revision)
    contents = client.request("resources/read", uri="invoice://A-1")["contents"]
    assert '"total": "12.50"' in contents[0]["text"] and "never pays" not in contents[0]["text"]
    with pytest.raises(RpcError) as refused:
        connect(bob, revision=revision).request("resources/read", uri="invoice://A-1")
    with pytest.raises(RpcError) as missing:
        client.request("resources/read", uri="invoice://none")
    assert refused.value.message == missing.value.message


def test_search_tool_finds_rows(connect, alice, invoice, revision):
    client = connect(alice, revision=revision)
    assert "A-1" in client.text("search_invoice", query="carl")
    assert "A-1" not in client.text("search_invoice", query="dora")


def test_tool_argument_is_bound_to_a_row(connect, alice, bob, invoice, revision):
    assert "12.50" in connect(alice, revision=revision).text(
        "refund", invoice="A-1", reason="broken", amount="12.50"
    )


def test_completion_finds_rows(connect, alice, invoice, revision):
    client = connect(alice, revision=revision)
    ref = {"type": "ref/prompt", "name": "reminder"}
    found = client.request(
        "completion/complete", ref=ref, argument={"name": "customer", "value": "car"}
    )
    assert found["completion"]["values"] == [str(invoice.customer_id)]


# Every method, and what it refuses.


def refused(client, method, **params):
    with pytest.raises(RpcError) as error:
        client.request(method, **params)
    return error.value


def test_every_method_of_every_revision_is_implemented():
    everything = frozenset().union(*(revision.requests for revision in REVISIONS.values()))
    assert METHODS.keys() == everything


@pytest.mark.parametrize("method", sorted(METHODS))
def test_method_without_required_parameters_is_rejected(connect, revision, method, db):
    client = connect(revision=revision)
    response = client.wait(client.start(method))
    if method not in client.revision.requests:
        assert response["error"]["code"] == -32601
    elif "error" in response:
        assert response["error"]["code"] in (-32600, -32602)
    else:
        assert not NEEDS.get(method)


NEEDS = {
    "completion/complete": ["ref", "argument"],
    "logging/setLevel": ["level"],
    "prompts/get": ["name"],
    "resources/read": ["uri"],
    "resources/subscribe": ["uri"],
    "resources/unsubscribe": ["uri"],
    "subscriptions/listen": ["notifications"],
    "tools/call": ["name"],
}
ODD = [None, 1, 1.5, True, [], {}, ["x"], {"x": 1}]


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_parameter_of_the_wrong_type_is_rejected(connect, revision, odd, db):
    client = connect(revision=revision)
    for method, names in NEEDS.items():
        if method not in client.revision.requests:
            continue
        for name in names:
            if isinstance(odd, dict) and name in ("notifications", "ref", "argument"):
                continue
            assert refused(client, method, **{name: odd}).code == -32602, (method, name)


@pytest.mark.parametrize("odd", [1, True, "x", [], ["x"]], ids=repr)
def test_arguments_must_be_an_object(connect, revision, odd, db):
    client = connect(revision=revision)
    assert refused(client, "tools/call", name="add", arguments=odd).code == -32602
    assert refused(client, "prompts/get", name="visit", arguments=odd).code == -32602


def test_arguments_may_be_missing_or_null(connect, server, revision):
    @server.tool(permission=mcp.PUBLIC, read_only=True)
    def tool(request: mcp.Request) -> str:
        return "done"

    @server.prompt(permission=mcp.PUBLIC)
    def prompt(request: mcp.Request) -> str:
        return "done"

    client = connect(server=server, revision=revision)
    for given in ({}, {"arguments": None}, {"arguments": {}}):
        assert client.request("tools/call", name="tool", **given)["content"][0]["text"] == "done"
        assert client.request("prompts/get", name="prompt", **given)["messages"]


def test_prompt_arguments_must_be_strings(connect, revision):
    client = connect(revision=revision)
    given = {"country": "fr", "city": 7}
    error = refused(client, "prompts/get", name="visit", arguments=given)
    assert error.code == -32602 and "strings" in error.message


@pytest.mark.parametrize("name", ["none", "", "ADD", "add ", "x" * 100_000, "__class__"])
def test_unknown_name_is_rejected_with_a_short_message(connect, revision, name, db):
    client = connect(revision=revision)
    for method in ("tools/call", "prompts/get"):
        error = refused(client, method, name=name)
        assert error.code == -32602 and len(error.message) < 300 and error.data is None


ALWAYS = {"initialize", "ping", "logging/setLevel", "server/discover"}


def test_methods_of_missing_capabilities_are_not_found(connect, server, revision):
    client = connect(server=server, revision=revision)
    for method in METHODS.keys() & client.revision.requests - {*ALWAYS, "subscriptions/listen"}:
        assert refused(client, method).code == -32601


def test_server_describes_itself_on_initialize_and_discover(connect, revision):
    client = connect(revision=revision, initialize=False)
    if client.revision.handshake:
        found = client.initialize()
        assert found["protocolVersion"] == revision and found["serverInfo"]["version"]
    else:
        found = client.request("server/discover")
        assert found["supportedVersions"] == list(REVISIONS)[::-1]
        assert found["cacheScope"] == "private"  # some of the shop's things are not for all
    assert found["instructions"] == "Ask for invoices."
    assert found["capabilities"].keys() >= {"tools", "prompts", "resources"}


def test_server_without_instructions_omits_them(connect, server):
    @server.tool(permission=mcp.PUBLIC)
    def tool(request: mcp.Request) -> str:
        return ""

    found = connect(server=server).request("server/discover")
    assert "instructions" not in found and found["cacheScope"] == "public"


def test_ping_and_set_level_are_answered(connect, handshake):
    client = connect(revision=handshake)
    assert client.request("ping") == {}
    assert client.request("logging/setLevel", level="error") == {}
    error = refused(client, "logging/setLevel", level="loud")
    assert error.code == -32602 and "debug" in error.message


# ClientStream.


def test_next_matching_template_is_tried_after_not_found(connect, server, revision, db):
    @server.resource("page://{number}", permission=mcp.PUBLIC)
    def numbered(request: mcp.Request, number: int) -> str:
        if number > 10:
            raise Http404
        return f"number {number}"

    @server.resource("page://{name}", permission=mcp.PUBLIC)
    def named(request: mcp.Request, name: str) -> str:
        return f"name {name}"

    client = connect(server=server, revision=revision)

    def read(uri):
        return client.request("resources/read", uri=uri)["contents"][0]["text"]

    assert read("page://7") == "number 7"
    assert read("page://first") == "name first" and read("page://11") == "name 11"
    error = refused(client, "resources/read", uri="book://7")
    assert error.data == {"uri": "book://7"}


# Subscribing and listening.


def test_subscribe_and_unsubscribe_are_idempotent(connect, handshake, db):
    client = connect(revision=handshake)
    assert client.request("resources/subscribe", uri="shop://opening-hours") == {}
    assert client.request("resources/subscribe", uri="shop://opening-hours") == {}
    assert client.request("resources/unsubscribe", uri="shop://opening-hours") == {}
    assert client.request("resources/unsubscribe", uri="shop://opening-hours") == {}
    assert refused(client, "resources/subscribe", uri="shop://none").data == {"uri": "shop://none"}


@pytest.mark.parametrize(
    "wanted, honoured",
    [
        ({}, {}),
        ({"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True},
         {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}),
        ({"toolsListChanged": False, "promptsListChanged": 1, "unknown": True}, {}),
        ({"resourceSubscriptions": ["shop://opening-hours", "shop://opening-hours", "x://none"]},
         {"resourceSubscriptions": ["shop://opening-hours"]}),
        ({"resourceSubscriptions": None}, {}),
    ],
)  # fmt: skip
def test_listen_acknowledges_only_what_the_server_offers(connect, wanted, honoured, db):
    client = connect()
    client.start("subscriptions/listen", notifications=wanted)
    client.until(lambda: client.notes)
    assert client.notes[0]["params"]["notifications"] == honoured


@pytest.mark.parametrize("uris", ["shop://x", {}, [1], [None], 7, ["x"] * 10_001])
def test_listen_with_invalid_uris_is_rejected(connect, uris):
    found = refused(
        connect(), "subscriptions/listen", notifications={"resourceSubscriptions": uris}
    )
    assert found.code == (-32603 if isinstance(uris, list) and len(uris) > 1 else -32602)


def test_listen_without_resources_acknowledges_no_subscription(connect, server):
    @server.tool(permission=mcp.PUBLIC)
    def tool(request: mcp.Request) -> str:
        return ""

    client = connect(server=server)
    client.start("subscriptions/listen", notifications={"resourceSubscriptions": ["shop://x"]})
    client.until(lambda: client.notes)
    assert client.notes[0]["params"]["notifications"] == {}


# Completing.


def test_completion_reveals_nothing_that_the_caller_may_not_use(connect, bob, invoice, revision):
    anonymous = connect(revision=revision)
    argument = {"name": "customer", "value": ""}
    for ref in ({"type": "ref/prompt", "name": "reminder"}, {"type": "ref/prompt", "name": "none"}):
        error = refused(anonymous, "completion/complete", ref=ref, argument=argument)
        assert error.message == f"Unknown prompt: {ref['name']}"
    found = connect(bob, revision=revision).request(
        "completion/complete", ref={"type": "ref/prompt", "name": "reminder"}, argument=argument
    )
    assert found["completion"]["values"] == []


def test_argument_without_completion_has_no_values(connect, server, revision):
    @server.prompt(permission=mcp.PUBLIC)
    def prompt(request: mcp.Request, tone: Literal["kind"], text: str) -> str:
        return text

    client = connect(server=server, revision=revision)
    ref = {"type": "ref/prompt", "name": "prompt"}
    for name, values in (("text", []), ("tone", ["kind"])):
        found = client.request("completion/complete", ref=ref, argument={"name": name, "value": ""})
        assert found["completion"]["values"] == values
    error = refused(
        client, "completion/complete", ref=ref, argument={"name": "x" * 9999, "value": ""}
    )
    assert error.code == -32602 and len(error.message) < 300


# What answers brought about is nobody else's.


def test_resource_read_with_answers_is_not_cacheable(connect, server):
    @server.resource("shop://x", permission=mcp.PUBLIC)
    def resource(request: mcp.Request) -> str:
        return "x"

    server._catalog.resources["shop://x"].shared = True
    server._catalog.resources["shop://x"].cache = 60
    client = connect(server=server)
    plain = client.request("resources/read", uri="shop://x")
    assert (plain["cacheScope"], plain["ttlMs"]) == ("public", 60_000)
    answered = client.request("resources/read", uri="shop://x", inputResponses={})
    assert (answered["cacheScope"], answered["ttlMs"]) == ("private", 0)


def test_calls_over_the_rate_limit_are_rejected(connect, settings):
    settings.DJANGO_MCP = {"THROTTLES": {"calls": "1/month"}}
    client = connect()
    assert client.text("add", a=1) == "2"
    assert client.failure("add", a=1).startswith("Too many calls: 1 per 30 days. Try again in ")
