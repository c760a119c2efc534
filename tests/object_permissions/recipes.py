"""The code of docs/how-to/object-permissions.md, by section."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from django_mcp.declarations import server as servers
from django_mcp.declarations.server import Server

PAGE = Path(__file__).parents[2] / "docs/how-to/object-permissions.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)


def code_of(section: str) -> list[str]:
    """Return the code blocks of a section."""
    text = PAGE.read_text("utf-8").split(f"\n## {section}\n")[1].partition("\n## ")[0]
    return BLOCK.findall(text)


def run(code: str, package: str, server: Server | None = None) -> dict[str, Any]:
    """Run code as a module of ``package``, and declare on ``server``. Return its names."""
    namespace = {"__name__": f"{package}.mcp", "__package__": package}
    default = servers.default_server
    servers.default_server = server or default
    try:
        exec(compile(code, str(PAGE), "exec", dont_inherit=True), namespace)
    finally:
        servers.default_server = default
    return namespace
