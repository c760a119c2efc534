"""
What a caller may use of a server, all at once: for pages and commands, which show it to people.

Rule: the same questions are asked as in the lists of the protocol, of the same
declarations, inside the same surroundings; nothing is shown that a list would not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from ..declare.declarations import Declaration
from ..declare.prompts import Prompt
from ..declare.resources import Resource
from ..declare.tools import Tool
from .running import surrounded

if TYPE_CHECKING:
    from ..declare.requests import Request


T = TypeVar("T", bound=Declaration)


@dataclass(frozen=True)
class Usable:
    """The declarations that a caller may use, in the order in which they were declared."""

    tools: list[Tool] = field(default_factory=list)
    resources: list[Resource] = field(default_factory=list)
    templates: list[Resource] = field(default_factory=list)
    prompts: list[Prompt] = field(default_factory=list)


def usable(request: Request) -> Usable:
    """What ``request``'s user may use. Asks the database: call it in a thread."""
    catalog = request.server.ready()

    def allowed(things: Iterable[T]) -> list[T]:
        return [thing for thing in things if thing.admits(request)]

    with surrounded(request):
        return Usable(
            tools=allowed(catalog.tools.values()),
            resources=allowed(one for one in catalog.resources.values() if one.listed),
            templates=allowed(catalog.templates.values()),
            prompts=allowed(catalog.prompts.values()),
        )
