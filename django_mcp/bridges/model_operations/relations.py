"""
The arguments that write what a row points to: keys, bound through the rows' own resource.

Rule: no key opens what a read would not; and a link to a row that the caller does not see is no
business of theirs: it is neither made nor cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.db import models, router

from ...declare.bindings import Binding
from ...declare.parameters import Parameter
from ...declare.rows.columns import JSON
from ...declare.rows.entries import MOST_KEYS
from ...declare.rows.values import describe
from ...exceptions import InvalidArguments
from .inputs import UNCHANGED, Input, or_null

if TYPE_CHECKING:
    from ...declare.model_resources import ModelResource
    from ...declare.requests import Request


@dataclass(frozen=True)
class RowInput(Input):
    """The key or URI of the row that a foreign key leads to."""

    target: ModelResource

    @property
    def parameter(self) -> Parameter:
        return Parameter(self.name, Any, None, Binding(self.target))

    def schema(self) -> JSON:
        names = key_or_uri(self.target)
        return (or_null(names) if self.nullable else names) | self._about(names)

    def _about(self, names: JSON) -> JSON:
        """What the field says of itself, and what names its rows."""
        about = describe(self.field)
        said = (about.get("description"), names.get("description"))
        return about | {"description": " ".join(filter(None, said))}

    def default(self) -> JSON:
        return {}

    def read(self, given: Any) -> Any:
        return given  # bound, by now

    def _differs(self, row: models.Model, value: Any) -> bool:
        key = None if value is None else getattr(value, self.field.target_field.attname)
        return bool(getattr(row, self.field.attname) != key)

    def write(self, row: models.Model, value: Any) -> None:
        setattr(row, self.field.name, value)


@dataclass(frozen=True)
class RowsInput(RowInput):
    """The keys or URIs of all the rows that a many-to-many relation leads to."""

    @property
    def required(self) -> bool:
        return not self.field.blank

    @property
    def parameter(self) -> Parameter:
        return Parameter(self.name, Any, None, Binding(self.target, many=True))

    def schema(self) -> JSON:
        least = {} if self.field.blank else {"minItems": 1}
        rows = {"type": "array", "items": key_or_uri(self.target), "maxItems": MOST_KEYS}
        return rows | least | describe(self.field)

    def read(self, given: Any) -> Any:
        """The rows, which may be chosen: forms keep ``limit_choices_to``, the model does not."""
        if given and (limit := self.field.get_limit_choices_to()):
            model, using = self.field.related_model, given[0]._state.db
            every: models.QuerySet[Any] = models.QuerySet(model, using=using)
            chosen = every.complex_filter(limit).filter(pk__in=[row.pk for row in given])
            if chosen.distinct().count() < len({row.pk for row in given}):
                raise ValueError("One of them cannot be chosen.")
        return given

    def change(self, request: Request, row: models.Model, value: Any) -> Any:
        linked = self._linked(row)
        seen = self._seen(request, linked)
        if seen == {one.pk for one in value}:
            return UNCHANGED
        return [*value, *(pk for pk in linked if pk not in seen)]

    def _linked(self, row: models.Model) -> list[Any]:
        related = getattr(row, self.field.name).using(row._state.db)
        found = list(related.order_by("pk").values_list("pk", flat=True)[: MOST_KEYS + 1])
        if len(found) > MOST_KEYS:
            raise InvalidArguments(f"{self.name}: there are too many to be replaced.")
        return found

    def _seen(self, request: Request, keys: list[Any]) -> set[Any]:
        target = self.target
        if not keys or not target.admits(request):
            return set()
        rows = target.get_queryset(request).using(router.db_for_write(target.model))
        return {row.pk for row in rows.filter(pk__in=keys) if target.permits(request, row, "view")}

    def write(self, row: models.Model, value: Any) -> None: ...

    def finish(self, row: Any, value: Any) -> None:
        getattr(row, self.field.name).set(value)


def key_or_uri(target: ModelResource) -> JSON:
    """The JSON Schema of what names a row: a URI is a string, whatever the key is."""
    schema = target.key_schema()
    about = {"description": schema["description"]}
    if schema["type"] == "string":
        return {"type": "string"} | about
    if schema["type"] == "array":
        return {"anyOf": [schema, {"type": "string"}]} | about
    return {"type": [schema["type"], "string"]} | about
