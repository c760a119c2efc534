"""Announcements: named, told after the commit, to whoever listens."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import pytest
from django.db import transaction

import django_mcp as mcp
from django_mcp.declare import servers
from django_mcp.declare.servers import Server
from django_mcp.dispatch import announcements
from django_mcp.dispatch.announcements import (
    Announcement,
    announce,
    listen,
    notify_changed,
    notify_elicitation_complete,
    notify_list_changed,
    stop_listening,
)
from tests.shop.models import LocalPlace, Note, Place, Tag, Warehouse


class Ear:
    def __init__(self) -> None:
        self.heard: list[Announcement] = []

    def hear(self, announcement: Announcement) -> None:
        self.heard.append(announcement)

    @property
    def said(self) -> list[tuple[str, str, str]]:
        return [(one.kind, one.subject, one.server) for one in self.heard]


@pytest.fixture
def ear():
    made = Ear()
    listen(made)
    yield made
    stop_listening(made)


@pytest.fixture
def second():
    made = Server("second")
    yield made
    servers._servers.pop("second", None)


def exposed(server, *models, **given):
    for model in models:
        name = f"{model.__name__}Resource"
        body = {"permission": mcp.PUBLIC, "fields": ["pk"], "get_queryset": everything} | given
        server.register(model)(type(name, (mcp.ModelResource,), body))


def everything(self, request):
    return self.model._default_manager.all()


# Listening.


def test_everybody_who_listens_hears(ear):
    other = Ear()
    listen(other)
    listen(other)  # once
    news = Announcement("updated", "shop://x", "shop")
    announce(news)
    stop_listening(other)
    stop_listening(other)
    announce(news)
    assert ear.heard == [news, news] and other.heard == [news]


def test_who_is_gone_is_not_kept(ear):
    gone = Ear()
    listen(gone)
    assert {gone, ear} <= set(announcements._listeners)
    seen = weakref.ref(gone)
    del gone
    assert seen() is None and ear in announcements._listeners


def test_one_who_fails_keeps_nobody_from_hearing(ear, caplog):
    class Deaf(Ear):
        def hear(self, announcement: Announcement) -> None:
            raise RuntimeError("deaf")

    deaf, other = Deaf(), Ear()
    listen(deaf)
    listen(other)
    announce(Announcement("updated", "shop://x", "shop"))
    assert len(ear.heard) == len(other.heard) == 1 and "did not hear" in caplog.text
    stop_listening(deaf)


def test_listeners_come_and_go_while_others_are_told():
    go, problems = threading.Event(), []

    def come_and_go() -> None:
        try:
            while not go.is_set():
                listen(Ear())
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=come_and_go) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(300):
        announce(Announcement("updated", "shop://x", "shop"))
    go.set()
    for thread in threads:
        thread.join()
    assert problems == []


# Rows and URIs.


def test_a_row_is_announced_by_the_uri_of_each_server_that_exposes_it(db, server, second, ear):
    exposed(server, Tag)
    exposed(second, Tag, uri="tag://{pk}")
    tag = Tag.objects.create(label="x")
    uris = [f"model://shop/tag/{tag.pk}", f"tag://{tag.pk}"]
    with captured():
        notify_changed(tag, server=server)
        notify_changed(tag)
    assert ear.said == [
        ("updated", uris[0], server.name),
        ("updated", uris[0], server.name),
        ("updated", uris[1], "second"),
    ]


def captured():
    from django.test import TestCase

    return TestCase.captureOnCommitCallbacks(execute=True)


def test_a_row_of_a_child_is_one_of_its_parents(db, server, ear):
    exposed(server, Place, Warehouse)
    warehouse = Warehouse.objects.create(name="North")
    with captured():
        notify_changed(warehouse, server=server)
        notify_changed(LocalPlace.objects.get(), server=server)
    key = warehouse.pk
    assert [one.subject for one in ear.heard] == [
        f"model://shop/warehouse/{key}", f"model://shop/place/{key}", f"model://shop/place/{key}",
    ]  # fmt: skip


def test_a_row_that_nobody_exposes_is_not_announced(db, server, ear):
    with captured():
        notify_changed(Note.objects.create(text="x"), server=server)
    assert ear.heard == []


def test_a_row_is_announced_before_it_is_deleted(db, server, ear):
    exposed(server, Tag)
    tag = Tag.objects.create(label="x")
    key = tag.pk
    with captured():
        notify_changed(tag, server=server)
        tag.delete()
        assert ear.heard == []
    assert [one.subject for one in ear.heard] == [f"model://shop/tag/{key}"]
    with pytest.raises(ValueError, match="before it is deleted"):
        notify_changed(tag)


def test_a_uri_is_announced_as_it_is(db, server, second, ear):
    with captured():
        notify_changed("shop://x", server=second)
        notify_changed("shop://x")
    assert ("updated", "shop://x", "second") in ear.said
    assert {one.server for one in ear.heard} >= {server.name, "second", "default"}


# Transactions.


def test_what_is_rolled_back_is_not_announced(shared_db, server, ear):
    class Undone(Exception):
        pass

    with transaction.atomic():
        notify_changed("shop://kept", server=server)
        with pytest.raises(Undone), transaction.atomic():
            notify_changed("shop://undone", server=server)
            raise Undone
        assert ear.heard == []
    notify_changed("shop://at-once", server=server)
    assert [one.subject for one in ear.heard] == ["shop://kept", "shop://at-once"]


async def test_asynchronous_code_has_no_transaction_to_wait_for(server, ear):
    notify_changed("shop://x", server=server)
    notify_list_changed("tools", server=server)
    notify_elicitation_complete("id", server=server)
    assert len(ear.heard) == 3


def test_a_tool_announces_when_it_has_happened(connect, db, server, ear, alice, invoice):
    @server.tool(permission=mcp.PUBLIC)
    def change(request: mcp.Request, fail: bool) -> str:
        mcp.notify_changed("shop://x", server=server)
        if fail:
            raise mcp.ToolError("no")
        assert ear.heard == []
        return "done"

    @server.tool(permission=mcp.PUBLIC)
    async def achange(request: mcp.Request) -> str:
        mcp.notify_changed(invoice)
        return "done"

    client = connect(server=server)
    client.failure("change", fail=True)
    assert ear.heard == []
    client.text("change", fail=False)
    client.text("achange")
    assert ear.said == [
        ("updated", "shop://x", server.name), ("updated", "invoice://A-1", "default"),
    ]  # fmt: skip


def test_the_transaction_is_that_of_the_rows_database(db, server, ear, monkeypatch):
    asked: list[Any] = []

    def on_commit(function: Any, using: str | None = None) -> None:
        asked.append(using)

    monkeypatch.setattr(transaction, "on_commit", on_commit)
    exposed(server, Tag)
    tag = Tag.objects.create(label="x")
    tag._state.db = "other"
    notify_changed(tag, server=server)
    notify_changed("shop://x", server=server)
    assert asked == ["other", None]


# Lists and pages.


def test_lists_are_announced_by_name(db, server, ear):
    with captured():
        notify_list_changed("tools", server=server)
        notify_list_changed("prompts", "resources", server=server)
        notify_list_changed(server=server)
    names = ["tools", "prompts", "resources", "tools", "prompts", "resources"]
    assert ear.said == [("list_changed", name, server.name) for name in names]
    with pytest.raises(ValueError, match="There is no list 'tool'; there are: tools, prompts"):
        notify_list_changed("tools", "tool")


def test_what_is_done_at_a_page_is_announced_by_its_id(db, server, ear):
    with captured():
        notify_elicitation_complete("id", server=server)
        notify_elicitation_complete("id")
    assert ear.said[0] == ("elicitation_complete", "id", server.name) and len(ear.said) > 1


def test_the_public_names_are_these():
    assert mcp.notify_changed is notify_changed
    assert mcp.notify_list_changed is notify_list_changed
    assert mcp.notify_elicitation_complete is notify_elicitation_complete
