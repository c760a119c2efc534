"""A form as the input of a tool: its schema, the form bound to arguments, what is said of it."""

import base64
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from django import forms
from django.db import connection
from django.test.utils import CaptureQueriesContext

import django_mcp as mcp
from django_mcp.bridges.form_input import FormInput, errors
from django_mcp.exceptions import InvalidArguments
from tests.declarations.world import asked
from tests.shop.models import Company, Customer, Invoice, Sample, Tag


class Contact(forms.Form):
    name = forms.CharField(max_length=40, help_text="As on the door.")
    mail = forms.EmailField(label="E-mail", required=False)
    copies = forms.IntegerField(min_value=1, initial=1)
    urgent = forms.BooleanField(required=False, initial=True)
    colours = forms.MultipleChoiceField(choices=[("r", "Red"), ("g", "Green")], required=False)
    source = forms.CharField(disabled=True, initial="mcp")
    token = forms.CharField(widget=forms.HiddenInput, initial="kept")

    def clean_name(self):
        if self.cleaned_data["name"] == "nobody":
            raise forms.ValidationError("Somebody, please.")
        return self.cleaned_data["name"].title()

    def clean(self):
        if self.cleaned_data.get("copies") == 13:
            raise forms.ValidationError("Not on a Friday.")


class InvoiceForm(forms.ModelForm):
    class Meta:
        model = Invoice
        fields = [
            "customer", "number", "status", "total", "issued", "paid_at", "tags", "attachment",
            "metadata",
        ]  # fmt: skip


@pytest.fixture
def find(server):
    """The catalog of a server that shows companies' own customers, and all tags."""

    @server.register(Customer)
    class CustomerResource(mcp.ModelResource):
        permission = mcp.AUTHENTICATED
        fields = ["name"]

        def get_queryset(self, request):
            return super().get_queryset(request).filter(company__members=request.user)

        def has_object_permission(self, request, obj, operation):
            return obj.name != "Forbidden"

    @server.register(Tag)
    class TagResource(mcp.ModelResource):
        uri = "tag://{label}"
        permission = mcp.AUTHENTICATED
        fields = ["label"]

        def get_queryset(self, request):
            return super().get_queryset(request).exclude(label="secret")

    return server.ready().find


def bound(form, arguments, user=None, find=None, **kwargs):
    return FormInput(form, find).form(asked(user), arguments, **kwargs)


def wrong(form, arguments, user=None, find=None, **kwargs):
    made = bound(form, arguments, user, find, **kwargs)
    assert not made.is_valid()
    return errors(made).splitlines()


def cleaned(form, arguments, user=None, find=None, **kwargs):
    made = bound(form, arguments, user, find, **kwargs)
    assert made.is_valid(), errors(made)
    return made.cleaned_data


# The schema.


def test_the_schema_is_the_form():
    assert FormInput(Contact).schema == {
        "type": "object",
        "properties": {
            "name": {
                "type": "string", "maxLength": 40, "title": "Name",
                "description": "As on the door.",
            },
            "mail": {
                "anyOf": [
                    {"type": "string", "format": "email", "maxLength": 320}, {"type": "null"},
                ],
                "title": "E-mail",
            },
            "copies": {"type": "integer", "minimum": 1, "title": "Copies", "default": 1},
            "urgent": {"type": "boolean", "title": "Urgent", "default": True},
            "colours": {
                "type": "array", "maxItems": 1000, "title": "Colours",
                "description": "r: Red; g: Green",
                "items": {"type": "string", "enum": ["r", "g"]},
            },
        },
        "required": ["name"],
        "additionalProperties": False,
    }  # fmt: skip


def test_rows_are_keys_and_never_listed(find, invoice, django_assert_num_queries):
    with django_assert_num_queries(0):
        made = FormInput(InvoiceForm, find)
    properties = made.schema["properties"]
    assert properties["customer"] == {
        "type": ["integer", "string"], "title": "Customer",
        "description": "Key or URI of the customer.",
    }  # fmt: skip
    assert properties["tags"]["items"]["type"] == "string"
    assert properties["tags"]["maxItems"] == 100
    assert "Carla" not in str(made.schema) and made.problems == []
    assert made.schema["required"] == ["customer", "number", "total", "issued"]


def test_a_row_that_may_be_left_out(find):
    class Pick(forms.Form):
        whom = forms.ModelChoiceField(Customer.objects.all(), required=False, help_text="Or not.")

    shown = FormInput(Pick, find).schema["properties"]["whom"]
    assert shown["anyOf"] == [{"type": ["integer", "string"]}, {"type": "null"}]
    assert shown["description"].startswith("Or not. Key or URI of the customer")


def test_nothing_is_required_of_a_change(find):
    made = FormInput(InvoiceForm, find, partial=True)
    assert "required" not in made.schema and "default" not in str(made.schema)


def test_what_is_excluded_keeps_its_value():
    made = FormInput(Contact, exclude=["copies"])
    assert "copies" not in made.schema["properties"]
    form = made.form(asked(), {"name": "ann"})
    assert form.is_valid() and form.cleaned_data["copies"] == 1


def test_an_unbound_form_is_as_good():
    class Dynamic(forms.Form):
        def __init__(self, names, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.fields |= {name: forms.CharField() for name in names}

    made = FormInput(Dynamic(["a", "b"]))
    assert list(made.schema["properties"]) == ["a", "b"]
    form = made.form(asked(), {"a": "1"}, names=["a", "c"])
    assert errors(form).splitlines() == ["c: This field is required."]


# Problems.


@pytest.mark.parametrize(
    ("field", "number"),
    [
        (forms.FilePathField(path="."), 122),
        (forms.CharField(widget=forms.PasswordInput), 123),
        (forms.CharField(label="Your API key"), 123),
        (forms.ModelChoiceField(Company.objects.all()), 124),
        (forms.ModelMultipleChoiceField(Company.objects.all()), 124),
        (forms.ModelChoiceField(None), 124),
    ],
)
def test_what_no_tool_may_ask_for(field, number, find):
    made = FormInput(type("Asked", (forms.Form,), {"a": field}), find)
    (problem,) = made.problems
    assert problem.number == number and problem.message.startswith("a: ") and problem.hint
    assert FormInput(type("Asked", (forms.Form,), {"a": field}), find, exclude="a").problems == []


# The form.


def test_a_form_cleans_what_is_given():
    given = {"name": "ann lee", "mail": "a@example.com", "urgent": False, "colours": ["g"]}
    assert cleaned(Contact, given) == {
        "name": "Ann Lee", "mail": "a@example.com", "copies": 1, "urgent": False,
        "colours": ["g"], "source": "mcp", "token": "kept",
    }  # fmt: skip


def test_what_is_not_named_is_what_the_form_shows():
    found = cleaned(Contact, {"name": "ann"})
    assert (found["urgent"], found["copies"], found["mail"]) == (True, 1, "")
    assert wrong(Contact, {}) == ["name: This field is required."]


@pytest.mark.parametrize("nothing", [None, ""])
def test_nothing_is_nothing(nothing):
    found = cleaned(Contact, {"name": "ann", "mail": nothing, "urgent": nothing})
    assert (found["mail"], found["urgent"]) == ("", False)
    assert wrong(Contact, {"name": nothing, "copies": nothing}) == [
        "name: This field is required.",
        "copies: This field is required.",
    ]


def test_everything_that_is_wrong_is_said_at_once():
    given = {"name": "nobody", "mail": "x", "copies": 0, "urgent": "yes", "colours": ["b"]}
    assert wrong(Contact, given) == [
        "name: Somebody, please.",
        "mail: Enter a valid email address.",
        "copies: Ensure this value is greater than or equal to 1.",
        "urgent: 'yes' is not true or false.",
        "colours: Select a valid choice. b is not one of the available choices. There are: r, g.",
    ]
    assert wrong(Contact, {"name": "ann", "copies": 13}) == ["the form: Not on a Friday."]


@pytest.mark.parametrize("name", ["source", "token", "csrfmiddlewaretoken", "is_staff"])
def test_what_the_form_takes_from_nobody(name):
    with pytest.raises(InvalidArguments, match=f"{name}: unknown argument. The arguments are: n"):
        bound(Contact, {"name": "ann", name: "forged"})


def test_what_this_form_takes_from_nobody():
    """The form of the request decides, not the one that the schema was made of."""

    class Locked(Contact):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.fields["name"].disabled = True
            self.fields["copies"].widget = forms.HiddenInput()
            del self.fields["mail"]

    for name in ("name", "copies", "mail"):
        with pytest.raises(InvalidArguments, match="The arguments are: urgent, colours"):
            FormInput(Contact).form(asked(), {name: "x"}, Locked)


@pytest.mark.parametrize(
    "given",
    [
        {"name": ["ann"]}, {"name": {"a": "ann"}}, {"name": True}, {"name": "ann", "copies": True},
        {"name": "ann", "copies": float("nan")}, {"name": "ann", "copies": "1"},
        {"name": "ann", "colours": "r"}, {"name": "ann", "colours": ["r"] * 1001},
        {"name": "a\0b"},
    ],
)  # fmt: skip
def test_type_confusion(given):
    assert len(wrong(Contact, given)) == 1


def test_what_is_said_has_bounds():
    long = wrong(Contact, {"name": "ann", "colours": ["x" * 100_000]})
    assert len("".join(long)) < 500
    many = type("Many", (forms.Form,), {f"f{n}": forms.CharField() for n in range(100)})
    assert len(wrong(many, {})) == 20
    with pytest.raises(InvalidArguments) as refused:
        bound(Contact, {f"{n}" * 200: 1 for n in range(1000)})
    assert len(str(refused.value)) < 5000


def test_a_prefix_and_the_forms_own_look_at_its_data():
    class Looking(forms.Form):
        prefix = "p"
        country = forms.CharField()
        cities = forms.MultipleChoiceField()

        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            country = self.data.get(self.add_prefix("country"))
            self.fields["cities"].choices = [(f"{country}-{n}", n) for n in range(3)]
            self.seen = self.data.getlist(self.add_prefix("cities")) if self.is_bound else []

    given = {"country": "fr", "cities": ["fr-1", "fr-2"]}
    form = bound(Looking, given)
    assert form.is_valid() and form.cleaned_data == given and form.seen == given["cities"]
    form = bound(Looking, given, prefix="q")
    assert form.is_valid() and list(form.data) == ["q-country", "q-cities"]
    assert "There are: de-0, de-1, de-2." in wrong(Looking, given | {"country": "de"})[0]


def test_choices_of_a_function_are_told_when_they_are_missed():
    class Pick(forms.Form):
        team = forms.ChoiceField(choices=lambda: [("a", "A"), ("b", "B")])

    assert FormInput(Pick).schema["properties"]["team"] == {"type": "string", "title": "Team"}
    assert wrong(Pick, {"team": "c"})[0].endswith("There are: a, b.")


class MeasureInput(forms.MultiWidget):
    def decompress(self, value):
        return [value[:-1], value[-1]] if value else [None, None]


class Measure(forms.MultiValueField):
    def __init__(self, **options):
        widget = MeasureInput([forms.NumberInput, forms.TextInput])
        super().__init__((forms.IntegerField(), forms.CharField()), widget=widget, **options)

    def compress(self, values):
        return "".join(map(str, values))


def test_fields_of_several_widgets(settings):
    class Meeting(forms.Form):
        when = forms.SplitDateTimeField(initial=datetime(2026, 1, 2, 12, tzinfo=UTC))
        day = forms.DateField(widget=forms.SelectDateWidget, required=False)
        far = Measure(required=False)

    found = cleaned(Meeting, {"when": "2026-03-04T05:06:07Z", "day": "2026-01-02", "far": [3, "m"]})
    assert found["when"] == datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
    assert (found["day"], found["far"]) == (date(2026, 1, 2), "3m")
    assert cleaned(Meeting, {})["when"] == datetime(2026, 1, 2, 12, tzinfo=UTC)
    assert wrong(Meeting, {"when": "soon", "far": [3]}) == [
        "when: 'soon' is not a date and time (ISO 8601).",
        "far: This is not a list of 2 values.",
    ]


# Rows.


@pytest.fixture
def rows(invoice, bob):
    """Customers of Acme: one to be seen, one that nobody may, and one of another company."""
    acme, bolts = Company.objects.get(name="Acme"), Company.objects.get(name="Bolts")
    # Keys that no other number of a query has.
    forbidden = Customer.objects.create(pk=999_997, company=acme, name="Forbidden")
    hidden = Customer.objects.create(pk=999_998, company=bolts, name="Hidden")
    return invoice.customer, forbidden, hidden


class Pick(forms.Form):
    whom = forms.ModelChoiceField(Customer.objects.all())


class PickMany(forms.Form):
    whom = forms.ModelMultipleChoiceField(Customer.objects.all())


@pytest.mark.parametrize("shape", ["key", "text", "uri"])
def test_a_row_by_its_key_or_its_address(find, rows, alice, shape):
    key = rows[0].pk
    given = {"key": key, "text": str(key), "uri": f"model://shop/customer/{key}"}[shape]
    assert cleaned(Pick, {"whom": given}, alice, find) == {"whom": rows[0]}
    assert list(cleaned(PickMany, {"whom": [given, key]}, alice, find)["whom"]) == [rows[0]]


def test_a_row_by_another_of_its_fields(find, alice):
    Tag.objects.create(label="blue")

    class Tagged(forms.Form):
        tag = forms.ModelChoiceField(Tag.objects.all(), to_field_name="label")

    for given in ("blue", "tag://blue"):
        assert cleaned(Tagged, {"tag": given}, alice, find)["tag"].label == "blue"


@pytest.mark.parametrize("form", [Pick, PickMany])
def test_a_hidden_row_and_a_missing_one_are_the_same(find, rows, alice, form):
    """In words and in queries, whatever the form's own queryset would find."""
    _, forbidden, hidden = rows
    told = set()
    # MariaDB gives keys after the highest one that was ever there, so the missing one is lower.
    for key in (forbidden.pk, hidden.pk, 899_999):
        given = key if form is Pick else [key]
        with CaptureQueriesContext(connection) as queries:
            (line,) = wrong(form, {"whom": given}, alice, find)
        told.add(
            (
                line.replace(str(key), "KEY"),
                len(queries),
                queries[0]["sql"].replace(str(key), "KEY"),
            )
        )
        assert "Hidden" not in line and "Forbidden" not in line
    assert len(told) == 1, told


def test_of_several_rows_all_or_none(find, rows, alice):
    seen, _, hidden = rows
    assert (
        f"{hidden.pk} is not one" in wrong(PickMany, {"whom": [seen.pk, hidden.pk]}, alice, find)[0]
    )


@pytest.mark.parametrize(
    "value", ["x", "model://shop/tag/1", True, {}, [1], 1.5, "a\0b", "9" * 5000]
)
def test_what_is_no_key(find, rows, alice, value):
    assert len(wrong(Pick, {"whom": value}, alice, find)) == 1
    assert len(wrong(PickMany, {"whom": [value]}, alice, find)) == 1


def test_keys_are_counted(find, rows, alice, django_assert_num_queries):
    with django_assert_num_queries(0):
        assert wrong(PickMany, {"whom": list(range(101))}, alice, find)
        assert wrong(PickMany, {"whom": "1"}, alice, find)


def test_the_fields_own_queryset_counts_too(find, rows, alice):
    class Narrow(forms.Form):
        whom = forms.ModelChoiceField(Customer.objects.exclude(name="Carla"))

    assert wrong(Narrow, {"whom": rows[0].pk}, alice, find) == wrong(
        Narrow, {"whom": 0}, alice, find
    )


def test_without_resources_keys_go_as_they_are(rows):
    """For a view, which looks for itself."""
    assert FormInput(Pick).schema["properties"]["whom"]["type"] == ["integer", "string"]
    assert cleaned(Pick, {"whom": str(rows[2].pk)}) == {"whom": rows[2]}
    assert wrong(Pick, {"whom": [rows[2].pk]}) == wrong(Pick, {"whom": "x"})


# Rows to change.


def changed(invoice, find, alice, **given):
    form = FormInput(InvoiceForm, find, partial=True).form(asked(alice), given, instance=invoice)
    assert form.is_valid(), errors(form)
    form.save()
    invoice.refresh_from_db()
    return form.changed_data


def test_a_change_changes_what_it_names(find, invoice, alice):
    """Also where what is not named is a hidden row, a set, a box or a microsecond."""
    moment = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
    hidden = Customer.objects.create(company=Company.objects.create(name="X"), name="Hidden")
    Invoice.objects.update(paid_at=moment, customer=hidden, metadata={"a": [1]})
    invoice.refresh_from_db()
    invoice.tags.set([Tag.objects.create(label="secret"), Tag.objects.create(label="blue")])
    assert changed(invoice, find, alice, total="99.95") == ["total"]
    assert (invoice.total, invoice.paid_at, invoice.customer) == (Decimal("99.95"), moment, hidden)
    assert invoice.metadata == {"a": [1]} and invoice.number == "A-1" and invoice.status == "open"
    assert sorted(tag.label for tag in invoice.tags.all()) == ["blue", "secret"]
    assert changed(invoice, find, alice, paid_at=None, tags=[]) == ["paid_at", "tags"]
    assert invoice.paid_at is None and invoice.tags.get().label == "secret"
    green = Tag.objects.create(label="green")
    assert changed(invoice, find, alice, tags=["green"]) == ["tags"]
    assert {*invoice.tags.all()} == {green, Tag.objects.get(label="secret")}
    assert wrong(InvoiceForm, {"tags": ["secret"]}, alice, find, instance=invoice)


def test_a_hidden_link_that_is_no_choice_any_more_is_not_named(find, invoice, alice):
    secret, blue = (Tag.objects.create(label=label) for label in ("secret", "blue"))
    invoice.tags.set([secret])

    class Blues(forms.ModelForm):
        tags = forms.ModelMultipleChoiceField(Tag.objects.filter(label="blue"), required=False)

        class Meta:
            model = Invoice
            fields = ["tags"]

    found = cleaned(Blues, {"tags": ["blue"]}, alice, find, instance=invoice)
    assert list(found["tags"]) == [blue]
    (line,) = wrong(Blues, {}, alice, find, instance=invoice)
    assert str(secret.pk) not in line and "secret" not in line


def test_a_form_of_other_rows_is_bound_through_their_resource(find, invoice, alice):
    """Whatever the form is that the schema was made of."""

    class Other(forms.Form):
        whom = forms.ModelChoiceField(Tag.objects.all())

    Tag.objects.create(pk=invoice.customer_id, label="secret")
    made = FormInput(Pick, find)
    form = made.form(asked(alice), {"whom": invoice.customer_id}, Other)
    assert errors(form) == errors(made.form(asked(alice), {"whom": 99}, Other)) != ""


def test_a_form_may_want_an_argument_of_any_name():
    class Wanting(forms.Form):
        a = forms.CharField()

        def __init__(self, *args, request=None, arguments=None, form_class=None, **kwargs):
            super().__init__(*args, **kwargs)
            self.fields["a"].initial = (request, arguments, form_class)

    kwargs = {"request": 1, "arguments": 2, "form_class": 3}
    form = FormInput(Wanting).form(asked(), {"a": "x"}, **kwargs)
    assert form.is_valid() and form.fields["a"].initial == (1, 2, 3)


def test_what_is_shown_empty_is_required():
    class Empty(forms.Form):
        agree = forms.BooleanField(initial=False)
        agreed = forms.BooleanField(initial=True)
        several = forms.MultipleChoiceField(choices=[("a", "A")], initial=[])

    assert FormInput(Empty).schema["required"] == ["agree", "several"]


def test_boxes_stay_ticked(db):
    class SampleForm(forms.ModelForm):
        class Meta:
            model = Sample
            fields = ["name", "checked", "rank"]

    row = Sample.objects.create(name="a", checked=True)
    for given, checked in (({"rank": 1}, True), ({"checked": False}, False), ({"rank": 2}, False)):
        form = bound(SampleForm, given, instance=row)
        assert form.is_valid() and form.save().checked is checked


def test_files_stay_where_they_are(find, invoice, alice, settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path
    data = base64.b64encode(b"hello").decode()
    changed(invoice, find, alice, attachment={"name": "a.txt", "data": data})
    name = invoice.attachment.name
    assert (tmp_path / name).read_bytes() == b"hello" and name.startswith("invoices/a")
    (tmp_path / name).unlink()  # nobody looks for it
    changed(invoice, find, alice, total=1)
    assert invoice.attachment.name == name
    changed(invoice, find, alice, attachment=None)
    assert not invoice.attachment


def test_what_was_not_given_is_not_quoted(invoice):
    """It may be what the caller must not know."""

    class Statuses(forms.ModelForm):
        status = forms.ChoiceField(choices=[("a", "A")])

        class Meta:
            model = Invoice
            fields = ["status", "total"]

    Invoice.objects.update(status="secret")
    invoice.refresh_from_db()
    said = wrong(Statuses, {"total": 1}, instance=invoice)
    assert said == ["status: What it is now is not valid: give it another value."]


def test_unique_values_are_the_forms_to_judge(find, invoice, alice):
    said = wrong(
        InvoiceForm,
        {"customer": invoice.customer_id, "number": "A-1", "total": 1, "issued": "2026-01-02"},
        alice,
        find,
    )
    assert said == ["number: Invoice with this Number already exists."]
