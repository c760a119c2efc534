"""
Keys: how a row is named in JSON and in the text of a URI.

Rule: a row has one spelling. `parse_key(model, key_text(row))` is the row's key, and a text that
`key_text` does not write is refused with ValueError - so no two URIs mean one row.

The parts of a composite key are joined by commas, each percent-encoded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, unquote

from django.core.exceptions import FieldError, ImproperlyConfigured
from django.db import models

from .columns import JSON, AnyField, Kind, kind_of, stored_field
from .paths import ModelClass, follow

LONGEST_KEY = 1000
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
        if len(part) > LONGEST_KEY or "\0" in part:
            raise ValueError("This key is too long, or has a NUL character.")
        if kind.schema["type"] == "integer" and INTEGER.fullmatch(part):
            return kind.read(int(part))
    return kind.read(part)


def _text(key: Any) -> str:
    return (
        ",".join(quote(str(part), safe="") for part in key) if isinstance(key, list) else str(key)
    )


def _kind(field: AnyField) -> Kind:
    if (kind := kind_of(field)) is None:
        raise ImproperlyConfigured(f"{field} cannot be part of a key.")
    return kind
