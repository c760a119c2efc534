"""System checks of a server: its attributes, the permission of its page and its name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import TYPE_CHECKING

from django.core.checks import CheckMessage, Error, Warning

from . import permissions
from .attribute_checks import TYPES, did_you_mean, is_ours
from .signature_checks import permission_problem

if TYPE_CHECKING:
    from .server import Server

TEXT, LAZY_TEXT = ("str",), ("str", "Promise", "None")
# The types of each attribute. Other checks cover the page, icons, capabilities and ``sse``.
ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    "path": TEXT,
    "version": TEXT,
    "public_name": TEXT,
    "title": LAZY_TEXT,
    "description": LAZY_TEXT,
    "instructions": LAZY_TEXT,
    "website": ("str", "None"),
    "icons": ("Sequence[Icon]",),
    "durable": ("bool",),
}
OPTIONS = (*ATTRIBUTES, "page", "sse", "experimental", "extensions")


def attribute_problems(server: Server) -> Iterator[CheckMessage]:
    """Yield an error for each attribute of the wrong type, and for values in a subclass's body.

    The constructor sets all attributes, so that a value in a class body has no effect.
    """
    for name, parts in ATTRIBUTES.items():
        value = getattr(server, name)
        if not any(TYPES[part][1](value) for part in parts):
            words = " or ".join(filter(None, (TYPES[part][0] for part in parts)))
            message = f"{name} is {value!r:.80}."
            yield Error(message, hint=f"Write {words}.", obj=server, id="django_mcp.E153")
    for cls in type(server).__mro__:
        for name, value in vars(cls).items() if not is_ours(cls) and cls is not object else ():
            if name.startswith("_") or hasattr(value, "__get__"):
                continue
            near = "" if name in OPTIONS else did_you_mean(name, OPTIONS)
            hint = f"{near} Pass it to the constructor: {cls.__name__}(..., page=None).".strip()
            message = f"Nothing reads {cls.__qualname__}.{name} of a server."
            yield Error(message, hint=hint, obj=server, id="django_mcp.E154")


def page_problems(server: Server) -> Iterator[CheckMessage]:
    """Yield what is wrong with the permission for the server's page."""
    if server.page is None:
        return
    if wrong := permissions.problem(server.page) or permission_problem(server.page):
        hint = (
            "Write mcp.PUBLIC, mcp.AUTHENTICATED, a codename, a function of the request, or None."
        )
        yield Error(f"page: {wrong}", hint=hint, obj=server, id="django_mcp.E008")
    elif isinstance(server.page, str):
        near = permissions.unknown_codename(server.page)
        if near is not None:
            message = f"page: the permission {server.page!r} does not exist."
            yield Warning(message, hint=near, obj=server, id="django_mcp.W155")


def name_problems(server: Server) -> Iterator[CheckMessage]:
    """Yield an error if an earlier server shows the same name: commands could not tell them apart.

    A command takes the name or the public name of a server.
    """
    from .server import servers

    for earlier in takewhile(lambda each: each is not server, servers()):
        if {earlier.name, earlier.public_name} & {server.name, server.public_name}:
            message = f"{earlier!r} and {server!r} have the same public name or name."
            hint = f"Give one of them a public_name other than {server.public_name!r}."
            yield Error(message, hint=hint, obj=server, id="django_mcp.E152")
