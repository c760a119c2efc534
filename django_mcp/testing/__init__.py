"""
For the tests of a project: clients of its MCP servers, and assertions that read aloud.

Rule: this file names what is public and imports nothing, as ``django_mcp`` itself. The clients need
neither pytest nor ``django.test``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .asynchronous import AsyncClient as AsyncClient
    from .cases import MCPTestCase as MCPTestCase
    from .cases import MCPTestMixin as MCPTestMixin
    from .cases import MCPTransactionTestCase as MCPTransactionTestCase
    from .client import Client as Client
    from .client import Running as Running
    from .http import Dropped as Dropped
    from .lists import Listed as Listed
    from .options import Options as Options
    from .peers import Log as Log
    from .peers import Progress as Progress
    from .questions import CANCEL as CANCEL
    from .questions import DECLINE as DECLINE
    from .questions import Unanswered as Unanswered
    from .results import Contents as Contents
    from .results import Prompted as Prompted
    from .results import Result as Result
    from .results import RpcError as RpcError

_PUBLIC = {
    "asynchronous": ["AsyncClient"],
    "cases": ["MCPTestCase", "MCPTestMixin", "MCPTransactionTestCase"],
    "client": ["Client", "Running"],
    "http": ["Dropped"],
    "lists": ["Listed"],
    "options": ["Options"],
    "peers": ["Log", "Progress"],
    "questions": ["CANCEL", "DECLINE", "Unanswered"],
    "results": ["Contents", "Prompted", "Result", "RpcError"],
}
_PLACES = {name: module for module, names in _PUBLIC.items() for name in names}

__all__ = sorted(_PLACES)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_PLACES[name]}", __name__), name)


def __dir__() -> list[str]:
    return [*__all__, *globals()]
