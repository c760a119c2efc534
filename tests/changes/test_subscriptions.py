"""Listening: told is what was asked for, to who sees it or saw it, in order and once."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser

import django_mcp as mcp
from django_mcp.auth.principal import Principal
from django_mcp.changes import subscriptions
from django_mcp.changes.subscriptions import SubscriptionFilter, listener_registry
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


def lists_change(server: Any, *names: str) -> None:
    for name in names or ("tools", "prompts", "resources"):
        announce(Announcement("list_changed", name, server.name))


def told(client):
    return [
        note.get("params", {}).get("uri", note["method"])
        for note in client.notes
        if note["method"].startswith("notifications/resources/updated")
        or note["method"].endswith("list_changed")
    ]


def rest(client):
    """Let what was announced be told."""

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


# Who is told.


def test_a_change_is_told_to_who_sees_it(subscribed, shop, alice, invoice, revision):
    client = subscribed(alice, "invoice://A-1", "shop://news", revision=revision)
    for subject in ("invoice://A-1", "shop://news", "invoice://A-2", "shop://other"):
        changed(subject, shop)
    rest(client)
    assert told(client) == ["invoice://A-1", "shop://news"]


def test_what_nobody_can_see_cannot_be_subscribed_to(connect, shop, alice, bob, invoice, handshake):
    client = connect(bob, server=shop, revision=handshake)
    for uri in ("invoice://A-1", "invoice://none", "report://A-1", "shop://staff", "shop://none"):
        with pytest.raises(RpcError) as refused:
            client.request("resources/subscribe", uri=uri)
        assert refused.value.data == {"uri": uri}
        changed(uri, shop)
    rest(client)
    assert client.notes == []


def test_what_a_listen_may_not_see_is_left_out_of_its_acknowledgement(
    subscribed, shop, alice, bob, invoice
):
    uris = ["invoice://A-1", "report://A-1", "shop://staff", "shop://news", "shop://none"]
    client = subscribed(bob, *uris, revision="2026-07-28")
    assert client.notes[0]["params"]["notifications"] == {"resourceSubscriptions": ["shop://news"]}
    for uri in uris:
        changed(uri, shop)
    rest(client)
    assert told(client) == ["shop://news"]


def test_a_template_over_rows_is_seen_by_who_sees_the_row(subscribed, shop, alice, invoice):
    client = subscribed(alice, "report://A-1")
    changed("report://A-1", shop)
    rest(client)
    assert told(client) == ["report://A-1"]


def test_a_deleted_row_is_told_once_to_who_saw_it(subscribed, shop, alice, bob, invoice, revision):
    mine = subscribed(alice, "invoice://A-1", revision=revision)
    others = subscribed(bob, "shop://news", revision=revision)
    invoice.delete()
    for client in (mine, others):
        changed("invoice://A-1", shop)
        rest(client)
        changed("invoice://A-1", shop)
        rest(client)
    assert told(mine) == ["invoice://A-1"] and told(others) == []


def test_a_row_that_moves_to_another_tenant_is_told_to_both(
    subscribed, shop, alice, bob, invoice, revision
):
    client = subscribed(alice, "invoice://A-1", revision=revision)
    acme, bolts = Company.objects.get(name="Acme"), Company.objects.get(name="Bolts")
    Invoice.objects.update(company=bolts)
    changed("invoice://A-1", shop)
    rest(client)
    assert told(client) == ["invoice://A-1"]  # it is gone: that is a change
    changed("invoice://A-1", shop)
    rest(client)
    assert told(client) == ["invoice://A-1"]  # what becomes of it there is not
    their = subscribed(bob, "invoice://A-1", revision=revision)
    Invoice.objects.update(company=acme)
    for one in (client, their):
        changed("invoice://A-1", shop)
        rest(one)
    assert told(client) == ["invoice://A-1"] * 2 and told(their) == ["invoice://A-1"]


def test_a_user_who_is_deactivated_is_told_nothing_more(subscribed, shop, alice, invoice, revision):
    client = subscribed(alice, "invoice://A-1", "shop://news", revision=revision)
    client.user.is_active = False
    invoice.delete()
    changed("invoice://A-1", shop)
    changed("shop://news", shop)
    rest(client)
    assert told(client) == ["shop://news"]  # which is for everybody


def test_who_unsubscribes_is_told_nothing_more(subscribed, shop, alice, invoice, handshake):
    client = subscribed(alice, "invoice://A-1", "shop://news", revision=handshake)
    client.request("resources/unsubscribe", uri="invoice://A-1")
    client.request("resources/unsubscribe", uri="invoice://never")
    changed("invoice://A-1", shop)
    changed("shop://news", shop)
    rest(client)
    assert told(client) == ["shop://news"]
    assert client.conversation.listening._visible == {"shop://news"}


def test_who_takes_a_listen_back_is_told_nothing_more(subscribed, shop, alice, invoice):
    client = subscribed(alice, "invoice://A-1", revision="2026-07-28")
    client.notify("notifications/cancelled", requestId=client.listen)
    client.settle()
    changed("invoice://A-1", shop)
    rest(client)
    assert told(client) == [] and client.conversation.listening._visible == set()
    assert not [message for message in client.received if "result" in message]


def test_two_who_look_at_one_thing_lose_nothing_when_one_goes(subscribed, shop, alice, invoice):
    client = subscribed(alice, "invoice://A-1", revision="2026-07-28")
    other = client.start(
        "subscriptions/listen", notifications={"resourceSubscriptions": ["invoice://A-1"]}
    )
    client.until(lambda: len(client.notes) == 2)
    changed("invoice://A-1", shop)
    rest(client)
    assert [note["params"]["_meta"][ID] for note in client.notes[2:]] == [client.listen, other]
    client.notify("notifications/cancelled", requestId=other)
    client.settle()
    invoice.delete()
    changed("invoice://A-1", shop)
    rest(client)
    assert [note["params"]["_meta"][ID] for note in client.notes[4:]] == [client.listen]


# When.


def test_in_a_transaction_only_after_the_commit(connect, subscribed, shop, alice, invoice):
    from django.test import TestCase

    client = subscribed(alice, "invoice://A-1")
    with TestCase.captureOnCommitCallbacks() as callbacks:
        mcp.notify_changed(invoice, server=shop)
    rest(client)
    assert told(client) == [] and len(callbacks) == 1
    callbacks[0]()
    rest(client)
    assert told(client) == ["invoice://A-1"]


def test_many_changes_of_one_thing_are_few_messages(subscribed, shop, alice, invoice, jobs):
    client = subscribed(alice, "invoice://A-1", "shop://news")
    jobs.clear()
    for _ in range(1000):
        changed("invoice://A-1", shop)
        changed("shop://news", shop)
        lists_change(shop, "tools", "resources")
    rest(client)
    assert told(client) == [
        "invoice://A-1", "shop://news", "notifications/resources/list_changed",
    ]  # fmt: skip
    assert len(jobs) == 1


def test_what_changes_while_it_is_being_told_is_told_again(subscribed, shop, alice, invoice):
    client = subscribed(alice, "invoice://A-1")
    send = client.conversation.listening._send

    def sending(message):
        send(message)
        if len(told(client)) < 1 and message.get("method") == "notifications/resources/updated":
            listener_registry().notify(
                shop.name, Announcement("updated", "invoice://A-1", shop.name).bulletin
            )
            client._take(message)

    client.conversation.listening._send = sending
    changed("invoice://A-1", shop)
    rest(client)
    assert told(client).count("invoice://A-1") == 3  # twice told, once by the test itself


def test_one_query_for_all_rows_of_a_model(subscribed, shop, db, queries):
    tags = [Tag.objects.create(label=str(number)) for number in range(20)]
    uris = [f"model://shop/tag/{tag.pk}" for tag in tags]
    client = subscribed(None, *uris, revision="2026-07-28")
    before = len(queries)
    for uri in uris:
        changed(uri, shop)
    rest(client)
    assert told(client) == uris and len(queries) - before == 1


# Lists.


def test_lists_are_told_to_who_listens_for_them(connect, shop):
    client = connect(server=shop)
    wanted = {"resourcesListChanged": True, "toolsListChanged": True, "promptsListChanged": False}
    client.start("subscriptions/listen", notifications=wanted)
    client.until(lambda: client.notes)
    assert client.notes[0]["params"]["notifications"] == {"resourcesListChanged": True}
    lists_change(shop)
    rest(client)
    assert told(client) == ["notifications/resources/list_changed"]


def test_lists_there_are_are_told_to_every_client_with_a_handshake(connect, shop, handshake):
    client = connect(server=shop, revision=handshake)
    early = connect(server=shop, revision=handshake, initialize=False)
    lists_change(shop)
    for one in (client, early):
        rest(one)
    assert told(client) == ["notifications/resources/list_changed"] and told(early) == []


def test_what_changes_on_another_server_is_not_told(connect, shop, subscribed):
    client = subscribed(None, "shop://news")
    announce(Announcement("updated", "shop://news", "default"))
    announce(Announcement("list_changed", "resources", "default"))
    rest(client)
    assert client.notes == []


# Bounds.


def test_there_are_at_most_so_many_listens(connect, shop, monkeypatch):
    monkeypatch.setattr(subscriptions, "MAX_LISTENS", 3)
    client = connect(server=shop)
    for _ in range(3):
        client.start("subscriptions/listen", notifications={})
    client.until(lambda: len(client.notes) == 3)
    response = client.wait(client.start("subscriptions/listen", notifications={}))
    assert response["error"]["message"] == "There are too many listens."


def test_there_are_at_most_so_many_subscriptions(connect, shop, db, monkeypatch, revision):
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


# What goes wrong.


class Ears:
    """A client's listening, with its ends in the test's hands."""

    def __init__(self, server: Any, principal: Any = None) -> None:
        self.sent: list[Any] = []
        connection = Connection(State("2025-11-25", Phase.OPEN))
        self.listening = SubscriptionFilter(
            server, connection, principal or self.nobody, self.sent.append
        )

    async def nobody(self) -> Principal:
        return Principal(AnonymousUser())

    async def hear(self, subject: str, server: Any) -> None:
        if self.listening.take(Announcement("updated", subject, server.name).bulletin):
            await self.listening.send()


def raising(*errors: Exception) -> Any:
    """Who it is, when these have been raised."""
    left = [*errors]

    async def principal() -> Principal:
        if left:
            raise left.pop(0)
        return Principal(AnonymousUser())

    return principal


async def test_while_it_cannot_be_known_who_may_see_it_is_kept(shop, monkeypatch, caplog):
    monkeypatch.setattr(subscriptions, "BUSY_RETRY_SECONDS", 0.01)
    gone = unreachable()
    ears = Ears(shop, raising(gone, gone))
    ears.listening.subscribe("shop://news")
    await ears.hear("shop://news", shop)
    assert len(ears.sent) == 1 and "cannot be reached" in caplog.text


async def test_who_could_see_it_could_after_a_bug_too(shop, caplog):
    ears = Ears(shop, raising(RuntimeError("a bug in get_queryset")))
    ears.listening.subscribe("shop://staff")  # which nobody may see now
    await ears.hear("shop://staff", shop)
    assert ears.sent == [] and "visibility cannot be checked" in caplog.text
    for _ in range(2):
        await ears.hear("shop://staff", shop)
        assert len(ears.sent) == 1


async def test_when_all_are_busy_it_is_told_later(shop, monkeypatch):
    monkeypatch.setattr(subscriptions, "BUSY_RETRY_SECONDS", 0.01)
    busy = [Busy(), Busy()]

    async def principal():
        if busy:
            raise busy.pop()
        return Principal(AnonymousUser())

    ears = Ears(shop, principal)
    ears.listening.subscribe("shop://news")
    await ears.hear("shop://news", shop)
    assert len(ears.sent) == 1 and not busy


async def test_one_tells_at_a_time(shop):
    ears = Ears(shop)
    ears.listening.subscribe("shop://news")
    news = Announcement("updated", "shop://news", shop.name).bulletin
    assert ears.listening.take(news) is True
    assert ears.listening.take(news) is False
    assert ears.listening.take(Announcement("updated", "shop://other", shop.name).bulletin) is False
    await ears.listening.send()
    assert len(ears.sent) == 1
    assert ears.listening.take(news) is True


def test_a_revision_that_has_no_such_notification_is_not_sent_it(shop):
    ears = Ears(shop)
    ears.listening._notify(REVISIONS["2024-11-05"], "notifications/subscriptions/acknowledged", {})
    assert ears.sent == []


async def test_who_stops_listening_meanwhile_is_not_told(shop):
    go = threading.Event()

    async def principal():
        await asyncio.to_thread(go.wait, 60)
        return Principal(AnonymousUser())

    ears = Ears(shop, principal)
    wanted = {"resourceSubscriptions": ["shop://news"]}
    tasks = [asyncio.ensure_future(ears.listening.listen(id, wanted)) for id in (1, 2)]
    await asyncio.sleep(0)
    ears.listening.subscribe("shop://news")
    telling = asyncio.ensure_future(ears.hear("shop://news", shop))
    await asyncio.sleep(0)
    ears.listening.unsubscribe("shop://news")
    tasks[0].cancel()
    await asyncio.sleep(0)
    go.set()
    await telling
    updates = [m for m in ears.sent if m["method"] == "notifications/resources/updated"]
    assert [m["params"]["_meta"][ID] for m in updates] == [2]
    assert ears.listening.end() == [2] and ears.listening.end() == []
    assert not ears.listening.take(Announcement("updated", "shop://news", shop.name).bulletin)
    await tasks[1]
    assert ears.listening.end() == []
    await asyncio.gather(*tasks, return_exceptions=True)
    threads.tools.shutdown()
