"""Authentication over HTTP: valid and invalid tokens, owners of sessions, verifiers, challenges."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from datetime import timedelta
from types import SimpleNamespace
from typing import Literal

import pytest
from django.contrib.auth.models import User
from django.db import connections
from django.test import Client as Browser
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

import django_mcp as mcp
from django_mcp.calls import audit
from django_mcp.calls.throttling import ProcessCounts
from django_mcp.conf import settings as ours
from django_mcp.declarations.server import Server
from django_mcp.declarations.throttles import Rate
from django_mcp.models import AuditEntry, Session, Token
from django_mcp.runtime import threads
from django_mcp.runtime.thread_pools import ThreadPool
from django_mcp.transports.http.authentication import MAX_TOKEN_LENGTH, bearer, challenge
from tests.client import RpcError

from . import verifiers

pytestmark = pytest.mark.django_db
HERE = "tests.transports.http.verifiers."
INVALID = 'error="invalid_token"'


def challenged(exchange):
    """Assert that the response is a plain 401, and return its challenge."""
    assert exchange.wait().refused == (401, -32600), exchange
    given = exchange.headers["www-authenticate"]
    assert re.fullmatch(r'Bearer realm="[^"\\]*"(, [a-z_]+="[^"\\]*")*', given)
    return given


# Valid tokens.


def test_token_authenticates_its_user(http, revision, work, server, secret):
    client = http(secret, server=server, revision=revision)
    assert client.text("whoami") == "alice"


@pytest.mark.parametrize("scheme", ["Bearer ", "bearer ", "BEARER ", "Bearer    "])
def test_scheme_of_the_authorization_header_ignores_case(http, private, secret, scheme):
    client = http(server=private, more={"authorization": scheme + secret + " "})
    assert client.text("whoami") == "alice"


def test_token_limited_to_this_server_is_accepted(http, private, alice):
    _, secret = Token.make(alice, "tests", server=private.name)
    assert http(secret, server=private).text("whoami") == "alice"


def test_user_sees_tools_that_are_not_public(http, work, server, secret):
    anybody, alice = http(server=server), http(secret, server=server)
    names = [{tool["name"] for tool in c.request("tools/list")["tools"]} for c in (anybody, alice)]
    assert names[1] - names[0] == {"whoami"}


def test_authentication_takes_one_query_and_few_thread_jobs(
    http, revision, work, server, secret, jobs
):
    client = http(secret, server=server, revision=revision)
    anybody = http(server=server, revision=revision)
    for caller, least in ((client, 1), (anybody, 0)):
        jobs.clear()
        with CaptureQueriesContext(connections["default"]) as users:
            caller.request("prompts/list")
        assert len([q for q in users if "django_mcp_token" in q["sql"]]) == least
        assert len(jobs) <= least + caller.revision.handshake + 1


@pytest.fixture
def jobs(monkeypatch):
    """Record every job that is submitted to a thread pool."""
    hops = []
    submit = ThreadPool.submit

    def counted(self, *given, **named):
        hops.append(self.name)
        return submit(self, *given, **named)

    monkeypatch.setattr(ThreadPool, "submit", counted)
    return hops


# Invalid tokens.


def revoked(user):
    token, secret = Token.make(user, "revoked")
    Token.objects.filter(pk=token.pk).update(revoked=timezone.now())
    return secret


def expired(user):
    return Token.make(user, "expired", expires=timezone.now() - timedelta(seconds=1))[1]


def of_another_server(user):
    return Token.make(user, "another", server="default")[1]


def of_nobody(user):
    bob = User.objects.create_user("carol", is_active=False)
    return Token.make(bob, "inactive")[1]


def deleted(user):
    token, secret = Token.make(user, "deleted")
    token.delete()
    return secret


MAKERS = [revoked, expired, of_another_server, of_nobody, deleted]
GARBAGE = [
    "", "x", "mcp_", "mcp_" + "A" * 43, "mcp_" + "A" * 44, "null", "\xff\xfe",
    "x" * MAX_TOKEN_LENGTH,
    "x" * (MAX_TOKEN_LENGTH + 1), "x" * 60_000, "' OR 1=1 --", "%00", "Bearer", "{}",
    "eyJhbGciOiJub25lIn0..",
]  # fmt: skip


@pytest.mark.parametrize("make", MAKERS)
def test_invalid_token_is_challenged(http, revision, work, server, alice, make):
    client = http(make(alice), server=server, revision=revision, initialize=False)
    assert INVALID in challenged(client.start("tools/call", name="whoami", arguments={}))
    assert INVALID in challenged(client.start("tools/list"))


def test_unknown_token_is_logged_by_the_start_of_its_digest(http, work, server, caplog):
    """An administrator can recognize the token, but the log does not reveal it."""
    caplog.set_level(logging.INFO, logger="django_mcp")
    token = "mcp_" + "A" * 43
    client = http(server=server, more={"authorization": f"Bearer {token}"})
    challenged(client.start("tools/list"))
    digest = hashlib.sha256(token.encode()).hexdigest()
    assert f"Unknown access token: server={server.name} sha256={digest[:12]}" in caplog.text
    assert token not in caplog.text and digest not in caplog.text


@pytest.mark.parametrize("token", GARBAGE, ids=lambda token: f"{len(token)}-{token[:5]!r}")
def test_malformed_token_is_challenged(http, work, server, token):
    client = http(server=server, more={"authorization": f"Bearer {token}"})
    with CaptureQueriesContext(connections["default"]) as queries:
        assert INVALID in challenged(client.start("tools/list"))
    assert len(queries) <= token.startswith("mcp_A")


def test_changed_token_is_rejected(http, private, secret):
    for changed in (
        secret[:-1],
        secret + "A",
        secret.swapcase(),
        secret[4:],
        f"{secret}, {secret}",
    ):
        client = http(changed, server=private)
        assert INVALID in challenged(client.start("tools/list"))


def test_invalid_token_is_challenged_in_every_kind_of_request(http, revision, work, server):
    """The token is checked before anything else, even for public declarations."""
    client = http("wrong", server=server, revision=revision, initialize=False)
    init = {"protocolVersion": revision, "capabilities": {}, "clientInfo": {}}
    for message in (
        client.message("initialize", init), client.message("server/discover", {}),
        client.message("unknown/method", {}), b"no json", b"", b"[]",
        {"jsonrpc": "2.0", "method": "notifications/initialized"}, {"id": 1, "result": {}},
    ):  # fmt: skip
        assert INVALID in challenged(client.post(message))
    if client.revision.handshake:
        assert INVALID in challenged(client.listen())
        headers = client.headers() | {"mcp-session-id": "A" * 43}
        assert INVALID in challenged(client.open("DELETE", client.path, headers=headers))


def test_revoked_or_expired_token_stops_working_at_once(http, revision, work, server, alice):
    token, secret = Token.make(alice, "tests")
    client = http(secret, server=server, revision=revision)
    assert client.text("whoami") == "alice"
    for rows, wrong, right in (
        (Token.objects, {"revoked": timezone.now()}, {"revoked": None}),
        (Token.objects, {"expires": timezone.now()}, {"expires": None}),
        (User.objects, {"is_active": False}, {"is_active": True}),
    ):
        rows.update(**wrong)
        assert INVALID in challenged(client.start("tools/call", name="whoami", arguments={}))
        rows.update(**right)
        assert client.text("whoami") == "alice"


# Where tokens are not read.


def test_token_is_read_from_the_authorization_header_only(http, work, server, secret):
    client = http(server=server)
    message = client.message("tools/call", {"name": "whoami", "arguments": {}})
    message["access_token"] = message["params"]["_meta"]["authorization"] = secret
    raw = json.dumps(message).encode()
    for changed in (
        {"cookie": f"access_token={secret}"}, {"x-authorization": f"Bearer {secret}"},
        {"proxy-authorization": f"Bearer {secret}"}, {"authorization": f"Basic {secret}"},
        {"authorization": f"Token {secret}"}, {"authorization": secret},
        {"authorization": f"Bearer\t{secret}"}, {"x-api-key": secret}, {"mcp-param-token": secret},
    ):  # fmt: skip
        headers = client.headers(message) | changed
        query = f"access_token={secret}&token={secret}".encode()
        exchange = client.open("POST", client.path, raw, headers, query_string=query)
        assert INVALID not in challenged(exchange)


def test_session_cookie_does_not_authenticate(http, work, server, alice):
    """Attack: a page of another site that has a signed-in browser send a request."""
    browser = Browser()
    browser.force_login(alice)
    cookies = "; ".join(f"{name}={one.value}" for name, one in browser.cookies.items())
    assert "sessionid=" in cookies
    client = http(server=server, more={"cookie": cookies})
    assert INVALID not in challenged(client.start("tools/call", name="whoami", arguments={}))
    names = {tool["name"] for tool in client.request("tools/list")["tools"]}
    assert "whoami" not in names


def test_request_with_two_tokens_is_rejected(http, private, secret):
    client = http(server=private)
    pairs = [(name.encode(), value.encode()) for name, value in client.headers({}).items() if value]
    pairs += [(b"authorization", f"Bearer {token}".encode()) for token in (secret, secret)]
    assert client.open("POST", client.path, b"{}", pairs).wait().refused == (400, -32600)


# Tokens are not disclosed.


@pytest.mark.parametrize("broken", [False, True])
def test_token_appears_neither_in_response_nor_log(http, private, alice, caplog, settings, broken):
    caplog.set_level(logging.DEBUG)
    if broken:
        settings.DJANGO_MCP = settings.DJANGO_MCP | {"VERIFIERS": [HERE + "broken"]}
    tokens = [make(alice) for make in MAKERS] + ["s3cret" * 2_000, "s3cret\xff", "mcp_s3cret"]
    for token in tokens:
        exchange = http(token, server=private).start("tools/list").wait()
        assert exchange.status == (500 if broken and len(token) < MAX_TOKEN_LENGTH else 401)
        expected = exchange.body.decode() + json.dumps(exchange.headers) + caplog.text
        for record in caplog.records:
            expected += repr(record.__dict__)
        assert token not in expected and "s3cret" not in expected and token[4:20] not in expected


# Requests without a token.


def test_server_without_public_declarations_requires_a_token(http, revision, private):
    client = http(server=private, revision=revision, initialize=False)
    init = {"protocolVersion": revision, "capabilities": {}, "clientInfo": {}}
    for message in (
        client.message("initialize", init), client.message("server/discover", {}),
        client.message("tools/list", {}), client.message("ping", {}), b"no json", b"", b"[]",
        client.message("tools/call", {"name": "whoami"}), client.message("unknown/method", {}),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": "x", "result": {}},
    ):  # fmt: skip
        given = challenged(client.post(message))
        assert INVALID not in given and "error" not in given
    headers = client.headers() | {"accept": "text/event-stream", "mcp-protocol-version": None}
    for method in ("GET", "DELETE"):
        for id in (None, "A" * 43):
            headers["mcp-session-id"] = id
            assert INVALID not in challenged(client.open(method, client.path, headers=headers))


def test_challenge_is_sent_before_the_body_is_read(http, private):
    """Attack: fill the memory of a private server."""
    client = http(server=private)
    exchange = client.open("POST", client.path, [], client.headers(), more=True)
    challenged(exchange)


def test_server_without_declarations_requires_a_token(http, server):
    challenged(http(server=server).start("server/discover"))


NAMES = {
    "tools/call": ("name", "whoami", "save", "nothing"),
    "prompts/get": ("name", "insult", "greet", "nothing"),
    "resources/read": ("uri", "closed://a", "open://a", "nothing://a"),
}


@pytest.mark.parametrize("method", NAMES)
def test_anonymous_request_for_a_private_name_is_challenged(http, revision, work, server, method):
    """Responses for private and for unknown names are identical."""
    client = http(server=server, revision=revision)
    key, private, public, unknown = NAMES[method]
    answers = []
    for name in (private, unknown):
        exchange = client.start(method, id=1, **{key: name})
        assert INVALID not in challenged(exchange)
        answers.append((exchange.status, exchange.headers, exchange.body))
    assert answers[0] == answers[1]
    arguments = {"arguments": {"name": "x"}} if method == "tools/call" else {}
    assert client.request(method, **{key: public}, **arguments)


@pytest.mark.parametrize("method", NAMES)
def test_anonymous_calls_of_private_and_unknown_names_leave_the_same_records(
    http, revision, work, server, method, monkeypatch, caplog
):
    """Attack: tell private names by the time of an INSERT, or fill the database with rows."""
    monkeypatch.setattr(audit, "REJECTED_PER_CALLER", Rate(4, 60))
    monkeypatch.setattr(audit, "_rejected", ProcessCounts())
    caplog.set_level("INFO", logger="django_mcp.calls")
    server.audit = True
    server._catalog.tools["whoami"].audit = False
    client = http(server=server, revision=revision)
    key, private, _, unknown = NAMES[method]
    for name in 3 * (private, unknown):
        challenged(client.start(method, **{key: name}))
    entries = AuditEntry.objects.order_by("pk").values_list("name", "outcome", "user")
    assert list(entries) == 2 * [(private, "denied", None), (unknown, "denied", None)]
    assert caplog.text.count("name='' outcome=denied") == 6


MIXED = {  # kind -> the server's only private thing is of it
    "tools": lambda server: server.tool(lambda request: "x", name="private"),
    "prompts": lambda server: server.prompt(lambda request: "x", name="private"),
    "resources": lambda server: server.resource("private://one", name="x")(lambda request: "x"),
}
UNKNOWN = {
    "tools/call": ("tools", {"name": "nothing"}),
    "prompts/get": ("prompts", {"name": "nothing"}),
    "resources/read": ("resources", {"uri": "nothing://a"}),
    "completion/complete": ("resources", {
        "ref": {"type": "ref/resource", "uri": "nothing://{name}"},
        "argument": {"name": "name", "value": ""},
    }),
}  # fmt: skip


@pytest.mark.parametrize("private", MIXED)
@pytest.mark.parametrize("method", UNKNOWN)
def test_unknown_name_is_an_error_if_nothing_of_its_kind_is_private(http, private, method):
    """If its kind has private names, it is challenged as they are, to hide which names exist."""
    server = mcp.Server("mixed")

    @server.tool(permission=mcp.PUBLIC)
    def shout(request: mcp.Request) -> str:
        return "x"

    @server.prompt(permission=mcp.PUBLIC)
    def sing(request: mcp.Request) -> str:
        return "x"

    @server.resource("open://{name}", permission=mcp.PUBLIC)
    def read(request: mcp.Request, name: Literal["a", "b"]) -> str:
        return name

    MIXED[private](server)
    kind, params = UNKNOWN[method]
    exchange = http(server=server).start(method, **params)
    if kind == private:
        challenged(exchange)
    else:
        assert exchange.wait().refused == (200, -32602), exchange


@pytest.mark.parametrize(
    "ref",
    [
        {"type": "ref/prompt", "name": "insult"},
        {"type": "ref/prompt", "name": "nothing"},
        {"type": "ref/resource", "uri": "closed://{name}"},
        {"type": "ref/resource", "uri": "closed://a"},
        {"type": "ref/resource", "uri": "nothing://{name}"},
    ],
)
def test_anonymous_completion_is_limited_to_public_declarations(http, revision, work, server, ref):
    client = http(server=server, revision=revision)
    argument = {"name": "name", "value": ""}
    challenged(client.start("completion/complete", ref=ref, argument=argument))
    public = {"type": "ref/resource", "uri": "open://{name}"}
    assert client.request("completion/complete", ref=public, argument=argument)


def test_anonymous_subscription_is_limited_to_public_resources(http, handshake, work, server):
    client = http(server=server, revision=handshake)
    for uri in ("closed://a", "nothing://a"):
        challenged(client.start("resources/subscribe", uri=uri))
    client.request("resources/subscribe", uri="open://a")
    client.request("resources/unsubscribe", uri="closed://a")


@pytest.mark.parametrize("uris", [["closed://a"], ["nothing://a"], ["open://a", "closed://a"]])
def test_anonymous_listen_is_limited_to_public_resources(http, work, server, uris):
    client = http(server=server)
    wanted = {"resourceSubscriptions": uris}
    challenged(client.start("subscriptions/listen", notifications=wanted))


@pytest.mark.parametrize("value", [None, 1, [], {}, True])
@pytest.mark.parametrize("method", NAMES)
def test_name_that_is_no_string_is_rejected(http, revision, work, server, method, value):
    """The error is about the invalid value."""
    client = http(server=server, revision=revision)
    message = client.message(method, {NAMES[method][0]: value})
    exchange = client.post(message, mcp_name="x" if not client.revision.handshake else None).wait()
    assert exchange.error["code"] == -32602 and exchange.status in (200, 400)


def test_invalid_references_and_filters_are_rejected(http, work, server):
    client = http(server=server)
    argument = {"name": "name", "value": ""}
    for ref in (None, [], "x", {}, {"type": "ref/prompt"}, {"type": "ref/resource", "uri": 1}):
        with pytest.raises(RpcError) as refused:
            client.request("completion/complete", ref=ref, argument=argument)
        assert refused.value.code == -32602
    for wanted in (None, [], {"resourceSubscriptions": {}}, {"resourceSubscriptions": [1]}):
        with pytest.raises(RpcError) as refused:
            client.request("subscriptions/listen", notifications=wanted)
        assert refused.value.code == -32602


def test_unknown_name_on_a_public_server_is_not_challenged(http, revision, server):
    @server.tool(permission=mcp.PUBLIC)
    def known(request: mcp.Request) -> str:
        return "known"

    client = http(server=server, revision=revision)
    with pytest.raises(RpcError) as refused:
        client.call("unknown")
    assert refused.value.code == -32602
    assert client.text("known") == "known"


# Sessions.


def test_session_is_bound_to_its_token(http, handshake, work, server, alice, bob, secret):
    client = http(secret, server=server, revision=handshake)
    _, other = Token.make(alice, "another of hers")
    _, bobs = Token.make(bob, "bob's")
    for token, status in ((other, 404), (bobs, 404), (None, 401), ("wrong", 401)):
        shown = token and f"Bearer {token}"
        message = client.message("tools/call", {"name": "whoami", "arguments": {}})
        exchanges = [
            client.post(message, authorization=shown),
            client.post(
                {"jsonrpc": "2.0", "method": "notifications/cancelled"}, authorization=shown
            ),
            client.listen(authorization=shown),
            client.open("DELETE", client.path, headers=client.headers(authorization=shown)),
        ]
        for exchange in exchanges:
            assert exchange.wait().status == status
            assert ("www-authenticate" in exchange.headers) == (status == 401)
    assert client.text("whoami") == "alice"


def test_anonymous_session_is_usable_by_its_id_only(http, handshake, work, server, secret):
    """Any client with its id may use it without a token; a token does not give access."""
    client = http(server=server, revision=handshake)
    other = http(server=server, revision=handshake, initialize=False)
    other.session = client.session
    assert other.text("save", name="x") == "x"
    assert client.start("tools/list").wait().status == 200
    exchange = client.post(client.message("tools/list", {}), authorization=f"Bearer {secret}")
    assert exchange.wait().refused == (404, -32600)


@pytest.mark.parametrize(
    "id", ["", "x", "A" * 43, "A" * 42 + "\xe9", "' OR 1=1", "x" * 10_000, "null"]
)
def test_unknown_session_id_is_404(http, handshake, work, server, secret, id):
    for token in (None, secret):
        client = http(token, server=server, revision=handshake, initialize=False)
        message = client.message("tools/list", {})
        assert client.refusal(message, mcp_session_id=id) == (404, -32600)
        assert client.listen(mcp_session_id=id).wait().status == 404
        headers = client.headers(mcp_session_id=id)
        assert client.send("DELETE", client.path, headers=headers).status == 404


def test_session_is_bound_to_its_server(http, handshake, work, server, secret):
    client = http(secret, server=server, revision=handshake)
    message = client.message("tools/list", {})
    assert client.post(message, path="/mcp").wait().status == 404
    assert client.post(message).wait().status == 200


def test_latest_revision_ignores_session_headers(http, work, server, secret):
    """Valid and invalid session headers are ignored."""
    older = http(secret, server=server, revision="2025-11-25")
    client = http(server=server)
    for id in (older.session, "x", "A" * 43):
        message = client.message("tools/call", {"name": "save", "arguments": {"name": "x"}})
        exchange = client.post(message, mcp_session_id=id, last_event_id="1-1").wait()
        assert exchange.status == 200 and "mcp-session-id" not in exchange.headers
        assert client.refusal(message, mcp_session_id=id, mcp_protocol_version=None) == (
            400,
            -32020,
        )
    assert Session.objects.using(ours.DATABASE).count() == 1


# Verifiers.


@pytest.fixture
def use(settings):
    """Set ``VERIFIERS`` to classes of this package."""
    verifiers.asked.clear()

    def used(*names):
        paths = [name if "." in name else HERE + name for name in names]
        settings.DJANGO_MCP = settings.DJANGO_MCP | {"VERIFIERS": paths}

    return used


PERSONAL = "django_mcp.verifiers.PersonalAccessTokens"


def test_verifiers_are_tried_in_order(http, private, alice, secret, use):
    use("Threaded", PERSONAL, "Named")
    assert http(secret, server=private).text("whoami") == "alice"
    assert verifiers.asked == [("Threaded", secret)]
    assert http("alice", server=private).text("whoami") == "alice"
    assert verifiers.asked[1:] == [("Threaded", "alice"), ("Named", "alice")]
    assert INVALID in challenged(http("eve", server=private).start("tools/list"))


def test_lookup_verifiers_share_one_thread_job(http, private, alice, secret, use, monkeypatch):
    use(PERSONAL, "Listed", "Named")
    hops, submit = [], threads.lookups.submit
    monkeypatch.setattr(
        threads.lookups, "submit", lambda *given: hops.append(given) or submit(*given)
    )
    for token in (secret, "alice"):
        assert http(token, server=private).start("tools/list").wait().status == 200
    assert len(hops) == 2 and verifiers.asked == [("Listed", "alice")]
    assert INVALID in challenged(http("eve", server=private).start("tools/list"))
    assert verifiers.asked[1:] == [("Listed", "eve"), ("Named", "eve")]


def test_session_is_bound_to_the_user_of_a_custom_verifier(
    http, handshake, private, alice, bob, use
):
    use("Named")
    client = http("alice", server=private, revision=handshake)
    assert client.text("whoami") == "alice"
    exchange = client.post(client.message("tools/list", {}), authorization="Bearer bob")
    assert exchange.wait().status == 404


def test_overridden_verify_method_is_called(http, private, secret, use):
    """Attack: bypass what a subclass adds to ``verify``."""
    use("Guarded")
    assert INVALID in challenged(http(secret, server=private).start("tools/list"))
    assert verifiers.asked == [("Guarded", secret)]


def test_inactive_user_is_rejected_whatever_the_verifier_returns(http, work, server, use):
    """Attack: use a token of an inactive user where anonymous access is allowed."""
    use("Careless")
    assert INVALID in challenged(http("inactive", server=server).start("tools/list"))
    assert http("active", server=server).request("tools/list")


def test_failing_verifier_is_a_server_error(http, private, secret, use, caplog):
    use("Broken", PERSONAL)
    assert http(secret, server=private).start("tools/list").wait().status == 500
    assert "nobody there" in caplog.text


def test_every_token_is_rejected_without_verifiers(http, private, secret, use):
    use()
    assert INVALID in challenged(http(secret, server=private).start("tools/list"))


# Contents of a challenge.


def request_to(server, path="/mcp"):
    return SimpleNamespace(server=server, scope={"path": path})


@pytest.mark.parametrize(
    "name", ['a "name"', "a\\", "a\r\nSet-Cookie: x", "sch\xf6n", "\u2603", "\x7f"]
)
def test_challenge_is_one_line_of_ascii(name):
    asked = request_to(SimpleNamespace(name="stored", public_name=name))
    for refused in (challenge(asked), challenge(asked, invalid=True)):
        ((key, value),) = refused.headers
        assert (refused.status, key) == (401, b"www-authenticate")
        assert re.fullmatch(rb'Bearer realm="[ !#-\[\]-~]*"(, [a-z_]+="[ !#-\[\]-~]*")*', value)


def test_realm_is_the_name_of_the_server():
    asked = request_to(Server("billing"))
    assert b'realm="billing"' in challenge(asked).headers[0][1]


def test_realm_is_the_public_name_of_the_server(monkeypatch):
    monkeypatch.setattr(mcp.server, "_public_name", "bookshop")
    assert b'realm="bookshop"' in challenge(request_to(mcp.server)).headers[0][1]
    assert mcp.server.name == "default"


ROOT = "https://shop.example/.well-known/oauth-protected-resource"


@pytest.mark.parametrize(
    ("named", "asked", "expected"),
    [
        (f"{ROOT}/mcp", "/mcp", f"{ROOT}/mcp"),
        (f"{ROOT}/mcp", "/mcp/", f"{ROOT}/mcp/"),
        (f"{ROOT}/below/mcp", "/mcp/", f"{ROOT}/below/mcp/"),
        (f"{ROOT}/mcp/a%20b", "/mcp/a b/", f"{ROOT}/mcp/a%20b/"),
        (ROOT, "/", ROOT),
        (f"{ROOT}/mcp/", "/mcp/", f"{ROOT}/mcp/"),
        ("https://elsewhere.example/about", "/mcp/", "https://elsewhere.example/about"),
    ],
)  # fmt: skip
def test_metadata_url_matches_the_requested_path(named, asked, expected, use, monkeypatch):
    """RFC 9728, 3.3: the resource in the metadata must equal the URL that the client used."""
    use("WithMetadata")
    monkeypatch.setattr(verifiers.WithMetadata, "where", named)
    header = challenge(request_to(Server("shop"), asked)).headers[0][1].decode()
    assert f'resource_metadata="{expected}"' in header


@pytest.mark.parametrize(
    ("header", "token"),
    [
        (None, None), ("", None), ("Bearer", ""), ("Bearer ", ""), ("Bearer a", "a"),
        ("bEARER  a ", "a"), ("Bearera", None), ("Basic a", None), ("Bearer a b", "a b"),
    ],
)  # fmt: skip
def test_bearer_token_is_parsed_from_the_header(header, token):
    assert bearer(header) == token
