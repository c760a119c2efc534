"""Keys: how a row is named in JSON and in the text of a URI.

Rule: a row has one spelling. `parse_key(model, key_text(row))` is the row's key, and a text that
`key_text` does not write is refused with ValueError - so no two URIs mean one row.

The parts of a composite key are joined by commas, each percent-encoded.

What a name like `customer__name` means on a model.

Rule: a path goes forward, over foreign keys only, to one column; so it has at
most one value per row. What does not is refused with words that say what is
wrong and which name was probably meant.
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
from django.db.models.constants import LOOKUP_SEP

from .columns import JSON, AnyField, ColumnType, kind_of, stored_field

ModelClass = type[models.Model]


@dataclass(frozen=True, slots=True)
class Path:
    """A column, and the foreign keys that lead to it."""

    name: str
    relations: tuple[models.ForeignKey[Any, Any], ...]
    field: AnyField

    @property
    def joins(self) -> str:
        """The path of the row that has the column ("" for the model's own row)."""
        return LOOKUP_SEP.join(relation.name for relation in self.relations)

    @property
    def lookup(self) -> str:
        """The column for `F()` and `order_by`: for a foreign key the key, never its ordering."""
        return LOOKUP_SEP.join([*(each.name for each in self.relations), self.field.attname])

    @property
    def nullable(self) -> bool:
        return any(relation.null for relation in self.relations) or self.field.null

    def of(self, instance: models.Model) -> Any:
        """The column's value for `instance`, None where the way to it ends."""
        row: Any = instance
        for relation in self.relations:
            if (row := getattr(row, relation.name)) is None:
                return None
        return getattr(row, self.field.attname)


def names_of(model: ModelClass) -> list[str]:
    """The names of the model's fields and relations."""
    return [field.name for field in model._meta.get_fields() if not _is_hidden(field)]


def near(name: str, names: Iterable[str]) -> str:
    """A hint with the known names that resemble `name`, or nothing."""
    close = get_close_matches(name, list(names), n=3, cutoff=0.7)
    return f" Did you mean {' or '.join(map(repr, close))}?" if close else ""


def get_field(model: ModelClass, name: str) -> Any:
    """The field or relation of `model` named `name` (or `pk`); raises FieldError with a hint."""
    try:
        return model._meta.pk if name == "pk" else model._meta.get_field(name)
    except FieldDoesNotExist:
        hint = near(name, names_of(model))
        raise FieldError(f"{model.__name__} has no field {name!r}.{hint}") from None


def follow(model: ModelClass, name: str) -> Path:
    """The path that `name` stands for; raises FieldError where it is not one column."""
    *way, last = name.split(LOOKUP_SEP)
    relations: list[models.ForeignKey[Any, Any]] = []
    for step in way:
        relations.append(_foreign_key(model, step))
        model = relations[-1].related_model
    return Path(name, tuple(relations), _column_of(model, last))


def _foreign_key(model: ModelClass, name: str) -> models.ForeignKey[Any, Any]:
    field = get_field(model, name)
    if isinstance(field, models.ForeignKey):
        return field
    if field.is_relation:
        raise FieldError(
            f"A path cannot go through {model.__name__}.{name}: only through foreign keys, "
            "which lead to one row."
        )
    raise FieldError(f"A path cannot go on after {model.__name__}.{name}: it is no foreign key.")


def _column_of(model: ModelClass, name: str) -> AnyField:
    field = get_field(model, name)
    if isinstance(field, models.CompositePrimaryKey):
        raise FieldError(f"{model.__name__}.{name} is several columns: name them one by one.")
    if field.is_relation and not isinstance(field, models.ForeignKey):
        raise FieldError(f"{model.__name__}.{name} has many values, or none of its own.")
    assert isinstance(field, models.Field)
    return field


def _is_hidden(field: Any) -> bool:
    return bool(getattr(field, "hidden", False))


MAX_URI_KEY_LENGTH = 1000
INTEGER = re.compile(r"-?[0-9]{1,20}")


def key_fields(model: ModelClass, lookup: str = "pk") -> list[AnyField]:
    """The fields that make the key: one, or the parts of a composite primary key."""
    if lookup == "pk":
        return list(model._meta.pk_fields)
    return [follow(model, lookup).field]


def key_problems(model: ModelClass, lookup: str = "pk") -> list[str]:
    """Why rows of `model` cannot be named by `lookup`; [] when they can."""
    try:
        fields = key_fields(model, lookup)
    except FieldError as error:
        return [str(error)]
    odd = [field for field in fields if kind_of(field) is None]
    return [f"{model.__name__}.{field.name} cannot be a key in a URI." for field in odd]


def key_schema(model: ModelClass, lookup: str = "pk") -> JSON:
    """The JSON Schema of a key: of the field's type, or an array of the parts' types."""
    parts = [dict(_kind(field).schema) for field in key_fields(model, lookup)]
    if len(parts) == 1:
        return parts[0]
    count = len(parts)
    return {"type": "array", "prefixItems": parts, "minItems": count, "maxItems": count}


def or_uri(schema: JSON) -> JSON:
    """The schema of a key, or of a URI that names its row: a string, whatever the key is."""
    if schema["type"] == "string":
        return {"type": "string"}
    if schema["type"] == "array":
        return {"anyOf": [schema, {"type": "string"}]}
    return {"type": [schema["type"], "string"]}


def key_value(
    instance: models.Model, lookup: str = "pk", of: type[models.Model] | None = None
) -> Any:
    """
    The key of `instance` as JSON; the parts of a composite key as a list.

    `of` is a parent of its model, where the key is the one that it has there.
    """
    fields = key_fields(of or type(instance), lookup)
    return key_json(fields, [getattr(instance, field.attname) for field in fields])


def key_json(fields: Sequence[AnyField], values: Sequence[Any]) -> Any:
    parts = [
        None if value is None else _kind(field).encode(stored_field(field).to_python(value))
        for field, value in zip(fields, values, strict=True)
    ]
    return parts if len(parts) > 1 else parts[0]


def key_text(
    instance: models.Model, lookup: str = "pk", of: type[models.Model] | None = None
) -> str:
    """The key of `instance` in a URI (which is yet to be percent-encoded)."""
    return _text(key_value(instance, lookup, of))


def pk_text(model: ModelClass, pk: Any) -> str:
    """The same of a row of which no more is known than its primary key, of one field."""
    return _text(key_json(key_fields(model), [pk]))


def parse_key(model: ModelClass, key: Any, lookup: str = "pk") -> Any:
    """
    The value for `filter(pk=...)` from a key's text or JSON; of a composite key a tuple.

    Raises ValueError for anything that no row's key can be.
    """
    fields = key_fields(model, lookup)
    parts = _parts(key, len(fields))
    if len(parts) != len(fields):
        raise ValueError(f"A key of {model.__name__} has {len(fields)} parts.")
    values = [_read(field, part) for field, part in zip(fields, parts, strict=True)]
    if _text(key_json(fields, values)) != _text(key):
        raise ValueError(f"{str(key)[:80]!r} is not how a key of {model.__name__} is written.")
    return tuple(values) if len(values) > 1 else values[0]


def _parts(key: Any, count: int) -> list[Any]:
    if count > 1 and isinstance(key, str):
        return [unquote(part, errors="strict") for part in key.split(",")]
    return key if count > 1 and isinstance(key, list) else [key]


def _read(field: AnyField, part: Any) -> Any:
    """One part's value, from its JSON or its text."""
    kind = _kind(field)
    if isinstance(part, str):
        if len(part) > MAX_URI_KEY_LENGTH or "\0" in part:
            raise ValueError("This key is too long, or has a NUL character.")
        if kind.schema["type"] == "integer" and INTEGER.fullmatch(part):
            return kind.read(int(part))
    return kind.read(part)


def _text(key: Any) -> str:
    return (
        ",".join(quote(str(part), safe="") for part in key) if isinstance(key, list) else str(key)
    )


def _kind(field: AnyField) -> ColumnType:
    if (kind := kind_of(field)) is None:
        raise ImproperlyConfigured(f"{field} cannot be part of a key.")
    return kind
