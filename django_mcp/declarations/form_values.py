"""Values of form fields as JSON: one ``FormFieldType`` for each type of field.

A value is passed to the field as the Python object that the field would make of a browser's text: a
date as a ``date``, in no locale's format. The field then validates it. JSON of a type that the
field cannot have is rejected before, with an error message.
"""

from __future__ import annotations

import base64
import json
import mimetypes
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.core.files.uploadedfile import SimpleUploadedFile
from django.utils import timezone
from django.utils.choices import CallableChoiceIterator
from django.utils.datastructures import MultiValueDict

from ..conf import settings
from .fields.columns import COLUMN_TYPES, DECIMAL_ARGUMENT_PATTERN, as_number, require_type
from .schemas import violations

JSON = dict[str, Any]
MAX_LIST_VALUES = 1000
MAX_FILE_NAME_LENGTH = 255  # characters
JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}
LIMITS = {
    "min_length": "minLength", "max_length": "maxLength",
    "min_value": "minimum", "max_value": "maximum",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class FormFieldType:
    """One type of form field.

    ``label`` describes its values in error messages. ``nullable`` says that the field's schema
    accepts null if the field is optional.
    """

    label: str
    schema: JSON
    decode: Callable[[Any], Any]
    encode: Callable[[Any], Any]
    nullable: bool = True

    def read(self, value: Any) -> Any:
        """Return the value that the field cleans. Raise ``ValidationError``."""
        if value is None or value == "":
            return None
        try:
            return self.decode(value)
        except (ValueError, TypeError, ArithmeticError) as error:
            shown = repr(value) if isinstance(value, str | int | float) else "This"
            raise ValidationError(f"{shown[:80]} is not {self.label}.", code="invalid") from error


# Reading.


def _local(value: Any) -> datetime:
    """Return a datetime as forms have it: in the current time zone."""
    moment: datetime = COLUMN_TYPES["DateTimeField"].decode(value)
    return timezone.localtime(moment) if timezone.is_aware(moment) else moment


def _integer(value: Any) -> Any:
    """Return an integer. JSON has one type of number, so 5.0 is an integer too."""
    whole = isinstance(value, float) and value.is_integer()
    return COLUMN_TYPES["IntegerField"].decode(int(value) if whole else value)


def _json_text(value: Any) -> str:
    return json.dumps(value, allow_nan=False)


def _one_choice(value: Any) -> Any:
    return require_type(value, str, int, float, bool)


def _choices(value: Any) -> list[Any]:
    listed = require_type(value, list)
    if len(listed) > MAX_LIST_VALUES:
        raise ValidationError(f"At most {MAX_LIST_VALUES} values are allowed.", code="too_many")
    return [_one_choice(one) for one in listed]


def upload(value: Any) -> SimpleUploadedFile:
    """Return an uploaded file from ``{"name", "data"}``. The name must not be a path."""
    if require_type(value, dict).keys() != {"name", "data"}:
        raise ValueError("not a file")
    name, data = require_type(value["name"], str), require_type(value["data"], str)
    if not _is_file_name(name):
        raise ValidationError("The name of a file must not be a path.", code="invalid")
    content = base64.b64decode(data, validate=True)
    if len(content) > settings.RESULT_SIZE:
        message = f"A file must have at most {settings.RESULT_SIZE:,} bytes."
        raise ValidationError(message, code="too_large")
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    return SimpleUploadedFile(name, content, kind)


def _is_file_name(name: str) -> bool:
    plain = name.isprintable() and not {"/", "\\"} & set(name)
    return plain and name not in ("", ".", "..") and len(name) <= MAX_FILE_NAME_LENGTH


# Writing.


def _plain(value: Any) -> Any:
    """Return the value of a choice as JSON."""
    value = value.value if isinstance(value, Enum) else value
    return value if type(value) in (str, int, float, bool) else str(value)


def _never_written(value: Any) -> Any:
    raise TypeError("Values of this field are never written.")


def _column_field_type(name: str, **changed: Any) -> FormFieldType:
    """Return the type of a field that has the same JSON as a model's column type."""
    column = COLUMN_TYPES[name]
    own: dict[str, Any] = {
        "label": column.label, "schema": column.schema,
        "decode": column.decode, "encode": column.encode,
    }  # fmt: skip
    return FormFieldType(**(own | changed))


def _formatted(word: str) -> FormFieldType:
    """Return the type of a text field with a JSON Schema format."""
    return _column_field_type("TextField", schema={"type": "string", "format": word})


TEXT = _column_field_type("TextField", nullable=False)
MOMENT = _column_field_type("DateTimeField", decode=_local)
BOOLEAN = _column_field_type("BooleanField", nullable=False)
DECIMALS = {"anyOf": [{"type": "number"}, {"type": "string", "pattern": DECIMAL_ARGUMENT_PATTERN}]}
FILE_SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": MAX_FILE_NAME_LENGTH},
        "data": {"type": "string", "contentEncoding": "base64"},
    },
    "required": ["name", "data"],
    "additionalProperties": False,
}
CHOICE = FormFieldType("one of the choices", {}, _one_choice, _plain)
CHOICES = FormFieldType(
    "a list of choices",
    {"type": "array", "maxItems": MAX_LIST_VALUES},
    _choices,
    lambda values: [_plain(value) for value in values],
    nullable=False,
)

# The first match counts, so subclasses come before their base classes.
FIELDS: tuple[tuple[type[forms.Field], FormFieldType], ...] = (
    (forms.FileField, FormFieldType("a file", FILE_SCHEMA, upload, _never_written)),
    (forms.JSONField, FormFieldType("JSON", {}, _json_text, lambda value: value)),
    (forms.NullBooleanField, _column_field_type("BooleanField")),
    (forms.BooleanField, BOOLEAN),
    (forms.FloatField, _column_field_type("FloatField")),
    (forms.DecimalField, _column_field_type("DecimalField", schema=DECIMALS)),
    (forms.IntegerField, _column_field_type("IntegerField", decode=_integer)),
    (forms.DateTimeField, MOMENT),
    (forms.SplitDateTimeField, MOMENT),
    (forms.DateField, _column_field_type("DateField")),
    (
        forms.TimeField,
        _column_field_type(
            "TimeField", schema={"type": "string", "description": "HH:MM or HH:MM:SS"}
        ),
    ),
    (
        forms.DurationField,
        _column_field_type("DurationField", schema={"type": "string", "format": "duration"}),
    ),
    (forms.UUIDField, _column_field_type("UUIDField")),
    (forms.EmailField, _formatted("email")),
    (forms.URLField, _formatted("uri")),
    (forms.MultipleChoiceField, CHOICES),
    (forms.ChoiceField, CHOICE),
)


def form_field_type(field: forms.Field) -> FormFieldType:
    """Return the type of ``field``. Unknown fields are text."""
    if isinstance(field, forms.MultiValueField) and not isinstance(field, forms.SplitDateTimeField):
        return _multi_value_type(field)
    return next((kind for known, kind in FIELDS if isinstance(field, known)), TEXT)


def _multi_value_type(field: forms.MultiValueField) -> FormFieldType:
    """Return the type of a ``MultiValueField``: a list with the value of each of its fields."""
    kinds = [form_field_type(part) for part in field.fields]
    items = [
        schema_of(part, kind, required=part.required or field.require_all_fields)
        for part, kind in zip(field.fields, kinds, strict=True)
    ]

    def decode(value: Any) -> list[Any]:
        return [kind.read(one) for kind, one in zip(kinds, require_type(value, list), strict=True)]

    count = len(kinds)
    schema = {"type": "array", "prefixItems": items, "minItems": count, "maxItems": count}
    return FormFieldType(f"a list of {count} values", schema, decode, _never_written)


class ValueWidget(forms.Widget):
    """A widget that replaces a field's own and returns a given value instead of a browser's."""

    def __init__(self, replaced: forms.Widget, read: Callable[[], Any]) -> None:
        super().__init__()
        if hasattr(replaced, "decompress"):
            self.decompress = replaced.decompress
        self._value: Any = None
        self._wrong: ValidationError | None = None
        try:
            self._value = read()
        except ValidationError as error:
            self._wrong = error

    def value_from_datadict(self, data: Any, files: Any, name: str) -> Any:
        """Return the value. Raise ``ValidationError``, which the form reports for its field."""
        if self._wrong is not None:
            raise self._wrong
        return self._value

    def value_omitted_from_data(self, data: Any, files: Any, name: str) -> bool:
        return False


def json_widget(field: forms.Field, value: Any) -> ValueWidget:
    """Return the widget that passes JSON to ``field``."""
    return ValueWidget(field.widget, lambda: _value_to_clean(field, value))


def _value_to_clean(field: forms.Field, value: Any) -> Any:
    """Return the value that ``field`` cleans: a list for a field with several widgets."""
    read = form_field_type(field).read(value)
    if isinstance(field, forms.MultiValueField) and not isinstance(read, list):
        return field.widget.decompress(read)
    return read


def as_posted(values: Mapping[str, Any]) -> MultiValueDict[str, Any]:
    """Return the values like a browser's POST data, for forms that read ``self.data``."""
    listed = {name: value if isinstance(value, list) else [value] for name, value in values.items()}
    return MultiValueDict(listed)


# Schemas.


def is_required(field: forms.Field) -> bool:
    """Whether ``field`` does not accept null."""
    return field.required and not isinstance(field, forms.NullBooleanField)


def schema_of(field: forms.Field, kind: FormFieldType, *, required: bool) -> JSON:
    """Return the JSON Schema of the values of ``field``, without title and description."""
    schema = kind.schema | limits(field) | _choice_schema(field)
    if required and kind is BOOLEAN:
        schema |= {"const": True}  # a required checkbox must be checked
    if kind.nullable and not required and schema:
        return {"anyOf": [schema, {"type": "null"}]}
    return schema


def limits(field: forms.Field) -> JSON:
    """Return the limits of length and size, as JSON Schema keywords."""
    if isinstance(field, forms.FileField):
        return {}  # `max_length` of a file field limits the length of the file's name
    found = ((key, getattr(field, limit, None)) for limit, key in LIMITS.items())
    return {key: _limit(value) for key, value in found if _is_number(value)}


def _limit(value: Any) -> Any:
    return as_number(value) if isinstance(value, Decimal) else value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _choice_schema(field: forms.Field) -> JSON:
    """Return the schema of the choices. They are strings if they are not known."""
    if not _has_listed_choices(field):
        return {}
    values = [value for value, _ in form_choices(field)]
    kinds = {type(value) for value in values}
    one: JSON = {"type": JSON_TYPES[kinds.pop()]} if len(kinds) == 1 else {}
    one = one | {"enum": values} if values else {"type": "string"}
    return {"items": one} if isinstance(field, forms.MultipleChoiceField) else one


def form_choices(field: forms.Field) -> list[tuple[Any, str]]:
    """Return the choices that a schema lists, with labels.

    Choices that are rows, or that a function returns, are left out: they may differ for each user.
    """
    listed = getattr(field, "choices", ()) if _has_listed_choices(field) else ()
    # django-filter wraps the choices of a function in an iterator of its own.
    inner = getattr(listed, "choices", listed)
    is_function = callable(inner) and not isinstance(inner, type)  # a class is an enum
    if is_function or isinstance(inner, CallableChoiceIterator):
        return []
    return [(_plain(value), str(label)) for value, label in flat_choices(listed)]


def flat_choices(listed: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the choices of all groups, without the empty choice."""
    for value, label in listed:
        if isinstance(label, list | tuple):
            yield from flat_choices(label)
        elif value not in ("", None):
            yield value, label


def default_of(field: forms.Field, kind: FormFieldType, schema: JSON, initial: Any) -> JSON:
    """Return ``initial`` as the schema's default, if it has JSON and is the same for every user."""
    if initial in (None, "") or callable(initial) or isinstance(field, forms.ModelChoiceField):
        return {}
    try:
        value = kind.encode(initial if _has_listed_choices(field) else field.to_python(initial))
        fits = not violations(schema, value, formats=False)
    except (ValueError, TypeError, ArithmeticError, AttributeError, ValidationError):
        return {}
    return {"default": value} if fits else {}


def _has_listed_choices(field: forms.Field) -> bool:
    """Whether the values are choices that the form lists."""
    return isinstance(field, forms.ChoiceField) and not isinstance(field, forms.ModelChoiceField)
