"""
What a ModelResource brings along: a tool that searches its rows, and its files.

Rule: both see what the resource shows - its queryset, its fields, its
permission - and add nothing to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from django.core.checks import CheckMessage

from ..conf import settings
from ..exceptions import InvalidArguments, ToolError
from ..protocol.jsonrpc import ResourceNotFound
from ..protocol.uritemplate import Template
from .arguments import Arguments
from .completions import ranked
from .contents import Contents
from .cursors import digest, opened, seal
from .declarations import Declaration
from .outputs import Output
from .reasons import Reason
from .resources import Resource
from .tools import Tool

if TYPE_CHECKING:
    from .catalogs import Catalog
    from .model_resources import ModelResource
    from .requests import Request


def derived_from(resource: ModelResource) -> Iterator[Declaration]:
    """The search tool, where there is something to search by, and the files."""
    if resource.search_fields or resource.filter_fields:
        yield SearchTool(resource)
    if resource.field_set.files:
        yield FileResource(resource)


class OfRows(Declaration):
    """What a model resource brings along: whoever may use the one may use the other."""

    _resource: ModelResource

    def origin(self) -> str:
        return self._resource.origin()

    @property
    def is_public(self) -> bool:
        return self._resource.is_public

    def has_permission(self, request: Request) -> bool:
        return self._resource.allows(request)

    @property
    def rests_on(self) -> Iterable[Declaration]:
        return (self._resource,)

    def _own_scopes(self) -> tuple[str, ...]:
        return ()

    def reason(self, request: Request) -> Reason:
        return self._resource.reason(request)

    @property
    def rule(self) -> str:
        return self._resource.rule


class SearchTool(OfRows, Tool):
    """Finds rows of a model resource by text and by filters, page by page."""

    read_only = True
    open_world = False

    def __init__(self, resource: ModelResource) -> None:
        self._resource = resource
        plural = resource.model._meta.verbose_name_plural
        self.name = f"search_{resource.name}"
        self.title = f"Search {plural}"
        how = "by text and by" if resource.search_fields else "by"
        self.description = f"Find {plural} {how} the fields shown here, page by page."
        self.permission = resource.permission

    @property
    def is_free(self) -> bool:
        return self._resource.is_free

    def resolve(self, catalog: Catalog) -> Iterator[CheckMessage]:
        self.arguments = Arguments(schema=self._resource.search.schema(), handwritten=True)
        self.output = Output()
        self.output.schema = self._output_schema()
        yield from ()

    def _output_schema(self) -> dict[str, Any]:
        rows = {"type": "array", "items": self._resource.row_schema()}
        cursor = {"type": "string", "description": "Give it back as cursor for the next page."}
        return {
            "type": "object",
            "properties": {"results": rows, "next_cursor": cursor},
            "required": ["results"],
        }

    def handle(self, request: Any, *args: Any, **arguments: Any) -> dict[str, Any]:
        """The rows of one page, and the cursor of the next."""
        resource = self._resource
        asked = {key: value for key, value in arguments.items() if key not in ("cursor", "limit")}
        purpose = self._purpose(request, asked)
        after = self._position(arguments.get("cursor"), purpose)
        try:
            limit = resource.search.limit(arguments)
            found = resource.search.apply(resource.get_queryset(request), arguments)
            keyset = resource.search.keyset(arguments)
            rows, position = keyset.page(
                resource.selected(found), after, limit, resource.gate(request)
            )
        except ValueError as error:
            raise InvalidArguments(str(error)) from None
        shown = [resource.row_values(row, request) for row in rows]
        return {"results": shown} | ({"next_cursor": seal(position, purpose)} if position else {})

    def _purpose(self, request: Request, asked: dict[str, Any]) -> str:
        """A cursor goes on with this search, of this user, and with no other."""
        return f"search:{request.server.name}:{digest(self.name, request.principal.key, asked)}"

    def _position(self, cursor: Any, purpose: str) -> Any:
        if cursor is None:
            return None
        try:
            return opened(cursor, purpose)
        except ValueError:
            raise InvalidArguments(
                "cursor: it is not of this search; search again without it."
            ) from None


class FileResource(OfRows, Resource):
    """The files of a model resource's rows, read through the row."""

    listed = False

    def __init__(self, resource: ModelResource) -> None:
        self._resource = resource
        self.name, self.title = f"{resource.name}_file", f"File of a {resource.verbose_name}"
        self.permission = resource.permission
        self.uri = f"{resource.uri}/{{file}}"

    @property
    def rows(self) -> ModelResource:
        """The resource whose rows have the files."""
        return self._resource

    def resolve(self, catalog: Catalog) -> Iterator[CheckMessage]:
        resource = self._resource
        self.template = Template(self.uri)
        self.arguments = Arguments()
        self.completers = {
            resource.lookup: resource.complete,
            "file": lambda request, text, context: ranked(resource.field_set.files, text),
        }
        yield from ()

    def values(self, variables: Any) -> dict[str, Any]:
        return dict(variables)

    def is_there(self, request: Request, variables: Any) -> bool:
        """Whether it is a file of a row that may be read."""
        resource = self._resource
        try:
            key = resource.key(variables[resource.lookup])
        except ValueError:
            return False
        return variables["file"] in resource.field_set.files and key in resource.fetch(
            request, [key]
        )

    def read(self, request: Any, *args: Any, **variables: Any) -> Any:
        """The bytes of one file. Raises ``ResourceNotFound``."""
        resource, name = self._resource, variables["file"]
        files = resource.field_set
        try:
            key = resource.key(variables[resource.lookup])
        except ValueError:
            raise ResourceNotFound(self.uri) from None
        row = resource.fetch(request, [key]).get(key)
        if row is None or name not in files.files or not getattr(row, name):
            raise ResourceNotFound(self.uri)
        try:
            return Contents(_bytes(getattr(row, name)), mime_type=files.mime_type(row, name))
        except FileNotFoundError:
            raise ResourceNotFound(self.uri) from None


def _bytes(file: Any) -> bytes:
    if file.size > settings.RESULT_SIZE:
        raise ToolError(f"The file has more than the {settings.RESULT_SIZE:,} bytes allowed.")
    with file.open("rb") as opened_file:
        return bytes(opened_file.read())
