"""Fixtures for the HTTP transport: a token, and servers with public and private tools."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Annotated, Any

import pytest

import django_mcp as mcp
from django_mcp.models import Token
from tests.shop.models import Company


@pytest.fixture
def secret(alice: Any) -> str:
    """The secret of a token of alice."""
    return str(Token.make(alice, "tests")[1])


class Work(SimpleNamespace):
    """The state of the tools below, for the test to see."""


@pytest.fixture
def work(server: Any, db: None) -> Work:
    """A server with public tools, some of which wait for ``go``, and tools for users."""
    state = server._work = Work(
        begun=threading.Event(), ended=threading.Event(), go=threading.Event(), runs=0
    )

    @server.tool(permission=mcp.PUBLIC)
    def plod(request: mcp.Request) -> str:
        """Save something, then ask the database until stopped."""
        state.runs += 1
        Company.objects.create(name="Half done")
        state.begun.set()
        try:
            while not state.go.wait(0.001):
                Company.objects.exists()
        finally:
            state.ended.set()
        return "plodded"

    @server.tool(permission=mcp.PUBLIC)
    async def ponder(request: mcp.Request) -> str:
        state.runs += 1
        state.begun.set()
        try:
            while not state.go.is_set():  # noqa: ASYNC110 - a test sets it
                await asyncio.sleep(0.001)
        finally:
            state.ended.set()
        return "pondered"

    @server.tool(permission=mcp.PUBLIC)
    def save(request: mcp.Request, name: str) -> str:
        state.runs += 1
        Company.objects.create(name=name)
        return name

    @server.tool
    def whoami(request: mcp.Request) -> str:
        return str(request.user.get_username())

    @server.resource("open://{name}", permission=mcp.PUBLIC)
    def opened(request: mcp.Request, name: Annotated[str, mcp.Complete(["a"])]) -> str:
        return name

    @server.resource("closed://{name}")
    def closed(request: mcp.Request, name: str) -> str:
        return name

    @server.prompt(permission=mcp.PUBLIC)
    def greet(request: mcp.Request) -> str:
        return "Greet."

    @server.prompt
    def insult(request: mcp.Request) -> str:
        return "Insult."

    return state


@pytest.fixture
def private(server: Any) -> Any:
    """A server without public declarations."""

    @server.tool
    def whoami(request: mcp.Request) -> str:
        return str(request.user.get_username())

    return server
