"""
Prompts: conversations a user may start.

Rule: arguments arrive as strings (server/prompts) and are read as the types
the function names. What is returned is the text of one user message, or a
list of texts, contents and messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from django.core.checks import CheckMessage
from django.core.exceptions import ImproperlyConfigured

from .attribute_checks import require_method
from .declaration import Declaration

if TYPE_CHECKING:
    from .arguments import Arguments
    from .catalog import Catalog
    from .completions import Completer


class Prompt(Declaration):
    """A conversation to start: subclass it and write ``handle(self, request, ...)``."""

    kind = "prompt"
    arguments: Arguments
    completers: dict[str, Completer]

    def handle(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """The messages: a string, a content, a ``Message``, or a list of them."""
        raise NotImplementedError

    def definition(self) -> dict[str, Any]:
        properties = self.arguments.schema.get("properties", {})
        listed = [self._argument(name, properties[name]) for name in self.arguments.parameters]
        return self.about() | ({"arguments": listed} if listed else {})

    def _argument(self, name: str, prop: dict[str, Any]) -> dict[str, Any]:
        shown: dict[str, Any] = {"name": name}
        shown |= {key: prop[key] for key in ("title", "description") if key in prop}
        return shown | {"required": self.arguments.parameters[name].required}

    @property
    def rests_on(self) -> Iterable[Declaration]:
        """What its arguments are rows of."""
        return self.arguments.resources

    def resolve(self, catalog: Catalog) -> Iterator[CheckMessage]:
        from .arguments import arguments_of, text_problems
        from .completions import completers_of

        yield from super().resolve(catalog)
        try:
            require_method(self)
            self.arguments = arguments_of(self.function, catalog.find)
        except ImproperlyConfigured as error:
            yield self.error(str(error), 30, "Every argument needs a name and a type.")
            return
        wrong = [*text_problems(self, self.arguments)]
        yield from wrong
        self.completers = {} if wrong else completers_of(self.arguments)
