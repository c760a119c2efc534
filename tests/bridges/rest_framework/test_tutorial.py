"""The API of Django REST framework's tutorial, exposed in ten lines."""

from __future__ import annotations

import pytest

from tests.declarations.helpers import valid_catalog
from tests.snippets.models import Snippet

pytestmark = [pytest.mark.urls("tests.snippets.views"), pytest.mark.django_db]

DECLARATIONS = """
from django_mcp.bridges.rest_framework import ViewSetTools
from tests.snippets.views import SnippetViewSet, UserViewSet

@server.register(SnippetViewSet)
class SnippetTools(ViewSetTools):
    actions = ["list", "retrieve", "create", "partial_update", "destroy"]

@server.register(UserViewSet)
class UserTools(ViewSetTools):
    actions = ["list", "retrieve"]
"""


@pytest.fixture
def tutorial(server, settings):
    settings.ALLOWED_HOSTS = ["shop.example"]
    exec(compile(DECLARATIONS, "<tutorial>", "exec", dont_inherit=True), {"server": server})
    return server


def data(result):
    assert not result["isError"], result
    return result["structuredContent"]


def test_tutorial_is_exposed_in_at_most_ten_lines(tutorial):
    assert len([line for line in DECLARATIONS.splitlines() if line]) <= 10
    assert list(valid_catalog(tutorial).tools) == [
        "list_snippet", "retrieve_snippet", "create_snippet", "partial_update_snippet",
        "destroy_snippet", "list_user", "retrieve_user",
    ]  # fmt: skip


def test_only_the_owner_changes_a_snippet(tutorial, connect, alice, bob):
    owner, other = connect(alice, server=tutorial), connect(bob, server=tutorial)
    made = data(owner.call("create_snippet", code="print(1)", language="python"))
    assert (made["owner"], made["title"]) == ("alice", "")
    assert made["url"] == f"https://shop.example/snippets/{made['id']}/"
    assert [row["id"] for row in data(other.call("list_snippet"))] == [made["id"]]
    for tool in ("partial_update_snippet", "destroy_snippet"):
        refused = other.call(tool, pk=made["id"])
        assert refused["isError"] and "permission" in refused["content"][0]["text"]
    assert data(owner.call("partial_update_snippet", pk=made["id"], title="One"))["title"] == "One"
    found = data(owner.call("retrieve_user", pk=alice.pk))
    assert (found["username"], found["snippets"]) == ("alice", [made["url"]])
    assert owner.call("destroy_snippet", pk=made["id"])["content"][0]["text"] == "Done."
    assert not Snippet.objects.exists()


def test_owner_cannot_be_assigned(tutorial, connect, alice, bob):
    client = connect(alice, server=tutorial)
    result = client.call("create_snippet", code="x", owner="bob")
    assert result["isError"] and not Snippet.objects.exists()


GENERIC = """
from django_mcp.bridges.rest_framework import APIViewTools
from tests.snippets.views import SnippetDetail, SnippetList

@server.register(SnippetList)
class Lists(APIViewTools):
    methods = ["get", "post"]

@server.register(SnippetDetail)
class Details(APIViewTools):
    methods = ["get", "put", "patch", "delete"]
"""


def test_generic_views_of_the_tutorial(server, settings, connect, alice, bob):
    settings.ALLOWED_HOSTS = ["shop.example"]
    exec(compile(GENERIC, "<tutorial>", "exec", dont_inherit=True), {"server": server})
    assert list(valid_catalog(server).tools) == [
        "get_snippet_list", "post_snippet_list", "get_snippet_detail", "put_snippet_detail",
        "patch_snippet_detail", "delete_snippet_detail",
    ]  # fmt: skip
    client = connect(alice, server=server)
    made = data(client.call("post_snippet_list", code="print(1)"))
    replaced = data(client.call("put_snippet_detail", pk=made["id"], code="print(2)"))
    assert data(client.call("get_snippet_list")) == [replaced]
    refused = connect(bob, server=server).call("delete_snippet_detail", pk=made["id"])
    assert refused["isError"] and Snippet.objects.exists()
