"""
What a field's value is to a client: its JSON, and the JSON Schema of that.

Rule: `field_value` always fits `field_schema`, whatever a row holds - also what Django does not
enforce on save (choices, lengths, formats) - and a path of the server never leaves.
"""

from __future__ import annotations

import base64
import datetime
import json
import math
import uuid
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Any

from django.core.exceptions import SuspiciousOperation
from django.db import models
from django.db.models.fields.files import FieldFile
from django.utils.duration import duration_iso_string
from django.utils.functional import Promise
from django.utils.text import capfirst

from .columns import JSON, KINDS, AnyField, from_datetime, kind_of, stored_field

FileURI = Callable[[str], str]
MOST_CHOICES = 200
ANYTHING = ["string", "number", "boolean", "object", "array", "null"]
FILE: JSON = {
    "type": ["object", "null"],
    "properties": {
        "name": {"type": "string", "description": "The file's name, without a folder."},
        "size": {"type": ["integer", "null"], "description": "Bytes; null if it is not there."},
        "uri": {"type": "string", "description": "The resource to read the file from."},
    },
    "required": ["name", "size"],
    "additionalProperties": False,
}


def is_writable(field: AnyField) -> bool:
    """Whether values of `field` can be written as JSON."""
    return kind_of(field) is not None or _special(field) is not None


def field_value(field: AnyField, value: Any) -> Any:
    """The JSON of `value`, an instance's value of `field` (also one that was not saved yet)."""
    if value is None:
        return None
    special, stored = _special(field), stored_field(field)
    if special is not None:
        return special[1](field, value)
    value = stored.to_python(value.value if isinstance(value, Enum) else value)
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return KINDS[stored.get_internal_type()].encode(_rounded(stored, value))


def field_schema(field: AnyField, nullable: bool) -> JSON:
    """The JSON Schema of `field_value`, without title and description."""
    special, kind = _special(field), kind_of(field)
    if special is not None:
        return dict(special[0])
    assert kind is not None
    schema = dict(kind.schema)
    if nullable or schema["type"] == "number":  # a float may be NaN
        schema["type"] = [schema["type"], "null"]
    return _with_choices(field, schema)


def describe(field: Any, way: Iterable[Any] = ()) -> JSON:
    """`title` and `description`, from `verbose_name`, `help_text` and the choices' labels."""
    names = [str(getattr(each, "verbose_name", each.name)) for each in (*way, field)]
    lines = [str(getattr(field, "help_text", "")), _labels(field)]
    description = " ".join(line for line in lines if line)
    title = {"title": str(capfirst(" ".join(names)))}
    return title | ({"description": description} if description else {})


def file_value(file: FieldFile, name: str, file_uri: FileURI | None) -> JSON | None:
    """A file's name, size and address; None where there is no file."""
    if not file:
        return None
    shown: JSON = {"name": basename(file.name or ""), "size": _size(file)}
    return shown | ({"uri": file_uri(name)} if file_uri else {})


def basename(path: str) -> str:
    return path.replace("\\", "/").rpartition("/")[2]


def choices_of(field: AnyField) -> list[tuple[Any, str]]:
    """The choices that a schema lists: JSON value and label. None at all of very many."""
    flat = [(value, str(label)) for value, label in getattr(field, "flatchoices", None) or []]
    pairs = [(field_value(field, value), label) for value, label in flat if value not in (None, "")]
    return pairs if len(pairs) <= MOST_CHOICES else []


def plain_value(value: Any) -> Any:
    """The JSON of what a property returned; raises TypeError for rows and other objects."""
    if isinstance(value, Enum):
        return plain_value(value.value)
    for kinds, convert in _PLAIN:
        if isinstance(value, kinds):
            return convert(value)
    raise TypeError(f"A property gave a {type(value).__name__}: give plain values.")


def _special(field: AnyField) -> tuple[JSON, Callable[[Any, Any], Any]] | None:
    return _SPECIAL.get(stored_field(field).get_internal_type())


def _rounded(field: AnyField, value: Any) -> Any:
    """A decimal with as many places as a database gives it."""
    places = getattr(field, "decimal_places", None)
    if not isinstance(value, Decimal) or places is None:
        return value
    try:
        return value.quantize(Decimal(1).scaleb(-places))
    except InvalidOperation:  # more digits than can be
        return value


def _with_choices(field: AnyField, schema: JSON) -> JSON:
    """An `enum` that is not binding: Django lets a row keep what its choices once allowed."""
    values = [value for value, _ in choices_of(field)]
    other = {"description": "What the choices once allowed."}
    return schema | {"anyOf": [{"enum": values}, other]} if values else schema


def _labels(field: Any) -> str:
    pairs = choices_of(field) if isinstance(field, models.Field) and not field.is_relation else []
    return "; ".join(f"{value}: {label}" for value, label in pairs)


def _size(file: FieldFile) -> int | None:
    try:
        return int(file.size)
    except (OSError, NotImplementedError, SuspiciousOperation):
        return None


def _binary(field: Any, value: Any) -> str:
    return base64.b64encode(bytes(value)).decode()


def _json(field: Any, value: Any) -> Any:
    # Through the field's own encoder, to what a client reads; NaN is no JSON.
    text = json.dumps(value, cls=getattr(field, "encoder", None))
    return json.loads(text, parse_constant=lambda constant: None)


def _mapping(value: Mapping[Any, Any]) -> JSON:
    return {str(key): plain_value(item) for key, item in value.items()}


def _path(field: Any, value: Any) -> str:
    return basename(str(value))


def _file(field: Any, value: Any) -> JSON | None:
    return file_value(value, field.name, None)


_BINARY: JSON = {"type": ["string", "null"], "contentEncoding": "base64"}
_SPECIAL: dict[str, tuple[JSON, Callable[[Any, Any], Any]]] = {
    "BinaryField": (_BINARY, _binary),
    "FileField": (FILE, _file),
    "FilePathField": ({"type": ["string", "null"]}, _path),
    "JSONField": ({"type": ANYTHING}, _json),
}
_PLAIN: tuple[tuple[type | tuple[type, ...], Callable[[Any], Any]], ...] = (
    ((bool, int, type(None)), lambda value: value),
    (float, lambda value: value if math.isfinite(value) else None),
    ((str, Promise, uuid.UUID), str),
    (Decimal, lambda value: format(value, "f")),
    (datetime.datetime, from_datetime),
    ((datetime.date, datetime.time), lambda value: value.isoformat()),
    (datetime.timedelta, duration_iso_string),
    ((bytes, bytearray, memoryview), lambda value: base64.b64encode(bytes(value)).decode()),
    (Mapping, _mapping),
    ((list, tuple, set, frozenset), lambda value: [plain_value(item) for item in value]),
)
