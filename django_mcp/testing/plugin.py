"""
The pytest plugin: the fixtures ``mcp_client`` and ``async_mcp_client``.

pytest loads it wherever the package is installed, so it imports neither this package nor Django
before a test requests a fixture. A test that needs a database requests pytest-django's ``db`` or
``transactional_db``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import pytest

try:
    from pytest_asyncio import fixture as async_fixture
except ImportError:  # anyio accepts plain fixtures
    async_fixture = pytest.fixture  # type: ignore[assignment]

if TYPE_CHECKING:
    from .async_client import AsyncClient
    from .client import Client

# pytest-django's fixtures, set up before ours and torn down after them
DATABASES = ("transactional_db", "db")


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
    """An anonymous client of the default server. ``mcp_client.acting_as(user)`` returns another."""
    from .client import Client

    made = Client()
    yield made
    made.close()


@async_fixture
async def async_mcp_client(_mcp_served: None) -> AsyncIterator[AsyncClient]:
    """The same as ``mcp_client`` for async tests with pytest-asyncio or anyio."""
    from .async_client import AsyncClient

    made = AsyncClient()
    yield made
    await made.close()
