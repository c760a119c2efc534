"""The notify functions send what the project names to clients, after the transaction commits."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction
from django.test import TestCase

import django_mcp as mcp
from django_mcp.changes import capture
from django_mcp.changes.api import notify_changed, notify_elicitation_complete, notify_list_changed
from django_mcp.changes.change_set import ChangeSet
from django_mcp.declarations import server as servers
from django_mcp.declarations.server import Server
from tests.announcing import observing
from tests.runtime.jobs import until
from tests.shop.models import LocalPlace, Note, Place, Tag, Warehouse


class Recorder:
    def __init__(self) -> None:
        self.received: list[tuple[str, str, str]] = []

    def receive(self, server: str, changes: ChangeSet) -> None:
        for kind in ("uris", "list_names", "completed_elicitations"):
            self.received += [(kind, one, server) for one in getattr(changes, kind)]


@pytest.fixture
def recorder():
    with observing(Recorder()) as made:
        yield made


@pytest.fixture
def second():
    made = Server("second")
    yield made
    servers._servers.pop("second", None)


def register(server, *models, **given):
    for model in models:
        name = f"{model.__name__}Resource"
        body = {"permission": mcp.PUBLIC, "fields": ["pk"], "get_queryset": everything} | given
        server.register(model)(type(name, (mcp.ModelResource,), body))


def everything(self, request):
    return self.model._default_manager.all()


def captured():
    return TestCase.captureOnCommitCallbacks(execute=True)


def of(recorder, *names):
    return [(kind, what, server) for kind, what, server in recorder.received if server in names]


# Rows and URIs.


def test_row_is_notified_by_its_uri_on_each_server_that_exposes_it(db, server, second, recorder):
    register(server, Tag)
    register(second, Tag, uri="tag://{pk}")
    tag = Tag.objects.create(label="x")
    uris = [f"model://shop/tag/{tag.pk}", f"tag://{tag.pk}"]
    with captured():
        notify_changed(tag, server=server)
        notify_changed(tag)
    assert recorder.received == [
        ("uris", uris[0], server.name), ("uris", uris[0], server.name), ("uris", uris[1], "second"),
    ]  # fmt: skip


def test_child_row_is_notified_by_the_uris_of_child_and_parent(db, server, recorder):
    register(server, Place, Warehouse)
    warehouse = Warehouse.objects.create(name="North")
    with captured():
        notify_changed(warehouse, server=server)
        notify_changed(LocalPlace.objects.get(), server=server)
    key = warehouse.pk
    of_both = {f"model://shop/warehouse/{key}", f"model://shop/place/{key}"}
    assert (
        {uri for _, uri, _ in recorder.received[:2]}
        == {uri for _, uri, _ in recorder.received[2:]}
        == of_both
    )


def test_parent_row_is_not_notified_by_a_child_uri_with_unknown_fields(db, server, recorder):
    register(server, Place)
    register(server, Warehouse, uri="warehouse://{capacity}")
    place = Warehouse.objects.create(name="North", capacity=7).place_ptr
    with captured():
        notify_changed(place, server=server)
    assert recorder.received == [("uris", f"model://shop/place/{place.pk}", server.name)]


def test_row_of_an_unregistered_model_is_not_notified(db, server, recorder):
    with captured():
        notify_changed(Note.objects.create(text="x"), server=server)
        notify_changed(Note.objects.create(text="x"))
    assert recorder.received == []


def test_failed_delivery_does_not_fail_the_code_that_saves(db, server, recorder, monkeypatch):
    """In the transaction of a test case."""
    register(server, Tag)
    done = []
    monkeypatch.setattr(capture, "has_followers", lambda: 1 / 0)
    with captured():
        tag = Tag.objects.create(label="x")
        notify_list_changed("resources")
        transaction.on_commit(lambda: done.append(tag))
    assert done == [tag]


def test_row_must_be_notified_before_it_is_deleted(db, server, recorder):
    register(server, Tag)
    tag = Tag.objects.create(label="x")
    key = tag.pk
    with captured():
        notify_changed(tag, server=server)
        Tag.objects.filter(pk=key).delete()
        assert recorder.received == []
    assert (("uris", f"model://shop/tag/{key}", server.name)) in recorder.received
    tag.pk = None
    with pytest.raises(ValueError, match="before it is deleted"):
        notify_changed(tag)


def test_uri_is_notified_unchanged_on_one_or_every_server(db, server, second, recorder):
    with captured():
        notify_changed("shop://x", server=second)
        notify_changed("shop://x")
    assert recorder.received.count(("uris", "shop://x", "second")) == 2
    assert {name for _, _, name in recorder.received} >= {server.name, "second", "default"}


# Transactions.


def test_rolled_back_notifications_are_not_sent(db, server, recorder):
    class Undone(Exception):
        pass

    with captured():
        notify_changed("shop://kept", server=server)
        with pytest.raises(Undone), transaction.atomic():
            notify_changed("shop://undone", server=server)
            raise Undone
        assert recorder.received == []
    assert recorder.received == [("uris", "shop://kept", server.name)]


def test_notifications_of_a_tool_are_sent_after_its_transaction(
    connect, db, server, recorder, alice, invoice
):
    @server.tool(permission=mcp.PUBLIC)
    def change(request: mcp.Request, fail: bool) -> str:
        mcp.notify_changed("shop://x", server=server)
        if fail:
            raise mcp.ToolError("no")
        assert recorder.received == []
        return "done"

    @server.tool(permission=mcp.PUBLIC)
    async def achange(request: mcp.Request) -> str:
        mcp.notify_changed(invoice)
        await until(lambda: len(recorder.received) == 2)  # a thread announces it
        return "done"

    client = connect(server=server)
    client.failure("change", fail=True)
    assert recorder.received == []
    client.text("change", fail=False)
    client.text("achange")
    assert recorder.received == [
        ("uris", "shop://x", server.name),
        ("uris", "invoice://A-1", "default"),
    ]


def test_notification_waits_for_the_transaction_of_the_database_of_the_row(
    db, server, recorder, monkeypatch
):
    asked: list[Any] = []

    def on_commit(hook, using=None, robust=False):
        asked.append(using)

    monkeypatch.setattr(transaction, "on_commit", on_commit)
    register(server, Tag)
    tag = Tag(pk=7, label="x")
    tag._state.db = "default"
    notify_changed(tag, server=server)
    notify_changed("shop://x", server=server)
    assert asked == ["default", None]


# Lists and pages.


def test_list_changes_are_notified_by_name(db, server, recorder):
    with captured():
        notify_list_changed("tools", server=server)
        notify_list_changed("prompts", "resources", server=server)
        notify_list_changed(server=server)
    names = ["tools", "prompts", "resources", "tools", "prompts", "resources"]
    assert recorder.received == [("list_names", name, server.name) for name in names]
    with pytest.raises(ValueError, match="There is no list 'tool'; there are: tools, prompts"):
        notify_list_changed("tools", "tool")


def test_completed_elicitation_is_notified_by_its_id(db, server, recorder):
    with captured():
        notify_elicitation_complete("id", server=server)
    assert recorder.received == [("completed_elicitations", "id", server.name)]


def test_notify_functions_are_exported():
    assert mcp.notify_changed is notify_changed
    assert mcp.notify_list_changed is notify_list_changed
    assert mcp.notify_elicitation_complete is notify_elicitation_complete
