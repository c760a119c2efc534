"""What staff cannot do or see in the admin, their agents cannot either."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test.utils import CaptureQueriesContext

import django_mcp as mcp
from django_mcp.auth.principal import Auth
from django_mcp.testing import Client
from tests.shop.models import Badge, Company, Customer, Invoice, Tag

from .office import CustomerInline, InvoiceAdmin, office

pytestmark = [pytest.mark.urls("tests.bridges.admin_site.office"), pytest.mark.django_db]
ACTIONS = ["mark_paid", "ask", "forget", "leave", "export", "refuse"]
WRITES = ["create", "update", "delete"]


@pytest.fixture(autouse=True)
def office_tools(server):
    mcp.register_admin(office, [Invoice], operations=WRITES, actions=ACTIONS, server=server)
    mcp.register_admin(office, [Company, Customer, User], operations=WRITES, server=server)
    return server


def grant(user, *codenames):
    user.user_permissions.add(*Permission.objects.filter(codename__in=codenames))
    return User.objects.get(pk=user.pk)


@pytest.fixture
def staff(alice):
    """Alice of Acme, who may view and change invoices in the admin."""
    alice.is_staff = True
    alice.save()
    return grant(alice, "view_invoice")


@pytest.fixture
def client(connect, server, staff):
    return connect(staff, server=server)


@pytest.fixture
def foreign(bob):
    """An invoice of another company than Alice's."""
    bolts = Company.objects.get(name="Bolts")
    customer = Customer.objects.create(company=bolts, name="Dora", notes="hunter2")
    return Invoice.objects.create(
        company=bolts, customer=customer, number="B-1", total=Decimal(700),
        issued=date(2026, 1, 3), metadata={"pin": "hunter2"},
    )  # fmt: skip


def names(client):
    return {tool["name"] for tool in client.request("tools/list")["tools"]}


def data(result):
    assert not result["isError"], result
    return result["structuredContent"]


def error(result):
    assert result["isError"], result
    assert "Traceback" not in str(result)
    return result["content"][0]["text"]


def update(invoice, **values):
    return {"_key": invoice.pk} | values


# Who may use the tools.


def test_staff_see_only_the_tools_that_they_may_use(client, connect, server, staff):
    invoices = {"search_invoice", "read_invoice", "update_invoice"}
    actions = {f"{name}_invoice" for name in ACTIONS} - {"forget_invoice"}
    assert names(client) == invoices | actions
    both = connect(grant(staff, "delete_invoice", "view_company"), server=server)
    assert names(both) == invoices | actions | {
        "forget_invoice", "delete_invoice", "search_company", "read_company",
    }  # fmt: skip


@pytest.mark.parametrize(
    "change", [{"is_staff": False}, {"is_active": False}, {"is_staff": False, "is_superuser": True}]
)
def test_other_users_see_no_tool_and_can_call_none(connect, server, staff, invoice, change):
    User.objects.filter(pk=staff.pk).update(**change)
    client = connect(User.objects.get(pk=staff.pk), server=server)
    assert names(client) == set()
    with pytest.raises(Exception, match="[Uu]nknown tool"):
        client.call("read_invoice", _key=invoice.pk)


def test_staff_without_permission_can_call_nothing(connect, server, foreign, invoice):
    other = User.objects.create_user("new", is_staff=True)
    client = connect(other, server=server)
    assert names(client) == set()
    with pytest.raises(Exception, match="[Uu]nknown tool"):
        client.call("search_invoice")


def test_anonymous_callers_see_no_tool(connect, server):
    assert names(connect(server=server)) == set()


@pytest.mark.parametrize(
    ("scope", "tools"),
    [
        ("shop.view_invoice", "search read"),
        ("shop.add_invoice", "create"),
        ("shop.change_invoice", "update mark_paid ask leave export refuse"),
        ("shop.delete_invoice", "delete forget"),
    ],
)
def test_scopes_of_a_token_limit_the_tools(server, scope, tools):
    auth = Auth(frozenset({scope}))
    allowed = {name for name, one in server.ready().tools.items() if not one._missing_scopes(auth)}
    assert allowed == {f"{tool}_invoice" for tool in tools.split()}


# Rows outside of the queryset.


@pytest.mark.parametrize("tool", ["read_invoice", "update_invoice", "delete_invoice"])
def test_row_outside_of_the_queryset_is_a_missing_row(
    connect, server, staff, invoice, foreign, tool
):
    client = connect(grant(staff, "delete_invoice"), server=server)
    values = {"number": "X"} if tool == "update_invoice" else {}
    hidden = error(client.call(tool, _key=foreign.pk, **values))
    missing = error(client.call(tool, _key=987654, **values))
    assert hidden.replace(str(foreign.pk), "N") == missing.replace("987654", "N")
    assert "There is no invoice with the key" in hidden
    foreign.refresh_from_db()
    assert foreign.number == "B-1" and not LogEntry.objects.exists()


@pytest.mark.parametrize("action", ["mark_paid", "export", "forget"])
def test_action_on_a_foreign_row_changes_no_row(connect, server, staff, invoice, foreign, action):
    client = connect(grant(staff, "delete_invoice"), server=server)
    found = error(client.call(f"{action}_invoice", _keys=[invoice.pk, foreign.pk]))
    assert "There is no invoice with the key" in found and "B-1" not in found
    assert {*Invoice.objects.values_list("number", "status")} == {("A-1", "open"), ("B-1", "draft")}


def test_search_finds_and_counts_only_own_rows(client, invoice, foreign):
    for arguments in ({}, {"query": "B-1"}, {"query": "Dora"}, {"size": "large"}):
        found = data(client.call("search_invoice", **arguments))
        expected = [] if arguments else [invoice.pk]
        assert [row["_key"] for row in found["results"]] == expected
        assert found["count"] == len(expected)


def test_row_that_may_be_viewed_but_not_changed(client, invoice):
    Invoice.objects.filter(pk=invoice.pk).update(number="A-9")
    shown = data(client.call("read_invoice", _key=invoice.pk))
    assert shown["number"] == "A-9"
    assert "to change" in error(client.call("update_invoice", **update(invoice, status="paid")))
    invoice.refresh_from_db()
    assert invoice.status == "open"


# Fields.


def test_hidden_field_is_not_shown_and_cannot_be_set(client, connect, server, invoice):
    assert "metadata" not in data(client.call("read_invoice", _key=invoice.pk))
    found = error(client.call("update_invoice", **update(invoice, metadata={"a": 1})))
    assert found.startswith("metadata: you cannot set this here.")
    root = connect(User.objects.create_superuser("root"), server=server)
    assert data(root.call("read_invoice", _key=invoice.pk))["metadata"] == {}
    assert data(root.call("update_invoice", **update(invoice, metadata={"a": 1})))
    invoice.refresh_from_db()
    assert invoice.metadata == {"a": 1}


@pytest.mark.parametrize("name", ["total", "label", "id", "_saveasnew", "_popup", "company_id"])
def test_read_only_field_or_button_cannot_be_set(client, invoice, name):
    assert f"{name}: you cannot set" in error(
        client.call("update_invoice", **update(invoice, **{name: "1"}))
    )
    invoice.refresh_from_db()
    assert invoice.total == Decimal("12.50") and Invoice.objects.count() == 1


def test_row_that_the_form_does_not_offer_cannot_be_chosen(client, invoice, foreign):
    wrong = error(client.call("update_invoice", **update(invoice, customer=foreign.customer_id)))
    missing = error(client.call("update_invoice", **update(invoice, customer=987654)))
    assert wrong == missing
    invoice.refresh_from_db()
    assert invoice.customer.name == "Carla"


def test_related_row_that_the_form_does_not_offer_is_not_shown(client, invoice, foreign):
    Invoice.objects.filter(pk=invoice.pk).update(customer=foreign.customer)
    shown = data(client.call("read_invoice", _key=invoice.pk))
    assert shown["customer"] is None and "Dora" not in str(shown)
    kept = error(client.call("update_invoice", **update(invoice, status="paid")))
    assert kept.startswith("customer: ") and str(foreign.customer_id) not in kept


def test_rows_of_a_raw_id_field_are_kept(client, invoice):
    tags = [Tag.objects.create(label=label) for label in ("new", "old")]
    invoice.tags.set(tags)
    assert data(client.call("update_invoice", **update(invoice, number="A-2")))
    assert {*invoice.tags.all()} == {*tags}
    assert data(client.call("update_invoice", **update(invoice, tags=[tags[0].pk])))
    assert {*invoice.tags.all()} == {tags[0]}


def test_files_are_shown_without_their_path(client, invoice, settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path
    invoice.attachment.save("bill.txt", SimpleUploadedFile("bill.txt", b"x"))
    shown = data(client.call("read_invoice", _key=invoice.pk))
    assert shown["attachment"] == "bill.txt"
    assert str(tmp_path) not in str(shown) and "invoices/" not in str(shown)
    assert data(client.call("update_invoice", **update(invoice, attachment=None)))
    invoice.refresh_from_db()
    assert not invoice.attachment


def test_columns_show_text_without_html(client, invoice):
    (row,) = data(client.call("search_invoice"))["results"]
    assert row == {
        "_key": invoice.pk, "number": "A-1", "customer": "Carla", "status": "open",
        "total": "12.50", "label": "A-1\ndue & open",
    }  # fmt: skip


def test_passwords_are_neither_shown_nor_set(connect, server, alice):
    client = connect(User.objects.create_superuser("root", password="old"), server=server)
    shown = data(client.call("read_user", _key=alice.pk))
    assert "password" not in shown and "md5" not in str(shown)
    properties = {
        tool["name"]: set(tool["inputSchema"]["properties"])
        for tool in client.request("tools/list")["tools"]
    }
    for tool in ("create_user", "update_user"):
        assert not {name for name in properties[tool] if name.startswith("password")}
    assert "you cannot set" in error(client.call("update_user", _key=alice.pk, password="x"))
    password = alice.password
    assert data(client.call("update_user", _key=alice.pk, first_name="Al"))
    alice.refresh_from_db()
    assert (alice.first_name, alice.password) == ("Al", password)


# Searching, filters and order.


def test_lookup_that_is_no_list_filter_is_rejected(client, invoice):
    for name in (
        "customer__notes__startswith",
        "number__startswith",
        "company__members__id__exact",
    ):
        assert name in error(client.call("search_invoice", **{name: "n"}))


def test_search_with_many_words_is_rejected(client, invoice):
    assert data(client.call("search_invoice", query="A " * 100))["count"] == 1
    told = error(client.call("search_invoice", query="A " * 100 + "A"))
    assert told.startswith("Invalid arguments. query:")


def test_filter_that_this_user_does_not_have_is_rejected(client, connect, server, invoice):
    assert "you cannot filter" in error(client.call("search_invoice", total="12.50"))
    root = connect(User.objects.create_superuser("root"), server=server)
    assert data(root.call("search_invoice", total="12.50"))["count"] == 1


def test_unknown_value_of_a_filter_is_rejected(client, invoice):
    assert "size" in error(client.call("search_invoice", size="huge"))


def test_order_is_limited_to_sortable_columns(client, connect, server, invoice):
    root = connect(User.objects.create_superuser("root"), server=server)
    assert data(root.call("search_invoice", ordering="-total"))["count"] == 1
    assert data(client.call("search_invoice", ordering="-number"))["count"] == 1
    for name in ("total", "customer__notes", "label"):
        assert "ordering" in error(client.call("search_invoice", ordering=name))


def test_search_reads_only_the_fields_of_this_user(connect, server, staff, invoice):
    client = connect(grant(staff, "view_customer"), server=server)
    assert data(client.call("search_customer", query="never"))["count"] == 0
    root = connect(User.objects.create_superuser("root"), server=server)
    assert data(root.call("search_customer", query="never"))["count"] == 1


# Inlines.


def test_inline_rows_need_their_own_permission(connect, server, staff, invoice):
    client = connect(grant(staff, "view_company", "change_company"), server=server)
    acme = invoice.company
    assert "customers" not in data(client.call("read_company", _key=acme.pk))
    found = error(client.call("update_company", _key=acme.pk, customers=[{"name": "New"}]))
    assert found.startswith("customers: you cannot set")
    viewer = connect(grant(staff, "view_customer"), server=server)
    (row,) = data(viewer.call("read_company", _key=acme.pk))["customers"]
    carla = invoice.customer
    assert row == {"_key": carla.pk, "name": "Carla", "email": "", "referred_by": None}
    for rows, words in (
        ([{"name": "New"}], "you may not add"),
        ([{"_key": carla.pk, "name": "C"}], "you may not change"),
        ([{"_key": carla.pk, "_delete": True}], "you may not delete"),
    ):
        assert words in error(viewer.call("update_company", _key=acme.pk, customers=rows))
    assert data(viewer.call("update_company", _key=acme.pk, name="Acme 2"))
    assert [*Customer.objects.values_list("name", flat=True)] == ["Carla"]


def test_scopes_of_a_token_limit_inlines(server, invoice):
    """A token that may change companies does not see, change, add or delete their customers."""
    root, carla = User.objects.create_superuser("root"), invoice.customer
    acme = invoice.company_id

    def call(scopes, tool, **arguments):
        scopes = [f"shop.{scope}" for scope in scopes]
        with Client(root, server=server, scopes=scopes) as client:
            return client.call(tool, _key=acme, **arguments)

    shown = call(["view_company"], "read_company").assert_ok().data
    assert "customers" not in shown
    shown = call(["view_company", "view_customer"], "read_company").assert_ok().data
    assert shown["customers"][0]["name"] == "Carla"
    for verb, row in (
        ("add", {"name": "New"}),
        ("change", {"_key": carla.pk, "name": "C"}),
        ("delete", {"_key": carla.pk, "_delete": True}),
    ):
        others = {"add_customer", "change_customer", "delete_customer"} - {f"{verb}_customer"}
        scopes = ["change_company", "view_customer", *others]
        told = call(scopes, "update_company", customers=[row]).assert_error()
        assert told.text == f"customers.0: the token lacks the scope shop.{verb}_customer."
    assert [*Customer.objects.values_list("name", flat=True)] == ["Carla"]
    rows = [{"_key": carla.pk, "name": "Clara"}]
    call(["change_company", "change_customer"], "update_company", customers=rows).assert_ok()
    assert [*Customer.objects.values_list("name", flat=True)] == ["Clara"]


def test_key_cannot_be_changed(connect, server):
    """Django's admin would add a row with the new key, without the permission to add one."""
    mcp.register_admin(office, [Badge], operations=["update"], server=server)
    client = connect(User.objects.create_superuser("root"), server=server)
    Badge.objects.create(code="A", colour="red")
    assert "code" in error(client.call("update_badge", _key="A", code="B", colour="blue"))
    assert Badge.objects.get().colour == "red"
    assert data(client.call("update_badge", _key="A", colour="blue"))["_key"] == "A"
    assert [*Badge.objects.values_list()] == [("A", "blue")]


def test_more_rows_than_a_form_may_post_is_an_error(connect, server, invoice):
    client = connect(User.objects.create_superuser("root"), server=server)
    rows = [{"name": f"Customer {number}"} for number in range(1001)]
    key = invoice.company_id
    told = error(client.call("update_company", _key=key, customers=rows))
    assert told == "This is too much for one call. Use several calls."
    assert Customer.objects.count() == 1


def test_inline_cannot_get_more_rows_than_max_num(connect, server, invoice, monkeypatch):
    """The admin saves more if somebody posts them. Its page has no button for that."""
    monkeypatch.setattr(CustomerInline, "max_num", 2)
    client = connect(User.objects.create_superuser("root"), server=server)
    key, rows = invoice.company_id, [{"name": "Two"}, {"name": "Three"}]
    told = error(client.call("update_company", _key=key, customers=rows))
    assert told == "customers: there can be at most 2 rows."
    assert data(client.call("update_company", _key=key, customers=rows[:1]))
    assert error(client.call("create_company", name="New", customers=[*rows, {"name": "Four"}]))
    assert {*Customer.objects.values_list("name", flat=True)} == {"Carla", "Two"}


def test_rows_of_another_parent_cannot_be_written_in_an_inline(connect, server, invoice, foreign):
    client = connect(User.objects.create_superuser("root"), server=server)
    for row in (
        {"_key": foreign.customer_id, "name": "Mine"},
        {"_key": foreign.customer_id, "_delete": True},
        {"name": "New", "company": foreign.company_id},
        {"name": "New", "id": foreign.customer_id},
        {"_key": True, "name": "New"},
        {"_key": [foreign.customer_id], "name": "New"},
    ):
        error(client.call("update_company", _key=invoice.company_id, customers=[row]))
    assert {*Customer.objects.values_list("name", "company__name")} == {
        ("Carla", "Acme"), ("Dora", "Bolts"),
    }  # fmt: skip


@pytest.mark.parametrize("rows", ["x", {"name": "y"}, [1], [[]], None])
def test_inline_of_a_wrong_type_is_rejected(connect, server, invoice, rows):
    client = connect(User.objects.create_superuser("root"), server=server)
    found = error(client.call("update_company", _key=invoice.company_id, customers=rows))
    assert found == "customers: give a list of objects."


# Deletion.


def test_deletion_says_what_protects_the_row(connect, server, staff, invoice):
    allowed = grant(staff, "delete_customer", "view_customer", "delete_invoice")
    client = connect(allowed, server=server)
    found = error(client.call("delete_customer", _key=invoice.customer_id))
    assert found == (
        "Deleting the customer 'Carla' would require deleting the following protected related "
        "objects: Invoice: A-1."
    )


def test_deletion_needs_the_permissions_for_what_goes_with_it(connect, server, staff, bob):
    Customer.objects.create(company=Company.objects.get(name="Bolts"), name="Dora")
    client = connect(grant(staff, "delete_company", "view_company"), server=server)
    found = error(client.call("delete_company", _key=Company.objects.get(name="Bolts").pk))
    assert found == (
        "Deleting the company 'Bolts' would result in deleting related objects, but your account "
        "doesn't have permission to delete the following types of objects: customer."
    )
    assert Company.objects.filter(name="Bolts").exists()


# Actions.


def test_action_with_messages_and_a_field_of_its_form(client, invoice):
    result = client.call("mark_paid_invoice", _keys=[invoice.pk], note=" at last")
    assert [one["text"] for one in result["content"]] == ["1 paid at last", "Tell accounting."]
    assert Invoice.objects.get().status == "paid"
    assert "note" in error(client.call("mark_paid_invoice", _keys=[invoice.pk], note="x" * 21))


def test_action_that_asks_for_a_confirmation_is_rolled_back(client, invoice):
    found = error(client.call("ask_invoice", _keys=[invoice.pk]))
    assert "rolled back" in found
    assert Invoice.objects.get().status == "open"


def test_action_that_returns_a_file_leaves_or_fails(client, invoice):
    assert client.call("export_invoice", _keys=[invoice.pk])["content"][0]["text"] == "A-1"
    (left,) = client.call("leave_invoice", _keys=[invoice.pk])["content"]
    assert "redirected to the page /office/elsewhere/" in left["text"]
    assert "409" in error(client.call("refuse_invoice", _keys=[invoice.pk]))


def test_action_needs_its_permission_during_the_call(client, invoice, monkeypatch):
    assert "forget_invoice" not in names(client)
    with pytest.raises(Exception, match="[Uu]nknown tool"):
        client.call("forget_invoice", _keys=[invoice.pk])
    assert Invoice.objects.exists()


@pytest.mark.parametrize("keys", [[], "1", [True], ["1 or 1"], [None], [[1]], list(range(2000))])
def test_wrong_keys_of_an_action_are_rejected(client, invoice, keys):
    error(client.call("mark_paid_invoice", _keys=keys))
    assert Invoice.objects.get().status == "open"


@pytest.mark.parametrize("key", [True, None, [1], {"a": 1}, "1/../2", "x" * 5000, "", -1, 10**30])
@pytest.mark.parametrize("tool", ["read_invoice", "update_invoice"])
def test_wrong_keys_are_rejected(client, invoice, key, tool):
    error(client.call(tool, _key=key))


def test_site_is_asked_again_when_the_page_is_opened(client, invoice, monkeypatch):
    """The decision for the list and the one of the page are made on different requests."""
    from django_mcp.bridges.admin_pages import AdminRequest

    allowed = office.has_permission
    monkeypatch.setattr(
        office, "has_permission", lambda http: not isinstance(http, AdminRequest) and allowed(http)
    )
    assert "There is no invoice" in error(client.call("read_invoice", _key=invoice.pk))


def test_attributes_set_for_a_call_do_not_reach_the_admin_of_the_site(client, invoice):
    data(client.call("search_invoice", limit=1))
    admin = office.get_model_admin(Invoice)
    assert type(admin) is InvoiceAdmin and not {"list_per_page", "response_add"} & set(vars(admin))


# Links to rows that the form does not offer.


def test_links_to_rows_that_the_form_does_not_offer_are_kept_and_not_counted(
    connect, server, staff, invoice, monkeypatch
):
    seen, hidden = (Tag.objects.create(label=label) for label in ("seen", "hidden"))

    def choices(self, db_field, request, **options):
        options["queryset"] = Tag.objects.exclude(label="hidden")
        return db_field.formfield(**options)

    monkeypatch.setattr(InvoiceAdmin, "formfield_for_manytomany", choices)
    invoice.tags.set([seen, hidden])
    client = connect(grant(staff, "delete_invoice"), server=server)
    assert [row["_key"] for row in data(client.call("read_invoice", _key=invoice.pk))["tags"]] == [
        seen.pk
    ]
    data(client.call("update_invoice", **update(invoice, number="A-2")))
    assert {*invoice.tags.all()} == {seen, hidden}
    data(client.call("update_invoice", **update(invoice, tags=[])))
    assert {*invoice.tags.all()} == {hidden}
    assert "tags" in error(client.call("update_invoice", **update(invoice, tags=[hidden.pk])))
    assert data(client.call("delete_invoice", _key=invoice.pk))["deleted"] == {"invoices": 1}


def test_number_of_queries_does_not_reveal_links_that_the_form_does_not_offer(
    client, invoice, monkeypatch
):
    seen, hidden = (Tag.objects.create(label=label) for label in ("seen", "hidden"))

    def choices(self, db_field, request, **options):
        options["queryset"] = Tag.objects.exclude(label="hidden")
        return db_field.formfield(**options)

    monkeypatch.setattr(InvoiceAdmin, "formfield_for_manytomany", choices)
    data(client.call("update_invoice", **update(invoice)))  # fills the cache of content types
    for given in ({}, {"tags": []}, {"tags": [seen.pk]}):
        numbers = set()
        for linked in ([hidden], []):
            invoice.tags.set(linked)
            with CaptureQueriesContext(connection) as queries:
                data(client.call("update_invoice", **update(invoice, **given)))
                data(client.call("read_invoice", _key=invoice.pk))
            assert hidden not in linked or hidden in invoice.tags.all()
            numbers.add(len(queries))
        assert len(numbers) == 1, given
