"""Lists contain what the caller may use, page by page, even if the list changes meanwhile."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import django_mcp as mcp
from django_mcp.declarations.cursors import seal
from tests.client import RpcError
from tests.shop.models import Note, Tag

LISTS = {
    "tools": ("tools/list", "tools"),
    "prompts": ("prompts/list", "prompts"),
    "resources": ("resources/list", "resources"),
    "templates": ("resources/templates/list", "resourceTemplates"),
}


def names(items):
    return [item["name"] for item in items]


def declare(server, kind, name, permission=mcp.PUBLIC):
    def thing(request: mcp.Request) -> str:
        return ""

    def template(request: mcp.Request, key: str) -> str:
        return ""

    if kind in ("tools", "prompts"):
        decorate = getattr(server, kind[:-1])
        decorate(name=name, permission=permission)(thing)
    elif kind == "resources":
        server.resource(f"shop://{name}", name=name, permission=permission)(thing)
    else:
        server.resource(f"shop://{name}/{{key}}", name=name, permission=permission)(template)


@pytest.fixture
def small_pages(settings):
    settings.DJANGO_MCP = {"PAGE_SIZE": 2}


@pytest.mark.parametrize("kind", LISTS)
def test_pages_together_are_the_whole_list(connect, server, small_pages, revision, kind):
    for number in range(5):
        declare(server, kind, f"thing{number}")
    client = connect(server=server, revision=revision)
    pages, cursor = [], {}
    while True:
        page = client.request(LISTS[kind][0], **cursor)
        pages.append(names(page[LISTS[kind][1]]))
        if "nextCursor" not in page:
            break
        cursor = {"cursor": page["nextCursor"]}
    assert pages == [["thing0", "thing1"], ["thing2", "thing3"], ["thing4"]]


@pytest.mark.parametrize("kind", LISTS)
def test_exactly_full_page_is_the_last(connect, server, small_pages, kind):
    for number in range(2):
        declare(server, kind, f"thing{number}")
    page = connect(server=server).request(LISTS[kind][0])
    assert len(page[LISTS[kind][1]]) == 2 and "nextCursor" not in page


@pytest.mark.parametrize("kind", LISTS)
def test_forbidden_items_do_not_count_for_the_page_size(connect, server, small_pages, kind):
    for number in range(6):
        declare(server, kind, f"thing{number}", mcp.AUTHENTICATED if number % 2 else mcp.PUBLIC)
    client = connect(server=server)
    page = client.request(LISTS[kind][0])
    assert names(page[LISTS[kind][1]]) == ["thing0", "thing2"]
    assert names(client.all(*LISTS[kind])) == ["thing0", "thing2", "thing4"]


def test_cursor_at_an_item_that_became_forbidden_stays_valid(connect, server, small_pages):
    forbidden: set[str] = set()
    for number in range(6):
        name = f"tool{number}"
        declare(server, "tools", name, lambda request, name=name: name not in forbidden)
    client = connect(server=server)
    client.user = SimpleNamespace(pk=1, is_authenticated=True, is_active=True)
    cursor = client.request("tools/list")["nextCursor"]
    forbidden |= {"tool0", "tool1", "tool2"}
    page = client.request("tools/list", cursor=cursor)
    assert names(page["tools"]) == ["tool3", "tool4"]
    forbidden.clear()
    page = client.request("tools/list", cursor=cursor)
    assert names(page["tools"]) == ["tool2", "tool3"]


def test_cursor_at_a_removed_item_stays_valid(connect, server, small_pages):
    for number in range(6):
        declare(server, "tools", f"tool{number}")
    client = connect(server=server)
    cursor = client.request("tools/list")["nextCursor"]
    del server._catalog.tools["tool1"]  # as after a deployment
    page = client.request("tools/list", cursor=cursor)
    assert names(page["tools"]) == ["tool3", "tool4"]


def test_list_ends_if_all_later_items_were_removed(connect, server, small_pages):
    for number in range(4):
        declare(server, "tools", f"tool{number}")
    client = connect(server=server)
    cursor = client.request("tools/list")["nextCursor"]
    kept = server._catalog.tools.pop("tool0")
    server._catalog.tools.clear()
    server._catalog.tools["tool0"] = kept
    page = client.request("tools/list", cursor=cursor)
    assert page["tools"] == [] and "nextCursor" not in page


# Rows.


def everything(self, request):
    return self.model._default_manager.all()


@pytest.fixture
def rows(server, db):
    declare(server, "resources", "first")
    declare(server, "resources", "second")
    for model, field in ((Tag, "label"), (Note, "written")):  # MariaDB sorts by no long text
        body = {"permission": mcp.PUBLIC, "fields": [field], "listed": True, "ordering": [field],
                "get_queryset": everything}  # fmt: skip
        server.register(model)(type(f"{model.__name__}Resource", (mcp.ModelResource,), body))
    for number in range(3):
        Tag.objects.create(label=f"tag{number}")
        Note.objects.create(text=f"note{number}")
    return server


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 8, 100])
def test_rows_follow_declared_resources_on_all_pages(connect, rows, settings, size):
    settings.DJANGO_MCP = {"PAGE_SIZE": size}
    client = connect(server=rows)
    found = client.all("resources/list", "resources")
    uris = [item["uri"] for item in found]
    assert uris[:2] == ["shop://first", "shop://second"] and len(set(uris)) == len(uris) == 8
    assert all(uri.startswith("model://shop/tag/") for uri in uris[2:5])
    assert all(uri.startswith("model://shop/note/") for uri in uris[5:])


def test_pages_stay_correct_when_rows_are_added_and_deleted(connect, rows, settings):
    settings.DJANGO_MCP = {"PAGE_SIZE": 3}
    client = connect(server=rows)
    first = client.request("resources/list")
    Tag.objects.filter(label="tag0").delete()
    Tag.objects.create(label="tag00")
    second = client.request("resources/list", cursor=first["nextCursor"])
    keys = [Tag.objects.get(label=label).pk for label in ("tag00", "tag1", "tag2")]
    assert [item["uri"] for item in second["resources"]] == [
        f"model://shop/tag/{key}" for key in keys
    ]


def test_page_continues_with_the_next_model_when_rows_are_deleted(connect, rows, settings):
    settings.DJANGO_MCP = {"PAGE_SIZE": 2}
    client = connect(server=rows)
    first = client.request("resources/list")
    Tag.objects.all().delete()
    second = client.request("resources/list", cursor=first["nextCursor"])
    assert [item["uri"].split("/")[3] for item in second["resources"]] == ["note", "note"]


def test_rows_without_a_permission_are_not_listed(connect, server, db, alice):
    @server.register(Tag)
    class TagResource(mcp.ModelResource):
        fields = ["label"]
        listed = True

    Tag.objects.create(label="x")
    assert connect(alice, server=server).request("resources/list")["resources"] == []


# Cursors.


FORGED: list[Any] = ["", "x", "x:y:z", 7, {}, [], True, "0", "x" * 100_000]


@pytest.mark.parametrize("kind", LISTS)
@pytest.mark.parametrize("cursor", FORGED, ids=lambda cursor: repr(cursor)[:20])
def test_forged_cursor_is_rejected(connect, server, db, kind, cursor):
    declare(server, kind, "thing")
    with pytest.raises(RpcError) as refused:
        connect(server=server).request(LISTS[kind][0], cursor=cursor)
    assert refused.value.code == -32602 and refused.value.message.startswith("cursor")


def test_cursor_of_another_list_or_server_is_rejected(connect, rows, small_pages):
    for number in range(3):
        declare(rows, "tools", f"tool{number}")
    client = connect(server=rows)
    cursor = client.request("resources/list")["nextCursor"]
    with pytest.raises(RpcError, match="not issued by this server"):
        client.request("tools/list", cursor=cursor)
    with pytest.raises(RpcError, match="not issued by this server"):
        connect().request("resources/list", cursor=cursor)


def test_cursor_of_another_caller_is_rejected(connect, server, alice, bob, small_pages):
    for number in range(3):
        declare(server, "tools", f"tool{number}", mcp.AUTHENTICATED)
    cursor = connect(alice, server=server).request("tools/list")["nextCursor"]
    assert connect(alice, server=server).request("tools/list", cursor=cursor)["tools"]
    with pytest.raises(RpcError, match="not issued by this server"):
        connect(bob, server=server).request("tools/list", cursor=cursor)


def test_cursor_with_invalid_row_keys_is_rejected(connect, rows):
    uri = "model://shop/tag/{pk}"
    for position in ([uri, ["x"]], [uri, ["x", "y", "z"]], [uri, [None, "no key"]]):
        cursor = seal(position, f"list:{rows.name}:resources:")  # as it is made for nobody
        with pytest.raises(RpcError, match="cursor: ") as refused:
            connect(server=rows).request("resources/list", cursor=cursor)
        assert "not issued by this server" not in refused.value.message


# What may be kept of a list.


def test_list_that_is_equal_for_all_callers_is_publicly_cacheable(connect, server, settings):
    declare(server, "tools", "tool")
    page = connect(server=server).request("tools/list")
    assert page["cacheScope"] == "public" and page["ttlMs"] > 0
    settings.DJANGO_MCP = {"AROUND": ["tests.calls.around.in_german"]}
    assert connect(server=server).request("tools/list")["cacheScope"] == "private"


@pytest.mark.parametrize("kind", LISTS)
def test_list_that_depends_on_the_caller_is_not_cacheable(connect, server, db, kind):
    declare(server, kind, "public")
    declare(server, kind, "private", mcp.AUTHENTICATED)
    page = connect(server=server).request(LISTS[kind][0])
    assert (page["cacheScope"], page["ttlMs"]) == ("private", 0)


def test_list_of_rows_is_not_cacheable(connect, rows):
    page = connect(server=rows).request("resources/list")
    assert (page["cacheScope"], page["ttlMs"]) == ("private", 0)
