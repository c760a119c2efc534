"""Under DEBUG, the log explains why a caller may not use an object; the response never does."""

from __future__ import annotations

from typing import Literal

import pytest

import django_mcp as mcp
from tests.client import RpcError


@pytest.fixture
def guarded(server):
    @server.tool(permission="shop.delete_invoice")
    def purge(request: mcp.Request) -> str:
        return "purged"

    @server.tool
    async def later(request: mcp.Request) -> str:
        return "later"

    @server.prompt(permission=lambda request: False)
    def never(request: mcp.Request, word: str = "") -> str:
        return word

    return server


def refused(client, method, **params):
    with pytest.raises(RpcError) as error:
        client.request(method, **params)
    return error.value.args[0]


@pytest.mark.parametrize("debug", [True, False])
def test_denial_reason_is_logged_under_debug_only(connect, guarded, alice, settings, caplog, debug):
    settings.DEBUG = debug
    client, nobody = connect(alice, server=guarded), connect(server=guarded)
    assert refused(client, "tools/call", name="purge")["message"] == "Unknown tool: purge"
    assert refused(nobody, "tools/call", name="later")["message"] == "Unknown tool: later"
    refused(client, "prompts/get", name="never")
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == (3 if debug else 0)
    if debug:
        assert "declaration=tool purge (" in told[0]
        assert told[0].endswith("user=alice reason=lacks shop.delete_invoice")
        assert "user=nobody reason=the caller is not authenticated" in told[1]
        assert "prompt never (" in told[2] and "returned False" in told[2]


def test_denial_reason_of_a_completion_is_logged(connect, guarded, alice, settings, caplog):
    @guarded.prompt(permission="shop.delete_invoice")
    def tone(request: mcp.Request, tone: Literal["kind", "firm"] = "kind") -> str:
        return tone

    settings.DEBUG = True
    reference = {"type": "ref/prompt", "name": "tone"}
    argument = {"name": "tone", "value": ""}
    refused(connect(alice, server=guarded), "completion/complete", ref=reference, argument=argument)
    assert "prompt tone (" in caplog.text and "lacks shop.delete_invoice" in caplog.text


def test_unknown_name_is_not_logged(connect, guarded, alice, settings, caplog):
    settings.DEBUG = True
    refused(connect(alice, server=guarded), "tools/call", name="nonsense")
    assert not caplog.records


def test_permission_is_checked_once_for_denial_and_reason(connect, server, alice, settings, caplog):
    settings.DEBUG = True
    answers = iter([False])

    @server.tool(permission=lambda request: next(answers))
    def once(request: mcp.Request) -> str:
        return ""

    answer = refused(connect(alice, server=server), "tools/call", name="once")
    assert answer["message"] == "Unknown tool: once"
    assert "returned False" in caplog.text
