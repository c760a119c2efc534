"""What an attacker tries over HTTP, each attack as a test: as a stranger, as a user of few rights,
as somebody who may do no more, as a client without measure, and as a neighbour."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import uuid
from contextlib import suppress

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db import OperationalError

import django_mcp as mcp
from django_mcp.declarations import server as declared
from django_mcp.models import Ask, Call, Event, Session, Step, Token
from django_mcp.runtime import threads
from django_mcp.storage.databases import rows
from django_mcp.transports.http.request import Exchange
from django_mcp.transports.http.stateless import ListenResponse
from tests.storage.rows import given

pytestmark = pytest.mark.django_db
NEWEST_SESSION, LATEST = "2025-11-25", "2026-07-28"
BOTH = pytest.mark.parametrize("revision", [NEWEST_SESSION, LATEST])
WORD = "hunter2"  # what nobody else is to read
HELLO = {
    "protocolVersion": NEWEST_SESSION, "capabilities": {},
    "clientInfo": {"name": "x", "version": "1"},
}  # fmt: skip


@pytest.fixture
def changed(settings):
    """Changes keys of the one setting."""

    def changed(**keys):
        settings.DJANGO_MCP = {**settings.DJANGO_MCP, **keys}

    return changed


def token_of(user, **options):
    return Token.make(user, "x", **options)[1]


def shown(talk):
    """All of an answer that a caller can tell apart from another."""
    talk.wait()
    headers = {k: v for k, v in talk.headers.items() if k not in ("date", "content-length")}
    return talk.status, headers, talk.messages


def called(client, name, *, id=1, **arguments):
    return client.start("tools/call", id=id, name=name, arguments=arguments)


# What is not for a caller does not exist: no answer tells it from what is not there.


@pytest.fixture
def guarded(server):
    """Tools that bob may not use, one of each kind, and something for everybody."""

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
def test_a_tool_that_is_forbidden_is_not_told_from_one_that_is_not(
    http, guarded, bob, revision, name, durable
):
    """Attack: call by guessed names, and look at the kind of the answer."""
    guarded.durable = durable
    client = http(token_of(bob), server=guarded, revision=revision)
    with given(JSON_GRACE=60):  # however long either takes
        there, missing = (shown(called(client, one)) for one in (name, "x" * len(name)))
    assert json.dumps(there).replace(name, "") == json.dumps(missing).replace("x" * len(name), "")


def test_who_may_use_a_durable_tool_still_has_it_written_down(http, guarded, alice):
    client = http(token_of(alice), server=guarded, revision=NEWEST_SESSION)
    for name in ("kept", "kept_too", "asked"):
        talk = called(client, name, id=name).wait()
        assert talk.is_stream and WORD in json.dumps(talk.messages)
    talk = called(client, "broken", id="broken").wait()
    assert "division" not in talk.body.decode() and not talk.is_stream


# Whoever may do no more: of a token revoked, a user deactivated, a permission taken away.


@pytest.fixture
def asking(server):
    """Tools that ask before they act; what they did is in ``server._done``."""
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


def parked(client, name, **arguments):
    """A call that waits for the answer to its question, and what it is asked."""
    talk = called(client, name, **arguments)
    client.until(lambda: client.asked)
    return talk, client.asked[-1]


def answer(client, asked, content=None):
    result = {"action": "accept", "content": content or {"answer": True}}
    return client.post({"jsonrpc": "2.0", "id": asked["id"], "result": result}).wait()


def overdue(client, talk):
    """Nobody answers in time."""
    rows(Ask).update(deadline="2000-01-01T00:00:00Z")
    return talk.wait()


@pytest.mark.parametrize("gone", ["revoked", "inactive"])
def test_an_answer_by_a_former_user_moves_nothing(http, asking, alice, gone):
    client = http(token_of(alice), server=asking, revision=NEWEST_SESSION)
    talk, asked = parked(client, "pay")
    if gone == "revoked":
        Token.objects.update(revoked="2000-01-01T00:00:00Z")
    else:
        User.objects.update(is_active=False)
    assert answer(client, asked).status == 401
    client.sleep(0.05)
    assert asking._done == [] and rows(Ask).get().open
    talk.leave()


@pytest.mark.parametrize("tool", ["pay", "knock"])
def test_a_call_does_not_go_on_for_who_may_not_come_in_by_then(http, asking, alice, tool, changed):
    """Attack: park calls while one may, and have them run when one may not."""
    changed(SCOPES={"all": mcp.Scope("Everything", covers=["*"])})
    client = http(token_of(alice, scopes=["all"]), server=asking, revision=NEWEST_SESSION)
    talk, _ = parked(client, tool)
    User.objects.update(is_active=False)
    overdue(client, talk)
    assert asking._done == [] and rows(Call).get().cancelled
    assert not any("result" in message or "error" in message for message in talk.messages)


def test_a_permission_taken_away_while_a_question_is_open(http, asking, alice):
    client = http(token_of(alice), server=asking, revision=NEWEST_SESSION)
    talk, asked = parked(client, "pay")
    alice.user_permissions.clear()
    assert answer(client, asked).status == 202
    assert "Unknown tool" in str(talk.wait().messages[-1]) and asking._done == []


def test_a_permission_taken_away_between_two_rounds(http, asking, alice):
    client = http(token_of(alice), server=asking)
    asked = client.request("tools/call", name="pay", arguments={})
    alice.user_permissions.clear()
    talk = client.start(
        "tools/call", name="pay", arguments={}, requestState=asked["requestState"],
        inputResponses={key: {"action": "accept", "content": {"answer": True}}
                        for key in asked["inputRequests"]},
    )  # fmt: skip
    assert "Unknown tool" in str(talk.wait().messages) and asking._done == []


@pytest.fixture
def watched(server, alice):
    """Something to read for who has a permission."""

    @server.resource("ledger://{page}", permission="shop.change_invoice")
    def ledger(request, page: str) -> str:
        return page

    return server


def listening(client, *uris):
    talk = client.start("subscriptions/listen", notifications={"resourceSubscriptions": [*uris]})
    talk.until(lambda: talk.messages)
    return talk


def change(client, uri):
    """Announce it as asynchronous code does."""

    async def now():
        await asyncio.sleep(0.03)  # what was known of the token is not fresh any more
        mcp.notify_changed(uri, server=client.server)

    client.run(now())


def told(talk):
    return [one for one in talk.messages if one.get("method", "").endswith("resources/updated")]


def test_a_listener_who_may_read_no_more_hears_no_more(http, watched, alice, monkeypatch):
    """Once more, by the promise: it saw it before. Attack: listen for ever, and know what goes on
    where one has been shut out."""
    monkeypatch.setattr("django_mcp.transports.http.stateless.VERIFIED_SECONDS", 0.02)
    client = http(token_of(alice), server=watched)
    talk = listening(client, "ledger://1")
    change(client, "ledger://1")
    talk.until(lambda: len(told(talk)) == 1)
    alice.user_permissions.clear()
    for _ in range(3):
        change(client, "ledger://1")
        client.sleep(0.05)
    assert len(told(talk)) == 2
    talk.leave()


@pytest.mark.parametrize("gone", ["revoked", "inactive"])
def test_a_listener_whose_token_is_no_more_hears_nothing(http, watched, alice, gone, monkeypatch):
    monkeypatch.setattr("django_mcp.transports.http.stateless.VERIFIED_SECONDS", 0.02)
    client = http(token_of(alice), server=watched)
    talk = listening(client, "ledger://1")
    changes = {gone: "2000-01-01T00:00:00Z"}
    {
        "revoked": lambda: Token.objects.update(**changes),
        "inactive": lambda: User.objects.update(is_active=False),
    }[gone]()
    change(client, "ledger://1")
    assert told(talk.wait()) == []


@pytest.mark.parametrize("error", [OperationalError("gone"), RuntimeError("a bug")])
def test_a_listener_is_told_nothing_while_nobody_knows_who_it_is(
    http, watched, alice, error, monkeypatch
):
    """And hears of it when that is over: what fails is not for ever."""
    monkeypatch.setattr("django_mcp.transports.http.stateless.VERIFIED_SECONDS", 0.02)
    monkeypatch.setattr("django_mcp.transports.http.stateless.BUSY_RETRY_SECONDS", 0.01)
    client = http(token_of(alice), server=watched)
    talk = listening(client, "ledger://1")
    with monkeypatch.context() as broken:

        def fail(*args):
            raise error

        for name in ("lookup", "still_valid"):
            broken.setattr(f"django_mcp.verifiers.PersonalAccessTokens.{name}", fail)
        change(client, "ledger://1")
        client.sleep(0.1)
        assert told(talk) == []
    talk.until(lambda: len(told(talk)) == 1)
    talk.leave()


# A client without measure: what it can make grow has an end.


@pytest.fixture
def stepping(server):
    """A tool that remembers a step and then asks."""

    @server.tool(permission=mcp.PUBLIC)
    def stepwise(request) -> str:
        request.once("step", lambda: "x" * 1000)
        request.elicit("Go on?", bool)
        return "done"

    return server


def cancel(client, id):
    client.notify("notifications/cancelled", requestId=id)


def test_a_call_that_is_cancelled_leaves_no_steps(http, stepping):
    """Attack: let steps be remembered and cancel, until there is room for nobody's."""
    client = http(server=stepping, revision=NEWEST_SESSION)
    for number in range(3):
        client.asked.clear()
        talk, _ = parked(client, "stepwise", id=f"step-{number}")
        assert rows(Step).count() == 1
        cancel(client, f"step-{number}")
        talk.wait()
        assert rows(Step).count() == 0


LONG = "x" * 100_000


@pytest.mark.parametrize("info", [
    {"clientInfo": {"name": LONG, "version": "1"}},
    {"clientInfo": {"name": "x", "version": "1", "more": [{} for _ in range(50_000)]}},
    {"capabilities": {"experimental": {"x": {"y": LONG}}}},
])  # fmt: skip
def test_a_session_keeps_little_of_what_a_client_says_of_itself(http, stepping, info):
    """Attack: megabytes in the handshake, to be stored, and read again with every request."""
    client = http(server=stepping, revision=NEWEST_SESSION, initialize=False)
    talk = client.start("initialize", **(HELLO | info)).wait()
    assert talk.status == 413 and "mcp-session-id" not in talk.headers
    assert not rows(Session).exists()


@BOTH
def test_an_id_is_short(http, stepping, revision):
    """Attack: an id of megabytes, which is kept with its call, and said again in its answer."""
    client = http(server=stepping, revision=revision)
    for id in (LONG, "x" * 1001):
        talk = called(client, "stepwise", id=id).wait()
        assert talk.status == 400 and "xxx" not in talk.body.decode()
    assert called(client, "nothing", id="x" * 1000).wait().status == 200


@pytest.mark.slow
def test_what_cancels_nothing_is_kept_in_measure(http, stepping):
    """Attack: cancel calls that never were."""
    client = http(server=stepping, revision=NEWEST_SESSION)
    for number in range(120):
        cancel(client, f"never-{number}")
    assert rows(Call).count() == 100
    cancel(client, LONG)
    assert rows(Call).count() == 100 and LONG not in str(rows(Call).values_list())


def test_a_progress_token_is_short(http):
    """Attack: a token of megabytes, said again with every step."""
    for revision in (NEWEST_SESSION, LATEST):
        client = http(revision=revision)
        params = {"name": "slow_add", "arguments": {"a": 1, "b": 2}}
        talk = client.start("tools/call", **params, _meta={"progressToken": LONG}).wait()
        assert talk.error["code"] == -32602 and "xxx" not in talk.body.decode()
    assert not rows(Event).exists()


# Who decides about tokens fails, or is asked too much: nobody becomes anybody by that.


class Scoped:
    """A verifier of ``<user>+<scopes>``, all of one application, as OAuth's tokens are."""

    async def verify(self, token, server):
        name, _, scopes = token.partition("+")
        user = await User.objects.filter(username=name).afirst()
        return user and mcp.Principal(user, mcp.Auth(frozenset(scopes.split()), key="app"))


class Broken:
    error: Exception

    async def verify(self, token, server):
        raise self.error


class Slow:
    """Asks the database, as long as it is told to."""

    go = threading.Event()
    there = most = 0

    async def verify(self, token, server):
        return await sync_to_async(self._asked)()

    def _asked(self):
        Slow.there += 1
        Slow.most = max(Slow.most, Slow.there)
        self.go.wait(10)
        Slow.there -= 1


def verifiers(changed, *kinds):
    changed(VERIFIERS=[f"{__name__}.{kind.__name__}" for kind in kinds])


@BOTH
@pytest.mark.parametrize("error", [RuntimeError, PermissionError, KeyError])
@pytest.mark.parametrize("tool", ["hello", "plain"])
def test_a_verifier_that_fails_lets_nobody_in(http, guarded, changed, revision, error, tool):
    verifiers(changed, Broken)
    Broken.error = error(WORD)
    client = http("x", server=guarded, revision=revision, initialize=False)
    if revision == NEWEST_SESSION:
        talk = client.start("initialize", **HELLO).wait()
        assert not rows(Session).exists()
    else:
        talk = called(client, tool).wait()
    assert talk.status == 500 and WORD not in talk.body.decode()


@BOTH
@pytest.mark.parametrize(
    "place", ["verifiers.PersonalAccessTokens.lookup", "storage.sessions.find"]
)
def test_without_the_database_nobody_is_let_in(http, guarded, alice, revision, place, monkeypatch):
    client = http(token_of(alice), server=guarded, revision=revision)

    def gone(*args):
        raise OperationalError(f"{WORD}: connection refused")

    monkeypatch.setattr(f"django_mcp.{place}", gone)
    talk = called(client, "hello").wait()
    if revision == LATEST and "find" in place:
        assert talk.status == 200  # it needs no session
        return
    assert talk.status == 503 and "retry-after" in talk.headers
    assert WORD not in talk.body.decode() and "hello" not in talk.body.decode()


def test_tokens_that_are_none_take_no_thread_each(http, guarded, changed):
    """Attack: a thousand requests with any token, for each a thread and a connection of its own."""
    verifiers(changed, Slow)
    changed(THREADS=3, QUEUE=5)
    threads.verifiers.shutdown()
    Slow.go.clear()
    Slow.there = Slow.most = 0
    client = http("x", server=guarded)
    talks = [called(client, "hello", id=n) for n in range(20)]
    client.until(lambda: sum(talk.over for talk in talks) >= 12)
    Slow.go.set()
    statuses = sorted(talk.wait().status for talk in talks)
    assert Slow.most <= 3 and statuses == [401] * 8 + [503] * 12


# Tokens of one application, with different scopes: a session is theirs all, a call is not.


@pytest.fixture
def scoped(server, changed, alice):
    """Tools for a scope; what they did is in ``server._done``."""
    verifiers(changed, Scoped)
    changed(SCOPES={"write": mcp.Scope("Write", covers=["*"])})
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
def narrow(request):
    """The scopes of a token that may not write."""
    return request.param


def narrower(http, client, scopes):
    """The same session, with a token that allows less."""
    other = http(f"alice+{scopes}", server=client.server, revision=NEWEST_SESSION, initialize=False)
    other.session = client.session
    return other


def test_a_narrower_token_answers_no_question(http, scoped, narrow):
    """Attack: steal the token that may do nothing, and say yes where the other one asks."""
    client = http("alice+write", server=scoped, revision=NEWEST_SESSION)
    talk, asked = parked(client, "erase")
    other = narrower(http, client, narrow)
    answer(other, asked)
    other.sleep(0.05)
    assert scoped._done == [] and rows(Ask).get().open
    answer(client, asked)
    assert WORD in str(talk.wait().messages[-1]) and scoped._done == [True]


def test_a_narrower_token_cancels_nothing(http, scoped, narrow):
    client = http("alice+write", server=scoped, revision=NEWEST_SESSION)
    talk, asked = parked(client, "erase", id="mine")
    cancel(narrower(http, client, narrow), "mine")
    client.sleep(0.05)
    assert not talk.over and rows(Ask).get().open
    answer(client, asked)
    assert WORD in str(talk.wait().messages[-1])


def test_a_narrower_token_reads_no_stream(http, scoped, narrow):
    """Attack: the answer that was kept for the other one."""
    client = http("alice+write", server=scoped, revision=NEWEST_SESSION)
    talk = called(client, "read_all").wait()
    first = talk.sse.found[0].id
    other = narrower(http, client, narrow).listen(first).wait()
    assert other.status == 400 and WORD not in other.body.decode()
    assert WORD in client.listen(first).wait().body.decode()


def test_news_are_for_who_may_read_by_their_token(http, scoped):
    """What a session subscribes to is looked at with its token, and not without one."""
    client = http("alice+write", server=scoped, revision=NEWEST_SESSION)
    assert client.request("resources/subscribe", uri="ledger://1") == {}
    stream = client.listen()
    client.until(lambda: stream.status)
    change(client, "ledger://1")
    client.until(lambda: len(told(stream)) == 1)
    change(client, "ledger://1")
    client.until(lambda: len(told(stream)) == 2)
    stream.leave()


# Listening without measure.


@pytest.fixture
def talkative(server):
    """Something to listen to for everybody."""

    @server.resource("open://{name}", permission=mcp.PUBLIC)
    def opened(request, name: str) -> str:
        return name

    @server.resource("closed://{name}")
    def closed(request, name: str) -> str:
        return name

    return server


def test_one_who_listens_a_lot_leaves_room_for_others(http, talkative, alice, bob, monkeypatch):
    monkeypatch.setattr("django_mcp.transports.http.stateless.MAX_LISTENS_PER_PRINCIPAL", 3)
    greedy, nobody, other = (http(token, server=talkative) for token in (
        token_of(alice), None, token_of(bob),
    ))  # fmt: skip
    for client in (greedy, nobody):
        talks = [listening(client, "open://x") for _ in range(3)]
        assert client.start("subscriptions/listen", notifications={}).wait().status == 503
        assert listening(other, "open://x").status == 200
        talks[0].leave()
        talks[0].wait()
        assert listening(client, "open://x").status == 200


@pytest.fixture
def from_network(monkeypatch):
    """Sets the address of the next requests."""

    def set(address):
        monkeypatch.setattr(Exchange, "remote", address)

    return set


def test_anonymous_network_that_listens_a_lot_leaves_listens_for_other_networks(
    http, talkative, monkeypatch, from_network
):
    monkeypatch.setattr("django_mcp.transports.http.stateless.MAX_LISTENS_PER_PRINCIPAL", 2)
    client = http(server=talkative)
    for last in (1, 2, 3):
        from_network(f"2001:db8:1:{last}::5")
        talk = client.start("subscriptions/listen", notifications={})
        assert (talk.wait().status == 503) if last == 3 else listening(client, "open://x")
    from_network("198.51.100.1")
    assert listening(client, "open://x").status == 200


def test_all_anonymous_clients_leave_listens_for_users(
    http, talkative, alice, monkeypatch, from_network
):
    monkeypatch.setattr("django_mcp.transports.http.stateless.MAX_ANONYMOUS_LISTENS", 2)
    client = http(server=talkative)
    for last in (1, 2):
        from_network(f"198.51.100.{last}")
        assert listening(client, "open://x").status == 200
    from_network("198.51.100.3")
    assert client.start("subscriptions/listen", notifications={}).wait().status == 503
    assert listening(http(token_of(alice), server=talkative), "open://x").status == 200


@pytest.mark.parametrize("in_session", [False, True])
def test_anonymous_network_that_uses_up_its_rate_leaves_calls_for_other_networks(
    http, server, settings, from_network, in_session
):
    @server.tool(permission=mcp.PUBLIC)
    def ping(request) -> str:
        return "pong"

    with given(RATES={"calls": "1/1000"}):
        for address in ("198.51.100.1", "198.51.100.2"):
            from_network(address)
            client = http(server=server, revision="2025-11-25" if in_session else "2026-07-28")
            assert client.text("ping") == "pong"
            assert "Too many calls" in client.failure("ping")


def test_who_is_gone_is_not_counted_for_ever(http, talkative, alice):
    before = dict(ListenResponse.open)
    for number in range(3):
        client = http(Token.make(alice, str(number))[1], server=talkative)
        talk = listening(client, "open://x")
        talk.leave()
        talk.wait()
    assert dict(ListenResponse.open) == before


@pytest.mark.parametrize("uris", [
    ["open://" + "x" * 8_000] * 40, [""] * 200_000, ["open://x", "y" * 400_000],
])  # fmt: skip
def test_a_listen_is_not_large(http, talkative, uris, monkeypatch):
    """Attack: lists that take long to look through, and are kept as long as a connection."""
    looked = []
    monkeypatch.setattr(
        "django_mcp.declarations.catalog.Catalog.at", lambda *args: looked.append(args) or iter(())
    )
    client = http(server=talkative)
    filter = {"resourceSubscriptions": uris}
    assert client.start("subscriptions/listen", notifications=filter).wait().status == 413
    assert looked == []


# A neighbour: another session, of another user or of nobody in particular.


def test_nothing_of_a_session_is_another_ones(http, asking, alice, bob):
    """Attack: all that has an id, from a session of one's own."""
    mine = http(token_of(alice), server=asking, revision=NEWEST_SESSION)
    talk, asked = parked(mine, "pay", id="same", secret=WORD)
    event = talk.sse.found[0].id
    stream = event.partition("-")[0]
    for theirs in (http(token_of(bob), server=asking, revision=NEWEST_SESSION),
                   http(server=asking, revision=NEWEST_SESSION)):  # fmt: skip
        for last in (event, f"{stream}-1", f"{stream}-99", "99999-0", "99999-1", "0-0"):
            refused = theirs.listen(last).wait()
            assert shown(refused) == shown(theirs.listen("123456-0"))
            assert refused.status == 400
        assert answer(theirs, asked).status == 202
        cancel(theirs, "same")
        cancel(theirs, "1")
        assert theirs.send("DELETE", theirs.path, headers=theirs.headers()).status == 204
    mine.sleep(0.05)
    assert asking._done == [] and not talk.over and rows(Ask).get().open
    answer(mine, asked)
    assert "paid" in str(talk.wait().messages[-1])


def test_the_ids_of_questions_cannot_be_guessed(http, asking, alice):
    client = http(token_of(alice), server=asking, revision=NEWEST_SESSION)
    asked = {parked(client, "pay", id=n)[1]["id"] for n in range(5)}
    client.until(lambda: len({one["id"] for one in client.asked}) == 5)
    ids = {one["id"] for one in client.asked}
    assert len(ids) == 5 and all(uuid.UUID(id).version == 4 for id in ids) and asked <= ids


@pytest.mark.parametrize("kind", ["another user", "nobody", "another tool", "other arguments"])
def test_a_state_is_of_one_caller_and_one_call(http, asking, alice, bob, kind):
    """Attack: go on with what somebody else was asked."""
    bob.user_permissions.set(alice.user_permissions.all())
    mine = http(token_of(alice), server=asking)
    theirs = {"another user": http(token_of(bob), server=asking), "nobody": http(server=asking)}
    tool = "knock" if kind in ("nobody", "another tool") else "pay"
    state = mine.request("tools/call", name="pay" if kind == "another tool" else tool, arguments={})
    arguments = {"secret": "x"} if kind == "other arguments" else {}
    talk = theirs.get(kind, mine).start(
        "tools/call", name=tool, arguments=arguments, requestState=state["requestState"],
        inputResponses={"who": {"action": "accept", "content": {"answer": "x"}}},
    ).wait()  # fmt: skip
    assert talk.error["code"] == -32602 and "requestState" in talk.error["message"]
    assert asking._done == []


def test_a_state_is_of_one_server(http, asking, alice):
    other = mcp.Server("another", path="another")
    try:
        other.tool(permission="shop.change_invoice")(asking._catalog.tools["pay"]._implementation)
        token = token_of(alice)
        asked = http(token, server=asking).request("tools/call", name="pay", arguments={})
        client = http(token, server=other)
        talk = client.start(
            "tools/call", name="pay", arguments={}, requestState=asked["requestState"],
            inputResponses={key: {"action": "accept", "content": {"answer": True}}
                            for key in asked["inputRequests"]},
        ).wait()  # fmt: skip
        assert talk.error["code"] == -32602 and asking._done == []
    finally:
        declared._servers.pop("another", None)


# What is kept, and what is said of it.


@BOTH
def test_logs_hold_no_secret_and_no_line_of_a_clients(http, asking, alice, revision, caplog):
    """Attack: by what one sends, write in the log; by the log, learn what others sent."""
    caplog.set_level(logging.DEBUG)
    token = token_of(alice)
    client = http(token, server=asking, revision=revision)
    line = f"x\nERROR all is well {WORD}"
    called(client, "pay", secret=WORD).until(lambda: client.asked or client.talks[-1].over)
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
    assert WORD not in "".join(one for one in said if "was cancelled" not in one), text


@BOTH
def test_what_is_said_breaks_out_of_no_event(http, server, revision):
    """Attack: lines in what a tool passes on, to be read as events of their own."""
    bad = "x\n\nid: 1-1\ndata: {}\n\nevent: y\r\rdata: z\u2028\u0085\0"

    @server.tool(permission=mcp.PUBLIC)
    def echo(request, text: str) -> str:
        request.log("error", text, logger=text)
        request.progress(1, 1, text)
        return text

    client = http(server=server, revision=revision)
    client.log_level = "debug"
    talk = client.start(
        "tools/call", id=bad, name="echo", arguments={"text": bad}, _meta={"progressToken": bad}
    ).wait()
    assert talk.is_stream and talk.messages[-1]["id"] == bad
    assert talk.messages[-1]["result"]["content"][0]["text"] == bad
    kinds = [one.get("method") for one in talk.messages]
    assert kinds == ["notifications/message", "notifications/progress", None]
