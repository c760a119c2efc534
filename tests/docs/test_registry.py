"""The page on the MCP registry: its code and its command show what the command writes."""

from __future__ import annotations

import json

import pytest
from django.core.management import call_command

import django_mcp as mcp
from django_mcp.declarations.server import address
from django_mcp.management.commands.mcp_server_json import entry

from .pages import ROOT, blocks

PAGE = ROOT / "docs/how-to/registry.md"


@pytest.mark.django_db
def test_command_writes_the_shown_entry(monkeypatch, settings, capsys, server):
    (code,) = blocks(PAGE, "python")
    settings.DJANGO_MCP = {**settings.DJANGO_MCP, "URL": "https://books.example"}
    server.tool(name="order")(lambda request: "")
    monkeypatch.setattr(mcp, "server", server, raising=False)
    exec(code, {})
    shown, *_ = blocks(PAGE, "console")
    text = shown.split("mcp_server_json\n", 1)[1].rsplit("$ python", 1)[0]
    # The default server has the path of the page.
    text = text.replace("https://books.example/mcp", address(server))
    assert text == json.dumps(entry(server).content, indent=2, ensure_ascii=False) + "\n"
    call_command(
        "mcp_server_json", "--server", "books", "--name", "io.github.you/books",
        "--repository", "https://github.com/books/shop",
    )  # fmt: skip
    assert json.loads(capsys.readouterr().out)["name"] == "io.github.you/books"
