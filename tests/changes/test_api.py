"""What a project says by hand: named, told after the commit, to whoever listens."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction
from django.test import TestCase

import django_mcp as mcp
from django_mcp.changes.api import notify_changed, notify_elicitation_complete, notify_list_changed
from django_mcp.changes.change_set import ChangeSet
from django_mcp.declarations import server as servers
from django_mcp.declarations.server import Server
from tests.announcing import listening
from tests.shop.models import LocalPlace, Note, Place, Tag, Warehouse


class Ear:
    def __init__(self) -> None:
        self.said: list[tuple[str, str, str]] = []

    def hear(self, server: str, news: ChangeSet) -> None:
        for kind in ("uris", "lists", "pages"):
            self.said += [(kind, one, server) for one in getattr(news, kind)]


@pytest.fixture
def ear():
    with listening(Ear()) as made:
        yield made


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


def captured():
    return TestCase.captureOnCommitCallbacks(execute=True)


def of(ear, *names):
    return [(kind, what, server) for kind, what, server in ear.said if server in names]


# Rows and URIs.


def test_a_row_is_told_by_the_uri_of_each_server_that_exposes_it(db, server, second, ear):
    exposed(server, Tag)
    exposed(second, Tag, uri="tag://{pk}")
    tag = Tag.objects.create(label="x")
    uris = [f"model://shop/tag/{tag.pk}", f"tag://{tag.pk}"]
    with captured():
        notify_changed(tag, server=server)
        notify_changed(tag)
    assert ear.said == [
        ("uris", uris[0], server.name), ("uris", uris[0], server.name), ("uris", uris[1], "second"),
    ]  # fmt: skip


def test_a_row_of_a_child_is_one_of_its_parents(db, server, ear):
    exposed(server, Place, Warehouse)
    warehouse = Warehouse.objects.create(name="North")
    with captured():
        notify_changed(warehouse, server=server)
        notify_changed(LocalPlace.objects.get(), server=server)
    key = warehouse.pk
    of_both = {f"model://shop/warehouse/{key}", f"model://shop/place/{key}"}
    assert {uri for _, uri, _ in ear.said[:2]} == {uri for _, uri, _ in ear.said[2:]} == of_both


def test_a_row_of_a_parent_is_a_childs_where_that_is_named_by_what_is_known(db, server, ear):
    exposed(server, Place)
    exposed(server, Warehouse, uri="warehouse://{capacity}")
    place = Warehouse.objects.create(name="North", capacity=7).place_ptr
    with captured():
        notify_changed(place, server=server)
    assert ear.said == [("uris", f"model://shop/place/{place.pk}", server.name)]


def test_a_row_that_nobody_exposes_is_not_told(db, server, ear):
    with captured():
        notify_changed(Note.objects.create(text="x"), server=server)
        notify_changed(Note.objects.create(text="x"))
    assert ear.said == []


def test_a_row_is_told_before_it_is_deleted(db, server, ear):
    exposed(server, Tag)
    tag = Tag.objects.create(label="x")
    key = tag.pk
    with captured():
        notify_changed(tag, server=server)
        Tag.objects.filter(pk=key).delete()
        assert ear.said == []
    assert (("uris", f"model://shop/tag/{key}", server.name)) in ear.said
    tag.pk = None
    with pytest.raises(ValueError, match="before it is deleted"):
        notify_changed(tag)


def test_a_uri_is_told_as_it_is(db, server, second, ear):
    with captured():
        notify_changed("shop://x", server=second)
        notify_changed("shop://x")
    assert ear.said.count(("uris", "shop://x", "second")) == 2
    assert {name for _, _, name in ear.said} >= {server.name, "second", "default"}


# Transactions.


def test_what_is_rolled_back_is_not_told(db, server, ear):
    class Undone(Exception):
        pass

    with captured():
        notify_changed("shop://kept", server=server)
        with pytest.raises(Undone), transaction.atomic():
            notify_changed("shop://undone", server=server)
            raise Undone
        assert ear.said == []
    assert ear.said == [("uris", "shop://kept", server.name)]


def test_a_tool_tells_when_it_has_happened(connect, db, server, ear, alice, invoice):
    @server.tool(permission=mcp.PUBLIC)
    def change(request: mcp.Request, fail: bool) -> str:
        mcp.notify_changed("shop://x", server=server)
        if fail:
            raise mcp.ToolError("no")
        assert ear.said == []
        return "done"

    @server.tool(permission=mcp.PUBLIC)
    async def achange(request: mcp.Request) -> str:
        mcp.notify_changed(invoice)
        return "done"

    client = connect(server=server)
    client.failure("change", fail=True)
    assert ear.said == []
    client.text("change", fail=False)
    client.text("achange")
    assert ear.said == [("uris", "shop://x", server.name), ("uris", "invoice://A-1", "default")]


def test_the_transaction_is_that_of_the_rows_database(db, server, ear, monkeypatch):
    asked: list[Any] = []
    monkeypatch.setattr(transaction, "on_commit", lambda hook, using=None: asked.append(using))
    exposed(server, Tag)
    tag = Tag(pk=7, label="x")
    tag._state.db = "default"
    notify_changed(tag, server=server)
    notify_changed("shop://x", server=server)
    assert asked == ["default", None]


# Lists and pages.


def test_lists_are_told_by_name(db, server, ear):
    with captured():
        notify_list_changed("tools", server=server)
        notify_list_changed("prompts", "resources", server=server)
        notify_list_changed(server=server)
    names = ["tools", "prompts", "resources", "tools", "prompts", "resources"]
    assert ear.said == [("lists", name, server.name) for name in names]
    with pytest.raises(ValueError, match="There is no list 'tool'; there are: tools, prompts"):
        notify_list_changed("tools", "tool")


def test_what_is_done_at_a_page_is_told_by_its_id(db, server, ear):
    with captured():
        notify_elicitation_complete("id", server=server)
    assert ear.said == [("pages", "id", server.name)]


def test_the_public_names_are_these():
    assert mcp.notify_changed is notify_changed
    assert mcp.notify_list_changed is notify_list_changed
    assert mcp.notify_elicitation_complete is notify_elicitation_complete
