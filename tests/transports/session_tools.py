"""Tools for the tests of sessions: one answers, one reports progress, one asks a question."""

from __future__ import annotations

import django_mcp as mcp


def add_session_tools(server: mcp.Server) -> None:
    """Register ``add``, ``count`` and ``ask``."""

    @server.tool(permission=mcp.PUBLIC)
    async def add(request: mcp.Request, a: int, b: int) -> int:
        """Add."""
        return a + b

    @server.tool(permission=mcp.PUBLIC)
    def count(request: mcp.Request, to: int) -> str:
        """Count."""
        for n in range(1, to + 1):
            request.progress(n, to)
        return "counted"

    @server.tool(permission=mcp.PUBLIC)
    def ask(request: mcp.Request) -> str:
        """Ask."""
        return f"answer: {request.elicit('Really?', bool)}"
