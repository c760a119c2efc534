"""What a function returns: its output schema, and the JSON that it becomes.

The JSON that is sent fits the published schema. A value that does not is a bug of the project and
raises ``Mismatch``. Model instances become JSON only through a registered model resource, whose
``fields`` apply.

The result of each tool call passes through ``RowCollector`` before it is serialized. A row that the
caller could not read through the resource raises ``HiddenRows``, whichever query the tool used. A
tool wraps rows in ``trusted()`` to skip this check.
"""

from __future__ import annotations

import types
import typing
from collections.abc import (
    Collection,
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    Sequence,
    ValuesView,
)
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from ipaddress import IPv4Network, IPv6Network
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast
from uuid import UUID

from django.core.exceptions import ImproperlyConfigured
from django.core.files.base import File
from django.core.paginator import Page
from django.db import connections, models
from django.db.models import Model
from django.db.models.query import ModelIterable
from django.utils.functional import LazyObject
from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError, to_jsonable_python

from ..exceptions import ToolError
from . import schemas
from .arguments import chosen_resource
from .content import Content, EmbeddedResource, Message, json_problem
from .schemas import TerseSchema, holds, is_model

if TYPE_CHECKING:
    from .declaration import Find
    from .model_rows import ModelRows
    from .request import Request
    from .server import Server

# Annotations without structure. ``QuerySet[Invoice]`` evaluates to ``QuerySet``, so its model is
# not known.
WITHOUT_STRUCTURE = (Content, Message, models.QuerySet)
PLAIN = (bool, int, str)  # values of these types are their own JSON
FREE: tuple[Any, ...] = (str, bytes, None, type(None), Any, object, list, tuple)

T = TypeVar("T")
MAX_LOGGED_KEYS = 10
# Values of these types contain no rows. Most values have one of them: this is the fast path.
PLAIN_TYPES = frozenset(
    (str, int, float, bool, type(None), bytes, Decimal, date, datetime, time, timedelta, UUID)
)
# Iterables without rows in them.
ITERABLES_WITHOUT_ROWS = (str, bytes, bytearray, memoryview, range, IPv4Network, IPv6Network)
Path = tuple[str | int, ...]


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
    def finds_rows_of(self) -> ModelRows | None:
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


class Trusted:
    """The argument of ``trusted``.

    It is not a dataclass, because pydantic would serialize a dataclass itself.
    """

    def __init__(self, rows: Any) -> None:
        self.rows = rows


def trusted(rows: T) -> T:
    """Return ``rows`` from a tool without checking that ``get_queryset`` shows them to the caller.

    ``rows`` is an instance, a list of instances or a queryset. The ``fields`` of their resource
    apply. Related rows that are serialized with them are not checked either. An unsaved row is
    never visible, so a tool can return it only in this way.
    """
    # The type is that of ``rows``, so that a tool annotated ``-> Invoice`` type-checks.
    return cast(T, Trusted(rows))


class HiddenRows(ToolError):
    """Not found."""

    # A tool returned rows that its caller may not see. The docstring of a ToolError is the message
    # to the client, which must not learn that the rows exist. ``detail`` is for the log.

    def __init__(self, resource: ModelRows, rows: Sequence[Model]) -> None:
        super().__init__()
        keys = ",".join(str(row.pk) for row in rows[:MAX_LOGGED_KEYS])
        more = ",..." if len(rows) > MAX_LOGGED_KEYS else ""
        self.detail = f"model={resource.model._meta.label} count={len(rows)} pk={keys}{more}"


class ReturnedRows:
    """The rows of one result. Queries check many rows of a resource and database at once."""

    def __init__(self) -> None:
        self._rows: dict[tuple[ModelRows, str | None], list[Model]] = {}

    def add(self, resource: ModelRows, row: Model) -> None:
        """Add a row to be checked."""
        self._rows.setdefault((resource, row._state.db), []).append(row)

    def check(self, request: Request) -> None:
        """Raise ``HiddenRows`` if ``request``'s user could not read one of the rows."""
        for (resource, using), rows in self._rows.items():
            visible = set(_visible_keys(resource, request, rows, using))
            if hidden := [row for row in rows if _key(resource, row) not in visible]:
                raise HiddenRows(resource, hidden)


class RowCollector:
    """Finds the rows in a value of a declared type, before pydantic reads their attributes.

    ``paths`` lead to all attributes that the type reads anywhere. Rows of models without a resource
    are not checked, because no resource says who may see them.
    """

    def __init__(self, server: Server, paths: Collection[Path]) -> None:
        self.rows = ReturnedRows()
        self._catalog, self._paths = server._catalog, paths
        # Keeps the values alive: Python may reuse the id() of a deleted object.
        self._seen: dict[int, Any] = {}

    def collect(self, value: Any, *, replaceable: bool = True) -> Any:
        """Return ``value`` with lists instead of iterators, and its rows instead of ``Trusted``.

        A value inside another object is not ``replaceable``. There, ``Trusted`` is left to the
        serializer, and an iterator raises ``ValueError``, because reading it here would leave
        nothing for pydantic.
        """
        kind = type(value)
        if kind in PLAIN_TYPES:
            return value
        if kind is dict:
            pairs = value.items()
            return {self.collect(k): self.collect(one, replaceable=replaceable) for k, one in pairs}
        if kind in (list, tuple, set, frozenset):
            return kind([self.collect(one, replaceable=replaceable) for one in value])
        if kind is Trusted:
            return value.rows
        if isinstance(value, Iterator):
            if not replaceable:
                raise ValueError(f"a {kind.__name__} can be read only once")
            return [self.collect(one) for one in value]
        if id(value) not in self._seen:
            self._seen[id(value)] = value
            self._look_into(value)
        return value

    def _look_into(self, value: Any) -> None:
        """Find the rows in an object: itself, its items and its attributes at the paths."""
        if isinstance(value, type):
            return
        if isinstance(value, Model):
            self._add(value)
        elif isinstance(value, Mapping):
            self.collect(list(value.items()), replaceable=False)
        elif isinstance(value, File):
            # Do not read its content. Whoever may see the row of a file field may see the file.
            # Without paths, the declared type reads nothing of the file that belongs to a row.
            if self._paths:
                self.collect(getattr(value, "instance", None))
        elif isinstance(value, Iterable) and not isinstance(value, ITERABLES_WITHOUT_ROWS):
            self.collect(list(value), replaceable=False)
        # Also for a row: the declared type may read ``invoice.customer``.
        for path in self._paths:
            self.collect(_at(value, path), replaceable=False)

    def _add(self, row: Model) -> None:
        kind = row.__class__  # type() would be the class of a lazy object
        if not self._catalog.models.keys().isdisjoint(kind.__mro__):
            self.rows.add(self._catalog.resource_of(kind), row)


def _at(value: Any, path: Path) -> Any:
    """Return the value at ``path`` in ``value``, or None."""
    try:
        for step in path:
            value = getattr(value, step) if isinstance(step, str) else value[step]
    except Exception:  # no such attribute, or a property raised: pydantic reports what it reads
        return None
    return value


def _key(resource: ModelRows, row: Any) -> tuple[Any, ...]:
    # Convert, because a row that was just created may contain a UUID as a string.
    fields = resource.model._meta.pk_fields
    return tuple(field.to_python(getattr(row, field.attname)) for field in fields)


def _visible_keys(
    resource: ModelRows, request: Request, rows: Sequence[Model], using: str | None
) -> Iterator[tuple[Any, ...]]:
    """Yield the keys of those rows that the caller may see."""
    keys = {_key(resource, row) for row in rows}
    saved = [key if len(key) > 1 else key[0] for key in keys if None not in key]
    # Do not call get_queryset for a caller who may not use the resource: it may require a user.
    if not saved or not resource._decide(request).allowed:
        return
    # Query the database of the row. A replica may not have what this call has just written.
    queryset = resource.get_queryset(request).using(using)
    permits = resource._row_check(request)
    names = [field.attname for field in resource.model._meta.pk_fields]
    # Half of the database's limit, because ``get_queryset`` may have parameters too.
    limit = connections[queryset.db].features.max_query_params
    size = max(limit // (2 * len(names)), 1) if limit else len(saved)
    for start in range(0, len(saved), size):
        found = queryset.filter(pk__in=saved[start : start + size])
        if permits is None:
            yield from found.values_list(*names)
        else:
            yield from (_key(resource, row) for row in found if permits(row))
