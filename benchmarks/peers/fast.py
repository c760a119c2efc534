"""FastMCP: async tools, sessions in memory, everything as it comes."""

import os

from fastmcp import FastMCP

server = FastMCP("benchmark")


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


server.tool(add)
for number in range(1, int(os.environ.get("BENCHMARK_TOOLS", 1))):
    server.tool(add, name=f"add_{number}")

application = server.http_app(path="/mcp", json_response=os.environ.get("ANSWERS") == "json")
