"""
Arguments for the filters and the order of the admin's list of rows.

The arguments are those of the filters in ``list_filter`` and of the columns that can be sorted in
``list_display``. The admin's ``ChangeList`` applies them. A filter or column that the list of this
user does not have is rejected, although the admin would accept it in a URL.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from types import SimpleNamespace
from typing import Any

from django.contrib.admin import filters
from django.contrib.admin.utils import get_fields_from_path
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import ValidationError

from ..declarations.fields.columns import column_type
from ..declarations.fields.values import field_choices
from ..exceptions import InvalidArguments
from .admin_pages import column_name, is_secret
from .form_input import MAX_CHOICES

JSON = dict[str, Any]


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
        schema = _value_schema(target) | {"description": words}
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
        return ListFilterArgument(name, parameter, _value_schema(field), field)
    schema = _value_schema(field)
    if listed := field_choices(field):
        labels = "; ".join(f"{value}: {label}" for value, label in listed)
        schema = {"enum": [value for value, _ in listed], "description": labels}
    return ListFilterArgument(name, parameter, schema, field)


def _null_argument(path: str, field: Any) -> ListFilterArgument:
    return ListFilterArgument(f"{path}__isnull", f"{path}__isnull", {"type": "boolean"})


def _value_schema(field: Any) -> JSON:
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
