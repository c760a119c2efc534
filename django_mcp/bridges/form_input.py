"""
A Django form as the input of a tool: its JSON Schema, and the form bound to arguments.

``FormInput`` is for tools that run the form themselves. A field without an argument keeps the value
that the form shows for it. Disabled and hidden fields are never taken from a caller. A row is named
by its key, and is looked up through its model resource with the caller's permissions before the
form sees it. A missing row and a hidden row give the same error, so that a caller cannot find out
which rows exist.

``post_data`` is for views that bind their own form. It returns what a browser would post if a
person changed only the fields in the arguments. Disabled fields are not sent. Dates and times are
in ISO 8601, which Django's fields parse in every locale.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import TYPE_CHECKING, Any

from django import forms
from django.core.exceptions import NON_FIELD_ERRORS, ImproperlyConfigured, ValidationError
from django.db.models import Model
from django.utils import timezone
from django.utils.datastructures import MultiValueDict

from ..declarations.arguments import MAX_KEYS_PER_ARGUMENT
from ..declarations.declaration import Find
from ..declarations.elicitation_forms import asks_secret
from ..declarations.fields.keys import filter_by_keys, key_text
from ..declarations.form_values import (
    ValueWidget,
    as_posted,
    default_of,
    flat_choices,
    form_choices,
    form_field_type,
    is_required,
    json_widget,
    schema_of,
)
from ..declarations.schemas import object_schema
from ..exceptions import InvalidArguments

if TYPE_CHECKING:
    from ..declarations.model_resources import ModelResource
    from ..declarations.request import Request

    RowField = forms.ModelChoiceField[Any]

Posted = dict[str, list[str]]


def post_data(
    form: forms.BaseForm | type[forms.BaseForm], arguments: Mapping[str, Any]
) -> tuple[Posted, MultiValueDict[str, Any]]:
    """Return the data and files of a POST of ``form``, changed by ``arguments``.

    ``form`` is an unbound form, or a form class that needs no arguments. Keys of rows are sent
    unchanged. Raise ``InvalidArguments`` for values that no page could post.
    """
    form = form() if isinstance(form, type) else form
    data: Posted = {}
    files: MultiValueDict[str, Any] = MultiValueDict()
    wrong = []
    for bound in (form[name] for name in form.fields if not form.fields[name].disabled):
        try:
            _post(bound, arguments, data, files)
        except ValidationError as error:
            wrong.append(f"{bound.name}: {' '.join(error.messages)}")
    if wrong:
        raise InvalidArguments("\n".join(wrong))
    return data, files


def _post(
    bound: forms.BoundField,
    arguments: Mapping[str, Any],
    data: Posted,
    files: MultiValueDict[str, Any],
) -> None:
    field, name = bound.field, bound.html_name
    given = bound.name in arguments
    if not isinstance(field, forms.FileField):
        value = _value(field, arguments[bound.name]) if given else bound.initial
        data |= _widget_data(field.widget, name, field.prepare_value(value))
        if field.show_hidden_initial:  # Without it, the form would see the field as changed.
            shown = field.prepare_value(bound.initial)
            data |= _widget_data(field.hidden_widget(), bound.html_initial_name, shown)
    elif given and (upload := form_field_type(field).read(arguments[bound.name])):
        files.appendlist(name, upload)
    elif given:
        data[f"{name}-clear"] = ["on"]


def _value(field: forms.Field, value: Any) -> Any:
    """Return the initial value with which ``field`` shows ``value``."""
    if not isinstance(field, forms.ModelChoiceField):
        read = form_field_type(field).read(value)
        return value if isinstance(field, forms.JSONField) else read
    keys = value if isinstance(value, list) else [value]
    if not all(type(key) in (int, str) for key in keys if key is not None):
        raise ValidationError("A key is a number or a text.")
    return value


def _widget_data(widget: forms.Widget, name: str, value: Any) -> Posted:
    """Return what a browser sends for a widget that shows ``value``."""
    if isinstance(widget, forms.MultiWidget):
        values: Any = value if isinstance(value, list) else widget.decompress(value)
        names = [name + end for end in widget.widgets_names]  # type: ignore[attr-defined]
        parts = zip(widget.widgets, names, values, strict=False)
        return {k: v for one, named, part in parts for k, v in _part(one, named, part)}
    if isinstance(widget, forms.CheckboxInput):
        return {name: ["on"]} if widget.check_test(value) else {}
    if isinstance(widget, forms.SelectDateWidget):
        shown = widget.format_value(value)
        return {f"{name}_{part}": [str(one or "")] for part, one in shown.items()}
    if isinstance(widget, forms.NullBooleanSelect):
        return {name: [widget.format_value(value)]}
    # The widget sets a date format, and the field parses dates in that format.
    if getattr(widget, "format", None):
        return {name: [str(widget.format_value(value) or "")]}
    if getattr(widget, "allow_multiple_selected", False) and not value:
        return {}
    if isinstance(value, list | tuple) and isinstance(widget, forms.TextInput):
        return {name: [_text(widget.format_value(value))]}  # such as the admin's raw_id_fields
    listed = value if isinstance(value, list | tuple) else [value]
    return {name: [_text(one) for one in listed]}


def _part(widget: forms.Widget, name: str, value: Any) -> Any:
    return _widget_data(widget, name, value).items()


def _text(value: Any) -> str:
    if isinstance(value, datetime):
        local = timezone.localtime(value) if timezone.is_aware(value) else value
        return local.replace(tzinfo=None).isoformat(" ")
    if isinstance(value, date | time):
        return value.isoformat()
    return "" if value is None else str(value)


JSON = dict[str, Any]
MAX_ERRORS, MAX_ERROR_LENGTH, MAX_CHOICES = 20, 300, 50
BARE_KEY = {"type": ["integer", "string"]}


@dataclass(frozen=True)
class Problem:
    """Why a form cannot be a tool's input. ``number`` is the number in the check's id."""

    message: str
    number: int
    hint: str


class FormInput:
    """The input of a tool that takes the fields of ``form``, a form class or an unbound form.

    ``find`` returns the model resource through which rows are looked up. Without it, keys are
    passed to the form unchanged. ``exclude`` names fields that keep their initial value. With
    ``partial``, no field is required and the schema has no defaults, because the form changes an
    existing row. ``schema`` is the JSON Schema of the arguments, and ``problems`` lists what is
    wrong with the form.
    """

    def __init__(
        self,
        form: type[forms.BaseForm] | forms.BaseForm,
        find: Find | None = None,
        *,
        exclude: Collection[str] = (),
        partial: bool = False,
    ) -> None:
        shown = form() if isinstance(form, type) else form
        self.form_class = type(shown)
        self._find, self._exclude, self._partial = find, frozenset(exclude), partial
        self.problems: list[Problem] = []
        self.schema = self._schema(shown)

    # The schema.

    def _schema(self, form: forms.BaseForm) -> JSON:
        taken = {name: field for name, field in form.fields.items() if self._takes(name, field)}
        properties = {name: self._property(form, name, field) for name, field in taken.items()}
        required = [name for name in taken if self._is_required(form, name)]
        return object_schema(properties, required)

    def _takes(self, name: str, field: forms.Field) -> bool:
        return not (field.disabled or field.widget.is_hidden or name in self._exclude)

    def _is_required(self, form: forms.BaseForm, name: str) -> bool:
        field = form.fields[name]
        initial = form.get_initial_for_field(field, name)
        is_empty = initial is False or initial in field.empty_values
        return is_required(field) and is_empty and not self._partial

    def _property(self, form: forms.BaseForm, name: str, field: forms.Field) -> JSON:
        if isinstance(field, forms.ModelChoiceField):
            schema, default = self._rows_schema(name, field), {}
        else:
            kind = form_field_type(field)
            schema = schema_of(field, kind, required=is_required(field))
            initial = form.initial.get(name, field.initial)
            default = {} if self._partial else default_of(field, kind, schema, initial)
        title = {"title": str(form[name].label)} if form[name].label else {}
        shown = schema | title | _description(field, schema) | default
        self.problems += _problems(name, field, shown)
        return shown

    def _rows_schema(self, name: str, field: RowField) -> JSON:
        one = self._key_schema(name, field)
        if isinstance(field, forms.ModelMultipleChoiceField):
            return {"type": "array", "items": one, "maxItems": MAX_KEYS_PER_ARGUMENT}
        if field.required:
            return one
        words = {"description": one.pop("description")} if "description" in one else {}
        return {"anyOf": [one, {"type": "null"}]} | words

    def _key_schema(self, name: str, field: RowField) -> JSON:
        try:
            resource = self._resource(field)
            return resource._key_schema() if resource else dict(BARE_KEY)
        except ImproperlyConfigured as error:
            hint = "Register a ModelResource for its rows, or leave the field out by exclude."
            self.problems.append(Problem(f"{name}: {error}", 124, hint))
            return dict(BARE_KEY)

    def _resource(self, field: RowField) -> ModelResource | None:
        """Return the resource through which rows are looked up. Raise ``ImproperlyConfigured``."""
        if self._find is None:
            return None
        if field.queryset is None:
            raise ImproperlyConfigured("its queryset is None, so nobody knows of which model.")
        found: ModelResource = self._find(field.queryset.model, None)
        return found

    # The form.

    def form(
        self,
        request: Request,
        arguments: Mapping[str, Any],
        form_class: type[forms.BaseForm] | None = None,
        /,
        **kwargs: Any,
    ) -> Any:
        """Return a form bound to ``arguments``.

        ``form_class`` is the form class for this request, if it differs. ``kwargs`` are passed to
        the form, such as ``instance``. Queries the database for the named rows. Raise
        ``InvalidArguments`` for unknown arguments and for fields that this form does not take.
        """
        known = self.schema["properties"]
        refuse_unknown(arguments, known)
        made = form_class or self.form_class
        prefix = kwargs.get("prefix") or made.prefix
        data = as_posted({f"{prefix}-{n}" if prefix else n: v for n, v in arguments.items()})
        form = made(data=data, files=MultiValueDict(), **kwargs)
        taken = {name for name, field in form.fields.items() if self._takes(name, field)}
        refuse_unknown(arguments, [name for name in known if name in taken])
        for name, field in form.fields.items():
            if name in arguments:
                field.widget = self._value_widget(request, form, name, arguments[name])
            else:
                _keep(form, name, field)
            # No page sends the hidden initial value back, so the form would see every field as
            # changed.
            field.show_hidden_initial = False
        return form

    def _value_widget(
        self, request: Request, form: forms.BaseForm, name: str, value: Any
    ) -> ValueWidget:
        """Return a widget that yields the value for the field, or raises its validation error."""
        field = form.fields[name]
        if isinstance(field, forms.ModelMultipleChoiceField):
            current = form.get_initial_for_field(field, name)
            return ValueWidget(
                field.widget, lambda: self._choice_values(request, field, value, current)
            )
        if isinstance(field, forms.ModelChoiceField):
            return ValueWidget(field.widget, lambda: self._choice_value(request, field, value))
        if isinstance(field, forms.FileField) and value is None:
            cleared = False if form.get_initial_for_field(field, name) else None
            return ValueWidget(field.widget, lambda: cleared)
        return json_widget(field, value)

    # The rows. Each raises ``ValidationError``.

    def _choice_value(self, request: Request, field: RowField, value: Any) -> Any:
        """Return the value by which the field identifies the named row."""
        return None if value in (None, "") else self._find_rows(request, field, [value])[0]

    def _choice_values(
        self, request: Request, field: RowField, value: Any, current: Iterable[Any] | None
    ) -> list[Any]:
        """Return the values for all named rows, and for the linked rows that the caller cannot see.

        Links to hidden rows are neither added nor removed. ``current`` are the linked rows, or None
        if the form has no initial value.
        """
        named = [] if value in (None, "") else value
        if not isinstance(named, list) or len(named) > MAX_KEYS_PER_ARGUMENT:
            words = f"Give a list of at most {MAX_KEYS_PER_ARGUMENT} keys."
            raise ValidationError(words, code="invalid_list")
        if not named and field.required:
            # The form would accept an empty list only if hidden links remain, and so reveal them.
            raise ValidationError(field.error_messages["required"], code="required")
        found = self._find_rows(request, field, named)
        # A form for a new row has no initial value. Without a resource, no row is hidden.
        if current is None or self._resource(field) is None:
            return found
        linked = [row for row in current if isinstance(row, Model)]
        kept = found + self._hidden(request, field, linked)
        if not kept:
            # The form runs one query for the rows it gets. If no hidden links remain, it gets none:
            # run that query here, because its absence would take less time and reveal that.
            list(_linked(field, linked))
        return kept

    def _find_rows(self, request: Request, field: RowField, named: list[Any]) -> list[Any]:
        resource = self._resource(field)
        if resource is None:
            return [_checked_key(field, one) for one in named]
        keys = [_key(resource, one) for one in named]
        rows = resource._fetch(request, [key for key in keys if key is not None], write=True)
        for key, one in zip(keys, named, strict=True):
            if key not in rows:
                raise _no_choice(field, one)
        return [_field_key(field, rows[key]) for key in keys]

    def _hidden(self, request: Request, field: RowField, linked: Sequence[Any]) -> list[Any]:
        """Return the values of currently linked rows that the caller cannot see.

        Runs the same queries whether the row has links or none, because a row that has only hidden
        links must not differ from a row without links.
        """
        resource = self._resource(field)
        assert resource is not None
        keys = [resource._key(key_text(row, resource._lookup)) for row in linked]
        visible = resource._fetch(request, keys, write=True, query_without_keys=True)
        hidden = {row.pk for key, row in zip(keys, linked, strict=True) if key not in visible}
        # Only rows among the field's choices: the form would reject any other, and its error would
        # name the hidden row. All linked rows are asked for: a query for the hidden ones would run
        # only if there are some, and so reveal them.
        found = _linked(field, linked)
        return [_field_key(field, row) for row in found if row.pk in hidden]


def _keep(form: forms.BaseForm, name: str, field: forms.Field) -> None:
    """Make the form keep the value it shows for ``field``, with microseconds."""
    if isinstance(field, forms.FileField):  # a FileField keeps its file if it gets none
        field.widget = ValueWidget(field.widget, lambda: None)
        return
    if isinstance(field, forms.ModelMultipleChoiceField):
        _keep_links(form, name, field)
    field.disabled = True
    field.widget.supports_microseconds = True
    if isinstance(field, forms.JSONField):  # JSONField.has_changed() ignores disabled
        field.widget = ValueWidget(field.widget, lambda: form.get_initial_for_field(field, name))


def _keep_links(form: forms.BaseForm, name: str, field: RowField) -> None:
    """Make the form treat a row that has only hidden links like a row without links.

    The form keeps all links, hidden ones included, and so would differ for the two rows.
    """
    current = form.get_initial_for_field(field, name)
    if current is None:
        return  # a form for a new row
    if not list(current):
        list(_linked(field, []))  # The form runs a query only if there are links.
    instance = getattr(form, "instance", None)
    if instance is not None and not instance._state.adding:
        field.required = False  # It would be an error only without links.


def _linked(field: RowField, linked: Iterable[Any]) -> Any:
    """Return a query for the linked rows that the form offers as choices."""
    offered: Any = field.queryset
    return filter_by_keys(offered, [row.pk for row in linked])


def _key(resource: ModelResource, value: Any) -> Any:
    try:
        return resource._key(value)
    except (ValueError, TypeError):
        return None


def _field_key(field: RowField, row: Any) -> Any:
    return getattr(row, field.to_field_name or "pk")


def _checked_key(field: RowField, value: Any) -> Any:
    if type(value) not in (int, str):
        raise _no_choice(field, value)
    return value


def _no_choice(field: RowField, value: Any) -> ValidationError:
    """Return the field's error for an invalid choice, the same for missing and hidden rows."""
    shown = str(value)[:80]
    words = field.error_messages["invalid_choice"]
    return ValidationError(words, code="invalid_choice", params={"value": shown, "pk": shown})


def refuse_unknown(arguments: Mapping[str, Any], known: Collection[str]) -> None:
    """Raise ``InvalidArguments`` for arguments that do not exist."""
    unknown = [name[:80] for name in arguments if name not in known][:MAX_ERRORS]
    if unknown:
        message = f"unknown argument. The arguments are: {', '.join(known) or 'none'}."
        raise InvalidArguments("\n".join(f"{name}: {message}" for name in unknown))


def _description(field: forms.Field, schema: JSON) -> JSON:
    """Return the help text, the labels of the choices, and the schema's own description."""
    labels = "; ".join(f"{value}: {label}" for value, label in form_choices(field))
    texts = [str(field.help_text or ""), labels, schema.get("description", "")]
    words = " ".join(word for word in texts if word)
    return {"description": words} if words else {}


# Checks.


def _problems(name: str, field: forms.Field, shown: JSON) -> Iterator[Problem]:
    if isinstance(field, forms.FilePathField):
        hint = "Leave it out by exclude, or offer names by a ChoiceField."
        yield Problem(f"{name}: a FilePathField shows paths of the server.", 122, hint)
    if isinstance(field.widget, forms.PasswordInput) or asks_secret(name, shown):
        hint = "Leave it out by exclude; ask for a secret at a page, by request.elicit(url=...)."
        yield Problem(f"{name}: a secret must not pass through a model.", 123, hint)


# Error messages.


def errors(form: forms.BaseForm) -> str:
    """Return the errors of a bound form, one line per field, as text for a language model."""
    return "\n".join(error_lines(form)[:MAX_ERRORS])


def error_lines(form: forms.BaseForm) -> list[str]:
    """Return the errors of a bound form, one line per field."""
    found = form.errors.as_data()
    return [f"{_label(name)}: {_error_text(form, name, wrong)}" for name, wrong in found.items()]


def _label(name: str) -> str:
    return "the form" if name == NON_FIELD_ERRORS else name


def _error_text(form: forms.BaseForm, name: str, wrong: list[ValidationError]) -> str:
    field = form.fields.get(name)
    texts = [_sentence(field, one) for error in wrong for one in error.error_list]
    return " ".join(dict.fromkeys(texts))[:MAX_ERROR_LENGTH]


def _sentence(field: forms.Field | None, error: ValidationError) -> str:
    """Return the text of one error.

    Values of fields that the caller did not send are not quoted: they may be confidential.
    """
    if field is not None and field.disabled and error.params:
        return "What it is now is not valid: give it another value."
    words = str(next(iter(error)))
    if error.code == "invalid_choice" and field is not None:
        return words + _choices(field)
    return words


def _choices(field: forms.Field) -> str:
    """Return the choices of this form, which may differ from those of the schema's form."""
    if not isinstance(field, forms.ChoiceField) or isinstance(field, forms.ModelChoiceField):
        return ""
    listed = [str(value) for value, _ in flat_choices(field.choices)][:MAX_CHOICES]
    return f" There are: {', '.join(listed)}." if listed else ""
