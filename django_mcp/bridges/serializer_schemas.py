"""
REST framework serializers as JSON Schemas: what a client may send, and what it receives.

``SerializerInput`` is as strict as the serializer, so that most mistakes are found before the view
runs. ``output_schema`` states only what REST framework itself guarantees, because a view may return
any data: no property is required, each may be null, and a field that overrides
``to_representation`` may have any type.

Nothing here looks up rows: a field for related rows takes keys, and its choices are not listed.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from django.core import validators
from django.core.exceptions import FieldDoesNotExist
from django.db import models
from rest_framework import relations, serializers
from rest_framework.fields import empty
from rest_framework.settings import ISO_8601, api_settings

from ..declarations.arguments import SAFE_INTEGER
from ..declarations.elicitation_forms import asks_secret
from ..declarations.fields.columns import COLUMN_TYPES, DECIMAL_ARGUMENT_PATTERN, as_number
from ..declarations.fields.keys import key_schema
from ..declarations.form_values import FILE_SCHEMA, JSON_TYPES
from ..declarations.schemas import object_schema
from .form_input import BARE_KEY, MAX_CHOICES
from .views.urls import PYTHONIC

JSON = dict[str, Any]
ANY_TYPES = ["string", "number", "boolean", "object", "array", "null"]
MAX_SERIALIZER_DEPTH = 6  # of nested serializers, which may contain themselves
LIBRARY = "rest_framework"
LIMITS: dict[type[validators.BaseValidator], str] = {
    validators.MinValueValidator: "minimum",
    validators.MaxValueValidator: "maximum",
    validators.MinLengthValidator: "minLength",
    validators.MaxLengthValidator: "maxLength",
}


def anything() -> JSON:
    """Return the schema of any JSON value. It names all types: some clients require a type."""
    return {"type": list(ANY_TYPES)}


class SerializerInput:
    """The writable fields of a serializer as the properties of an object.

    With ``partial``, no field is required and no field has a default. With ``takes_files``, a file
    is an object with its name and its content in base64. Without it, ``files`` are the names of
    required file fields, and all file fields are left out. ``secrets`` are the names of fields that
    look like credentials.
    """

    def __init__(
        self,
        serializer: serializers.Serializer,
        *,
        partial: bool = False,
        takes_files: bool = False,
    ) -> None:
        self._partial, self._takes_files = partial, takes_files
        self.files: list[str] = []
        self.secrets: list[str] = []
        self.schema = self._object(serializer, 0)

    def _object(self, serializer: serializers.Serializer, depth: int) -> JSON:
        if depth > MAX_SERIALIZER_DEPTH:
            return {"type": "object"}
        fields = dict(self._writable(serializer))
        properties = {name: self._property(one, depth) for name, one in fields.items()}
        required = [name for name, one in fields.items() if one.required and not self._partial]
        return object_schema(properties, required)

    def _writable(self, serializer: serializers.Serializer) -> Iterator[tuple[str, Any]]:
        for name, field in serializer.fields.items():
            if field.read_only or isinstance(field, serializers.HiddenField):
                continue
            if _is_file(field) and not self._takes_files:
                if field.required and not self._partial:
                    self.files.append(name)
                continue
            yield name, field

    def _property(self, field: Any, depth: int) -> JSON:
        found = self._value(field, depth) | _described(field) | _secrecy(field)
        if asks_secret(field.field_name or "", found):
            self.secrets.append(field.field_name)
        default = {} if self._partial else _default(field)
        return (_or_null(found) if field.allow_null else found) | default

    def _value(self, field: Any, depth: int) -> JSON:
        """Return the schema of a value that is not null, with its limits."""
        if (stated := annotated_schema(field, lambda one: self._value(one, depth))) is not None:
            return stated
        if isinstance(field, serializers.BaseSerializer):
            return self._nested(field, depth)
        if self._takes_files and _is_file(field):
            return dict(FILE_SCHEMA)
        items = _items(field)
        if items is not None:
            size = _limits(field)
            limits = {
                f"{key[:3]}Items": size[key] for key in ("minLength", "maxLength") if key in size
            }
            if not getattr(field, "allow_empty", True):
                limits = {"minItems": 1} | limits
            return {"type": "array", "items": self._item(items, depth)} | limits
        if isinstance(field, serializers.DictField):
            return {"type": "object", "additionalProperties": self._item(field.child, depth)}
        found = _scalar(field) | _limits(field)
        # A client clears the field by "", which these keywords would not accept.
        unfit = ("pattern", "format", "minLength") if getattr(field, "allow_blank", False) else ()
        return {key: value for key, value in found.items() if key not in unfit}

    def _item(self, field: Any, depth: int) -> JSON:
        """Return the schema of each value in a list or dict."""
        found = self._value(field, depth) | _secrecy(field)
        return _or_null(found) if field.allow_null else found

    def _nested(self, serializer: Any, depth: int) -> JSON:
        if isinstance(serializer, serializers.ListSerializer):
            least = {} if serializer.allow_empty else {"minItems": 1}
            return {"type": "array", "items": self._value(serializer.child, depth)} | least
        if not isinstance(serializer, serializers.Serializer) or _is_overridden(
            serializer, "to_internal_value"
        ):
            return anything()
        return self._object(serializer, depth + 1)


def output_schema(serializer: Any, depth: int = 0) -> JSON:
    """Return the schema of what a serializer writes."""
    if isinstance(serializer, serializers.ListSerializer):
        return {"type": "array", "items": output_schema(serializer.child, depth)}
    if _is_overridden(serializer, "to_representation"):
        return anything() if depth else {"type": "object"}
    if not isinstance(serializer, serializers.Serializer) or depth > MAX_SERIALIZER_DEPTH:
        return anything()
    shown = {name: one for name, one in serializer.fields.items() if not one.write_only}
    return {
        "type": "object",
        "properties": {name: _shown(one, depth) for name, one in shown.items()},
    }


def _shown(field: Any, depth: int) -> JSON:
    found = annotated_schema(field, lambda one: _shown_value(one, depth))
    return _or_null(_shown_value(field, depth) if found is None else found) | _described(
        field, written=True
    )


def _shown_value(field: Any, depth: int) -> JSON:
    if isinstance(field, serializers.BaseSerializer):
        return output_schema(field, depth + 1)
    if isinstance(field, serializers.SerializerMethodField):
        return _returned(getattr(field.parent, field.method_name or "", None))
    if _is_overridden(field, "to_representation"):
        return anything()
    if (items := _items(field)) is not None:
        return {"type": "array", "items": _or_null(_shown_value(items, depth))}
    if isinstance(field, serializers.DictField):
        return {"type": "object"}
    if isinstance(field, serializers.FileField):
        return {"type": "string"}
    if isinstance(field, serializers.DecimalField):
        coerces = getattr(field, "coerce_to_string", api_settings.COERCE_DECIMAL_TO_STRING)
        return {"type": "string" if coerces else "number"}
    if isinstance(field, serializers.UUIDField):
        return {"type": "integer" if field.uuid_format == "int" else "string"}
    # A BigIntegerField, which older versions of REST framework do not have.
    if isinstance(field, serializers.IntegerField) and _coerces_integers(field):
        return {"type": "string"}
    # No limits, formats and choices: rows may be older than they are.
    kinds = _scalar(field).get("type") or list(ANY_TYPES)
    return {"type": kinds}


def _secrecy(field: Any) -> JSON:
    """Return the mark of a value that must not be stored, such as in the audit log."""
    is_secret = field.write_only or field.style.get("input_type") == "password"
    return {"writeOnly": True} if is_secret else {}


def _coerces_integers(field: Any) -> bool:
    is_big = type(field).__name__ == "BigIntegerField" or hasattr(field, "coerce_to_string")
    coerces = getattr(api_settings, "COERCE_BIGINT_TO_STRING", False) if is_big else False
    return bool(getattr(field, "coerce_to_string", coerces))


def _returned(method: Callable[..., Any] | None) -> JSON:
    """Return the schema of a method's result: that of its annotation, if it is a plain type."""
    if method is None:
        return anything()
    if (stated := annotated_schema(method, lambda one: _shown_value(one, 1))) is not None:
        return stated
    try:
        returned = typing.get_type_hints(method).get("return")
    except Exception:  # an annotation may name anything
        return anything()
    parts = [one for one in typing.get_args(returned) or (returned,) if one is not type(None)]
    kinds = {str: "string", int: "integer", float: "number", bool: "boolean"}
    return {"type": kinds[parts[0]]} if len(parts) == 1 and parts[0] in kinds else anything()


# Types.


def _scalar(field: Any) -> JSON:
    """Return the schema of a field that is neither a list nor an object."""
    if isinstance(field, serializers.ChoiceField):
        return _choices(field)
    if isinstance(field, relations.RelatedField):
        return _related(field)
    if isinstance(field, serializers.ModelField):
        return _column(field.model_field)
    found = next((dict(schema) for kind, schema in SCALARS if isinstance(field, kind)), anything())
    return found if _reads_iso(field) else {"type": "string"}


# The first match counts, so subclasses come before their base classes.
SCALARS: tuple[tuple[type[Any], JSON], ...] = (
    (serializers.BooleanField, {"type": "boolean"}),
    (serializers.EmailField, {"type": "string", "format": "email"}),
    (serializers.URLField, {"type": "string", "format": "uri"}),
    (serializers.CharField, {"type": "string"}),
    (serializers.UUIDField, {"type": "string", "format": "uuid"}),
    (serializers.IntegerField, {"type": "integer"}),
    (serializers.FloatField, {"type": "number"}),
    (
        serializers.DecimalField,
        {"type": ["string", "number"], "pattern": DECIMAL_ARGUMENT_PATTERN},
    ),
    (serializers.DateTimeField, {"type": "string", "format": "date-time"}),
    (serializers.DateField, {"type": "string", "format": "date"}),
    (serializers.TimeField, {"type": "string"}),
    (serializers.DurationField, {"type": "string"}),
    (serializers.FileField, {"type": "string"}),
)
# Descriptions of texts that have a format, by the type of the field.
FORMATS: tuple[tuple[type[Any], str], ...] = (
    (serializers.TimeField, "HH:MM or HH:MM:SS."),
    (serializers.DurationField, "[days] HH:MM:SS."),
)


def _choices(field: serializers.ChoiceField) -> JSON:
    # A FilePathField lists paths of the server, and its choices depend on the server's files.
    if isinstance(field, serializers.FilePathField):
        return {"type": "string"}
    values = [_plain(value) for value in field.choices]
    # Without a user there may be no choices: then the view alone knows which ones there are.
    if not values:
        return dict(BARE_KEY)
    if field.allow_blank and "" not in values:
        values.append("")
    kinds = list(dict.fromkeys(JSON_TYPES[type(value)] for value in values))
    return {"type": kinds[0] if len(kinds) == 1 else kinds, "enum": values}


def _plain(value: Any) -> Any:
    value = getattr(value, "value", value)  # an enum
    return value if type(value) in JSON_TYPES else str(value)


def _related(field: Any) -> JSON:
    """Return the schema of a key of another row. Its rows are not listed."""
    model = _related_model(field)
    if isinstance(field, serializers.PrimaryKeyRelatedField):
        if field.pk_field is not None:
            return _scalar(field.pk_field)
        return dict(BARE_KEY) if model is None else model_key(model)
    if isinstance(field, serializers.SlugRelatedField) and model is not None:
        try:
            return _column(model._meta.get_field(field.slug_field))
        except FieldDoesNotExist:  # a path over relations, or a property
            return anything()
    if isinstance(field, serializers.HyperlinkedRelatedField | serializers.StringRelatedField):
        return {"type": "string"}
    return dict(BARE_KEY) if isinstance(field, serializers.SlugRelatedField) else anything()


def _related_model(field: Any) -> type[models.Model] | None:
    """Return the model of the rows that a field refers to, or None if it is not known."""
    if (queryset := getattr(field, "queryset", None)) is not None:
        return queryset.model  # type: ignore[no-any-return]
    many = isinstance(field.parent, serializers.ManyRelatedField)
    holder = field.parent if many else field
    try:
        model = holder.parent.Meta.model
        for name in holder.source.split("."):
            model = model._meta.get_field(name).related_model
    except (AttributeError, FieldDoesNotExist):
        return None
    return model if isinstance(model, type) else None


def model_key(model: type[models.Model], lookup: str = "pk") -> JSON:
    """Return the schema of the field that identifies a row."""
    try:
        found = key_schema(model, lookup)
    except Exception:  # a path over relations, or a type that is not a key elsewhere
        return dict(BARE_KEY)
    return found if isinstance(found.get("type"), str) and found["type"] != "array" else BARE_KEY


def _column(column: Any) -> JSON:
    kind = COLUMN_TYPES.get(getattr(column, "get_internal_type", str)())
    return {"type": kind.schema["type"]} if kind and "type" in kind.schema else anything()


# Parts of a schema.


def _items(field: Any) -> Any:
    """Return the field of each value of a list, or None if the field is no list."""
    if isinstance(field, serializers.ManyRelatedField):
        return field.child_relation
    if isinstance(field, serializers.MultipleChoiceField):
        return serializers.ChoiceField(choices=field.choices)
    return field.child if isinstance(field, serializers.ListField) else None


def _limits(field: Any) -> JSON:
    """Return the limits and patterns of the field's validators."""
    found: JSON = {}
    for one in getattr(field, "validators", ()):
        key = next((key for kind, key in LIMITS.items() if isinstance(one, kind)), None)
        if key is not None and type(one) in LIMITS:
            limit = one.limit_value
            # Not the limits of a big column, which clients would read inexactly. Not what a
            # function returns, because it may be another limit at the time of a call.
            if _is_number(limit) and abs(limit) <= SAFE_INTEGER:
                found[key] = as_number(limit) if not isinstance(limit, int | float) else limit
        elif isinstance(one, validators.RegexValidator) and not (one.inverse_match or one.flags):
            regex: Any = one.regex
            pattern = str(regex.pattern).replace(r"\Z", "$")
            if "format" not in _scalar(field) and not PYTHONIC.search(pattern):
                found["pattern"] = pattern
    if isinstance(field, serializers.CharField) and not field.allow_blank:
        found["minLength"] = max(found.get("minLength", 1), 1)
    return found


def _is_number(value: Any) -> bool:
    return hasattr(value, "__float__") and not isinstance(value, bool)


def _described(field: Any, *, written: bool = False) -> JSON:
    """Return title and description: the label, the help text and the labels of choices.

    If the value is not ``written`` but read, the description also has its format.
    """
    name = field.field_name or ""
    label = str(field.label or "")
    title = {"title": label} if label.lower() not in ("", name.replace("_", " ").lower()) else {}
    format_words = "" if written else _format_words(field)
    texts = [str(field.help_text or ""), format_words, _choice_labels(field)]
    words = " ".join(text for text in texts if text)
    return title | ({"description": words} if words else {})


def _format_words(field: Any) -> str:
    """Return the format of a text, if its schema does not contain it."""
    if _reads_iso(field):
        return next((words for kind, words in FORMATS if isinstance(field, kind)), "")
    return f"Format: {', '.join(field.input_formats)}."


def _reads_iso(field: Any) -> bool:
    """Whether a field for dates or times reads ISO 8601. True for other fields."""
    accepted = getattr(field, "input_formats", None)
    return not accepted or ISO_8601 in accepted


def _choice_labels(field: Any) -> str:
    if not isinstance(field, serializers.ChoiceField) or isinstance(
        field, serializers.FilePathField
    ):
        return ""
    if len(field.choices) > MAX_CHOICES:
        return ""
    choices = ((str(_plain(value)), str(label)) for value, label in field.choices.items())
    return "; ".join(f"{value}: {label}" for value, label in choices if value != label)


def _default(field: Any) -> JSON:
    """Return the field's default if it is the same for every request and has JSON."""
    value = field.default
    if value is empty or value is None or callable(value):
        return {}
    return {"default": value} if type(value) in (str, int, float, bool) else {}


def _or_null(schema: JSON) -> JSON:
    kinds = schema.get("type")
    listed: list[str] = kinds if isinstance(kinds, list) else [kinds] if kinds else []
    if not listed:
        return {"anyOf": [schema, {"type": "null"}]}
    choices = {"enum": [*schema["enum"], None]} if "enum" in schema else {}
    return schema | {"type": [*dict.fromkeys([*listed, "null"])]} | choices


def _is_file(field: Any) -> bool:
    """Whether the field takes an upload, and not something else, such as base64."""
    return isinstance(field, serializers.FileField) and not _is_overridden(
        field, "to_internal_value"
    )


def _is_overridden(field: Any, method: str) -> bool:
    """Whether a class outside of REST framework defines ``method`` of the field."""
    owner = next((one for one in type(field).__mro__ if method in vars(one)), object)
    return owner.__module__.partition(".")[0] != LIBRARY


# Schema hints of drf-spectacular.


def annotated_schema(stated: Any, schema_of: Callable[[Any], JSON]) -> JSON | None:
    """Return what ``@extend_schema_field`` says about a field or method, or None if nothing.

    ``schema_of`` returns the schema of a serializer field.
    """
    # drf-spectacular stores hints in this attribute, so it need not be imported or installed.
    hint = (getattr(stated, "_spectacular_annotation", None) or {}).get("field")
    if hint is None:
        return None
    made = hint() if isinstance(hint, type) and issubclass(hint, serializers.Field) else hint
    if isinstance(made, serializers.Field):
        return schema_of(made)
    return openapi_type(made)


def openapi_type(hint: Any) -> JSON:
    """Return the schema of a type in a hint of drf-spectacular: a dict, or a basic type."""
    if not isinstance(hint, dict):
        from drf_spectacular.plumbing import build_basic_type

        try:
            hint = build_basic_type(hint) or {}
        except Exception:  # the project may state anything
            hint = {}
    return json_schema(hint) if "type" in hint else anything()


def json_schema(schema: JSON) -> JSON:
    """Return a schema of OpenAPI 3.0 as JSON Schema: ``nullable`` is the type null."""
    kept = {key: value for key, value in schema.items() if key in KEYWORDS}
    if schema.get("format") == "password":
        kept["writeOnly"] = True
    if "properties" in kept:
        kept["properties"] = {name: json_schema(one) for name, one in kept["properties"].items()}
    if isinstance(kept.get("items"), dict):
        kept["items"] = json_schema(kept["items"])
    return _or_null(kept) if schema.get("nullable") else kept


KEYWORDS: Iterable[str] = (
    "type", "properties", "items", "required", "enum", "description", "title", "default", "minimum",
    "maximum", "minLength", "maxLength", "minItems", "maxItems", "additionalProperties", "pattern",
    "writeOnly",
)  # fmt: skip
