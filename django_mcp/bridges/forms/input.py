"""
A Django form as the input of a tool: its schema, and the form bound to arguments.

Rule: the form decides, as it does for a page. What is not named keeps the
value that the form shows for it, as what nobody touches on a page does;
disabled and hidden fields are never taken from a caller; a row is named by a
key, and is looked up where its resource would find it for this user before
the form may see it. What is missing and what is hidden are the same words.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django import forms
from django.core.exceptions import NON_FIELD_ERRORS, ImproperlyConfigured, ValidationError
from django.db.models import Model
from django.utils.datastructures import MultiValueDict

from ...declare.bindings import MAX_KEYS, Find
from ...declare.form_values import (
    Given,
    as_posted,
    choices_of,
    default_of,
    flat,
    given,
    is_required,
    kind_of,
    schema_of,
)
from ...declare.rows.keys import key_text
from ...declare.sensitive import asks_secret
from ...exceptions import InvalidArguments

if TYPE_CHECKING:
    from ...declare.model_resources import ModelResource
    from ...declare.requests import Request

    RowField = forms.ModelChoiceField[Any]

JSON = dict[str, Any]
MOST_ERRORS, LONGEST_ERROR, MOST_CHOICES = 20, 300, 50
BARE_KEY = {"type": ["integer", "string"]}


@dataclass(frozen=True)
class Problem:
    """Why a form is no input, in words for its developer; ``number`` is of the check's id."""

    message: str
    number: int
    hint: str


class FormInput:
    """The input that ``form`` takes: a form class, or an unbound form made of one.

    ``find`` gives the resource through which rows are looked up; without it,
    their keys go to the form as they come. ``exclude`` names fields that keep
    their initial value. With ``partial`` nothing is required, and no default
    is told: the form is to change something. ``schema`` is the JSON Schema of
    the arguments, ``problems`` are what is wrong with the form.
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
        schema = {"type": "object", "properties": properties, "additionalProperties": False}
        return schema | ({"required": required} if required else {})

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
            kind = kind_of(field)
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
            return {"type": "array", "items": one, "maxItems": MAX_KEYS}
        if field.required:
            return one
        words = {"description": one.pop("description")} if "description" in one else {}
        return {"anyOf": [one, {"type": "null"}]} | words

    def _key_schema(self, name: str, field: RowField) -> JSON:
        try:
            resource = self._resource(field)
            return resource.key_schema() if resource else dict(BARE_KEY)
        except ImproperlyConfigured as error:
            hint = "Register a ModelResource for its rows, or leave the field out by exclude."
            self.problems.append(Problem(f"{name}: {error}", 124, hint))
            return dict(BARE_KEY)

    def _resource(self, field: RowField) -> ModelResource | None:
        """The resource through which its rows are looked up. Raises ``ImproperlyConfigured``."""
        if self._find is None:
            return None
        if field.queryset is None:
            raise ImproperlyConfigured("its queryset is None, so nobody knows of which model.")
        return self._find(field.queryset.model, None)

    # The form.

    def form(
        self,
        request: Request,
        arguments: Mapping[str, Any],
        form_class: type[forms.BaseForm] | None = None,
        /,
        **kwargs: Any,
    ) -> Any:
        """A form bound to ``arguments``; ``kwargs`` are the form's own, as ``instance``.

        ``form_class`` is the form for this request, if it is another. Asks the
        database for the rows that are named. Raises ``InvalidArguments`` for
        arguments there are not, and for fields that this form takes from nobody.
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
                field.widget = self._given(request, form, name, arguments[name])
            else:
                _keep(form, name, field)
            field.show_hidden_initial = False  # there is no page that would send it back
        return form

    def _given(self, request: Request, form: forms.BaseForm, name: str, value: Any) -> Given:
        """The widget that gives what ``value`` means to the field, or refuses it."""
        field = form.fields[name]
        if isinstance(field, forms.ModelMultipleChoiceField):
            current = form.get_initial_for_field(field, name) or ()
            return Given(field.widget, lambda: self._several(request, field, value, current))
        if isinstance(field, forms.ModelChoiceField):
            return Given(field.widget, lambda: self._one(request, field, value))
        if isinstance(field, forms.FileField) and value is None:
            cleared = False if form.get_initial_for_field(field, name) else None
            return Given(field.widget, lambda: cleared)
        return given(field, value)

    # The rows. Each raises ``ValidationError``.

    def _one(self, request: Request, field: RowField, value: Any) -> Any:
        """What the field knows the named row by."""
        return None if value in (None, "") else self._found(request, field, [value])[0]

    def _several(
        self, request: Request, field: RowField, value: Any, current: Iterable[Any]
    ) -> list[Any]:
        """What it knows all of them by. A link to a hidden row is neither made nor cut."""
        named = [] if value in (None, "") else value
        if not isinstance(named, list) or len(named) > MAX_KEYS:
            words = f"Give a list of at most {MAX_KEYS} keys."
            raise ValidationError(words, code="invalid_list")
        return self._found(request, field, named) + self._hidden(request, field, current)

    def _found(self, request: Request, field: RowField, named: list[Any]) -> list[Any]:
        resource = self._resource(field)
        if resource is None:
            return [_bare(field, one) for one in named]
        keys = [_key(resource, one) for one in named]
        rows = resource.fetch(request, [key for key in keys if key is not None], write=True)
        for key, one in zip(keys, named, strict=True):
            if key not in rows:
                raise _no_choice(field, one)
        return [_known_by(field, rows[key]) for key in keys]

    def _hidden(self, request: Request, field: RowField, current: Iterable[Any]) -> list[Any]:
        """Those of the rows that are chosen now which the caller does not see."""
        resource = self._resource(field)
        rows = [row for row in current if isinstance(row, Model)]
        if resource is None or not rows:
            return []
        keys = [resource.key(key_text(row, resource.lookup)) for row in rows]
        seen = resource.fetch(request, keys, write=True)
        hidden = [row.pk for key, row in zip(keys, rows, strict=True) if key not in seen]
        # What is none of the field's choices any more would be refused, and named.
        offered: Any = field.queryset
        return [_known_by(field, row) for row in offered.filter(pk__in=hidden)]


def _keep(form: forms.BaseForm, name: str, field: forms.Field) -> None:
    """Let the form take what it shows for ``field``, to the last microsecond."""
    if isinstance(field, forms.FileField):  # which keeps what there is when it is given nothing
        field.widget = Given(field.widget, lambda: None)
        return
    field.disabled = True
    field.widget.supports_microseconds = True
    if isinstance(field, forms.JSONField):  # which looks for changes even when it is disabled
        field.widget = Given(field.widget, lambda: form.get_initial_for_field(field, name))


def _key(resource: ModelResource, value: Any) -> Any:
    try:
        return resource.key(value)
    except (ValueError, TypeError):
        return None


def _known_by(field: RowField, row: Any) -> Any:
    return getattr(row, field.to_field_name or "pk")


def _bare(field: RowField, value: Any) -> Any:
    if type(value) not in (int, str):
        raise _no_choice(field, value)
    return value


def _no_choice(field: RowField, value: Any) -> ValidationError:
    """What the field says of a row that is none of its choices, whether there is one or not."""
    shown = str(value)[:80]
    words = field.error_messages["invalid_choice"]
    return ValidationError(words, code="invalid_choice", params={"value": shown, "pk": shown})


def refuse_unknown(arguments: Mapping[str, Any], known: Collection[str]) -> None:
    """Raise ``InvalidArguments`` for arguments there are not."""
    unknown = [name[:80] for name in arguments if name not in known][:MOST_ERRORS]
    if unknown:
        said = f"there is no such argument; there are: {', '.join(known) or 'none'}."
        raise InvalidArguments("\n".join(f"{name}: {said}" for name in unknown))


def _description(field: forms.Field, schema: JSON) -> JSON:
    """What the field says of itself, its choices' labels, and what its key is."""
    labels = "; ".join(f"{value}: {label}" for value, label in choices_of(field))
    said = [str(field.help_text or ""), labels, schema.get("description", "")]
    words = " ".join(word for word in said if word)
    return {"description": words} if words else {}


# What cannot be.


def _problems(name: str, field: forms.Field, shown: JSON) -> Iterator[Problem]:
    if isinstance(field, forms.FilePathField):
        hint = "Leave it out by exclude, or offer names by a ChoiceField."
        yield Problem(f"{name}: a FilePathField shows paths of the server.", 122, hint)
    if isinstance(field.widget, forms.PasswordInput) or asks_secret(name, shown):
        hint = "Leave it out by exclude; ask for a secret at a page, by request.elicit(url=...)."
        yield Problem(f"{name}: a secret must not pass through a model.", 123, hint)


# What is wrong with an answer, in words.


def errors(form: forms.BaseForm) -> str:
    """What is wrong with a bound form, a line for each field, for a model to act on."""
    found = form.errors.as_data()
    lines = [f"{_place(name)}: {_words(form, name, wrong)}" for name, wrong in found.items()]
    return "\n".join(lines[:MOST_ERRORS])


def _place(name: str) -> str:
    return "the form" if name == NON_FIELD_ERRORS else name


def _words(form: forms.BaseForm, name: str, wrong: list[ValidationError]) -> str:
    field = form.fields.get(name)
    said = [_sentence(field, one) for error in wrong for one in error.error_list]
    return " ".join(dict.fromkeys(said))[:LONGEST_ERROR]


def _sentence(field: forms.Field | None, error: ValidationError) -> str:
    """One error. What a caller did not give is not quoted: it may be what they must not know."""
    if field is not None and field.disabled and error.params:
        return "What it is now is not valid: give it another value."
    words = str(next(iter(error)))
    if error.code == "invalid_choice" and field is not None:
        return words + _choices(field)
    return words


def _choices(field: forms.Field) -> str:
    """The choices that this form has: the schema's form may have had others."""
    if not isinstance(field, forms.ChoiceField) or isinstance(field, forms.ModelChoiceField):
        return ""
    listed = [str(value) for value, _ in flat(field.choices)][:MOST_CHOICES]
    return f" There are: {', '.join(listed)}." if listed else ""
