"""Tools: functions that a client's model may call.

A tool is a function of the request and its arguments, whose signature is its schema. A decorator
makes a ``Tool`` of a function. The class form is for tools that need methods. By default a tool
requires an authenticated user and, unless it is read-only or asynchronous, runs in a transaction.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.core.checks import CheckMessage, Warning
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections

from ..conf import settings
from . import django_templates, schemas
from .declaration import Declaration, Find, ToolDeclaration
from .ui import UI, is_visibility, ui_problems

if TYPE_CHECKING:
    from .arguments import Arguments
    from .outputs import Output

# The attribute for each hint, and the hint's name in the protocol.
HINTS = {
    "read_only": "readOnlyHint",
    "destructive": "destructiveHint",
    "idempotent": "idempotentHint",
    "open_world": "openWorldHint",
}


class Tool(ToolDeclaration):
    """A function that a model may call: subclass it and write ``handle(self, request, ...)``.

    ``read_only``, ``destructive``, ``idempotent`` and ``open_world`` are hints for the client. None
    sends no hint. ``atomic`` is True, False or a database alias. ``transactional`` says that the
    tool has no effects outside of its transaction. If its process dies, another one runs it again.
    ``durable`` stores a call before it runs, so that the client can fetch the response after any
    broken connection. ``approval`` is the codename of a permission: somebody else who has it must
    approve each call. ``input_schema`` and ``output_schema`` are hand-written JSON Schemas, which
    are published unchanged and enforced. ``ui`` is a page that shows the result, as a template name
    or a ``UI``. ``visibility`` says whether clients with pages offer the tool to the "model", to
    the "app" (the page), or to both.
    """

    _kind = "tool"
    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None
    atomic: bool | str = True
    transactional: bool = False
    durable: bool = False
    input_schema: Mapping[str, Any] | None = None
    output_schema: Mapping[str, Any] | None = None
    ui: str | UI | None = None
    visibility: Sequence[str] | None = None

    _ui_uri: str = ""  # the URI of the page of ``ui``, which the catalog sets
    _arguments: Arguments
    _output: Output
    # What a tool of a model resource does with rows, such as "search" or "create".
    _row_operation: str = ""
    # The generic tool (``RowsTool``) by which clients call this one. Then lists do not show it.
    _called_by: Any = None

    def handle(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """Run the tool. The return value is the result. The model is told of a ``ToolError``."""
        raise NotImplementedError

    def _called_tool(self, arguments: Any) -> Tool | None:
        """Return the tool that a call with these JSON arguments runs: this one, or a model's own.

        None if a generic tool has no model for them.
        """
        return self

    @cached_property
    def _switch_names(self) -> tuple[str, ...]:
        own = (self._qualified_name,)
        return own if self._called_by is None else (self._called_by._qualified_name, *own)

    @property
    def _approval(self) -> str:
        """The permission with which somebody must approve each call, or "" if nobody must."""
        owner: Any = self._owner
        return "" if self.read_only else owner.approval

    def _definition(self) -> dict[str, Any]:
        shown = self._common_definition() | {"inputSchema": self._arguments.schema}
        if self._output.schema is not None:
            shown["outputSchema"] = self._output.schema
        declared = {wire: getattr(self, name) for name, wire in HINTS.items()}
        hints = {wire: value for wire, value in declared.items() if value is not None}
        if hints:
            shown["annotations"] = hints
        # All clients get it, because lists that caches share do not depend on the client.
        ui: dict[str, Any] = {"resourceUri": self._ui_uri} if self._ui_uri else {}
        if self.visibility is not None:
            ui["visibility"] = list(self.visibility)
        return shown | ({"_meta": {**shown.get("_meta", {}), "ui": ui}} if ui else {})

    @cached_property
    def _transaction(self) -> bool | str:
        """``atomic``, or False if the tool runs in no transaction."""
        return False if self._is_async or self.read_only else self.atomic

    @property
    def _depends_on(self) -> Iterable[Declaration]:
        """The model resources whose rows its arguments are."""
        return self._arguments.resources

    # Resolution.

    def _resolve(self, find: Find) -> Iterator[CheckMessage]:
        from .arguments import arguments_of
        from .outputs import output_of

        yield from super()._resolve(find)
        wrong = [*self._schema_problems()]
        yield from wrong
        if wrong:
            return
        try:
            self._require_method()
            self._arguments = arguments_of(self._implementation, find, schema=self.input_schema)
            self._output = output_of(self._returns(), find, schema=self.output_schema)
        except ImproperlyConfigured as error:
            hint = "Annotate every argument. Annotate the result with a known type, or not at all."
            yield self._error(str(error), 20, hint)
            return
        yield from self._argument_problems()
        yield from self._hint_problems()

    def _common_problems(self) -> Iterator[CheckMessage]:
        yield from super()._common_problems()
        yield from self._ui_problems()

    def _ui_problems(self) -> Iterator[CheckMessage]:
        """Yield what is wrong with ``ui`` and ``visibility``."""
        if self.visibility is not None and not is_visibility(self.visibility):
            hint = 'Write ["model"], ["app"] or ["model", "app"].'
            message = (
                f"visibility is {self.visibility!r:.80}: it may contain only 'model' and 'app'."
            )
            yield self._error(message, 301, hint)
        if (self.ui is not None or self.visibility is not None) and "ui" in (self.meta or {}):
            hint = "Remove it from meta. The attributes ui and visibility write it."
            yield self._error("meta has the key 'ui', which ui and visibility write.", 302, hint)
        if self.ui is None:
            return
        ui = UI.from_value(self.ui)
        for wrong in ui_problems(ui):
            hint = 'Write mcp.UI("shop/card.html", connect_domains=["https://api.example"]).'
            yield self._error(f"ui: {wrong}", 303, hint)
        if unusable := django_templates.problem(ui.template_name):
            hint = "Name a template of Django's template language as get_template() takes it."
            yield self._error(f"ui: {unusable}", 304, hint)

    def _schema_problems(self) -> Iterator[CheckMessage]:
        for schema in (self.input_schema, self.output_schema):
            if schema is not None and (wrong := schemas.problem(schema)):
                yield self._error(wrong, 21, "See json-schema.org, draft 2020-12.")

    def _returns(self) -> Any:
        from .arguments import signature_of

        annotation = signature_of(self._implementation).return_annotation
        return None if annotation is inspect.Signature.empty else annotation

    def _argument_problems(self) -> Iterator[CheckMessage]:
        from .arguments import fit_problems, header_problems

        if self._arguments.schema.get("type") != "object":
            hint = 'Write "type": "object".'
            yield self._error("The input schema is not of type object.", 22, hint)
        for wrong in header_problems(self._arguments.schema):
            hint = 'Write Annotated[str, mcp.Header("Region")] on an argument of the function.'
            yield self._error(wrong, 23, hint)
        if self.input_schema is not None:
            for wrong in fit_problems(self._arguments):
                yield self._error(wrong, 26, "Name every argument in both, or accept **arguments.")

    def _hint_problems(self) -> Iterator[CheckMessage]:
        from .elicitation_forms import replay_problems

        if not self.read_only:
            yield from replay_problems(self)
        yield from self._approval_problems([self])
        if self.read_only and self.destructive:
            yield self._error(
                "read_only and destructive contradict each other.", 24, "Remove one of them."
            )
        yield from self._atomic_problems()
        if self.transactional:
            yield from self._transaction_problems()

    def _atomic_problems(self) -> Iterator[CheckMessage]:
        if isinstance(self.atomic, str) and self.atomic not in connections:
            hint = f"The databases are: {', '.join(connections)}."
            yield self._error(f"There is no database {self.atomic!r}.", 25, hint)

    def _transaction_problems(self) -> Iterator[CheckMessage]:
        """Yield why the tool cannot be transactional.

        The outcome of the call must be stored in the tool's transaction, or a process that takes
        over the call cannot know whether the tool has run.
        """
        if not isinstance(self.transactional, bool) or not self._transaction:
            message = (
                "It is transactional, but runs in no transaction: it is asynchronous, read_only or "
                "atomic = False."
            )
            yield self._error(message, 29, "Set transactional = True only on a tool with one.")
            return
        alias = self.atomic if isinstance(self.atomic, str) else DEFAULT_DB_ALIAS
        if alias not in connections:
            return  # reported by ``_atomic_problems``
        if alias != settings.DATABASE and connections[alias].vendor != "sqlite":
            yield Warning(
                f"Its transaction is in the database {alias!r} and sessions are in another one, so "
                "it does not run again if its process dies.",
                hint=f'Store sessions there too: DJANGO_MCP["DATABASE"] = {alias!r}.',
                obj=self,
                id="django_mcp.W029",
            )
