"""Attacks on the MCP endpoint by whoever holds some token, or none, over the real transport."""

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
from django_mcp.calls.callers import revocations
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
LIFE = 2.0  # seconds in which a stream must have begun
STREAMED = [name for name, one in REVISIONS.items() if one.handshake]


@pytest.fixture(autouse=True)
def in_a_hurry():
    """Calls soon have a stream."""
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
def other():
    """Another server of the project's."""
    made = mcp.Server("other", path="mcp/other")

    @made.tool
    def whoami(request) -> str:
        return str(request.user.get_username())

    return made


@pytest.fixture
def open_to_all():
    """A server of which everything is for everybody."""
    made = mcp.Server("open", path="mcp/open")
    made.tool(lambda request: "hello", name="hello", permission=mcp.PUBLIC)
    return made


@pytest.fixture
def comes(http, server):
    """Makes clients that come to the shop's own host."""

    def made(token: str | None, **options: Any) -> HttpClient:
        more = {"host": "shop.example", **options.pop("more", {})}
        found: HttpClient = http(token, **{"server": server, "more": more} | options)
        return found

    return made


def challenged(talk) -> dict[str, str]:
    """What the challenge of an answer says, which must be one."""
    assert talk.wait().refused == (401, -32600), talk
    said = talk.headers["www-authenticate"]
    assert CHALLENGE.fullmatch(said)
    return dict(re.findall(r'([a-z_]+)="([^"]*)"', said))


def refused(comes, secret, **options):
    client = comes(secret, initialize=False, **options)
    words = challenged(client.start("tools/call", name="whoami", arguments={}))
    assert words["error"] == "invalid_token" and "audience" not in str(words)
    return True


# T5: tokens that are for something else.


OTHER = [f"{URL}/mcp/other"]
ELSEWHERE: dict[str, dict[str, Any]] = {
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


@pytest.mark.parametrize("what", ELSEWHERE)
def test_a_token_for_something_else(comes, alice, public_client, what):
    """T5: a token opens the server that it names, and no other."""
    assert refused(comes, issued(alice, public_client, **ELSEWHERE[what])[1])


def test_a_token_for_something_else_in_every_revision(
    comes, alice, public_client, server, other, revision
):
    """T5: the one of another server is no key to this one, and is one to its own."""
    secret = issued(alice, public_client, other)[1]
    assert refused(comes, secret, revision=revision)
    assert comes(secret, server=other, revision=revision).text("whoami") == "alice"


SCOPES = ["", "photos", "introspection", "openid profile", "mcp:", "MCP"]


@pytest.mark.parametrize("scope", [*SCOPES, "mcp oauth2_provider:registration"])
def test_a_token_of_the_projects_other_interfaces(comes, alice, public_client, server, scope):
    """T5: what was agreed to for photos is no permission to act by tools, whatever it names."""
    assert refused(comes, issued(alice, public_client, server, scope=scope)[1])


def test_a_registration_token_is_no_access_token(comes, alice, server):
    """T5: as django-oauth-toolkit issues it: until the year 9999, for nothing in particular."""
    client = application(registration_source="dcr", user=alice)
    secret = issued(
        alice, client, scope="oauth2_provider:registration",
        expires=timezone.now() + timedelta(days=300_000),
    )[1]  # fmt: skip
    assert refused(comes, secret)


def test_a_token_of_no_user(comes, alice, server):
    """T13: nobody comes in by a client that anybody may register for themselves."""
    for source in ("dcr", "cimd", "manual"):
        client = application(registration_source=source, user=alice, client_type="confidential")
        assert refused(comes, issued(None, client, server)[1])


# T8, T20, T21, T26: requests that are not what they seem.


def test_a_token_that_is_not_in_the_header(comes, alice, public_client, server):
    """T8: a token in the query, in a form, in the message or in a cookie is none."""
    secret = issued(alice, public_client, server)[1]
    client = comes(None)
    message = client.message("tools/call", {"name": "whoami", "arguments": {}})
    query = {"query_string": f"access_token={secret}".encode()}
    assert "error" not in challenged(client.post(message, scope=query))
    meta = {"_meta": {"access_token": secret, "authorization": f"Bearer {secret}"}}
    inside = client.message("tools/call", {"name": "whoami", "arguments": {}} | meta)
    assert "error" not in challenged(client.post(inside))
    assert "error" not in challenged(client.post(message, cookie=f"access_token={secret}"))
    form = client.post(
        f"access_token={secret}".encode(), content_type="application/x-www-form-urlencoded"
    )
    assert form.wait().status in (401, 415)


@pytest.mark.parametrize("scheme", ["Basic", "Token", "DPoP", "", "Bearer,"])
def test_a_token_by_another_scheme(comes, alice, public_client, server, scheme):
    """T8: and one that is shown as something else."""
    secret = issued(alice, public_client, server)[1]
    client = comes(None, more={"authorization": f"{scheme} {secret}".strip()}, initialize=False)
    assert "error" not in challenged(client.start("tools/list"))


def test_a_page_of_another_site(comes, alice, public_client, server):
    """T20: neither a host nor an origin that is not the project's own gets further."""
    secret = issued(alice, public_client, server)[1]
    client = comes(secret)
    message = client.message("tools/list", {})
    assert client.refusal(message, host="evil.example") == (400, -32600)
    assert client.refusal(message, origin="https://evil.example") == (403, -32600)
    assert client.refusal(message, origin="null") == (403, -32600)
    for origin in (None, URL):
        assert client.post(message, origin=origin).wait().status == 200


LOCAL = ["http://localhost", "http://localhost:6274", "http://127.0.0.1:8000", "http://[::1]"]


@pytest.mark.parametrize("origin", LOCAL)
def test_a_page_of_this_machine_is_another_site(comes, alice, public_client, server, origin):
    """T20: unless this is development, where the project has named no host of its own."""
    client = comes(issued(alice, public_client, server)[1])
    message, host = client.message("tools/list", {}), origin.removeprefix("http://")
    assert client.refusal(message, origin=origin) == (403, -32600)
    assert client.refusal(message, host=host, origin=origin) == (400, -32600)
    with override_settings(DEBUG=True, ALLOWED_HOSTS=[]):
        assert client.post(message, host=host, origin=origin).wait().status == 200
        evil = f"{origin}.evil.example"
        assert client.refusal(message, host=host, origin=evil) == (403, -32600)


def test_a_name_that_was_made_ours_is_another_site(comes, alice, public_client, server):
    """T20: where every host is allowed, a page of a host that leads here is not the project's."""
    client = comes(issued(alice, public_client, server)[1])
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


def test_pages_of_trusted_origins_alone_may_call(comes, server):
    """T21: a preflight of the endpoint needs no token, and tells no other page a thing."""
    client = comes(None)
    ours = client.send("OPTIONS", client.path, headers=client.headers(origin=URL) | ASKS)
    assert (ours.status, ours.headers["access-control-allow-origin"]) == (204, URL)
    assert "authorization" in ours.headers["access-control-allow-headers"]
    evil = client.send("OPTIONS", client.path, headers=client.headers(**PAGE) | ASKS)
    assert evil.status == 403
    for talk in (ours, evil):
        assert "access-control-allow-credentials" not in talk.headers
    assert not [name for name in evil.headers if name.startswith("access-control")]


def test_what_a_page_may_read_of_a_refusal(comes, server):
    """T21: the page of a trusted origin sees the challenge; no other page sees anything."""
    client = comes(None)
    message = client.message("tools/list", {})
    talk = client.post(message, origin=URL).wait()
    assert talk.status == 401 and talk.headers["access-control-allow-origin"] == URL
    assert "www-authenticate" in talk.headers["access-control-expose-headers"]
    assert "access-control-allow-credentials" not in talk.headers
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
def test_another_host_that_is_allowed_changes_no_document(web, server, forged, secure):
    """T26: metadata is the same to everybody, whichever name they came by."""
    hosts = override_settings(
        ALLOWED_HOSTS=["*"], USE_X_FORWARDED_HOST=True, USE_X_FORWARDED_PORT=True,
        SECURE_PROXY_SSL_HEADER=("HTTP_X_FORWARDED_PROTO", "https"),
    )  # fmt: skip
    for where in (AS, PR, PR + "/mcp/a test's own", OIDC):
        usual = web.get(where).content
        with hosts:
            assert web.get(where, headers=forged, secure=secure).content == usual


def test_a_forged_host_changes_no_challenge(comes, server):
    """T26: nor does it change where tokens are said to be had."""
    with override_settings(ALLOWED_HOSTS=["*"], USE_X_FORWARDED_HOST=True):
        for forged in ({"host": "evil.example"}, {"x_forwarded_host": "evil.example"}):
            client = comes(None)
            words = challenged(client.post(client.message("tools/list", {}), **forged))
            assert words["resource_metadata"].startswith(f"{URL}/.well-known/")


# T9: sessions.


@pytest.fixture
def pair(comes, alice, bob, public_client, server):
    """A session of alice's, and tokens of others by what each is."""
    client = comes(issued(alice, public_client, server)[1], revision="2025-11-25")
    client.secrets = {
        "another user": issued(bob, public_client, server)[1],
        "another client": issued(alice, application("Other"), server)[1],
        "both": issued(bob, application("Third"), server)[1],
        "refreshed": issued(alice, public_client, server)[1],
    }
    return client


def visiting(client, token):
    """By each method, what becomes of whoever shows the session and this token, or none."""
    shown = {"authorization": token and f"Bearer {token}"}
    message = client.message("tools/call", {"name": "whoami", "arguments": {}})
    yield client.post(message, **shown).wait()
    yield client.listen(**shown).wait()
    yield client.send("DELETE", client.path, headers=client.headers(**shown))


@pytest.mark.parametrize("who", ["another user", "another client", "both"])
def test_a_session_is_its_users_and_its_clients_alone(pair, who, caplog):
    """T9: to anybody else it is not there, and it is none the worse for it; the log has who."""
    before, secret = Session.objects.get(), pair.secrets[who]
    assert [talk.status for talk in visiting(pair, secret)] == [404, 404, 404]
    told = [one for one in caplog.records if one.levelname == "WARNING"]
    assert [one.args[:2] for one in told] == [(before.pk, before.owner)] * 3
    assert all(one.args[2] not in (before.owner, "nobody") for one in told)
    assert not any(one in caplog.text for one in (secret, pair.token, pair.session))
    after = Session.objects.get()
    assert (after.owner, after.pk) == (before.owner, before.pk)
    assert pair.text("whoami") == "alice"


def test_a_session_is_no_credential(pair):
    """T9: by its id alone nobody comes in."""
    assert [talk.status for talk in visiting(pair, None)] == [401, 401, 401]
    assert [talk.status for talk in visiting(pair, "guessed")] == [401, 401, 401]
    assert pair.text("whoami") == "alice"


def test_a_session_goes_on_with_a_refreshed_token(pair):
    """T9: what one client was given for one user is one caller, however often it was renewed."""
    pair.token = pair.secrets["refreshed"]
    assert pair.text("whoami") == "alice"


def test_without_sessions_the_header_is_nobody(comes, pair):
    """T9: from 2026-07-28 on whose session is named makes no difference."""
    client = comes(pair.secrets["another user"], more={"mcp-session-id": pair.session})
    assert client.text("whoami") == "bob"


@pytest.fixture
def asking(server):
    @server.tool
    def sure(request) -> str:
        return f"{request.user}: {request.elicit('Sure?')}"

    return server


def test_the_state_of_a_call_is_its_users_and_its_clients_alone(
    comes, alice, bob, public_client, asking
):
    """T9: what a call left with its client, which sends it back, is worth nothing to another."""
    arguments: dict[str, Any] = {"name": "sure", "arguments": {}}
    client = comes(issued(alice, public_client, asking)[1])
    (asked,) = client.start("tools/call", **arguments).wait().messages
    (key,) = asked["result"]["inputRequests"]
    yes = {key: {"action": "accept", "content": {"answer": True}}}
    arguments |= {"requestState": asked["result"]["requestState"], "inputResponses": yes}
    others = (bob, public_client), (alice, application("Other")), (bob, application("Third"))
    for user, other in others:
        talk = comes(issued(user, other, asking)[1]).start("tools/call", **arguments).wait()
        assert "result" not in talk.messages[0] and talk.error["code"] == -32602
    refreshed = comes(issued(alice, public_client, asking)[1]).start("tools/call", **arguments)
    assert "alice: True" in str(refreshed.wait().messages[0]["result"])


# T22, T24: what ends while it goes on.


def calling(client):
    meta = {"_meta": {"progressToken": "t"}}
    talk = client.start("tools/call", name="wait", arguments={}, **meta)
    talk.until(lambda: talk.is_stream and talk.messages)
    return talk


def listening(client, last=None):
    talk = client.listen(last)
    return talk.until(lambda: talk.is_stream) and talk


@pytest.fixture
def lasting(comes, alice, public_client, server):
    def made(revision):
        row, secret = issued(alice, public_client, server)
        client = comes(secret, revision=revision)
        # After the handshake, which may take long on a busy machine.
        row.expires = timezone.now() + timedelta(seconds=LIFE)
        row.save(update_fields=["expires"])
        client.fresh = lambda: issued(alice, public_client, server)[1]
        client.row = row
        return client

    return made


@pytest.mark.slow
def test_a_stream_ends_with_its_token_and_is_resumed_by_a_fresh_one(lasting, handshake):
    """T24: the connection is closed; the old token is refused, the same caller's next is not."""
    client = lasting(handshake)
    assert listening(client).wait().status == 200
    assert timezone.now() >= client.row.expires
    assert "invalid_token" in challenged(client.listen())["error"]
    client.token = client.fresh()
    assert listening(client).status == 200


@pytest.mark.slow
def test_a_call_outlives_the_token_and_only_its_caller_fetches_the_result(lasting, gate, bob):
    """T24: what was begun goes on; its result is for a fresh token of the same owner alone."""
    client = lasting("2025-11-25")
    talk = calling(client)
    talk.wait()
    last = [event.id for event in talk.sse.found if event.id][-1]
    assert Call.objects.get().state == "running"
    challenged(client.listen(last))
    client.token = issued(bob, client.row.application, client.server)[1]
    assert client.listen(last).wait().status == 404
    client.token = client.fresh()
    rest = listening(client, last)
    gate.set()
    assert rest.wait().messages[-1]["result"]["content"][0]["text"] == "waited for alice"


@pytest.mark.slow
def test_a_subscription_ends_with_its_token(lasting):
    """T24: the same for the streams of 2026-07-28."""
    client = lasting("2026-07-28")
    talk = client.start("subscriptions/listen", notifications={"toolsListChanged": True})
    talk.until(lambda: talk.is_stream)
    assert talk.wait().ended and timezone.now() >= client.row.expires
    again = client.start("subscriptions/listen", notifications={"toolsListChanged": True})
    challenged(again)


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


ENDINGS = [revoke, refuse_user, change_password, block, delete_client]
OF_EVERY_CLIENT = (refuse_user, change_password)


async def look():
    await revocations().look()


@pytest.mark.parametrize("end", ENDINGS, ids=lambda end: end.__name__)
def test_what_was_taken_back_ends_what_goes_on(comes, alice, public_client, server, handshake, end):
    """T24, T22: calls are cancelled and streams end at the next look, and nobody else's."""
    row, secret = issued(alice, public_client, server)
    client = comes(secret, revision=handshake)
    bystander = comes(issued(alice, application("Other"), server)[1], revision=handshake)
    talk, news, others = calling(client), listening(client), listening(bystander)
    end(row, alice)
    client.run(look())
    assert talk.wait().ended and news.wait().ended
    ended = Call.objects.get()
    assert (ended.state, ended.cancelled) == ("done", True)
    challenged(client.post(client.message("ping", {})))
    bystander.run(look())
    assert others.over == (end in OF_EVERY_CLIENT)


@pytest.mark.parametrize("end", ENDINGS, ids=lambda end: end.__name__)
def test_what_was_taken_back_ends_a_call_without_a_session(
    comes, alice, public_client, server, end
):
    """T24, T22: the same in 2026-07-28."""
    row, secret = issued(alice, public_client, server)
    client = comes(secret)
    talk = calling(client)
    listens = client.start("subscriptions/listen", notifications={"toolsListChanged": True})
    listens.until(lambda: listens.is_stream)
    end(row, alice)
    client.run(look())
    assert talk.wait().ended and listens.wait().ended
    assert not any("result" in message for message in talk.messages)


def test_a_rotation_takes_nothing_back(comes, alice, public_client, server, gate):
    """T24: a client that renews its token keeps what it has open."""
    row, secret = issued(alice, public_client, server)
    refresh(alice, public_client, row)
    client = comes(secret, revision="2025-11-25")
    talk = calling(client)
    row.delete()  # as a rotation does
    client.run(look())
    issued(alice, public_client, server)
    client.run(look())
    gate.set()
    assert talk.wait().messages[-1]["result"]["content"][0]["text"] == "waited for alice"


def test_it_is_looked_at_by_itself(shared_db, http, server, monkeypatch):
    """T24: within seconds, without anybody who asks."""
    monkeypatch.setattr(module, "CHECK_INTERVAL_SECONDS", 0.05)
    alice = get_user_model().objects.create_user("carol")
    row, secret = issued(alice, application(), server)
    client = http(secret, server=server, revision="2025-11-25", more={"host": "shop.example"})
    talk = calling(client)
    row.delete()
    assert talk.wait().ended


# The challenge.


def where_of(server) -> str:
    return f"{URL}{PR}/{server.path.replace(' ', '%20')}"


def test_whoever_shows_no_token_is_told_where_to_get_one(comes, server, revision):
    """R3, R4: the document of this very server, and the scope to ask for."""
    words = challenged(comes(None, revision=revision, initialize=False).start("tools/list"))
    assert words == {
        "realm": server.name, "resource_metadata": where_of(server), "scope": "mcp",
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["server", "other", "open_to_all"])
def test_whoever_shows_a_bad_token_is_told_the_same(comes, revision, kind, request):
    """R1, R3: also where everything is for everybody: who shows a token means to be somebody."""
    at = request.getfixturevalue(kind)
    client = comes("bad", server=at, revision=revision, initialize=False)
    words = challenged(client.start("tools/list"))
    assert words["error"] == "invalid_token"
    assert (words["resource_metadata"], words["scope"]) == (where_of(at), "mcp")


def test_where_all_is_for_everybody_nobody_is_asked(comes, open_to_all, revision):
    """R1: and its document is there all the same."""
    client = comes(None, server=open_to_all, revision=revision)
    assert client.text("hello") == "hello"


def test_the_document_that_the_challenge_names_is_there(comes, web, server):
    """R2, R3: and leads to the authorization server's, whose issuer is the one it names."""
    where = challenged(comes(None).start("tools/list"))["resource_metadata"]
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
def test_who_only_looks_whether_a_token_is_needed_is_told(comes, method, headers, shown):
    """R1: whatever else is wrong with the request. Nothing of it is looked at before."""
    client = comes(None, initialize=False)
    said = {"host": "shop.example", "authorization": shown, **headers}
    words = challenged(client.open(method, client.path, b"{", said))
    assert ("error" in words) == (shown is not None)


@pytest.mark.parametrize("shown", [None, "bad"])
@pytest.mark.parametrize("end", ["", "/"])
def test_that_document_names_the_server_as_it_was_asked(comes, web, server, end, shown):
    """R3: "identical to the URL that the client used" (RFC 9728, 3.3), or clients go no further."""
    client = comes(shown, initialize=False)
    client.path += end
    where = challenged(client.start("tools/list"))["resource_metadata"]
    found = json.loads(web.get(where.removeprefix(URL)).content)
    assert found["resource"] == where_of(server).replace(PR, "") + end


def test_nothing_of_a_scope_breaks_out_of_the_challenge(comes, server):
    """T27: quotes and line ends of the project's own words stay within their quotes."""
    bad = 'mcp", error="x\r\nSet-Cookie: a=b\\'
    with given(SCOPES={bad: "?"}):
        words = challenged(comes(None).start("tools/list"))
    assert set(words) == {"realm", "resource_metadata", "scope"}
