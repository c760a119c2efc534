"""
What the fields of a form take, as JSON: one row of a table per type.

Rule: a value is handed to the field as what the field itself makes of a page's
text - a date as a date, in no locale's order - and the field alone judges it.
What JSON of another type cannot mean is refused before, in words.
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
from .fields.columns import DECIMAL_ARGUMENT_PATTERN, KINDS, as_number, typed
from .schemas import violations

JSON = dict[str, Any]
MAX_LIST_VALUES = 1000  # in one list
MAX_FILE_NAME_LENGTH = 255  # of a file
WORDS = {str: "string", int: "integer", float: "number", bool: "boolean"}
LIMITS = {
    "min_length": "minLength", "max_length": "maxLength",
    "min_value": "minimum", "max_value": "maximum",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class FormFieldType:
    """A type of field: ``word`` names its values, ``nullable`` says that null is none of them."""

    word: str
    schema: JSON
    decode: Callable[[Any], Any]
    encode: Callable[[Any], Any]
    nullable: bool = True

    def read(self, value: Any) -> Any:
        """What the field is to clean. Raises ``ValidationError``."""
        if value is None or value == "":
            return None
        try:
            return self.decode(value)
        except (ValueError, TypeError, ArithmeticError) as error:
            shown = repr(value) if isinstance(value, str | int | float) else "This"
            raise ValidationError(f"{shown[:80]} is not {self.word}.", code="invalid") from error


# Reading.


def _local(value: Any) -> datetime:
    """A moment as a form has it: in the current time zone."""
    moment: datetime = KINDS["DateTimeField"].decode(value)
    return timezone.localtime(moment) if timezone.is_aware(moment) else moment


def _integer(value: Any) -> Any:
    """JSON has one kind of number: 5.0 is an integer."""
    whole = isinstance(value, float) and value.is_integer()
    return KINDS["IntegerField"].decode(int(value) if whole else value)


def _json_text(value: Any) -> str:
    return json.dumps(value, allow_nan=False)


def _one_choice(value: Any) -> Any:
    return typed(value, str, int, float, bool)


def _choices(value: Any) -> list[Any]:
    listed = typed(value, list)
    if len(listed) > MAX_LIST_VALUES:
        raise ValidationError(
            f"There are at most {MAX_LIST_VALUES} values at once.", code="too_many"
        )
    return [_one_choice(one) for one in listed]


def upload(value: Any) -> SimpleUploadedFile:
    """An upload of ``{"name", "data"}``; a path is no name."""
    if typed(value, dict).keys() != {"name", "data"}:
        raise ValueError("not a file")
    name, data = typed(value["name"], str), typed(value["data"], str)
    if not _is_file_name(name):
        raise ValidationError("The name of a file is no path.", code="invalid")
    content = base64.b64decode(data, validate=True)
    if len(content) > settings.RESULT_SIZE:
        words = f"A file has at most {settings.RESULT_SIZE:,} bytes."
        raise ValidationError(words, code="too_large")
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    return SimpleUploadedFile(name, content, kind)


def _is_file_name(name: str) -> bool:
    plain = name.isprintable() and not {"/", "\\"} & set(name)
    return plain and name not in ("", ".", "..") and len(name) <= MAX_FILE_NAME_LENGTH


# Writing.


def _plain(value: Any) -> Any:
    """A choice's value, as JSON."""
    value = value.value if isinstance(value, Enum) else value
    return value if type(value) in (str, int, float, bool) else str(value)


def _unwritten(value: Any) -> Any:
    raise TypeError("This is not shown.")


def _of_column(name: str, **changed: Any) -> FormFieldType:
    """The kind of a model's column, which says how its values are written in JSON."""
    column = KINDS[name]
    own: dict[str, Any] = {
        "word": column.word, "schema": column.schema,
        "decode": column.decode, "encode": column.encode,
    }  # fmt: skip
    return FormFieldType(**(own | changed))


def _formatted(word: str) -> FormFieldType:
    """A text with a format that clients know."""
    return _of_column("TextField", schema={"type": "string", "format": word})


TEXT = _of_column("TextField", nullable=False)
MOMENT = _of_column("DateTimeField", decode=_local)
BOOLEAN = _of_column("BooleanField", nullable=False)
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

# Of a field that is of several types, the first counts.
FIELDS: tuple[tuple[type[forms.Field], FormFieldType], ...] = (
    (forms.FileField, FormFieldType("a file", FILE_SCHEMA, upload, _unwritten)),
    (forms.JSONField, FormFieldType("JSON", {}, _json_text, lambda value: value)),
    (forms.NullBooleanField, _of_column("BooleanField")),
    (forms.BooleanField, BOOLEAN),
    (forms.FloatField, _of_column("FloatField")),
    (forms.DecimalField, _of_column("DecimalField", schema=DECIMALS)),
    (forms.IntegerField, _of_column("IntegerField", decode=_integer)),
    (forms.DateTimeField, MOMENT),
    (forms.SplitDateTimeField, MOMENT),
    (forms.DateField, _of_column("DateField")),
    (
        forms.TimeField,
        _of_column("TimeField", schema={"type": "string", "description": "HH:MM or HH:MM:SS"}),
    ),
    (
        forms.DurationField,
        _of_column("DurationField", schema={"type": "string", "format": "duration"}),
    ),
    (forms.UUIDField, _of_column("UUIDField")),
    (forms.EmailField, _formatted("email")),
    (forms.URLField, _formatted("uri")),
    (forms.MultipleChoiceField, CHOICES),
    (forms.ChoiceField, CHOICE),
)


def kind_of(field: forms.Field) -> FormFieldType:
    """What ``field`` takes; text, where nothing better is known."""
    if isinstance(field, forms.MultiValueField) and not isinstance(field, forms.SplitDateTimeField):
        return _parts(field)
    return next((kind for known, kind in FIELDS if isinstance(field, known)), TEXT)


def _parts(field: forms.MultiValueField) -> FormFieldType:
    """A list with the value of each field that ``field`` is made of."""
    kinds = [kind_of(part) for part in field.fields]
    items = [
        schema_of(part, kind, required=part.required or field.require_all_fields)
        for part, kind in zip(field.fields, kinds, strict=True)
    ]

    def decode(value: Any) -> list[Any]:
        return [kind.read(one) for kind, one in zip(kinds, typed(value, list), strict=True)]

    count = len(kinds)
    schema = {"type": "array", "prefixItems": items, "minItems": count, "maxItems": count}
    return FormFieldType(f"a list of {count} values", schema, decode, _unwritten)


class ValueWidget(forms.Widget):
    """Stands for a field's own widget, and gives what a caller said in the place of a page."""

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
        """The value. Raises ``ValidationError``, which the form takes as its field's."""
        if self._wrong is not None:
            raise self._wrong
        return self._value

    def value_omitted_from_data(self, data: Any, files: Any, name: str) -> bool:
        return False


def given(field: forms.Field, value: Any) -> ValueWidget:
    """The widget that gives ``field`` what it makes of JSON."""
    return ValueWidget(field.widget, lambda: _cleanable(field, value))


def _cleanable(field: forms.Field, value: Any) -> Any:
    """What ``field`` cleans: of a field with several widgets, the value for each."""
    read = kind_of(field).read(value)
    if isinstance(field, forms.MultiValueField) and not isinstance(read, list):
        return field.widget.decompress(read)
    return read


def as_posted(values: Mapping[str, Any]) -> MultiValueDict[str, Any]:
    """Values under their names on a page, for code of a form's own that looks at its data."""
    listed = {name: value if isinstance(value, list) else [value] for name, value in values.items()}
    return MultiValueDict(listed)


# Schemas.


def is_required(field: forms.Field) -> bool:
    """Whether ``field`` takes no nothing."""
    return field.required and not isinstance(field, forms.NullBooleanField)


def schema_of(field: forms.Field, kind: FormFieldType, *, required: bool) -> JSON:
    """The JSON Schema of what ``field`` takes, without its words."""
    schema = kind.schema | limits(field) | _choosing(field)
    if required and kind is BOOLEAN:
        schema |= {"const": True}  # a box that must be ticked
    if kind.nullable and not required and schema:
        return {"anyOf": [schema, {"type": "null"}]}
    return schema


def limits(field: forms.Field) -> JSON:
    """How long or how large a value may be, as a schema says it."""
    if isinstance(field, forms.FileField):
        return {}  # its length is that of a name
    found = ((key, getattr(field, limit, None)) for limit, key in LIMITS.items())
    return {key: _limit(value) for key, value in found if _is_number(value)}


def _limit(value: Any) -> Any:
    return as_number(value) if isinstance(value, Decimal) else value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _choosing(field: forms.Field) -> JSON:
    """The values to choose from, or that they are texts where nobody can tell."""
    if not _chooses(field):
        return {}
    values = [value for value, _ in choices_of(field)]
    kinds = {type(value) for value in values}
    one: JSON = {"type": WORDS[kinds.pop()]} if len(kinds) == 1 else {}
    one = one | {"enum": values} if values else {"type": "string"}
    return {"items": one} if isinstance(field, forms.MultipleChoiceField) else one


def choices_of(field: forms.Field) -> list[tuple[Any, str]]:
    """The choices that a schema lists, with labels: none that a function gives, or rows are."""
    listed = getattr(field, "choices", ()) if _chooses(field) else ()
    if isinstance(listed, CallableChoiceIterator):
        return []
    return [(_plain(value), str(label)) for value, label in flat(listed)]


def flat(listed: Any) -> Iterator[tuple[Any, Any]]:
    """The choices that mean something, out of their groups."""
    for value, label in listed:
        if isinstance(label, list | tuple):
            yield from flat(label)
        elif value not in ("", None):
            yield value, label


def default_of(field: forms.Field, kind: FormFieldType, schema: JSON, initial: Any) -> JSON:
    """``initial`` as the schema's default, where JSON has it and it is the same for everybody."""
    if initial in (None, "") or callable(initial) or isinstance(field, forms.ModelChoiceField):
        return {}
    try:
        value = kind.encode(initial if _chooses(field) else field.to_python(initial))
        fits = not violations(schema, value, formats=False)
    except (ValueError, TypeError, ArithmeticError, AttributeError, ValidationError):
        return {}
    return {"default": value} if fits else {}


def _chooses(field: forms.Field) -> bool:
    """Whether the values are choices that the form lists."""
    return isinstance(field, forms.ChoiceField) and not isinstance(field, forms.ModelChoiceField)
