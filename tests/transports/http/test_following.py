"""Connections that read streams: how each ends, and whether its client can go on."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from django_mcp.calls.callers import revocations
from django_mcp.calls.recovery import LOST
from django_mcp.calls.session_calls import call_manager
from django_mcp.models import Call, Session, Token
from django_mcp.protocol.revisions import LATEST
from django_mcp.storage import calls
from django_mcp.storage.jobs import surely
from django_mcp.storage.leases import lease
from django_mcp.transports.http import shutdown as ends
from django_mcp.transports.http import streams
from django_mcp.transports.http.authentication import until
from django_mcp.transports.http.shutdown import draining
from django_mcp.verifiers.personal_tokens import revoke
from tests.announcing import Announcement, announce
from tests.storage.rows import given

pytestmark = pytest.mark.django_db
LIFE = 2.0  # seconds in which a stream must have begun


@pytest.fixture(autouse=True)
def _grace():
    with given(JSON_GRACE=0.1):
        yield


@pytest.fixture
def server(server, gate):
    @server.tool
    async def wait(request, speak: bool = True) -> str:
        """Speak, wait, speak again."""
        if speak:
            await request.aprogress(1)
        while not gate.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.002)
        await request.aprogress(2)
        return f"waited for {request.user}"

    @server.tool
    async def babble(request) -> str:
        """Never stop speaking."""
        for number in range(100_000):
            await request.aprogress(number)
            await asyncio.sleep(0.001)
        return "said it all"

    @server.tool(read_only=True)
    async def look(request) -> str:
        """Wait, and change nothing."""
        while not gate.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.002)
        return "looked"

    return server


@pytest.fixture
def lasting(http, server, alice):
    """Makes clients whose token expires soon; they may show another one then."""

    def made(revision, seconds=LIFE):
        expires = timezone.now() + timedelta(seconds=seconds)
        token, secret = Token.make(alice, "short", expires=expires)
        client = http(secret, server=server, revision=revision)
        client.token_row = token
        return client

    return made


@pytest.fixture
def lasts(lasting, handshake):
    return lasting(handshake)


def renew(client):
    """The same token, good for longer."""
    Token.objects.filter(pk=client.token_row.pk).update(expires=None)


def calling(client, tool="wait", **arguments):
    meta = {"_meta": {"progressToken": "t"}}
    talk = client.start("tools/call", name=tool, arguments=arguments, **meta)
    return talk.until(lambda: talk.is_stream) and talk


def listening(client, last=None):
    talk = client.listen(last)
    return talk.until(lambda: talk.is_stream) and talk


def last_id(talk) -> str:
    return [event.id for event in talk.sse.found if event.id][-1]


# Expiry.


@pytest.mark.slow
def test_a_stream_of_news_ends_with_its_token(lasts):
    talk = listening(lasts)
    assert talk.wait().status == 200
    assert bool(talk.sse.found and talk.sse.found[-1].retry) == lasts.revision.priming
    assert lasts.listen().wait().status == 401
    renew(lasts)
    announce(Announcement("list_changed", "tools", lasts.server.name))
    last = talk.sse.found[-1].id if talk.sse.found else None
    again = listening(lasts, last)
    again.until(lambda: again.messages)
    assert again.messages[0]["method"] == "notifications/tools/list_changed"


@pytest.mark.slow
def test_a_call_goes_on_and_is_fetched_with_a_fresh_token(lasting, gate):
    client = lasting("2025-11-25")
    talk = calling(client)
    talk.wait()
    assert talk.sse.found[-1].retry and [m.get("id") for m in talk.messages] == [None]
    assert Call.objects.get().state == "running"
    assert client.listen(last_id(talk)).wait().status == 401
    renew(client)
    rest = listening(client, last_id(talk))
    gate.set()
    assert rest.wait().messages[-1]["result"]["content"][0]["text"] == "waited for alice"


@pytest.mark.slow
def test_a_stream_that_never_rests_ends_with_its_token_too(lasting):
    client = lasting("2025-11-25")
    talk = calling(client, "babble")
    talk.wait()
    assert talk.sse.found[-1].retry


@pytest.mark.slow
def test_an_older_client_is_answered_in_overtime(lasting, gate, monkeypatch):
    monkeypatch.setattr(streams, "MAX_OVERTIME_SECONDS", 5.0)
    client = lasting("2025-06-18")
    talk = calling(client)
    client.sleep(LIFE + 0.2)
    assert not talk.over
    gate.set()
    assert talk.wait().messages[-1]["result"]["content"][0]["text"] == "waited for alice"


@pytest.mark.slow
def test_but_not_for_ever(lasting, gate, monkeypatch):
    monkeypatch.setattr(streams, "MAX_OVERTIME_SECONDS", 2)
    client = lasting("2025-06-18")
    talk = calling(client)
    talk.wait()
    assert [message.get("id") for message in talk.messages] == [None]
    assert Call.objects.get().state == "running"
    renew(client)
    rest = listening(client, last_id(talk))
    gate.set()
    assert "result" in rest.wait().messages[-1]


@pytest.mark.parametrize("expires", [None, timezone.now() + timedelta(days=1)])
def test_a_token_that_never_expires_costs_no_timer(expires):
    async def timers():
        loop = asyncio.get_running_loop()
        with until(expires, lambda: None):
            return len([one for one in loop._scheduled if not one.cancelled()])

    assert asyncio.run(timers()) == (0 if expires is None else 1)


@pytest.mark.slow
def test_a_listen_ends_with_its_token(lasting):
    client = lasting(LATEST.name)
    talk = client.start("subscriptions/listen", id="l", notifications={"toolsListChanged": True})
    cancelled, result = talk.wait().messages[1:]
    assert cancelled["method"] == "notifications/cancelled" and result["id"] == "l"


# The end of the process.


@pytest.fixture
def soon(monkeypatch):
    monkeypatch.setattr(ends, "ANSWER_SECONDS", 10.0)
    return 0.2


async def finish(seconds):
    await draining().finish(seconds)


def ended(client, seconds):
    client.run(finish(seconds))


@pytest.mark.parametrize(("tool", "again"), [("wait", False), ("look", True)])
@pytest.mark.parametrize("old", ["2024-11-05", "2025-03-26", "2025-06-18"])
def test_who_cannot_come_back_is_answered(http, server, secret, soon, old, tool, again):
    """No event had an id that could be shown: the error is the outcome of the call."""
    client = http(secret, server=server, revision=old)
    arguments = {"speak": False} if tool == "wait" else {}
    talk = calling(client, tool, **arguments)
    ended(client, soon)
    (answer,) = talk.wait().messages
    if again:
        assert answer["error"]["data"]["retryAfter"] and answer["id"] == talk.messages[0]["id"]
    else:
        assert answer["result"]["isError"] and answer["result"]["content"][0]["text"] == LOST
    assert talk.sse.found[-1].id and Call.objects.get().state == "done"
    assert json.loads(Call.objects.get().stream.event_set.get().data) == answer


@pytest.mark.slow
def test_who_has_an_id_comes_back(http, server, secret, soon):
    client = http(secret, server=server, revision="2025-06-18")
    talk = calling(client)
    talk.until(lambda: talk.messages)
    ended(client, soon)
    assert len(talk.wait().messages) == 1 and talk.ended
    assert Call.objects.get().state == "running"  # another process takes it up


def test_news_that_come_meanwhile_are_kept_for_who_has_no_id(http, server, secret):
    """A stream that is let go is nobody's: what is announced then is told to the next one."""
    client = http(secret, server=server, revision="2025-06-18")
    talk = listening(client)
    ended(client, 1)
    assert talk.wait().ended and not talk.sse.found
    assert Session.objects.get().current is None


# Rights that are taken back.


async def look():
    await revocations().look()


def taken_back(client, alice, how):
    if how == "token":
        revoke(Token.objects.all())
    else:
        User.objects.filter(pk=alice.pk).update(is_active=False)
    client.run(look())


@pytest.mark.parametrize("how", ["token", "user"])
def test_calls_are_cancelled_and_streams_end(http, server, secret, alice, handshake, how, gate):
    client = http(secret, server=server, revision=handshake)
    talk, news = calling(client), listening(client)
    talk.until(lambda: talk.messages)
    taken_back(client, alice, how)
    assert talk.wait().ended and news.wait(5).ended
    assert len(talk.messages) == 1 and not talk.sse.found[-1].retry
    row = Call.objects.get()
    assert (row.state, row.cancelled, row.stream.closed) == ("done", True, True)
    assert row.stream.last == 1


def test_what_is_read_from_elsewhere_ends_too(http, server, secret, alice):
    """The call is another process's: only its stream is read here."""
    client = http(secret, server=server, revision="2025-11-25")
    talk = listening(client)
    taken_back(client, alice, "token")
    assert talk.wait().ended and not talk.sse.found[-1].data


@pytest.mark.parametrize("how", ["token", "user"])
def test_a_listen_ends_in_words(http, server, secret, alice, how):
    client = http(secret, server=server)
    talk = client.start("subscriptions/listen", id="l", notifications={"toolsListChanged": True})
    talk.until(lambda: talk.messages)
    taken_back(client, alice, how)
    cancelled, result = talk.wait().messages[1:]
    assert cancelled["method"] == "notifications/cancelled" and result["id"] == "l"


@pytest.mark.parametrize("tool", ["wait", "look"])
def test_a_call_without_a_session_is_stopped(http, server, secret, alice, tool):
    """It is refused as any that would come now; if it has spoken, its stream ends."""
    client = http(secret, server=server)
    talk = client.start("tools/call", name=tool, arguments={}, _meta={"progressToken": "t"})
    talk.until(lambda: talk.messages or tool == "look")
    client.sleep(0.05)
    taken_back(client, alice, "token")
    talk.wait()
    if tool == "look":
        assert talk.status == 401 and "invalid_token" in talk.headers["www-authenticate"]
    else:
        assert talk.ended and len(talk.messages) == 1


def test_a_call_that_is_not_yet_written_down_is_stopped_too(http, server, secret, alice):
    with given(JSON_GRACE=60):
        client = http(secret, server=server, revision="2025-11-25")
        talk = client.start("tools/call", name="look", arguments={})
        client.sleep(0.05)
        taken_back(client, alice, "token")
        assert talk.wait().status == 401
    assert not manager_of(client).running()


def manager_of(client):
    async def found():
        return call_manager()

    return client.run(found())


def test_others_go_on(http, server, secret, bob, gate):
    client = http(secret, server=server, revision="2025-11-25")
    talk = calling(client)
    talk.until(lambda: talk.messages)
    Token.make(bob, "other")
    revoke(Token.objects.filter(user=bob))
    client.run(look())
    client.sleep(0.05)
    assert not talk.over
    gate.set()
    assert "result" in talk.wait().messages[-1]


def test_a_call_that_waited_for_an_answer_does_not_go_on(http, server, secret, alice):
    """Nobody worked on it when the right was taken back; then its question is overdue."""
    runs = []

    @server.tool
    def ask(request) -> str:
        """Ask."""
        runs.append(1)
        return f"answer: {request.elicit('Really?', bool)}"

    client = http(secret, server=server, revision="2025-11-25")
    talk = calling(client, "ask")
    talk.until(lambda: talk.messages)
    talk.leave()
    taken_back(client, alice, "token")
    assert Call.objects.get().state == "parked"

    async def late():
        later = timezone.now() + timedelta(hours=1)
        for one in await surely(lambda: calls.overdue(later, lease.hold())):
            call_manager().expired(one)

    client.run(late())
    client.sleep(0)
    client.until(lambda: not [one for _, one in call_manager.instances() if one._tasks])
    row = Call.objects.get()
    assert (row.state, row.cancelled, runs) == ("done", True, [1])
