"""The decorators ``mcp.tool``, ``mcp.prompt`` and ``mcp.resource``, and ``mcp.register``.

They declare on the default server, or on ``server`` if it is given, and work like the server's
methods of the same names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from .server import Server, default_server

if TYPE_CHECKING:
    from .declaration import Declaration
    from .server import Subject

F = TypeVar("F", bound=Callable[..., Any])
D = TypeVar("D", bound="Declaration")


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(*, server: Server | None = None, **options: Any) -> Callable[[F], F]: ...
def tool(function: Any = None, /, *, server: Server | None = None, **options: Any) -> Any:
    """Expose a function as a tool: ``@mcp.tool`` or ``@mcp.tool(permission=...)``.

    Options: name, title, permission, server, read_only, destructive, atomic.
    """
    return (server or default_server)._decorate("tool", function, options)


@overload
def prompt(function: F, /) -> F: ...
@overload
def prompt(*, server: Server | None = None, **options: Any) -> Callable[[F], F]: ...
def prompt(function: Any = None, /, *, server: Server | None = None, **options: Any) -> Any:
    """Expose a function as a prompt. Options: name, title, permission, server."""
    return (server or default_server)._decorate("prompt", function, options)


def resource(uri: str, /, *, server: Server | None = None, **options: Any) -> Callable[[F], F]:
    """Expose a function as the resource at ``uri``, which is a URI or an RFC 6570 template.

    Options: name, title, permission, server, and the attributes of ``Resource``.
    """
    return (server or default_server).resource(uri, **options)


@overload
def register(cls: type[D], /, *, server: Server | None = None) -> type[D]: ...
@overload
def register(subject: Subject, cls: type[D], /, *, server: Server | None = None) -> type[D]: ...
@overload
def register(*subjects: Subject, server: Server | None = None) -> Callable[[type[D]], type[D]]: ...
@overload
def register(
    first: Subject, second: Subject, /, *things: type[Any], server: Server | None = None
) -> Any: ...
def register(*things: Any, server: Server | None = None) -> Any:
    """Expose classes.

    Write ``@register(Model)`` above a ``ModelResource``, and ``@register`` above other classes.
    ``register(Model, Resource)`` does the same as a statement.
    """
    return (server or default_server).register(*things)
