"""`mcp`, the official Python SDK: an async tool, sessions in memory, everything as it comes."""

import os

from mcp.server.mcpserver import MCPServer

server = MCPServer("benchmark", log_level="ERROR")


@server.tool()
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


application = server.streamable_http_app(json_response=os.environ.get("ANSWERS") == "json")
