"""Tools: functions that a client's model may call.

A tool is a function of the request and its arguments, whose signature is its schema. A decorator
makes a ``Tool`` of a function. The class form is for tools that need methods. By default a tool
requires an authenticated user and, unless it is read-only or asynchronous, runs in a transaction.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.core.checks import CheckMessage, Warning
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections

from ..conf import settings
from . import schemas
from .attribute_checks import require_method
from .declaration import Declaration

if TYPE_CHECKING:
    from .arguments import Arguments
    from .catalog import Catalog
    from .outputs import Output

# The attribute for each hint, and the hint's name in the protocol.
HINTS = {
    "read_only": "readOnlyHint",
    "destructive": "destructiveHint",
    "idempotent": "idempotentHint",
    "open_world": "openWorldHint",
}


class Tool(Declaration):
    """A function that a model may call: subclass it and write ``handle(self, request, ...)``.

    ``read_only``, ``destructive``, ``idempotent`` and ``open_world`` are hints for the client. None
    sends no hint. ``atomic`` is True, False or a database alias. ``transactional`` says that the
    tool has no effects outside of its transaction. If its process dies, another one runs it again.
    ``durable`` stores a call before it runs, so that the client can fetch the response after any
    broken connection. ``input_schema`` and ``output_schema`` are hand-written JSON Schemas, which
    are published unchanged and enforced.
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

    _arguments: Arguments
    _output: Output

    def handle(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """Run the tool. The return value is the result. The model is told of a ``ToolError``."""
        raise NotImplementedError

    def _definition(self) -> dict[str, Any]:
        shown = self._common_definition() | {"inputSchema": self._arguments.schema}
        if self._output.schema is not None:
            shown["outputSchema"] = self._output.schema
        declared = {wire: getattr(self, name) for name, wire in HINTS.items()}
        hints = {wire: value for wire, value in declared.items() if value is not None}
        return shown | ({"annotations": hints} if hints else {})

    @cached_property
    def _transaction(self) -> bool | str:
        """``atomic``, or False if the tool runs in no transaction."""
        return False if self._is_async or self.read_only else self.atomic

    @property
    def _depends_on(self) -> Iterable[Declaration]:
        """The model resources whose rows its arguments are."""
        return self._arguments.resources

    # Resolution.

    def _resolve(self, catalog: Catalog) -> Iterator[CheckMessage]:
        from .arguments import arguments_of
        from .outputs import output_of

        yield from super()._resolve(catalog)
        wrong = [*self._schema_problems()]
        yield from wrong
        if wrong:
            return
        try:
            find = catalog.find
            require_method(self)
            self._arguments = arguments_of(self._implementation, find, schema=self.input_schema)
            self._output = output_of(self._returns(), find, schema=self.output_schema)
        except ImproperlyConfigured as error:
            hint = "Annotate every argument. Annotate the result with a known type, or not at all."
            yield self._error(str(error), 20, hint)
            return
        yield from self._argument_problems()
        yield from self._hint_problems()

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
        from .elicitation_checks import replay_problems

        if not self.read_only:
            yield from replay_problems(self)
        if self.read_only and self.destructive:
            yield self._error(
                "read_only and destructive contradict each other.", 24, "Remove one of them."
            )
        if isinstance(self.atomic, str) and self.atomic not in connections:
            known = ", ".join(connections)
            hint = f"The databases are: {known}."
            yield self._error(f"There is no database {self.atomic!r}.", 25, hint)
        elif self.transactional:
            yield from self._transaction_problems()

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
        if alias != settings.DATABASE and connections[alias].vendor != "sqlite":
            yield Warning(
                f"Its transaction is in the database {alias!r} and sessions are in another one, so "
                "it does not run again if its process dies.",
                hint=f'Store sessions there too: DJANGO_MCP["DATABASE"] = {alias!r}.',
                obj=self,
                id="django_mcp.W029",
            )
