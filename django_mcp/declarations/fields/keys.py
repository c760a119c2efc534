"""Keys of rows in JSON and in URIs, and paths over foreign keys such as ``customer__name``.

A key identifies a row: the primary key, or another unique field that the URI template of a resource
names. ``lookup`` is the name of that field, "pk" for the primary key.

Each key has exactly one canonical text: ``parse_key(model, key_text(row))`` returns the key, and
``parse_key`` raises ``ValueError`` for a text that ``key_text`` does not write. So two different
URIs never name the same row, which subscriptions and caches rely on. The parts of a composite key
are percent-encoded and joined by commas.

A path goes over foreign keys only, to one column, so it has at most one value per row. ``follow``
raises ``FieldError`` for anything else and suggests similar names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any
from urllib.parse import quote, unquote

from django.core.exceptions import FieldDoesNotExist, FieldError, ImproperlyConfigured
from django.db import models
from django.db.models import Value
from django.db.models.constants import LOOKUP_SEP
from django.db.models.lookups import Exact

from .columns import JSON, AnyField, ColumnType, column_type, stored_field

ModelClass = type[models.Model]


@dataclass(frozen=True, slots=True)
class ColumnPath:
    """A column, and the foreign keys that lead to it."""

    name: str
    relations: tuple[models.ForeignKey[Any, Any], ...]
    field: AnyField

    @property
    def related_path(self) -> str:
        """The path to the row that has the column, or "" if it is the model's own row."""
        return LOOKUP_SEP.join(relation.name for relation in self.relations)

    @property
    def lookup(self) -> str:
        """The path to the column, for ``F()`` and ``order_by()``.

        For a foreign key this ends in its ``attname``, such as ``customer_id``. With ``customer``,
        ``order_by()`` would use the ``Meta.ordering`` of the other model.
        """
        return LOOKUP_SEP.join([*(each.name for each in self.relations), self.field.attname])

    @property
    def nullable(self) -> bool:
        return any(relation.null for relation in self.relations) or self.field.null

    def value_of(self, instance: models.Model) -> Any:
        """Return the column's value for ``instance``, or None if a foreign key is null."""
        row: Any = instance
        for relation in self.relations:
            if (row := getattr(row, relation.name)) is None:
                return None
        return getattr(row, self.field.attname)


def field_names(model: ModelClass) -> list[str]:
    """Return the names of the model's fields and relations."""
    return [field.name for field in model._meta.get_fields() if not _is_hidden(field)]


def did_you_mean_hint(name: str, names: Iterable[str]) -> str:
    """Return " Did you mean ...?" with the names that resemble ``name``, or ""."""
    close = get_close_matches(name, list(names), n=3, cutoff=0.7)
    return f" Did you mean {' or '.join(map(repr, close))}?" if close else ""


def get_field(model: ModelClass, name: str) -> Any:
    """Return the field or relation named ``name`` or ``pk``. Raise ``FieldError`` with a hint."""
    try:
        return model._meta.pk if name == "pk" else model._meta.get_field(name)
    except FieldDoesNotExist:
        hint = did_you_mean_hint(name, field_names(model))
        raise FieldError(f"{model.__name__} has no field {name!r}.{hint}") from None


def follow(model: ModelClass, name: str) -> ColumnPath:
    """Return the path that ``name`` means.

    Raise ``FieldError`` if it does not lead to one column.
    """
    *names, last = name.split(LOOKUP_SEP)
    relations: list[models.ForeignKey[Any, Any]] = []
    for relation in names:
        relations.append(_foreign_key(model, relation))
        model = relations[-1].related_model
    return ColumnPath(name, tuple(relations), _column_of(model, last))


def _foreign_key(model: ModelClass, name: str) -> models.ForeignKey[Any, Any]:
    """Return the foreign key of this name. Raise ``FieldError`` for any other field."""
    field = get_field(model, name)
    if isinstance(field, models.ForeignKey):
        return field
    raise FieldError(
        f"{model.__name__}.{name} is not a foreign key. A path can only follow foreign keys."
    )


def _column_of(model: ModelClass, name: str) -> AnyField:
    """Return the column of this name. Raise ``FieldError`` for a relation or composite key."""
    field = get_field(model, name)
    if isinstance(field, models.CompositePrimaryKey):
        raise FieldError(f"{model.__name__}.{name} has several columns. Name each of them.")
    if field.is_relation and not isinstance(field, models.ForeignKey):
        raise FieldError(f"{model.__name__}.{name} is a relation without a column of its own.")
    assert isinstance(field, models.Field)
    return field


def _is_hidden(field: Any) -> bool:
    return bool(getattr(field, "hidden", False))


MAX_KEY_PART_LENGTH = 1000  # characters
# int() also accepts "+1", "1_000" and digits of other scripts. ``parse_key`` rejects leading zeros.
INTEGER = re.compile(r"-?[0-9]{1,20}")


def key_fields(model: ModelClass, lookup: str = "pk") -> list[AnyField]:
    """Return the fields of the key: one, or the parts of a composite primary key."""
    if lookup == "pk":
        return list(model._meta.pk_fields)
    return [follow(model, lookup).field]


def key_problems(model: ModelClass, lookup: str = "pk") -> list[str]:
    """Return why rows of ``model`` cannot be identified by ``lookup``; [] if they can."""
    try:
        fields = key_fields(model, lookup)
    except FieldError as error:
        return [str(error)]
    # A float or a Boolean has no canonical text.
    unsupported = [
        field
        for field in fields
        if (kind := column_type(field)) is None or kind.schema["type"] in ("number", "boolean")
    ]
    return [
        f"{model.__name__}.{field.name} has a type that cannot be a key in a URI."
        for field in unsupported
    ]


def key_schema(model: ModelClass, lookup: str = "pk") -> JSON:
    """Return the JSON Schema of a key: of the field's type, or an array of the parts' types."""
    parts = [dict(_kind(field).schema) for field in key_fields(model, lookup)]
    if len(parts) == 1:
        return parts[0]
    count = len(parts)
    return {"type": "array", "prefixItems": parts, "minItems": count, "maxItems": count}


def key_or_uri_schema(schema: JSON) -> JSON:
    """Return the schema of a key or of the URI of its row. The URI is a string."""
    if schema["type"] == "string":
        return {"type": "string"}
    if schema["type"] == "array":
        return {"anyOf": [schema, {"type": "string"}]}
    return {"type": [schema["type"], "string"]}


def key_value(
    instance: models.Model, lookup: str = "pk", of: type[models.Model] | None = None
) -> Any:
    """Return the key of ``instance`` as JSON. A composite key is a list of its parts.

    ``of`` is a parent model (multi-table inheritance). The key is then the one of the parent's row.
    """
    fields = key_fields(of or type(instance), lookup)
    return key_json(fields, [getattr(instance, field.attname) for field in fields])


def key_json(fields: Sequence[AnyField], values: Sequence[Any]) -> Any:
    """Return the JSON of a key's values."""
    parts = [
        None if value is None else _kind(field).encode(stored_field(field).to_python(value))
        for field, value in zip(fields, values, strict=True)
    ]
    return parts if len(parts) > 1 else parts[0]


def key_text(
    instance: models.Model, lookup: str = "pk", of: type[models.Model] | None = None
) -> str:
    """Return the key of ``instance`` for a URI. The caller percent-encodes the whole text.

    The parts of a composite key are already encoded, so that only commas between parts separate.
    """
    return _text(key_value(instance, lookup, of))


def pk_text(model: ModelClass, pk: Any) -> str:
    """Return the key text for the primary key ``pk``, which must have one field."""
    return _text(key_json(key_fields(model), [pk]))


def parse_key(model: ModelClass, key: Any, lookup: str = "pk") -> Any:
    """Return the value for ``filter(**{lookup: ...})`` from a key's text or JSON.

    The value of a composite key is a tuple. Raise ``ValueError`` for a text or value that is no
    row's key.
    """
    fields = key_fields(model, lookup)
    parts = _parts(key, len(fields))
    if len(parts) != len(fields):
        raise ValueError(f"A key of {model.__name__} must have {len(fields)} parts.")
    values = [_read(field, part) for field, part in zip(fields, parts, strict=True)]
    if _text(key_json(fields, values)) != _text(key):
        # A second spelling of a key, such as "007" or an uppercase UUID.
        raise ValueError(f"{str(key)[:80]!r} is not a key of {model.__name__}.")
    return tuple(values) if len(values) > 1 else values[0]


def filter_by_keys(
    queryset: models.QuerySet[Any], keys: Sequence[Any], lookup: str = "pk"
) -> models.QuerySet[Any]:
    """Return the rows of ``queryset`` that have one of ``keys``.

    Unlike ``filter(pk__in=[])``, the result takes a query even if there are no keys. Use it where
    the missing query would tell a caller, by its time, that there are none.
    """
    if keys:
        return queryset.filter(**{f"{lookup}__in": list(keys)})
    # Django runs no query for a condition that it knows to be false.
    return queryset.filter(Exact(Value(1), Value(0)))


def _parts(key: Any, count: int) -> list[Any]:
    if count > 1 and isinstance(key, str):
        return [unquote(part, errors="strict") for part in key.split(",")]
    return key if count > 1 and isinstance(key, list) else [key]


def _read(field: AnyField, part: Any) -> Any:
    """Return the value of one part of a key, from its JSON or its text."""
    kind = _kind(field)
    if isinstance(part, str):
        if len(part) > MAX_KEY_PART_LENGTH or "\0" in part:
            raise ValueError("This key is too long, or contains a NUL character.")
        if kind.schema["type"] == "integer" and INTEGER.fullmatch(part):
            return kind.read(int(part))
    return kind.read(part)


def _text(key: Any) -> str:
    return (
        ",".join(quote(str(part), safe="") for part in key) if isinstance(key, list) else str(key)
    )


def _kind(field: AnyField) -> ColumnType:
    if (kind := column_type(field)) is None:
        raise ImproperlyConfigured(f"{field} cannot be part of a key.")
    return kind
