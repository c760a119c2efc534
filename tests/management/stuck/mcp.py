"""Tools that do not return, and some that do.

Each writes to stderr that it is stuck.
"""

import asyncio
import atexit
import logging
import multiprocessing
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from asgiref.sync import sync_to_async
from django.contrib.auth.models import User

import django_mcp as mcp

LONG = 60  # seconds: no test lasts that long
idle = ThreadPoolExecutor(1)
kept = set()

atexit.register(print, "HOOK", file=sys.__stderr__)


def say(word):
    print(word, file=sys.stderr, flush=True)


async def deaf():
    """Ignore cancellation."""
    while True:
        try:
            await asyncio.sleep(LONG)
        except asyncio.CancelledError:
            say("DEAF")


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
def sleep(request: mcp.Request) -> str:
    say("STUCK")
    time.sleep(LONG)
    return "woke"


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
async def to_thread(request: mcp.Request) -> str:
    say("STUCK")
    await asyncio.to_thread(time.sleep, LONG)
    return "woke"


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
async def to_sync(request: mcp.Request) -> str:
    say("STUCK")
    await sync_to_async(time.sleep)(LONG)
    return "woke"


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
async def swallow(request: mcp.Request) -> str:
    say("STUCK")
    await deaf()
    return "woke"


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
async def block(request: mcp.Request) -> str:
    """Block the event loop."""
    say("STUCK")
    time.sleep(LONG)  # noqa: ASYNC251
    return "woke"


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
async def spin(request: mcp.Request) -> str:
    """Block the event loop by computing."""
    say("STUCK")
    while True:
        pass


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
async def leave_a_task(request: mcp.Request) -> str:
    kept.add(asyncio.create_task(deaf()))
    say("STUCK")
    return "done"


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
def leave_a_thread(request: mcp.Request) -> str:
    threading.Thread(target=time.sleep, args=(LONG,), name="of-the-project").start()
    say("STUCK")
    return "done"


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
def leave_a_hook(request: mcp.Request) -> str:
    atexit.register(time.sleep, LONG)
    say("STUCK")
    return "done"


@mcp.tool(permission=mcp.PUBLIC)
def write(request: mcp.Request) -> str:
    """Write, and never commit."""
    User.objects.create_user("half")
    say("STUCK")
    time.sleep(LONG)
    return "woke"


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
def flood(request: mcp.Request, size: int) -> str:
    """Write more to stderr than a pipe holds."""
    logging.getLogger("noisy").info("FLOOD" + "x" * size)
    return "read"


# These tools return.


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
def echo(request: mcp.Request, size: int = 2) -> str:
    return "x" * size


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
def use_idle(request: mcp.Request) -> str:
    """Start a thread of the project that waits for work."""
    return idle.submit(str, "used").result()


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
def short(request: mcp.Request) -> str:
    say("SHORT")
    time.sleep(0.4)
    return "done"


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
def children(request: mcp.Request, count: int) -> list[int]:
    """Return how child processes end that are terminated at once."""
    return [ended_child() for _ in range(count)]


def ended_child():
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(LONG,))
    child.start()
    child.terminate()
    child.join()
    return child.exitcode
