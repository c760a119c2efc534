"""Prompts: messages with which a user may start a conversation.

Clients send arguments as strings (server/prompts), and they are read as the types of the function's
parameters. The function returns the text of one user message, or a list of texts, contents and
messages. With ``template_name`` it returns the context of a template instead, which becomes the
text of one user message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from django.core.checks import CheckMessage
from django.core.exceptions import ImproperlyConfigured

from . import django_templates
from .declaration import Declaration, Find

if TYPE_CHECKING:
    from .arguments import Arguments
    from .completions import Completer


class Prompt(Declaration):
    """Messages to start a conversation: subclass it and write ``handle(self, request, ...)``.

    With ``template_name``, ``handle`` returns the context of this template.
    """

    template_name: str | None = None

    _kind = "prompt"
    _arguments: Arguments
    _completers: dict[str, Completer]

    def handle(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the messages: a string, a content, a ``Message``, or a list of them.

        With ``template_name``, return the context of the template as a dict.
        """
        raise NotImplementedError

    def _messages(self, value: Any, request: Any) -> Any:
        """Return the messages of a value that ``handle`` returned. Raise ``Mismatch``."""
        if self.template_name is None:
            return value
        if not isinstance(value, Mapping):
            from .outputs import Mismatch

            kind = type(value).__name__
            raise Mismatch(f"The context of {self.template_name} must be a dict, not a {kind}.")
        # Without autoescape: the result is text for a language model, and no HTML.
        context = {"request": request, **value}
        return django_templates.render(self.template_name, context, autoescape=False)

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

    def _resolve(self, find: Find) -> Iterator[CheckMessage]:
        from .arguments import arguments_of, text_problems

        yield from super()._resolve(find)
        try:
            self._require_method()
            self._arguments = arguments_of(self._implementation, find)
        except ImproperlyConfigured as error:
            yield self._error(str(error), 30, "Every argument needs a name and a type.")
            return
        yield from self._template_problems()
        wrong = [*text_problems(self, self._arguments)]
        yield from wrong
        self._completers = {} if wrong else self._arguments.completers

    def _template_problems(self) -> Iterator[CheckMessage]:
        """Yield an error if the template cannot be used."""
        if self.template_name is None:
            return
        self._finish_queries = True
        if wrong := django_templates.problem(self.template_name):
            hint = (
                "Name a template of Django's template language as get_template() takes it, or "
                "return the text: render_to_string(template_name, context)."
            )
            yield self._error(wrong, 266, hint)
