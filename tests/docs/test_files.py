"""The page on files: its resource reads only files of its directory."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import django_mcp as mcp
from django_mcp.declarations import server as servers
from tests.client import RpcError

from .pages import ROOT, blocks

PAGE = ROOT / "docs/reference/resources.md"


def test_resource_reads_only_files_of_its_directory(monkeypatch, server, connect, alice, tmp_path):
    monkeypatch.setattr(servers, "default_server", server)
    (tmp_path / "handbook").mkdir()
    (tmp_path / "handbook/leave.md").write_text("30 days")
    (tmp_path / "secret.md").write_text("hunter2")
    (code,) = blocks(PAGE, "python")
    settings = SimpleNamespace(BASE_DIR=tmp_path)
    exec(compile(code, str(PAGE), "exec", dont_inherit=True), {"mcp": mcp, "settings": settings})
    client = connect(alice, server=server)
    uri = "file:///handbook/leave.md"
    (contents,) = client.request("resources/read", uri=uri)["contents"]
    assert contents == {"uri": uri, "mimeType": "text/markdown", "text": "30 days"}
    with pytest.raises(RpcError):
        client.request("resources/read", uri="file:///handbook/../secret.md")
