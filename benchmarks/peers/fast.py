"""FastMCP: an async tool, sessions in memory, everything as it comes."""

import os

from fastmcp import FastMCP

server = FastMCP("benchmark")


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


application = server.http_app(path="/mcp", json_response=os.environ.get("ANSWERS") == "json")
