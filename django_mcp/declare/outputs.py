"""
What a function returns: the schema of it, and the JSON it becomes.

Rule: what is sent fits the schema that was published; a value that does not is
a bug, not a result. Model instances leave only through a registered resource,
whose ``fields`` apply; there is no other way for a row to become JSON.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from django.core.exceptions import ImproperlyConfigured
from django.db import models
from django.db.models.query import ModelIterable
from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError, to_jsonable_python

from . import schemas
from .arguments import TerseSchema
from .bindings import chosen_resource, holds, is_model
from .contents import Content, EmbeddedResource, Message
from .meta import json_problem

if TYPE_CHECKING:
    from .bindings import Find
    from .model_resources import ModelResource
    from .requests import Request

# Annotations that promise no structure: the value says itself what it is.
# (``QuerySet[Invoice]`` is no more than ``QuerySet`` when it is looked at.)
SELF_TELLING = (Content, Message, models.QuerySet)
PLAIN = (bool, int, str)  # what is one of these is written as it is
FREE: tuple[Any, ...] = (str, bytes, None, type(None), Any, object, list, tuple)


class Mismatch(Exception):
    """A function returned what its declaration does not allow."""


class Output:
    """What one function returns: anything, unless a subclass knows better."""

    schema: dict[str, Any] | None = None
    embeds = False  # whether it is declared to hold whole resources

    def structured(self, value: Any, request: Request) -> Any:
        """The JSON value of ``value``. Raises ``Mismatch``."""
        try:
            return to_jsonable_python(
                value, fallback=lambda one: _row(one, request), inf_nan_mode="null"
            )
        except (PydanticSerializationError, ValueError) as error:
            raise Mismatch(f"{type(value).__name__} has no JSON form: {error}") from error


class TypedOutput(Output):
    """Values of one type, written by pydantic."""

    def __init__(self, annotation: Any) -> None:
        self._adapter: TypeAdapter[Any] = TypeAdapter(annotation)
        self._plain = annotation if annotation in PLAIN else None
        self.schema = self._adapter.json_schema(mode="serialization", schema_generator=TerseSchema)
        self.schema.pop("title", None)

    def structured(self, value: Any, request: Request) -> Any:
        if type(value) is self._plain:
            return value  # as it is, it fits
        try:
            checked = self._adapter.validate_python(value)
            options: Any = {"mode": "json", "by_alias": True, "warnings": "error"}
            written = self._adapter.dump_python(checked, **options)
        except (PydanticSerializationError, ValueError) as error:
            raise Mismatch(f"The value is not of the declared type: {error}") from error
        return fitting(written, self.schema)


class WrittenOutput(Output):
    """Values that fit a hand-written schema."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.schema = dict(schema)

    def structured(self, value: Any, request: Request) -> Any:
        return fitting(super().structured(value, request), self.schema)


def fitting(written: Any, schema: Any) -> Any:
    """``written``, which fits ``schema``. Raises ``Mismatch``."""
    if schemas.is_plain(schema, written):
        return written
    wrong = json_problem(written) or "; ".join(schemas.violations(schema, written, formats=False))
    if wrong:
        raise Mismatch(f"The value does not fit the output schema: {wrong}")
    return written


class RowOutput(Output):
    """A registered model's instance, or several."""

    def __init__(self, resource: ModelResource, *, many: bool, optional: bool = False) -> None:
        self._resource, self._many, self._optional = resource, many, optional
        row = resource.row_schema()
        one = {"anyOf": [row, {"type": "null"}]} if optional else row
        self.schema = {"type": "array", "items": row} if many else one

    def structured(self, value: Any, request: Request) -> Any:
        if self._many:
            return [self._one(row, request) for row in self._resource.rows(value)]
        return None if value is None and self._optional else self._one(value, request)

    def _one(self, row: Any, request: Request) -> Any:
        if not isinstance(row, self._resource.model):
            raise Mismatch(f"{type(row).__name__} is not the declared model.")
        return self._resource.row_values(row, request)


def output_of(annotation: Any, find: Find, *, schema: Mapping[str, Any] | None = None) -> Output:
    """How values of a return annotation are written. Raises ``ImproperlyConfigured``."""
    if schema is not None:
        return WrittenOutput(schema)
    row = _row_output(annotation, find)
    if row is not None:
        return row
    if is_free(annotation):
        free = Output()
        free.embeds = holds(annotation, EmbeddedResource)
        return free
    try:
        return TypedOutput(annotation)
    except Exception as error:  # whatever a type does when pydantic asks for its schema
        words = str(error).partition("\n")[0]
        raise ImproperlyConfigured(f"No schema can be made of the result: {words}") from error


def is_free(annotation: Any) -> bool:
    """Whether an annotation says nothing about structure."""
    origin = typing.get_origin(annotation)
    if annotation in FREE or origin in (Annotated,) and is_free(annotation.__origin__):
        return True
    if isinstance(annotation, type) and issubclass(annotation, SELF_TELLING):
        return True
    parts = typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType, list, tuple, Sequence):
        contents = [part for part in parts if part not in (None, type(None), ...)]
        return any(part is Any or holds(part, Content, Message) for part in contents) or (
            contents == [str] and len(parts) > 1
        )
    return False


def _row_output(annotation: Any, find: Find) -> Output | None:
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if resource := _resource(annotation, find):
        return RowOutput(resource, many=False)
    if origin in (list, Sequence) and (resource := _resource(inner[0], find)):
        return RowOutput(resource, many=True)
    if origin in (typing.Union, types.UnionType) and type(None) in inner and len(inner) == 2:
        one = next(part for part in inner if part is not type(None))
        if resource := _resource(one, find):
            return RowOutput(resource, many=False, optional=True)
    if holds(annotation, models.Model):
        raise ImproperlyConfigured(
            "Instances are returned alone or in a list, of registered models: "
            "return data of your own for anything else."
        )
    return None


def _resource(annotation: Any, find: Find) -> ModelResource | None:
    """The resource whose ``fields`` apply, if ``annotation`` is a model."""
    if typing.get_origin(annotation) is Annotated and is_model(annotation.__origin__):
        return find(annotation.__origin__, chosen_resource(annotation.__metadata__))
    return find(annotation, None) if is_model(annotation) else None


def _row(value: Any, request: Request) -> Any:
    """What pydantic cannot write: an instance by its resource, anything lazy as text."""
    if isinstance(value, models.Model):
        return request.server.catalog.resource_of(type(value)).row_values(value, request)
    if isinstance(value, models.QuerySet) and issubclass(value._iterable_class, ModelIterable):
        resource = request.server.catalog.resource_of(value.model)
        return [resource.row_values(row, request) for row in resource.rows(value)]
    if hasattr(value, "_proxy____cast") or hasattr(value, "__html__"):
        return str(value)
    raise ValueError(f"{type(value).__name__} cannot be written as JSON")
