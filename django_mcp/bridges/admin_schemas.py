"""Schemas of the tools of ``register_admin``: arguments that filter and order, and output schemas.

The arguments are those of the filters in ``list_filter`` and of the columns that can be sorted in
``list_display``. The admin's ``ChangeList`` applies them. A filter or column that the list of this
user does not have is rejected, although the admin would accept it in a URL.

Output schemas say what the admin's lists and pages show of rows. They are made from the columns,
forms and inlines of an unsaved superuser, as the schemas of the arguments are. Another user may see
other fields. So a row requires only its key, and may have more properties than the schema names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from types import SimpleNamespace
from typing import Any

from django import forms
from django.contrib.admin import filters
from django.contrib.admin.utils import flatten_fieldsets, get_fields_from_path
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import ValidationError
from django.db import models

from ..declarations.fields.columns import column_type
from ..declarations.fields.keys import key_schema
from ..declarations.fields.values import (
    ALL_JSON_TYPES,
    describe,
    field_choices,
    field_schema,
    has_json_form,
)
from ..declarations.schemas import object_schema
from ..exceptions import InvalidArguments
from .admin_pages import KEY, TEXT, column_name, is_secret, model_field, shows_secret
from .form_input import MAX_CHOICES

JSON = dict[str, Any]

MESSAGES = {"type": "array", "items": {"type": "string"}}
# A field of the form shows the key and the text of a related row, a read-only field the text. Which
# of the two it is depends on the user.
RELATED_ROW = {"properties": {KEY: {"type": ["integer", "string"]}, TEXT: {"type": "string"}}}
ONE_RELATED = {"type": ["object", "string", "null"]} | RELATED_ROW
MANY_RELATED = {
    "type": ["array", "string", "null"], "items": {"type": ["object", "string"]} | RELATED_ROW
}  # fmt: skip


class ListFilterArgument:
    """An argument for one query parameter of a list filter.

    ``field`` reads the value, if the parameter compares a column.
    """

    def __init__(self, name: str, parameter: str, schema: JSON, field: Any = None) -> None:
        self.name, self.parameter, self.schema, self._field = name, parameter, schema, field

    def text(self, value: Any) -> str:
        """Return the value as text for the URL of the admin. Raise ``InvalidArguments``."""
        kind = None if self._field is None else column_type(self._field)
        try:
            read = value if kind is None else kind.read(value)
        except (ValueError, ValidationError) as error:
            words = " ".join(error.messages) if isinstance(error, ValidationError) else str(error)
            raise InvalidArguments(f"{self.name}: {words}") from None
        if isinstance(read, bool):
            return str(int(read))
        return str(read.isoformat() if isinstance(read, date) else read)

    def check_applied(self, change_list: Any, value: Any) -> None:
        """Raise ``InvalidArguments`` if the list of this user does not have the filter.

        The admin also filters by parameters without a filter in the list. Without this check, a
        user could filter by a column that ``get_list_filter`` hides from them. The admin ignores a
        filter without choices.
        """
        applied = [
            one for one in change_list.filter_specs if self.parameter in one.expected_parameters()
        ]
        if not applied:
            raise InvalidArguments(f"{self.name}: you cannot filter by this.")
        for one in applied:
            if isinstance(one, filters.SimpleListFilter):
                choices = [str(choice) for choice, _ in one.lookup_choices]
                if self.text(value) not in choices:
                    listed = ", ".join(choices[:MAX_CHOICES])
                    raise InvalidArguments(f"{self.name}: the choices are {listed}.")


def filter_arguments(entry: Any, admin: Any, http: Any) -> Iterator[ListFilterArgument]:
    """Yield the arguments for an entry of ``list_filter``."""
    if isinstance(entry, type) and not issubclass(entry, filters.FieldListFilter):
        yield from _custom_arguments(entry, admin, http)
        return
    path: Any
    path, kind = entry if isinstance(entry, list | tuple) else (entry, None)
    field: Any = get_fields_from_path(admin.model, path)[-1]
    by_relation = kind is None and field.remote_field is not None
    if by_relation or (kind and issubclass(kind, filters.RelatedFieldListFilter)):
        # Not instantiated, because the constructor of this filter queries its choices.
        target = field.target_field
        words = f"The key of the {field.related_model._meta.verbose_name}."
        schema = _filter_schema(target) | {"description": words}
        yield ListFilterArgument(path, f"{path}__{target.name}__exact", schema, target)
        yield _null_argument(path, field)
        return
    make: Any = kind or filters.FieldListFilter.create
    made = make(field, http, {}, admin.model, admin, field_path=path)
    for parameter in made.expected_parameters():
        yield _field_argument(path, parameter, field, made)


def _custom_arguments(kind: Any, admin: Any, http: Any) -> Iterator[ListFilterArgument]:
    made = kind(http, {}, admin.model, admin)
    for parameter in made.expected_parameters():
        schema: JSON = {"type": "string", "description": f"{made.title}."}
        if isinstance(made, filters.SimpleListFilter):
            labels = "; ".join(f"{value}: {label}" for value, label in made.lookup_choices)
            schema = {"enum": [str(value) for value, _ in made.lookup_choices]}
            schema["description"] = f"{made.title}. {labels}"
        yield ListFilterArgument(parameter, parameter, schema)


def _field_argument(path: str, parameter: str, field: Any, made: Any) -> ListFilterArgument:
    if parameter.endswith(("__isnull", "__isempty")):
        return ListFilterArgument(parameter, parameter, {"type": "boolean"})
    name = parameter.removesuffix("__exact")
    if isinstance(made, filters.DateFieldListFilter):
        return ListFilterArgument(name, parameter, _filter_schema(field), field)
    schema = _filter_schema(field)
    if listed := field_choices(field):
        labels = "; ".join(f"{value}: {label}" for value, label in listed)
        schema = {"enum": [value for value, _ in listed], "description": labels}
    return ListFilterArgument(name, parameter, schema, field)


def _null_argument(path: str, field: Any) -> ListFilterArgument:
    return ListFilterArgument(f"{path}__isnull", f"{path}__isnull", {"type": "boolean"})


def _filter_schema(field: Any) -> JSON:
    kind = column_type(field)
    return {"type": ["string", "number", "boolean"]} if kind is None else dict(kind.schema)


# The order.


def sortable_columns(admin: Any, columns: Sequence[Any], http: Any) -> dict[str, Any]:
    """Return the columns by which a list can be ordered, by name, as the admin's header does."""
    sortable = admin.get_sortable_by(http)
    return {
        column_name(one): one
        for one in columns
        if one in sortable and not is_secret(column_name(one)) and _order_field(admin, one)
    }


def _order_field(admin: Any, column: Any) -> Any:
    """Return what the list is ordered by for a column, or None if it has no order."""
    # The constructor of ``ChangeList`` queries the database, and this method of it needs three
    # attributes.
    change_list: Any = SimpleNamespace(model=admin.model, lookup_opts=admin.opts, model_admin=admin)
    return ChangeList.get_ordering_field(change_list, column)


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
