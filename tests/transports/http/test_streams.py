"""How SSE streams end: token expiry, revocation and shutdown, and how clients continue."""

from __future__ import annotations

import asyncio
import json
import threading
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from django_mcp.calls.callers import revocation_checker
from django_mcp.calls.recovery import LOST
from django_mcp.calls.session_calls import call_manager
from django_mcp.models import Call, Session, Stream, Token
from django_mcp.protocol.revisions import LATEST
from django_mcp.storage import calls
from django_mcp.storage import streams as stream_rows
from django_mcp.storage.jobs import run_with_retries
from django_mcp.storage.leases import lease
from django_mcp.transports.http import shutdown as ends
from django_mcp.transports.http import streams
from django_mcp.transports.http.authentication import until
from django_mcp.transports.http.shutdown import draining
from django_mcp.verifiers.personal_tokens import revoke
from tests.announcing import Announcement, announce
from tests.storage.rows import given

pytestmark = pytest.mark.django_db
TOKEN_SECONDS = 2.0  # seconds; a stream must have started by then


@pytest.fixture(autouse=True)
def _grace():
    with given(JSON_GRACE=0.1):
        yield


@pytest.fixture
def server(server, gate):
    @server.tool
    async def wait(request, speak: bool = True) -> str:
        """Report progress, wait, report progress again."""
        if speak:
            await request.aprogress(1)
        while not gate.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.002)
        await request.aprogress(2)
        return f"waited for {request.user}"

    @server.tool
    async def babble(request) -> str:
        """Report progress without end."""
        for number in range(100_000):
            await request.aprogress(number)
            await asyncio.sleep(0.001)
        return "said it all"

    @server.tool(read_only=True)
    async def look(request) -> str:
        """Wait, without side effects."""
        while not gate.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.002)
        return "looked"

    return server


@pytest.fixture
def short_lived_client(http, server, alice):
    """Create clients whose token expires soon, and may be renewed."""

    def made(revision, seconds=TOKEN_SECONDS):
        expires = timezone.now() + timedelta(seconds=seconds)
        token, secret = Token.make(alice, "short", expires=expires)
        client = http(secret, server=server, revision=revision)
        client.token_row = token
        return client

    return made


@pytest.fixture
def short_lived(short_lived_client, handshake):
    return short_lived_client(handshake)


def renew(client):
    """Extend the lifetime of the client's token."""
    Token.objects.filter(pk=client.token_row.pk).update(expires=None)


def calling(client, tool="wait", **arguments):
    meta = {"_meta": {"progressToken": "t"}}
    exchange = client.start("tools/call", name=tool, arguments=arguments, **meta)
    return exchange.until(lambda: exchange.is_stream) and exchange


def listening(client, last=None):
    exchange = client.listen(last)
    return exchange.until(lambda: exchange.is_stream) and exchange


def last_id(exchange) -> str:
    return [event.id for event in exchange.sse.found if event.id][-1]


# Expiry.


@pytest.mark.slow
def test_standalone_stream_ends_when_its_token_expires(short_lived):
    exchange = listening(short_lived)
    assert exchange.wait().status == 200
    assert bool(exchange.sse.found and exchange.sse.found[-1].retry) == short_lived.revision.priming
    assert short_lived.listen().wait().status == 401
    renew(short_lived)
    announce(Announcement("list_changed", "tools", short_lived.server.name))
    last = exchange.sse.found[-1].id if exchange.sse.found else None
    again = listening(short_lived, last)
    again.until(lambda: again.messages)
    assert again.messages[0]["method"] == "notifications/tools/list_changed"


@pytest.mark.slow
def test_call_continues_after_expiry_and_is_fetched_with_a_renewed_token(short_lived_client, gate):
    client = short_lived_client("2025-11-25")
    exchange = calling(client)
    exchange.wait()
    assert exchange.sse.found[-1].retry and [m.get("id") for m in exchange.messages] == [None]
    assert Call.objects.get().state == "running"
    assert client.listen(last_id(exchange)).wait().status == 401
    renew(client)
    rest = listening(client, last_id(exchange))
    gate.set()
    assert rest.wait().messages[-1]["result"]["content"][0]["text"] == "waited for alice"


@pytest.mark.slow
def test_busy_stream_ends_when_its_token_expires(short_lived_client):
    client = short_lived_client("2025-11-25")
    exchange = calling(client, "babble")
    exchange.wait()
    assert exchange.sse.found[-1].retry


@pytest.mark.slow
def test_older_client_gets_its_response_shortly_after_expiry(short_lived_client, gate, monkeypatch):
    monkeypatch.setattr(streams, "MAX_OVERTIME_SECONDS", 5.0)
    client = short_lived_client("2025-06-18")
    exchange = calling(client)
    client.sleep(TOKEN_SECONDS + 0.2)
    assert not exchange.over
    gate.set()
    assert exchange.wait().messages[-1]["result"]["content"][0]["text"] == "waited for alice"


@pytest.mark.slow
def test_stream_of_an_older_client_ends_after_the_maximum_overtime(
    short_lived_client, gate, monkeypatch
):
    monkeypatch.setattr(streams, "MAX_OVERTIME_SECONDS", 2)
    client = short_lived_client("2025-06-18")
    exchange = calling(client)
    exchange.wait()
    assert [message.get("id") for message in exchange.messages] == [None]
    assert Call.objects.get().state == "running"
    renew(client)
    rest = listening(client, last_id(exchange))
    gate.set()
    assert "result" in rest.wait().messages[-1]


@pytest.mark.parametrize("expires", [None, timezone.now() + timedelta(days=1)])
def test_timer_is_started_only_for_tokens_that_expire(expires):
    async def timers():
        loop = asyncio.get_running_loop()
        with until(expires, lambda: None):
            return len([one for one in loop._scheduled if not one.cancelled()])

    assert asyncio.run(timers()) == (0 if expires is None else 1)


@pytest.mark.slow
def test_listen_ends_when_its_token_expires(short_lived_client):
    client = short_lived_client(LATEST.name)
    exchange = client.start(
        "subscriptions/listen", id="l", notifications={"toolsListChanged": True}
    )
    cancelled, result = exchange.wait().messages[1:]
    assert cancelled["method"] == "notifications/cancelled" and result["id"] == "l"


# Shutdown.


@pytest.fixture
def short_grace_period(monkeypatch):
    monkeypatch.setattr(ends, "ANSWER_SECONDS", 10.0)
    return 0.2


async def finish(seconds):
    await draining().finish(seconds)


def shut_down(client, seconds):
    client.run(finish(seconds))


@pytest.mark.parametrize(("tool", "again"), [("wait", False), ("look", True)])
@pytest.mark.parametrize("old", ["2024-11-05", "2025-03-26", "2025-06-18"])
def test_client_without_an_event_id_gets_an_error_at_shutdown(
    http, server, secret, short_grace_period, old, tool, again
):
    """The client received no event id, so the call ends with an error."""
    client = http(secret, server=server, revision=old)
    arguments = {"speak": False} if tool == "wait" else {}
    exchange = calling(client, tool, **arguments)
    shut_down(client, short_grace_period)
    (answer,) = exchange.wait().messages
    if again:
        assert answer["error"]["data"]["retryAfter"] and answer["id"] == exchange.messages[0]["id"]
    else:
        assert answer["result"]["isError"] and answer["result"]["content"][0]["text"] == LOST
    assert exchange.sse.found[-1].id and Call.objects.get().state == "done"
    assert json.loads(Call.objects.get().stream.event_set.get().data) == answer


@pytest.mark.slow
def test_stream_with_an_event_id_ends_without_response_at_shutdown(
    http, server, secret, short_grace_period
):
    client = http(secret, server=server, revision="2025-06-18")
    exchange = calling(client)
    exchange.until(lambda: exchange.messages)
    shut_down(client, short_grace_period)
    assert len(exchange.wait().messages) == 1 and exchange.ended
    assert Call.objects.get().state == "running"  # another process continues it


def test_session_has_no_current_stream_after_shutdown(http, server, secret):
    """Notifications after the release are delivered by the next stream."""
    client = http(secret, server=server, revision="2025-06-18")
    exchange = listening(client)
    shut_down(client, 1)
    assert exchange.wait().ended and not exchange.sse.found
    assert Session.objects.get().current is None


# Revocation.


async def look():
    await revocation_checker().check()


def revoke_access(client, alice, how):
    if how == "token":
        revoke(Token.objects.all())
    else:
        User.objects.filter(pk=alice.pk).update(is_active=False)
    client.run(look())


@pytest.mark.parametrize("how", ["token", "user"])
def test_revocation_cancels_calls_and_closes_streams(
    http, server, secret, alice, handshake, how, gate
):
    client = http(secret, server=server, revision=handshake)
    exchange, news = calling(client), listening(client)
    exchange.until(lambda: exchange.messages)
    revoke_access(client, alice, how)
    assert exchange.wait().ended and news.wait(5).ended
    assert len(exchange.messages) == 1 and not exchange.sse.found[-1].retry
    row = Call.objects.get()
    assert (row.state, row.cancelled, row.stream.closed) == ("done", True, True)
    assert row.stream.last == 1


def test_revocation_closes_streams_of_calls_in_other_processes(http, server, secret, alice):
    """The call runs in another process: only its stream is read here."""
    client = http(secret, server=server, revision="2025-11-25")
    exchange = listening(client)
    revoke_access(client, alice, "token")
    assert exchange.wait().ended and not exchange.sse.found[-1].data


def wait_until_no_stream_is_current(client):
    for _ in range(1_000):
        if Session.objects.get().current is None:
            return
        client.sleep(0.01)
    raise TimeoutError


def test_session_has_no_current_stream_after_revocation(http, server, secret, alice, handshake):
    """Notifications are delivered by the next stream, which may belong to another token."""
    client = http(secret, server=server, revision=handshake)
    news = listening(client)
    revoke_access(client, alice, "token")
    news.wait()
    wait_until_no_stream_is_current(client)


def test_session_has_no_current_stream_after_an_error(http, server, secret, monkeypatch):
    client = http(secret, server=server, revision="2025-11-25")
    news = listening(client)
    monkeypatch.setattr(stream_rows, "note_sent", lambda stream: 1 / 0)
    announce(Announcement("list_changed", "tools", client.server.name))
    client.until(lambda: news.over)
    client.problems.clear()
    wait_until_no_stream_is_current(client)


@pytest.mark.parametrize("how", ["token", "user"])
def test_revocation_ends_a_listen_with_a_response(http, server, secret, alice, how):
    client = http(secret, server=server)
    exchange = client.start(
        "subscriptions/listen", id="l", notifications={"toolsListChanged": True}
    )
    exchange.until(lambda: exchange.messages)
    revoke_access(client, alice, how)
    cancelled, result = exchange.wait().messages[1:]
    assert cancelled["method"] == "notifications/cancelled" and result["id"] == "l"


@pytest.mark.parametrize("tool", ["wait", "look"])
def test_revocation_stops_a_call_without_a_session(http, server, secret, alice, tool):
    """It is rejected like a new request, or its stream ends if one was started."""
    client = http(secret, server=server)
    exchange = client.start("tools/call", name=tool, arguments={}, _meta={"progressToken": "t"})
    exchange.until(lambda: exchange.messages or tool == "look")
    client.sleep(0.05)
    revoke_access(client, alice, "token")
    exchange.wait()
    if tool == "look":
        assert exchange.status == 401 and "invalid_token" in exchange.headers["www-authenticate"]
    else:
        assert exchange.ended and len(exchange.messages) == 1


def test_revocation_stops_a_call_that_is_not_stored_yet(http, server, secret, alice):
    with given(JSON_GRACE=60):
        client = http(secret, server=server, revision="2025-11-25")
        calls = manager_of(client)
        exchange = client.start("tools/call", name="look", arguments={})
        (running,) = client.until(calls.running)
        revoke_access(client, alice, "token")
        assert exchange.wait().status == 401
        # Threads of a cancelled call may still be busy when its client gets the response.
        client.until(lambda: not calls.running())
    assert running.row is None and running.response is None


def manager_of(client):
    async def found():
        return call_manager()

    return client.run(found())


def test_revocation_does_not_affect_other_users(http, server, secret, bob, gate):
    client = http(secret, server=server, revision="2025-11-25")
    exchange = calling(client)
    exchange.until(lambda: exchange.messages)
    Token.make(bob, "other")
    revoke(Token.objects.filter(user=bob))
    client.run(look())
    client.sleep(0.05)
    assert not exchange.over
    gate.set()
    assert "result" in exchange.wait().messages[-1]


def test_revocation_ends_a_parked_call(http, server, secret, alice):
    """The call was parked at the revocation, and then its question times out."""
    runs = []

    @server.tool
    def ask(request) -> str:
        """Ask."""
        runs.append(1)
        return f"answer: {request.elicit('Really?', bool)}"

    client = http(secret, server=server, revision="2025-11-25")
    exchange = calling(client, "ask")
    exchange.until(lambda: exchange.messages)
    exchange.leave()
    revoke_access(client, alice, "token")
    assert Call.objects.get().state == "parked"

    async def late():
        later = timezone.now() + timedelta(hours=1)
        for one in await run_with_retries(lambda: calls.time_out_questions(later, lease.hold())):
            call_manager().handle_timeout(one)

    client.run(late())
    client.sleep(0)
    client.until(lambda: not [one for _, one in call_manager.instances() if one._tasks])
    row = Call.objects.get()
    assert (row.state, row.cancelled, runs) == ("done", True, [1])


# Pings.


@pytest.fixture
def pinged(http, server, secret):
    """A client that listens, and a function that lets ping intervals pass."""

    def pass_intervals(count):
        for _ in range(count):
            client.loop.call_soon(lambda: streams.ping_timer()._fire())
            client.settle()

    with given(PING_INTERVAL=3600):
        client = http(secret, server=server, revision="2025-11-25")
        client.news, client.pass_intervals = listening(client), pass_intervals
        yield client


def pings(exchange):
    return [one for one in exchange.messages if one.get("method") == "ping"]


def answer_first_ping(client):
    client.pass_intervals(2)
    client.until(lambda: pings(client.news))
    for _ in range(1_000):
        if Stream.objects.filter(pong__startswith="ping-").exists():
            return
        client.sleep(0.01)
    raise TimeoutError


def test_client_that_stops_reading_before_its_ping_is_disconnected(pinged, caplog):
    news = pinged.news
    news.left = True  # the response is not ended, because that would block too
    news.stalled.clear()
    announce(Announcement("list_changed", "tools", pinged.server.name))
    pinged.pass_intervals(1)
    pinged.sleep(0.3)  # the notification is being written
    pinged.pass_intervals(1)
    assert not news.over
    pinged.pass_intervals(2)
    pinged.until(lambda: news.over, 5)
    assert "did not read" in caplog.text and not pings(news)


def test_client_that_reads_again_within_the_interval_stays_connected(pinged):
    for _ in range(3):
        pinged.news.stalled.clear()
        announce(Announcement("list_changed", "tools", pinged.server.name))
        pinged.sleep(0.1)
        pinged.pass_intervals(1)
        pinged.news.stalled.set()
        pinged.sleep(0.1)
    pinged.sleep(0.1)
    assert not pinged.news.over


def test_client_stays_connected_while_its_answer_cannot_be_read(pinged, monkeypatch):
    """The database stalls for longer than the interval."""
    answer_first_ping(pinged)
    go, pong = threading.Event(), stream_rows.pong
    monkeypatch.setattr(stream_rows, "pong", lambda stream: go.wait(30) and pong(stream))
    for _ in range(3):
        pinged.loop.call_soon(lambda: streams.ping_timer()._fire())
        pinged._runner.run(asyncio.sleep(0.05))
    go.set()
    pinged.until(lambda: len(pings(pinged.news)) == 2)
    pinged.sleep(0.3)
    assert not pinged.news.over


def test_answer_that_is_stored_after_a_late_check_counts(pinged, monkeypatch):
    """The database stalls, and the check of the answer is done before it is stored."""
    answer_first_ping(pinged)
    go, pong = threading.Event(), stream_rows.pong
    monkeypatch.setattr(stream_rows, "pong", lambda stream: go.wait(30) and None)
    for _ in range(2):
        pinged.loop.call_soon(lambda: streams.ping_timer()._fire())
        pinged._runner.run(asyncio.sleep(0.05))
    go.set()
    pinged.sleep(0.3)
    assert not pinged.news.over
    monkeypatch.setattr(stream_rows, "pong", pong)
    pinged.pass_intervals(1)
    pinged.until(lambda: len(pings(pinged.news)) == 2)
