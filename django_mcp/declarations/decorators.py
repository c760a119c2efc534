"""``mcp.tool``, ``mcp.prompt``, ``mcp.resource``, ``mcp.register`` and ``mcp.register_models``.

They add a declaration to the default server, or to ``server`` if it is given, like the server's
methods of the same names. They only record it: declarations are resolved when they are first used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from .registry import REGISTER_MODELS, Registration
from .server import Server, default_server

if TYPE_CHECKING:
    from django.db.models import Model

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

    Options: ``server``, and the attributes of ``Tool``, such as name, title, permission, read_only,
    destructive and atomic.
    """
    return (server or default_server)._decorate("tool", function, options)


@overload
def prompt(function: F, /) -> F: ...
@overload
def prompt(*, server: Server | None = None, **options: Any) -> Callable[[F], F]: ...
def prompt(function: Any = None, /, *, server: Server | None = None, **options: Any) -> Any:
    """Expose a function as a prompt. Options: ``server``, and the attributes of ``Prompt``."""
    return (server or default_server)._decorate("prompt", function, options)


def resource(uri: str, /, *, server: Server | None = None, **options: Any) -> Callable[[F], F]:
    """Expose a function as the resource at ``uri``, which is a URI or an RFC 6570 template.

    Options: ``server``, and the attributes of ``Resource``.
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

    ``@register(Invoice)`` declares the ``ModelResource`` below it, for one or more models.
    ``@register(InvoiceForm)`` declares a form tool, and ``@register`` any other class. Without a
    decorator, write ``register(Invoice, InvoiceResource)``: if the last argument is a declaration,
    it is registered and returned.
    """
    return (server or default_server).register(*things)


def register_models(
    *subjects: str | type[Model],
    generic: bool,
    exclude: Sequence[type[Model]] = (),
    server: Server | None = None,
) -> None:
    """Serve model resources by five generic tools instead of tools of their own.

    ``subjects`` are labels of apps, or models. Each means the model resources that are registered
    for them on the server. ``exclude`` are models of these apps that keep their own tools.
    ``generic`` must be True. Raise ``AlreadyRegistered``.
    """
    options = {"generic": generic, "exclude": exclude}
    made = Registration(REGISTER_MODELS, register_models, options, subjects)
    (server or default_server)._record(made)
