"""
Django test cases with test clients: ``MCPTestCase`` and ``MCPTransactionTestCase``.

The server uses the test's own database connections, one job at a time. It sees the test's rows, and
its changes are rolled back with the test. Clients are closed before that.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.test import TestCase, TransactionTestCase
from django.utils.functional import classproperty

from ..calls import throttling
from ..conf import settings
from .async_client import AsyncClient, Options
from .client import Client
from .environment import TestEnvironment

if TYPE_CHECKING:
    _Case = TransactionTestCase
else:
    _Case = object


@contextmanager
def served() -> Iterator[None]:
    """Let servers use the caller's database connections until the block ends. Reset rate limits."""
    throttling.forget()
    with TestEnvironment().installed():
        yield


class MCPTestMixin(_Case):
    """Add ``mcp`` and ``async_mcp``, anonymous clients, to any of Django's test cases.

    ``mcp_options`` is a dict of ``Options`` for both clients. ``databases`` defaults to the default
    database and that of sessions.
    """

    mcp_options: Options = {}

    @classproperty
    def databases(cls) -> set[str]:
        return {"default", settings.DATABASE}

    def __call__(self, result: Any = None) -> None:
        method = getattr(self, self._testMethodName)
        if inspect.iscoroutinefunction(method):
            setattr(self, self._testMethodName, self._closing(method))
        super().__call__(result)

    def _closing(self, method: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        """Return ``method`` with the async client closed at its end, in the same event loop."""

        @wraps(method)
        async def test() -> None:
            try:
                await method()
            finally:
                if "async_mcp" in self.__dict__:
                    await self.async_mcp.close()

        return test

    def setUp(self) -> None:
        super().setUp()
        self.enterContext(served())

    @cached_property
    def mcp(self) -> Client:
        """The client for synchronous tests."""
        made = Client(**self.mcp_options)
        self.addCleanup(made.close)
        return made

    @cached_property
    def async_mcp(self) -> AsyncClient:
        """The client for ``async def`` tests."""
        return AsyncClient(**self.mcp_options)

    def assertCatalogMatches(self, path: str | Path, client: Client | None = None) -> None:
        """Assert that the catalog of ``client`` equals the file at ``path``.

        ``client`` is ``self.mcp`` by default. ``path`` is relative to the test's file. See
        ``Client.assert_catalog``.
        """
        found = Path(inspect.getfile(type(self))).parent / path
        (self.mcp if client is None else client).assert_catalog(found)


class MCPTestCase(MCPTestMixin, TestCase):
    """``django.test.TestCase`` with ``mcp`` and ``async_mcp``. Each test is one transaction."""


class MCPTransactionTestCase(MCPTestMixin, TransactionTestCase):
    """``django.test.TransactionTestCase`` with ``mcp`` and ``async_mcp``. Transactions commit."""
