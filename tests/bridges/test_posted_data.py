"""POST data made from arguments: it equals what a browser would send, by Django's own widgets."""

import base64
from datetime import UTC, date, datetime, time
from decimal import Decimal

import pytest
from django import forms
from django.http import QueryDict

from django_mcp.bridges.form_input import post_data
from django_mcp.exceptions import InvalidArguments
from tests.shop.models import Customer, Invoice, Tag

from .test_form_input import Contact, Measure, Pick, PickMany


def clean_posted(form, arguments):
    """Return what the form's class reads from the POST data."""
    data, files = post_data(form, arguments)
    sent = QueryDict(mutable=True)
    for name, values in data.items():
        assert values and all(type(value) is str for value in values), (name, values)
        sent.setlist(name, values)
    options = {"instance": form.instance} if hasattr(form, "instance") else {}
    bound = type(form)(data=sent, files=files, prefix=form.prefix, **options)
    assert bound.is_valid(), bound.errors
    return bound.cleaned_data


class Everything(forms.Form):
    text = forms.CharField(widget=forms.Textarea)
    number = forms.IntegerField()
    price = forms.DecimalField(localize=True)
    day = forms.DateField()
    own = forms.DateField(
        input_formats=["%d.%m.%Y"], widget=forms.DateInput(format="%d.%m.%Y"), required=False
    )
    picked = forms.DateField(widget=forms.SelectDateWidget(years=[2025, 2026]))
    moment = forms.DateTimeField()
    split = forms.SplitDateTimeField()
    clock = forms.TimeField()
    box = forms.BooleanField(required=False)
    maybe = forms.NullBooleanField()
    one = forms.TypedChoiceField(choices=[(1, "One"), (2, "Two")], coerce=int)
    several = forms.MultipleChoiceField(
        choices=[("a", "A"), ("b", "B")], widget=forms.CheckboxSelectMultiple, required=False
    )
    data = forms.JSONField()
    far = Measure()


GIVEN = {
    "text": "a\r\nb", "number": 5, "price": "12.5", "day": "2026-01-02", "own": "2026-01-02",
    "picked": "2026-01-02", "moment": "2026-01-02T12:00:00Z", "split": "2026-01-02T12:00:00Z",
    "clock": "10:30", "box": True, "maybe": False, "one": 2, "several": ["a", "b"],
    "data": {"a": [None]}, "far": [3, "m"],
}  # fmt: skip


@pytest.mark.parametrize("language", ["en", "de", "fr"])
def test_posted_data_is_cleaned_to_the_arguments_in_any_locale(language, settings):
    from django.utils import translation

    settings.TIME_ZONE = "America/Chicago"
    noon = datetime(2026, 1, 2, 12, tzinfo=UTC)
    day = date(2026, 1, 2)
    with translation.override(language):
        assert clean_posted(Everything(prefix="p"), GIVEN) == {
            "text": "a\r\nb", "number": 5, "price": Decimal("12.5"), "day": day, "own": day,
            "picked": day, "moment": noon, "split": noon, "clock": time(10, 30), "box": True,
            "maybe": False, "one": 2, "several": ["a", "b"], "data": {"a": [None]}, "far": "3m",
        }  # fmt: skip


def test_omitted_fields_are_posted_with_their_initial_values():
    data, _ = post_data(Contact(initial={"mail": "a@example.com"}), {"name": "ann"})
    assert data == {
        "name": ["ann"], "mail": ["a@example.com"], "copies": ["1"], "urgent": ["on"],
        "token": ["kept"],
    }  # fmt: skip
    assert "urgent" not in post_data(Contact(), {"urgent": False})[0]
    assert "source" not in post_data(Contact(), {"source": "forged"})[0]


def test_omitted_fields_of_a_model_form_are_posted_with_the_rows_values(invoice):
    class InvoiceForm(forms.ModelForm):
        class Meta:
            model = Invoice
            fields = ["customer", "number", "status", "total", "issued", "paid_at", "tags"]

    tags = [Tag.objects.create(label=label) for label in "ab"]
    invoice.tags.set(tags)
    found = clean_posted(InvoiceForm(instance=invoice), {"total": 3})
    assert (found["total"], found["customer"]) == (3, invoice.customer)
    assert list(found["tags"].order_by("label")) == tags
    assert (found["number"], found["issued"]) == ("A-1", date(2026, 1, 2))


def test_rows_are_posted_as_keys(invoice):
    key = invoice.customer_id
    assert post_data(Pick(), {"whom": key})[0] == {"whom": [str(key)]}
    assert post_data(PickMany(), {"whom": [key, "x"]})[0] == {"whom": [str(key), "x"]}
    assert clean_posted(PickMany(), {"whom": [key]})["whom"].get() == Customer.objects.get()


def test_files_are_posted_and_cleared():
    class Upload(forms.Form):
        paper = forms.FileField(required=False)

    data = base64.b64encode(b"hello").decode()
    assert (
        clean_posted(Upload(), {"paper": {"name": "a.txt", "data": data}})["paper"].read()
        == b"hello"
    )
    assert post_data(Upload(), {}) == ({}, {})
    assert post_data(Upload(), {"paper": None}) == ({"paper-clear": ["on"]}, {})


@pytest.mark.parametrize(
    "given",
    [
        {"number": "5"}, {"day": "soon"}, {"box": "yes"}, {"several": "a"}, {"text": ["a"]},
        {"one": {}}, {"far": [1]}, {"data": float("nan")},
    ],
)  # fmt: skip
def test_value_that_no_browser_could_post_is_refused(given):
    with pytest.raises(InvalidArguments, match=f"^{next(iter(given))}: "):
        post_data(Everything(), GIVEN | given)
    for value in ({}, [[1]], 1.5, True):
        with pytest.raises(InvalidArguments):
            post_data(PickMany(), {"whom": value})
