"""A call leaves no reference cycle: it is freed without Python's garbage collector.

A traceback refers to its frames, so a frame that keeps the error in a variable is a cycle. It would
keep the request and the user in memory.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import time
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import django_mcp as mcp
from django_mcp import signals
from django_mcp.auth.principal import Auth, Principal
from tests.client import SECONDS, Client, RpcError


class Bug(Exception):
    """An error of the project's code. References to built-in exceptions cannot be weak."""


LINK = "https://shop.example/in?id={elicitation_id}"


@pytest.fixture
def objects() -> Iterator[list[weakref.ref[Any]]]:
    """Collect references to the requests and errors of calls. The garbage collector is off."""
    found: list[weakref.ref[Any]] = []

    def receive(record: Any, **kwargs: Any) -> None:
        found.extend(weakref.ref(one) for one in (record.request, record.error) if one)

    signals.call_finished.connect(receive)
    gc.disable()
    yield found
    gc.enable()
    signals.call_finished.disconnect(receive)


@pytest.fixture
def failing(server: mcp.Server) -> mcp.Server:
    @server.tool(permission="shop.refund_invoice")
    def forbidden(request: mcp.Request) -> str:
        return ""

    @server.tool
    def number(request: mcp.Request, number: int) -> str:
        return ""

    @server.tool
    def refuse(request: mcp.Request) -> str:
        raise mcp.ToolError("No.")

    @server.tool
    async def break_down(request: mcp.Request) -> str:
        raise Bug()

    @server.tool
    def sign_in(request: mcp.Request) -> str:
        raise mcp.UrlRequired("Sign in.", LINK)

    @server.tool(needs=["sampling"])
    def sample(request: mcp.Request) -> str:
        return ""

    @server.resource("note://{name}")
    def notes(request: mcp.Request, name: str) -> str:
        return ""

    @server.resource("letter://{name}", permission="shop.refund_invoice")
    def letters(request: mcp.Request, name: str) -> str:
        return ""

    @server.prompt(permission="shop.refund_invoice")
    def letter(request: mcp.Request) -> str:
        return ""

    @server.prompt
    def broken(request: mcp.Request) -> str:
        raise Bug()

    return server


CALLS = [
    ("tools/call", {"name": "forbidden"}),
    ("tools/call", {"name": "no_such_tool"}),
    ("tools/call", {"name": "number", "arguments": {"number": "x"}}),
    ("tools/call", {"name": "refuse"}),
    ("tools/call", {"name": "break_down"}),
    ("tools/call", {"name": "sign_in"}),
    ("tools/call", {"name": "sample"}),
    ("prompts/get", {"name": "letter"}),
    ("prompts/get", {"name": "broken"}),
    ("resources/read", {"uri": "nothing://here"}),
    ("resources/read", {"uri": "letter://a"}),
]


def assert_freed(objects: list[weakref.ref[Any]]) -> None:
    assert objects
    until = time.monotonic() + SECONDS
    # The thread of the call may need a moment to forget it.
    while any(one() is not None for one in objects) and time.monotonic() < until:
        time.sleep(0.01)
    assert [one() for one in objects if one() is not None] == []


@pytest.mark.parametrize(("method", "params"), CALLS, ids=lambda value: str(value))
def test_failed_call_is_freed_at_once(
    connect, revision, failing, alice, objects, caplog, method, params
):
    caplog.set_level(logging.CRITICAL, "django_mcp.calls")  # pytest keeps the logged errors of bugs
    capabilities = {"elicitation": {"url": {}}}
    client = connect(alice, server=failing, revision=revision, capabilities=capabilities)
    with contextlib.suppress(RpcError):
        client.result(method, params)
    client.settle()
    assert_freed(objects)


class ScopedClient(Client):
    """An OAuth client whose token lacks the scope."""

    async def _principal(self) -> Principal:
        return Principal(self.user, Auth(frozenset(["other"]), SimpleNamespace(pk=1)))


@pytest.mark.parametrize(
    ("method", "params"),
    [CALLS[2], ("resources/read", {"uri": "note://a"})],
    ids=lambda value: str(value),
)
def test_call_without_the_scope_is_freed_at_once(failing, alice, objects, settings, method, params):
    scopes = {"all": mcp.Scope("Everything", covers=["tool:*", "resource:*"])}
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"SCOPES": scopes}
    with ScopedClient(alice, server=failing) as client:
        try:
            answer = str(client.result(method, params))
        except RpcError as error:
            answer = str(error)
        assert "scope" in answer
        client.settle()
    assert_freed(objects)


def test_call_that_http_rejects_is_freed_at_once(http, failing, objects):
    failing.tool(permission=mcp.PUBLIC, name="for_all")(lambda request: "")
    with pytest.raises(RpcError, match="A token is needed"):
        http(server=failing).result("tools/call", {"name": "number", "arguments": {"number": 1}})
    assert_freed(objects)
