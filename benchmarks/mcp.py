"""What is measured: an async tool, a sync one, one that fetches a row, and some that say a lot.

All are open to everybody.
"""

import asyncio
import random
import time
from dataclasses import dataclass

import django_mcp as mcp
from benchmarks.models import City

SAID: list[float] = []  # when each message of the last burst was said


@mcp.tool(permission=mcp.PUBLIC)
async def add(request: mcp.Request, a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@mcp.tool(permission=mcp.PUBLIC)
def add_sync(request: mcp.Request, a: int, b: int) -> int:
    """Add two numbers, in a thread and a transaction."""
    return a + b


@dataclass
class Place:
    name: str
    population: int


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
def city(request: mcp.Request, pk: int) -> Place:
    """A city, by its number."""
    found = City.objects.get(pk=pk)
    return Place(found.name, found.population)


@mcp.tool(permission=mcp.PUBLIC, durable=True)
def add_told(request: mcp.Request, a: int, b: int) -> int:
    """Add two numbers, and say so; all of it is written down before it is sent."""
    request.progress(1, 2, "about to add")
    request.progress(2, 2, "added")
    return a + b


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
def burst(request: mcp.Request, count: int) -> int:
    """Say a lot, as fast as a thread can."""
    SAID.clear()
    for number in range(1, count + 1):
        SAID.append(time.monotonic())
        request.progress(number, count, "on its way")
    return count


@mcp.tool(permission=mcp.PUBLIC)
async def burst_async(request: mcp.Request, count: int) -> int:
    """Say a lot, with nothing to wait for in between but a turn of the loop."""
    SAID.clear()
    for number in range(1, count + 1):
        SAID.append(time.monotonic())
        request.progress(number, count, "on its way")
        await asyncio.sleep(0)
    return count


@mcp.tool(permission=mcp.PUBLIC)
async def tick(request: mcp.Request, count: int) -> int:
    """Say now and then what time it is, by the clock that all processes of a machine share."""
    for number in range(1, count + 1):
        await request.aprogress(number, count, str(time.monotonic()))
        await asyncio.sleep(random.uniform(0.05, 0.35))
    return count
