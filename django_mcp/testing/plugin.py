"""
The plugin for pytest: the fixtures ``mcp_client`` and ``async_mcp_client``.

Rule: pytest loads this wherever the package is installed, so it imports nothing of ours or Django's
before a fixture is asked for. A test that needs a database says so, as pytest-django has it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import pytest

try:
    from pytest_asyncio import fixture as async_fixture
except ImportError:  # anyio takes any
    async_fixture = pytest.fixture  # type: ignore[assignment]

if TYPE_CHECKING:
    from .asynchronous import AsyncClient
    from .client import Client

DATABASES = ("transactional_db", "db")  # of pytest-django, to be there before, and gone after


@pytest.fixture
def _mcp_served(request: pytest.FixtureRequest) -> Iterator[None]:
    from .cases import served

    for name in DATABASES:
        if name in request.fixturenames:
            request.getfixturevalue(name)
    with served():
        yield


@pytest.fixture
def mcp_client(_mcp_served: None) -> Iterator[Client]:
    """A client of the default server, who is nobody yet: ``mcp_client.acting_as(user)``."""
    from .client import Client

    made = Client()
    yield made
    made.close()


@async_fixture
async def async_mcp_client(_mcp_served: None) -> AsyncIterator[AsyncClient]:
    """The same for tests that await, with pytest-asyncio or anyio."""
    from .asynchronous import AsyncClient

    made = AsyncClient()
    yield made
    await made.close()
