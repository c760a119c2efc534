"""Clients of the test kit, over each transport."""

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
def anonymous_client(db: None, transport: str, revision: str) -> Iterator[Client]:
    """Yield an anonymous client of the shop's server, for each transport and revision."""
    with Client(transport=transport, revision=revision) as client:
        yield client


@pytest.fixture
def release() -> threading.Event:
    """When it is set, the tool ``hold`` continues."""
    return threading.Event()


@pytest.fixture
def holding_server(server: Server, release: threading.Event) -> Server:
    """Return a server with a tool that sends five progress messages, waits, and sends five more."""

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    async def hold(request: mcp.Request) -> str:
        for step in range(1, 11):
            await request.aprogress(step)
            while step == 5 and not release.is_set():  # noqa: ASYNC110 - the test sets it outside of the loop
                await asyncio.sleep(0.001)
        return "held"

    return server
