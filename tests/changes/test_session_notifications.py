"""Sessions get notifications on one stream, or store them until a stream opens."""

from __future__ import annotations

import json
from functools import partial

import pytest

import django_mcp as mcp
from django_mcp.calls.interaction import is_completion_uri, subscribe_to_completion
from django_mcp.changes import broadcaster
from django_mcp.changes.change_set import ChangeSet
from django_mcp.changes.feed import deliver_local_changes
from django_mcp.exceptions import Busy
from django_mcp.models import Event, Session, Stream, Subscription
from django_mcp.protocol.jsonrpc import decode
from django_mcp.storage import sessions, streams
from tests.announcing import Announcement, announce
from tests.shop.models import Company, Invoice

from ..calls.session_client import SessionClient, text
from ..storage.loops import Reader
from ..unreachable import unreachable

pytestmark = pytest.mark.django_db


@pytest.fixture
def loop(loop):
    loop.do(broadcaster.start)
    return loop


@pytest.fixture
def server(server):
    @server.tool(permission=mcp.PUBLIC)
    def add(request, a: int) -> int:
        """Add."""
        return a

    @server.tool(permission=mcp.PUBLIC)
    def pay(request) -> str:
        """Pay."""
        return str(request.elicit("Pay.", url="https://pay.example/{elicitation_id}"))

    @server.tool(permission=mcp.PUBLIC)
    def pay_first(request) -> str:
        """Nothing, before you have paid."""
        raise mcp.UrlRequired("Pay first.", "https://pay.example/{elicitation_id}")

    @server.resource("note://{name}", permission=mcp.PUBLIC)
    def note(request, name: str) -> str:
        return name

    @server.register(Invoice)
    class Invoices(mcp.ModelResource):
        fields = ["number"]
        permission = mcp.AUTHENTICATED
        uri = "invoice://{number}"

        def get_queryset(self, request):
            return super().get_queryset(request).filter(company__members=request.user.pk)

    return server


@pytest.fixture
def client(loop, server):
    return SessionClient(loop, server)


def wait_for_broadcast(client) -> None:
    """Wait until sessions were notified of what was announced."""
    here = client.loop.do(broadcaster.broadcaster)
    client.loop.until(lambda: here._local_task is None or here._local_task.done())


def change(client, kind, subject) -> None:
    client.loop.do(announce, Announcement(kind, subject, client.server.name))
    wait_for_broadcast(client)


def subscribe(client, uri) -> None:
    (response,) = client.post(client.message("resources/subscribe", uri=uri)).responses
    assert response["result"] == {}


def open_stream(client) -> Stream:
    """Open the stream on which the session receives notifications."""
    session = client.load_session()
    return streams.open(
        session, standalone=True, encode_marks=partial(broadcaster.encode_marks, session.revision)
    )


def notifications(stream) -> list[str]:
    found = Event.objects.filter(stream=stream).order_by("seq").values_list("data", flat=True)
    return [_short(decode(data)) for data in found]


def _short(message) -> str:
    name = message["method"].removeprefix("notifications/")
    return " ".join([name, *message.get("params", {}).values()])


# Lists.


def test_list_change_notifies_every_session_of_the_server(loop, server, client):
    other = SessionClient(loop, server)
    first, second = open_stream(client), open_stream(other)
    reader = Reader(loop, first)
    change(client, "list_changed", "tools")
    assert reader.until(1) and notifications(first) == notifications(second) == [
        "tools/list_changed"
    ]


def test_session_of_another_server_is_not_notified(client):
    Session.objects.update(server="elsewhere")
    stream = open_stream(client)
    change(client, "list_changed", "tools")
    assert notifications(stream) == []


def test_uninitialized_session_is_not_notified(loop, server):
    client = SessionClient(loop, server, initialized=False)
    stream = open_stream(client)
    change(client, "list_changed", "tools")
    assert notifications(stream) == []


def test_list_that_the_server_does_not_offer_is_not_notified(client):
    stream = open_stream(client)
    change(client, "list_changed", "prompts")
    assert notifications(stream) == []


def test_many_changes_of_one_list_are_one_notification(client):
    stream = open_stream(client)

    def changes():
        for _ in range(20):
            announce(Announcement("list_changed", "tools", client.server.name))

    client.loop.do(changes)
    wait_for_broadcast(client)
    assert notifications(stream) == ["tools/list_changed"]


def test_notification_without_open_stream_is_delivered_by_the_next_stream(client):
    change(client, "list_changed", "tools")
    change(client, "list_changed", "resources")
    change(client, "list_changed", "tools")
    assert sorted(client.load_session().pending_changes) == ["resources", "tools"]
    assert sorted(notifications(open_stream(client))) == [
        "resources/list_changed",
        "tools/list_changed",
    ]
    assert client.load_session().pending_changes == []


# Resources.


def test_changed_resource_notifies_subscribed_sessions_only(loop, server, client):
    other = SessionClient(loop, server)
    subscribe(client, "note://a")
    stream, quiet = open_stream(client), open_stream(other)
    change(client, "updated", "note://a")
    change(client, "updated", "note://b")
    assert notifications(stream) == ["resources/updated note://a"] and notifications(quiet) == []


def test_unsubscribed_session_is_not_notified(client):
    subscribe(client, "note://a")
    client.post(client.message("resources/unsubscribe", uri="note://a"))
    change(client, "updated", "note://a")
    assert notifications(open_stream(client)) == []


def test_invisible_resource_cannot_be_subscribed_to(loop, server, bob, invoice):
    client = SessionClient(loop, server, bob)
    (response,) = client.post(client.message("resources/subscribe", uri="invoice://A-1")).responses
    assert "error" in response and not Subscription.objects.exists()


def test_row_that_becomes_invisible_is_notified_once(loop, server, alice, invoice):
    client = SessionClient(loop, server, alice)
    subscribe(client, "invoice://A-1")
    stream = open_stream(client)
    change(client, "updated", "invoice://A-1")
    Company.objects.get(name="Acme").members.remove(alice)
    change(client, "updated", "invoice://A-1")  # she saw it before
    change(client, "updated", "invoice://A-1")  # and knows that she does not
    assert notifications(stream) == ["resources/updated invoice://A-1"] * 2
    Company.objects.get(name="Acme").members.add(alice)
    change(client, "updated", "invoice://A-1")
    assert notifications(stream) == ["resources/updated invoice://A-1"] * 3


def test_deactivated_user_is_notified_once_of_a_row_they_saw(loop, server, alice, invoice):
    client = SessionClient(loop, server, alice)
    subscribe(client, "invoice://A-1")
    stream = open_stream(client)
    alice.is_active = False
    alice.save()
    change(client, "updated", "invoice://A-1")
    change(client, "updated", "invoice://A-1")
    assert notifications(stream) == ["resources/updated invoice://A-1"]


def test_visibility_is_checked_once_for_all_sessions_of_a_user(
    loop, server, alice, invoice, monkeypatch
):
    looks = []
    visible = broadcaster.visible
    monkeypatch.setattr(broadcaster, "visible", lambda *a: looks.append(1) or visible(*a))
    clients = [SessionClient(loop, server, alice) for _ in range(3)]
    for client in clients:
        subscribe(client, "invoice://A-1")
    found = [open_stream(client) for client in clients]
    change(clients[0], "updated", "invoice://A-1")
    assert [notifications(one) for one in found] == [["resources/updated invoice://A-1"]] * 3
    assert len(looks) == 1


def failing(monkeypatch, *errors):
    """The next looks at what is visible raise these."""
    left, surrounded_job = list(errors), broadcaster.surrounded_job

    async def fails(*args):
        if left:
            raise left.pop(0)
        return await surrounded_job(*args)

    monkeypatch.setattr(broadcaster, "surrounded_job", fails)
    monkeypatch.setattr(broadcaster, "BUSY_RETRY_SECONDS", 0.001)


def test_failed_visibility_check_leaves_visibility_for_the_next_change(
    loop, server, alice, invoice, monkeypatch, caplog
):
    client = SessionClient(loop, server, alice)
    subscribe(client, "invoice://A-1")
    stream = open_stream(client)
    failing(monkeypatch, RuntimeError("a bug in get_queryset"))
    change(client, "updated", "invoice://A-1")
    assert notifications(stream) == [] and "visibility cannot be checked" in caplog.text
    assert Subscription.objects.get().visible
    invoice.delete()
    change(client, "updated", "invoice://A-1")
    assert notifications(stream) == ["resources/updated invoice://A-1"]
    assert not Subscription.objects.get().visible


def test_list_notification_is_sent_although_the_visibility_check_fails(client, monkeypatch, caplog):
    subscribe(client, "note://a")
    stream = open_stream(client)
    failing(monkeypatch, RuntimeError("a bug in get_queryset"))
    news_ = ChangeSet(
        uris={"note://a": None}, list_names={"tools": None}, listed_uris={"note://a": "a.note"}
    )
    client.loop.do(deliver_local_changes, client.server.name, news_)
    wait_for_broadcast(client)
    assert (
        notifications(stream) == ["tools/list_changed"]
        and "visibility cannot be checked" in caplog.text
    )


def test_notification_is_retried_while_the_database_is_unreachable(client, monkeypatch, caplog):
    subscribe(client, "note://a")
    Subscription.objects.update(visible=False)
    stream = open_stream(client)
    failing(monkeypatch, unreachable(), unreachable())
    change(client, "updated", "note://a")
    assert notifications(stream) == ["resources/updated note://a"]
    assert caplog.text.count("cannot be reached") == 1


def test_notification_is_retried_while_the_server_is_busy(client, monkeypatch):
    subscribe(client, "note://a")
    stream = open_stream(client)
    failing(monkeypatch, Busy(), Busy())
    change(client, "updated", "note://a")
    assert notifications(stream) == ["resources/updated note://a"]


def test_failed_notification_is_logged_and_the_next_is_sent(client, monkeypatch, caplog):
    stream, owners = open_stream(client), sessions.initialized_sessions
    monkeypatch.setattr(sessions, "initialized_sessions", lambda name: 1 / 0)
    change(client, "list_changed", "tools")
    monkeypatch.setattr(sessions, "initialized_sessions", owners)
    change(client, "list_changed", "resources")
    assert (
        notifications(stream) == ["resources/list_changed"] and "were not notified" in caplog.text
    )


# Pages.


def test_completed_elicitation_notifies_the_session_that_was_sent_there(loop, server, client):
    other = SessionClient(loop, server)
    reading = client.open_stream(client.call("pay"))
    (asked,) = reading.until(1)
    stream, quiet = open_stream(client), open_stream(other)
    client.answer(asked, {"action": "accept"})
    assert text(reading.all()[-1]) == "True"
    id = asked["params"]["elicitationId"]
    change(client, "elicitation_complete", id)
    change(client, "elicitation_complete", id)
    assert notifications(stream) == [f"elicitation/complete {id}"] and notifications(quiet) == []
    assert not Subscription.objects.exists() and client.load_session().subscriptions == 0


def test_completed_elicitation_of_an_error_notifies_the_session(loop, server, client):
    (response,) = client.post(client.call("pay_first")).responses
    (page,) = response["error"]["data"]["elicitations"]
    stream = open_stream(client)
    change(client, "elicitation_complete", page["elicitationId"])
    assert notifications(stream) == [f"elicitation/complete {page['elicitationId']}"]


def test_elicitations_are_not_reported_as_resources(client, monkeypatch):
    subscribe_to_completion(client.session, ["x"])
    assert is_completion_uri(*sessions.subscribed_uris(client.session))
    assert broadcaster.all_notifications(client.server, client.load_session()) == [
        json.dumps(
            {"jsonrpc": "2.0", "method": f"notifications/{name}/list_changed"},
            separators=(",", ":"),
        )
        for name in ("tools", "resources")
    ]


def test_too_many_elicitations_are_logged_and_ignored(client, monkeypatch, caplog):
    monkeypatch.setattr(sessions, "MAX_SUBSCRIPTIONS_PER_SESSION", 1)
    subscribe_to_completion(client.session, ["x", "y"])
    assert Subscription.objects.count() == 1 and "too many subscriptions" in caplog.text
    sessions.end(client.session)
    subscribe_to_completion(client.session, ["z"])
