"""Lists contain what the caller may use, page by page, even if the list changes meanwhile."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from django.utils.translation import gettext_lazy

import django_mcp as mcp
from django_mcp.declarations.cursors import seal
from django_mcp.declarations.declaration import MAX_ENCODED_DEFINITIONS
from django_mcp.models import Switch
from django_mcp.protocol.revisions import REVISIONS, encode_result
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


def deploy(server):
    """Make the server read its list of tools again, as a new process does."""
    del server._catalog.tool_list


def test_cursor_at_a_removed_item_stays_valid(connect, server, small_pages):
    for number in range(6):
        declare(server, "tools", f"tool{number}")
    client = connect(server=server)
    cursor = client.request("tools/list")["nextCursor"]
    del server._catalog.tools["tool1"]
    deploy(server)
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
    deploy(server)
    page = client.request("tools/list", cursor=cursor)
    assert page["tools"] == [] and "nextCursor" not in page


# What is kept between requests and what is not.


@pytest.mark.parametrize("kind", ["tools", "prompts", "templates"])
def test_definitions_are_in_the_form_of_each_revision(connect, server, kind, revision):
    method, member = LISTS[kind]
    declare(server, kind, "thing")
    thing = next(iter(getattr(server._catalog, kind).values()))
    thing.title, thing.description, thing.meta = "Thing", "What it is for.", {"shop.x/key": "v"}
    thing.icons = [mcp.Icon("https://shop.example/icon.png")]
    expected = encode_result(REVISIONS[revision], method, {member: [thing._definition()]})
    for _ in range(2):
        assert connect(server=server, revision=revision).request(method)[member] == expected[member]


def test_definitions_are_in_the_language_of_each_request(connect, server, settings):
    settings.USE_I18N = True
    server.tool(name="thing", title=gettext_lazy("Monday"), permission=mcp.PUBLIC)(
        lambda request: 1
    )
    client = connect(server=server)
    for _ in range(2):
        for around, title in (([], "Monday"), (["tests.calls.around.in_german"], "Montag")):
            settings.DJANGO_MCP = {"AROUND": around}
            assert client.request("tools/list")["tools"][0]["title"] == title


def test_kept_definitions_are_limited(connect, server):
    declare(server, "tools", "thing")
    thing = server._catalog.tools["thing"]
    for number in range(2 * MAX_ENCODED_DEFINITIONS):
        thing.title = f"Title {number}"
        [shown] = connect(server=server).request("tools/list")["tools"]
        assert shown["title"] == thing.title
    assert len(thing._encoded_definitions) <= MAX_ENCODED_DEFINITIONS


class CountingUser:
    pk, is_authenticated, is_active = 1, True, True

    def __init__(self):
        self.asked, self.granted = [], {"shop.view_tag"}

    def has_perm(self, name):
        self.asked.append(name)
        return name in self.granted


def test_permission_is_checked_once_for_each_codename_and_request(connect, server):
    for number in range(4):
        declare(server, "tools", f"tag{number}", "shop.view_tag")
        declare(server, "tools", f"note{number}", "shop.view_note")
    client, user = connect(server=server), CountingUser()
    client.user = user
    assert names(client.request("tools/list")["tools"]) == [f"tag{n}" for n in range(4)]
    assert sorted(user.asked) == ["shop.view_note", "shop.view_tag"]
    user.granted = {"shop.view_note"}  # the next list shows the change
    assert names(client.request("tools/list")["tools"]) == [f"note{n}" for n in range(4)]
    assert len(user.asked) == 4


def test_permission_functions_are_asked_for_each_tool_and_request(connect, server):
    asked = []

    def odd(request):
        asked.append(request)
        return len(asked) % 2

    class Special(mcp.Tool):
        name = "special"
        permission = "shop.view_tag"

        def has_permission(self, request):
            return odd(request)

        def handle(self, request: mcp.Request) -> str:
            return ""

    server.register(Special)
    for number in range(2):
        declare(server, "tools", f"tool{number}", odd)
    declare(server, "tools", "plain", "shop.view_tag")
    client = connect(server=server)
    client.user = CountingUser()
    assert names(client.request("tools/list")["tools"]) == ["special", "tool1", "plain"]
    assert names(client.request("tools/list")["tools"]) == ["tool0", "plain"]
    assert len(asked) == 6


def test_switched_off_tool_is_not_listed_with_others_of_its_permission(connect, server, db):
    for number in range(3):
        declare(server, "tools", f"tool{number}")
    client = connect(server=server)
    for off in range(3):
        switch = Switch.objects.create(server=server.name, thing=f"tool:tool{off}")
        shown = names(client.request("tools/list")["tools"])
        assert shown == [f"tool{number}" for number in range(3) if number != off]
        switch.delete()


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
