"""Clients of the kit, over every way there is to a server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

import django_mcp as mcp
from django_mcp.declarations.server import Server
from django_mcp.testing import Client


@pytest.fixture(params=["memory", "http", "stdio"])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def anywhere(db: None, transport: str, revision: str) -> Iterator[Client]:
    """Nobody, over each transport and in each revision, on the server of the shop."""
    with Client(transport=transport, revision=revision) as client:
        yield client


@pytest.fixture
def go() -> threading.Event:
    """Set, it lets the tool ``hold`` go on."""
    return threading.Event()


@pytest.fixture
def holding(server: Server, go: threading.Event) -> Server:
    """A server whose tool says five things, waits, and says five more."""

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    async def hold(request: mcp.Request) -> str:
        for step in range(1, 11):
            await request.aprogress(step)
            while step == 5 and not go.is_set():  # noqa: ASYNC110 - the test sets it in no loop
                await asyncio.sleep(0.001)
        return "held"

    return server
