"""Forms as input of tools: the schema, the bound form, and messages about invalid values."""

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
from tests.declarations.helpers import make_request
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
    """Return the lookup of a catalog in which users see their companies' customers, and tags."""

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


def bind_form(form, arguments, user=None, find=None, **kwargs):
    return FormInput(form, find).form(make_request(user), arguments, **kwargs)


def error_lines(form, arguments, user=None, find=None, **kwargs):
    made = bind_form(form, arguments, user, find, **kwargs)
    assert not made.is_valid()
    return errors(made).splitlines()


def cleaned_data(form, arguments, user=None, find=None, **kwargs):
    made = bind_form(form, arguments, user, find, **kwargs)
    assert made.is_valid(), errors(made)
    return made.cleaned_data


# The schema.


def test_schema_of_a_form():
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


def test_schema_of_row_fields_accepts_keys_and_lists_no_rows(
    find, invoice, django_assert_num_queries
):
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


def test_schema_of_an_optional_row_field(find):
    class Pick(forms.Form):
        whom = forms.ModelChoiceField(Customer.objects.all(), required=False, help_text="Or not.")

    shown = FormInput(Pick, find).schema["properties"]["whom"]
    assert shown["anyOf"] == [{"type": ["integer", "string"]}, {"type": "null"}]
    assert shown["description"].startswith("Or not. Key or URI of the customer")


def test_partial_schema_has_no_required_fields_and_defaults(find):
    made = FormInput(InvoiceForm, find, partial=True)
    assert "required" not in made.schema and "default" not in str(made.schema)


def test_excluded_field_keeps_its_initial_value():
    made = FormInput(Contact, exclude=["copies"])
    assert "copies" not in made.schema["properties"]
    form = made.form(make_request(), {"name": "ann"})
    assert form.is_valid() and form.cleaned_data["copies"] == 1


def test_form_instance_can_be_used_instead_of_a_class():
    class Dynamic(forms.Form):
        def __init__(self, names, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.fields |= {name: forms.CharField() for name in names}

    made = FormInput(Dynamic(["a", "b"]))
    assert list(made.schema["properties"]) == ["a", "b"]
    form = made.form(make_request(), {"a": "1"}, names=["a", "c"])
    assert errors(form).splitlines() == ["c: This field is required."]


# Checks.


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
def test_secret_or_unsupported_field_is_a_problem(field, number, find):
    made = FormInput(type("Asked", (forms.Form,), {"a": field}), find)
    (problem,) = made.problems
    assert problem.number == number and problem.message.startswith("a: ") and problem.hint
    assert FormInput(type("Asked", (forms.Form,), {"a": field}), find, exclude="a").problems == []


# Binding.


def test_form_cleans_the_arguments():
    given = {"name": "ann lee", "mail": "a@example.com", "urgent": False, "colours": ["g"]}
    assert cleaned_data(Contact, given) == {
        "name": "Ann Lee", "mail": "a@example.com", "copies": 1, "urgent": False,
        "colours": ["g"], "source": "mcp", "token": "kept",
    }  # fmt: skip


def test_omitted_field_has_its_initial_value():
    found = cleaned_data(Contact, {"name": "ann"})
    assert (found["urgent"], found["copies"], found["mail"]) == (True, 1, "")
    assert error_lines(Contact, {}) == ["name: This field is required."]


@pytest.mark.parametrize("nothing", [None, ""])
def test_null_and_empty_text_are_empty_values(nothing):
    found = cleaned_data(Contact, {"name": "ann", "mail": nothing, "urgent": nothing})
    assert (found["mail"], found["urgent"]) == ("", False)
    assert error_lines(Contact, {"name": nothing, "copies": nothing}) == [
        "name: This field is required.",
        "copies: This field is required.",
    ]


def test_all_errors_of_a_form_are_reported_together():
    given = {"name": "nobody", "mail": "x", "copies": 0, "urgent": "yes", "colours": ["b"]}
    assert error_lines(Contact, given) == [
        "name: Somebody, please.",
        "mail: Enter a valid email address.",
        "copies: Ensure this value is greater than or equal to 1.",
        "urgent: 'yes' is not true or false.",
        "colours: Select a valid choice. b is not one of the available choices. There are: r, g.",
    ]
    assert error_lines(Contact, {"name": "ann", "copies": 13}) == ["the form: Not on a Friday."]


@pytest.mark.parametrize("name", ["source", "token", "csrfmiddlewaretoken", "is_staff"])
def test_disabled_hidden_or_unknown_field_is_refused(name):
    with pytest.raises(InvalidArguments, match=f"{name}: unknown argument. The arguments are: n"):
        bind_form(Contact, {"name": "ann", name: "forged"})


def test_field_disabled_for_this_request_is_refused():
    """The form of the request decides, and not the form from which the schema was made."""

    class Locked(Contact):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.fields["name"].disabled = True
            self.fields["copies"].widget = forms.HiddenInput()
            del self.fields["mail"]

    for name in ("name", "copies", "mail"):
        with pytest.raises(InvalidArguments, match="The arguments are: urgent, colours"):
            FormInput(Contact).form(make_request(), {name: "x"}, Locked)


@pytest.mark.parametrize(
    "given",
    [
        {"name": ["ann"]}, {"name": {"a": "ann"}}, {"name": True}, {"name": "ann", "copies": True},
        {"name": "ann", "copies": float("nan")}, {"name": "ann", "copies": "1"},
        {"name": "ann", "colours": "r"}, {"name": "ann", "colours": ["r"] * 1001},
        {"name": "a\0b"},
    ],
)  # fmt: skip
def test_value_of_another_type_is_one_error(given):
    assert len(error_lines(Contact, given)) == 1


def test_length_and_number_of_errors_are_limited():
    long = error_lines(Contact, {"name": "ann", "colours": ["x" * 100_000]})
    assert len("".join(long)) < 500
    many = type("Many", (forms.Form,), {f"f{n}": forms.CharField() for n in range(100)})
    assert len(error_lines(many, {})) == 20
    with pytest.raises(InvalidArguments) as refused:
        bind_form(Contact, {f"{n}" * 200: 1 for n in range(1000)})
    assert len(str(refused.value)) < 5000


def test_form_with_a_prefix_can_read_its_own_data():
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
    form = bind_form(Looking, given)
    assert form.is_valid() and form.cleaned_data == given and form.seen == given["cities"]
    form = bind_form(Looking, given, prefix="q")
    assert form.is_valid() and list(form.data) == ["q-country", "q-cities"]
    assert "There are: de-0, de-1, de-2." in error_lines(Looking, given | {"country": "de"})[0]


def test_choices_of_a_function_are_listed_in_the_error():
    class Pick(forms.Form):
        team = forms.ChoiceField(choices=lambda: [("a", "A"), ("b", "B")])

    assert FormInput(Pick).schema["properties"]["team"] == {"type": "string", "title": "Team"}
    assert error_lines(Pick, {"team": "c"})[0].endswith("There are: a, b.")


class MeasureInput(forms.MultiWidget):
    def decompress(self, value):
        return [value[:-1], value[-1]] if value else [None, None]


class Measure(forms.MultiValueField):
    def __init__(self, **options):
        widget = MeasureInput([forms.NumberInput, forms.TextInput])
        super().__init__((forms.IntegerField(), forms.CharField()), widget=widget, **options)

    def compress(self, values):
        return "".join(map(str, values))


def test_multi_widget_fields(settings):
    class Meeting(forms.Form):
        when = forms.SplitDateTimeField(initial=datetime(2026, 1, 2, 12, tzinfo=UTC))
        day = forms.DateField(widget=forms.SelectDateWidget, required=False)
        far = Measure(required=False)

    found = cleaned_data(
        Meeting, {"when": "2026-03-04T05:06:07Z", "day": "2026-01-02", "far": [3, "m"]}
    )
    assert found["when"] == datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
    assert (found["day"], found["far"]) == (date(2026, 1, 2), "3m")
    assert cleaned_data(Meeting, {})["when"] == datetime(2026, 1, 2, 12, tzinfo=UTC)
    assert error_lines(Meeting, {"when": "soon", "far": [3]}) == [
        "when: 'soon' is not a date and time (ISO 8601).",
        "far: This is not a list of 2 values.",
    ]


# Rows.


@pytest.fixture
def rows(invoice, bob):
    """Create a visible customer, one without object permission, and one of another company."""
    acme, bolts = Company.objects.get(name="Acme"), Company.objects.get(name="Bolts")
    # Keys that do not occur elsewhere in the SQL.
    forbidden = Customer.objects.create(pk=999_997, company=acme, name="Forbidden")
    hidden = Customer.objects.create(pk=999_998, company=bolts, name="Hidden")
    return invoice.customer, forbidden, hidden


class Pick(forms.Form):
    whom = forms.ModelChoiceField(Customer.objects.all())


class PickMany(forms.Form):
    whom = forms.ModelMultipleChoiceField(Customer.objects.all())


@pytest.mark.parametrize("shape", ["key", "text", "uri"])
def test_row_is_chosen_by_key_or_uri(find, rows, alice, shape):
    key = rows[0].pk
    given = {"key": key, "text": str(key), "uri": f"model://shop/customer/{key}"}[shape]
    assert cleaned_data(Pick, {"whom": given}, alice, find) == {"whom": rows[0]}
    assert list(cleaned_data(PickMany, {"whom": [given, key]}, alice, find)["whom"]) == [rows[0]]


def test_row_is_chosen_by_the_to_field_name(find, alice):
    Tag.objects.create(label="blue")

    class Tagged(forms.Form):
        tag = forms.ModelChoiceField(Tag.objects.all(), to_field_name="label")

    for given in ("blue", "tag://blue"):
        assert cleaned_data(Tagged, {"tag": given}, alice, find)["tag"].label == "blue"


@pytest.mark.parametrize("form", [Pick, PickMany])
def test_hidden_and_missing_rows_have_the_same_error_and_queries(find, rows, alice, form):
    """The form's own queryset contains the hidden rows."""
    _, forbidden, hidden = rows
    results = set()
    # MariaDB assigns keys above the highest that ever existed, so the missing key is lower.
    for key in (forbidden.pk, hidden.pk, 899_999):
        given = key if form is Pick else [key]
        with CaptureQueriesContext(connection) as queries:
            (line,) = error_lines(form, {"whom": given}, alice, find)
        results.add(
            (
                line.replace(str(key), "KEY"),
                len(queries),
                queries[0]["sql"].replace(str(key), "KEY"),
            )
        )
        assert "Hidden" not in line and "Forbidden" not in line
    assert len(results) == 1, results


def test_list_with_a_hidden_row_is_refused(find, rows, alice):
    seen, _, hidden = rows
    assert (
        f"{hidden.pk} is not one"
        in error_lines(PickMany, {"whom": [seen.pk, hidden.pk]}, alice, find)[0]
    )


@pytest.mark.parametrize("required", [True, False])
@pytest.mark.parametrize("is_linked", [True, False])
def test_empty_list_does_not_reveal_whether_hidden_links_remain(
    find, rows, alice, required, is_linked
):
    """The form keeps hidden links. So it would get a value only if there are some."""
    seen, _, hidden = rows
    visible = [seen] if is_linked else []

    class Links(forms.Form):
        whom = forms.ModelMultipleChoiceField(Customer.objects.all(), required=required)

    results = []
    for linked in ([*visible, hidden], visible):
        with CaptureQueriesContext(connection) as queries:
            form = FormInput(Links, find).form(
                make_request(alice), {"whom": []}, initial={"whom": linked}
            )
            lines = errors(form) if not form.is_valid() else []
        results.append((lines, len(queries)))
        if not required:
            assert list(form.cleaned_data["whom"]) == [one for one in linked if one == hidden]
    assert results[0] == results[1]
    assert bool(results[0][0]) == required


def test_list_does_not_reveal_whether_all_links_are_hidden(find, rows, alice):
    seen, _, hidden = rows
    numbers = set()
    for linked in ([hidden], []):
        with CaptureQueriesContext(connection) as queries:
            found = cleaned_data(
                PickMany, {"whom": [seen.pk]}, alice, find, initial={"whom": linked}
            )
        assert set(found["whom"]) == {seen, *linked}
        numbers.add(len(queries))
    assert len(numbers) == 1


@pytest.mark.parametrize("required", [True, False])
def test_kept_links_do_not_reveal_whether_all_are_hidden(find, alice, invoice, required):
    class Links(forms.ModelForm):
        tags = forms.ModelMultipleChoiceField(Tag.objects.all(), required=required)

        class Meta:
            model = Invoice
            fields = ["number", "tags"]

    secret = Tag.objects.create(label="secret")
    numbers = set()
    for linked in ([secret], []):
        invoice.tags.set(linked)
        with CaptureQueriesContext(connection) as queries:
            cleaned_data(Links, {"number": "A-7"}, alice, find, instance=invoice)
        numbers.add(len(queries))
    assert len(numbers) == 1


def test_form_without_an_initial_value_runs_no_query_for_links(find, rows, alice):
    """A new row has no links, so there is nothing to hide."""
    with CaptureQueriesContext(connection) as queries:
        cleaned_data(PickMany, {"whom": [rows[0].pk]}, alice, find)
    assert len(queries) == 2  # of the resource and of the form


@pytest.mark.parametrize(
    "value", ["x", "model://shop/tag/1", True, {}, [1], 1.5, "a\0b", "9" * 5000]
)
def test_invalid_key_is_one_error(find, rows, alice, value):
    assert len(error_lines(Pick, {"whom": value}, alice, find)) == 1
    assert len(error_lines(PickMany, {"whom": [value]}, alice, find)) == 1


def test_list_of_too_many_keys_is_refused_without_a_query(
    find, rows, alice, django_assert_num_queries
):
    with django_assert_num_queries(0):
        assert error_lines(PickMany, {"whom": list(range(101))}, alice, find)
        assert error_lines(PickMany, {"whom": "1"}, alice, find)


def test_queryset_of_the_form_field_restricts_the_rows(find, rows, alice):
    class Narrow(forms.Form):
        whom = forms.ModelChoiceField(Customer.objects.exclude(name="Carla"))

    assert error_lines(Narrow, {"whom": rows[0].pk}, alice, find) == error_lines(
        Narrow, {"whom": 0}, alice, find
    )


def test_keys_are_not_restricted_without_resources(rows):
    """A view restricts rows itself."""
    assert FormInput(Pick).schema["properties"]["whom"]["type"] == ["integer", "string"]
    assert cleaned_data(Pick, {"whom": str(rows[2].pk)}) == {"whom": rows[2]}
    assert error_lines(Pick, {"whom": [rows[2].pk]}) == error_lines(Pick, {"whom": "x"})


# Changing rows.


def change(invoice, find, alice, **given):
    form = FormInput(InvoiceForm, find, partial=True).form(
        make_request(alice), given, instance=invoice
    )
    assert form.is_valid(), errors(form)
    form.save()
    invoice.refresh_from_db()
    return form.changed_data


def test_partial_form_changes_only_given_fields(find, invoice, alice):
    """Hidden rows, sets, booleans and microseconds of other fields are unchanged."""
    moment = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
    hidden = Customer.objects.create(company=Company.objects.create(name="X"), name="Hidden")
    Invoice.objects.update(paid_at=moment, customer=hidden, metadata={"a": [1]})
    invoice.refresh_from_db()
    invoice.tags.set([Tag.objects.create(label="secret"), Tag.objects.create(label="blue")])
    assert change(invoice, find, alice, total="99.95") == ["total"]
    assert (invoice.total, invoice.paid_at, invoice.customer) == (Decimal("99.95"), moment, hidden)
    assert invoice.metadata == {"a": [1]} and invoice.number == "A-1" and invoice.status == "open"
    assert sorted(tag.label for tag in invoice.tags.all()) == ["blue", "secret"]
    assert change(invoice, find, alice, paid_at=None, tags=[]) == ["paid_at", "tags"]
    assert invoice.paid_at is None and invoice.tags.get().label == "secret"
    green = Tag.objects.create(label="green")
    assert change(invoice, find, alice, tags=["green"]) == ["tags"]
    assert {*invoice.tags.all()} == {green, Tag.objects.get(label="secret")}
    assert error_lines(InvoiceForm, {"tags": ["secret"]}, alice, find, instance=invoice)


def test_hidden_related_row_is_not_named_in_errors(find, invoice, alice):
    secret, blue = (Tag.objects.create(label=label) for label in ("secret", "blue"))
    invoice.tags.set([secret])

    class Blues(forms.ModelForm):
        tags = forms.ModelMultipleChoiceField(Tag.objects.filter(label="blue"), required=False)

        class Meta:
            model = Invoice
            fields = ["tags"]

    found = cleaned_data(Blues, {"tags": ["blue"]}, alice, find, instance=invoice)
    assert list(found["tags"]) == [blue]
    (line,) = error_lines(Blues, {}, alice, find, instance=invoice)
    assert str(secret.pk) not in line and "secret" not in line


def test_rows_of_the_requests_form_are_restricted_by_their_resource(find, invoice, alice):
    """The schema was made from another form."""

    class Other(forms.Form):
        whom = forms.ModelChoiceField(Tag.objects.all())

    Tag.objects.create(pk=invoice.customer_id, label="secret")
    made = FormInput(Pick, find)
    form = made.form(make_request(alice), {"whom": invoice.customer_id}, Other)
    assert errors(form) == errors(made.form(make_request(alice), {"whom": 99}, Other)) != ""


def test_form_constructor_may_have_arguments_of_any_name():
    class Wanting(forms.Form):
        a = forms.CharField()

        def __init__(self, *args, request=None, arguments=None, form_class=None, **kwargs):
            super().__init__(*args, **kwargs)
            self.fields["a"].initial = (request, arguments, form_class)

    kwargs = {"request": 1, "arguments": 2, "form_class": 3}
    form = FormInput(Wanting).form(make_request(), {"a": "x"}, **kwargs)
    assert form.is_valid() and form.fields["a"].initial == (1, 2, 3)


def test_field_with_an_empty_initial_value_is_required():
    class Empty(forms.Form):
        agree = forms.BooleanField(initial=False)
        agreed = forms.BooleanField(initial=True)
        several = forms.MultipleChoiceField(choices=[("a", "A")], initial=[])

    assert FormInput(Empty).schema["required"] == ["agree", "several"]


def test_omitted_checkbox_keeps_its_value(db):
    class SampleForm(forms.ModelForm):
        class Meta:
            model = Sample
            fields = ["name", "checked", "rank"]

    row = Sample.objects.create(name="a", checked=True)
    for given, checked in (({"rank": 1}, True), ({"checked": False}, False), ({"rank": 2}, False)):
        form = bind_form(SampleForm, given, instance=row)
        assert form.is_valid() and form.save().checked is checked


def test_omitted_file_field_keeps_its_file(find, invoice, alice, settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path
    data = base64.b64encode(b"hello").decode()
    change(invoice, find, alice, attachment={"name": "a.txt", "data": data})
    name = invoice.attachment.name
    assert (tmp_path / name).read_bytes() == b"hello" and name.startswith("invoices/a")
    (tmp_path / name).unlink()  # the update does not read the file
    change(invoice, find, alice, total=1)
    assert invoice.attachment.name == name
    change(invoice, find, alice, attachment=None)
    assert not invoice.attachment


def test_error_about_an_omitted_field_does_not_contain_its_value(invoice):
    """The caller may not be allowed to see it."""

    class Statuses(forms.ModelForm):
        status = forms.ChoiceField(choices=[("a", "A")])

        class Meta:
            model = Invoice
            fields = ["status", "total"]

    Invoice.objects.update(status="secret")
    invoice.refresh_from_db()
    lines = error_lines(Statuses, {"total": 1}, instance=invoice)
    assert lines == ["status: What it is now is not valid: give it another value."]


def test_form_validates_uniqueness(find, invoice, alice):
    lines = error_lines(
        InvoiceForm,
        {"customer": invoice.customer_id, "number": "A-1", "total": 1, "issued": "2026-01-02"},
        alice,
        find,
    )
    assert lines == ["number: Invoice with this Number already exists."]
