"""What a function returns: its output schema, and the JSON that it becomes.

The JSON that is sent fits the published schema. A value that does not is a bug of the project and
raises ``Mismatch``. Model instances become JSON only through a registered model resource, whose
``fields`` apply.
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
from .arguments import chosen_resource
from .content import Content, EmbeddedResource, Message, json_problem
from .returned_rows import Path, ReturnedRows, RowCollector, Trusted
from .type_schemas import TerseSchema, holds, is_model

if TYPE_CHECKING:
    from .declaration import Find
    from .model_rows import ModelRows
    from .request import Request

# Annotations without structure. ``QuerySet[Invoice]`` evaluates to ``QuerySet``, so its model is
# not known.
WITHOUT_STRUCTURE = (Content, Message, models.QuerySet)
PLAIN = (bool, int, str)  # values of these types are their own JSON
FREE: tuple[Any, ...] = (str, bytes, None, type(None), Any, object, list, tuple)


class Mismatch(Exception):
    """A function returned a value that its declaration does not allow."""


# What to return instead of Django's objects, by a part of the error message.
HINTS = {
    "QuerySet": "return list(...) of a queryset of values(), and annotate rows as their model",
    "FieldFile": "return a file's name or url, mcp.Image(file.read()), or the row that has it",
    "read only once": "return a list",
    "Manager": "return .all() of a manager",
    "cannot be written as JSON": "return text, data, a content, or rows of a registered model",
}


def _mismatch(message: str) -> Mismatch:
    hint = next((hint for name, hint in HINTS.items() if name in message), "")
    return Mismatch(f"{message} - {hint}." if hint else message)


class Output:
    """Converts the return values of one function that has no output schema."""

    schema: dict[str, Any] | None = None
    embeds = False  # whether the annotation contains embedded resources

    def structured(self, value: Any, request: Request) -> Any:
        """Return the JSON of ``value``. Raise ``Mismatch``."""
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
    """Values of one type, which pydantic writes."""

    def __init__(self, annotation: Any) -> None:
        self._adapter: TypeAdapter[Any] = TypeAdapter(annotation)
        self._plain = annotation if annotation in PLAIN else None
        self.schema = self._adapter.json_schema(mode="serialization", schema_generator=TerseSchema)
        self.schema.pop("title", None)
        self._paths = frozenset(_paths(self._adapter.core_schema))

    def structured(self, value: Any, request: Request) -> Any:
        if type(value) is self._plain:
            return value
        collector = RowCollector(request.server, self._paths)
        try:
            value = collector.collect(value)
        except (ValueError, TypeError, RecursionError) as error:
            raise _mismatch(f"The value is not of the declared type: {error}") from error
        # Check the rows before pydantic reads them. The type may read attributes that ``fields``
        # does not list.
        collector.rows.check(request)
        try:
            checked = self._adapter.validate_python(value)
            options: Any = {"mode": "json", "by_alias": True, "warnings": "error"}
            written = self._adapter.dump_python(checked, **options)
        except (PydanticSerializationError, ValueError) as error:
            raise _mismatch(f"The value is not of the declared type: {error}") from error
        return check_fits(written, self.schema)


def _paths(schema: Any) -> Iterator[Path]:
    """Yield where pydantic may read attributes of a value, from the core schema of its type."""
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
            # The keys are names of fields or tags, and one may be called "metadata" or "default".
            yield from _paths(list(one.values()))
        elif key not in ("metadata", "default", "serialization", "validation_alias"):
            yield from _paths(one)


class WrittenOutput(Output):
    """Values that must fit a hand-written schema."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.schema = dict(schema)

    def structured(self, value: Any, request: Request) -> Any:
        return check_fits(super().structured(value, request), self.schema)


def check_fits(written: Any, schema: Any) -> Any:
    """Return ``written`` if it fits ``schema``. Raise ``Mismatch`` otherwise."""
    if schemas.is_plain(schema, written):
        return written
    wrong = json_problem(written) or "; ".join(schemas.violations(schema, written, formats=False))
    if wrong:
        raise Mismatch(f"The value does not fit the output schema: {wrong}")
    return written


class RowOutput(Output):
    """An instance of a registered model, or several.

    ``written`` says that the tool wrote the row. It has already checked that the caller may see it.
    No schema is published then, because the arguments describe the fields, and a language model
    reads every definition in a list of tools.
    """

    def __init__(
        self,
        resource: ModelRows,
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
    def found(self) -> ModelRows | None:
        """The resource whose rows clients find by calling the tool, or None.

        A row that the tool wrote was named by the client or is new, so it is not found.
        """
        return None if self._written else self._resource

    def structured(self, value: Any, request: Request) -> Any:
        checked = self._written
        if isinstance(value, Trusted):
            value, checked = value.rows, True
        if value is None and self._optional:
            return None
        found = list(self._resource._rows(value, request)) if self._many else [value]
        rows = self._checked(found, request, checked=checked)
        shown = [self._resource._row_values(row, request) for row in rows]
        return shown if self._many else shown[0]

    def _checked(self, found: list[Any], request: Request, *, checked: bool) -> list[Any]:
        """Return the rows. Raise ``HiddenRows`` if the caller may not see one that is not trusted.

        With ``checked`` all rows are trusted.
        """
        returned = ReturnedRows()
        rows: list[Any] = []
        for one in found:
            is_trusted = isinstance(one, Trusted)
            row = _unwrapped(one.rows if is_trusted else one)
            if not isinstance(row, self._resource.model):
                raise Mismatch(f"A {type(row).__name__} is not an instance of the declared model.")
            if not is_trusted:
                returned.add(self._resource, row)
            rows.append(row)
        if not checked:
            returned.check(request)
        return rows


def output_of(annotation: Any, find: Find, *, schema: Mapping[str, Any] | None = None) -> Output:
    """Return how values of a return annotation are written. Raise ``ImproperlyConfigured``."""
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
    except Exception as error:  # types of the project may raise anything in their schema hooks
        reason = str(error).partition("\n")[0]
        raise ImproperlyConfigured(f"The result has no JSON Schema: {reason}") from error


def is_free(annotation: Any) -> bool:
    """Whether an annotation says nothing about structure."""
    origin = typing.get_origin(annotation)
    if annotation in FREE or origin in (Annotated,) and is_free(annotation.__origin__):
        return True
    if isinstance(annotation, type) and issubclass(annotation, WITHOUT_STRUCTURE):
        return True
    parts = typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType, list, tuple, Sequence):
        contents = [part for part in parts if part not in (None, type(None), ...)]
        return any(part is Any or holds(part, Content, Message) for part in contents) or (
            contents == [str] and len(parts) > 1
        )
    return False


def _row_output(annotation: Any, find: Find) -> Output | None:
    """Return the output for rows of a registered model, or None for another annotation."""
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
            "Return instances of registered models, alone or in a list. Return other data as "
            "plain values."
        )
    return None


def _resource(annotation: Any, find: Find) -> ModelRows | None:
    """Return the resource whose ``fields`` apply if ``annotation`` is a model, or None."""
    found: ModelRows | None = None
    if typing.get_origin(annotation) is Annotated and is_model(annotation.__origin__):
        found = find(annotation.__origin__, chosen_resource(annotation.__metadata__))
    elif is_model(annotation):
        found = find(annotation, None)
    return found


def _row(value: Any, request: Request, rows: ReturnedRows | None) -> Any:
    """Return the JSON of a value that pydantic cannot write: a row, or a lazy value as text.

    Rows are added to ``rows`` to be checked. With None they are trusted.
    """
    if isinstance(value, Trusted):
        return to_jsonable_python(value.rows, fallback=lambda one: _row(one, request, None))
    if isinstance(value, models.Model):
        value = _unwrapped(value)
        resource = request.server._catalog.resource_of(type(value))
        return _written([value], resource, request, rows)[0]
    if isinstance(value, models.QuerySet) and issubclass(value._iterable_class, ModelIterable):
        resource = request.server._catalog.resource_of(value.model)
        return _written(resource._rows(value, request), resource, request, rows)
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
    """Return the row inside a lazy object, such as Django's ``request.user``."""
    if not isinstance(value, LazyObject):
        return value
    bool(value.__class__)  # makes the lazy object load the wrapped one
    return value._wrapped


def is_lazy(value: Any) -> bool:
    """Whether ``value`` is evaluated when it is used, as a lazy translation is."""
    return hasattr(value, "_proxy____cast")


def _written(
    instances: Iterable[Any], resource: ModelRows, request: Request, rows: ReturnedRows | None
) -> list[Any]:
    """Return the JSON of rows, and add the rows to ``rows`` to be checked."""
    shown = []
    for instance in instances:
        if rows is not None:
            rows.add(resource, instance)
        shown.append(resource._row_values(instance, request))
    return shown
