"""Types of model fields: how a value becomes JSON, and how JSON becomes a value.

A type is registered for a field class and applies to its subclasses, unless these have a type of
their own. A field without a type is a plain column: ``columns.COLUMN_TYPES`` has its JSON.

``returned_schema`` makes the JSON Schema of a property from its return annotation. It describes the
JSON that ``values.plain_value`` writes.
"""

from __future__ import annotations

import datetime
import sys
import types
import typing
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cache
from typing import Annotated, Any, TypeVar

from django.core.checks import CheckMessage, Error
from django.db import models
from django.utils.module_loading import import_string

from ..attribute_checks import PublicClass, is_ours, unknown_names
from .columns import COLUMN_TYPES, JSON, ColumnType, stored_field

T = TypeVar("T", bound="type[FieldType]")


class FieldType:
    """How values of a model field are written as JSON and read from it.

    Register a subclass with ``@mcp.register_field_type(FieldClass)``. There is one instance for
    each model field. None is null and reaches neither method.
    """

    #: The JSON Schema of what ``to_json`` returns and ``from_json`` takes.
    schema: Mapping[str, Any] = {}

    def __init__(self, field: Any) -> None:
        self.field = field

    def to_json(self, value: Any) -> Any:
        """Return the JSON of ``value``, which is the instance's attribute."""
        raise NotImplementedError

    def from_json(self, data: Any) -> Any:
        """Return the value that ``data`` stands for. Raise ``ValueError`` or ``ValidationError``.

        ``data`` fits ``schema``. Without this method the field is shown and never written.
        """
        raise NotImplementedError

    @property
    def is_read_only(self) -> bool:
        """Whether clients can only read the field."""
        return type(self).from_json is FieldType.from_json


# By field class, or by the dotted path of one.
_TYPES: dict[type[Any] | str, type[FieldType]] = {}
RELATIONS = (models.ForeignKey, models.ManyToManyField)


def register_field_type(*fields: type[Any] | str) -> Callable[[T], T]:
    """Decorate a ``FieldType`` subclass to register it for these field classes.

    A class may be given by its dotted path, so that it need not be imported. ``check`` imports it.
    """
    if not fields:
        raise TypeError("register_field_type() requires at least one field class.")
    for field in fields:
        if not isinstance(field, str) and (wrong := _wrong_class(field)):
            raise TypeError(wrong)

    def register(cls: T) -> T:
        if not (isinstance(cls, type) and issubclass(cls, FieldType)):
            raise TypeError(f"{cls!r} is not a subclass of mcp.FieldType.")
        if cls.to_json is FieldType.to_json:
            raise TypeError(f"{cls.__name__} has no to_json. Define it.")
        known = PublicClass(
            FieldType, "field type", ("schema", "is_read_only"), ("to_json", "from_json")
        )
        for message, hint in unknown_names(cls, known):
            raise TypeError(f"{message} {hint}")
        for field in fields:
            _TYPES.pop(field, None)  # the last registration of a class counts
            _TYPES[field] = cls
        conversion.cache_clear()
        return cls

    return register


def _wrong_class(cls: Any) -> str | None:
    """Return why no field type can be registered for ``cls``, or None."""
    if not (isinstance(cls, type) and hasattr(cls, "contribute_to_class")):
        return f"{cls!r} is not a model field class."
    if issubclass(cls, RELATIONS):
        return f"A {cls.__name__} is shown as the key of its row and cannot have a field type."
    return None


def registration_problems() -> Iterator[CheckMessage]:
    """Yield an error for each registered path that is not the path of a field class."""
    for path, cls in _TYPES.items():
        if not isinstance(path, str) or is_ours(cls):
            continue
        try:
            wrong = _wrong_class(import_string(path))
        except Exception as error:  # importing a module runs its code, which may raise anything
            wrong = str(error) or type(error).__name__
        if wrong:
            message = f"register_field_type({path!r}): {wrong}"
            hint = "Write the path of a model field class, such as 'colorfield.fields.ColorField'."
            yield Error(message, hint=hint, obj=cls, id="django_mcp.E064")


def _registered_class(field: type[Any] | str, cls: type[FieldType]) -> Any:
    """Return the field class that ``cls`` is registered for, or None if it is not loaded."""
    if not isinstance(field, str):
        return field
    module, _, name = field.rpartition(".")
    if is_ours(cls):
        # Its package may not be installed, and need not be imported: if its module is not
        # loaded, no model has such a field.
        return getattr(sys.modules.get(module), name, None)
    try:
        return import_string(field)
    except Exception:  # registration_problems() reports it
        return None


def field_type(field: Any) -> FieldType | None:
    """Return the type of ``field``, or None if it is a plain column or unknown."""
    return conversion(field)[0]


@cache
def conversion(field: Any) -> tuple[FieldType | None, Any, ColumnType | None]:
    """Return the type of ``field``, the field whose values its column holds, and the column's type.

    Cached, because it is called for every value of every row.
    """
    stored = stored_field(field)
    if not isinstance(stored, models.Field):
        return _type_of(stored), stored, None
    return _type_of(stored), stored, COLUMN_TYPES.get(stored.get_internal_type())


def _type_of(field: Any) -> FieldType | None:
    """Return the type that is registered for the class of ``field`` or its nearest base class."""
    # Compare classes and not paths: a path may name a module that re-exports the class.
    types = {_registered_class(of, cls): cls for of, cls in _TYPES.items()}
    for cls in type(field).__mro__:
        if made := types.get(cls):
            return made(field)
    # A custom field's get_internal_type() may name a Django field that it is no subclass of.
    if not isinstance(field, models.Field) or field.is_relation:
        return None
    known = types.get(getattr(models, field.get_internal_type(), field))
    return known(field) if known else None


def is_managed(field: Any) -> bool:
    """Whether ``field`` has no column of its own.

    Its attribute is then a manager, or computed from other columns.
    """
    return bool(field.many_to_many or not getattr(field, "concrete", False))


def or_null(schema: Mapping[str, Any]) -> JSON:
    """Return the schema that also accepts null."""
    kinds = schema.get("type")
    if kinds is None and "enum" in schema:
        return {**schema, "enum": [*schema["enum"], None]}
    if "anyOf" in schema or "description" in schema or kinds is None:
        return {"anyOf": [*schema.get("anyOf", [schema]), {"type": "null"}]}
    kinds = kinds if isinstance(kinds, list) else [kinds]
    choices = {"enum": [*schema["enum"], None]} if "enum" in schema else {}
    return {**schema, "type": [*(kind for kind in kinds if kind != "null"), "null"]} | choices


_SCHEMAS: Mapping[Any, JSON] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": ["number", "null"]},  # NaN is null
    str: {"type": "string"},
    Decimal: {"type": "string"},
    uuid.UUID: {"type": "string", "format": "uuid"},
    datetime.datetime: {"type": "string", "format": "date-time"},
    datetime.date: {"type": "string", "format": "date"},
    datetime.time: {"type": "string"},
    datetime.timedelta: {"type": "string"},
    bytes: {"type": "string", "contentEncoding": "base64"},
    list: {"type": "array"},
    tuple: {"type": "array"},
    set: {"type": "array"},
    frozenset: {"type": "array"},
    dict: {"type": "object"},
}
_ARRAYS = (list, set, frozenset, Sequence)
_MAPPINGS = (dict, Mapping)
# The JSON types of each Python type. bool is not a number, although it is a subclass of int.
_NAMES: Mapping[type, tuple[str, ...]] = {
    bool: ("boolean",),
    int: ("integer", "number"),
    float: ("number",),
    type(None): ("null",),
    list: ("array",),
    dict: ("object",),
}


def returned_schema(function: Callable[..., Any]) -> JSON | None:
    """Return the schema of what ``function`` returns, or None if its annotation does not say."""
    try:
        hints = typing.get_type_hints(function)
    except Exception:  # an annotation may name what is imported for type checkers only
        return None
    return _schema(hints["return"]) if "return" in hints else None


def _schema(annotation: Any) -> JSON | None:
    """Return the schema of an annotation, or None for a type that is not known."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return _schema(inner[0])
    if origin in (typing.Union, types.UnionType):
        return _optional(inner)
    if origin in _ARRAYS or (origin is tuple and inner[1:] == (...,)):
        items = _schema(inner[0])
        return {"type": "array"} | ({"items": items} if items else {})
    if origin in _MAPPINGS:
        values = _schema(inner[1])
        return {"type": "object"} | ({"additionalProperties": values} if values else {})
    try:
        return _SCHEMAS.get(origin or annotation)
    except TypeError:  # not hashable
        return None


def _optional(inner: tuple[Any, ...]) -> JSON | None:
    """Return the schema of ``X | None``."""
    rest = [part for part in inner if part is not type(None)]
    schema = _schema(rest[0]) if len(rest) == 1 else None
    if schema is None:
        return None
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return schema | {"type": [*dict.fromkeys([*kinds, "null"])]}


def fits(schema: JSON, value: Any) -> bool:
    """Whether the JSON ``value`` has the types of a schema that ``returned_schema`` made."""
    names = ("string",) if isinstance(value, str) else _NAMES.get(type(value), ())
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if not any(name in kinds for name in names):
        return False
    if isinstance(value, list) and "items" in schema:
        return all(fits(schema["items"], item) for item in value)
    if isinstance(value, dict) and "additionalProperties" in schema:
        return all(fits(schema["additionalProperties"], item) for item in value.values())
    return True
