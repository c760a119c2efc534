"""A subscription filter sends each change once, to clients that see the resource or saw it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser

import django_mcp as mcp
from django_mcp.auth.principal import Principal
from django_mcp.changes import subscriptions
from django_mcp.changes.subscriptions import ClientSubscriptions, listener_registry, send_together
from django_mcp.exceptions import Busy
from django_mcp.protocol.connection import Connection, Phase, State
from django_mcp.protocol.revisions import REVISIONS
from django_mcp.runtime import threads
from tests.announcing import Announcement, announce
from tests.client import RpcError
from tests.shop.models import Company, Invoice, Tag

from ..unreachable import unreachable

ID = "io.modelcontextprotocol/subscriptionId"
LISTS = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}


def changed(subject: str, server: Any) -> None:
    announce(Announcement("updated", subject, server.name))


def change_lists(server: Any, *names: str) -> None:
    for name in names or ("tools", "prompts", "resources"):
        announce(Announcement("list_changed", name, server.name))


def notifications(client):
    return [
        note.get("params", {}).get("uri", note["method"])
        for note in client.notes
        if note["method"].startswith("notifications/resources/updated")
        or note["method"].endswith("list_changed")
    ]


def wait_for_delivery(client):
    """Wait until the announced changes were delivered."""

    async def quiet():
        await asyncio.sleep(0)
        while tasks := listener_registry()._tasks | (client.conversation._tasks - calls()):
            await asyncio.wait(tasks)
        await asyncio.sleep(0)

    def calls():
        return {active.task for active in client.conversation._active.values()}

    client._run(quiet())


@pytest.fixture
def shop(server):
    """A server with rows that belong to companies, tags for all, and a page."""

    @server.register(Invoice)
    class InvoiceResource(mcp.ModelResource):
        permission = mcp.AUTHENTICATED
        fields = ["number"]
        uri = "invoice://{number}"

        def get_queryset(self, request):
            return super().get_queryset(request).filter(company__members=request.user)

    @server.register(Tag)
    class TagResource(mcp.ModelResource):
        permission = mcp.PUBLIC
        fields = ["label"]

        def get_queryset(self, request):
            return super().get_queryset(request).all()

    @server.resource("shop://news", permission=mcp.PUBLIC)
    def news(request: mcp.Request) -> str:
        return "none"

    @server.resource("shop://staff", permission=lambda request: request.user.is_staff)
    def staff(request: mcp.Request) -> str:
        return "none"

    @server.resource("report://{invoice}")
    def report(request: mcp.Request, invoice: Invoice) -> str:
        return invoice.number

    return server


@pytest.fixture
def subscribed(connect, shop):
    """A client with a subscription, in either way."""

    def made(user: Any, *uris: str, revision: str = "2025-11-25") -> Any:
        client = connect(user, server=shop, revision=revision)
        if client.revision.handshake:
            for uri in uris:
                client.request("resources/subscribe", uri=uri)
        else:
            client.listen = client.start(
                "subscriptions/listen", notifications={"resourceSubscriptions": list(uris)}
            )
            client.until(lambda: client.notes)
        return client

    return made


# Who is notified.


def test_change_notifies_only_subscribed_visible_resources(
    subscribed, shop, alice, invoice, revision
):
    client = subscribed(alice, "invoice://A-1", "shop://news", revision=revision)
    for subject in ("invoice://A-1", "shop://news", "invoice://A-2", "shop://other"):
        changed(subject, shop)
    wait_for_delivery(client)
    assert notifications(client) == ["invoice://A-1", "shop://news"]


def test_invisible_resource_cannot_be_subscribed_to(connect, shop, alice, bob, invoice, handshake):
    client = connect(bob, server=shop, revision=handshake)
    for uri in ("invoice://A-1", "invoice://none", "report://A-1", "shop://staff", "shop://none"):
        with pytest.raises(RpcError) as refused:
            client.request("resources/subscribe", uri=uri)
        assert refused.value.data == {"uri": uri}
        changed(uri, shop)
    wait_for_delivery(client)
    assert client.notes == []


def test_acknowledgement_omits_invisible_resources(subscribed, shop, alice, bob, invoice):
    uris = ["invoice://A-1", "report://A-1", "shop://staff", "shop://news", "shop://none"]
    client = subscribed(bob, *uris, revision="2026-07-28")
    assert client.notes[0]["params"]["notifications"] == {"resourceSubscriptions": ["shop://news"]}
    for uri in uris:
        changed(uri, shop)
    wait_for_delivery(client)
    assert notifications(client) == ["shop://news"]


def test_template_of_a_row_is_visible_to_users_who_see_the_row(subscribed, shop, alice, invoice):
    client = subscribed(alice, "report://A-1")
    changed("report://A-1", shop)
    wait_for_delivery(client)
    assert notifications(client) == ["report://A-1"]


def test_deleted_row_notifies_once_who_could_see_it(
    subscribed, shop, alice, bob, invoice, revision
):
    mine = subscribed(alice, "invoice://A-1", revision=revision)
    others = subscribed(bob, "shop://news", revision=revision)
    invoice.delete()
    for client in (mine, others):
        changed("invoice://A-1", shop)
        wait_for_delivery(client)
        changed("invoice://A-1", shop)
        wait_for_delivery(client)
    assert notifications(mine) == ["invoice://A-1"] and notifications(others) == []


def test_row_that_moves_to_another_tenant_notifies_both_tenants(
    subscribed, shop, alice, bob, invoice, revision
):
    client = subscribed(alice, "invoice://A-1", revision=revision)
    acme, bolts = Company.objects.get(name="Acme"), Company.objects.get(name="Bolts")
    Invoice.objects.update(company=bolts)
    changed("invoice://A-1", shop)
    wait_for_delivery(client)
    assert notifications(client) == [
        "invoice://A-1"
    ]  # the row disappeared for her, which is a change
    changed("invoice://A-1", shop)
    wait_for_delivery(client)
    assert notifications(client) == ["invoice://A-1"]  # changes that she cannot see are not
    their = subscribed(bob, "invoice://A-1", revision=revision)
    Invoice.objects.update(company=acme)
    for one in (client, their):
        changed("invoice://A-1", shop)
        wait_for_delivery(one)
    assert notifications(client) == ["invoice://A-1"] * 2 and notifications(their) == [
        "invoice://A-1"
    ]


def test_deactivated_user_is_notified_of_public_resources_only(
    subscribed, shop, alice, invoice, revision
):
    client = subscribed(alice, "invoice://A-1", "shop://news", revision=revision)
    client.user.is_active = False
    invoice.delete()
    changed("invoice://A-1", shop)
    changed("shop://news", shop)
    wait_for_delivery(client)
    assert notifications(client) == ["shop://news"]  # which is for everybody


def test_unsubscribed_resource_is_not_notified(subscribed, shop, alice, invoice, handshake):
    client = subscribed(alice, "invoice://A-1", "shop://news", revision=handshake)
    client.request("resources/unsubscribe", uri="invoice://A-1")
    client.request("resources/unsubscribe", uri="invoice://never")
    changed("invoice://A-1", shop)
    changed("shop://news", shop)
    wait_for_delivery(client)
    assert notifications(client) == ["shop://news"]
    assert client.conversation.subscriptions._visible == {"shop://news"}


def test_cancelled_listen_is_not_notified(subscribed, shop, alice, invoice):
    client = subscribed(alice, "invoice://A-1", revision="2026-07-28")
    client.notify("notifications/cancelled", requestId=client.listen)
    client.settle()
    changed("invoice://A-1", shop)
    wait_for_delivery(client)
    assert notifications(client) == [] and client.conversation.subscriptions._visible == set()
    assert not [message for message in client.received if "result" in message]


def test_two_listens_of_one_resource_are_independent(subscribed, shop, alice, invoice):
    client = subscribed(alice, "invoice://A-1", revision="2026-07-28")
    other = client.start(
        "subscriptions/listen", notifications={"resourceSubscriptions": ["invoice://A-1"]}
    )
    client.until(lambda: len(client.notes) == 2)
    changed("invoice://A-1", shop)
    wait_for_delivery(client)
    assert [note["params"]["_meta"][ID] for note in client.notes[2:]] == [client.listen, other]
    client.notify("notifications/cancelled", requestId=other)
    client.settle()
    invoice.delete()
    changed("invoice://A-1", shop)
    wait_for_delivery(client)
    assert [note["params"]["_meta"][ID] for note in client.notes[4:]] == [client.listen]


# Timing.


def test_notification_is_sent_after_the_commit(connect, subscribed, shop, alice, invoice):
    from django.test import TestCase

    client = subscribed(alice, "invoice://A-1")
    with TestCase.captureOnCommitCallbacks() as callbacks:
        mcp.notify_changed(invoice, server=shop)
    wait_for_delivery(client)
    assert notifications(client) == [] and len(callbacks) == 1
    callbacks[0]()
    wait_for_delivery(client)
    assert notifications(client) == ["invoice://A-1"]


def test_many_changes_of_one_resource_are_one_notification(subscribed, shop, alice, invoice, jobs):
    client = subscribed(alice, "invoice://A-1", "shop://news")
    jobs.clear()
    for _ in range(1000):
        changed("invoice://A-1", shop)
        changed("shop://news", shop)
        change_lists(shop, "tools", "resources")
    wait_for_delivery(client)
    assert notifications(client) == [
        "invoice://A-1", "shop://news", "notifications/resources/list_changed",
    ]  # fmt: skip
    assert len(jobs) == 1


def test_change_during_a_notification_is_notified_again(subscribed, shop, alice, invoice):
    client = subscribed(alice, "invoice://A-1")
    send = client.conversation.subscriptions._send

    def sending(message):
        send(message)
        if (
            len(notifications(client)) < 1
            and message.get("method") == "notifications/resources/updated"
        ):
            listener_registry().notify(
                shop.name, Announcement("updated", "invoice://A-1", shop.name).changes
            )
            client._take(message)

    client.conversation.subscriptions._send = sending
    changed("invoice://A-1", shop)
    wait_for_delivery(client)
    assert (
        notifications(client).count("invoice://A-1") == 3
    )  # two notifications, and the one that the test added


def test_visibility_of_all_rows_of_a_model_takes_one_query(subscribed, shop, db, queries):
    tags = [Tag.objects.create(label=str(number)) for number in range(20)]
    uris = [f"model://shop/tag/{tag.pk}" for tag in tags]
    client = subscribed(None, *uris, revision="2026-07-28")
    before = len(queries)
    for uri in uris:
        changed(uri, shop)
    wait_for_delivery(client)
    assert notifications(client) == uris and len(queries) - before == 1


# Lists.


def test_list_changes_notify_only_clients_that_requested_them(connect, shop):
    client = connect(server=shop)
    wanted = {"resourcesListChanged": True, "toolsListChanged": True, "promptsListChanged": False}
    client.start("subscriptions/listen", notifications=wanted)
    client.until(lambda: client.notes)
    assert client.notes[0]["params"]["notifications"] == {"resourcesListChanged": True}
    change_lists(shop)
    wait_for_delivery(client)
    assert notifications(client) == ["notifications/resources/list_changed"]


def test_list_changes_notify_every_initialized_client(connect, shop, handshake):
    client = connect(server=shop, revision=handshake)
    early = connect(server=shop, revision=handshake, initialize=False)
    change_lists(shop)
    for one in (client, early):
        wait_for_delivery(one)
    assert (
        notifications(client) == ["notifications/resources/list_changed"]
        and notifications(early) == []
    )


def test_change_on_another_server_is_not_notified(connect, shop, subscribed):
    client = subscribed(None, "shop://news")
    announce(Announcement("updated", "shop://news", "default"))
    announce(Announcement("list_changed", "resources", "default"))
    wait_for_delivery(client)
    assert client.notes == []


# Limits.


def test_number_of_listens_is_limited(connect, shop, monkeypatch):
    monkeypatch.setattr(subscriptions, "MAX_LISTENS", 3)
    client = connect(server=shop)
    for _ in range(3):
        client.start("subscriptions/listen", notifications={})
    client.until(lambda: len(client.notes) == 3)
    response = client.wait(client.start("subscriptions/listen", notifications={}))
    assert response["error"]["message"] == "There are too many listens."


def test_number_of_subscriptions_is_limited(connect, shop, db, monkeypatch, revision):
    monkeypatch.setattr(subscriptions, "MAX_SUBSCRIPTIONS", 3)
    uris = [f"model://shop/tag/{Tag.objects.create(label=str(n)).pk}" for n in range(4)]
    client = connect(server=shop, revision=revision)
    if client.revision.handshake:
        for uri in uris[:3]:
            client.request("resources/subscribe", uri=uri)
        with pytest.raises(RpcError, match="too many subscriptions"):
            client.request("resources/subscribe", uri=uris[3])
        client.request("resources/unsubscribe", uri=uris[0])
        client.request("resources/subscribe", uri=uris[3])
        return
    for some in (uris[:2], uris[2:3]):
        client.start("subscriptions/listen", notifications={"resourceSubscriptions": some})
    client.until(lambda: len(client.notes) == 2)
    last = client.start("subscriptions/listen", notifications={"resourceSubscriptions": uris[3:]})
    assert client.wait(last)["error"]["message"] == "There are too many subscriptions."


# Failures.


class Subscriber:
    """A subscription filter whose principal and sent messages the test controls."""

    def __init__(self, server: Any, principal: Any = None) -> None:
        self.sent: list[Any] = []
        connection = Connection(State("2025-11-25", Phase.OPEN))
        self.subscriptions = ClientSubscriptions(
            server, connection, principal or self.anonymous, self.sent.append
        )

    async def anonymous(self) -> Principal:
        return Principal(AnonymousUser())

    async def notify(self, subject: str, server: Any) -> None:
        if self.subscriptions.add_changes(Announcement("updated", subject, server.name).changes):
            await send_together([self.subscriptions])


def raising(*errors: Exception) -> Any:
    """Return a principal function that first raises each of these errors."""
    left = [*errors]

    async def principal() -> Principal:
        if left:
            raise left.pop(0)
        return Principal(AnonymousUser())

    return principal


async def test_notification_is_retried_while_the_database_is_unreachable(shop, monkeypatch, caplog):
    monkeypatch.setattr(subscriptions, "BUSY_RETRY_SECONDS", 0.01)
    gone = unreachable()
    subscriber = Subscriber(shop, raising(gone, gone))
    subscriber.subscriptions.subscribe("shop://news")
    await subscriber.notify("shop://news", shop)
    assert len(subscriber.sent) == 1 and "cannot be reached" in caplog.text


async def test_failed_visibility_check_leaves_visibility_for_the_next_change(shop, caplog):
    subscriber = Subscriber(shop, raising(RuntimeError("a bug in get_queryset")))
    subscriber.subscriptions.subscribe("shop://staff")  # which nobody may see now
    await subscriber.notify("shop://staff", shop)
    assert subscriber.sent == [] and "visibility cannot be checked" in caplog.text
    for _ in range(2):
        await subscriber.notify("shop://staff", shop)
        assert len(subscriber.sent) == 1


async def test_notification_is_retried_while_the_server_is_busy(shop, monkeypatch):
    monkeypatch.setattr(subscriptions, "BUSY_RETRY_SECONDS", 0.01)
    busy = [Busy(), Busy()]

    async def principal():
        if busy:
            raise busy.pop()
        return Principal(AnonymousUser())

    subscriber = Subscriber(shop, principal)
    subscriber.subscriptions.subscribe("shop://news")
    await subscriber.notify("shop://news", shop)
    assert len(subscriber.sent) == 1 and not busy


async def test_take_returns_true_only_for_the_task_that_must_send(shop):
    subscriber = Subscriber(shop)
    subscriber.subscriptions.subscribe("shop://news")
    news = Announcement("updated", "shop://news", shop.name).changes
    assert subscriber.subscriptions.add_changes(news) is True
    assert subscriber.subscriptions.add_changes(news) is False
    assert (
        subscriber.subscriptions.add_changes(
            Announcement("updated", "shop://other", shop.name).changes
        )
        is False
    )
    await send_together([subscriber.subscriptions])
    assert len(subscriber.sent) == 1
    assert subscriber.subscriptions.add_changes(news) is True


def test_notification_that_the_revision_does_not_define_is_not_sent(shop):
    subscriber = Subscriber(shop)
    subscriber.subscriptions._notify(
        REVISIONS["2024-11-05"], "notifications/subscriptions/acknowledged", {}
    )
    assert subscriber.sent == []


async def test_listen_that_ends_during_the_check_is_not_notified(shop):
    go = threading.Event()

    async def principal():
        await asyncio.to_thread(go.wait, 60)
        return Principal(AnonymousUser())

    subscriber = Subscriber(shop, principal)
    wanted = {"resourceSubscriptions": ["shop://news"]}
    tasks = [asyncio.ensure_future(subscriber.subscriptions.listen(id, wanted)) for id in (1, 2)]
    await asyncio.sleep(0)
    subscriber.subscriptions.subscribe("shop://news")
    telling = asyncio.ensure_future(subscriber.notify("shop://news", shop))
    await asyncio.sleep(0)
    subscriber.subscriptions.unsubscribe("shop://news")
    tasks[0].cancel()
    await asyncio.sleep(0)
    go.set()
    await telling
    updates = [m for m in subscriber.sent if m["method"] == "notifications/resources/updated"]
    assert [m["params"]["_meta"][ID] for m in updates] == [2]
    assert (
        subscriber.subscriptions.end_listens() == [2]
        and subscriber.subscriptions.end_listens() == []
    )
    assert not subscriber.subscriptions.add_changes(
        Announcement("updated", "shop://news", shop.name).changes
    )
    await tasks[1]
    assert subscriber.subscriptions.end_listens() == []
    await asyncio.gather(*tasks, return_exceptions=True)
    threads.tools.shutdown()
