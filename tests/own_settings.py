"""What the ``conftest`` modules of tests with settings of their own share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pytest

from django_mcp.declarations import server as declared_servers
from django_mcp.declarations.server import Server


@contextmanager
def new_server(name: str) -> Iterator[Server]:
    """Make a server for the block. Afterwards only the servers from before exist."""
    known = dict(declared_servers._servers)
    yield Server(name)
    declared_servers._servers.clear()
    declared_servers._servers.update(known)


def allow_all_databases(items: Iterable[pytest.Item]) -> None:
    """Give tests with a database all databases, because sessions may be stored in another one."""
    for item in items:
        if item.get_closest_marker("django_db"):
            item.add_marker(pytest.mark.django_db(databases="__all__"), append=False)
