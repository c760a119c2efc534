"""Forms as tools: definitions, calls over transports, permissions, attacks and checks."""

import base64
import re
from decimal import Decimal

import pytest
from django import forms
from django.contrib.admin.models import ADDITION, CHANGE, LogEntry
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test.utils import CaptureQueriesContext

import django_mcp as mcp
from django_mcp.bridges.forms import FormTool
from django_mcp.declarations.declaration import decide
from tests.client import RpcError
from tests.declarations.helpers import problem_ids, single_problem, valid_catalog
from tests.http import HttpClient
from tests.shop.models import Company, Customer, Invoice, Sample, Tag

REVISIONS = ("2025-06-18", "2026-07-28")


class ContactForm(forms.Form):
    name = forms.CharField(max_length=40)
    amount = forms.DecimalField(min_value=Decimal("0.01"), required=False)
    source = forms.CharField(disabled=True, initial="mcp")

    def clean(self):
        if self.cleaned_data.get("name") == "nobody":
            raise forms.ValidationError("Somebody must ask.")


class InvoiceForm(forms.ModelForm):
    class Meta:
        model = Invoice
        fields = ["company", "customer", "number", "status", "total", "issued", "tags", "metadata"]


@pytest.fixture
def shop(server):
    """Register companies, customers, tags and invoices, which members of the company may see."""

    class Own(mcp.ModelResource):
        permission = mcp.AUTHENTICATED
        _path = "company__members"

        def get_queryset(self, request):
            return super().get_queryset(request).filter(**{self._path: request.user})

    @server.register(Company)
    class CompanyResource(Own):
        fields = ["name"]
        _path = "members"

    @server.register(Customer)
    class CustomerResource(Own):
        fields = ["name"]

    @server.register(Invoice)
    class InvoiceResource(Own):
        uri = "invoice://{number}"
        fields = ["number", "total", "status"]

        def has_object_permission(self, request, obj, operation):
            return operation == "view" or obj.status != "paid"

    @server.register(Tag)
    class TagResource(mcp.ModelResource):
        permission = mcp.AUTHENTICATED
        fields = ["label"]

        def get_queryset(self, request):
            return super().get_queryset(request).all()

    return server


@pytest.fixture
def clerk(alice):
    """Return alice with the permissions to add and change invoices."""
    alice.user_permissions.add(Permission.objects.get(codename="add_invoice"))
    return User.objects.get(pk=alice.pk)


@pytest.fixture
def create(shop):
    @shop.register(InvoiceForm)
    class CreateInvoice(FormTool):
        """Write an invoice."""

    return shop


@pytest.fixture
def edit(shop):
    @shop.register(InvoiceForm)
    class EditInvoice(FormTool):
        update = True

    return shop


def contact(server, **attributes):
    """Register a tool of the contact form that returns the cleaned data."""

    class Contact(FormTool):
        """Get in touch."""

        def form_valid(self, request, form) -> dict[str, str]:
            return {name: str(value) for name, value in form.cleaned_data.items()}

    made = type("Contact", (Contact,), attributes | {"__doc__": Contact.__doc__})
    return server.register(ContactForm, made)


def new(invoice, **given):
    """Return the arguments of a new invoice like ``invoice``."""
    row = {"company": invoice.company_id, "customer": invoice.customer_id, "number": "A-2"}
    return row | {"total": "5.00", "issued": "2026-02-03"} | given


def anonymized_sql(queries, name):
    """Return the SQL of queries without the name of the row and of savepoints."""
    return [re.sub(rf"\b{name}\b|s\d+_x\d+", "NAME", one["sql"]) for one in queries]


# Forms.


@pytest.mark.parametrize("revision", REVISIONS)
def test_form_is_listed_and_called_as_a_tool(server, connect, alice, revision):
    contact(server)
    client = connect(alice, server=server, revision=revision)
    (shown,) = client.all("tools/list", "tools")
    assert (shown["name"], shown["description"]) == ("contact", "Get in touch.")
    assert list(shown["inputSchema"]["properties"]) == ["name", "amount"]
    assert shown["inputSchema"]["required"] == ["name"]
    result = client.call("contact", name="Ann", amount="1.50")
    assert result["structuredContent"] == {"name": "Ann", "amount": "1.50", "source": "mcp"}
    assert client.failure("contact", name="x" * 41, amount=0) == (
        "name: Ensure this value has at most 40 characters (it has 41).\n"
        "amount: Ensure this value is greater than or equal to 0.01."
    )
    assert client.failure("contact", name="nobody") == "the form: Somebody must ask."
    assert client.failure("contact") == "name: This field is required."


def test_form_tool_over_http(server, db):
    contact(server, permission=mcp.PUBLIC)
    with HttpClient(server=server) as client:
        assert client.call("contact", name="Ann")["structuredContent"]["name"] == "Ann"
        assert client.call("contact", name="nobody")["isError"]


@pytest.mark.parametrize(
    "given",
    [
        {"source": "forged"}, {"is_staff": True}, {"form": "x"}, {"request": 1}, {"self": 1},
        {"given": {}},
    ],
)  # fmt: skip
def test_argument_that_is_no_field_is_refused(server, connect, alice, given):
    contact(server)
    client = connect(alice, server=server)
    assert "unknown argument. The arguments are: name, amount." in client.failure(
        "contact", name="Ann", **given
    )


@pytest.mark.parametrize("name", ["request", "self", "form", "data", "instance", "prefix"])
def test_form_field_may_have_any_name(server, connect, alice, name):
    made = type("Named", (forms.Form,), {name: forms.CharField()})

    @server.register(made)
    class Named(FormTool):
        def form_valid(self, request, form):
            return form.cleaned_data[name]

    assert connect(alice, server=server).text("named", **{name: "x"}) == "x"


@pytest.mark.parametrize(
    "given",
    [
        {"name": ["Ann"]}, {"name": {"a": 1}}, {"name": 5}, {"name": True}, {"name": None},
        {"name": "a\0b"}, {"name": "Ann", "amount": {}}, {"name": "Ann", "amount": [1]},
        {"name": "Ann", "amount": True}, {"name": "Ann", "amount": "NaN"},
        {"name": "Ann", "amount": "1e999"}, {"name": "Ann", "amount": "x" * 100_000},
    ],
)  # fmt: skip
def test_value_of_another_type_is_refused(server, connect, alice, given):
    contact(server)
    message = connect(alice, server=server).failure("contact", **given)
    assert message.startswith(("name: ", "amount: ")) and len(message) < 500


def test_anonymous_client_cannot_use_a_form_tool(server, connect, alice):
    contact(server)
    assert connect(server=server).all("tools/list", "tools") == []
    with pytest.raises(RpcError):
        connect(server=server).call("contact", name="Ann")


def test_form_class_and_arguments_may_depend_on_the_request(server, connect, alice, bob):
    class Greeting(forms.Form):
        greeting = forms.ChoiceField()

        def __init__(self, *args, user=None, **kwargs):
            super().__init__(*args, **kwargs)
            self.fields["greeting"].choices = [(f"hi {user}", "Hi")]

    class Staffs(Greeting):
        def clean_greeting(self):
            return "Sir"

    @server.register(Greeting)
    class Greet(FormTool):
        def get_form_class(self, request):
            return Staffs if request.user.is_staff else Greeting

        def get_form_kwargs(self, request):
            return {"user": request.user}

        def get_schema_form(self):
            form = Greeting()
            form.fields["greeting"] = forms.CharField(help_text="As you like.")
            return form

        async def form_valid(self, request, form):
            return form.cleaned_data["greeting"]

    client = connect(alice, server=server)
    assert client.text("greet", greeting="hi alice") == "hi alice"
    assert "There are: hi alice." in client.failure("greet", greeting="hi bob")
    alice.is_staff = True
    alice.save()
    assert (
        connect(User.objects.get(pk=alice.pk), server=server).text("greet", greeting="hi alice")
        == "Sir"
    )


def test_form_tool_can_ask_a_question(server, connect, alice, revision):
    class Contact(FormTool):
        def form_valid(self, request, form):
            name = form.cleaned_data["name"]
            return "sent" if request.elicit(f"Really write to {name}?") else "kept"

    server.register(ContactForm, Contact)
    yes = {"elicitation/create": lambda params: {"action": "accept", "content": {"answer": True}}}
    client = connect(alice, server=server, revision=revision, answers=yes)
    if revision in ("2024-11-05", "2025-03-26"):
        assert "elicitation" in client.failure("contact", name="Ann")
    else:
        assert client.text("contact", name="Ann") == "sent"


# Model forms that create a row.


def test_model_form_creates_a_row_and_a_log_entry(create, connect, clerk, invoice):
    client = connect(clerk, server=create)
    (shown,) = [t for t in client.all("tools/list", "tools") if t["name"] == "create_invoice"]
    assert shown["description"] == "Write an invoice."
    assert shown["annotations"] == {"destructiveHint": False}
    blue = Tag.objects.create(label="blue")
    result = client.call("create_invoice", **new(invoice, tags=[blue.pk], metadata={"a": 1}))
    assert result["structuredContent"] == {
        "_uri": "invoice://A-2", "number": "A-2", "total": "5.00", "status": "draft",
    }  # fmt: skip
    row = Invoice.objects.get(number="A-2")
    assert (row.metadata, list(row.tags.all())) == ({"a": 1}, [blue])
    entry = LogEntry.objects.get()
    assert (entry.action_flag, entry.user, entry.object_id) == (ADDITION, clerk, str(row.pk))


def test_creating_a_row_requires_the_add_permission(create, connect, alice, clerk, bob, invoice):
    bob.user_permissions.add(*Permission.objects.filter(codename="change_invoice"))
    for user in (bob, None):
        client = connect(user and User.objects.get(pk=user.pk), server=create)
        assert "create_invoice" not in [t["name"] for t in client.all("tools/list", "tools")]
        with pytest.raises(RpcError):
            client.call("create_invoice", **new(invoice))


def test_row_that_the_user_could_not_see_is_not_created(create, connect, clerk, invoice):
    """The form accepts the other company, but the user would not see the row."""
    theirs = Company.objects.create(name="Theirs")

    class Anywhere(InvoiceForm):
        def clean(self):
            self.cleaned_data["company"] = theirs

    @create.register(Anywhere)
    class CreateAnywhere(FormTool):
        pass

    client = connect(clerk, server=create)
    assert "You may not add the invoice" in client.failure("create_anywhere", **new(invoice))
    assert Invoice.objects.count() == 1 and not LogEntry.objects.exists()


def test_row_of_another_company_cannot_be_chosen(create, connect, clerk, bob, invoice):
    """A missing row has the same error and the same queries."""
    bolts = Company.objects.get(name="Bolts")
    hidden = Customer.objects.create(pk=777_777, company=bolts, name="Hidden")
    client = connect(clerk, server=create)
    client.failure("create_invoice")  # permissions are cached by the first call
    results = set()
    for key in (hidden.pk, 999_999):
        with CaptureQueriesContext(connection) as queries:
            message = client.failure("create_invoice", **new(invoice, customer=key, number="A"))
        results.add((message, *anonymized_sql(queries, key)))
    assert len(results) == 1, results
    assert next(iter(results))[0].startswith("customer: Select a valid choice.")


@pytest.mark.parametrize("name", ["paid_at", "id", "pk", "attachment", "customer__notes"])
def test_field_outside_of_the_form_is_refused(create, connect, clerk, invoice, name):
    message = connect(clerk, server=create).failure("create_invoice", **new(invoice, **{name: 1}))
    assert f"{name}: unknown argument" in message and Invoice.objects.count() == 1


def test_list_of_too_many_keys_is_refused(create, connect, clerk, invoice):
    message = connect(clerk, server=create).failure(
        "create_invoice", **new(invoice, tags=[1] * 101)
    )
    assert message == "tags: Give a list of at most 100 keys."


def test_form_valid_of_the_project_saves(shop, connect, clerk, invoice):
    class Short(forms.ModelForm):
        class Meta:
            model = Invoice
            fields = ["number", "total", "issued"]

    @shop.register(Short)
    class Draft(FormTool):
        """Draft an invoice for our best customer."""

        def get_form_kwargs(self, request):
            company = request.user.companies.get()
            customer = company.customers.first()
            return {"instance": Invoice(company=company, customer=customer)}

        def form_valid(self, request, form):
            row = super().form_valid(request, form)
            return f"Drafted {row.number}."

    @shop.register(Short)
    class Silent(FormTool):
        permission = mcp.AUTHENTICATED

        def form_valid(self, request, form):
            return "Nothing was saved."

    client = connect(clerk, server=shop)
    given = {"number": "A-3", "total": 1, "issued": "2026-01-01"}
    assert client.text("draft", **given) == "Drafted A-3."
    assert client.text("silent", **given | {"number": "A-4"}) == "Nothing was saved."
    assert Invoice.objects.count() == 2 and LogEntry.objects.count() == 1


# Model forms that change a row.


def test_model_form_changes_only_given_fields(edit, connect, alice, invoice):
    client = connect(alice, server=edit)
    (shown,) = [t for t in client.all("tools/list", "tools") if t["name"] == "edit_invoice"]
    assert shown["description"] == "Change one invoice: the fields that are given, and no others."
    assert shown["inputSchema"]["required"] == ["invoice"]
    assert shown["annotations"] == {"destructiveHint": True}
    for name in ("A-1", "invoice://A-1"):
        result = client.call("edit_invoice", invoice=name, total=99)
        assert result["structuredContent"]["total"] == "99.00"
    invoice.refresh_from_db()
    assert (invoice.total, invoice.status, invoice.number) == (99, "open", "A-1")
    first, last = LogEntry.objects.order_by("pk")
    assert (first.action_flag, first.get_change_message()) == (CHANGE, "Changed Amount due.")
    assert last.get_change_message() == "No fields changed."


@pytest.mark.parametrize("given", [{}, {"invoice": None}, {"invoice": ["A-1"]}, {"invoice": {}}])
def test_row_argument_is_required(edit, connect, alice, invoice, given):
    assert "invoice" in connect(alice, server=edit).failure("edit_invoice", **given)


def test_hidden_forbidden_and_missing_rows_have_the_same_error_and_queries(
    edit, connect, alice, bob, invoice
):
    bolts = Company.objects.get(name="Bolts")
    like = {"customer": invoice.customer, "total": 1, "issued": "2026-01-02"}
    Invoice.objects.create(company=bolts, number="B-1", **like)
    Invoice.objects.create(company=invoice.company, number="B-2", status="paid", **like)
    client = connect(alice, server=edit)
    client.failure("edit_invoice", invoice="B-0")  # permissions are cached by the first call
    results = set()
    for name in ("B-1", "B-2", "B-3"):
        with CaptureQueriesContext(connection) as queries:
            message = client.failure("edit_invoice", invoice=name, total=5)
        results.add((message.replace(name, "NAME"), *anonymized_sql(queries, name)))
    assert len(results) == 1, results
    assert next(iter(results))[0] == "There is no invoice 'NAME' that you may change."
    assert not Invoice.objects.filter(total=5).exists()


def test_changing_a_row_requires_the_change_permission(edit, connect, bob, invoice):
    bolts = Company.objects.get(name="Bolts")
    Invoice.objects.update(company=bolts)
    client = connect(bob, server=edit)
    assert "edit_invoice" not in [t["name"] for t in client.all("tools/list", "tools")]
    with pytest.raises(RpcError):
        client.call("edit_invoice", invoice="A-1", total=5)


def test_row_cannot_be_changed_so_that_it_becomes_hidden_or_forbidden(
    edit, connect, alice, bob, invoice
):
    theirs = Company.objects.get(name="Bolts")
    client = connect(alice, server=edit)
    assert "company: Select a valid choice" in client.failure(
        "edit_invoice", invoice="A-1", company=theirs.pk
    )
    theirs.members.add(alice)
    assert client.call("edit_invoice", invoice="A-1", company=theirs.pk)["structuredContent"]
    assert "You may not change the invoice" in client.failure(
        "edit_invoice", invoice="A-1", status="paid"
    )
    invoice.refresh_from_db()
    assert (invoice.company, invoice.status) == (theirs, "open")


def test_row_argument_is_renamed_if_a_field_has_its_name(shop, connect, alice, invoice):
    class Odd(forms.ModelForm):
        invoice = forms.CharField(required=False)

        class Meta:
            model = Invoice
            fields = ["total"]

    @shop.register(Odd)
    class Edit(FormTool):
        update = True

    client = connect(alice, server=shop)
    assert client.call("edit", _uri="A-1", invoice="x", total=3)["structuredContent"]["total"] == (
        "3.00"
    )


def test_file_argument_is_stored_and_paths_are_refused(
    shop, connect, alice, invoice, settings, tmp_path
):
    settings.MEDIA_ROOT = tmp_path

    class Attach(forms.ModelForm):
        class Meta:
            model = Invoice
            fields = ["attachment"]

    @shop.register(Attach)
    class AttachPaper(FormTool):
        update = True

    client = connect(alice, server=shop)
    data = base64.b64encode(b"hello").decode()
    for name in ("../../../etc/cron.d/x", "/etc/passwd", "..", "a\\b"):
        message = client.failure(
            "attach_paper", invoice="A-1", attachment={"name": name, "data": data}
        )
        assert message == "attachment: The name of a file must not be a path."
    client.call("attach_paper", invoice="A-1", attachment={"name": "a.txt", "data": data})
    assert [file.read_bytes() for file in tmp_path.rglob("*.txt")] == [b"hello"]


def test_number_of_queries_of_a_change_is_limited(
    edit, connect, alice, invoice, django_assert_num_queries
):
    client = connect(alice, server=edit)
    client.call("edit_invoice", invoice="A-1", total=1)
    with CaptureQueriesContext(connection) as queries:
        client.call("edit_invoice", invoice="A-1", total=2)
    assert len(queries) <= 16, [one["sql"] for one in queries]


class TitleForm(forms.ModelForm):
    class Meta:
        model = Company
        fields = ["name"]


def test_instance_of_get_form_kwargs_is_changed_and_logged(shop, connect, alice):

    @shop.register(TitleForm)
    class Rename(FormTool):
        permission = mcp.AUTHENTICATED
        output_schema = {"type": "object", "required": ["_uri"]}

        def get_form_kwargs(self, request):
            return {"instance": request.user.companies.get()}

    client = connect(alice, server=shop)
    assert client.call("rename", name="Apex")["structuredContent"]["name"] == "Apex"
    assert Company.objects.get().name == "Apex"
    assert LogEntry.objects.get().action_flag == CHANGE


def test_row_of_a_resource_without_view_permission_is_not_saved(shop, connect, alice, invoice):
    class Labels(forms.ModelForm):
        class Meta:
            model = Sample
            fields = ["name"]

    @shop.register(Sample)
    class Samples(mcp.ModelResource):
        fields = ["name"]

    @shop.register(Labels)
    class Add(FormTool):
        permission = mcp.AUTHENTICATED

        def form_valid(self, request, form):
            return f"{super().form_valid(request, form)} is saved."

    client = connect(alice, server=shop)
    assert client.failure("add", name="a") == "Permission denied."
    assert not Sample.objects.exists()


# Checks.


def test_shop_has_no_problems(create, edit):
    assert {"create_invoice", "edit_invoice"} <= set(valid_catalog(create).tools)


def form(**fields):
    return type("Asked", (forms.Form,), fields)


class Needy(forms.Form):
    def __init__(self, user, *args, **kwargs):
        super().__init__(*args, **kwargs)


class Doing(FormTool):
    def form_valid(self, request, form):
        return "done"


class Changing(FormTool):
    update = True


@pytest.mark.parametrize(
    ("made", "tool", "number"),
    [
        (forms.formset_factory(ContactForm), Doing, 120),
        (forms.modelformset_factory(Invoice, fields=["total"]), FormTool, 120),
        (dict, Doing, 120),
        ("ContactForm", Doing, 120),
        (Needy, Doing, 121),
        (form(a=forms.FilePathField(path=".")), Doing, 122),
        (form(password=forms.CharField()), Doing, 123),
        (form(a=forms.ModelChoiceField(Invoice.objects.all())), Doing, 124),
        (forms.modelform_factory(Customer, fields=["name"]), FormTool, 125),
        (forms.modelform_factory(Customer, fields=["name"]), Changing, 125),
        (InvoiceForm, type("T", (Changing,), {"read_only": True}), 126),
        (InvoiceForm, type("T", (Changing,), {"atomic": False}), 126),
        (ContactForm, FormTool, 127),
        (InvoiceForm, type("T", (FormTool,), {"read_only": True}), 133),
        (ContactForm, type("T", (Doing,), {"update": True}), 128),
        (ContactForm, type("T", (Doing,), {"exclude": ["amount", "nam"]}), 129),
        (ContactForm, type("T", (Doing,), {"input_schema": {"type": "object"}}), 130),
        (ContactForm, type("T", (Doing,), {"output_schema": {"type": "what"}}), 21),
        (ContactForm, type("T", (Doing,), {"permission": "shop"}), 11),
    ],
)
def test_invalid_form_tool_is_an_error(server, made, tool, number):
    server.register(made, tool)
    assert single_problem(server).id == f"django_mcp.E{number:03}"


def test_asynchronous_hook_is_an_error(server):
    class Late(Doing):
        async def get_form_kwargs(self, request):
            return {}

    server.register(ContactForm, Late)
    assert problem_ids(server) == ["E131"]


def test_return_annotation_with_an_unregistered_model_is_an_error(server):
    class Odd(FormTool):
        def form_valid(self, request, form) -> Invoice:
            return Invoice()

    server.register(ContactForm, Odd)
    assert problem_ids(server) == ["E132"]


def test_registering_two_forms_for_one_tool_is_an_error(server):
    server.register(ContactForm, InvoiceForm, Doing)
    assert problem_ids(server) == ["E003"]


def test_form_without_a_tool_class_has_a_default_name(shop, connect, clerk, invoice):
    """The tool saves as the model form does."""
    shop.register(InvoiceForm, FormTool)
    assert "invoice_form" in valid_catalog(shop).tools
    client = connect(clerk, server=shop)
    assert client.call("invoice_form", **new(invoice))["structuredContent"]["number"] == "A-2"


def test_form_class_may_be_an_attribute(server):
    @server.register
    class Contact(Doing):
        form_class = ContactForm

    assert "contact" in valid_catalog(server).tools


def test_rule_names_a_permission_of_both_row_and_tool_once(server):
    class Rows(mcp.ModelResource):
        permission = "shop.change_invoice"
        fields = ["number"]

    server.register(Invoice, Rows)

    @server.register(InvoiceForm)
    class EditInvoice(FormTool):
        update = True
        permission = "shop.change_invoice"
        exclude = ["company", "customer", "tags"]

    tool = server._catalog.tools.get("edit_invoice")
    assert [str(message) for message in server.check() if message.is_serious()] == []
    assert tool._rule == "shop.change_invoice"


def test_reason_and_rule_name_the_operation_permission(create, edit, alice, clerk, bob):
    from tests.declarations.helpers import make_request

    for name, verb in (("create_invoice", "add"), ("edit_invoice", "change")):
        tool = valid_catalog(create).tools[name]
        assert tool._rule.endswith(f"shop.{verb}_invoice") and not tool._is_public
        for user in (None, alice, clerk, bob):
            request = make_request(user, create)
            assert decide(tool, request).allowed == tool._is_allowed(request)
        # Of two rules that allow it, the reason names the operation's.
        assert f"shop.{verb}_invoice" in decide(tool, make_request(clerk, create)).reason
