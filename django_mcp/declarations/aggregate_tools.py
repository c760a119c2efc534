"""The tool that counts and aggregates the rows of a model resource.

It aggregates only rows of the resource's ``get_queryset(request)``, and only columns in ``fields``.
So it returns nothing that a client could not calculate from the rows. A resource that overrides
``has_object_permission`` has no such tool, because a database cannot call this method.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .declaration import Declaration
from .fields.aggregates import AGGREGATE_ARGUMENTS
from .search_tools import FilteringTool, invalid_arguments

if TYPE_CHECKING:
    from .model_resources import ModelResource


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
