"""Attacks on the MCP endpoint with valid, stolen, wrong or no tokens, over the real transport."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import override_settings
from django.utils import timezone

import django_mcp as mcp
from django_mcp.calls import callers as module
from django_mcp.calls.callers import revocation_checker
from django_mcp.models import Call, Session
from django_mcp.oauth.models import ClientProfile
from django_mcp.protocol.revisions import REVISIONS
from tests.http import HttpClient
from tests.storage.rows import given

from .test_metadata import AS, OIDC, PR
from .tokens import application, issued, refresh

pytestmark = pytest.mark.django_db
URL = "https://shop.example"
ORIGIN = f"{URL}/"
CHALLENGE = re.compile(r'Bearer realm="[^"\\]*"(, [a-z_]+="[^"\\]*")*')
STREAM_START_SECONDS = 2.0  # seconds in which a stream must have begun
STREAMED = [name for name, one in REVISIONS.items() if one.handshake]


@pytest.fixture(autouse=True)
def short_json_grace():
    """Calls get a stream soon."""
    with given(JSON_GRACE=0.1):
        yield


@pytest.fixture
def bob():
    return get_user_model().objects.create_user("bob", password="secret")


@pytest.fixture
def server(server, gate):
    @server.tool
    def whoami(request) -> str:
        return str(request.user.get_username())

    @server.tool
    async def wait(request) -> str:
        """Speak, wait, speak again."""
        await request.aprogress(1)
        while not gate.is_set():  # noqa: ASYNC110 - a test sets it
            await asyncio.sleep(0.002)
        return f"waited for {request.user}"

    return server


@pytest.fixture
def other_server():
    """Another server of the project's."""
    made = mcp.Server("other", path="mcp/other")

    @made.tool
    def whoami(request) -> str:
        return str(request.user.get_username())

    return made


@pytest.fixture
def public_server():
    """A server whose declarations are all public."""
    made = mcp.Server("open", path="mcp/open")
    made.tool(lambda request: "hello", name="hello", permission=mcp.PUBLIC)
    return made


@pytest.fixture
def connect(http, server):
    """Return a function that makes clients of the shop's own host."""

    def made(token: str | None, **options: Any) -> HttpClient:
        more = {"host": "shop.example", **options.pop("more", {})}
        found: HttpClient = http(token, **{"server": server, "more": more} | options)
        return found

    return made


def challenge_of(exchange) -> dict[str, str]:
    """Assert that the response is a challenge, and return its parameters."""
    assert exchange.wait().refused == (401, -32600), exchange
    said = exchange.headers["www-authenticate"]
    assert CHALLENGE.fullmatch(said)
    return dict(re.findall(r'([a-z_]+)="([^"]*)"', said))


def refused(connect, secret, **options):
    client = connect(secret, initialize=False, **options)
    words = challenge_of(client.start("tools/call", name="whoami", arguments={}))
    assert words["error"] == "invalid_token" and "audience" not in str(words)
    return True


# T5: tokens for another purpose.


OTHER = [f"{URL}/mcp/other"]
OTHER_TOKENS: dict[str, dict[str, Any]] = {
    "another server": {"resource": OTHER},
    "the origin": {"resource": [URL]},
    "the origin with a slash": {"resource": [ORIGIN]},
    "what is above it": {"resource": [f"{URL}/mcp"]},
    "what is below it": {"resource": [f"{URL}/mcp/a test's own/more"]},
    "a foreign host": {"resource": ["https://evil.example/mcp/a%20test's%20own"]},
    "a host that begins alike": {"resource": ["https://shop.example.evil/mcp/a%20test's%20own"]},
    "a user at that host": {"resource": ["https://a@shop.example/mcp/a%20test's%20own"]},
    "another port": {"resource": ["https://shop.example:8443/mcp/a%20test's%20own"]},
    "another scheme": {"resource": ["http://shop.example/mcp/a%20test's%20own"]},
    "a query": {"resource": ["https://shop.example/mcp/a%20test's%20own?"  "a=b"]},
    "no URI": {"resource": ["http://[::1", "", "mcp", "//shop.example/mcp", "*"]},
    "nothing": {"resource": []},
}  # fmt: skip


@pytest.mark.parametrize("what", OTHER_TOKENS)
def test_token_for_another_resource_is_rejected(connect, alice, public_client, what):
    """T5: a token is accepted only by the server that it names."""
    assert refused(connect, issued(alice, public_client, **OTHER_TOKENS[what])[1])


def test_token_for_another_server_is_rejected_in_every_revision(
    connect, alice, public_client, server, other_server, revision
):
    """T5: the token of another server is accepted only there."""
    secret = issued(alice, public_client, other_server)[1]
    assert refused(connect, secret, revision=revision)
    assert connect(secret, server=other_server, revision=revision).text("whoami") == "alice"


SCOPES = ["", "photos", "introspection", "openid profile", "mcp:", "MCP"]


@pytest.mark.parametrize("scope", [*SCOPES, "mcp oauth2_provider:registration"])
def test_token_without_a_scope_of_ours_is_rejected(connect, alice, public_client, server, scope):
    """T5: consent to another API is no permission to call tools, whatever resource it names."""
    assert refused(connect, issued(alice, public_client, server, scope=scope)[1])


def test_registration_token_is_rejected(connect, alice, server):
    """T5: as django-oauth-toolkit issues it: until the year 9999, without a resource."""
    client = application(registration_source="dcr", user=alice)
    secret = issued(
        alice, client, scope="oauth2_provider:registration",
        expires=timezone.now() + timedelta(days=300_000),
    )[1]  # fmt: skip
    assert refused(connect, secret)


def test_token_without_a_user_is_rejected(connect, alice, server):
    """T13: a client that anybody may register cannot act on its own."""
    for source in ("dcr", "cimd", "manual"):
        client = application(registration_source=source, user=alice, client_type="confidential")
        assert refused(connect, issued(None, client, server)[1])


# T8, T20, T21, T26: tokens outside the header, other origins, forged hosts.


def test_token_outside_the_header_is_ignored(connect, alice, public_client, server):
    """T8: a token in the query, in a form, in the message or in a cookie."""
    secret = issued(alice, public_client, server)[1]
    client = connect(None)
    message = client.message("tools/call", {"name": "whoami", "arguments": {}})
    query = {"query_string": f"access_token={secret}".encode()}
    assert "error" not in challenge_of(client.post(message, scope=query))
    meta = {"_meta": {"access_token": secret, "authorization": f"Bearer {secret}"}}
    inside = client.message("tools/call", {"name": "whoami", "arguments": {}} | meta)
    assert "error" not in challenge_of(client.post(inside))
    assert "error" not in challenge_of(client.post(message, cookie=f"access_token={secret}"))
    form = client.post(
        f"access_token={secret}".encode(), content_type="application/x-www-form-urlencoded"
    )
    assert form.wait().status in (401, 415)


@pytest.mark.parametrize("scheme", ["Basic", "Token", "DPoP", "", "Bearer,"])
def test_token_with_another_scheme_is_ignored(connect, alice, public_client, server, scheme):
    """T8: only the Bearer scheme counts."""
    secret = issued(alice, public_client, server)[1]
    client = connect(None, more={"authorization": f"{scheme} {secret}".strip()}, initialize=False)
    assert "error" not in challenge_of(client.start("tools/list"))


def test_request_of_another_host_or_origin_is_rejected(connect, alice, public_client, server):
    """T20: neither a host nor an origin of another site is accepted."""
    secret = issued(alice, public_client, server)[1]
    client = connect(secret)
    message = client.message("tools/list", {})
    assert client.refusal(message, host="evil.example") == (400, -32600)
    assert client.refusal(message, origin="https://evil.example") == (403, -32600)
    assert client.refusal(message, origin="null") == (403, -32600)
    for origin in (None, URL):
        assert client.post(message, origin=origin).wait().status == 200


LOCAL = ["http://localhost", "http://localhost:6274", "http://127.0.0.1:8000", "http://[::1]"]


@pytest.mark.parametrize("origin", LOCAL)
def test_localhost_origin_is_rejected_unless_in_development(
    connect, alice, public_client, server, origin
):
    """T20: it is accepted with DEBUG and without ALLOWED_HOSTS."""
    client = connect(issued(alice, public_client, server)[1])
    message, host = client.message("tools/list", {}), origin.removeprefix("http://")
    assert client.refusal(message, origin=origin) == (403, -32600)
    assert client.refusal(message, host=host, origin=origin) == (400, -32600)
    with override_settings(DEBUG=True, ALLOWED_HOSTS=[]):
        assert client.post(message, host=host, origin=origin).wait().status == 200
        evil = f"{origin}.evil.example"
        assert client.refusal(message, host=host, origin=evil) == (403, -32600)


def test_rebound_host_is_rejected_though_every_host_is_allowed(
    connect, alice, public_client, server
):
    """T20: a host of the attacker that resolves to this server is not the project's origin."""
    client = connect(issued(alice, public_client, server)[1])
    message = client.message("tools/list", {})
    with override_settings(ALLOWED_HOSTS=["*"]):
        for scheme in ("http", "https"):
            origin = f"{scheme}://evil.example"
            assert client.refusal(message, host="evil.example", origin=origin) == (403, -32600)
        assert client.post(message, origin=URL).wait().status == 200


PAGE = {"origin": "https://inspector.example"}
ASKS = {"access-control-request-method": "POST"}


@pytest.mark.parametrize("where", [AS, PR, "/oauth/register", "/oauth/token", "/oauth/revoke"])
def test_pages_of_any_origin_may_get_tokens_without_credentials(web, server, where):
    """T21: preflight and answer are for everybody, and never with what a browser keeps."""
    method = web.get if where in (AS, PR) else web.post
    preflight = web.options(where, headers=PAGE | ASKS)
    assert preflight.status_code == 204 and not preflight.content
    for response in (preflight, method(where, headers=PAGE)):
        assert response.headers.get("access-control-allow-origin") == "*"
        assert "access-control-allow-credentials" not in response.headers


def test_only_trusted_origins_may_call_the_endpoint(connect, server):
    """T21: a preflight needs no token, and reveals nothing to other origins."""
    client = connect(None)
    ours = client.send("OPTIONS", client.path, headers=client.headers(origin=URL) | ASKS)
    assert (ours.status, ours.headers["access-control-allow-origin"]) == (204, URL)
    assert "authorization" in ours.headers["access-control-allow-headers"]
    evil = client.send("OPTIONS", client.path, headers=client.headers(**PAGE) | ASKS)
    assert evil.status == 403
    for exchange in (ours, evil):
        assert "access-control-allow-credentials" not in exchange.headers
    assert not [name for name in evil.headers if name.startswith("access-control")]


def test_only_trusted_origins_may_read_a_challenge(connect, server):
    """T21: the page of another origin sees nothing."""
    client = connect(None)
    message = client.message("tools/list", {})
    exchange = client.post(message, origin=URL).wait()
    assert exchange.status == 401 and exchange.headers["access-control-allow-origin"] == URL
    assert "www-authenticate" in exchange.headers["access-control-expose-headers"]
    assert "access-control-allow-credentials" not in exchange.headers
    other = client.post(message, origin="https://evil.example").wait()
    assert "access-control-allow-origin" not in other.headers


FORGED = [
    {"host": "other.example"}, {"host": "shop.example:8443"},
    {"x-forwarded-host": "evil.example", "x-forwarded-proto": "http", "x-forwarded-port": "81"},
    {"forwarded": "host=evil.example;proto=http"}, {"x-script-name": "/evil"},
    {"x-original-url": "/evil", "x-rewrite-url": "/evil"},
]  # fmt: skip


@pytest.mark.parametrize("forged", FORGED, ids=lambda headers: next(iter(headers)))
@pytest.mark.parametrize("secure", [True, False])
def test_forged_host_does_not_change_metadata(web, server, forged, secure):
    """T26: metadata is the same for everybody, whatever host they used."""
    hosts = override_settings(
        ALLOWED_HOSTS=["*"], USE_X_FORWARDED_HOST=True, USE_X_FORWARDED_PORT=True,
        SECURE_PROXY_SSL_HEADER=("HTTP_X_FORWARDED_PROTO", "https"),
    )  # fmt: skip
    for where in (AS, PR, PR + "/mcp/a test's own", OIDC):
        usual = web.get(where).content
        with hosts:
            assert web.get(where, headers=forged, secure=secure).content == usual


def test_forged_host_does_not_change_the_challenge(connect, server):
    """T26: nor the URL of the metadata in it."""
    with override_settings(ALLOWED_HOSTS=["*"], USE_X_FORWARDED_HOST=True):
        for forged in ({"host": "evil.example"}, {"x_forwarded_host": "evil.example"}):
            client = connect(None)
            words = challenge_of(client.post(client.message("tools/list", {}), **forged))
            assert words["resource_metadata"].startswith(f"{URL}/.well-known/")


# T9: sessions.


@pytest.fixture
def session_client(connect, alice, bob, public_client, server):
    """A client with a session of Alice, and tokens of others by what each is."""
    client = connect(issued(alice, public_client, server)[1], revision="2025-11-25")
    client.secrets = {
        "another user": issued(bob, public_client, server)[1],
        "another client": issued(alice, application("Other"), server)[1],
        "both": issued(bob, application("Third"), server)[1],
        "refreshed": issued(alice, public_client, server)[1],
    }
    return client


def try_session(client, token):
    """Yield the response to each method, with the session id and this token."""
    shown = {"authorization": token and f"Bearer {token}"}
    message = client.message("tools/call", {"name": "whoami", "arguments": {}})
    yield client.post(message, **shown).wait()
    yield client.listen(**shown).wait()
    yield client.send("DELETE", client.path, headers=client.headers(**shown))


@pytest.mark.parametrize("who", ["another user", "another client", "both"])
def test_session_of_another_user_or_client_is_not_found(session_client, who, caplog):
    """T9: the session stays intact, and the log names the caller."""
    before, secret = Session.objects.get(), session_client.secrets[who]
    assert [exchange.status for exchange in try_session(session_client, secret)] == [404, 404, 404]
    told = [one for one in caplog.records if one.levelname == "WARNING"]
    assert [one.args[:2] for one in told] == [(before.pk, before.owner)] * 3
    assert all(one.args[2] not in (before.owner, "nobody") for one in told)
    assert not any(
        one in caplog.text for one in (secret, session_client.token, session_client.session)
    )
    after = Session.objects.get()
    assert (after.owner, after.pk) == (before.owner, before.pk)
    assert session_client.text("whoami") == "alice"


def test_session_id_without_a_token_is_rejected(session_client):
    """T9: the id of a session is no credential."""
    assert [exchange.status for exchange in try_session(session_client, None)] == [401, 401, 401]
    assert [exchange.status for exchange in try_session(session_client, "guessed")] == [
        401,
        401,
        401,
    ]
    assert session_client.text("whoami") == "alice"


def test_session_continues_with_a_refreshed_token(session_client):
    """T9: all tokens of one client and user are one caller."""
    session_client.token = session_client.secrets["refreshed"]
    assert session_client.text("whoami") == "alice"


def test_session_header_is_ignored_without_sessions(connect, session_client):
    """T9: from 2026-07-28 on there are no sessions."""
    client = connect(
        session_client.secrets["another user"], more={"mcp-session-id": session_client.session}
    )
    assert client.text("whoami") == "bob"


@pytest.fixture
def server_with_question(server):
    @server.tool
    def sure(request) -> str:
        return f"{request.user}: {request.elicit('Sure?')}"

    return server


def test_request_state_of_another_user_or_client_is_rejected(
    connect, alice, bob, public_client, server_with_question
):
    """T9: the state that a client sends back is bound to its user and client."""
    arguments: dict[str, Any] = {"name": "sure", "arguments": {}}
    client = connect(issued(alice, public_client, server_with_question)[1])
    (asked,) = client.start("tools/call", **arguments).wait().messages
    (key,) = asked["result"]["inputRequests"]
    yes = {key: {"action": "accept", "content": {"answer": True}}}
    arguments |= {"requestState": asked["result"]["requestState"], "inputResponses": yes}
    others = (bob, public_client), (alice, application("Other")), (bob, application("Third"))
    for user, other in others:
        exchange = (
            connect(issued(user, other, server_with_question)[1])
            .start("tools/call", **arguments)
            .wait()
        )
        assert "result" not in exchange.messages[0] and exchange.error["code"] == -32602
    refreshed = connect(issued(alice, public_client, server_with_question)[1]).start(
        "tools/call", **arguments
    )
    assert "alice: True" in str(refreshed.wait().messages[0]["result"])


# T22, T24: expiry and revocation during calls and streams.


def calling(client):
    meta = {"_meta": {"progressToken": "t"}}
    exchange = client.start("tools/call", name="wait", arguments={}, **meta)
    exchange.until(lambda: exchange.is_stream and exchange.messages)
    return exchange


def listening(client, last=None):
    exchange = client.listen(last)
    return exchange.until(lambda: exchange.is_stream) and exchange


@pytest.fixture
def client_with_short_token(connect, alice, public_client, server):
    def made(revision):
        row, secret = issued(alice, public_client, server)
        client = connect(secret, revision=revision)
        # After the handshake, which may take long on a busy machine.
        row.expires = timezone.now() + timedelta(seconds=STREAM_START_SECONDS)
        row.save(update_fields=["expires"])
        client.fresh = lambda: issued(alice, public_client, server)[1]
        client.row = row
        return client

    return made


@pytest.mark.slow
def test_stream_ends_with_its_token_and_resumes_with_a_new_one(client_with_short_token, handshake):
    """T24: the connection is closed; the expired token is rejected, the next one is accepted."""
    client = client_with_short_token(handshake)
    assert listening(client).wait().status == 200
    assert timezone.now() >= client.row.expires
    assert "invalid_token" in challenge_of(client.listen())["error"]
    client.token = client.fresh()
    assert listening(client).status == 200


@pytest.mark.slow
def test_call_outlives_its_token_and_only_its_caller_gets_the_result(
    client_with_short_token, gate, bob
):
    """T24: the call continues; a new token of the same owner gets the result."""
    client = client_with_short_token("2025-11-25")
    exchange = calling(client)
    exchange.wait()
    last = [event.id for event in exchange.sse.found if event.id][-1]
    assert Call.objects.get().state == "running"
    challenge_of(client.listen(last))
    client.token = issued(bob, client.row.application, client.server)[1]
    assert client.listen(last).wait().status == 404
    client.token = client.fresh()
    rest = listening(client, last)
    gate.set()
    assert rest.wait().messages[-1]["result"]["content"][0]["text"] == "waited for alice"


@pytest.mark.slow
def test_subscription_ends_with_its_token(client_with_short_token):
    """T24: the same for the streams of 2026-07-28."""
    client = client_with_short_token("2026-07-28")
    exchange = client.start("subscriptions/listen", notifications={"toolsListChanged": True})
    exchange.until(lambda: exchange.is_stream)
    assert exchange.wait().ended and timezone.now() >= client.row.expires
    again = client.start("subscriptions/listen", notifications={"toolsListChanged": True})
    challenge_of(again)


def revoke(row, alice):
    row.delete()


def refuse_user(row, alice):
    get_user_model().objects.filter(pk=alice.pk).update(is_active=False)


def change_password(row, alice):
    alice.set_password("another")
    alice.save()


def block(row, alice):
    theirs = ClientProfile.objects.filter(client_id=row.application.client_id)
    theirs.update(blocked=timezone.now())


def delete_client(row, alice):
    row.application.delete()


REVOCATIONS = [revoke, refuse_user, change_password, block, delete_client]
OF_EVERY_CLIENT = (refuse_user, change_password)


async def check_revocations():
    await revocation_checker().check()


@pytest.mark.parametrize("end", REVOCATIONS, ids=lambda end: end.__name__)
def test_revocation_cancels_calls_and_closes_streams(
    connect, alice, public_client, server, handshake, end
):
    """T24, T22: at the next check, and only those of the revoked owner."""
    row, secret = issued(alice, public_client, server)
    client = connect(secret, revision=handshake)
    bystander = connect(issued(alice, application("Other"), server)[1], revision=handshake)
    exchange, news, others = calling(client), listening(client), listening(bystander)
    end(row, alice)
    client.run(check_revocations())
    assert exchange.wait().ended and news.wait().ended
    ended = Call.objects.get()
    assert (ended.state, ended.cancelled) == ("done", True)
    challenge_of(client.post(client.message("ping", {})))
    bystander.run(check_revocations())
    assert others.over == (end in OF_EVERY_CLIENT)


@pytest.mark.parametrize("end", REVOCATIONS, ids=lambda end: end.__name__)
def test_revocation_cancels_calls_without_a_session(connect, alice, public_client, server, end):
    """T24, T22: the same in 2026-07-28."""
    row, secret = issued(alice, public_client, server)
    client = connect(secret)
    exchange = calling(client)
    listens = client.start("subscriptions/listen", notifications={"toolsListChanged": True})
    listens.until(lambda: listens.is_stream)
    end(row, alice)
    client.run(check_revocations())
    assert exchange.wait().ended and listens.wait().ended
    assert not any("result" in message for message in exchange.messages)


def test_refresh_keeps_open_calls(connect, alice, public_client, server, gate):
    """T24: a client that refreshes its token keeps its open calls."""
    row, secret = issued(alice, public_client, server)
    refresh(alice, public_client, row)
    client = connect(secret, revision="2025-11-25")
    exchange = calling(client)
    row.delete()  # as a refresh does
    client.run(check_revocations())
    issued(alice, public_client, server)
    client.run(check_revocations())
    gate.set()
    assert exchange.wait().messages[-1]["result"]["content"][0]["text"] == "waited for alice"


def test_revocations_are_checked_periodically(shared_db, http, server, monkeypatch):
    """T24: within seconds, without any request."""
    monkeypatch.setattr(module, "CHECK_INTERVAL_SECONDS", 0.05)
    alice = get_user_model().objects.create_user("carol")
    row, secret = issued(alice, application(), server)
    client = http(secret, server=server, revision="2025-11-25", more={"host": "shop.example"})
    exchange = calling(client)
    row.delete()
    assert exchange.wait().ended


# The challenge.


def metadata_url(server) -> str:
    return f"{URL}{PR}/{server.path.replace(' ', '%20')}"


def test_challenge_contains_metadata_url_and_scope(connect, server, revision):
    """R3, R4: the document of this server, and the scope to ask for."""
    words = challenge_of(connect(None, revision=revision, initialize=False).start("tools/list"))
    assert words == {
        "realm": server.name, "resource_metadata": metadata_url(server), "scope": "mcp",
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["server", "other_server", "public_server"])
def test_bad_token_gets_a_challenge_even_on_a_public_server(connect, revision, kind, request):
    """R1, R3: a client that sends a token does not want to be anonymous."""
    at = request.getfixturevalue(kind)
    client = connect("bad", server=at, revision=revision, initialize=False)
    words = challenge_of(client.start("tools/list"))
    assert words["error"] == "invalid_token"
    assert (words["resource_metadata"], words["scope"]) == (metadata_url(at), "mcp")


def test_public_server_needs_no_token(connect, public_server, revision):
    """R1: though it has a metadata document."""
    client = connect(None, server=public_server, revision=revision)
    assert client.text("hello") == "hello"


def test_metadata_url_of_the_challenge_leads_to_the_issuer(connect, web, server):
    """R2, R3: the document names the authorization server, whose metadata has that issuer."""
    where = challenge_of(connect(None).start("tools/list"))["resource_metadata"]
    found = json.loads(web.get(where.removeprefix(URL)).content)
    assert found["resource"] == f"{URL}/mcp/a%20test's%20own"
    (issuer,) = found["authorization_servers"]
    assert json.loads(web.get(AS).content)["issuer"] == issuer


@pytest.mark.parametrize("shown", [None, "Bearer bad"])
@pytest.mark.parametrize(
    ("method", "headers"),
    [
        ("GET", {}), ("GET", {"accept": "application/json"}), ("DELETE", {}), ("POST", {}),
        ("POST", {"content-type": "text/plain"}), ("POST", {"content-type": "application/json"}),
    ],
)  # fmt: skip
def test_any_request_without_a_valid_token_gets_a_challenge(connect, method, headers, shown):
    """R1: before anything else of the request is checked."""
    client = connect(None, initialize=False)
    said = {"host": "shop.example", "authorization": shown, **headers}
    words = challenge_of(client.open(method, client.path, b"{", said))
    assert ("error" in words) == (shown is not None)


@pytest.mark.parametrize("shown", [None, "bad"])
@pytest.mark.parametrize("end", ["", "/"])
def test_resource_in_metadata_equals_the_requested_url(connect, web, server, end, shown):
    """R3: "identical to the URL that the client used" (RFC 9728, 3.3), or clients reject it."""
    client = connect(shown, initialize=False)
    client.path += end
    where = challenge_of(client.start("tools/list"))["resource_metadata"]
    found = json.loads(web.get(where.removeprefix(URL)).content)
    assert found["resource"] == metadata_url(server).replace(PR, "") + end


def test_scope_in_the_challenge_is_quoted(connect, server):
    """T27: quotes and line ends in the name of a scope stay within their quotes."""
    bad = 'mcp", error="x\r\nSet-Cookie: a=b\\'
    with given(SCOPES={bad: "?"}):
        words = challenge_of(connect(None).start("tools/list"))
    assert set(words) == {"realm", "resource_metadata", "scope"}
