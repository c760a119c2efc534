"""
Test clients for a project's MCP servers, with assertions on what the clients receive.

This module lists the public names. It imports a module when one of its names is first used. The
clients need neither pytest nor ``django.test``.

- ``client``, ``async_client``: the test clients
- ``cases``: test cases for Django's test runner
- ``plugin``: fixtures for pytest
- ``environment``: how servers use the database connections of a test
- ``results``: what a client received, with assertions
- ``snapshots``: compare a client's catalog with a file
- ``peers``: the client's side of the protocol, and answers to the server's questions
- ``wires``: transports in the process of the test
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .async_client import AsyncClient as AsyncClient
    from .async_client import Options as Options
    from .cases import MCPTestCase as MCPTestCase
    from .cases import MCPTestMixin as MCPTestMixin
    from .cases import MCPTransactionTestCase as MCPTransactionTestCase
    from .client import Client as Client
    from .client import Running as Running
    from .peers import CANCEL as CANCEL
    from .peers import DECLINE as DECLINE
    from .peers import Log as Log
    from .peers import Progress as Progress
    from .peers import Unanswered as Unanswered
    from .results import Listed as Listed
    from .results import Prompted as Prompted
    from .results import ReadResult as ReadResult
    from .results import Result as Result
    from .results import RpcError as RpcError
    from .wires import Dropped as Dropped

_PUBLIC = {
    "async_client": ["AsyncClient", "Options"],
    "cases": ["MCPTestCase", "MCPTestMixin", "MCPTransactionTestCase"],
    "client": ["Client", "Running"],
    "peers": ["CANCEL", "DECLINE", "Log", "Progress", "Unanswered"],
    "results": ["Listed", "Prompted", "ReadResult", "Result", "RpcError"],
    "wires": ["Dropped"],
}
_PLACES = {name: module for module, names in _PUBLIC.items() for name in names}

__all__ = sorted(_PLACES)  # noqa: PLE0605


if not TYPE_CHECKING:  # with __getattr__, type checkers would take any name

    def __getattr__(name: str) -> Any:
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f".{_PLACES[name]}", __name__), name)


def __dir__() -> list[str]:
    return [*__all__, *globals()]
