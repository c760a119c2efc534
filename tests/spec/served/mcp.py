"""What the served project exposes: tools that speak, wait, fill the answer, and leave a trace."""

import asyncio
import threading
import time

from django.conf import settings
from django.contrib.auth.models import Group

import django_mcp as mcp


def trace(name: str) -> None:
    (settings.FOLDER / name).touch()


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
async def add(request: mcp.Request, a: int, b: int) -> int:
    return a + b


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
def count(request: mcp.Request, to: int, pause: float = 0.0) -> str:
    """Tell of every step, from a thread."""
    for step in range(to):
        request.progress(step + 1, to)
        time.sleep(pause)
    return f"counted to {to}"


@mcp.tool(permission=mcp.PUBLIC)
def plod(request: mcp.Request) -> str:
    """Write something, and ask the database until stopped."""
    Group.objects.create(name="half done")
    trace("plodding")
    try:
        while True:
            Group.objects.exists()
            time.sleep(0.01)
    finally:
        trace("plodded")


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
async def ponder(request: mcp.Request, seconds: float = 60, say: bool = False) -> str:
    """Wait, and know when nobody waits for it any more."""
    trace("pondering")
    if say:
        await request.aprogress(1)
    try:
        await asyncio.sleep(seconds)
    finally:
        trace("pondered")
    return "pondered"


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
def large(request: mcp.Request, size: int) -> str:
    return "x" * size


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
def groups(request: mcp.Request) -> int:
    return Group.objects.count()


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
def busy(request: mcp.Request) -> list[str]:
    """The threads there are, after those that are on their way out."""
    time.sleep(0.05)
    return sorted(thread.name for thread in threading.enumerate())


@mcp.tool
def whoami(request: mcp.Request) -> str:
    return str(request.user.get_username())


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
async def retry(request: mcp.Request, name: str, say: bool = False) -> str:
    """Never come to an end the first time, and at once when run again."""
    if say:
        await request.aprogress(1)
    if (settings.FOLDER / name).exists():
        return "done at last"
    trace(name)
    await asyncio.sleep(600)
    return "never"


@mcp.tool(permission=mcp.PUBLIC)
async def risk(request: mcp.Request, name: str) -> str:
    """Never come to an end, and do who knows what."""
    trace(name)
    await asyncio.sleep(600)
    return "never"


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
async def babble(request: mcp.Request, to: int, size: int, pause: float = 0.01) -> str:
    """Say so much that who reads it slowly has it in front of it for a long time."""
    for step in range(to):
        await request.aprogress(step + 1, to, "x" * size)
        if step % 50 == 0:
            await asyncio.sleep(pause)
    trace("babbled")
    return f"said {to}"


@mcp.resource("broken://one", permission=mcp.PUBLIC)
async def broken(request: mcp.Request) -> str:
    """Speak, and fail: the answer is an error, at the end of a stream."""
    await request.aprogress(1)
    await asyncio.sleep(0.2)
    raise RuntimeError("It is broken.")
