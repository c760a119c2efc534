"""The ``find_similar_...`` tool of a model resource with ``vector_search``.

The tool finds the rows that are most similar to a text or to another row. It searches only the rows
of the resource's ``get_queryset(request)``, and orders them by the distance of their vectors. The
result contains no distances, because a client could calculate the vectors from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..exceptions import InvalidArguments
from .arguments import KeyBinding
from .declaration import Declaration
from .fields.columns import COLUMN_TYPES
from .fields.field_types import field_type
from .fields.search import DEFAULT_LIMIT, MAX_LIMIT, first_rows
from .fields.vectors import SIMILAR_TO, VectorSearch
from .search_tools import FilteringTool, invalid_arguments

if TYPE_CHECKING:
    from .model_resources import ModelResource

MAX_EMBEDDED_TEXT_LENGTH = 1000  # characters. Embedding a text costs time or money.
ARGUMENTS = ("query", SIMILAR_TO, "limit")


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
