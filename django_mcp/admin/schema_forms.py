"""
Django forms made from JSON Schemas, for the inspector.

Each property of the schema is a field: texts, numbers, choices, and lists of these. Every other
value is a text area for JSON. The forms convert texts to values and report what cannot be
converted. They do not validate the schema's limits: the server does that, and the inspector shows
what it responds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from django import forms
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from ..declarations import schema_summary
from ..management.arguments import parse_value
from ..protocol.jsonrpc import ProtocolError, decode

Schema = Mapping[str, Any]
ABSENT: Any = object()  # the value of a field that is not sent
SCALARS = frozenset(("string", "integer", "number"))
LONG_TEXT = 200  # characters: a text that may be longer gets a text area
INPUT_TYPES = {"date": "date", "time": "time", "email": "email", "uri": "url"}


class JSONValueField(forms.CharField):
    """A text area for JSON. ``kind`` is the type that the value must have, or None."""

    widget = forms.Textarea

    def __init__(self, *, kind: type | None = None, **options: Any) -> None:
        self.kind = kind
        options.setdefault("widget", forms.Textarea(attrs={"rows": 4, "spellcheck": "false"}))
        super().__init__(strip=True, **options)

    def clean(self, value: Any) -> Any:
        text = super().clean(value)
        if not text:
            return ABSENT
        try:
            found = decode(text)
        except ProtocolError as error:
            raise forms.ValidationError(
                _("This is not JSON: %s") % (error.__cause__ or error)
            ) from None
        if self.kind is not None and not isinstance(found, self.kind):
            raise forms.ValidationError(_('Enter a JSON object, such as {"name": "value"}.'))
        return found


class ScalarField(forms.CharField):
    """A text or number. ``alternatives`` are the schemas that it may have."""

    def __init__(self, alternatives: Sequence[Schema], **options: Any) -> None:
        self._alternatives = alternatives
        super().__init__(strip=False, **options)

    def clean(self, value: Any) -> Any:
        text = super().clean(value)
        return ABSENT if not text else as_scalar(text, self._alternatives)


class LinesField(forms.CharField):
    """A list of texts or numbers, one on each line."""

    def __init__(self, alternatives: Sequence[Schema], **options: Any) -> None:
        self._alternatives, self._is_needed = alternatives, options.pop("required")
        super().__init__(required=False, widget=forms.Textarea(attrs={"rows": 3}), **options)

    def clean(self, value: Any) -> Any:
        lines = [line.strip() for line in super().clean(value).splitlines()]
        found = [as_scalar(line, self._alternatives) for line in lines if line]
        return found if found or self._is_needed else ABSENT


class ChoiceValueField(forms.TypedChoiceField):
    """One of the given JSON values. The browser sends the JSON text of the chosen one."""

    def __init__(self, choices: Sequence[tuple[str, Any]], **options: Any) -> None:
        blank = [] if options["required"] and options.get("initial") else [("", "---------")]
        super().__init__(
            choices=[*blank, *choices], coerce=json.loads, empty_value=ABSENT, **options
        )


class ChoiceValuesField(forms.TypedMultipleChoiceField):
    """Any number of the given JSON values, such as the items of a list."""

    def __init__(self, choices: Sequence[tuple[str, Any]], **options: Any) -> None:
        required = options.pop("required")
        super().__init__(
            choices=choices, coerce=json.loads, empty_value=[] if required else ABSENT,
            required=False, widget=forms.CheckboxSelectMultiple, **options,
        )  # fmt: skip


def as_scalar(text: str, alternatives: Sequence[Schema]) -> Any:
    """Return the value of a text. Raise ``ValidationError`` if it must be a number and is none."""
    value = parse_value(text, alternatives)
    kinds = {kind for one in alternatives for kind in _types(one)}
    if isinstance(value, str) and "string" not in kinds:
        whole = kinds <= {"integer", "null"}
        raise forms.ValidationError(_("Enter a whole number.") if whole else _("Enter a number."))
    return value


class SchemaForm(forms.Form):
    """A form of the properties of ``schema``, an object. ``values`` returns what was filled in."""

    required_css_class = "required"

    def __init__(self, schema: Schema, data: Any = None, *, prefix: str) -> None:
        # The browser must not require fields: the arguments may be given as JSON instead.
        super().__init__(data, prefix=prefix, use_required_attribute=False)
        lines = {line.name: line for line in schema_summary.lines(schema, translated=True)}
        self._null_if_blank: set[str] = set()
        for name, part in (schema.get("properties") or {}).items():
            line = lines.get(name)
            possible = schema_summary.forms(part, schema)
            required = name in (schema.get("required") or ())
            if required and any("null" in _types(one) for one in possible):
                self._null_if_blank.add(name)
                required = False
            words = [line.description, f"({line.type})"] if line is not None else []
            title = next(
                (one["title"] for one in possible if isinstance(one.get("title"), str)), ""
            )
            self.fields[name] = field_for(
                [one for one in possible if one.get("type") != "null"],
                schema,
                default=next(
                    (one["default"] for one in (part, *possible) if "default" in one), None
                ),
                required=required,
                label=_label(name, title),
                help_text=" ".join(filter(None, words)),
            )
            if required:
                self.fields[name].widget.attrs["aria-required"] = "true"

    def suggest(self, name: str, values: Sequence[str]) -> None:
        """Offer these values for a text, as a list below its field and when it is typed."""
        field: Any = self.fields[name]
        field.suggestions = values
        if values:
            # A text area can have no list of suggestions.
            attributes = {"class": "vTextField", "list": f"id_{self.add_prefix(name)}_suggestions"}
            field.widget = forms.TextInput(attrs=field.widget.attrs | attributes)

    def values(self) -> dict[str, Any]:
        """Return the values of the fields that were filled in, by name."""
        found = {}
        for name, value in self.cleaned_data.items():
            if value is not ABSENT:
                found[name] = value
            elif name in self._null_if_blank:
                found[name] = None
        return found


def _label(name: str, title: str) -> str:
    """Return the name, after the title if that says more."""
    return f"{title} ({name})" if title and title.lower() != name.replace("_", " ") else name


def field_for(
    possible: Sequence[Schema], root: Schema, *, default: Any, required: bool, **options: Any
) -> forms.Field:
    """Return the field of a value that has one of the ``possible`` schemas."""
    options["required"] = required
    choices = [choice for one in possible for choice in schema_choices(one)]
    kinds = {kind for one in possible for kind in _types(one)} - {"null"}
    if not choices and kinds == {"boolean"}:
        choices = [("true", gettext("Yes")), ("false", gettext("No"))]
    if choices and (kinds == {"boolean"} or all(schema_choices(one) for one in possible)):
        initial = "" if default is None else json.dumps(default)
        return ChoiceValueField(choices, initial=initial, **options)
    if kinds and kinds <= SCALARS:
        return ScalarField(possible, widget=_widget(possible, kinds), initial=default, **options)
    if kinds == {"array"} and len(possible) == 1:
        field = _list_field(possible[0], root, default, options)
        if field is not None:
            return field
    initial = "" if default is None else json.dumps(default, indent=2, ensure_ascii=False)
    return JSONValueField(initial=initial, **options)


def _list_field(
    found: Schema, root: Schema, default: Any, options: dict[str, Any]
) -> forms.Field | None:
    """Return the field of a list of choices or scalars, or None for other lists."""
    items = schema_summary.forms(found.get("items") or {}, root)
    defaults = default if isinstance(default, list) else []
    choices = [choice for one in items for choice in schema_choices(one)]
    if choices and all(schema_choices(one) for one in items):
        return ChoiceValuesField(choices, initial=[json.dumps(one) for one in defaults], **options)
    kinds = {kind for one in items for kind in _types(one)}
    if not kinds or not kinds <= SCALARS or "prefixItems" in found:
        return None
    return LinesField(items, initial="\n".join(map(str, defaults)), **options)


def _widget(possible: Sequence[Schema], kinds: set[str]) -> forms.Widget:
    if "string" not in kinds:
        return forms.TextInput(attrs={"inputmode": "decimal", "class": "vTextField"})
    formats = {str(one["format"]) for one in possible if "format" in one}
    if kinds == {"string"} and len(formats) == 1 and len(possible) == 1:
        kind = INPUT_TYPES.get(next(iter(formats)), "text")
        return forms.TextInput(attrs={"type": kind, "class": "vTextField"})
    longest = max(int(one.get("maxLength") or LONG_TEXT + 1) for one in possible)
    is_key = any(schema_summary.KEY.match(str(one.get("description") or "")) for one in possible)
    if is_key or formats or kinds != {"string"} or longest <= LONG_TEXT:
        return forms.TextInput(attrs={"class": "vTextField"})
    return forms.Textarea(attrs={"rows": 2, "class": "vLargeTextField"})


def schema_choices(part: Schema) -> list[tuple[str, str]]:
    """Return the choices of a schema as pairs of JSON text and label; none if it has none."""
    if "const" in part:
        return [_choice(part["const"], part.get("title"))]
    if isinstance(part.get("enum"), list):
        names = part.get("enumNames") or []
        labels = names if len(names) == len(part["enum"]) else [None] * len(part["enum"])
        return [
            _choice(*pair) for pair in zip(part["enum"], labels, strict=True) if pair[0] is not None
        ]
    titled = part.get("oneOf") or part.get("anyOf") or []
    if titled and all(isinstance(one, Mapping) and "const" in one for one in titled):
        return [_choice(one["const"], one.get("title")) for one in titled]
    return []


def _choice(value: Any, title: Any) -> tuple[str, str]:
    label = str(title) if title else str(value) if isinstance(value, str) else json.dumps(value)
    return json.dumps(value), label


def _types(part: Schema) -> list[str]:
    kinds = part.get("type", [])
    return list(map(str, kinds)) if isinstance(kinds, list) else [str(kinds)]
