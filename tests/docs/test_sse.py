"""The page on HTTP+SSE: its code enables it, and streams look as shown."""

from __future__ import annotations

import re

import pytest

import django_mcp as mcp
from tests.sse import SseClient

from .pages import ROOT, blocks, text

PAGE = ROOT / "docs/how-to/sse.md"
NAMED = "docs/how-to/sse.md"
FIELD = re.compile(r"^    (event|id|retry|data): ", re.M)


@pytest.fixture
def sse_enabled(monkeypatch):
    monkeypatch.setattr(mcp.server, "sse", False)
    (code,) = blocks(PAGE, "python")
    exec(compile(code, NAMED, "exec", dont_inherit=True), {})
    assert mcp.server.sse is True


@pytest.mark.django_db
@pytest.mark.usefixtures("sse_enabled")
@pytest.mark.parametrize("path", ["/mcp", "/mcp/sse"])
def test_code_of_the_page_enables_sse(path, alice):
    with SseClient(server=mcp.server, path=path, initialize=False) as client:
        raw = client.streams[0].body.decode()
        assert client.address.startswith(f"{path}?session_id=")
        assert [line.partition(":")[0] for line in raw.splitlines() if line] == FIELD.findall(
            text(PAGE)
        )
        client.initialize()
        assert client.request("tools/list")["tools"] is not None
