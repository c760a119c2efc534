"""Rows as resources: one gate through which all of them pass, and a whitelist of what is seen."""

import json
from datetime import date
from decimal import Decimal

import pytest
from django.contrib.auth.models import Permission, User

import django_mcp as mcp
from django_mcp.declarations.schemas import violations
from django_mcp.protocol.jsonrpc import ResourceNotFound
from tests.shop.models import Badge, Company, Customer, Invoice, LedgerLine, Note, Place, Wearer

from .world import asked, right


class Own(mcp.ModelResource):
    """What customers owe."""

    permission = mcp.AUTHENTICATED
    fields = ["number", "customer", "total"]

    def get_queryset(self, request):
        return super().get_queryset(request).filter(company__members=request.user)


class Customers(Own):
    """A customer."""

    fields = ["name"]
    search_fields = ["name"]


class All(mcp.ModelResource):
    permission = mcp.AUTHENTICATED
    fields = ["pk"]

    def get_queryset(self, request):
        return super().get_queryset(request).all()


@pytest.fixture
def declare(server):
    """Registers a subclass, and gives its resource."""

    def declared(model=Invoice, base=Own, **attributes):
        server.register(model, type("Rows", (base,), attributes))
        return right(server).find(model)

    return declared


def read(resource, user, key, server):
    return resource.read(asked(user, server), **{resource._lookup: key})


# What lists show of it.


def test_its_template(declare):
    assert declare()._definition() == {
        "uriTemplate": "model://shop/invoice/{pk}",
        "name": "invoice",
        "title": "Invoice",
        "mimeType": "application/json",
    }


def test_its_words_are_its_own(server):
    class Named(Own):
        """What is owed."""

        name, title, uri = "bill", "Bill", "bill://{number}"
        fields = ["number"]

    server.register(Invoice, Named)
    shown = right(server).find(Invoice)._definition()
    assert shown == {
        "uriTemplate": "bill://{number}", "name": "bill", "title": "Bill",
        "description": "What is owed.", "mimeType": "application/json",
    }  # fmt: skip


def test_it_says_where_it_was_written(declare):
    assert declare()._origin().endswith("Rows of shop.Invoice")


# One row.


def test_a_row(declare, server, alice, invoice):
    resource = declare()
    assert read(resource, alice, str(invoice.pk), server) == {
        "_uri": f"model://shop/invoice/{invoice.pk}",
        "number": "A-1",
        "customer": invoice.customer_id,
        "total": "12.50",
    }


def test_a_row_fits_its_schema(server, alice, invoice):
    server.register(Customer, Customers)
    server.register(Invoice, Own)
    resource = right(server).find(Invoice)
    row = read(resource, alice, str(invoice.pk), server)
    assert violations(resource._row_schema(), row) == []
    assert set(row) == set(resource._row_schema()["properties"])
    json.dumps(row)


def test_only_what_is_named_is_loaded(declare, server, alice, invoice, django_assert_num_queries):
    resource = declare()
    with django_assert_num_queries(1) as queries:
        read(resource, alice, str(invoice.pk), server)
    assert "metadata" not in queries[0]["sql"] and "notes" not in queries[0]["sql"]


@pytest.mark.parametrize("key", ["0", "x", "", "01", "1.0", "\0", "9" * 30, "None"])
def test_what_is_not_there(declare, server, alice, invoice, key):
    with pytest.raises(ResourceNotFound):
        read(declare(), alice, key, server)


def test_what_is_not_for_this_user_is_not_there(declare, server, alice, bob, invoice):
    resource = declare()
    with pytest.raises(ResourceNotFound) as hidden:
        read(resource, bob, str(invoice.pk), server)
    with pytest.raises(ResourceNotFound) as missing:
        read(resource, bob, str(invoice.pk + 1), server)
    assert hidden.value.message == missing.value.message


def test_objects_have_permissions_too(declare, server, alice, invoice):
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


def test_every_object_is_allowed_unless_something_is_said():
    assert mcp.ModelResource().has_object_permission(asked(), object(), "delete") is True


def test_a_promise_of_permission_is_none(declare, server, alice, invoice):
    """The checks refuse an async method; if one comes about anyhow, nobody is let in."""
    resource = declare()

    async def later(request, obj, operation):
        return True

    resource.has_object_permission = later
    with pytest.raises(TypeError):
        read(resource, alice, str(invoice.pk), server)


def test_a_row_by_a_unique_field(declare, server, alice, invoice):
    resource = declare(uri="invoice://{number}")
    assert read(resource, alice, "A-1", server)["_uri"] == "invoice://A-1"
    with pytest.raises(ResourceNotFound):
        read(resource, alice, str(invoice.pk), server)


def test_keys_of_other_kinds(server, alice):
    company = Company.objects.get(name="Acme")
    note = Note.objects.create(text="x")
    badge = Badge.objects.create(code="a/b", colour="red")
    line = LedgerLine.objects.create(company=company, line=7, text="x", amount=1)
    for model in (Note, Badge, LedgerLine):
        server.register(model, type("Rows", (All,), {"__qualname__": model.__name__}))
    catalog = right(server)
    for row in (note, badge, line):
        resource = catalog.find(type(row))
        uri = resource._uri_of(row)
        variables = resource._match(uri)
        assert resource.read(asked(alice, server), **variables)["_uri"] == uri
        assert resource._fetch(asked(alice, server), [resource._key(uri)]) == {row.pk: row}
    assert catalog.find(Badge)._uri_of(badge) == "model://shop/badge/a%2Fb"


def test_what_names_a_row(declare, invoice):
    resource = declare()
    assert resource._key(5) == resource._key("5") == resource._key("model://shop/invoice/5") == 5
    for wrong in ("model://shop/customer/5", "x", None, 1.5, True, [5, 6]):
        with pytest.raises(ValueError, match=r"."):
            resource._key(wrong)
    assert resource._key_schema() == {
        "type": ["integer", "string"],
        "description": "Key or URI of the invoice.",
    }  # fmt: skip


def test_the_parts_of_a_key(declare, alice):
    resource = declare(LedgerLine, All)
    assert resource._key([1, 2]) == resource._key("1,2") == (1, 2)
    assert resource._key("model://shop/ledgerline/1%2C2") == (1, 2)
    assert resource._key_schema()["anyOf"][0]["type"] == "array"


def test_rows_are_fetched_whole_by_what_names_them(declare, server, alice, bob, invoice):
    resource, request = declare(uri="invoice://{number}"), asked(alice, server)
    for write in (False, True):
        assert resource._fetch(request, ["A-1", "A-2"], write=write) == {"A-1": invoice}
    found = resource._fetch(request, ["A-1"])["A-1"]
    assert not found.get_deferred_fields()
    assert resource._fetch(asked(bob, server), ["A-1"]) == {}


@pytest.mark.parametrize("subjects", [(), ("shop.Invoice",), (Invoice, 5), (Own,)])
def test_it_is_made_for_models(subjects):
    with pytest.raises(TypeError, match="with a model: @mcp.register"):
        Own._made_for(subjects)


# Who may see rows at all.


class Stating(mcp.ModelResource):
    fields = ["name"]


@pytest.mark.parametrize("codename", ["view_customer", "change_customer"])
def test_without_a_word_djangos_permission_decides(server, bob, codename):
    server.register(Customer, Stating)
    resource = right(server).find(Customer)
    assert not resource._is_allowed(asked(bob)) and not resource._is_allowed(asked())
    bob.user_permissions.add(Permission.objects.get(codename=codename))
    assert resource._is_allowed(asked(User.objects.get(pk=bob.pk)))
    assert resource._is_allowed(asked(User.objects.create_superuser("boss")))
    assert not resource._is_allowed(asked(User.objects.create_superuser("gone", is_active=False)))


@pytest.mark.parametrize("codename", ["add_customer", "delete_customer", "view_invoice"])
def test_other_permissions_show_nothing(server, bob, codename):
    server.register(Customer, Stating)
    bob.user_permissions.add(Permission.objects.get(codename=codename))
    assert not right(server).find(Customer)._is_allowed(asked(User.objects.get(pk=bob.pk)))


def test_a_models_permission_is_never_asked_about_an_object(server, alice, invoice, monkeypatch):
    seen = []
    monkeypatch.setattr(
        User, "has_perm", lambda self, perm, obj=None: seen.append((perm, obj)) or True
    )
    server.register(Invoice, type("Rows", (Stating,), {"fields": ["number"]}))
    resource = right(server).find(Invoice)
    resource._fetch(asked(alice, server), [invoice.pk])
    read(resource, alice, str(invoice.pk), server)
    assert seen and {obj for _, obj in seen} == {None}


def test_who_may_not_see_the_model_fetches_nothing(server, bob, invoice, django_assert_num_queries):
    server.register(Customer, Stating)
    resource = right(server).find(Customer)
    with django_assert_num_queries(0):
        assert resource._fetch(asked(None, server), [invoice.customer_id]) == {}
        assert resource._complete(asked(None, server), "") == []
    assert resource._fetch(asked(bob, server), [invoice.customer_id]) == {}


def test_public_and_free(server):
    kinds = {
        "a": {"permission": mcp.PUBLIC},
        "b": {"permission": mcp.AUTHENTICATED},
        "c": {"permission": mcp.PUBLIC, "has_permission": lambda self, request: True},
        "d": {"permission": "shop.view_invoice"},
    }
    for name, attributes in kinds.items():
        base = type("Base", (All,), {"uri": f"{name}://{{pk}}", "default": name == "a"})
        server.register(Invoice, type("Rows", (base,), attributes | {"name": name}))
    server.register(Customer, Stating)
    rows = [*right(server).models[Invoice], *right(server).models[Customer]]
    assert [one._is_public for one in rows] == [True, False, False, False, False]
    assert [one._is_free for one in rows] == [True, True, False, False, False]
    assert [one._states_permission for one in rows] == [True, True, True, True, False]


# Links.


def test_a_foreign_key_leads_to_its_row(server, alice, bob, invoice):
    server.register(Customer, Customers)
    server.register(Invoice, Own)
    row = read(right(server).find(Invoice), alice, str(invoice.pk), server)
    assert row["_links"] == {"customer": f"model://shop/customer/{invoice.customer_id}"}


def test_a_link_to_what_the_caller_may_not_see_is_not_shown(server, alice, invoice):
    server.register(Customer, Stating)
    server.register(Invoice, Own)
    assert "_links" not in read(right(server).find(Invoice), alice, str(invoice.pk), server)


def test_a_link_needs_one_resource(server, alice, invoice):
    for name in ("a", "b"):
        attributes = {"uri": f"{name}://{{pk}}", "name": name}
        server.register(Customer, type(name, (Customers,), attributes))
    server.register(Invoice, Own)
    assert "_links" not in read(right(server).find(Invoice), alice, str(invoice.pk), server)


def test_the_default_resource_is_linked_to(server, alice, invoice):
    server.register(Customer, type("A", (Customers,), {"search_fields": ()}))
    server.register(
        Customer,
        type("B", (Customers,), {"uri": "b://{pk}", "default": True, "name": "b"}),
    )
    server.register(Invoice, Own)
    row = read(right(server).find(Invoice), alice, str(invoice.pk), server)
    assert row["_links"] == {"customer": f"b://{invoice.customer_id}"}


def test_no_link_to_a_resource_that_goes_by_another_field(server, alice, invoice):
    base = type("Rows", (All,), {"fields": ["name"], "uri": "company://{name}"})
    server.register(Company, base)
    server.register(Customer, type("C", (All,), {"fields": ["company"]}))
    catalog = right(server)
    assert not catalog.find(Company)._by_pk and catalog.find(Customer)._by_pk
    row = read(catalog.find(Customer), alice, str(invoice.customer_id), server)
    assert "_links" not in row


def test_a_link_of_a_key_that_points_elsewhere(server, alice):
    """With `to_field` the column holds another value than the key that the address is made of."""
    badge = Badge.objects.create(code="a/b", colour="red")
    wearer = Wearer.objects.create(badge=badge, locker=None)
    server.register(Badge, type("B", (All,), {}))
    server.register(Place, type("P", (All,), {}))
    server.register(Wearer, type("W", (All,), {"fields": ["badge", "locker"]}))
    row = read(right(server).find(Wearer), alice, str(wearer.pk), server)
    assert row["badge"] == "a/b" and row["locker"] is None
    assert row["_links"] == {"badge": "model://shop/badge/a%2Fb"}


# Lists.


@pytest.fixture
def several(invoice):
    for number in range(2, 6):
        Invoice.objects.create(
            company=invoice.company, customer=invoice.customer, number=f"A-{number}",
            total=1, issued=date(2026, 1, number),
        )  # fmt: skip


def test_rows_are_not_listed_unless_it_is_said(declare):
    assert declare().listed is False


def test_pages_of_rows(declare, server, alice, bob, several):
    resource = declare(listed=True, ordering=["number"], uri="invoice://{number}")
    request, after, seen = asked(alice, server), None, []
    while True:
        entries, after = resource._page(request, after, 2)
        seen += entries
        if after is None:
            break
    assert [entry["uri"] for entry in seen] == [f"invoice://A-{number}" for number in range(1, 6)]
    assert seen[0] == {
        "uri": "invoice://A-1", "name": "invoice A-1", "mimeType": "application/json",
    }  # fmt: skip
    assert resource._page(asked(bob, server), None, 2) == ([], None)


def test_what_lists_show_may_be_less_than_what_can_be_read(declare, server, alice, several):
    def get_listed(self, request):
        return self.get_queryset(request).filter(number="A-3")

    resource = declare(get_listed=get_listed, get_title=lambda self, request, row: f"N {row}")
    assert resource.listed is True
    entries, _ = resource._page(asked(alice, server), None, 10)
    assert [entry["name"] for entry in entries] == ["N A-3"]
    assert read(resource, alice, str(Invoice.objects.get(number="A-1").pk), server)


def test_a_type_of_its_own_or_none(declare, server, alice, invoice):
    resource = declare(mime_type=None, listed=True)
    ((entry,), _) = resource._page(asked(alice, server), None, 10)
    assert "mimeType" not in entry


def test_what_is_not_permitted_is_not_listed(declare, server, alice, several):
    def odd(self, request, obj, operation):
        return obj.number in ("A-1", "A-3")

    resource = declare(has_object_permission=odd, listed=True)
    entries, _ = resource._page(asked(alice, server), None, 10)
    assert len(entries) == 2


# Completion.


def test_completion_of_the_address(declare, server, alice, bob, several):
    resource = declare(uri="invoice://{number}", search_fields=["number"], ordering=["number"])
    complete = resource._completers["number"]
    assert complete is not None and list(complete(asked(alice, server), "A-3")) == ["A-3"]
    assert list(complete(asked(alice, server), "a-")) == [f"A-{n}" for n in range(1, 6)]
    assert list(complete(asked(bob, server), "A-3")) == []
    assert list(complete(asked(None, server), "A-3")) == []


def test_completion_asks_about_objects_too(declare, server, alice, several):
    def odd(self, request, obj, operation):
        return obj.number == "A-3"

    resource = declare(
        uri="invoice://{number}", search_fields=["number"], has_object_permission=odd
    )
    assert list(resource._complete(asked(alice, server), "A")) == ["A-3"]


# Querysets of the project's own.


def test_a_queryset_shows_just_what_the_fields_do(declare, server, alice, invoice):
    resource = declare()
    fetched = resource._rows(Invoice.objects.all())
    assert fetched[0].get_deferred_fields() >= {"metadata", "status"}
    whole = [*Invoice.objects.all()]
    assert resource._rows(whole) is whole
    evaluated = Invoice.objects.all()
    len(evaluated)
    assert resource._rows(evaluated) is evaluated


def test_rows_of_the_default_manager():
    class Odd(mcp.ModelResource):
        fields = ["name"]

    odd = Odd._made_for((Company,))[0]
    assert odd.get_queryset(asked()).model is Company
    assert odd.get_listed(asked()).model is Company


def test_values_are_read_as_they_come(declare):
    assert declare()._values({"pk": "01"}) == {"pk": "01"}
