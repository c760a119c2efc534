"""Model resources: permissions, fields, links, lists and completion of rows."""

import json
from datetime import date
from decimal import Decimal

import pytest
from django.contrib.auth.models import Permission, User

import django_mcp as mcp
from django_mcp.declarations.schemas import violations
from django_mcp.protocol.jsonrpc import ResourceNotFound
from tests.shop.models import Badge, Company, Customer, Invoice, LedgerLine, Note, Place, Wearer

from .helpers import make_request, valid_catalog


class OwnInvoices(mcp.ModelResource):
    """What customers owe."""

    permission = mcp.AUTHENTICATED
    fields = ["number", "customer", "total"]

    def get_queryset(self, request):
        return super().get_queryset(request).filter(company__members=request.user)


class Customers(OwnInvoices):
    """A customer."""

    fields = ["name"]
    search_fields = ["name"]


class Unrestricted(mcp.ModelResource):
    permission = mcp.AUTHENTICATED
    fields = ["pk"]

    def get_queryset(self, request):
        return super().get_queryset(request).all()


@pytest.fixture
def declare(server):
    """Register a subclass, and return its resource."""

    def declared(model=Invoice, base=OwnInvoices, **attributes):
        server.register(model, type("Rows", (base,), attributes))
        return valid_catalog(server).find(model)

    return declared


def read(resource, user, key, server):
    return resource.read(make_request(user, server), **{resource._lookup: key})


# Definition.


def test_definition_of_a_model_resource(declare):
    assert declare()._definition() == {
        "uriTemplate": "model://shop/invoice/{pk}",
        "name": "invoice",
        "title": "Invoice",
        "mimeType": "application/json",
    }


def test_name_title_and_uri_can_be_set(server):
    class Named(OwnInvoices):
        """What is owed."""

        name, title, uri = "bill", "Bill", "bill://{number}"
        fields = ["number"]

    server.register(Invoice, Named)
    shown = valid_catalog(server).find(Invoice)._definition()
    assert shown == {
        "uriTemplate": "bill://{number}", "name": "bill", "title": "Bill",
        "description": "What is owed.", "mimeType": "application/json",
    }  # fmt: skip


def test_origin_names_class_and_model(declare):
    assert declare()._origin().endswith("Rows of shop.Invoice")


# Single rows.


def test_row_is_read_by_primary_key(declare, server, alice, invoice):
    resource = declare()
    assert read(resource, alice, str(invoice.pk), server) == {
        "_uri": f"model://shop/invoice/{invoice.pk}",
        "number": "A-1",
        "customer": invoice.customer_id,
        "total": "12.50",
    }


def test_row_fits_its_schema(server, alice, invoice):
    server.register(Customer, Customers)
    server.register(Invoice, OwnInvoices)
    resource = valid_catalog(server).find(Invoice)
    row = read(resource, alice, str(invoice.pk), server)
    assert violations(resource._row_schema(), row) == []
    assert set(row) == set(resource._row_schema()["properties"])
    json.dumps(row)


def test_only_listed_columns_are_loaded(declare, server, alice, invoice, django_assert_num_queries):
    resource = declare()
    with django_assert_num_queries(1) as queries:
        read(resource, alice, str(invoice.pk), server)
    assert "metadata" not in queries[0]["sql"] and "notes" not in queries[0]["sql"]


@pytest.mark.parametrize("key", ["0", "x", "", "01", "1.0", "\0", "9" * 30, "None"])
def test_missing_row_or_invalid_key_is_not_found(declare, server, alice, invoice, key):
    with pytest.raises(ResourceNotFound):
        read(declare(), alice, key, server)


def test_forbidden_row_has_the_error_of_a_missing_row(declare, server, alice, bob, invoice):
    resource = declare()
    with pytest.raises(ResourceNotFound) as hidden:
        read(resource, bob, str(invoice.pk), server)
    with pytest.raises(ResourceNotFound) as missing:
        read(resource, bob, str(invoice.pk + 1), server)
    assert hidden.value.message == missing.value.message


def test_row_without_object_permission_is_not_found(declare, server, alice, invoice):
    seen = []

    def only_small(self, request, obj, operation):
        seen.append(operation)
        return obj.total < 10

    resource = declare(has_object_permission=only_small)
    with pytest.raises(ResourceNotFound):
        read(resource, alice, str(invoice.pk), server)
    Invoice.objects.update(total=Decimal(5))
    assert read(resource, alice, str(invoice.pk), server)["total"] == "5.00"
    assert seen == ["view", "view"]


def test_default_object_permission_allows_every_row():
    assert mcp.ModelResource().has_object_permission(make_request(), object(), "delete") is True


def test_asynchronous_object_permission_raises(declare, server, alice, invoice):
    """The checks refuse an async method. If there is one anyway, it must not allow access."""
    resource = declare()

    async def later(request, obj, operation):
        return True

    resource.has_object_permission = later
    with pytest.raises(TypeError):
        read(resource, alice, str(invoice.pk), server)


def test_row_is_read_by_a_unique_field(declare, server, alice, invoice):
    resource = declare(uri="invoice://{number}")
    assert read(resource, alice, "A-1", server)["_uri"] == "invoice://A-1"
    with pytest.raises(ResourceNotFound):
        read(resource, alice, str(invoice.pk), server)


def test_uris_of_uuid_text_and_composite_keys(server, alice):
    company = Company.objects.get(name="Acme")
    note = Note.objects.create(text="x")
    badge = Badge.objects.create(code="a/b", colour="red")
    line = LedgerLine.objects.create(company=company, line=7, text="x", amount=1)
    for model in (Note, Badge, LedgerLine):
        server.register(model, type("Rows", (Unrestricted,), {"__qualname__": model.__name__}))
    catalog = valid_catalog(server)
    for row in (note, badge, line):
        resource = catalog.find(type(row))
        uri = resource._uri_of(row)
        variables = resource._match(uri)
        assert resource.read(make_request(alice, server), **variables)["_uri"] == uri
        assert resource._fetch(make_request(alice, server), [resource._key(uri)]) == {row.pk: row}
    assert catalog.find(Badge)._uri_of(badge) == "model://shop/badge/a%2Fb"


def test_key_is_read_from_keys_and_uris(declare, invoice):
    resource = declare()
    assert resource._key(5) == resource._key("5") == resource._key("model://shop/invoice/5") == 5
    for wrong in ("model://shop/customer/5", "x", None, 1.5, True, [5, 6]):
        with pytest.raises(ValueError, match=r"."):
            resource._key(wrong)
    assert resource._key_schema() == {
        "type": ["integer", "string"],
        "description": "Key or URI of the invoice.",
    }  # fmt: skip


def test_composite_key_is_read_from_list_text_and_uri(declare, alice):
    resource = declare(LedgerLine, Unrestricted)
    assert resource._key([1, 2]) == resource._key("1,2") == (1, 2)
    assert resource._key("model://shop/ledgerline/1%2C2") == (1, 2)
    assert resource._key_schema()["anyOf"][0]["type"] == "array"


def test_fetched_rows_have_all_columns(declare, server, alice, bob, invoice):
    resource, request = declare(uri="invoice://{number}"), make_request(alice, server)
    for write in (False, True):
        assert resource._fetch(request, ["A-1", "A-2"], write=write) == {"A-1": invoice}
    found = resource._fetch(request, ["A-1"])["A-1"]
    assert not found.get_deferred_fields()
    assert resource._fetch(make_request(bob, server), ["A-1"]) == {}


@pytest.mark.parametrize("subjects", [(), ("shop.Invoice",), (Invoice, 5), (OwnInvoices,)])
def test_model_resource_requires_a_model(subjects):
    with pytest.raises(TypeError, match="with a model: @mcp.register"):
        OwnInvoices._instances_for(subjects)


# Permissions.


class DefaultPermission(mcp.ModelResource):
    fields = ["name"]


@pytest.mark.parametrize("codename", ["view_customer", "change_customer"])
def test_default_permission_is_view_or_change_of_the_model(server, bob, codename):
    server.register(Customer, DefaultPermission)
    resource = valid_catalog(server).find(Customer)
    assert not resource._is_allowed(make_request(bob)) and not resource._is_allowed(make_request())
    bob.user_permissions.add(Permission.objects.get(codename=codename))
    assert resource._is_allowed(make_request(User.objects.get(pk=bob.pk)))
    assert resource._is_allowed(make_request(User.objects.create_superuser("boss")))
    assert not resource._is_allowed(
        make_request(User.objects.create_superuser("gone", is_active=False))
    )


@pytest.mark.parametrize("codename", ["add_customer", "delete_customer", "view_invoice"])
def test_other_model_permissions_are_not_sufficient(server, bob, codename):
    server.register(Customer, DefaultPermission)
    bob.user_permissions.add(Permission.objects.get(codename=codename))
    assert (
        not valid_catalog(server)
        .find(Customer)
        ._is_allowed(make_request(User.objects.get(pk=bob.pk)))
    )


def test_has_perm_is_called_without_an_object(server, alice, invoice, monkeypatch):
    seen = []
    monkeypatch.setattr(
        User, "has_perm", lambda self, perm, obj=None: seen.append((perm, obj)) or True
    )
    server.register(Invoice, type("Rows", (DefaultPermission,), {"fields": ["number"]}))
    resource = valid_catalog(server).find(Invoice)
    resource._fetch(make_request(alice, server), [invoice.pk])
    read(resource, alice, str(invoice.pk), server)
    assert seen and {obj for _, obj in seen} == {None}


def test_user_without_permission_fetches_and_completes_no_rows(
    server, bob, invoice, django_assert_num_queries
):
    server.register(Customer, DefaultPermission)
    resource = valid_catalog(server).find(Customer)
    with django_assert_num_queries(0):
        assert resource._fetch(make_request(None, server), [invoice.customer_id]) == {}
        assert resource._complete(make_request(None, server), "") == []
    assert resource._fetch(make_request(bob, server), [invoice.customer_id]) == {}


def test_public_and_free_model_resources(server):
    kinds = {
        "a": {"permission": mcp.PUBLIC},
        "b": {"permission": mcp.AUTHENTICATED},
        "c": {"permission": mcp.PUBLIC, "has_permission": lambda self, request: True},
        "d": {"permission": "shop.view_invoice"},
    }
    for name, attributes in kinds.items():
        base = type("Base", (Unrestricted,), {"uri": f"{name}://{{pk}}", "default": name == "a"})
        server.register(Invoice, type("Rows", (base,), attributes | {"name": name}))
    server.register(Customer, DefaultPermission)
    rows = [*valid_catalog(server).models[Invoice], *valid_catalog(server).models[Customer]]
    assert [one._is_public for one in rows] == [True, False, False, False, False]
    assert [one._decides_without_database for one in rows] == [True, True, False, False, False]
    assert [one._has_own_permission for one in rows] == [True, True, True, True, False]


# Links.


def test_foreign_key_has_a_link_to_its_row(server, alice, bob, invoice):
    server.register(Customer, Customers)
    server.register(Invoice, OwnInvoices)
    row = read(valid_catalog(server).find(Invoice), alice, str(invoice.pk), server)
    assert row["_links"] == {"customer": f"model://shop/customer/{invoice.customer_id}"}


def test_link_to_a_forbidden_resource_is_omitted(server, alice, invoice):
    server.register(Customer, DefaultPermission)
    server.register(Invoice, OwnInvoices)
    assert "_links" not in read(valid_catalog(server).find(Invoice), alice, str(invoice.pk), server)


def test_link_to_a_model_with_several_resources_is_omitted(server, alice, invoice):
    for name in ("a", "b"):
        attributes = {"uri": f"{name}://{{pk}}", "name": name}
        server.register(Customer, type(name, (Customers,), attributes))
    server.register(Invoice, OwnInvoices)
    assert "_links" not in read(valid_catalog(server).find(Invoice), alice, str(invoice.pk), server)


def test_link_uses_the_default_resource(server, alice, invoice):
    server.register(Customer, type("A", (Customers,), {"search_fields": ()}))
    server.register(
        Customer,
        type("B", (Customers,), {"uri": "b://{pk}", "default": True, "name": "b"}),
    )
    server.register(Invoice, OwnInvoices)
    row = read(valid_catalog(server).find(Invoice), alice, str(invoice.pk), server)
    assert row["_links"] == {"customer": f"b://{invoice.customer_id}"}


def test_link_to_a_resource_with_another_lookup_field_is_omitted(server, alice, invoice):
    base = type("Rows", (Unrestricted,), {"fields": ["name"], "uri": "company://{name}"})
    server.register(Company, base)
    server.register(Customer, type("C", (Unrestricted,), {"fields": ["company"]}))
    catalog = valid_catalog(server)
    assert not catalog.find(Company)._by_pk and catalog.find(Customer)._by_pk
    row = read(catalog.find(Customer), alice, str(invoice.customer_id), server)
    assert "_links" not in row


def test_link_of_a_foreign_key_with_to_field(server, alice):
    """With ``to_field``, the column does not contain the primary key, which is in the URI."""
    badge = Badge.objects.create(code="a/b", colour="red")
    wearer = Wearer.objects.create(badge=badge, locker=None)
    server.register(Badge, type("B", (Unrestricted,), {}))
    server.register(Place, type("P", (Unrestricted,), {}))
    server.register(Wearer, type("W", (Unrestricted,), {"fields": ["badge", "locker"]}))
    row = read(valid_catalog(server).find(Wearer), alice, str(wearer.pk), server)
    assert row["badge"] == "a/b" and row["locker"] is None
    assert row["_links"] == {"badge": "model://shop/badge/a%2Fb"}


# Lists.


@pytest.fixture
def five_invoices(invoice):
    for number in range(2, 6):
        Invoice.objects.create(
            company=invoice.company, customer=invoice.customer, number=f"A-{number}",
            total=1, issued=date(2026, 1, number),
        )  # fmt: skip


def test_rows_are_not_listed_by_default(declare):
    assert declare().listed is False


def test_listed_rows_are_paged(declare, server, alice, bob, five_invoices):
    resource = declare(listed=True, ordering=["number"], uri="invoice://{number}")
    request, after, seen = make_request(alice, server), None, []
    while True:
        entries, after = resource._page(request, after, 2)
        seen += entries
        if after is None:
            break
    assert [entry["uri"] for entry in seen] == [f"invoice://A-{number}" for number in range(1, 6)]
    assert seen[0] == {
        "uri": "invoice://A-1", "name": "invoice A-1", "mimeType": "application/json",
    }  # fmt: skip
    assert resource._page(make_request(bob, server), None, 2) == ([], None)


def test_get_listed_restricts_only_the_list(declare, server, alice, five_invoices):
    def get_listed(self, request):
        return self.get_queryset(request).filter(number="A-3")

    resource = declare(get_listed=get_listed, get_title=lambda self, request, row: f"N {row}")
    assert resource.listed is True
    entries, _ = resource._page(make_request(alice, server), None, 10)
    assert [entry["name"] for entry in entries] == ["N A-3"]
    assert read(resource, alice, str(Invoice.objects.get(number="A-1").pk), server)


def test_mime_type_may_be_none(declare, server, alice, invoice):
    resource = declare(mime_type=None, listed=True)
    ((entry,), _) = resource._page(make_request(alice, server), None, 10)
    assert "mimeType" not in entry


def test_row_without_object_permission_is_not_listed(declare, server, alice, five_invoices):
    def odd(self, request, obj, operation):
        return obj.number in ("A-1", "A-3")

    resource = declare(has_object_permission=odd, listed=True)
    entries, _ = resource._page(make_request(alice, server), None, 10)
    assert len(entries) == 2


# Completion.


def test_completion_of_the_uri(declare, server, alice, bob, five_invoices):
    resource = declare(uri="invoice://{number}", search_fields=["number"], ordering=["number"])
    complete = resource._completers["number"]
    assert complete is not None and list(complete(make_request(alice, server), "A-3")) == ["A-3"]
    assert list(complete(make_request(alice, server), "a-")) == [f"A-{n}" for n in range(1, 6)]
    assert list(complete(make_request(bob, server), "A-3")) == []
    assert list(complete(make_request(None, server), "A-3")) == []


def test_completion_checks_the_object_permission(declare, server, alice, five_invoices):
    def odd(self, request, obj, operation):
        return obj.number == "A-3"

    resource = declare(
        uri="invoice://{number}", search_fields=["number"], has_object_permission=odd
    )
    assert list(resource._complete(make_request(alice, server), "A")) == ["A-3"]


# Querysets.


def test_unevaluated_queryset_loads_only_listed_columns(declare, server, alice, invoice):
    resource = declare()
    fetched = resource._rows(Invoice.objects.all(), None)
    assert fetched[0].get_deferred_fields() >= {"metadata", "status"}
    whole = [*Invoice.objects.all()]
    assert resource._rows(whole, None) is whole
    evaluated = Invoice.objects.all()
    len(evaluated)
    assert resource._rows(evaluated, None) is evaluated


def test_default_querysets_use_the_model():
    class Odd(mcp.ModelResource):
        fields = ["name"]

    odd = Odd._instances_for((Company,))[0]
    assert odd.get_queryset(make_request()).model is Company
    assert odd.get_listed(make_request()).model is Company


def test_uri_variables_are_not_converted(declare):
    assert declare()._values({"pk": "01"}) == {"pk": "01"}
