"""
Output schemas of the tools of ``register_admin``: what the admin's lists and pages show of rows.

They are made from the columns, forms and inlines of an unsaved superuser, as the schemas of the
arguments are. Another user may see other fields. So a row requires only its key, and may have more
properties than the schema names.
"""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.admin.utils import flatten_fieldsets
from django.db import models

from ..declarations.fields.keys import key_schema
from ..declarations.fields.values import ALL_JSON_TYPES, describe, field_schema, has_json_form
from ..declarations.schemas import object_schema
from .admin_pages import KEY, TEXT, column_name, is_secret, model_field, shows_secret

JSON = dict[str, Any]
MESSAGES = {"type": "array", "items": {"type": "string"}}
# A field of the form shows the key and the text of a related row, a read-only field the text. Which
# of the two it is depends on the user.
RELATED_ROW = {"properties": {KEY: {"type": ["integer", "string"]}, TEXT: {"type": "string"}}}
ONE_RELATED = {"type": ["object", "string", "null"]} | RELATED_ROW
MANY_RELATED = {
    "type": ["array", "string", "null"], "items": {"type": ["object", "string"]} | RELATED_ROW
}  # fmt: skip


def saved_schema(model: type[models.Model]) -> JSON:
    """Return the schema of the result of a tool that creates or updates a row."""
    return object_schema({KEY: key_schema(model), "messages": MESSAGES}, (KEY, "messages"))


def deleted_schema(model: type[models.Model]) -> JSON:
    """Return the schema of the result of a tool that deletes a row."""
    words = "The number of deleted rows of each model."
    counts = {"type": "object", "additionalProperties": {"type": "integer"}, "description": words}
    properties = {KEY: key_schema(model), "deleted": counts, "messages": MESSAGES}
    return object_schema(properties, properties)


def list_schema(admin: Any, http: Any) -> JSON:
    """Return the schema of one page of the admin's list."""
    columns = [name for name in admin.get_list_display(http) if name != "action_checkbox"]
    rows = {"type": "array", "items": _row_schema(admin.model, _fields(admin.model, columns))}
    number = {"type": "integer"}
    properties = {"results": rows, "count": number, "page": number, "pages": number}
    return object_schema(properties, properties)


def page_schema(admin: Any, http: Any) -> JSON:
    """Return the schema of a row as its page shows it. Raise the errors of the project's code."""
    row = unsaved_row(admin.model)
    form = admin.get_form(http, row, change=True)(instance=row)
    found = _fields(admin.model, flatten_fieldsets(admin.get_fieldsets(http, row)), form)
    prefixes: list[str] = []
    for inline in admin.get_inline_instances(http, row):
        made = inline.get_formset(http, row)
        name = inline_name(made, prefixes)
        names = flatten_fieldsets(inline.get_fieldsets(http, row))
        parent = getattr(made, "fk", None)
        shown = [one for one in names if parent is None or one != parent.name]
        fields = _fields(inline.model, shown, empty_form(inline, made, row))
        found[name] = {"type": "array", "items": _row_schema(inline.model, fields)}
    return _row_schema(admin.model, {TEXT: {"type": "string"}} | found)


def inline_name(formset: Any, prefixes: list[str]) -> str:
    """Return the name of an inline, and add its prefix to ``prefixes``, those of the page."""
    prefix = formset.get_default_prefix()
    prefixes.append(prefix)
    count = prefixes.count(prefix)
    return prefix if count == 1 else f"{prefix}-{count}"


def unsaved_row(model: type[models.Model]) -> models.Model:
    """Return a row without a key.

    A key with a default, such as a UUID, would make a form query the many-to-many relations of the
    row, and a formset its inlines.
    """
    return model(pk=None)


def empty_form(inline: Any, formset: Any, row: models.Model) -> Any:
    """Return the form of a new row of an inline."""
    return formset(instance=row, queryset=inline.model._default_manager.none()).empty_form


def _row_schema(model: type[models.Model], fields: JSON) -> JSON:
    properties = {KEY: key_schema(model)} | fields
    return {"type": "object", "properties": properties, "required": [KEY]}


def _fields(model: type[models.Model], names: list[Any], form: Any = None) -> JSON:
    """Return the schemas of columns, or of the fields of ``form`` and read-only fields."""
    found: JSON = {}
    for name in names:
        field = None if form is None else form.fields.get(name)
        is_hidden = field is not None and field.widget.is_hidden
        if form is None:
            is_withheld = is_secret(column_name(name))
        else:
            is_withheld = shows_secret(column_name(name), field, model_field(model, name))
        if not (is_hidden or is_withheld):
            found[column_name(name)] = _value_schema(model, name, field, form)
    return found


def _value_schema(model: type[models.Model], name: Any, field: Any, form: Any) -> JSON:
    """Return the schema of one value, which ``shown_value`` or ``FormValues`` makes."""
    column = model_field(model, name)
    words = {} if column is None else describe(column)
    if isinstance(field, forms.ModelMultipleChoiceField):
        return MANY_RELATED | words
    if isinstance(field, forms.ModelChoiceField):
        return ONE_RELATED | words
    is_declared = field is not None and name in getattr(form, "declared_fields", ())
    if column is None or is_declared or (field is not None and column.is_relation):
        return {"type": ALL_JSON_TYPES} | words
    if column.is_relation:
        return (MANY_RELATED if column.many_to_many else ONE_RELATED) | words
    if isinstance(column, models.FileField):
        return {"type": ["string", "null"]} | words
    if not has_json_form(column):
        return {"type": ALL_JSON_TYPES} | words
    return field_schema(column, nullable=True) | words
