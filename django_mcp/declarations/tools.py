"""
Tools: what a model may do.

Rule: a tool is a function of (request, arguments) whose signature is its
schema. The class form is for what needs methods; the decorator makes the same
thing of a function. A tool that states nothing needs an authenticated user
and, unless it is read-only, runs in a transaction.
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

# The attribute that declares each hint, and the hint's name on the wire.
HINTS = {
    "read_only": "readOnlyHint",
    "destructive": "destructiveHint",
    "idempotent": "idempotentHint",
    "open_world": "openWorldHint",
}


class Tool(Declaration):
    """Something a model may do: subclass it and write ``handle(self, request, ...)``.

    ``read_only``, ``destructive``, ``idempotent`` and ``open_world`` tell the
    client what to expect (None says nothing). ``atomic`` is True, False or a
    database alias. ``transactional`` says that all the tool does is in that
    transaction: when the process that runs it dies, another runs it again.
    ``durable`` writes a call down before it runs, so that its answer can be
    fetched after any break of the connection. ``input_schema`` and
    ``output_schema`` are JSON Schemas written by hand, published as they are
    and enforced.
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
        """Do it. What is returned becomes the result; ``ToolError`` reaches the model."""
        raise NotImplementedError

    def _definition(self) -> dict[str, Any]:
        shown = self._common_definition() | {"inputSchema": self._arguments.schema}
        if self._output.schema is not None:
            shown["outputSchema"] = self._output.schema
        declared = {wire: getattr(self, name) for name, wire in HINTS.items()}
        hints = {wire: value for wire, value in declared.items() if value is not None}
        return shown | ({"annotations": hints} if hints else {})

    @property
    def _transaction(self) -> bool | str:
        """``atomic``, or False where the tool runs in none."""
        return False if self._is_async or self.read_only else self.atomic

    @cached_property
    def _mirrored(self) -> list[tuple[tuple[str, ...], str]]:
        """The paths of the arguments that HTTP headers mirror, and the names of those."""
        from .arguments import marked

        return [(path, prop["x-mcp-header"]) for path, prop in marked(self._arguments.schema)]

    @property
    def _depends_on(self) -> Iterable[Declaration]:
        """What its arguments are rows of."""
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
            hint = "Every argument needs a name and a type; a result needs no type, or a known one."
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
            yield self._error("The input schema is not of type object.", 22, '"type": "object".')
        for wrong in header_problems(self._arguments.schema):
            yield self._error(wrong, 23, 'Annotated[str, mcp.Header("Region")] on an own argument.')
        if self.input_schema is not None:
            for wrong in fit_problems(self._arguments):
                yield self._error(wrong, 26, "Name every argument in both, or take **arguments.")

    def _hint_problems(self) -> Iterator[CheckMessage]:
        from .elicitation_checks import replay_problems

        if not self.read_only:
            yield from replay_problems(self)
        if self.read_only and self.destructive:
            yield self._error(
                "A tool that only reads destroys nothing.", 24, "Drop one of the two."
            )
        if isinstance(self.atomic, str) and self.atomic not in connections:
            known = ", ".join(connections)
            yield self._error(f"There is no database {self.atomic!r}.", 25, f"There are: {known}.")
        elif self.transactional:
            yield from self._transaction_problems()

    def _transaction_problems(self) -> Iterator[CheckMessage]:
        """Whether the transaction, which is all there is of the tool, holds its outcome."""
        if not isinstance(self.transactional, bool) or not self._transaction:
            wrong = "transactional, and in no transaction: async, read_only or atomic = False."
            yield self._error(wrong, 29, "transactional = True, on a tool that runs in one.")
            return
        alias = self.atomic if isinstance(self.atomic, str) else DEFAULT_DB_ALIAS
        if alias != settings.DATABASE and connections[alias].vendor != "sqlite":
            yield Warning(
                f"Its transaction is in {alias!r}, not where sessions are: it does not run again.",
                hint=f'Keep sessions there too: DJANGO_MCP["DATABASE"] = {alias!r}.',
                obj=self,
                id="django_mcp.W029",
            )
