"""Schemas of form fields, and the conversion of JSON to the values that the fields accept."""

import base64
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy

from django_mcp.declarations.form_values import default_of, form_field_type, is_required, schema_of
from tests.shop.models import Invoice


def schema(field):
    return schema_of(field, form_field_type(field), required=is_required(field))


def read_value(field, value):
    return form_field_type(field).read(value)


def refusal_message(field, value):
    with pytest.raises(ValidationError) as refused:
        read_value(field, value)
    return refused.value.message


def default_value(field):
    kind = form_field_type(field)
    return default_of(field, kind, schema(field), field.initial).get("default")


NUMBER = [(1, "One"), (2, "Two")]
LETTERS = [("a", "An A"), ("Others", [("b", "B"), ("c", gettext_lazy("Yes"))])]
DECIMAL = {"anyOf": [{"type": "number"}, {"type": "string", "pattern": r"^-?[0-9]+(\.[0-9]+)?$"}]}


class Measure(forms.MultiValueField):
    """A number and a unit."""

    def __init__(self, **options):
        fields = (forms.IntegerField(), forms.ChoiceField(choices=[("m", "metre")]))
        super().__init__(fields, **options)

    def compress(self, values):
        return "".join(map(str, values))


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        (forms.CharField(), {"type": "string"}),
        (forms.CharField(required=False), {"type": "string"}),
        (
            forms.CharField(min_length=1, max_length=5),
            {"type": "string", "minLength": 1, "maxLength": 5},
        ),
        (forms.BooleanField(required=False), {"type": "boolean"}),
        (forms.BooleanField(), {"type": "boolean", "const": True}),
        (forms.NullBooleanField(), {"anyOf": [{"type": "boolean"}, {"type": "null"}]}),
        (forms.IntegerField(min_value=1), {"type": "integer", "minimum": 1}),
        (
            forms.IntegerField(required=False),
            {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        ),
        (forms.FloatField(max_value=1.5), {"type": "number", "maximum": 1.5}),
        (forms.DecimalField(), DECIMAL),
        (
            forms.DecimalField(min_value=Decimal("0.01"), max_value=Decimal(9)),
            DECIMAL | {"minimum": 0.01, "maximum": 9},
        ),
        (forms.DateField(), {"type": "string", "format": "date"}),
        (forms.DateTimeField(), {"type": "string", "format": "date-time"}),
        (forms.SplitDateTimeField(), {"type": "string", "format": "date-time"}),
        (forms.DurationField(), {"type": "string", "format": "duration"}),
        (forms.UUIDField(), {"type": "string", "format": "uuid"}),
        (forms.EmailField(max_length=9), {"type": "string", "format": "email", "maxLength": 9}),
        (forms.JSONField(), {}),
        (forms.JSONField(required=False), {}),
        (forms.ChoiceField(choices=LETTERS), {"type": "string", "enum": ["a", "b", "c"]}),
        (
            forms.ChoiceField(choices=[("", "---"), (None, "?"), *LETTERS]),
            {"type": "string", "enum": ["a", "b", "c"]},
        ),
        (
            forms.TypedChoiceField(choices=NUMBER, coerce=int),
            {"type": "integer", "enum": [1, 2]},
        ),
        (forms.ChoiceField(choices=[("a", "A"), (1, "B")]), {"enum": ["a", 1]}),
        (
            forms.ChoiceField(choices=LETTERS, required=False),
            {"anyOf": [{"type": "string", "enum": ["a", "b", "c"]}, {"type": "null"}]},
        ),
        (
            forms.MultipleChoiceField(choices=LETTERS),
            {
                "type": "array", "maxItems": 1000,
                "items": {"type": "string", "enum": ["a", "b", "c"]},
            },
        ),
        (
            Measure(),
            {
                "type": "array", "minItems": 2, "maxItems": 2,
                "prefixItems": [{"type": "integer"}, {"type": "string", "enum": ["m"]}],
            },
        ),
    ],
)  # fmt: skip
def test_schema_of_a_form_field(field, expected):
    assert schema(field) == expected


def test_choices_of_a_function_are_not_listed():
    """They may be rows, and are queried when the form is used."""
    calls = []
    field = forms.ChoiceField(choices=lambda: calls.append(1) or LETTERS)
    calls.clear()
    assert schema(field) == {"type": "string"} and calls == []


CHICAGO = ZoneInfo("America/Chicago")


@pytest.mark.parametrize(
    ("field", "given", "value"),
    [
        (forms.CharField(), "x", "x"),
        (forms.CharField(), "", None),
        (forms.CharField(), None, None),
        (forms.BooleanField(), False, False),
        (forms.IntegerField(), 0, 0),
        (forms.IntegerField(), 5.0, 5),
        (forms.FloatField(), 1, 1.0),
        (forms.DecimalField(), 1.1, Decimal("1.1")),
        (forms.DecimalField(), "1.10", Decimal("1.10")),
        (forms.DecimalField(localize=True), "1.234", Decimal("1.234")),
        (forms.DateField(), "2026-01-02", date(2026, 1, 2)),
        (forms.DateField(input_formats=["%d.%m.%Y"]), "2026-01-02", date(2026, 1, 2)),
        (forms.TimeField(), "10:30", time(10, 30)),
        (forms.DurationField(), "PT1H", timedelta(hours=1)),
        (forms.DateTimeField(), "2026-01-02T12:00:00Z", datetime(2026, 1, 2, 6, tzinfo=CHICAGO)),
        (forms.DateTimeField(), "2026-01-02T12:00:00", datetime(2026, 1, 2, 12, tzinfo=CHICAGO)),
        (forms.JSONField(), {"a": None}, '{"a": null}'),
        (forms.JSONField(), {}, "{}"),
        (forms.JSONField(), "text", '"text"'),
        (forms.ChoiceField(choices=NUMBER), 1, 1),
        (forms.ChoiceField(choices=NUMBER), "1", "1"),
        (forms.MultipleChoiceField(choices=NUMBER), [1, "2"], [1, "2"]),
        (forms.MultipleChoiceField(choices=NUMBER), [], []),
        (Measure(), [3, "m"], [3, "m"]),
    ],
)
def test_json_is_converted_to_the_value_that_the_field_accepts(field, given, value, settings):
    settings.TIME_ZONE = "America/Chicago"
    found = read_value(field, given)
    assert found == value and type(found) is type(value)


def test_datetime_is_converted_to_the_current_time_zone(settings):
    """The ``clean`` method of a form may use the hour."""
    settings.TIME_ZONE = "America/Chicago"
    assert read_value(forms.DateTimeField(), "2026-01-02T12:00:00Z").hour == 6


def test_datetime_is_naive_without_use_tz(settings):
    settings.USE_TZ, settings.TIME_ZONE = False, "America/Chicago"
    assert read_value(forms.DateTimeField(), "2026-01-02T12:00:00Z") == datetime(2026, 1, 2, 6)


@pytest.mark.parametrize(
    ("field", "values"),
    [
        (forms.CharField(), [5, True, ["a"], {"a": 1}, "\ud800"]),
        (forms.BooleanField(), ["true", 1, 0, [True]]),
        (forms.NullBooleanField(), ["true", 1]),
        (forms.IntegerField(), [True, "5", 5.5, [5], {}, 2**64, float("nan")]),
        (forms.FloatField(), [True, "5", [5.0], 10**400]),
        (forms.DecimalField(), [True, "NaN", "Infinity", "1e400", "x", [1], float("inf"), {}]),
        (forms.DateField(), ["02.01.2026", 5, ["2026-01-02"], "2026-13-01", "today"]),
        (forms.DateTimeField(), ["yesterday", 5, {}]),
        (forms.TimeField(), ["25:00", "10:30+01:00", 10]),
        (forms.DurationField(), ["long", 5]),
        (forms.UUIDField(), ["x", 5]),
        (forms.ChoiceField(choices=NUMBER), [[1], {"a": 1}]),
        (forms.MultipleChoiceField(choices=NUMBER), [1, "1", [[1]], {"a": 1}, [None]]),
        (forms.JSONField(), [float("nan"), {"a": [float("inf")]}]),
        (Measure(), ["3m", [3], [3, "m", "n"], ["x", "m"]]),
    ],
)
def test_json_of_another_type_is_refused(field, values):
    for value in values:
        assert refusal_message(field, value), value


def test_message_of_a_refusal():
    assert refusal_message(forms.DateField(), "today") == "'today' is not a date (YYYY-MM-DD)."
    assert refusal_message(forms.IntegerField(), ["x"]) == "This is not an integer."
    assert len(refusal_message(forms.IntegerField(), "x" * 10_000)) < 200


def test_length_of_a_list_is_limited():
    assert "At most 1000" in refusal_message(forms.MultipleChoiceField(choices=NUMBER), [1] * 1001)


# Files.


def file(name="a.txt", data=b"hello", **more):
    return {"name": name, "data": base64.b64encode(data).decode()} | more


def test_file_is_read_from_name_and_base64_data():
    found = read_value(forms.FileField(), file())
    assert (found.name, found.content_type, found.read()) == ("a.txt", "text/plain", b"hello")
    assert schema(forms.FileField(max_length=5))["required"] == ["name", "data"]


@pytest.mark.parametrize(
    "name",
    ["../../etc/passwd", "/etc/passwd", "a\\b.txt", "..", ".", "", "a\0b", "a\nb", "x" * 256, 5],
)
def test_path_as_a_file_name_is_refused(name):
    assert refusal_message(forms.FileField(), file(name))


@pytest.mark.parametrize(
    "value", ["text", [], {"name": "a"}, file() | {"data": "not base64!"}, file(path="/")]
)
def test_invalid_file_is_refused(value):
    assert "is not a file" in refusal_message(forms.FileField(), value)


def test_size_of_a_file_is_limited(settings):
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"RESULT_SIZE": 1000}
    assert read_value(forms.FileField(), file(data=b"1" * 1000)).size == 1000
    assert "at most 1,000 bytes" in refusal_message(forms.FileField(), file(data=b"1" * 1001))


# Defaults.


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        (forms.CharField(initial="x"), "x"),
        (forms.CharField(initial=gettext_lazy("Yes")), "Yes"),
        (forms.BooleanField(required=False, initial=False), False),
        (forms.BooleanField(required=False, initial=True), True),
        (forms.IntegerField(initial=0), 0),
        (forms.DecimalField(initial=1.5), "1.5"),
        (forms.DateField(initial=date(2026, 1, 2)), "2026-01-02"),
        (forms.DateField(initial="2026-01-02"), "2026-01-02"),
        (forms.JSONField(initial={"a": 1}), {"a": 1}),
        (forms.ChoiceField(choices=Invoice.Status.choices, initial=Invoice.Status.OPEN), "open"),
        (forms.TypedChoiceField(choices=NUMBER, coerce=int, initial=2), 2),
        (forms.MultipleChoiceField(choices=NUMBER, initial=[2]), [2]),
        # A value that does not fit, or that a function computes, is not in the schema.
        (forms.BooleanField(initial=False), None),
        (forms.IntegerField(initial="many"), None),
        (forms.IntegerField(initial=0, min_value=1), None),
        (forms.IntegerField(initial=lambda: 7), None),
        (forms.ChoiceField(choices=NUMBER, initial=3), None),
        (forms.FileField(initial="a.txt"), None),
        (Measure(initial="3m"), None),
    ],
)
def test_initial_value_is_the_default(field, expected):
    found = default_value(field)
    assert found == expected and type(found) is type(expected)
