"""
Django's test cases, with clients of the project's servers.

Rule: the server works on the test's own connections, one job at a time, so that it sees the test's
rows and its own go when the test ends; clients are closed before that.
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

from .. import threads
from ..conf import settings
from ..dispatch import limits
from .asynchronous import AsyncClient
from .client import Client
from .options import Options

if TYPE_CHECKING:
    _Case = TransactionTestCase
else:
    _Case = object


@contextmanager
def served() -> Iterator[None]:
    """The servers work on the caller's connections until the block ends, and forget who called."""
    limits.forget()
    with threads.adopt():
        yield


class MCPTestMixin(_Case):
    """Gives any of Django's test cases ``mcp`` and ``async_mcp``, clients who are nobody yet.

    ``mcp_options`` are what both begin with, as a dict of ``Options``. The test may use the
    database of sessions beside the default one, unless it names its ``databases``.
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
        """A client that awaits is closed in the loop of the test."""

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
        """A client for tests that do not await."""
        made = Client(**self.mcp_options)
        self.addCleanup(made.close)
        return made

    @cached_property
    def async_mcp(self) -> AsyncClient:
        """A client for ``async def`` tests."""
        return AsyncClient(**self.mcp_options)

    def assertCatalogMatches(self, path: str | Path, client: Client | None = None) -> None:
        """What ``client`` is offered (else: nobody in particular) is what the file holds.

        ``path`` is relative to the file of the test; see ``Client.assert_catalog``.
        """
        found = Path(inspect.getfile(type(self))).parent / path
        (self.mcp if client is None else client).assert_catalog(found)


class MCPTestCase(MCPTestMixin, TestCase):
    """``django.test.TestCase`` with ``mcp`` and ``async_mcp``: all in one transaction."""


class MCPTransactionTestCase(MCPTestMixin, TransactionTestCase):
    """``django.test.TransactionTestCase`` with ``mcp`` and ``async_mcp``: what commits, commits."""
