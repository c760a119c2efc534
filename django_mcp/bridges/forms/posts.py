"""
A form as a browser would post it, for a view that reads its own form.

Rule: what is posted is what a person would have posted who changed on the page
just what the arguments name: the rest is as the form shows it, and disabled
fields are not sent. Dates and times are ISO 8601, which Django's fields read in
every locale.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, time
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils import timezone
from django.utils.datastructures import MultiValueDict

from ...declare.form_values import kind_of
from ...exceptions import InvalidArguments

Posted = dict[str, list[str]]


def posted(
    form: forms.BaseForm | type[forms.BaseForm], arguments: Mapping[str, Any]
) -> tuple[Posted, MultiValueDict[str, Any]]:
    """The data and files of a POST of ``form``, changed by ``arguments``.

    ``form`` is an unbound form, or the class of one that needs no arguments.
    Keys of rows go as they come. Raises ``InvalidArguments`` for values that
    no page could post.
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
    elif given and (upload := kind_of(field).read(arguments[bound.name])):
        files.appendlist(name, upload)
    elif given:
        data[f"{name}-clear"] = ["on"]


def _value(field: forms.Field, value: Any) -> Any:
    """What ``field`` would have as its initial value, to show it as ``value``."""
    if not isinstance(field, forms.ModelChoiceField):
        read = kind_of(field).read(value)
        return value if isinstance(field, forms.JSONField) else read
    keys = value if isinstance(value, list) else [value]
    if not all(type(key) in (int, str) for key in keys if key is not None):
        raise ValidationError("A key is a number or a text.")
    return value


def _widget_data(widget: forms.Widget, name: str, value: Any) -> Posted:
    """What the page sends for a widget that shows ``value``."""
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
    if getattr(widget, "format", None):  # the field reads dates as its widget writes them
        return {name: [str(widget.format_value(value) or "")]}
    if getattr(widget, "allow_multiple_selected", False) and not value:
        return {}
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
