"""Task augmentation is not declared, and is therefore ignored."""

from __future__ import annotations

import pytest

import django_mcp as mcp

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("task", [{}, {"ttl": 60_000}, {"ttl": -1}, "soon", None])
def test_task_parameter_is_ignored_without_the_capability(connect, server, task):
    @server.tool(permission=mcp.PUBLIC)
    def add(request: mcp.Request, a: int, b: int) -> int:
        return a + b

    client = connect(server=server, revision="2025-11-25")
    assert "tasks" not in client.received[0]["result"]["capabilities"]
    (listed,) = client.request("tools/list")["tools"]
    assert "execution" not in listed
    meta = {"io.modelcontextprotocol/related-task": {"taskId": "x"}}
    result = client.request(
        "tools/call", name="add", arguments={"a": 1, "b": 2}, task=task, _meta=meta
    )
    assert result["structuredContent"] == {"result": 3} and "task" not in result
    assert "_meta" not in result or "related" not in str(result["_meta"])
