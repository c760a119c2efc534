"""
What a client of the kit may be given, and what it has otherwise.

Rule: an option that is not given is the most that there is: the newest revision, a client that can
do everything, a caller from whom no token takes anything away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from ..declare.servers import default_server
from ..protocol.revisions import LATEST
from .peers import DEFAULT_LEVEL
from .wires import JSON

if TYPE_CHECKING:
    from ..declare.servers import Server

# What a client can do unless it is told otherwise: all there is.
EVERYTHING: JSON = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}, "context": {}},
    "roots": {"listChanged": True},
}


class Options(TypedDict, total=False):
    """What a client may be given beside its user; ``acting_as`` takes over what is not given."""

    server: Server | str  # or its name; the default one
    scopes: Iterable[str] | None  # of its token; None: it has no token, and nothing is taken away
    revision: str  # of the protocol; the newest
    transport: str  # "memory", "http" or "stdio"
    capabilities: JSON | None  # of the client; None: every one there is
    answers: Mapping[str, Any] | None  # to questions: see ``answers``
    log_level: str  # the least level of log messages that it wants to hear
    raise_exceptions: bool  # whether a bug in the server's code is raised as itself
    seconds: float  # to wait for an answer
    application: Any  # over http: the ASGI application; else the server's own endpoint


DEFAULTS: Options = {
    "server": default_server, "scopes": None, "revision": LATEST.name, "transport": "memory",
    "capabilities": None, "answers": None, "log_level": DEFAULT_LEVEL, "raise_exceptions": True,
    "seconds": 30, "application": None,
}  # fmt: skip
