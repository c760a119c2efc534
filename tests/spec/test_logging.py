"""Log notifications, as server/utilities/logging of each revision requires."""

import uuid
from datetime import date
from decimal import Decimal

import pytest
from django.core.exceptions import PermissionDenied

import django_mcp as mcp
from django_mcp.calls import throttling
from django_mcp.protocol.revisions import LOG_LEVELS

from .helpers import notification_params, request_error, server_info

pytestmark = pytest.mark.django_db


def ask_for(client, level):
    """Ask for messages of at least ``level``, as the client's revision does."""
    if client.revision.handshake:
        client.request("logging/setLevel", level=level)
    else:
        client.log_level = level


def messages(client):
    return notification_params(client, "notifications/message")


@pytest.fixture
def scale(server):
    """A tool that says something at every level."""

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    def scale(request) -> str:
        for level in LOG_LEVELS:
            request.log(level, f"this is {level}", logger="shop.scale")
        return "done"

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    async def ascale(request) -> str:
        for level in LOG_LEVELS:
            await request.alog(level, f"this is {level}", logger="shop.scale")
        return "done"

    return server


# Levels.


def test_logging_capability_is_declared(connect, scale, revision):
    client = connect(server=scale, revision=revision, initialize=False)
    assert server_info(client)["capabilities"]["logging"] == {}


@pytest.mark.parametrize("tool", ["scale", "ascale"])
def test_messages_of_the_level_and_above_are_sent_before_the_response(
    connect, scale, revision, tool
):
    client = connect(server=scale, revision=revision)
    for number, level in enumerate(LOG_LEVELS):
        ask_for(client, level)
        client.notes.clear()
        id = client.start("tools/call", name=tool, arguments={})
        client.wait(id)
        client.settle()
        said = [message["level"] for message in messages(client)]
        assert said == list(LOG_LEVELS[number:])
        assert client.received[-1]["id"] == id


def test_default_level_is_info(connect, scale, handshake):
    client = connect(server=scale, revision=handshake)
    client.call("scale")
    client.settle()
    assert [message["level"] for message in messages(client)] == list(LOG_LEVELS[1:])


def test_request_without_a_level_gets_no_messages(connect, scale):
    client = connect(server=scale)
    for tool in ("scale", "ascale"):
        assert client.text(tool) == "done"
    ask_for(client, "debug")
    client.text("scale")
    client.notes.clear()
    client.log_level = None  # what an earlier request asked for does not last
    assert client.text("scale") == "done"
    client.settle()
    assert client.notes == []


@pytest.mark.parametrize("level", ["loud", "INFO", "warn", "", "info ", 3, None, ["info"], True])
def test_set_level_with_an_unknown_level_is_invalid_params(connect, scale, handshake, level):
    client = connect(server=scale, revision=handshake)
    assert request_error(client, "logging/setLevel", level=level).code == -32602
    assert request_error(client, "logging/setLevel").code == -32602
    client.call("scale")
    client.settle()
    assert len(messages(client)) == len(LOG_LEVELS) - 1  # as before


@pytest.mark.parametrize("level", ["loud", "INFO", "warn", "info ", 3, ["info"], True])
def test_request_with_an_unknown_level_is_rejected(connect, server, level):
    ran = []

    @server.tool(permission=mcp.PUBLIC)
    def work(request) -> str:
        ran.append(request)

    client = connect(server=server)
    client.log_level = level
    for method, params in (("tools/call", {"name": "work"}), ("tools/list", {})):
        assert request_error(client, method, **params).code == -32602
    assert ran == []


def test_unexpected_exception_is_a_masked_internal_error(connect, scale, revision, caplog):
    client = connect(server=scale, revision=revision)

    async def nobody():
        raise ConnectionError("postgres://shop:hunter2@db")

    client.conversation._principal = nobody
    client.log_level = "debug"
    method = "logging/setLevel" if client.revision.handshake else "tools/list"
    refused = request_error(client, method, level="debug")
    assert refused.code == -32603 and "hunter2" not in f"{refused}"
    assert isinstance(caplog.records[-1].exc_info[1], ConnectionError)


# What is sent, and what is not.


def test_message_contains_json_data_and_the_logger(connect, server, revision):
    key = uuid.uuid4()
    said = [
        "words",
        {"order": 7, "paid": None, "lines": [1.5, True]},
        ["a", {"b": []}],
        0,
        None,
        False,
    ]
    odd = {
        "day": date(2026, 1, 2),
        "sum": Decimal("1.50"),
        "key": key,
        "what": {
            1,
        },
    }

    circle = []
    circle.append(circle)

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    def work(request) -> str:
        for data in said:
            request.log("error", data, logger="shop.orders")
        request.log("error", odd)
        request.log("error", {"ratio": float("nan")})
        request.log("error", circle)
        request.log("error", {(1, 2): "x"})
        request.log("error", "x" * 1_000_000)
        return "done"

    client = connect(server=server, revision=revision)
    ask_for(client, "debug")
    for _ in range(2):
        client.notes.clear()
        client.text("work")
        client.settle()
        *plain, written, ratio, around, keyed, long = messages(client)
        assert plain == [{"level": "error", "logger": "shop.orders", "data": one} for one in said]
        expected = {"day": "2026-01-02", "sum": "1.50", "key": str(key), "what": [1]}
        assert written == {"level": "error", "data": expected}
        assert ratio["data"] == {"ratio": None}
        assert (around["data"], keyed["data"]) == (["..."], {"(1, 2)": "x"})
        assert len(long["data"]) < 200_000


@pytest.mark.parametrize("level", ["loud", "INFO", "", None, 3])
def test_unknown_level_in_a_tool_is_an_error(connect, server, revision, level):
    @server.tool(permission=mcp.PUBLIC, read_only=True)
    def work(request) -> str:
        request.log(level, "hunter2")

    client = connect(server=server, revision=revision)
    ask_for(client, "debug")
    client.failure("work")
    client.settle()
    assert messages(client) == []


def test_messages_over_the_rate_limit_are_dropped(connect, server, revision, settings):
    number, seconds = throttling.process_rate("log")  # without any setting
    assert 0 < number / seconds <= 2_000
    settings.DJANGO_MCP = {"THROTTLES": {"log": "5/month"}}

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    def flood(request) -> str:
        for number in range(1000):
            request.log("error", number)
        return "done"

    client = connect(server=server, revision=revision)
    ask_for(client, "debug")
    assert client.text("flood") == "done"
    client.settle()
    assert [message["data"] for message in messages(client)] == [0, 1, 2, 3, 4]


def test_only_messages_logged_by_the_project_are_sent(
    connect, server, alice, invoice, revision, caplog
):
    errors = [
        RuntimeError("the password is hunter2"),
        PermissionDenied("secret"),
        mcp.ToolError("closed"),
        ConnectionError("postgres://shop:hunter2@db"),
    ]

    @server.tool
    def fail(request, number: int) -> str:
        raise errors[number]

    @server.resource("menu://today")
    def menu(request) -> str:
        raise errors[0]

    client = connect(alice, server=server, revision=revision)
    ask_for(client, "debug")
    for number in range(len(errors)):
        client.failure("fail", number=number)
    client.failure("fail", number="x")
    request_error(client, "tools/call", name="none")
    request_error(client, "resources/read", uri="menu://today")
    request_error(client, "resources/read", uri="menu://tomorrow")
    request_error(client, "prompts/get", name="none")
    client.request("tools/list")
    client.settle()
    assert caplog.records and client.notes == []


# Who hears it.


def test_message_is_sent_only_to_its_caller(connect, scale, alice, bob, revision):
    speaking = connect(alice, server=scale, revision=revision)
    others = [
        connect(user, server=scale, revision=name)
        for user in (alice, bob, None)
        for name in (revision, "2026-07-28")
    ]
    for client in (speaking, *others):
        ask_for(client, "debug")
    speaking.call("scale")
    for client in (speaking, *others):
        client.settle()
    assert len(messages(speaking)) == len(LOG_LEVELS)
    assert [client.notes for client in others] == [[]] * len(others)


def test_level_applies_to_one_request(connect, scale):
    client = connect(server=scale)
    client.log_level = "debug"
    client.start("subscriptions/listen", notifications={"toolsListChanged": True})
    client.until(lambda: client.notes)
    client.log_level = None
    client.call("scale")
    client.settle()
    assert messages(client) == []  # the listen asked for a level, this request did not
    client.log_level = "alert"
    client.call("scale")
    client.settle()
    expected = [{"level": level, "logger": "shop.scale", "data": f"this is {level}"}
                for level in ("alert", "emergency")]  # fmt: skip
    assert messages(client) == expected  # without any subscription's id
