"""What is measured: an async tool, a sync one, and one that fetches a row. Open to everybody."""

from dataclasses import dataclass

import django_mcp as mcp
from benchmarks.models import City


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
