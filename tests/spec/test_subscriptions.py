"""``subscriptions/listen``: which notifications are sent, in which order, and how it ends."""

from __future__ import annotations

import threading

import pytest

import django_mcp as mcp
from tests.announcing import Announcement, announce

from .helpers import is_response

pytestmark = pytest.mark.django_db
ID = "io.modelcontextprotocol/subscriptionId"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
KINDS = ("tools", "prompts", "resources")
ALL = {f"{kind}ListChanged": True for kind in KINDS}


@pytest.fixture
def changing(server):
    """A server with one of each, whose lists and resources can be said to change."""

    @server.tool(permission=mcp.PUBLIC)
    def tool(request: mcp.Request) -> str:
        return ""

    @server.prompt(permission=mcp.PUBLIC)
    def prompt(request: mcp.Request) -> str:
        return ""

    @server.resource("row://{name}", permission=mcp.PUBLIC)
    def row(request: mcp.Request, name: str) -> str:
        return name

    server._gate = threading.Event()

    @server.resource("slow://{name}", permission=lambda request: server._gate.wait(60))
    def slow(request: mcp.Request, name: str) -> str:
        return name

    return server


def everything_changes(server, *uris):
    for kind in KINDS:
        announce(Announcement("list_changed", kind, server.name))
    for uri in uris or ("row://a", "row://b"):
        announce(Announcement("updated", uri, server.name))


def listen(client, id=None, /, **wanted):
    return client.start("subscriptions/listen", id=id, notifications=wanted)


def of(client, id):
    """The notifications of one subscription, in order."""
    return [note for note in client.notes if note["params"]["_meta"][ID] == id]


def told(client, id):
    """What they say, without the acknowledgement."""
    return [
        note["params"].get("uri", note["method"].split("/")[1])
        for note in of(client, id)
        if note["method"] != ACKNOWLEDGED
    ]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({}, []),
        ({"toolsListChanged": True}, ["tools"]),
        ({"toolsListChanged": False, "promptsListChanged": True}, ["prompts"]),
        ({"resourcesListChanged": "yes", "unknown": True}, []),
        ({"resourceSubscriptions": ["row://a"]}, ["row://a"]),
        ({"resourceSubscriptions": []}, []),
        (ALL, ["tools", "prompts", "resources"]),
    ],
)
def test_only_requested_notifications_are_sent(connect, changing, wanted, expected):
    client = connect(server=changing)
    id = listen(client, **wanted)
    client.until(lambda: of(client, id))
    everything_changes(changing)
    last = listen(client, toolsListChanged=True)
    client.until(lambda: of(client, last))
    everything_changes(changing)
    client.until(lambda: told(client, last) == ["tools"])
    client.settle()
    assert sorted(set(told(client, id))) == sorted(expected)
    (acknowledged,) = [note for note in of(client, id) if note["method"] == ACKNOWLEDGED]
    agreed = acknowledged["params"]["notifications"]
    assert agreed == {name: wanted[name] for name in agreed}
    assert sorted(agreed.keys() & ALL.keys()) == sorted(f"{kind}ListChanged" for kind in expected
                                                        if kind in KINDS)  # fmt: skip


def test_client_without_listen_gets_no_notifications(connect, changing):
    client = connect(server=changing)
    everything_changes(changing)
    client.settle()
    client.text("tool")
    assert client.notes == []


def test_acknowledgement_is_sent_first(connect, changing):
    client = connect(server=changing)
    ids = []
    for number in range(20):
        everything_changes(changing)
        wanted = {"resourceSubscriptions": ["row://a"]} if number % 2 else {}
        ids.append(listen(client, **ALL, **wanted))
        everything_changes(changing)
    client.until(lambda: all(of(client, id) for id in ids))
    everything_changes(changing)
    client.until(lambda: all(len(of(client, id)) > 3 for id in ids))
    for id in ids:
        methods = [note["method"] for note in of(client, id)]
        assert methods[0] == ACKNOWLEDGED and methods.count(ACKNOWLEDGED) == 1


def test_other_subscriptions_may_notify_before_the_acknowledgement(connect, changing, alice):
    client = connect(alice, server=changing)
    first = listen(client, "first", **ALL)
    client.until(lambda: of(client, first))
    # Whether a row may be seen takes its time: the others need not wait for that.
    second = listen(client, "second", resourceSubscriptions=["slow://a"])
    announce(Announcement("list_changed", "tools", changing.name))
    client.until(lambda: told(client, first) == ["tools"])
    assert of(client, second) == []
    changing._gate.set()
    client.until(lambda: of(client, second))
    (acknowledged,) = of(client, second)
    assert acknowledged["params"]["notifications"] == {"resourceSubscriptions": ["slow://a"]}


@pytest.mark.parametrize("id", [7, "7", 0, "ä b"])
def test_every_notification_contains_the_subscription_id(connect, changing, id):
    client = connect(server=changing)
    listen(client, id, **ALL, resourceSubscriptions=["row://a"])
    client.until(lambda: client.notes)
    everything_changes(changing)
    client.until(lambda: len(client.notes) == 5)
    client._run(client.conversation.close())
    client.settle()
    assert len(client.notes) == 6  # and the end of it
    for message in [note["params"] for note in client.notes] + [client.received[-1]["result"]]:
        carried = message["_meta"][ID]
        assert carried == id and type(carried) is type(id)


def test_client_may_have_several_subscriptions(connect, changing):
    client = connect(server=changing)
    tools, rows = listen(client, **ALL), listen(client, resourceSubscriptions=["row://b"])
    client.until(lambda: len(client.notes) == 2)
    everything_changes(changing)
    client.until(lambda: len(client.notes) == 6)
    assert told(client, tools) == list(KINDS) and told(client, rows) == ["row://b"]
    client.notify("notifications/cancelled", requestId=tools)
    everything_changes(changing, "row://b")
    client.until(lambda: told(client, rows) == ["row://b", "row://b"])
    assert told(client, tools) == list(KINDS)
    assert [message for message in client.received if is_response(message)] == []
    assert client.text("tool") == ""  # a listen is no call in the way of others


def test_subscription_ended_by_the_server_gets_a_result(connect, changing):
    client = connect(server=changing)
    ids = [listen(client, **ALL), listen(client, "second")]
    client.until(lambda: len(client.notes) == 2)
    client._run(client.conversation.close())
    client.settle()
    ends = [message for message in client.received if is_response(message)]
    assert [end["id"] for end in ends] == ids
    for end in ends:
        assert end["result"]["resultType"] == "complete"
        assert end["result"]["_meta"][ID] == end["id"]
    cancelled = [note for note in client.notes if note["method"] == "notifications/cancelled"]
    assert [note["params"]["requestId"] for note in cancelled] == ids
    first = client.received.index(cancelled[0])
    assert first < client.received.index(ends[0])  # what is over cannot be cancelled
    everything_changes(changing)
    client.settle()
    assert client.received[-1] is ends[-1]
