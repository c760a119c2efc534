"""
What a function returns: the schema of it, and the JSON it becomes.

Rule: what is sent fits the schema that was published; a value that does not is
a bug, not a result. Model instances leave only through a registered resource,
whose ``fields`` apply; there is no other way for a row to become JSON.
"""

from __future__ import annotations

import types
import typing
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence, ValuesView
from typing import TYPE_CHECKING, Annotated, Any

from django.core.exceptions import ImproperlyConfigured
from django.core.paginator import Page
from django.db import models
from django.db.models.query import ModelIterable
from django.utils.functional import LazyObject
from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError, to_jsonable_python

from . import schemas
from .arguments import TerseSchema
from .bindings import chosen_resource, holds, is_model
from .content import Content, EmbeddedResource, Message, json_problem
from .returned_rows import Path, ReturnedRows, RowCollector, Trusted

if TYPE_CHECKING:
    from .bindings import Find
    from .model_resources import ModelResource
    from .request import Request

# Annotations that promise no structure: the value says itself what it is.
# (``QuerySet[Invoice]`` is no more than ``QuerySet`` when it is looked at.)
SELF_TELLING = (Content, Message, models.QuerySet)
PLAIN = (bool, int, str)  # what is one of these is written as it is
FREE: tuple[Any, ...] = (str, bytes, None, type(None), Any, object, list, tuple)


class Mismatch(Exception):
    """A function returned what its declaration does not allow."""


# What to return in the place of Django's objects, by the names of their classes in an error.
HINTS = {
    "QuerySet": "return list(...) of a queryset of values(), and annotate rows as their model",
    "FieldFile": "return a file's name or url, mcp.Image(file.read()), or the row that has it",
    "read only once": "return a list",
    "Manager": "return .all() of a manager",
    "cannot be written as JSON": "return text, data, a content, or rows of a registered model",
}


def _mismatch(words: str) -> Mismatch:
    hint = next((hint for name, hint in HINTS.items() if name in words), "")
    return Mismatch(f"{words} - {hint}." if hint else words)


class Output:
    """What one function returns: anything, unless a subclass knows better."""

    schema: dict[str, Any] | None = None
    embeds = False  # whether it is declared to hold whole resources

    def structured(self, value: Any, request: Request) -> Any:
        """The JSON value of ``value``. Raises ``Mismatch``."""
        rows = ReturnedRows()
        try:
            written = to_jsonable_python(
                value, fallback=lambda one: _row(one, request, rows), inf_nan_mode="null"
            )
        except (PydanticSerializationError, ValueError, TypeError) as error:
            raise _mismatch(f"{type(value).__name__} has no JSON form: {error}") from error
        rows.check(request)
        return written


class TypedOutput(Output):
    """Values of one type, written by pydantic."""

    def __init__(self, annotation: Any) -> None:
        self._adapter: TypeAdapter[Any] = TypeAdapter(annotation)
        self._plain = annotation if annotation in PLAIN else None
        self.schema = self._adapter.json_schema(mode="serialization", schema_generator=TerseSchema)
        self.schema.pop("title", None)
        self._paths = frozenset(_paths(self._adapter.core_schema))

    def structured(self, value: Any, request: Request) -> Any:
        if type(value) is self._plain:
            return value  # as it is, it fits
        collector = RowCollector(request.server._catalog, self._paths)
        try:
            value = collector.collect(value)
        except (ValueError, TypeError, RecursionError) as error:
            raise _mismatch(f"The value is not of the declared type: {error}") from error
        # Before the type reads a row: it may read attributes that "fields" does not list.
        collector.rows.check(request)
        try:
            checked = self._adapter.validate_python(value)
            options: Any = {"mode": "json", "by_alias": True, "warnings": "error"}
            written = self._adapter.dump_python(checked, **options)
        except (PydanticSerializationError, ValueError) as error:
            raise _mismatch(f"The value is not of the declared type: {error}") from error
        return fitting(written, self.schema)


def _paths(schema: Any) -> Iterator[Path]:
    """Where pydantic may look for a value's attributes, by the core schema of its type."""
    if isinstance(schema, list | tuple):
        for one in schema:
            yield from _paths(one)
    if not isinstance(schema, dict):
        return
    if schema.get("type") == "model-fields":
        yield from ((name,) for name in schema["fields"])
    if schema.get("type") == "dataclass-field":
        yield (schema["name"],)
    # An alias is a name, a path, or a list of paths.
    alias = schema.get("validation_alias") or []
    if isinstance(alias, str):
        yield (alias,)
    elif alias:
        yield from map(tuple, alias if isinstance(alias[0], list) else [alias])
    for key, one in schema.items():
        if key in ("fields", "choices") and isinstance(one, dict):
            # Keys are names of fields, or tags: one may be called "metadata" or "default".
            yield from _paths(list(one.values()))
        elif key not in ("metadata", "default", "serialization", "validation_alias"):
            yield from _paths(one)


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
    """A registered model's instance, or several.

    ``written`` says that the tool wrote the row. It has looked already whether its caller sees it,
    and no schema is published: the arguments tell the fields, and a model reads every definition
    in a list of tools.
    """

    def __init__(
        self,
        resource: ModelResource,
        *,
        many: bool = False,
        optional: bool = False,
        written: bool = False,
    ) -> None:
        self._resource, self._many, self._optional = resource, many, optional
        self._written = written
        if written:
            return
        row = resource._row_schema()
        one = {"anyOf": [row, {"type": "null"}]} if optional else row
        self.schema = {"type": "array", "items": row} if many else one

    @property
    def found(self) -> ModelResource | None:
        """The resource whose rows clients find by it. What a tool wrote was named, or is new."""
        return None if self._written else self._resource

    def structured(self, value: Any, request: Request) -> Any:
        checked = self._written
        if isinstance(value, Trusted):
            value, checked = value.rows, True
        if value is None and self._optional:
            return None
        found = list(self._resource._rows(value)) if self._many else [value]
        rows = self._checked(found, request, checked=checked)
        shown = [self._resource._row_values(row, request) for row in rows]
        return shown if self._many else shown[0]

    def _checked(self, found: list[Any], request: Request, *, checked: bool) -> list[Any]:
        """Return the rows. Raise ``HiddenRows`` if the caller cannot see one that is not trusted.

        With ``checked`` all are trusted.
        """
        returned = ReturnedRows()
        rows: list[Any] = []
        for one in found:
            is_trusted = isinstance(one, Trusted)
            row = _unwrapped(one.rows if is_trusted else one)
            if not isinstance(row, self._resource.model):
                raise Mismatch(f"{type(row).__name__} is not the declared model.")
            if not is_trusted:
                returned.add(self._resource, row)
            rows.append(row)
        if not checked:
            returned.check(request)
        return rows


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


def _row(value: Any, request: Request, rows: ReturnedRows | None) -> Any:
    """What pydantic cannot write: an instance by its resource, anything lazy as text.

    Instances are added to ``rows``, unless there are none: then they are trusted.
    """
    if isinstance(value, Trusted):
        return to_jsonable_python(value.rows, fallback=lambda one: _row(one, request, None))
    if isinstance(value, models.Model):
        value = _unwrapped(value)
        resource = request.server._catalog.resource_of(type(value))
        return _written([value], resource, request, rows)[0]
    if isinstance(value, models.QuerySet) and issubclass(value._iterable_class, ModelIterable):
        resource = request.server._catalog.resource_of(value.model)
        return _written(resource._rows(value), resource, request, rows)
    if isinstance(value, Page):
        return value.object_list
    if isinstance(value, models.query.RawQuerySet):
        return list(value)
    if isinstance(value, KeysView | ValuesView | ItemsView):
        return to_jsonable_python(list(value), fallback=lambda one: _row(one, request, rows))
    if is_lazy(value):
        # Evaluate it instead of writing its text: a lazy object may be a row, or hold rows.
        real = value._proxy____cast()
        return to_jsonable_python(real, fallback=lambda one: _row(one, request, rows))
    raise ValueError(f"{type(value).__name__} cannot be written as JSON")


def _unwrapped(value: Any) -> Any:
    """The row in a lazy object, as ``request.user`` of Django is one: a row is read by its type."""
    if not isinstance(value, LazyObject):
        return value
    bool(value.__class__)  # makes the lazy object fetch what it wraps
    return value._wrapped


def is_lazy(value: Any) -> bool:
    """Whether ``value`` is evaluated when it is used, as a lazy translation is."""
    return hasattr(value, "_proxy____cast")


def _written(
    instances: Iterable[Any], resource: ModelResource, request: Request, rows: ReturnedRows | None
) -> list[Any]:
    shown = []
    for instance in instances:
        if rows is not None:
            rows.add(resource, instance)
        shown.append(resource._row_values(instance, request))
    return shown
