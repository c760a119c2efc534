"""
The fields of a Django form, as properties of a question's form.

Rule: what is shown is what the field will accept: its type, its choices, its
limits, its initial value. A field that no flat form can show is refused.
"""

from __future__ import annotations

from datetime import date, datetime, time
from decimal import Decimal
from itertools import islice
from typing import Any

from django import forms
from django.db.models import Model
from django.utils import timezone

from ..exceptions import ToolError
from .form_rows import MOST_ROWS
from .form_values import flat, limits
from .rows.columns import as_number
from .schemas import violations

TYPES: tuple[tuple[type[forms.Field], dict[str, Any]], ...] = (
    (forms.BooleanField, {"type": "boolean"}),
    (forms.FloatField, {"type": "number"}),
    (forms.DecimalField, {"type": "number"}),
    (forms.IntegerField, {"type": "integer"}),
    (forms.EmailField, {"type": "string", "format": "email"}),
    (forms.URLField, {"type": "string", "format": "uri"}),
    (forms.DateTimeField, {"type": "string", "format": "date-time"}),
    (forms.SplitDateTimeField, {"type": "string", "format": "date-time"}),
    (forms.DateField, {"type": "string", "format": "date"}),
)
STRING: dict[str, Any] = {"type": "string"}
HIDDEN = "hidden"  # what nobody may see being typed; never sent
CHOICES = (forms.ChoiceField, forms.ModelChoiceField)
UNASKABLE = (forms.FileField, forms.MultiValueField)
SEVERAL = (forms.MultipleChoiceField, forms.ModelMultipleChoiceField)


class NoRows(ToolError, TypeError):
    """There is nothing to choose from."""


def form_schema(form: forms.BaseForm) -> dict[str, Any]:
    """The schema of what ``form`` asks for. Raises ``TypeError`` for what cannot be asked."""
    asked = {name: field for name, field in form.fields.items() if not field.disabled}
    properties = {}
    for name, field in asked.items():
        try:
            properties[name] = _property(form, name, field)
        except NoRows:
            if field.required:
                raise
    required = [name for name in properties if asked[name].required]
    return {"type": "object", "properties": properties, "required": required}


def base_property(name: str, field: forms.Field) -> dict[str, Any]:
    """What can be said of a field without looking up rows. Raises ``TypeError``."""
    if isinstance(field, UNASKABLE) and not isinstance(field, forms.SplitDateTimeField):
        raise TypeError(f"{name}: a question cannot ask for a {type(field).__name__}.")
    found = (schema for kind, schema in TYPES if isinstance(field, kind))
    schema = {"type": "array"} if isinstance(field, CHOICES) else dict(next(found, STRING))
    if isinstance(field.widget, forms.PasswordInput | forms.HiddenInput):
        schema["format"] = HIDDEN
    said = {"title": field.label, "description": field.help_text}
    return schema | {key: str(value) for key, value in said.items() if value}


def _property(form: forms.BaseForm, name: str, field: forms.Field) -> dict[str, Any]:
    schema = base_property(name, field) | limits(field)
    if isinstance(field, CHOICES):
        schema |= _chosen(name, field)
    default = _default(field, form.get_initial_for_field(field, name))
    fits = default is not None and not violations(schema, default, formats=False)
    return schema | ({"default": default} if fits else {})


def _chosen(name: str, field: Any) -> dict[str, Any]:
    """The choices with their labels; of rows, no more than a person would look through."""
    most = MOST_ROWS if isinstance(field, forms.ModelChoiceField) else None
    pairs = list(islice(flat(field.choices), most and most + 1))
    if not pairs:
        kind = TypeError if most is None else NoRows
        raise kind(f"{name}: there is nothing to choose from.")
    if most and len(pairs) > most:
        raise TypeError(f"{name}: there are more than {most} rows to choose from.")
    titled = [{"const": str(value), "title": str(label)} for value, label in pairs]
    if isinstance(field, SEVERAL):
        return {"type": "array", "items": {"anyOf": titled}}
    return {"type": "string", "oneOf": titled}


def _default(field: forms.Field, value: Any) -> Any:
    if value in (None, ""):
        return None
    if isinstance(field, SEVERAL):
        return [str(_key(one)) for one in value if one is not None]
    if isinstance(field, CHOICES):
        return str(_key(value))
    return _json(value)


def _key(value: Any) -> Any:
    return value.pk if isinstance(value, Model) else value


def _json(value: Any) -> Any:
    if isinstance(value, Decimal):
        return as_number(value)
    if isinstance(value, datetime) and timezone.is_naive(value):
        return timezone.make_aware(value).isoformat()
    if isinstance(value, date | time):
        return value.isoformat()
    return value if isinstance(value, bool | int | float) else str(value)
