"""
Declarations that a model resource adds: tools that search, aggregate and compare its rows, and its
files.

All use the queryset, the fields and the permission of the model resource, so they show nothing more
than the resource itself.

``AggregateTool`` aggregates only columns in ``fields``, so it returns nothing that a client could
not calculate from the rows. A resource that overrides ``has_object_permission`` has no such tool,
because a database cannot call this method.

``VectorSearchTool`` (``find_similar_...``) finds the rows that are most similar to a text or to
another row, and orders them by the distance of their vectors. The result contains no distances,
because a client could calculate the vectors from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.core.checks import CheckMessage
from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.db import models

from ..conf import settings
from ..exceptions import InvalidArguments, ToolError
from ..protocol.content import text_or_bytes
from ..protocol.jsonrpc import ResourceNotFound
from ..protocol.uri_template import Template
from .arguments import Arguments, KeyBinding
from .completions import rank_matches
from .content import Contents
from .cursors import digest, seal, unseal
from .declaration import Declaration, Find
from .fields.aggregates import AGGREGATE_ARGUMENTS
from .fields.columns import COLUMN_TYPES
from .fields.entries import any_checks_object_permission, is_permitted, visible_rows
from .fields.field_types import field_type
from .fields.keys import key_or_uri_schema, key_value
from .fields.search import DEFAULT_LIMIT, MAX_LIMIT, first_rows
from .fields.search_methods import SIMILAR_TO, VectorSearch
from .outputs import Output
from .permissions import Decision
from .resources import Resource
from .tools import Tool

if TYPE_CHECKING:
    from .model_resources import ModelResource
    from .request import Request

MAX_EMBEDDED_TEXT_LENGTH = 1000  # characters. Embedding a text costs time or money.
ARGUMENTS = ("query", SIMILAR_TO, "limit")


def derived_from(resource: ModelResource) -> Iterator[Declaration]:
    """Yield the search tool if the resource has search or filter fields, and the files."""
    if resource.search_fields or resource.filter_fields:
        yield SearchTool(resource)
    if resource._field_set.files:
        yield FileResource(resource)


# Keywords that say more about a field than its name.
INFORMATIVE_KEYWORDS = {"title", "description", "examples", "contentEncoding"}


class ModelRowsDeclaration(Declaration):
    """A declaration that a model resource adds. Its permission is that of the resource."""

    _resource: ModelResource

    def _origin(self) -> str:
        return self._resource._origin()

    @property
    def _source(self) -> Any:
        return self._resource._source

    @property
    def _is_public(self) -> bool:
        return self._resource._is_public

    @property
    def _decides_without_database(self) -> bool:
        return False

    def _decide_permission(self, request: Request) -> Decision:
        return self._resource._decide(request)

    @cached_property
    def _owner(self) -> Declaration:
        return self._resource

    @property
    def _depends_on(self) -> Iterable[Declaration]:
        return (self._resource,)

    def _own_scopes(self) -> tuple[str, ...]:
        return ()

    @property
    def _rule(self) -> str:
        return self._resource._rule


class FilteringTool(ModelRowsDeclaration, Tool):
    """A tool that selects rows of a model resource by text and filters, and changes nothing."""

    read_only = True
    open_world = False

    def __init__(self, resource: ModelResource) -> None:
        self._resource = resource
        self.description = " ".join([*self._sentences()])
        self.permission, self.icons = resource.permission, resource.icons

    def _sentences(self) -> Iterator[str]:
        """Yield the sentences of the description."""
        raise NotImplementedError

    def _input_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the arguments, in which filters take keys."""
        raise NotImplementedError

    def _output_schema(self) -> dict[str, Any]:
        raise NotImplementedError

    @property
    def _decides_without_database(self) -> bool:
        return self._resource._decides_without_database

    def _resolve(self, find: Find) -> Iterator[CheckMessage]:
        self._targets = dict(self._found_targets(find))
        schema = self._input_schema()
        for name in self._targets:
            schema["properties"][name] = _with_uris(schema["properties"][name])
        self._arguments = Arguments(schema=schema, handwritten=True)
        self._output = Output()
        self._output.schema = self._output_schema()
        yield from ()

    def _found_targets(self, find: Find) -> Iterator[tuple[str, ModelResource]]:
        """Yield the filters that accept keys of another resource's rows."""
        for name, each in self._resource._search.filters.items():
            if each.target is not None:
                with suppress(ImproperlyConfigured):  # not registered: primary keys only
                    yield name, find(each.target, None)

    def _matching(self, request: Request, arguments: dict[str, Any]) -> models.QuerySet[Any]:
        """Return the rows that the user may see and that match ``arguments``.

        Raise ``ValueError``.
        """
        keys = {
            name: self._primary_keys(target, arguments[name], request)
            for name, target in self._targets.items()
            if name in arguments
        }
        resource = self._resource
        return resource._search.apply(
            resource.get_queryset(request),
            arguments | keys,
            lambda model: self._visible_related(model, request),
        )

    def _visible_related(
        self, model: type[models.Model], request: Request
    ) -> tuple[models.QuerySet[Any], Callable[[Any], bool] | None]:
        """Return the rows of a to-many relation that the user may see, and their check.

        Otherwise a filter would reveal which rows that the user may not see are related.
        """
        resources = self._resource._row_limits.get(model, ())
        rows = visible_rows(model._base_manager.all(), resources, request)
        if not any_checks_object_permission(resources):
            return rows, None
        return rows, lambda row: is_permitted(row, resources, request)

    def _primary_keys(self, target: ModelResource, value: Any, request: Request) -> Any:
        """Return ``value``, or each item of a list, with a primary key instead of a URI."""
        if isinstance(value, list):
            return [self._primary_keys(target, one, request) for one in value]
        variables = target._match(value) if isinstance(value, str) else None
        if not variables:
            return value
        if target._by_pk:
            return variables[target._lookup]
        # The caller must be allowed to see the row. Otherwise the filter would reveal the name of a
        # hidden row.
        return key_value(KeyBinding(target).fetch(value, request, write=False))


@contextmanager
def invalid_arguments() -> Iterator[None]:
    """Tell the client of a ``ValueError`` or ``ValidationError`` about its arguments."""
    try:
        yield
    except ValueError as error:
        raise InvalidArguments(str(error)) from None
    except ValidationError as error:  # some fields validate values in queries
        raise InvalidArguments(" ".join(error.messages)) from None


class SearchTool(FilteringTool):
    """Finds rows of a model resource by text and filters, page by page."""

    _row_operation = "search"

    def __init__(self, resource: ModelResource) -> None:
        super().__init__(resource)
        self.name = f"search_{resource.name}"
        self.title = f"Search {resource.model._meta.verbose_name_plural}"

    def _sentences(self) -> Iterator[str]:
        """Yield the sentences of the description: what is searched, and what rows contain."""
        resource = self._resource
        how = "text and fields" if resource.search_fields else "fields"
        yield f"Find {resource.model._meta.verbose_name_plural} by {how}, page by page."
        yield f"Each has {', '.join(resource.fields)}."

    def _input_schema(self) -> dict[str, Any]:
        return self._resource._search.schema()

    def _definition(self) -> dict[str, Any]:
        """Return the definition, without an output schema that only repeats the description."""
        shown = super()._definition()
        row = shown["outputSchema"]["properties"]["results"]["items"]
        if "properties" not in row:
            del shown["outputSchema"]
        return shown

    def _output_schema(self) -> dict[str, Any]:
        """Return the schema of a page, with only those fields whose name does not say enough.

        A language model reads every definition in a list of tools, and many clients do not show it
        this schema.
        """
        shown, filters = self._resource._field_set.entries, self._resource._search.filters
        described = {
            name: schema
            for name, entry in shown.items()
            if name not in filters and not INFORMATIVE_KEYWORDS.isdisjoint(schema := entry.schema())
        }
        row = {"type": "object"} | ({"properties": described} if described else {})
        results = {"type": "array", "items": row}
        return {
            "type": "object",
            "properties": {"results": results, "next_cursor": {"type": "string"}},
            "required": ["results"],
        }

    def handle(self, request: Any, *args: Any, **arguments: Any) -> dict[str, Any]:
        """Return the rows of one page, and the cursor of the next one."""
        resource = self._resource
        asked = {key: value for key, value in arguments.items() if key not in ("cursor", "limit")}
        purpose = self._purpose(request, asked)
        after = self._position(arguments.get("cursor"), purpose)
        with invalid_arguments():
            limit = resource._search.limit(arguments)
            found = self._matching(request, arguments)
            keyset = resource._search.keyset(arguments, found.db)
            rows, position = keyset.page(
                resource._selected(found, request), after, limit, resource._row_check(request)
            )
        shown = [resource._row_values(row, request) for row in rows]
        return {"results": shown} | ({"next_cursor": seal(position, purpose)} if position else {})

    def _purpose(self, request: Request, asked: dict[str, Any]) -> str:
        """Return the purpose of a cursor's seal: this search of this user with these arguments."""
        return f"search:{request.server.name}:{digest(self.name, request.principal.key, asked)}"

    def _position(self, cursor: Any, purpose: str) -> Any:
        """Return the position in a cursor, or None without one. Raise ``InvalidArguments``."""
        if cursor is None:
            return None
        try:
            return unseal(cursor, purpose)
        except ValueError:
            raise InvalidArguments(
                "cursor: it belongs to another search. Search again without a cursor."
            ) from None


def _with_uris(prop: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a filter by key that also accepts a URI."""
    if prop["type"] == "array":
        return prop | {"items": key_or_uri_schema(prop["items"]), "description": "Keys or URIs."}
    about = {name: prop[name] for name in ("title", "description") if name in prop}
    about["description"] = about["description"].replace("Key of", "Key or URI of", 1)
    return key_or_uri_schema(prop) | about


class FileResource(ModelRowsDeclaration, Resource):
    """The files of a model resource's rows, which are read through the row."""

    listed = False

    def __init__(self, resource: ModelResource) -> None:
        self._resource = resource
        self.name, self.title = f"{resource.name}_file", f"File of a {resource._verbose_name}"
        self.permission, self.icons = resource.permission, resource.icons
        self.uri = f"{resource.uri}/{{file}}"

    def _resolve(self, find: Find) -> Iterator[CheckMessage]:
        resource = self._resource
        self._template = Template(self.uri)
        self._arguments = Arguments()
        self._completers = {
            resource._lookup: resource._complete,
            "file": lambda request, text, context: rank_matches(resource._field_set.files, text),
        }
        yield from ()

    def _values(self, variables: Any) -> dict[str, Any]:
        return dict(variables)

    def _exists(self, request: Request, variables: Any) -> bool:
        """Whether it is a file of a row that may be read."""
        resource = self._resource
        try:
            key = resource._key(variables[resource._lookup])
        except ValueError:
            return False
        return variables["file"] in resource._field_set.files and key in resource._fetch(
            request, [key]
        )

    def read(self, request: Any, *args: Any, **variables: Any) -> Any:
        """Return the bytes of one file. Raise ``ResourceNotFound``."""
        resource, name = self._resource, variables["file"]
        files = resource._field_set
        try:
            key = resource._key(variables[resource._lookup])
        except ValueError:
            raise ResourceNotFound(self.uri) from None
        row = resource._fetch(request, [key]).get(key)
        if row is None or name not in files.files or not getattr(row, name):
            raise ResourceNotFound(self.uri)
        try:
            mime_type = files.mime_type(row, name)
            return Contents(_data(getattr(row, name), mime_type), mime_type=mime_type)
        except FileNotFoundError:
            raise ResourceNotFound(self.uri) from None


def _data(file: Any, mime_type: str) -> str | bytes:
    """Return text for a text file in UTF-8, and bytes for other files."""
    return text_or_bytes(_bytes(file), mime_type)


def _bytes(file: Any) -> bytes:
    """Return the contents of a file. Raise ``ToolError`` if it is too large."""
    if file.size > settings.RESULT_SIZE:
        raise ToolError(
            f"The file has {file.size:,} bytes. At most {settings.RESULT_SIZE:,} are allowed."
        )
    with file.open("rb") as opened_file:
        return bytes(opened_file.read())


def aggregate_tool_of(resource: ModelResource) -> Iterator[Declaration]:
    """Yield the tool if the resource has fields to aggregate or to group by."""
    if resource.aggregate_fields or resource.group_fields:
        yield AggregateTool(resource)


class AggregateTool(FilteringTool):
    """Counts, sums and compares rows of a model resource, in groups."""

    _row_operation = "aggregate"

    def __init__(self, resource: ModelResource) -> None:
        super().__init__(resource)
        self.name = f"aggregate_{resource.name}"
        self.title = f"Aggregate {resource.model._meta.verbose_name_plural}"

    def _sentences(self) -> Iterator[str]:
        resource = self._resource
        grouped = ", in groups" if resource.group_fields else ""
        yield f"Count and aggregate {resource.model._meta.verbose_name_plural}{grouped}."
        if resource.search_fields or resource.filter_fields:
            yield "The other arguments select the rows to aggregate."

    def _input_schema(self) -> dict[str, Any]:
        resource = self._resource
        return {
            "type": "object",
            "properties": resource._aggregates.schema() | resource._search.filter_schemas(),
            "additionalProperties": False,
        }

    def _output_schema(self) -> dict[str, Any]:
        groups = {
            "type": "array",
            "items": {"type": "object"},
            "description": "Each has the names in group_by and measures. Decimals are strings.",
        }
        more = {"type": "boolean", "description": "Whether there are more groups than limit."}
        return {
            "type": "object",
            "properties": {"groups": groups, "more": more},
            "required": ["groups", "more"],
        }

    def handle(self, request: Any, *args: Any, **arguments: Any) -> dict[str, Any]:
        """Return the groups, and whether there are more than ``limit``."""
        aggregates = self._resource._aggregates
        own = {name: arguments.pop(name) for name in AGGREGATE_ARGUMENTS if name in arguments}
        with invalid_arguments():
            query = aggregates.read(own)
            rows = self._matching(request, arguments)
        groups, more = aggregates.compute(rows, query)
        return {"groups": groups, "more": more}


def vector_tool_of(resource: ModelResource) -> Iterator[Declaration]:
    """Yield the tool if the resource has a vector search."""
    if resource.vector_search is not None:
        yield VectorSearchTool(resource, resource.vector_search)


class VectorSearchTool(FilteringTool):
    """The tool that finds similar rows of ``resource``. Its name is ``find_similar_<resource>``."""

    _row_operation = "find_similar"

    def __init__(self, resource: ModelResource, declared: VectorSearch) -> None:
        self._declared = declared
        super().__init__(resource)
        self.name = f"find_similar_{resource.name}"
        self.title = f"Find similar {resource.model._meta.verbose_name_plural}"

    def _sentences(self) -> Iterator[str]:
        resource, names = self._resource, self._resource.model._meta
        what = "a text in meaning, or to another one" if self._declared.embed else "another one"
        yield f"Find the {names.verbose_name_plural} that are most similar to {what}."
        yield f"Each has {', '.join(resource.fields)}."

    def _input_schema(self) -> dict[str, Any]:
        resource = self._resource
        text = {"type": "string", "description": "What to find, in words."}
        limit = {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT}
        filters = resource._search.filters.items()
        return {
            "type": "object",
            "properties": {
                **({"query": text} if self._declared.embed else {}),
                SIMILAR_TO: resource._key_schema(),
                **{name: each.schema() for name, each in filters},
                "limit": limit,
            },
            "additionalProperties": False,
            **({} if self._declared.embed else {"required": [SIMILAR_TO]}),
        }

    def _output_schema(self) -> dict[str, Any]:
        rows = {"type": "array", "items": {"type": "object"}, "description": "The nearest first."}
        return {"type": "object", "properties": {"results": rows}, "required": ["results"]}

    def handle(self, request: Any, *args: Any, **arguments: Any) -> dict[str, Any]:
        """Return the most similar rows, at most ``limit``."""
        resource = self._resource
        own = {name: arguments.pop(name) for name in ARGUMENTS if name in arguments}
        if ("query" in own) == (SIMILAR_TO in own):
            raise InvalidArguments(f"Give either query or {SIMILAR_TO}.")
        with invalid_arguments():
            limit = resource._search.limit(own)
            rows = self._matching(request, arguments)
            text = _text(own["query"]) if "query" in own else ""
        if "query" in own:
            vector = self._embedded(text)
        else:
            # The caller must be allowed to see this row, because the result depends on its vector.
            row = KeyBinding(resource).fetch(own[SIMILAR_TO], request, write=False)
            rows, vector = rows.exclude(pk=row.pk), getattr(row, self._declared.field)
            if vector is None:
                raise InvalidArguments(f"{SIMILAR_TO}: this row has no vector to compare with.")
        nearest = self._declared.nearest(resource._selected(rows, request), vector)
        found = first_rows(nearest, limit, resource._row_check(request))
        return {"results": [resource._row_values(row, request) for row in found]}

    def _embedded(self, text: str) -> Any:
        """Return the vector of a text. Raise ``TypeError`` if ``embed`` returns something else."""
        declared = self._declared
        kind = field_type(self._resource.model._meta.get_field(declared.field))
        assert declared.embed is not None and kind is not None
        try:
            return kind.from_json(declared.embed(text))
        except ValueError as error:  # a bug in the project's ``embed``, not a wrong argument
            raise TypeError(f"vector_search: embed returned a wrong vector. {error}") from error


def _text(value: Any) -> str:
    """Return the text to find. Raise ``ValueError``."""
    text: str = COLUMN_TYPES["TextField"].read(value)
    if not text.strip() or len(text) > MAX_EMBEDDED_TEXT_LENGTH:
        raise ValueError(f"query: must have 1 to {MAX_EMBEDDED_TEXT_LENGTH} characters.")
    return text
