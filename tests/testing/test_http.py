"""The client over HTTP: dropped and resumed connections, sessions, users and notifications."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Annotated

import pytest
from django.contrib.auth.models import User

import django_mcp as mcp
from django_mcp.auth.principal import verifiers_of_tests
from django_mcp.models import Event, Session
from django_mcp.routing import mount
from django_mcp.testing import Client, Dropped, RpcError


@pytest.fixture
def session(db: None, handshake: str) -> Iterator[Client]:
    with Client(transport="http", revision=handshake) as client:
        yield client


@pytest.fixture
def modern(db: None) -> Iterator[Client]:
    with Client(transport="http") as client:
        yield client


def test_call_is_resumed_after_dropped_connections(session):
    with session.dropping(after=1):
        result = session.call("slow_add", a=1, b=2, steps=5)
    assert result.assert_ok().text == "3"
    assert [one.done for one in session.progress] == [1, 2, 3, 4, 5]  # each once, in order
    assert len(session.logs) == 5
    session.call("add", a=1).assert_ok()


def test_dropped_connection_can_be_resumed_manually(db, handshake, holding_server, release):
    with Client(server=holding_server, transport="http", revision=handshake) as client:
        call = client.start("hold")
        client.until(lambda: len(client.progress) == 5)
        assert client.drop() == 1
        release.set()
        with pytest.raises(TimeoutError):
            client.until(lambda: len(client.progress) > 5, seconds=0.1)
        assert not call.is_done
        client.resume()
        assert call.result().text == "held"
        assert [one.done for one in client.progress] == list(range(1, 11))


def test_question_is_answered_after_a_dropped_connection(db, server):
    @server.tool(permission=mcp.PUBLIC)
    def confirm(request: mcp.Request) -> bool:
        request.progress(1)
        return request.elicit("Really?", bool)

    with Client(server=server, transport="http", revision="2025-11-25") as client:
        with client.answers(elicit=True).dropping(after=1):
            assert client.call("confirm").data is True
        assert len(client.asked) == 1


def test_dropping_fails_if_no_connection_was_dropped(session):
    with pytest.raises(AssertionError, match="No connection was dropped"), session.dropping():
        session.call("add", a=1)


def test_dropped_connection_without_resumption_raises(modern, server):
    with pytest.raises(Dropped), modern.dropping():
        modern.call("slow_add", a=1, b=2, steps=100)
    modern.call("add", a=1).assert_ok()


def test_dropped_connection_cancels_the_call_in_the_newest_revision(db, server):
    stopped = []

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    async def slow(request: mcp.Request) -> str:
        try:
            while True:
                await request.aprogress(1)
                await asyncio.sleep(0.001)
        except asyncio.CancelledError:
            stopped.append(True)
            raise

    with Client(server=server, transport="http") as client:
        call = client.start("slow")
        client.until(lambda: client.progress)
        client.drop()
        with pytest.raises(Dropped):
            call.result()
        client.until(lambda: stopped) if not stopped else None
    assert stopped


def test_drop_without_http_raises(db):
    with Client() as client, pytest.raises(TypeError, match='transport="http"'):
        client.drop()


# Sessions and users.


def test_closing_the_client_deletes_its_session(handshake, db):
    with Client(transport="http", revision=handshake) as client:
        client.call("add", a=1)
        assert Session.objects.count() == 1
    assert not Session.objects.exists()


def test_messages_of_a_call_are_stored_as_events(handshake, db):
    with Client(transport="http", revision=handshake) as client:
        client.call("chatty")
        assert Event.objects.count() >= 7  # three progress and three log messages, and the response


def test_each_user_has_a_token_verifier_until_the_client_is_closed(alice, bob, revision):
    with Client(alice, transport="http", revision=revision) as first:
        second = first.acting_as(bob)
        assert "reminder" in first.prompts() and "reminder" in second.prompts()
        assert "refund" in first.tools() and "refund" not in second.tools()
        assert len(verifiers_of_tests) == 2
    assert verifiers_of_tests == []


def test_inactive_user_is_anonymous(alice, revision):
    alice.is_active = False
    with Client(alice, transport="http", revision=revision) as client:
        assert "refund" not in client.tools()


def test_anonymous_client_of_a_server_without_public_tools_gets_401(db, server, revision):
    @server.tool
    def own(request: mcp.Request) -> str:
        return str(request.user)

    with Client(
        User.objects.create_user("carol"), server=server, transport="http", revision=revision
    ) as client:
        assert client.call("own").text == "carol"
        nobody = client.acting_as(None)
        assert nobody.call("own").assert_unknown().error.status == 401
        with pytest.raises(RpcError) as refused:
            nobody.tools()
        assert refused.value.status == 401


def test_custom_asgi_application_is_used(db, revision):
    paths = []

    async def elsewhere(scope, receive, send):
        raise AssertionError(scope["path"])

    inner = mount(elsewhere)

    async def application(scope, receive, send):
        paths.append(scope["path"])
        await inner(scope, receive, send)

    with Client(transport="http", revision=revision, application=application) as client:
        client.call("add", a=1).assert_ok()
    assert set(paths) == {"/mcp"}


def test_exception_of_the_application_is_raised(db):
    async def application(scope, receive, send):
        raise ZeroDivisionError

    client = Client(transport="http", application=application)
    with pytest.raises(ZeroDivisionError):
        client.call("add", a=1)
    client.close()


def test_response_that_is_no_mcp_message_is_an_error(db):
    async def application(scope, receive, send):
        await send({"type": "http.response.start", "status": 502, "headers": []})
        await send({"type": "http.response.body", "body": b"Bad gateway"})

    client = Client(transport="http", application=application)
    result = client.call("add", a=1).assert_error("HTTP 502 Bad gateway")
    assert result.error.status == 502
    client.close()


def test_duplicate_event_raises(db):
    async def application(scope, receive, send):
        await receive()
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [(b"content-type", b"text/event-stream")],
            }
        )
        note = b'id: 1\ndata: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n\n'
        answer = b'id: 2\ndata: {"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}\n\n'
        await send({"type": "http.response.body", "body": note + note + answer})

    client = Client(transport="http", application=application)
    with pytest.raises(AssertionError, match="The event 1 came twice"):
        client.call("add", a=1)
    client.close()


def test_arguments_are_repeated_in_headers(db, server, revision):
    @server.tool(permission=mcp.PUBLIC, read_only=True)
    def here(
        request: mcp.Request,
        region: Annotated[str, mcp.Header("Region")],
        count: Annotated[int, mcp.Header("Count")] = 1,
    ) -> str:
        return f"{region} {count}"

    with Client(server=server, transport="http", revision=revision) as client:
        assert client.call("here", region="Île", count=3).text == "Île 3"
        assert client.call("here", region=" =?base64?").text == " =?base64? 1"


# Notifications.


def test_subscribed_resource_update_is_received(
    transport, revision, db, django_capture_on_commit_callbacks
):
    committed = partial(django_capture_on_commit_callbacks, execute=True)
    with Client(transport=transport, revision=revision) as client:
        client.subscribe("policy://returns")
        with committed():
            mcp.notify_changed("policy://privacy")
            mcp.notify_changed("policy://returns")
        client.wait_for_update("policy://returns")
        updated = [one["params"]["uri"] for one in client.notifications]
        assert updated == ["policy://returns"]
        client.unsubscribe("policy://returns")
        client.notifications.clear()
        with committed():
            mcp.notify_changed("policy://returns")
        client.call("add", a=1)
        assert client.notifications == []


def test_list_changed_notification_is_received(
    transport, revision, db, django_capture_on_commit_callbacks
):
    with Client(transport=transport, revision=revision) as client:
        client.listen()
        with django_capture_on_commit_callbacks(execute=True):
            mcp.notify_list_changed("tools")
        client.wait_for("notifications/tools/list_changed")


def test_subscribing_to_a_forbidden_resource_raises(transport, revision, invoice, bob):
    with Client(bob, transport=transport, revision=revision) as client:
        with pytest.raises(RpcError, match="Resource not found"):
            client.subscribe(invoice)
        with pytest.raises(TimeoutError):
            client.wait_for_update(invoice, seconds=0.05)
