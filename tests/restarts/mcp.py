"""Tools that take their time."""

import asyncio
import time

import django_mcp as mcp


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
async def look(request, seconds: float, steps: int = 0) -> str:
    """Take a while, and change nothing."""
    for step in range(steps):
        await request.aprogress(step + 1, steps)
        await asyncio.sleep(seconds / steps)
    if not steps:
        await asyncio.sleep(seconds)
    return "looked"


@mcp.tool(permission=mcp.PUBLIC)
def act(request, seconds: float) -> str:
    """Take a while, in a thread, and change something."""
    time.sleep(seconds)
    return "acted"


@mcp.tool(permission=mcp.PUBLIC)
def ask(request) -> str:
    """Ask."""
    return f"answer: {request.elicit('Really?', bool)}"


@mcp.tool(permission=mcp.PUBLIC)
async def release(request, seconds: float) -> str:
    """Let the connection go."""
    await request.arelease_stream()
    await asyncio.sleep(seconds)
    return "released"


@mcp.tool(permission=mcp.PUBLIC)
def change(request) -> str:
    """Announce that a list has changed."""
    mcp.notify_list_changed("tools")
    return "changed"
