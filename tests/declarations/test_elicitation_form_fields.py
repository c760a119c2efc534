"""Fields of Django forms in a question: types, choices, limits and initial values."""

from datetime import UTC, date, datetime, time
from decimal import Decimal

import pytest
from django import forms
from django.utils.translation import gettext_lazy

from django_mcp.declarations.elicitation_forms import form_schema
from tests.shop.models import Company, Customer, Invoice


def property_of(field, **form):
    """Return the schema of a form's only field."""
    made = type("Asked", (forms.Form,), {"a": field} | form)
    schema = form_schema(made())
    assert schema["type"] == "object" and schema["required"] == (["a"] if field.required else [])
    return schema["properties"]["a"]


DAY = "2026-01-02T00:00:00"
TITLED = {"type": "string", "oneOf": [{"const": "a", "title": "An A"}]}


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        (forms.CharField(), {"type": "string"}),
        (
            forms.CharField(min_length=2, max_length=5),
            {"type": "string", "minLength": 2, "maxLength": 5},
        ),
        (forms.SlugField(), {"type": "string"}),
        (forms.CharField(widget=forms.PasswordInput), {"type": "string", "format": "hidden"}),
        (forms.UUIDField(), {"type": "string"}),
        (forms.TimeField(), {"type": "string"}),
        (forms.JSONField(), {"type": "string"}),
        (forms.BooleanField(), {"type": "boolean"}),
        (forms.NullBooleanField(), {"type": "boolean"}),
        (
            forms.IntegerField(min_value=0, max_value=9),
            {"type": "integer", "minimum": 0, "maximum": 9},
        ),
        (forms.FloatField(min_value=0.5), {"type": "number", "minimum": 0.5}),
        (
            forms.DecimalField(min_value=Decimal("0.01"), max_value=Decimal("10")),
            {"type": "number", "minimum": 0.01, "maximum": 10},
        ),
        (forms.EmailField(max_length=50), {"type": "string", "format": "email", "maxLength": 50}),
        (forms.URLField(assume_scheme="https"), {"type": "string", "format": "uri"}),
        (forms.DateField(), {"type": "string", "format": "date"}),
        (forms.DateTimeField(), {"type": "string", "format": "date-time"}),
        (forms.SplitDateTimeField(), {"type": "string", "format": "date-time"}),
        (forms.ChoiceField(choices=[("a", "An A")]), TITLED),
        (forms.ChoiceField(choices=[("", "---"), ("a", "An A")]), TITLED),
        (forms.ChoiceField(choices=[("Group", [("a", "An A")])]), TITLED),
        (forms.ChoiceField(choices=lambda: [("a", "An A")]), TITLED),
        (
            forms.TypedChoiceField(choices=[(1, gettext_lazy("Yes"))], coerce=int),
            {"type": "string", "oneOf": [{"const": "1", "title": "Yes"}]},
        ),
        (
            forms.MultipleChoiceField(choices=[("a", "An A")]),
            {"type": "array", "items": {"anyOf": TITLED["oneOf"]}},
        ),
    ],
)
def test_schema_of_a_form_field(field, expected):
    assert property_of(field) == expected


def test_label_and_help_text_are_title_and_description():
    field = forms.CharField(label=gettext_lazy("Yes"), help_text="As on the card.")
    assert property_of(field) == {
        "type": "string",
        "title": "Yes",
        "description": "As on the card.",
    }
    assert type(property_of(field)["title"]) is str


@pytest.mark.parametrize(
    ("field", "default"),
    [
        (forms.CharField(initial="x"), "x"),
        (forms.BooleanField(required=False, initial=False), False),
        (forms.BooleanField(required=False, initial=True), True),
        (forms.IntegerField(initial=0), 0),
        (forms.IntegerField(initial=lambda: 7), 7),
        (forms.FloatField(initial=0.5), 0.5),
        (forms.DecimalField(initial=Decimal("1.50")), 1.5),
        (forms.DecimalField(initial=Decimal("2.00")), 2),
        (forms.DateField(initial=date(2026, 1, 2)), "2026-01-02"),
        (forms.DateField(initial=lambda: date(2026, 1, 2)), "2026-01-02"),
        (forms.DateTimeField(initial=datetime(2026, 1, 2, tzinfo=UTC)), f"{DAY}+00:00"),
        (forms.DateTimeField(initial=datetime(2026, 1, 2)), f"{DAY}-06:00"),
        (forms.TimeField(initial=time(10, 30)), "10:30:00"),
        (forms.CharField(initial=gettext_lazy("Yes")), "Yes"),
        (forms.ChoiceField(choices=Invoice.Status.choices, initial=Invoice.Status.OPEN), "open"),
        (forms.ChoiceField(choices=[(1, "One")], initial=1), "1"),
        (forms.MultipleChoiceField(choices=[(1, "One"), (2, "Two")], initial=[2]), ["2"]),
    ],
)
def test_initial_value_is_the_default(field, default, settings):
    settings.TIME_ZONE = "America/Chicago"
    found = property_of(field)["default"]
    assert found == default and type(found) is type(default)


@pytest.mark.parametrize(
    "field",
    [
        forms.CharField(),
        forms.CharField(initial=""),
        forms.CharField(max_length=2, initial="too long"),
        forms.IntegerField(initial="many"),
        forms.IntegerField(min_value=1, initial=0),
        forms.ChoiceField(choices=[("a", "A")], initial="b"),
        forms.ChoiceField(choices=[("a", "A")], initial=lambda: None),
    ],
)
def test_invalid_initial_value_is_not_the_default(field):
    assert "default" not in property_of(field)


@pytest.mark.parametrize(
    "field", [forms.FileField(), forms.ImageField(), forms.MultiValueField([forms.CharField()])]
)
def test_unsupported_form_field_is_refused(field):
    with pytest.raises(TypeError, match=f"a: a question cannot contain a {type(field).__name__}"):
        property_of(field)


def test_choice_field_without_choices_is_refused():
    with pytest.raises(TypeError, match="a: there are no choices"):
        property_of(forms.ChoiceField(choices=[("", "---")]))


def test_disabled_field_is_not_part_of_the_question():
    field = forms.CharField(disabled=True, initial="x")
    schema = form_schema(type("Asked", (forms.Form,), {"a": field, "b": forms.CharField()})())
    assert list(schema["properties"]) == schema["required"] == ["b"]


def test_fields_changed_in_init_are_used():
    class Asked(forms.Form):
        a = forms.ChoiceField()

        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.fields["a"].choices = [("a", "An A")]

    assert form_schema(Asked())["properties"]["a"] == TITLED


# Choices of rows.


@pytest.fixture
def customers(invoice):
    company = Company.objects.get(name="Acme")
    return [invoice.customer, Customer.objects.create(company=company, name="Dora")]


def test_model_choice_fields_list_their_rows(customers):
    carla, dora = customers
    rows = Customer.objects.order_by("name")
    one = property_of(forms.ModelChoiceField(rows, initial=dora))
    titled = [{"const": str(row.pk), "title": row.name} for row in (carla, dora)]
    assert one == {"type": "string", "oneOf": titled, "default": str(dora.pk)}
    several = property_of(forms.ModelMultipleChoiceField(rows, initial=[carla, dora.pk]))
    assert several["items"] == {"anyOf": titled}
    assert several["default"] == [str(carla.pk), str(dora.pk)]
    by_name = property_of(forms.ModelChoiceField(rows, to_field_name="name"))
    assert by_name["oneOf"][0] == {"const": "Carla", "title": "Carla"}


def test_model_choice_field_without_rows_is_refused(db):
    with pytest.raises(TypeError, match="no choices"):
        property_of(forms.ModelChoiceField(Customer.objects.all()))
