"""Insufficient scope over HTTP: a 403 names the missing scopes before anything runs.

Older revisions and HTTP+SSE get a JSON-RPC error instead. A declaration that the user may not use,
or that no offered scope covers, is reported as unknown.
"""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from django.contrib.auth.models import User
from django.db import connections
from django.test.utils import CaptureQueriesContext

import django_mcp as mcp
from django_mcp import signals
from django_mcp.auth.principal import Auth, LookupVerifier, Principal, key_parts
from django_mcp.calls import audit
from django_mcp.calls.callers import SessionCaller, covers
from django_mcp.calls.throttling import ProcessCounts
from django_mcp.declarations.throttles import Rate
from django_mcp.models import AuditEntry, Call, Event, Session, Stream
from django_mcp.storage import sessions
from django_mcp.transports.http import security
from tests.announcing import Announcement, announce
from tests.client import RpcError
from tests.shop.models import Company
from tests.sse import SseClient
from tests.storage.rows import given

pytestmark = pytest.mark.django_db
URL = "https://shop.example"
METADATA = f"{URL}/.well-known/oauth-protected-resource/mcp"
SCOPES = {
    "basic": mcp.Scope("Next to nothing", covers=["tool:hello"]),
    "view": mcp.Scope("Look", covers=["*.view_*", "resource:*", "prompt:*"]),
    "change": mcp.Scope("Change", covers=["*.change_*", "tool:work"]),
    "delete": mcp.Scope("Delete", covers=["*.delete_*"]),
}


class Scoped(LookupVerifier):
    """Verifies tokens of the form ``user/scopes/application``."""

    def lookup(self, token, server):
        name, scopes, *application = token.split("/")
        user = User.objects.filter(username=name).first()
        client = SimpleNamespace(pk=application[0]) if application else None
        auth = Auth(frozenset(scopes.split()), client, key="" if client else "t")
        return Principal(user, auth) if user else None

    def challenge(self, server):
        return {"resource_metadata": METADATA, "scope": "basic", "error": "none"}

    def still_valid(self, keys):
        return dict.fromkeys(keys, True)

    def applications(self, keys):
        return {key: SimpleNamespace(pk=key_parts(key)[1]) for key in keys}


@pytest.fixture(autouse=True)
def scoped(settings):
    verifiers = {"VERIFIERS": [f"{__name__}.Scoped"], "SCOPES": SCOPES}
    settings.DJANGO_MCP = settings.DJANGO_MCP | verifiers


@pytest.fixture
def runs():
    """The names of the functions that ran."""
    return []


@pytest.fixture
def scoped_server(server, runs):
    """A server with declarations for alice, who may change invoices, and others."""

    def done(name):
        return lambda request: runs.append(name) or name

    server.tool(name="hello")(done("hello"))
    server.tool(name="work")(done("work"))
    server.tool(name="change", permission="shop.change_invoice")(done("change"))
    server.tool(name="forbidden", permission="shop.delete_invoice")(done("forbidden"))
    server.tool(name="nowhere")(done("nowhere"))  # no scope covers it
    server.tool(name="for_all", permission=mcp.PUBLIC)(done("for_all"))
    server.prompt(name="poem")(done("poem"))
    server.resource("note://one", name="note")(done("note"))
    server.resource("note://hidden", name="hidden", permission="shop.delete_invoice")(done("x"))

    @server.resource("page://{name}")
    def page(request: mcp.Request, name: str) -> str:
        runs.append("page")
        return name

    @server.tool
    def join(request: mcp.Request, company: Company) -> str:
        return company.name

    @server.register(Company)
    class Companies(mcp.ModelResource):
        fields = ["name"]
        permission = "shop.change_invoice"

    return server


def challenged(exchange):
    """Assert that the status is 403, and return the parameters of the challenge."""
    assert exchange.wait().status == 403, exchange
    header = exchange.headers["www-authenticate"]
    assert re.fullmatch(r'Bearer [a-z_]+="[^"\\]*"(, [a-z_]+="[^"\\]*")*', header)
    return dict(re.findall(r'([a-z_]+)="([^"]*)"', header))


def refused(exchange):
    """Return the scopes that the challenge names."""
    said = challenged(exchange)
    assert said["error"] == "insufficient_scope"
    return said["scope"].split()


SAYS = ["2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]


@pytest.fixture(params=SAYS)
def revision_with_403(request):
    """Each revision that can report insufficient scope by a 403."""
    return request.param


def calling(client, tool, **arguments):
    return client.start("tools/call", name=tool, arguments=arguments)


# The challenge.


def test_challenge_names_the_missing_scope_and_the_metadata(
    http, revision_with_403, scoped_server, alice, runs
):
    client = http("alice/basic/app", server=scoped_server, revision=revision_with_403)
    exchange = calling(client, "change")
    assert challenged(exchange) == {
        "realm": scoped_server.name, "error": "insufficient_scope", "scope": "change",
        "error_description": "The token lacks scopes for this.", "resource_metadata": METADATA,
    }  # fmt: skip
    assert exchange.headers["content-type"] == "application/json"
    (message,) = exchange.messages
    assert message["error"] == {
        "code": -32600, "message": "The token lacks scopes for this. It needs: change.",
    }  # fmt: skip
    assert runs == []


def test_error_has_the_id_of_the_request(http, revision_with_403, scoped_server, alice):
    client = http("alice/basic/app", server=scoped_server, revision=revision_with_403)
    message = client.message("tools/call", {"name": "work", "arguments": {}}, id="mine")
    (answer,) = client.post(message).wait().messages
    assert answer["id"] == "mine"


WHAT = [
    ("tools/call", {"name": "work", "arguments": {}}, ["change"]),
    ("tools/call", {"name": "change", "arguments": {}}, ["change"]),
    ("prompts/get", {"name": "poem"}, ["view"]),
    ("resources/read", {"uri": "note://one"}, ["view"]),
    ("resources/read", {"uri": "page://x"}, ["view"]),
    ("resources/read", {"uri": "model://shop/company/1"}, ["change"]),
    ("completion/complete", {
        "ref": {"type": "ref/resource", "uri": "model://shop/company/{pk}"},
        "argument": {"name": "pk", "value": ""},
    }, ["change"]),
    ("completion/complete", {
        "ref": {"type": "ref/prompt", "name": "poem"}, "argument": {"name": "x", "value": ""},
    }, ["view"]),
]  # fmt: skip


@pytest.mark.parametrize(("method", "params", "needed"), WHAT)
def test_every_method_with_a_name_is_challenged(
    http, revision_with_403, scoped_server, alice, runs, method, params, needed
):
    client = http("alice/basic/app", server=scoped_server, revision=revision_with_403)
    assert refused(client.start(method, **params)) == needed
    assert runs == [] and not Call.objects.exists() and not Stream.objects.exists()


@pytest.mark.parametrize(("method", "params", "needed"), WHAT)
def test_token_with_the_needed_scopes_is_accepted(
    http, revision_with_403, scoped_server, alice, method, params, needed
):
    client = http("alice/view change/app", server=scoped_server, revision=revision_with_403)
    Company.objects.get_or_create(pk=1)[0].members.add(alice)
    assert client.start(method, **params).wait().status == 200


def test_challenge_names_all_missing_scopes(
    http, revision_with_403, scoped_server, alice, settings
):
    tools = {"tools": mcp.Scope("Tools", covers=["tool:*"])}
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"SCOPES": SCOPES | tools}
    client = http("alice/basic/app", server=scoped_server, revision=revision_with_403)
    assert refused(calling(client, "join", company=1)) == ["tools", "change"]
    client.token = "alice/tools basic/app"
    assert refused(calling(client, "join", company=1)) == ["tools", "change"]
    client.token = "alice/tools change/app"
    assert calling(client, "join", company=1).wait().status == 200


def test_subscription_is_challenged(http, scoped_server, alice, handshake):
    client = http("alice/basic/app", server=scoped_server, revision=handshake)
    exchange = client.start("resources/subscribe", uri="note://one")
    if handshake == "2024-11-05":
        assert exchange.wait().status == 200 and "needs the scope view" in exchange.error["message"]
    else:
        assert refused(exchange) == ["view"]


def test_subscription_has_the_scopes_of_its_last_token(http, handshake, scoped_server, alice):
    """The last token that subscribed counts, also after a step-up in the session."""
    client = http("alice/basic/app", server=scoped_server, revision=handshake)

    def with_which() -> list[str]:
        (found,) = sessions.find_subscriptions(scoped_server.name, ["note://one"])
        return found.scopes

    client.token = "alice/basic view/app"
    client.request("resources/subscribe", uri="note://one")
    assert with_which() == ["basic", "view"]
    client.token = "alice/view/app"
    client.request("resources/subscribe", uri="note://one")
    assert with_which() == ["view"]


def heard_by(client, token, last=None):
    client.token = token
    exchange = client.listen(last)
    client.until(lambda: exchange.status is not None)
    return exchange


@pytest.mark.parametrize("token", ["alice/basic/app", "alice/view/app", "alice/basic view/app"])
@pytest.mark.parametrize("is_resumed", [False, True])
def test_narrower_token_cannot_open_or_resume_the_notification_stream(
    http, handshake, scoped_server, alice, token, is_resumed
):
    """Attack: take over the stream of a broader token, and learn what changes and when."""
    client = http("alice/basic/app", server=scoped_server, revision=handshake)
    reading = heard_by(client, "alice/basic view/app")
    client.request("resources/subscribe", uri="note://one")
    announce(Announcement("updated", "note://one", scoped_server.name))
    client.until(lambda: reading.messages)
    last = reading.sse.found[-1].id if is_resumed else None
    asked = heard_by(client, token, last)
    is_enough = token == "alice/basic view/app"  # noqa: S105
    assert asked.status == (200 if is_enough else 404)
    if not is_enough:
        assert not reading.ended


@pytest.mark.parametrize("kind", [ValueError, mcp.ToolError])
def test_failing_permission_gives_the_same_error_to_a_narrow_token(
    http, revision_with_403, scoped_server, alice, kind
):
    def fails(request):
        raise kind("It fails.")

    scoped_server.tool(name="bad", permission=fails, scope="tool:work")(lambda request: "x")
    said = []
    for token in ("alice/basic/app", "alice//app"):
        client = http(token, server=scoped_server, revision=revision_with_403)
        with given(JSON_GRACE=60):  # a stream would have event ids of its own
            exchange = client.start("tools/call", name="bad", arguments={}, id="same").wait()
        said.append((exchange.status, exchange.body))
    assert said[0] == said[1] and said[0][0] == 200


def test_list_hides_computed_values_of_resources_beyond_the_scopes(
    http, revision, scoped_server, alice
):
    """Attack: learn the size and the time of change of a resource that cannot be read."""

    @scoped_server.register
    class Report(mcp.Resource):
        uri, name = "report://all", "report"

        def get_size(self, request):
            return 4242

        def read(self, request):
            return "x"

    def listed(token):
        client = http(token, server=scoped_server, revision=revision)
        (found,) = (one for one in client.request("resources/list")["resources"]
                    if one["uri"] == "report://all")  # fmt: skip
        return found.get("size")

    assert listed("alice/basic/app") is None
    assert listed("alice/view/app") == 4242


def test_listen_is_challenged_once_for_all_its_uris(http, scoped_server, alice):
    client = http("alice/basic/app", server=scoped_server)
    uris = ["note://one", "model://shop/company/1", "note://hidden", "note://nothing"]
    exchange = client.start("subscriptions/listen", notifications={"resourceSubscriptions": uris})
    assert refused(exchange) == ["view", "change"]


@pytest.mark.parametrize(("method", "params", "name", "needed"), [
    ("tools/call", {"name": "change", "arguments": {}}, "change", "change"),
    ("prompts/get", {"name": "poem"}, "poem", "view"),
    ("resources/read", {"uri": "page://x"}, "page://{name}", "view"),
])  # fmt: skip
def test_challenged_call_is_audited_logged_and_signalled(
    http, revision_with_403, scoped_server, alice, caplog, received, method, params, name, needed
):
    scoped_server.audit = True
    caplog.set_level("INFO", logger="django_mcp.calls")
    client = http("alice/basic/app", server=scoped_server, revision=revision_with_403)
    assert refused(client.start(method, **params)) == [needed]
    (entry,) = AuditEntry.objects.all()
    assert (entry.method, entry.name, entry.outcome) == (method, name, "denied")
    assert (entry.username, entry.error) == ("alice", "InsufficientScope")
    assert (entry.session is None) == (revision_with_403 == "2026-07-28")
    assert f"method={method} name={name!r} outcome=denied" in caplog.text
    assert received == [("started", name, None), ("finished", name, "denied")]


@pytest.fixture
def received():
    """The signals about calls: the name of the call and its outcome."""
    found = []

    def note_start(record, **kwargs):
        found.append(("started", record.name, record.outcome))

    def note_end(record, **kwargs):
        found.append(("finished", record.name, record.outcome))

    signals.call_started.connect(note_start)
    signals.call_finished.connect(note_end)
    yield found
    signals.call_started.disconnect(note_start)
    signals.call_finished.disconnect(note_end)


def test_challenged_calls_have_a_limit_of_audit_entries(http, scoped_server, alice, monkeypatch):
    monkeypatch.setattr(audit, "REJECTED_PER_CALLER", Rate(2, 60))
    monkeypatch.setattr(audit, "_rejected", ProcessCounts())
    scoped_server.audit = True
    client = http("alice/basic/app", server=scoped_server)
    for _ in range(4):
        assert refused(calling(client, "change")) == ["change"]
    assert AuditEntry.objects.count() == 2


# Requests without a challenge.


@pytest.mark.parametrize("token", ["alice/", "alice//app", "alice/view change/app"])
def test_token_without_scopes_may_use_all_declarations(http, revision, scoped_server, alice, token):
    client = http(token, server=scoped_server, revision=revision)
    assert client.text("work") == "work" and client.text("change") == "change"


def test_public_tool_needs_no_scope(http, revision, scoped_server, alice):
    assert (
        http("alice/basic/app", server=scoped_server, revision=revision).text("for_all")
        == "for_all"
    )


def test_lists_contain_declarations_that_more_scopes_would_allow(
    http, revision, scoped_server, alice
):
    client = http("alice/basic/app", server=scoped_server, revision=revision)
    shown = {tool["name"] for tool in client.request("tools/list")["tools"]}
    assert shown == {"hello", "work", "change", "for_all"}
    client = http("alice/basic", server=scoped_server, revision=revision)
    shown = {tool["name"] for tool in client.request("tools/list")["tools"]}
    assert shown == {"hello", "for_all"}


HIDDEN = {
    "tools/call": ({"name": "forbidden", "arguments": {}}, {"name": "unheard", "arguments": {}}),
    "resources/read": ({"uri": "note://hidden"}, {"uri": "note://unheard"}),
    "resources/subscribe": ({"uri": "note://hidden"}, {"uri": "note://unheard"}),
}


def answered(client, method, params):
    """Return status, headers and body, with the requested name replaced."""
    with given(JSON_GRACE=60):  # a stream would have event ids of its own
        exchange = client.start(method, **params, id="same").wait()
    name = str(params.get("name", params.get("uri")))
    assert exchange.status in (200, 404), exchange
    body = exchange.body.decode().replace(name, "NAME")
    return (
        exchange.status,
        {k: v for k, v in exchange.headers.items() if k != "content-length"},
        body,
    )


@pytest.mark.parametrize("method", HIDDEN)
@pytest.mark.parametrize("token", ["alice/basic/app", "alice/change/app", "alice/basic"])
def test_forbidden_declaration_is_reported_as_unknown(
    http, revision, scoped_server, alice, method, token
):
    if method == "resources/subscribe" and revision == "2026-07-28":
        pytest.skip("It has no such method.")
    client = http(token, server=scoped_server, revision=revision)
    hidden, unheard = (answered(client, method, params) for params in HIDDEN[method])
    assert hidden == unheard
    assert "www-authenticate" not in hidden[1] and "scope" not in hidden[2]


def test_declaration_without_a_covering_scope_is_reported_as_unknown(
    http, revision, scoped_server, alice
):
    client = http("alice/basic/app", server=scoped_server, revision=revision)
    one, other = (
        answered(client, "tools/call", {"name": name, "arguments": {}})
        for name in ("nowhere", "unheard")
    )
    assert one == other


def test_token_without_an_application_is_not_challenged(http, revision, scoped_server, alice):
    client = http("alice/basic", server=scoped_server, revision=revision)
    one, other = (
        answered(client, "tools/call", {"name": name, "arguments": {}})
        for name in ("work", "unheard")
    )
    assert one == other


def asked_of_the_database(client, method, params):
    with CaptureQueriesContext(connections["default"]) as queries:
        client.start(method, **params).wait()
    return [query["sql"] for query in queries if "django_mcp_" not in query["sql"]]


@pytest.mark.parametrize("name", ["forbidden", "nowhere", "work"])
def test_scope_check_executes_no_further_queries(
    http, revision_with_403, scoped_server, alice, name
):
    """A rejection by permission takes the same queries for narrow and broad tokens."""
    narrow = http("alice/basic/app", server=scoped_server, revision=revision_with_403)
    whole = http("alice//app", server=scoped_server, revision=revision_with_403)
    params = {"name": name, "arguments": {}}
    ours, theirs = (asked_of_the_database(one, "tools/call", params) for one in (narrow, whole))
    assert len(ours) <= len(theirs)
    if name == "forbidden":
        assert ours == theirs
    for one in (narrow, whole):
        assert len(asked_of_the_database(one, "tools/call", params | {"name": "unheard"})) == 1


def test_sufficient_token_takes_no_further_thread_job(
    http, revision_with_403, scoped_server, alice, monkeypatch
):
    hops, job = [], security.surrounded_job
    monkeypatch.setattr(security, "surrounded_job", lambda *args: hops.append(1) or job(*args))
    for token, tool in (
        ("alice/change/app", "work"), ("alice//app", "work"), ("alice/basic/app", "hello"),
        ("alice/basic/app", "unheard"), ("alice/basic", "work"),
    ):  # fmt: skip
        calling(http(token, server=scoped_server, revision=revision_with_403), tool).wait()
    assert hops == []
    calling(
        http("alice/basic/app", server=scoped_server, revision=revision_with_403), "work"
    ).wait()
    assert hops == [1]


def test_request_without_a_token_is_401_before_403(http, revision_with_403, scoped_server):
    exchange = calling(http(server=scoped_server, revision=revision_with_403), "work")
    assert exchange.wait().status == 401 and 'scope="basic"' in exchange.headers["www-authenticate"]


# Several matching templates.


@pytest.fixture
def overlapping_templates(scoped_server, runs):
    """A URI that matches two templates, of which the first needs more scopes."""

    @scoped_server.resource("any://{first}", permission="shop.change_invoice")
    def narrow_one(request: mcp.Request, first: str) -> str:
        runs.append("first")
        return "first"

    @scoped_server.resource("any://{+second}")
    def wide_one(request: mcp.Request, second: str) -> str:
        runs.append("second")
        return "second"

    @scoped_server.resource("other://{first}", permission="shop.delete_invoice")
    def forbidden_one(request: mcp.Request, first: str) -> str:
        return "first"

    @scoped_server.resource("other://{+second}")
    def other_one(request: mcp.Request, second: str) -> str:
        return "second"

    return scoped_server


def test_second_matching_template_is_used_if_allowed(
    http, revision, overlapping_templates, alice, runs
):
    client = http("alice/view/app", server=overlapping_templates, revision=revision)
    (contents,) = client.request("resources/read", uri="any://x")["contents"]
    assert contents["text"] == "second" and runs == ["second"]


def test_challenge_names_the_scope_of_the_first_matching_template(
    http, revision_with_403, overlapping_templates, alice
):
    client = http("alice/basic/app", server=overlapping_templates, revision=revision_with_403)
    assert refused(client.start("resources/read", uri="any://x")) == ["change"]
    assert refused(client.start("resources/read", uri="other://x")) == ["view"]


# Without a status code.


def test_older_revision_gets_an_error_naming_the_scope(http, scoped_server, alice, runs):
    client = http("alice/basic/app", server=scoped_server, revision="2024-11-05")
    said = client.failure("work")
    assert "needs the scope change" in said and runs == []
    for method, params in (("prompts/get", {"name": "poem"}),
                           ("resources/read", {"uri": "note://one"})):  # fmt: skip
        with pytest.raises(RpcError) as raised:
            client.request(method, **params)
        assert raised.value.code == -32600 and "needs the scope view" in raised.value.message


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-11-25"])
def test_legacy_sse_client_gets_an_error_naming_the_scope(scoped_server, alice, runs, revision):
    scoped_server.sse = True
    with SseClient("alice/basic/app", server=scoped_server, revision=revision,
                   path=f"/{scoped_server.path}/sse") as client:  # fmt: skip
        assert "needs the scope change" in client.failure("work") and runs == []
        assert client.text("hello") == "hello"


# Batches.


def batch(client, *calls):
    return [client.message(method, params) for method, params in calls]


def test_batch_is_rejected_with_all_missing_scopes(http, scoped_server, alice, runs):
    """Only the calls that lack a scope were denied. The others were not made."""
    scoped_server.audit = True
    client = http("alice/basic/app", server=scoped_server, revision="2025-03-26")
    exchange = client.post(batch(
        client, ("tools/call", {"name": "hello"}), ("tools/call", {"name": "work"}),
        ("prompts/get", {"name": "poem"}), ("tools/call", {"name": "change"}),
        ("tools/call", {"name": "forbidden"}), ("tools/call", {"name": "unheard"}),
    ))  # fmt: skip
    assert refused(exchange) == ["change", "view"]
    denied = AuditEntry.objects.filter(outcome="denied").values_list("name", flat=True)
    assert sorted(denied) == ["change", "poem", "work"] and AuditEntry.objects.count() == 3
    assert runs == [] and not Call.objects.exists() and not Event.objects.exists()


def test_batch_with_sufficient_scopes_is_answered(http, scoped_server, alice, runs):
    client = http("alice/basic/app", server=scoped_server, revision="2025-03-26")
    exchange = client.post(batch(client, ("tools/call", {"name": "hello"}),
                             ("tools/call", {"name": "forbidden"})))  # fmt: skip
    assert exchange.wait().status == 200 and runs == ["hello"]


def test_rejected_batch_changes_nothing(http, scoped_server, alice, runs):
    """A rejected batch has no effect, including its notifications."""
    client = http("alice/basic/app", server=scoped_server, revision="2025-03-26")
    seen = Session.objects.get().log_level
    messages = batch(client, ("logging/setLevel", {"level": "error"}),
                     ("tools/call", {"name": "work"}))  # fmt: skip
    assert refused(client.post(messages)) == ["change"]
    assert Session.objects.get().log_level == seen


# Sessions.


def test_session_can_be_used_with_a_broader_token(http, handshake, scoped_server, alice):
    """A step-up: the same session is used with a broader token."""
    client = http("alice/basic/app", server=scoped_server, revision=handshake)
    assert calling(client, "work").wait().status == (200 if handshake == "2024-11-05" else 403)
    client.token = "alice/basic change/app"
    assert client.text("work") == "work"
    client.token = "alice/basic/app"
    assert calling(client, "work").wait().status == (200 if handshake == "2024-11-05" else 403)


def test_session_cannot_be_used_by_another_application(http, handshake, scoped_server, alice):
    client = http("alice/basic/app", server=scoped_server, revision=handshake)
    client.token = "alice/basic change/other"
    assert calling(client, "hello").wait().status == 404


# Access to stored calls by tokens with other scopes.

AGAIN = [
    # scopes at the start, scopes of the later request, whether access is granted
    ("basic", "basic", True), ("basic", "basic change", True), ("basic", "all", True),
    ("basic change", "basic", False), ("all", "basic change", False), ("all", "all", True),
    ("all", "every", True), ("basic", "tools", True), ("all", "tools", False),
    ("tools:all", "tools", False), ("", "all", False), ("all", "", False), ("", "", True),
    ("view", "basic", False), ("profile", "all", True), ("all profile", "all", True),
]  # fmt: skip
MORE = {
    "all": mcp.Scope("All", covers=["*"]),
    "every": mcp.Scope("All as well", covers=["*"]),
    "tools": mcp.Scope("Tools", covers=["tool:*", "tools:*", "basic"]),
    "tools:all": mcp.Scope("More than tools", covers=["*"]),
}


def auth_of(scopes):
    return Auth(frozenset(scopes.split()), SimpleNamespace(pk="app"))


@pytest.mark.parametrize(("begun", "shown", "has_run_before"), AGAIN)
def test_call_is_accessible_to_tokens_with_at_least_its_scopes(
    settings, alice, begun, shown, has_run_before
):
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"SCOPES": SCOPES | MORE}
    scopes = SessionCaller.from_principal(Principal(alice, auth_of(begun))).scopes
    assert covers(Principal(alice, auth_of(shown)), scopes) is has_run_before


@pytest.mark.usefixtures("short_grace")
@pytest.mark.parametrize(
    ("begun", "shown", "has_run_before"),
    [("basic", "basic change", True), ("basic change", "basic", False)],
)
def test_stream_is_resumed_only_by_a_token_with_its_scopes(
    http, scoped_server, alice, begun, shown, has_run_before
):
    scoped_server.tool(name="kept", durable=True, permission=mcp.PUBLIC)(lambda request: "KEPT")
    client = http(f"alice/{begun}/app", server=scoped_server, revision="2025-11-25")
    first = calling(client, "kept").wait().sse.found[0].id
    client.token = f"alice/{shown}/app"
    exchange = client.listen(first).wait()
    assert (exchange.status, "KEPT" in exchange.body.decode()) == (
        (200, True) if has_run_before else (400, False)
    )


@pytest.mark.usefixtures("short_grace")
def test_call_keeps_the_scopes_of_its_first_token(http, scoped_server, alice, runs):
    """Neither a broader nor a narrower token that answers changes the scopes of the call."""

    @scoped_server.tool(scope="tool:hello")
    def ask(request: mcp.Request) -> str:
        runs.append(sorted(request.auth.scopes))
        request.elicit("Sure?", bool)
        return " ".join(sorted(request.auth.scopes))

    client = http("alice/basic/app", server=scoped_server, revision="2025-11-25")
    exchange = calling(client, "ask")
    (asked,) = client.until(lambda: client.asked)
    client.token = "alice/basic change/app"
    reply = {"action": "accept", "content": {"answer": True}}
    client.post({"jsonrpc": "2.0", "id": asked["id"], "result": reply}).wait()
    assert "basic" in str(exchange.wait().messages[-1]) and runs == [["basic"], ["basic"]]


def test_notifications_use_the_scopes_of_the_token_that_opened_the_stream(
    http, scoped_server, alice
):
    client = http("alice/basic view/app", server=scoped_server, revision="2025-11-25")
    client.request("resources/subscribe", uri="note://one")
    stream = client.listen()
    client.until(lambda: stream.status)
    client.token = "alice/basic/app"
    announce(Announcement("updated", "note://one", scoped_server.name))
    client.until(lambda: "resources/updated" in str(stream.messages))
    stream.leave()
