"""Attacks over HTTP by anonymous clients, former users, greedy clients and other users."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import uuid
from contextlib import suppress
from datetime import timedelta

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db import OperationalError

import django_mcp as mcp
from django_mcp.declarations import server as declared
from django_mcp.models import Ask, Call, Event, Session, Step, Token
from django_mcp.runtime import threads
from django_mcp.storage import calls
from django_mcp.storage.databases import rows
from django_mcp.transports.http.request import Exchange
from django_mcp.transports.http.stateless import ListenResponse
from tests.storage.rows import given

pytestmark = pytest.mark.django_db
NEWEST_SESSION, LATEST = "2025-11-25", "2026-07-28"
BOTH = pytest.mark.parametrize("revision", [NEWEST_SESSION, LATEST])
WORD = "hunter2"  # a secret
HELLO = {
    "protocolVersion": NEWEST_SESSION, "capabilities": {},
    "clientInfo": {"name": "x", "version": "1"},
}  # fmt: skip


@pytest.fixture
def set_options(settings):
    """Changes keys of the one setting."""

    def set_options(**keys):
        settings.DJANGO_MCP = {**settings.DJANGO_MCP, **keys}

    return set_options


def token_of(user, **options):
    return Token.make(user, "x", **options)[1]


def distinguishable_parts(exchange):
    """Return everything of a response that a caller can distinguish."""
    exchange.wait()
    headers = {k: v for k, v in exchange.headers.items() if k not in ("date", "content-length")}
    return exchange.status, headers, exchange.messages


def called(client, name, *, id=1, **arguments):
    return client.start("tools/call", id=id, name=name, arguments=arguments)


# A forbidden declaration must look like a missing one.


@pytest.fixture
def guarded_server(server):
    """Tools that Bob may not use, one of each kind, and a public one."""

    @server.tool(permission=mcp.PUBLIC)
    def hello(request) -> str:
        return "hello"

    @server.tool(permission="shop.change_invoice")
    def plain(request) -> str:
        return WORD

    @server.tool(permission="shop.change_invoice", durable=True)
    def kept(request) -> str:
        return WORD

    @server.tool(permission="shop.change_invoice", durable=True)
    async def kept_too(request) -> str:
        return WORD

    @server.tool(permission=lambda request: request.user.username == "alice", durable=True)
    def asked(request) -> str:
        return WORD

    @server.tool(permission=lambda request: 1 / 0, durable=True)
    def broken(request) -> str:
        return WORD

    return server


@BOTH
@pytest.mark.parametrize("name", ["plain", "kept", "kept_too", "asked"])
@pytest.mark.parametrize("durable", [False, True])
def test_forbidden_tool_looks_like_a_missing_one(
    http, guarded_server, bob, revision, name, durable
):
    """Attack: call guessed names, and compare the kinds of response."""
    guarded_server.durable = durable
    client = http(token_of(bob), server=guarded_server, revision=revision)
    with given(JSON_GRACE=60):  # regardless of the time
        there, missing = (
            distinguishable_parts(called(client, one)) for one in (name, "x" * len(name))
        )
    assert json.dumps(there).replace(name, "") == json.dumps(missing).replace("x" * len(name), "")


def test_permitted_durable_tools_still_work(http, guarded_server, alice):
    client = http(token_of(alice), server=guarded_server, revision=NEWEST_SESSION)
    for name in ("kept", "kept_too", "asked"):
        exchange = called(client, name, id=name).wait()
        assert exchange.is_stream and WORD in json.dumps(exchange.messages)
    exchange = called(client, "broken", id="broken").wait()
    assert "division" not in exchange.body.decode() and not exchange.is_stream


# Revoked tokens, inactive users and removed permissions.


@pytest.fixture
def server_with_questions(server):
    """Tools that ask before they act. ``server._done`` records what they did."""
    server._done = []

    @server.tool(permission="shop.change_invoice")
    def pay(request, secret: str = "") -> str:
        sure = request.elicit("Sure?", bool)
        server._done.append((request.user.username, sure, request.auth))
        return "paid"

    @server.tool(permission=mcp.PUBLIC)
    def knock(request) -> str:
        with suppress(mcp.TimedOut):
            request.elicit("Who is there?", str, key="who")
        server._done.append((request.user.username, request.auth))
        return "come in"

    return server


def start_and_wait_for_question(client, name, **arguments):
    """Start a call, wait for its question, and return both."""
    exchange = called(client, name, **arguments)
    client.until(lambda: client.asked)
    return exchange, client.asked[-1]


def answer(client, asked, content=None):
    result = {"action": "accept", "content": content or {"answer": True}}
    return client.post({"jsonrpc": "2.0", "id": asked["id"], "result": result}).wait()


def expire_question(client, exchange):
    """Expire the question, and return the finished response."""
    rows(Ask).update(deadline="2000-01-01T00:00:00Z")
    return exchange.wait()


@pytest.mark.parametrize("gone", ["revoked", "inactive"])
def test_answer_with_a_revoked_token_or_inactive_user_is_rejected(
    http, server_with_questions, alice, gone
):
    client = http(token_of(alice), server=server_with_questions, revision=NEWEST_SESSION)
    exchange, asked = start_and_wait_for_question(client, "pay")
    if gone == "revoked":
        Token.objects.update(revoked="2000-01-01T00:00:00Z")
    else:
        User.objects.update(is_active=False)
    assert answer(client, asked).status == 401
    client.sleep(0.05)
    assert server_with_questions._done == [] and rows(Ask).get().open
    exchange.leave()


@pytest.mark.parametrize("tool", ["pay", "knock"])
def test_waiting_call_is_cancelled_if_its_user_becomes_inactive(
    http, server_with_questions, alice, tool, set_options
):
    """Attack: start calls while permitted, and let them act afterwards."""
    set_options(SCOPES={"all": mcp.Scope("Everything", covers=["*"])})
    client = http(
        token_of(alice, scopes=["all"]), server=server_with_questions, revision=NEWEST_SESSION
    )
    exchange, _ = start_and_wait_for_question(client, tool)
    User.objects.update(is_active=False)
    expire_question(client, exchange)
    assert server_with_questions._done == [] and rows(Call).get().cancelled
    assert not any("result" in message or "error" in message for message in exchange.messages)


def test_call_fails_if_the_permission_is_removed_during_a_question(
    http, server_with_questions, alice
):
    client = http(token_of(alice), server=server_with_questions, revision=NEWEST_SESSION)
    exchange, asked = start_and_wait_for_question(client, "pay")
    alice.user_permissions.clear()
    assert answer(client, asked).status == 202
    assert "Unknown tool" in str(exchange.wait().messages[-1]) and server_with_questions._done == []


def test_call_fails_if_the_permission_is_removed_between_rounds(http, server_with_questions, alice):
    client = http(token_of(alice), server=server_with_questions)
    asked = client.request("tools/call", name="pay", arguments={})
    alice.user_permissions.clear()
    exchange = client.start(
        "tools/call", name="pay", arguments={}, requestState=asked["requestState"],
        inputResponses={key: {"action": "accept", "content": {"answer": True}}
                        for key in asked["inputRequests"]},
    )  # fmt: skip
    assert "Unknown tool" in str(exchange.wait().messages) and server_with_questions._done == []


@pytest.fixture
def server_with_resource(server, alice):
    """A resource that needs a permission."""

    @server.resource("ledger://{page}", permission="shop.change_invoice")
    def ledger(request, page: str) -> str:
        return page

    return server


def subscribe(client, *uris):
    exchange = client.start(
        "subscriptions/listen", notifications={"resourceSubscriptions": [*uris]}
    )
    exchange.until(lambda: exchange.messages)
    return exchange


def announce_change(client, uri):
    """Announce a change as asynchronous code does."""

    async def now():
        await asyncio.sleep(0.03)  # the verified token is no longer cached
        mcp.notify_changed(uri, server=client.server)

    client.run(now())


def received_updates(exchange):
    return [one for one in exchange.messages if one.get("method", "").endswith("resources/updated")]


def test_subscriber_without_the_permission_gets_at_most_one_more_update(
    http, server_with_resource, alice, monkeypatch
):
    """Attack: stay subscribed after the permission was removed.

    The one update tells of the removal.
    """
    monkeypatch.setattr("django_mcp.transports.http.stateless.VERIFIED_SECONDS", 0.02)
    client = http(token_of(alice), server=server_with_resource)
    exchange = subscribe(client, "ledger://1")
    announce_change(client, "ledger://1")
    exchange.until(lambda: len(received_updates(exchange)) == 1)
    alice.user_permissions.clear()
    for _ in range(3):
        announce_change(client, "ledger://1")
        client.sleep(0.05)
    assert len(received_updates(exchange)) == 2
    exchange.leave()


@pytest.mark.parametrize("gone", ["revoked", "inactive"])
def test_subscriber_with_a_revoked_token_gets_no_updates(
    http, server_with_resource, alice, gone, monkeypatch
):
    monkeypatch.setattr("django_mcp.transports.http.stateless.VERIFIED_SECONDS", 0.02)
    client = http(token_of(alice), server=server_with_resource)
    exchange = subscribe(client, "ledger://1")
    changes = {gone: "2000-01-01T00:00:00Z"}
    {
        "revoked": lambda: Token.objects.update(**changes),
        "inactive": lambda: User.objects.update(is_active=False),
    }[gone]()
    announce_change(client, "ledger://1")
    assert received_updates(exchange.wait()) == []


@pytest.mark.parametrize("error", [OperationalError("gone"), RuntimeError("a bug")])
def test_subscriber_gets_no_updates_while_the_verifier_fails(
    http, server_with_resource, alice, error, monkeypatch
):
    """It gets them when the verifier works again."""
    monkeypatch.setattr("django_mcp.transports.http.stateless.VERIFIED_SECONDS", 0.02)
    monkeypatch.setattr("django_mcp.transports.http.stateless.BUSY_RETRY_SECONDS", 0.01)
    client = http(token_of(alice), server=server_with_resource)
    exchange = subscribe(client, "ledger://1")
    with monkeypatch.context() as broken:

        def fail(*args):
            raise error

        for name in ("lookup", "still_valid"):
            broken.setattr(f"django_mcp.verifiers.PersonalAccessTokens.{name}", fail)
        announce_change(client, "ledger://1")
        client.sleep(0.1)
        assert received_updates(exchange) == []
    exchange.until(lambda: len(received_updates(exchange)) == 1)
    exchange.leave()


# Greedy clients: everything that they can make grow is limited.


@pytest.fixture
def server_with_step(server):
    """A tool that remembers a step and then asks."""

    @server.tool(permission=mcp.PUBLIC)
    def stepwise(request) -> str:
        request.once("step", lambda: "x" * 1000)
        request.elicit("Go on?", bool)
        return "done"

    return server


def cancel(client, id):
    client.notify("notifications/cancelled", requestId=id)


def test_cancelled_call_deletes_its_steps(http, server_with_step):
    """Attack: remember steps and cancel, until no call can remember any."""
    client = http(server=server_with_step, revision=NEWEST_SESSION)
    for number in range(3):
        client.asked.clear()
        exchange, _ = start_and_wait_for_question(client, "stepwise", id=f"step-{number}")
        assert rows(Step).count() == 1
        cancel(client, f"step-{number}")
        exchange.wait()
        assert rows(Step).count() == 0


LONG = "x" * 100_000


@pytest.mark.parametrize("info", [
    {"clientInfo": {"name": LONG, "version": "1"}},
    {"clientInfo": {"name": "x", "version": "1", "more": [{} for _ in range(50_000)]}},
    {"capabilities": {"experimental": {"x": {"y": LONG}}}},
])  # fmt: skip
def test_large_client_info_is_rejected(http, server_with_step, info):
    """Attack: megabytes in the handshake, stored and read again with every request."""
    client = http(server=server_with_step, revision=NEWEST_SESSION, initialize=False)
    exchange = client.start("initialize", **(HELLO | info)).wait()
    assert exchange.status == 413 and "mcp-session-id" not in exchange.headers
    assert not rows(Session).exists()


@BOTH
def test_long_request_id_is_rejected(http, server_with_step, revision):
    """Attack: an id of megabytes, stored with its call and repeated in its response."""
    client = http(server=server_with_step, revision=revision)
    for id in (LONG, "x" * 1001):
        exchange = called(client, "stepwise", id=id).wait()
        assert exchange.status == 400 and "xxx" not in exchange.body.decode()
    assert called(client, "nothing", id="x" * 1000).wait().status == 200


@pytest.mark.slow
def test_number_of_stored_cancellations_is_limited(http, server_with_step, monkeypatch):
    """Attack: cancel calls that do not exist."""
    # By default they live for two seconds, in which a busy machine cannot send 100.
    monkeypatch.setattr(calls, "cancel_lifetime", lambda: timedelta(hours=1))
    client = http(server=server_with_step, revision=NEWEST_SESSION)
    for number in range(120):
        cancel(client, f"never-{number}")
    assert rows(Call).count() == 100
    cancel(client, LONG)
    assert rows(Call).count() == 100 and LONG not in str(rows(Call).values_list())


def test_long_progress_token_is_rejected(http):
    """Attack: a token of megabytes, repeated with every progress notification."""
    for revision in (NEWEST_SESSION, LATEST):
        client = http(revision=revision)
        params = {"name": "slow_add", "arguments": {"a": 1, "b": 2}}
        exchange = client.start("tools/call", **params, _meta={"progressToken": LONG}).wait()
        assert exchange.error["code"] == -32602 and "xxx" not in exchange.body.decode()
    assert not rows(Event).exists()


# Failing and overloaded verifiers.


class ScopedVerifier:
    """Accepts tokens such as ``user+scopes``, all of one application."""

    async def verify(self, token, server):
        name, _, scopes = token.partition("+")
        user = await User.objects.filter(username=name).afirst()
        return user and mcp.Principal(user, mcp.Auth(frozenset(scopes.split()), key="app"))


class BrokenVerifier:
    error: Exception

    async def verify(self, token, server):
        raise self.error


class SlowVerifier:
    """Waits in a thread until it is released."""

    go = threading.Event()
    there = most = 0

    async def verify(self, token, server):
        return await sync_to_async(self._asked)()

    def _asked(self):
        SlowVerifier.there += 1
        SlowVerifier.most = max(SlowVerifier.most, SlowVerifier.there)
        self.go.wait(10)
        SlowVerifier.there -= 1


def verifiers(set_options, *kinds):
    set_options(VERIFIERS=[f"{__name__}.{kind.__name__}" for kind in kinds])


@BOTH
@pytest.mark.parametrize("error", [RuntimeError, PermissionError, KeyError])
@pytest.mark.parametrize("tool", ["hello", "plain"])
def test_failing_verifier_is_a_500_without_details(
    http, guarded_server, set_options, revision, error, tool
):
    verifiers(set_options, BrokenVerifier)
    BrokenVerifier.error = error(WORD)
    client = http("x", server=guarded_server, revision=revision, initialize=False)
    if revision == NEWEST_SESSION:
        exchange = client.start("initialize", **HELLO).wait()
        assert not rows(Session).exists()
    else:
        exchange = called(client, tool).wait()
    assert exchange.status == 500 and WORD not in exchange.body.decode()


@BOTH
@pytest.mark.parametrize(
    "place", ["verifiers.PersonalAccessTokens.lookup", "storage.sessions.find_all"]
)
def test_unavailable_database_is_a_503(http, guarded_server, alice, revision, place, monkeypatch):
    client = http(token_of(alice), server=guarded_server, revision=revision)

    def gone(*args):
        raise OperationalError(f"{WORD}: connection refused")

    monkeypatch.setattr(f"django_mcp.{place}", gone)
    exchange = called(client, "hello").wait()
    if revision == LATEST and "find" in place:
        assert exchange.status == 200  # it needs no session
        return
    assert exchange.status == 503 and "retry-after" in exchange.headers
    assert WORD not in exchange.body.decode() and "hello" not in exchange.body.decode()


def test_many_invalid_tokens_do_not_use_up_the_threads(http, guarded_server, set_options):
    """Attack: a thousand requests with any token, each with a thread and a connection."""
    verifiers(set_options, SlowVerifier)
    set_options(THREADS=3, QUEUE=5)
    threads.verifiers.shutdown()
    SlowVerifier.go.clear()
    SlowVerifier.there = SlowVerifier.most = 0
    client = http("x", server=guarded_server)
    exchanges = [called(client, "hello", id=n) for n in range(20)]
    client.until(lambda: sum(exchange.over for exchange in exchanges) >= 12)
    SlowVerifier.go.set()
    statuses = sorted(exchange.wait().status for exchange in exchanges)
    assert SlowVerifier.most <= 3 and statuses == [401] * 8 + [503] * 12


# Tokens of one application with different scopes share a session, but not a call.


@pytest.fixture
def server_with_scope(server, set_options, alice):
    """Tools that need a scope. ``server._done`` records what they did."""
    verifiers(set_options, ScopedVerifier)
    set_options(SCOPES={"write": mcp.Scope("Write", covers=["*"])})
    server._done = []

    def may_write(request):
        return "write" in request.auth.scopes

    @server.tool(permission=may_write)
    def erase(request) -> str:
        sure = request.elicit("Sure?", bool)
        server._done.append(sure)
        return WORD

    @server.tool(permission=may_write, durable=True)
    def read_all(request) -> str:
        return WORD

    @server.resource("ledger://{page}", permission=may_write)
    def ledger(request, page: str) -> str:
        return page

    return server


@pytest.fixture(params=["", "read"])
def narrow_scopes(request):
    """The scopes of a token that may not write."""
    return request.param


def client_with_narrow_token(http, client, scopes):
    """Return a client of the same session, with a token that allows less."""
    other = http(f"alice+{scopes}", server=client.server, revision=NEWEST_SESSION, initialize=False)
    other.session = client.session
    return other


def test_token_with_fewer_scopes_cannot_answer_a_question(http, server_with_scope, narrow_scopes):
    """Attack: steal the weaker token, and answer a question of the stronger one."""
    client = http("alice+write", server=server_with_scope, revision=NEWEST_SESSION)
    exchange, asked = start_and_wait_for_question(client, "erase")
    other = client_with_narrow_token(http, client, narrow_scopes)
    answer(other, asked)
    other.sleep(0.05)
    assert server_with_scope._done == [] and rows(Ask).get().open
    answer(client, asked)
    assert WORD in str(exchange.wait().messages[-1]) and server_with_scope._done == [True]


def test_token_with_fewer_scopes_cannot_cancel(http, server_with_scope, narrow_scopes):
    client = http("alice+write", server=server_with_scope, revision=NEWEST_SESSION)
    exchange, asked = start_and_wait_for_question(client, "erase", id="mine")
    cancel(client_with_narrow_token(http, client, narrow_scopes), "mine")
    client.sleep(0.05)
    assert not exchange.over and rows(Ask).get().open
    answer(client, asked)
    assert WORD in str(exchange.wait().messages[-1])


def test_token_with_fewer_scopes_cannot_replay_a_stream(http, server_with_scope, narrow_scopes):
    """Attack: read the stored response of the stronger token."""
    client = http("alice+write", server=server_with_scope, revision=NEWEST_SESSION)
    exchange = called(client, "read_all").wait()
    first = exchange.sse.found[0].id
    other = client_with_narrow_token(http, client, narrow_scopes).listen(first).wait()
    assert other.status == 400 and WORD not in other.body.decode()
    assert WORD in client.listen(first).wait().body.decode()


def test_updates_are_sent_with_the_scopes_of_the_subscribing_token(http, server_with_scope):
    """A subscription of a session is checked with its token, and not without one."""
    client = http("alice+write", server=server_with_scope, revision=NEWEST_SESSION)
    assert client.request("resources/subscribe", uri="ledger://1") == {}
    stream = client.listen()
    client.until(lambda: stream.status)
    announce_change(client, "ledger://1")
    client.until(lambda: len(received_updates(stream)) == 1)
    announce_change(client, "ledger://1")
    client.until(lambda: len(received_updates(stream)) == 2)
    stream.leave()


# Many subscriptions.


@pytest.fixture
def public_server(server):
    """Resources to subscribe to, one of them public."""

    @server.resource("open://{name}", permission=mcp.PUBLIC)
    def opened(request, name: str) -> str:
        return name

    @server.resource("closed://{name}")
    def closed(request, name: str) -> str:
        return name

    return server


def test_subscriptions_per_principal_are_limited(http, public_server, alice, bob, monkeypatch):
    monkeypatch.setattr("django_mcp.transports.http.stateless.MAX_LISTENS_PER_PRINCIPAL", 3)
    greedy, nobody, other = (http(token, server=public_server) for token in (
        token_of(alice), None, token_of(bob),
    ))  # fmt: skip
    for client in (greedy, nobody):
        exchanges = [subscribe(client, "open://x") for _ in range(3)]
        assert client.start("subscriptions/listen", notifications={}).wait().status == 503
        assert subscribe(other, "open://x").status == 200
        exchanges[0].leave()
        exchanges[0].wait()
        assert subscribe(client, "open://x").status == 200


@pytest.fixture
def from_network(monkeypatch):
    """Return a function that sets the address of the next requests."""

    def set(address):
        monkeypatch.setattr(Exchange, "remote", address)

    return set


def test_anonymous_subscriptions_per_network_are_limited(
    http, public_server, monkeypatch, from_network
):
    monkeypatch.setattr("django_mcp.transports.http.stateless.MAX_LISTENS_PER_PRINCIPAL", 2)
    client = http(server=public_server)
    for last in (1, 2, 3):
        from_network(f"2001:db8:1:{last}::5")
        exchange = client.start("subscriptions/listen", notifications={})
        assert (exchange.wait().status == 503) if last == 3 else subscribe(client, "open://x")
    from_network("198.51.100.1")
    assert subscribe(client, "open://x").status == 200


def test_all_anonymous_subscriptions_are_limited(
    http, public_server, alice, monkeypatch, from_network
):
    monkeypatch.setattr("django_mcp.transports.http.stateless.MAX_ANONYMOUS_LISTENS", 2)
    client = http(server=public_server)
    for last in (1, 2):
        from_network(f"198.51.100.{last}")
        assert subscribe(client, "open://x").status == 200
    from_network("198.51.100.3")
    assert client.start("subscriptions/listen", notifications={}).wait().status == 503
    assert subscribe(http(token_of(alice), server=public_server), "open://x").status == 200


@pytest.mark.parametrize("in_session", [False, True])
def test_anonymous_calls_are_rate_limited_per_network(
    http, server, settings, from_network, in_session
):
    @server.tool(permission=mcp.PUBLIC)
    def ping(request) -> str:
        return "pong"

    with given(THROTTLES={"calls": "1/month"}):
        for address in ("198.51.100.1", "198.51.100.2"):
            from_network(address)
            client = http(server=server, revision="2025-11-25" if in_session else "2026-07-28")
            assert client.text("ping") == "pong"
            assert "Too many calls" in client.failure("ping")


def test_closed_subscriptions_are_not_counted(http, public_server, alice):
    before = dict(ListenResponse.open)
    for number in range(3):
        client = http(Token.make(alice, str(number))[1], server=public_server)
        exchange = subscribe(client, "open://x")
        exchange.leave()
        exchange.wait()
    assert dict(ListenResponse.open) == before


@pytest.mark.parametrize("uris", [
    ["open://" + "x" * 8_000] * 40, [""] * 200_000, ["open://x", "y" * 400_000],
])  # fmt: skip
def test_large_subscription_request_is_rejected(http, public_server, uris, monkeypatch):
    """Attack: long lists, which are slow to process and stored as long as the connection."""
    looked = []
    monkeypatch.setattr(
        "django_mcp.declarations.catalog.Catalog.at", lambda *args: looked.append(args) or iter(())
    )
    client = http(server=public_server)
    filter = {"resourceSubscriptions": uris}
    assert client.start("subscriptions/listen", notifications=filter).wait().status == 413
    assert looked == []


# Other sessions and other users.


def test_ids_of_another_session_are_not_accepted(http, server_with_questions, alice, bob):
    """Attack: use everything that has an id from another session."""
    mine = http(token_of(alice), server=server_with_questions, revision=NEWEST_SESSION)
    exchange, asked = start_and_wait_for_question(mine, "pay", id="same", secret=WORD)
    event = exchange.sse.found[0].id
    stream = event.partition("-")[0]
    for theirs in (http(token_of(bob), server=server_with_questions, revision=NEWEST_SESSION),
                   http(server=server_with_questions, revision=NEWEST_SESSION)):  # fmt: skip
        for last in (event, f"{stream}-1", f"{stream}-99", "99999-0", "99999-1", "0-0"):
            refused = theirs.listen(last).wait()
            assert distinguishable_parts(refused) == distinguishable_parts(
                theirs.listen("123456-0")
            )
            assert refused.status == 400
        assert answer(theirs, asked).status == 202
        cancel(theirs, "same")
        cancel(theirs, "1")
        assert theirs.send("DELETE", theirs.path, headers=theirs.headers()).status == 204
    mine.sleep(0.05)
    assert server_with_questions._done == [] and not exchange.over and rows(Ask).get().open
    answer(mine, asked)
    assert "paid" in str(exchange.wait().messages[-1])


def test_ids_of_questions_are_random(http, server_with_questions, alice):
    client = http(token_of(alice), server=server_with_questions, revision=NEWEST_SESSION)
    asked = {start_and_wait_for_question(client, "pay", id=n)[1]["id"] for n in range(5)}
    client.until(lambda: len({one["id"] for one in client.asked}) == 5)
    ids = {one["id"] for one in client.asked}
    assert len(ids) == 5 and all(uuid.UUID(id).version == 4 for id in ids) and asked <= ids


@pytest.mark.parametrize("kind", ["another user", "nobody", "another tool", "other arguments"])
def test_request_state_of_another_caller_or_call_is_rejected(
    http, server_with_questions, alice, bob, kind
):
    """Attack: continue with the state of somebody else's call."""
    bob.user_permissions.set(alice.user_permissions.all())
    mine = http(token_of(alice), server=server_with_questions)
    theirs = {
        "another user": http(token_of(bob), server=server_with_questions),
        "nobody": http(server=server_with_questions),
    }
    tool = "knock" if kind in ("nobody", "another tool") else "pay"
    state = mine.request("tools/call", name="pay" if kind == "another tool" else tool, arguments={})
    arguments = {"secret": "x"} if kind == "other arguments" else {}
    exchange = theirs.get(kind, mine).start(
        "tools/call", name=tool, arguments=arguments, requestState=state["requestState"],
        inputResponses={"who": {"action": "accept", "content": {"answer": "x"}}},
    ).wait()  # fmt: skip
    assert exchange.error["code"] == -32602 and "requestState" in exchange.error["message"]
    assert server_with_questions._done == []


def test_request_state_of_another_server_is_rejected(http, server_with_questions, alice):
    other = mcp.Server("another", path="another")
    try:
        other.tool(permission="shop.change_invoice")(
            server_with_questions._catalog.tools["pay"]._implementation
        )
        token = token_of(alice)
        asked = http(token, server=server_with_questions).request(
            "tools/call", name="pay", arguments={}
        )
        client = http(token, server=other)
        exchange = client.start(
            "tools/call", name="pay", arguments={}, requestState=asked["requestState"],
            inputResponses={key: {"action": "accept", "content": {"answer": True}}
                            for key in asked["inputRequests"]},
        ).wait()  # fmt: skip
        assert exchange.error["code"] == -32602 and server_with_questions._done == []
    finally:
        declared._servers.pop("another", None)


# Logs and streams.


@BOTH
def test_logs_contain_no_secrets_and_no_forged_lines(
    http, server_with_questions, alice, revision, caplog
):
    """Attack: write into the log by one's input, or read other clients' secrets in it."""
    caplog.set_level(logging.DEBUG)
    token = token_of(alice)
    client = http(token, server=server_with_questions, revision=revision)
    line = f"x\nERROR all is well {WORD}"
    called(client, "pay", secret=WORD).until(lambda: client.asked or client.exchanges[-1].over)
    called(client, line, id=2).wait()
    client.start(line).wait()
    client.post({"jsonrpc": "2.0", "id": line, "result": {}}).wait()
    client.post({"jsonrpc": "2.0", "method": "notifications/cancelled",
                 "params": {"requestId": 1, "reason": line}}).wait()  # fmt: skip
    client.listen(line.replace("\n", " ")).wait()
    client.post(b"{" + line.encode()).wait()
    client.post(client.message("tools/list", {}), origin="http://evil").wait()
    client.post(client.message("tools/list", {}), host="evil").wait()
    records = [record for record in caplog.records if record.name.startswith("django_mcp")]
    text = "\n".join(record.getMessage() for record in records)
    assert token[8:] not in caplog.text and (client.session or "-" * 50) not in caplog.text
    assert not any("\n" in record.getMessage() for record in records)
    said = [record.getMessage() for record in records if record.levelno >= logging.INFO]
    assert WORD not in "".join(one for one in said if "Call cancelled" not in one), text


@BOTH
def test_line_breaks_do_not_break_out_of_sse_events(http, server, revision):
    """Attack: lines in a tool's output that would be parsed as other events."""
    bad = "x\n\nid: 1-1\ndata: {}\n\nevent: y\r\rdata: z\u2028\u0085\0"

    @server.tool(permission=mcp.PUBLIC)
    def echo(request, text: str) -> str:
        request.log("error", text, logger=text)
        request.progress(1, 1, text)
        return text

    client = http(server=server, revision=revision)
    client.log_level = "debug"
    exchange = client.start(
        "tools/call", id=bad, name="echo", arguments={"text": bad}, _meta={"progressToken": bad}
    ).wait()
    assert exchange.is_stream and exchange.messages[-1]["id"] == bad
    assert exchange.messages[-1]["result"]["content"][0]["text"] == bad
    kinds = [one.get("method") for one in exchange.messages]
    assert kinds == ["notifications/message", "notifications/progress", None]
