"""
A token too narrow for what it asks: 403, with all that is needed, before anything begins.

Where a revision or a transport cannot say so, an error of the request's own says it; and about
whatever the user may not do, or nobody could be given, nothing is said at all.
"""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from django.contrib.auth.models import User
from django.db import connections
from django.test.utils import CaptureQueriesContext

import django_mcp as mcp
from django_mcp.auth.principal import Auth, LookupVerifier, Principal, key_parts
from django_mcp.calls.callers import SessionCaller, covers
from django_mcp.models import Call, Event, Session, Stream
from django_mcp.storage import sessions
from django_mcp.transports.http import security
from tests.announcing import Announcement, announce
from tests.client import RpcError
from tests.shop.models import Company
from tests.sse import SseClient

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
    """Knows tokens that say whose they are, what they may, and to which application they went."""

    def lookup(self, token, server):
        name, scopes, *application = token.split("/")
        user = User.objects.filter(username=name).first()
        given = SimpleNamespace(pk=application[0]) if application else None
        auth = Auth(frozenset(scopes.split()), given, key="" if given else "t")
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
    """What was done."""
    return []


@pytest.fixture
def things(server, runs):
    """Things for alice, who may change invoices, and things that are not for her."""

    def done(name):
        return lambda request: runs.append(name) or name

    server.tool(name="hello")(done("hello"))
    server.tool(name="work")(done("work"))
    server.tool(name="change", permission="shop.change_invoice")(done("change"))
    server.tool(name="forbidden", permission="shop.delete_invoice")(done("forbidden"))
    server.tool(name="nowhere")(done("nowhere"))  # which no scope covers
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


def challenged(talk):
    """What a 403 says, and what its header does."""
    assert talk.wait().status == 403, talk
    header = talk.headers["www-authenticate"]
    assert re.fullmatch(r'Bearer [a-z_]+="[^"\\]*"(, [a-z_]+="[^"\\]*")*', header)
    return dict(re.findall(r'([a-z_]+)="([^"]*)"', header))


def refused(talk):
    """The scopes that it asks for."""
    said = challenged(talk)
    assert said["error"] == "insufficient_scope"
    return said["scope"].split()


SAYS = ["2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]


@pytest.fixture(params=SAYS)
def says(request):
    """Each revision in which a 403 can be told."""
    return request.param


def calling(client, tool, **arguments):
    return client.start("tools/call", name=tool, arguments=arguments)


# What is said.


def test_the_403_says_what_is_needed_and_where_it_is_had(http, says, things, alice, runs):
    client = http("alice/basic/app", server=things, revision=says)
    talk = calling(client, "change")
    assert challenged(talk) == {
        "realm": things.name, "error": "insufficient_scope", "scope": "change",
        "error_description": "The token is too narrow for this.", "resource_metadata": METADATA,
    }  # fmt: skip
    assert talk.headers["content-type"] == "application/json"
    (message,) = talk.messages
    assert message["error"] == {
        "code": -32600, "message": "The token is too narrow for this. It needs: change.",
    }  # fmt: skip
    assert runs == []


def test_it_is_about_the_request(http, says, things, alice):
    client = http("alice/basic/app", server=things, revision=says)
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
def test_whatever_names_a_thing_is_asked_about(
    http, says, things, alice, runs, method, params, needed
):
    client = http("alice/basic/app", server=things, revision=says)
    assert refused(client.start(method, **params)) == needed
    assert runs == [] and not Call.objects.exists() and not Stream.objects.exists()


@pytest.mark.parametrize(("method", "params", "needed"), WHAT)
def test_a_broader_token_is_not_refused(http, says, things, alice, method, params, needed):
    client = http("alice/view change/app", server=things, revision=says)
    Company.objects.get_or_create(pk=1)[0].members.add(alice)
    assert client.start(method, **params).wait().status == 200


def test_all_that_is_needed_is_named_at_once(http, says, things, alice, settings):
    tools = {"tools": mcp.Scope("Tools", covers=["tool:*"])}
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"SCOPES": SCOPES | tools}
    client = http("alice/basic/app", server=things, revision=says)
    assert refused(calling(client, "join", company=1)) == ["tools", "change"]
    client.token = "alice/tools basic/app"
    assert refused(calling(client, "join", company=1)) == ["tools", "change"]
    client.token = "alice/tools change/app"
    assert calling(client, "join", company=1).wait().status == 200


def test_subscribing_is_asked_about(http, things, alice, handshake):
    client = http("alice/basic/app", server=things, revision=handshake)
    talk = client.start("resources/subscribe", uri="note://one")
    if handshake == "2024-11-05":
        assert talk.wait().status == 200 and "needs the scope view" in talk.error["message"]
    else:
        assert refused(talk) == ["view"]


def test_a_subscription_is_seen_with_the_token_that_asked_for_it(http, handshake, things, alice):
    """After a step-up in a session that began with less; and it is as narrow as the last says."""
    client = http("alice/basic/app", server=things, revision=handshake)

    def with_which() -> list[str]:
        (found,) = sessions.find_subscriptions(things.name, ["note://one"])
        return found.scopes

    client.token = "alice/basic view/app"
    client.request("resources/subscribe", uri="note://one")
    assert with_which() == ["basic", "view"]
    client.token = "alice/view/app"
    client.request("resources/subscribe", uri="note://one")
    assert with_which() == ["view"]


def heard_by(client, token, last=None):
    client.token = token
    talk = client.listen(last)
    client.until(lambda: talk.status is not None)
    return talk


@pytest.mark.parametrize("token", ["alice/basic/app", "alice/view/app", "alice/basic view/app"])
@pytest.mark.parametrize("is_resumed", [False, True])
def test_news_are_not_for_a_token_narrower_than_who_asked_for_them(
    http, handshake, things, alice, token, is_resumed
):
    """Attack: take over the stream of a broader one, and learn what changes, and when."""
    client = http("alice/basic/app", server=things, revision=handshake)
    reading = heard_by(client, "alice/basic view/app")
    client.request("resources/subscribe", uri="note://one")
    announce(Announcement("updated", "note://one", things.name))
    client.until(lambda: reading.messages)
    last = reading.sse.found[-1].id if is_resumed else None
    asked = heard_by(client, token, last)
    is_enough = token == "alice/basic view/app"  # noqa: S105
    assert asked.status == (200 if is_enough else 404)
    if not is_enough:
        assert not reading.ended


@pytest.mark.parametrize("kind", [ValueError, mcp.ToolError])
def test_a_permission_that_fails_says_the_same_to_a_narrow_token(http, says, things, alice, kind):
    def fails(request):
        raise kind("It fails.")

    things.tool(name="bad", permission=fails, scope="tool:work")(lambda request: "x")
    said = []
    for token in ("alice/basic/app", "alice//app"):
        client = http(token, server=things, revision=says)
        talk = client.start("tools/call", name="bad", arguments={}, id="same").wait()
        said.append((talk.status, talk.body))
    assert said[0] == said[1] and said[0][0] == 200


def test_what_a_list_tells_of_a_resource_beyond_the_token_is_what_was_declared(
    http, revision, things, alice
):
    """Attack: the size, and when it changed, tell of what the client may not read."""

    @things.register
    class Report(mcp.Resource):
        uri, name = "report://all", "report"

        def get_size(self, request):
            return 4242

        def read(self, request):
            return "x"

    def listed(token):
        client = http(token, server=things, revision=revision)
        (found,) = (one for one in client.request("resources/list")["resources"]
                    if one["uri"] == "report://all")  # fmt: skip
        return found.get("size")

    assert listed("alice/basic/app") is None
    assert listed("alice/view/app") == 4242


def test_a_listen_is_asked_about_once_for_all_it_names(http, things, alice):
    client = http("alice/basic/app", server=things)
    uris = ["note://one", "model://shop/company/1", "note://hidden", "note://nothing"]
    talk = client.start("subscriptions/listen", notifications={"resourceSubscriptions": uris})
    assert refused(talk) == ["view", "change"]


# What is not asked for.


@pytest.mark.parametrize("token", ["alice/", "alice//app", "alice/view change/app"])
def test_a_token_that_is_not_narrowed_is_good_for_all(http, revision, things, alice, token):
    client = http(token, server=things, revision=revision)
    assert client.text("work") == "work" and client.text("change") == "change"


def test_what_is_for_all_needs_no_scope(http, revision, things, alice):
    assert http("alice/basic/app", server=things, revision=revision).text("for_all") == "for_all"


def test_lists_need_no_scope_and_show_what_could_be_had(http, revision, things, alice):
    client = http("alice/basic/app", server=things, revision=revision)
    shown = {tool["name"] for tool in client.request("tools/list")["tools"]}
    assert shown == {"hello", "work", "change", "for_all"}
    client = http("alice/basic", server=things, revision=revision)
    shown = {tool["name"] for tool in client.request("tools/list")["tools"]}
    assert shown == {"hello", "for_all"}


HIDDEN = {
    "tools/call": ({"name": "forbidden", "arguments": {}}, {"name": "unheard", "arguments": {}}),
    "resources/read": ({"uri": "note://hidden"}, {"uri": "note://unheard"}),
    "resources/subscribe": ({"uri": "note://hidden"}, {"uri": "note://unheard"}),
}


def answered(client, method, params):
    """Status, headers and body, with what was asked for left out of it."""
    talk = client.start(method, **params, id="same").wait()
    name = str(params.get("name", params.get("uri")))
    assert talk.status in (200, 404), talk
    body = talk.body.decode().replace(name, "NAME")
    return talk.status, {k: v for k, v in talk.headers.items() if k != "content-length"}, body


@pytest.mark.parametrize("method", HIDDEN)
@pytest.mark.parametrize("token", ["alice/basic/app", "alice/change/app", "alice/basic"])
def test_what_the_user_may_not_do_is_not_there(http, revision, things, alice, method, token):
    if method == "resources/subscribe" and revision == "2026-07-28":
        pytest.skip("It has no such method.")
    client = http(token, server=things, revision=revision)
    hidden, unheard = (answered(client, method, params) for params in HIDDEN[method])
    assert hidden == unheard
    assert "www-authenticate" not in hidden[1] and "scope" not in hidden[2]


def test_what_nothing_offered_covers_is_not_there(http, revision, things, alice):
    client = http("alice/basic/app", server=things, revision=revision)
    one, other = (
        answered(client, "tools/call", {"name": name, "arguments": {}})
        for name in ("nowhere", "unheard")
    )
    assert one == other


def test_to_a_token_of_no_application_it_is_not_there(http, revision, things, alice):
    client = http("alice/basic", server=things, revision=revision)
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
def test_no_query_more_is_asked_than_the_permission_is(http, says, things, alice, name):
    """What is refused by a permission costs the same, whatever the token is good for."""
    narrow = http("alice/basic/app", server=things, revision=says)
    whole = http("alice//app", server=things, revision=says)
    params = {"name": name, "arguments": {}}
    ours, theirs = (asked_of_the_database(one, "tools/call", params) for one in (narrow, whole))
    assert len(ours) <= len(theirs)
    if name == "forbidden":
        assert ours == theirs
    for one in (narrow, whole):
        assert len(asked_of_the_database(one, "tools/call", params | {"name": "unheard"})) == 1


def test_a_token_that_is_good_for_it_costs_no_hop_more(http, says, things, alice, monkeypatch):
    hops, job = [], security.surrounded_job
    monkeypatch.setattr(security, "surrounded_job", lambda *given: hops.append(1) or job(*given))
    for token, tool in (
        ("alice/change/app", "work"), ("alice//app", "work"), ("alice/basic/app", "hello"),
        ("alice/basic/app", "unheard"), ("alice/basic", "work"),
    ):  # fmt: skip
        calling(http(token, server=things, revision=says), tool).wait()
    assert hops == []
    calling(http("alice/basic/app", server=things, revision=says), "work").wait()
    assert hops == [1]


def test_somebody_without_a_token_is_asked_for_one_first(http, says, things):
    talk = calling(http(server=things, revision=says), "work")
    assert talk.wait().status == 401 and 'scope="basic"' in talk.headers["www-authenticate"]


# Where several things may be meant.


@pytest.fixture
def twice(things, runs):
    """An address that fits two templates: the first needs more than the second."""

    @things.resource("any://{first}", permission="shop.change_invoice")
    def narrow_one(request: mcp.Request, first: str) -> str:
        runs.append("first")
        return "first"

    @things.resource("any://{+second}")
    def wide_one(request: mcp.Request, second: str) -> str:
        runs.append("second")
        return "second"

    @things.resource("other://{first}", permission="shop.delete_invoice")
    def forbidden_one(request: mcp.Request, first: str) -> str:
        return "first"

    @things.resource("other://{+second}")
    def other_one(request: mcp.Request, second: str) -> str:
        return "second"

    return things


def test_a_second_template_that_fits_is_used(http, revision, twice, alice, runs):
    client = http("alice/view/app", server=twice, revision=revision)
    (contents,) = client.request("resources/read", uri="any://x")["contents"]
    assert contents["text"] == "second" and runs == ["second"]


def test_if_none_that_fits_may_be_used_the_first_says_what_it_needs(http, says, twice, alice):
    client = http("alice/basic/app", server=twice, revision=says)
    assert refused(client.start("resources/read", uri="any://x")) == ["change"]
    assert refused(client.start("resources/read", uri="other://x")) == ["view"]


# Where it cannot be said by a status.


def test_an_older_revision_is_told_by_an_error(http, things, alice, runs):
    client = http("alice/basic/app", server=things, revision="2024-11-05")
    said = client.failure("work")
    assert "needs the scope change" in said and runs == []
    for method, params in (("prompts/get", {"name": "poem"}),
                           ("resources/read", {"uri": "note://one"})):  # fmt: skip
        with pytest.raises(RpcError) as raised:
            client.request(method, **params)
        assert raised.value.code == -32600 and "needs the scope view" in raised.value.message


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-11-25"])
def test_over_sse_it_is_told_by_an_error(things, alice, runs, revision):
    things.sse = True
    with SseClient("alice/basic/app", server=things, revision=revision,
                   path=f"/{things.path}/sse") as client:  # fmt: skip
        assert "needs the scope change" in client.failure("work") and runs == []
        assert client.text("hello") == "hello"


# A batch.


def batch(client, *calls):
    return [client.message(method, params) for method, params in calls]


def test_a_batch_is_refused_whole_with_all_that_it_needs(http, things, alice, runs):
    client = http("alice/basic/app", server=things, revision="2025-03-26")
    talk = client.post(batch(
        client, ("tools/call", {"name": "hello"}), ("tools/call", {"name": "work"}),
        ("prompts/get", {"name": "poem"}), ("tools/call", {"name": "change"}),
        ("tools/call", {"name": "forbidden"}), ("tools/call", {"name": "unheard"}),
    ))  # fmt: skip
    assert refused(talk) == ["change", "view"]
    assert runs == [] and not Call.objects.exists() and not Event.objects.exists()


def test_a_batch_that_needs_no_more_is_answered(http, things, alice, runs):
    client = http("alice/basic/app", server=things, revision="2025-03-26")
    talk = client.post(batch(client, ("tools/call", {"name": "hello"}),
                             ("tools/call", {"name": "forbidden"})))  # fmt: skip
    assert talk.wait().status == 200 and runs == ["hello"]


def test_what_is_refused_is_not_cancelled_or_noted_with_it(http, things, alice, runs):
    """Nothing of a batch that is refused has happened, the notifications included."""
    client = http("alice/basic/app", server=things, revision="2025-03-26")
    seen = Session.objects.get().log_level
    messages = batch(client, ("logging/setLevel", {"level": "error"}),
                     ("tools/call", {"name": "work"}))  # fmt: skip
    assert refused(client.post(messages)) == ["change"]
    assert Session.objects.get().log_level == seen


# A session, and what was begun in it.


def test_a_session_goes_on_with_a_broader_token(http, handshake, things, alice):
    """The step-up, as the endpoint sees it: the same session, asked again by another token."""
    client = http("alice/basic/app", server=things, revision=handshake)
    assert calling(client, "work").wait().status == (200 if handshake == "2024-11-05" else 403)
    client.token = "alice/basic change/app"
    assert client.text("work") == "work"
    client.token = "alice/basic/app"
    assert calling(client, "work").wait().status == (200 if handshake == "2024-11-05" else 403)


def test_a_broader_token_of_another_application_does_not_go_on(http, handshake, things, alice):
    client = http("alice/basic/app", server=things, revision=handshake)
    client.token = "alice/basic change/other"
    assert calling(client, "hello").wait().status == 404


# What was begun with a token: ``calls`` by its scopes, and who may have to do with it since.

AGAIN = [
    # begun with, shown by, whether it goes on
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


@pytest.mark.parametrize(("begun", "shown", "goes_on"), AGAIN)
def test_a_call_is_for_tokens_as_broad_as_the_one_it_began_with(
    settings, alice, begun, shown, goes_on
):
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"SCOPES": SCOPES | MORE}
    scopes = SessionCaller.of(Principal(alice, auth_of(begun))).scopes
    assert covers(Principal(alice, auth_of(shown)), scopes) is goes_on


@pytest.mark.usefixtures("short_grace")
@pytest.mark.parametrize(
    ("begun", "shown", "goes_on"),
    [("basic", "basic change", True), ("basic change", "basic", False)],
)
def test_a_stream_is_resumed_by_a_token_as_broad_and_no_narrower(
    http, things, alice, begun, shown, goes_on
):
    things.tool(name="kept", durable=True, permission=mcp.PUBLIC)(lambda request: "KEPT")
    client = http(f"alice/{begun}/app", server=things, revision="2025-11-25")
    first = calling(client, "kept").wait().sse.found[0].id
    client.token = f"alice/{shown}/app"
    talk = client.listen(first).wait()
    assert (talk.status, "KEPT" in talk.body.decode()) == ((200, True) if goes_on else (400, False))


@pytest.mark.usefixtures("short_grace")
def test_a_call_keeps_what_it_was_begun_with(http, things, alice, runs):
    """A step-up in the middle of it adds nothing to it, and a narrower token takes nothing away."""

    @things.tool(scope="tool:hello")
    def ask(request: mcp.Request) -> str:
        runs.append(sorted(request.auth.scopes))
        request.elicit("Sure?", bool)
        return " ".join(sorted(request.auth.scopes))

    client = http("alice/basic/app", server=things, revision="2025-11-25")
    talk = calling(client, "ask")
    (asked,) = client.until(lambda: client.asked)
    client.token = "alice/basic change/app"
    reply = {"action": "accept", "content": {"answer": True}}
    client.post({"jsonrpc": "2.0", "id": asked["id"], "result": reply}).wait()
    assert "basic" in str(talk.wait().messages[-1]) and runs == [["basic"], ["basic"]]


def test_news_of_a_session_are_by_the_token_that_its_stream_was_opened_with(http, things, alice):
    client = http("alice/basic view/app", server=things, revision="2025-11-25")
    client.request("resources/subscribe", uri="note://one")
    stream = client.listen()
    client.until(lambda: stream.status)
    client.token = "alice/basic/app"
    announce(Announcement("updated", "note://one", things.name))
    client.until(lambda: "resources/updated" in str(stream.messages))
    stream.leave()
