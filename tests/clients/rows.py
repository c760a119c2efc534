"""
The rows of the table: every client, in every revision that it can be brought to speak, over stdio
and over HTTP from two servers; and over HTTP+SSE from three, in the first revision, and in a later
one than the transport is of.

A client that opens by a handshake asks for one revision, which is a constant of its own; the
driver sets it (``asks``), as a release of that time would have had it.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PROGRAM = Path("Scripts/python.exe" if os.name == "nt" else "bin/python")
OLD_CLIENT = Path(os.environ.get("MCP1_ENVIRONMENT", ROOT / ".venv-mcp1")) / PROGRAM

OLDER = ("2025-06-18", "2025-03-26", "2024-11-05")
NEWEST = "2026-07-28"
LAST_HANDSHAKE = "2025-11-25"
STDIO, SERVERS = "stdio", ("daphne", "uvicorn")
FIRST, SSE_SERVERS = "2024-11-05", ("daphne", "granian", "uvicorn")


@dataclass(frozen=True)
class Row:
    """A client, how it is started, and the revision it must come to speak."""

    client: str
    driver: str
    mode: str
    revision: str
    asks: str = ""  # the revision its handshake is made to ask for
    server: str = STDIO  # or what serves it over HTTP
    sse: bool = False  # by the first revision's transport

    def __str__(self) -> str:
        how = f"asks for {self.asks}" if self.asks else self.mode or "as it is"
        return f"{self.client}, {how}: {self.revision}"

    @property
    def id(self) -> str:
        """The row in the name of a test."""
        words = str(self).replace(",", "").replace(":", "").split()
        return "-".join([self.server, *(["sse"] if self.sse else []), *words])

    @property
    def way(self) -> str:
        """Its section of the table."""
        if self.server == STDIO:
            return STDIO
        return f"HTTP{'+SSE' if self.sse else ''}, under {self.server}"

    @property
    def python(self) -> str:
        return str(OLD_CLIENT) if self.driver == "drive_mcp1.py" else sys.executable

    @property
    def why_absent(self) -> str:
        """Why the client cannot be driven here, or nothing."""
        if Path(self.python).exists():
            return ""
        return f"there is no mcp 1.x at {self.python}: `python -m tools clients` installs it"

    def since(self, revision: str) -> bool:
        """Whether the revision spoken has what came with ``revision``."""
        return self.revision >= revision


def _rows(client: str, driver: str) -> list[Row]:
    """A client of the 2.x kind, which chooses between discovery and a handshake by its mode."""
    modes = (("auto", NEWEST), (NEWEST, NEWEST), ("legacy", LAST_HANDSHAKE))
    native = [Row(client, driver, mode, revision) for mode, revision in modes]
    return native + [Row(client, driver, "legacy", revision, revision) for revision in OLDER]


DRIVEN = [
    *_rows("mcp 2", "drive_mcp.py"),
    *_rows("FastMCP 4", "drive_fastmcp.py"),
    Row("mcp 1", "drive_mcp1.py", "", LAST_HANDSHAKE),
    *(Row("mcp 1", "drive_mcp1.py", "", revision, revision) for revision in OLDER),
    Row("mcp 1", "drive_mcp1.py", "", LAST_HANDSHAKE, NEWEST),  # offered what it has
]
# A client that would rather not shake hands comes to that as well.
AUTO = Row("mcp 2", "drive_mcp.py", "auto", LAST_HANDSHAKE)
OVER_SSE = [
    replace(row, server=server, sse=True)
    for server in SSE_SERVERS
    for row in (AUTO, *DRIVEN)
    if row.asks == FIRST or (server == "uvicorn" and row == AUTO)
]
ROWS = [
    *(replace(row, server=server) for server in (STDIO, *SERVERS) for row in DRIVEN), *OVER_SSE,
]  # fmt: skip
OVER_HTTP = [row for row in ROWS if row.server != STDIO and not row.sse]


def rows_of(client: str, server: str = STDIO) -> list[Row]:
    return [row for row in ROWS if (row.client, row.server) == (client, server) and not row.sse]
