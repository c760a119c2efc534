"""
The tools that are measured: synchronous, asynchronous, with a query, and with much progress.

Everybody may call them. With `BENCHMARK_TOOLS` there are as many tools. With `BENCHMARK_REST`
the actions of a viewset are tools for users. With `BENCHMARK_RESOURCES` the rows of `City` are
resources, and a tool changes them.
"""

import asyncio
import os
import random
import time
from dataclasses import dataclass
from typing import Any

import django_mcp as mcp
from benchmarks.models import City
from benchmarks.steps import FUNCTION, timed

SENT: list[float] = []  # when the last burst sent each message (monotonic clock)


@mcp.tool(permission=mcp.PUBLIC)
async def add(request: mcp.Request, a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@mcp.tool(permission=mcp.PUBLIC)
def add_sync(request: mcp.Request, a: int, b: int) -> int:
    """Add two numbers, in a thread and a transaction."""
    return a + b


@dataclass
class CityResult:
    name: str
    population: int


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
@timed(FUNCTION)
def city(request: mcp.Request, pk: int) -> CityResult:
    """Return a city by its number."""
    found = City.objects.get(pk=pk)
    return CityResult(found.name, found.population)


@mcp.tool(permission=mcp.PUBLIC, durable=True)
def add_with_progress(request: mcp.Request, a: int, b: int) -> int:
    """Add two numbers and send progress, which is stored before it is sent."""
    request.progress(1, 2, "about to add")
    request.progress(2, 2, "added")
    return a + b


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
def burst(request: mcp.Request, count: int) -> int:
    """Send progress as fast as a thread can."""
    SENT.clear()
    for number in range(1, count + 1):
        SENT.append(time.monotonic())
        request.progress(number, count, "on its way")
    return count


@mcp.tool(permission=mcp.PUBLIC)
async def burst_async(request: mcp.Request, count: int) -> int:
    """Send progress, with one turn of the event loop in between."""
    SENT.clear()
    for number in range(1, count + 1):
        SENT.append(time.monotonic())
        request.progress(number, count, "on its way")
        await asyncio.sleep(0)
    return count


@mcp.tool(permission=mcp.PUBLIC)
async def tick(request: mcp.Request, count: int) -> int:
    """Send the time now and then, by the monotonic clock that all processes share."""
    for number in range(1, count + 1):
        await request.aprogress(number, count, str(time.monotonic()))
        await asyncio.sleep(random.uniform(0.05, 0.35))
    return count


@mcp.tool(permission=mcp.PUBLIC)
async def length(request: mcp.Request, text: str) -> int:
    """Return how long a text is."""
    return len(text)


@mcp.tool(permission=mcp.PUBLIC)
async def repeat(request: mcp.Request, count: int) -> str:
    """Return a text of that length."""
    return "x" * count


if os.environ.get("BENCHMARK_AUDIT"):
    mcp.server.audit = True

DECLARED = 9  # tools above
for number in range(DECLARED, int(os.environ.get("BENCHMARK_TOOLS", 0))):

    @mcp.tool(permission=mcp.PUBLIC, name=f"add_{number}")
    async def add_again(request: mcp.Request, a: int, b: int) -> int:
        """Add two numbers."""
        return a + b


if os.environ.get("BENCHMARK_REST"):
    from benchmarks.rest_api import CityViewSet
    from django_mcp.bridges.rest_framework import ViewSetTools

    @mcp.register(CityViewSet)
    class CityActions(ViewSetTools):
        actions = ["list", "retrieve"]


if os.environ.get("BENCHMARK_RESOURCES"):

    @mcp.register(City)
    class Cities(mcp.ModelResource):
        permission = mcp.PUBLIC
        fields = ("name", "population")
        filter_fields = ("population",)

        def get_queryset(self, request: mcp.Request) -> Any:
            return super().get_queryset(request).all()

    @mcp.tool(permission=mcp.PUBLIC)
    def grow(request: mcp.Request, pk: int) -> int:
        """Save a city with one inhabitant more."""
        found = City.objects.select_for_update().get(pk=pk)
        found.population += 1
        found.save()
        return pk
