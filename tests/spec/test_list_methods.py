"""Rules that the lists of tools, prompts, resources and templates share."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Permission, User

import django_mcp as mcp
from django_mcp.protocol.revisions import LATEST

from .helpers import (
    LISTS,
    declare,
    list_items,
    list_names,
    request_error,
    request_with_answers,
    server_info,
)

pytestmark = pytest.mark.django_db
KINDS = ("tools", "prompts", "resources")


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.mark.parametrize("kind", [*KINDS, "templates"])
def test_capability_is_declared_if_the_list_has_entries(connect, server, revision, kind):
    declare(server, kind, "one")
    client = connect(server=server, revision=revision, initialize=False)
    capability = "resources" if kind == "templates" else kind
    found = server_info(client)["capabilities"].keys() & set(KINDS)
    assert found == {capability}
    assert list_names(client, kind) == ["one"]
    for other in set(KINDS) - {capability}:
        assert request_error(client, LISTS[other][0]).code == -32601


def test_list_change_notifies_initialized_clients(
    connect, server, handshake, kind, django_capture_on_commit_callbacks
):
    declare(server, kind, "one")
    client = connect(server=server, revision=handshake, initialize=False)
    assert server_info(client)["capabilities"][kind]["listChanged"] is True
    client.settle()
    with django_capture_on_commit_callbacks(execute=True):
        mcp.notify_list_changed(kind, server=server)
    client.until(lambda: client.notes)
    client.settle()
    assert [note["method"] for note in client.notes] == [f"notifications/{kind}/list_changed"]


def test_list_change_notifies_listening_clients_only(
    connect, server, kind, django_capture_on_commit_callbacks
):
    for one in KINDS:
        declare(server, one, "one")
    listening, deaf = connect(server=server), connect(server=server)
    id = listening.start("subscriptions/listen", notifications={f"{kind}ListChanged": True})
    deaf.request("tools/list")
    listening.until(lambda: listening.notes)
    with django_capture_on_commit_callbacks(execute=True):
        mcp.notify_list_changed(server=server)
    listening.until(lambda: len(listening.notes) > 1)
    listening.settle()
    deaf.settle()
    told = [note for note in listening.notes if note["method"].endswith("list_changed")]
    assert [note["method"] for note in told] == [f"notifications/{kind}/list_changed"]
    assert told[0]["params"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": id}
    assert deaf.notes == []


@pytest.fixture(params=[*KINDS, "templates"])
def any_kind(request):
    return request.param


@pytest.fixture
def guarded(server, any_kind):
    """A server with one thing for everybody, one for users and one for those who may."""
    declare(server, any_kind, "open")
    declare(server, any_kind, "user", permission=mcp.AUTHENTICATED)
    declare(server, any_kind, "clerk", permission="shop.change_invoice")
    declare(server, any_kind, "boss", permission=lambda request: request.user.is_superuser)
    return server


def test_list_contains_what_the_caller_may_use(connect, guarded, alice, bob, revision, any_kind):
    def listed_names(user):
        return list_names(connect(user, server=guarded, revision=revision), any_kind)

    assert listed_names(None) == ["open"]
    assert listed_names(bob) == ["open", "user"]
    assert listed_names(alice) == ["open", "user", "clerk"]
    assert listed_names(User(username="root", is_superuser=True, pk=0)) == [
        "open",
        "user",
        "clerk",
        "boss",
    ]


def test_list_may_be_empty_and_follows_permissions_at_once(
    connect, server, bob, revision, any_kind
):
    declare(server, any_kind, "clerk", permission="shop.change_invoice")
    client = connect(bob, server=server, revision=revision)
    assert list_names(client, any_kind) == []
    bob.user_permissions.add(Permission.objects.get(codename="change_invoice"))
    client.user = User.objects.get(pk=bob.pk)
    assert list_names(client, any_kind) == ["clerk"]
    client.user = None
    assert list_names(client, any_kind) == []


def test_list_does_not_depend_on_the_connection_or_earlier_requests(
    connect, guarded, alice, revision, any_kind
):
    @guarded.tool(permission=mcp.PUBLIC)
    def work(request) -> str:
        return "done"

    fresh = connect(alice, server=guarded, revision=revision, capabilities={})
    used = connect(alice, server=guarded, revision=revision)
    before = list_items(used, any_kind)
    used.call("work")
    request_error(used, "tools/call", name="none")
    if used.revision.handshake:
        used.request("logging/setLevel", level="debug")
    assert before == list_items(used, any_kind) == list_items(fresh, any_kind)


def test_list_order_is_stable(connect, server, revision, any_kind, settings):
    wanted = ["zebra", "ant", "cow", "bee", "dog", "auk", "eel"]
    for name in wanted:
        declare(server, any_kind, name)
    client = connect(server=server, revision=revision)
    assert list_names(client, any_kind) == list_names(client, any_kind) == wanted
    settings.DJANGO_MCP = {"PAGE_SIZE": 2}
    assert list_names(client, any_kind) == wanted
    server._forget()
    assert list_names(connect(server=server, revision=revision), any_kind) == wanted


REQUESTS = {
    "tools": ("tools/call", {"name": "ask"}),
    "prompts": ("prompts/get", {"name": "ask"}),
    "resources": ("resources/read", {"uri": "thing://ask"}),
}


def test_question_is_returned_before_the_result(connect, server, kind):
    declare(server, kind, "ask", asks=True)
    method, params = REQUESTS[kind]
    client = connect(server=server, revision=LATEST.name)
    asked = client.request(method, **params)
    assert asked["resultType"] == "input_required"
    [question] = asked["inputRequests"].values()
    assert question["params"]["message"] == "Sure?"
    accepted = {"action": "accept", "content": {"answer": True}}
    answered = request_with_answers(client, method, accepted, **params)
    assert answered["resultType"] == "complete" and "True" in str(answered)
