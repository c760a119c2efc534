"""Prompts: messages with which a user may start a conversation.

Clients send arguments as strings (server/prompts), and they are read as the types of the function's
parameters. The function returns the text of one user message, or a list of texts, contents and
messages.
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
    """Messages to start a conversation: subclass it and write ``handle(self, request, ...)``."""

    _kind = "prompt"
    _arguments: Arguments
    _completers: dict[str, Completer]

    def handle(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the messages: a string, a content, a ``Message``, or a list of them."""
        raise NotImplementedError

    def _definition(self) -> dict[str, Any]:
        properties = self._arguments.schema.get("properties", {})
        listed = [self._argument(name, properties[name]) for name in self._arguments.parameters]
        return self._common_definition() | ({"arguments": listed} if listed else {})

    def _argument(self, name: str, prop: dict[str, Any]) -> dict[str, Any]:
        shown: dict[str, Any] = {"name": name}
        shown |= {key: prop[key] for key in ("title", "description") if key in prop}
        return shown | {"required": self._arguments.parameters[name].required}

    @property
    def _depends_on(self) -> Iterable[Declaration]:
        """The model resources whose rows its arguments are."""
        return self._arguments.resources

    def _resolve(self, catalog: Catalog) -> Iterator[CheckMessage]:
        from .arguments import arguments_of, text_problems

        yield from super()._resolve(catalog)
        try:
            require_method(self)
            self._arguments = arguments_of(self._implementation, catalog.find)
        except ImproperlyConfigured as error:
            yield self._error(str(error), 30, "Every argument needs a name and a type.")
            return
        wrong = [*text_problems(self, self._arguments)]
        yield from wrong
        self._completers = {} if wrong else self._arguments.completers
