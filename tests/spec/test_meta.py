"""`_meta`: what a request declares about its client, and which keys are allowed."""

from __future__ import annotations

import json

import pytest

import django_mcp as mcp
from django_mcp.protocol.revisions import REVISIONS
from tests.client import EVERYTHING, PREFIX

from .helpers import LISTS, list_items, replies_to, request_error, server_info, startup_errors

pytestmark = pytest.mark.django_db
VERSION, CAPABILITIES = PREFIX + "protocolVersion", PREFIX + "clientCapabilities"
CLIENT_INFO = PREFIX + "clientInfo"


@pytest.fixture
def telling(server):
    """A server with a tool that tells what it was told in `_meta`, and one that is not for all."""

    @server.tool(permission=mcp.PUBLIC)
    def told(request: mcp.Request) -> str:
        return json.dumps(dict(request.meta))

    @server.tool(permission=mcp.PUBLIC)
    def ask(request: mcp.Request, how: str = "form") -> str:
        questions = {
            "form": mcp.Elicit("Sure?", bool),
            "page": mcp.Elicit("Sign in", None, url="https://shop.example/in"),
            "model": mcp.Sample("A word."),
            "model with tools": mcp.Sample("A word.", tools=[TOOL]),
            "folders": mcp.Roots(),
        }
        return str(request.ask(it=questions[how]))

    @server.tool
    def secret(request: mcp.Request) -> str:
        return "secret"

    return server


TOOL = {"name": "look", "inputSchema": {"type": "object"}}


# What every request of the newest revision says.


@pytest.mark.parametrize("method", ["server/discover", "tools/list", "tools/call"])
@pytest.mark.parametrize("missing", [[VERSION], [CAPABILITIES], [VERSION, CAPABILITIES]], ids=str)
def test_meta_must_contain_version_and_capabilities(connect, telling, method, missing):
    client = connect(server=telling)
    message = client.message(method, {"name": "told"})
    for key in missing:
        del message["params"]["_meta"][key]
    (refused,) = replies_to(client, message)
    assert refused["id"] == message["id"] and refused["error"]["code"] == -32602
    assert missing[0] in refused["error"]["message"]


@pytest.mark.parametrize("missing", [VERSION, CAPABILITIES])
def test_unknown_method_is_rejected_before_its_parameters_are_checked(connect, telling, missing):
    client = connect(server=telling)
    message = client.message("no/such", {})
    del message["params"]["_meta"][missing]
    (refused,) = replies_to(client, message)
    assert refused["error"]["code"] == -32601


def test_client_info_is_optional(connect, telling):
    client = connect(server=telling)
    message = client.message("tools/list", {})
    del message["params"]["_meta"][CLIENT_INFO]
    client.send(message)
    assert client.wait(message["id"])["result"]["tools"]


# Question, and the capability it needs.
NEEDS = {
    "form": {"elicitation": {"form": {}}},
    "page": {"elicitation": {"url": {}}},
    "model": {"sampling": {}},
    "model with tools": {"sampling": {"tools": {}}},
    "folders": {"roots": {}},
}


def without(how):
    """All capabilities but what a question needs."""
    ((name, parts),) = NEEDS[how].items()
    rest = {key: value for key, value in EVERYTHING[name].items() if key not in parts}
    others = {key: value for key, value in EVERYTHING.items() if key != name}
    return others | {name: rest} if parts else others


@pytest.mark.parametrize("how", NEEDS)
def test_undeclared_capability_is_named_in_the_error(connect, telling, how):
    client = connect(server=telling)
    assert client.call("ask", how=how)["inputRequests"]  # so it would be used
    client.capabilities = without(how)
    refused = request_error(client, "tools/call", name="ask", arguments={"how": how})
    assert refused.code == -32021
    assert refused.data == {"requiredCapabilities": NEEDS[how]}
    assert client.asked == []


@pytest.mark.parametrize("how", ["model", "folders"])
def test_undeclared_capability_is_not_used_in_a_session(connect, telling, handshake, how):
    client = connect(server=telling, revision=handshake, capabilities=without(how))
    (name,) = NEEDS[how]
    assert name in client.failure("ask", how=how)
    assert client.asked == []


def test_all_missing_capabilities_are_named(connect, telling):
    @telling.register
    class Travel(mcp.Tool):
        permission = mcp.PUBLIC
        needs = ["sampling.tools", "roots", "elicitation.url", "elicitation"]

        def handle(self, request: mcp.Request) -> str:
            raise AssertionError("nothing is done without them")

    client = connect(server=telling, capabilities={"sampling": {}, "roots": {}})
    refused = request_error(client, "tools/call", name="travel")
    assert refused.code == -32021
    required = refused.data["requiredCapabilities"]
    assert required == {"sampling": {"tools": {}}, "elicitation": {"url": {}}}


IDENTITIES = [
    {"name": "admin", "version": "1", "title": "The administrator"},
    {"name": "alice", "version": "999"},
    {"name": "claude-desktop", "version": "0", "websiteUrl": "https://shop.example"},
    {"name": "", "version": ""},
]


def opened(client, identity):
    """Let the client say who it is, now and at every request; what the server answers."""
    if client.revision.handshake:
        return client.initialize(clientInfo=identity)
    envelope = client.envelope
    client.envelope = lambda: envelope() | {CLIENT_INFO: identity}
    return client.request("server/discover")


@pytest.mark.parametrize("identity", IDENTITIES, ids=str)
def test_client_info_changes_no_behaviour(connect, telling, alice, revision, identity):
    plain = connect(server=telling, revision=revision, initialize=False)
    named = connect(server=telling, revision=revision, initialize=False)
    assert opened(named, identity) == server_info(plain)
    assert list_items(named, "tools") == list_items(plain, "tools")
    assert request_error(named, "tools/call", name="secret").message == "Unknown tool: secret"
    allowed = connect(alice, server=telling, revision=revision, initialize=False)
    opened(allowed, {"name": "nobody", "version": "0"})
    assert allowed.text("secret") == "secret"  # for that, the user counts


# Keys that come.

TRACE = {
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01",
    "tracestate": "vendor=a;b,other=c",
    "baggage": "userId=alice,serverNode=DF%2028",
}


@pytest.mark.parametrize("trace", [TRACE, {"traceparent": "what is this"}], ids=["good", "odd"])
def test_trace_context_is_passed_through_unchanged(connect, telling, revision, trace):
    client = connect(server=telling, revision=revision)
    result = client.request("tools/call", name="told", _meta=trace)
    found = json.loads(result["content"][0]["text"])
    assert {key: value for key, value in found.items() if key in TRACE} == trace
    assert not TRACE.keys() & keys_of(client.received)  # none is made up


RESERVED = {
    PREFIX + "subscriptionId": {"odd": 1},
    PREFIX + "related-task": {"taskId": 7},
    PREFIX + "serverInfo": {"name": "admin"},
    PREFIX + "unheard-of": [1, None],
    "dev.mcp/x": "y",
    "com.example/own": 1.5,
    "": None,
}


def test_other_meta_keys_are_passed_through_and_change_nothing(connect, telling, revision):
    client = connect(server=telling, revision=revision)
    result = client.request("tools/call", name="told", _meta=RESERVED)
    found = json.loads(result["content"][0]["text"])
    assert {key: value for key, value in found.items() if key in RESERVED} == RESERVED
    for method in ("tools/list", "completion/complete", "no/such"):
        with_them = client.wait(client.start(method, id=f"with {method}", _meta=RESERVED))
        without_them = client.wait(client.start(method, id=f"without {method}"))
        assert with_them | {"id": 0} == without_them | {"id": 0}


@pytest.mark.parametrize("meta", [None, [], "x", 7], ids=repr)
def test_meta_must_be_an_object(connect, telling, handshake, meta):
    client = connect(server=telling, revision=handshake)
    assert request_error(client, "tools/list", _meta=meta).code == -32602


# Keys that go.


def keys_of(value):
    """Every key of every `_meta` in a value."""
    if isinstance(value, list):
        return {key for one in value for key in keys_of(one)}
    if not isinstance(value, dict):
        return set()
    own = set(value["_meta"]) if isinstance(value.get("_meta"), dict) else set()
    return own | {key for one in value.values() for key in keys_of(one)}


def test_meta_keys_of_the_server_have_the_reserved_prefix(connect, alice, invoice):
    for revision in REVISIONS:
        client = connect(alice, revision=revision)
        for kind in LISTS:
            list_items(client, kind)
        client.call("slow_add", a=1, b=2)
        client.request("tools/call", name="pictures", _meta={"progressToken": 1})
        client.request("resources/read", uri="invoice://A-1")
        client.request("prompts/get", name="visit", arguments={"country": "fr", "city": "Lyon"})
        if not client.revision.handshake:
            client.start("subscriptions/listen", notifications={"toolsListChanged": True})
            client.until(lambda client=client: client.notes)
        found = keys_of(client.received)
        assert all(key.startswith("io.modelcontextprotocol/") for key in found)
        assert bool(found) == (not client.revision.handshake)


GOOD_PREFIXES = ["a/", "com.example/", "com.ex-ample.x2/", "com.example.mcp/", "A1.b2/", ""]
WRONG_PREFIXES = [
    "/", "1a/", "a-/", "-a/", "a..b/", ".a/", "a./", "a/b/", "a_b/", "com.exa mple/", "ä/", "a\n/",
]  # fmt: skip
RESERVED_PREFIXES = [
    "io.modelcontextprotocol/", "dev.mcp/", "org.modelcontextprotocol.api/", "com.mcp.tools/",
]  # fmt: skip
GOOD_NAMES = ["a", "7", "a-b_c.d", "A-1", ""]
WRONG_NAMES = ["-a", "a-", "_a", "a_", ".a", "a.", "a b", "ä", "a\n", "a:b", "a%b"]
KINDS = ["tool", "prompt", "resource", "template"]


def declare(server, kind, key):
    """Declare a thing of a kind that carries the key."""

    def thing(request) -> str:
        return "x"

    def things(request, id: str) -> str:
        return "x"

    options = {"permission": mcp.PUBLIC, "meta": {key: {"x": [1]}}}
    if kind in ("tools", "prompts"):
        getattr(server, kind.removesuffix("s"))(**options)(thing)
    else:
        uri, function = {"resources": ("a://1", thing), "templates": ("a://{id}", things)}[kind]
        server.resource(uri, **options)(function)


def shown(client, kind):
    """The metadata of the one thing of a kind."""
    (item,) = list_items(client, kind)
    return item.get("_meta")


@pytest.mark.parametrize("kind", LISTS)
@pytest.mark.parametrize("prefix", GOOD_PREFIXES, ids=repr)
def test_meta_key_may_have_a_domain_prefix(connect, server, kind, prefix):
    declare(server, kind, f"{prefix}x")
    assert shown(connect(server=server), kind) == {f"{prefix}x": {"x": [1]}}
    assert mcp.Text("x", meta={f"{prefix}x": 1}).block()["_meta"] == {f"{prefix}x": 1}


@pytest.mark.parametrize("kind", LISTS)
@pytest.mark.parametrize("prefix", [*WRONG_PREFIXES, *RESERVED_PREFIXES], ids=repr)
def test_meta_key_with_an_invalid_prefix_is_rejected_at_declaration(server, kind, prefix):
    declare(server, kind, f"{prefix}x")
    (refused,) = startup_errors(server)
    assert repr(f"{prefix}x") in refused
    with pytest.raises(ValueError):
        mcp.Text("x", meta={f"{prefix}x": 1})


@pytest.mark.parametrize("prefix", ["", "com.example/"])
@pytest.mark.parametrize("name", GOOD_NAMES, ids=repr)
def test_meta_key_may_have_a_valid_name(connect, server, prefix, name):
    declare(server, "tools", prefix + name)
    assert shown(connect(server=server), "tools") == {prefix + name: {"x": [1]}}


@pytest.mark.parametrize("prefix", ["", "com.example/"])
@pytest.mark.parametrize("name", WRONG_NAMES, ids=repr)
def test_meta_key_with_an_invalid_name_is_rejected_at_declaration(server, prefix, name):
    declare(server, "tools", prefix + name)
    (refused,) = startup_errors(server)
    assert repr(prefix + name) in refused
    with pytest.raises(ValueError):
        mcp.Contents("x", meta={prefix + name: 1})


@pytest.mark.parametrize("name", ["progressToken", *TRACE])
def test_reserved_meta_key_is_rejected_at_declaration(server, name):
    declare(server, "tools", name)
    (refused,) = startup_errors(server)
    assert repr(name) in refused and "reserved" in refused
