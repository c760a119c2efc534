"""Relations in operations: related rows are restricted to those that the user may see."""

import pytest
from django.db import models

import django_mcp as mcp
from tests.shop.models import Badge, Company, Customer, Invoice, Place, Tag, Wearer

from .billing import Free, read, writer


@pytest.fixture
def write(server, connect, alice):
    return writer(server, connect, alice)


def test_foreign_key_with_to_field_can_be_set(write):
    Badge.objects.create(code="b", colour="red")
    Badge.objects.create(code="c", colour="blue")
    client = write((Wearer, ["badge", "locker"]), (Badge, ["code"]), (Place, ["name"]))
    locker = Place.objects.create(name="L")
    row = read(client.text("create_wearer", badge="b", locker=locker.pk))
    assert (row["badge"], row["locker"]) == ("b", locker.pk)
    row = read(client.text("update_wearer", wearer=row["_uri"], badge="c"))
    assert row["badge"] == "c" and Wearer.objects.get().badge_id == "blue"
    words = client.failure("create_wearer", badge="b", locker=locker.pk)
    assert words == "locker: Wearer with this Locker already exists."


class ReadOnly(Free):
    operations: list[str] = []
    operation_permissions: dict[str, str] = {}


class Labelled(ReadOnly):
    fields = ["label"]
    uri = "tag://{label}"


class Bills(Free):
    fields = ["number", "tags", "customer"]
    filter_fields = ["tags", "customer"]
    operations = ["update"]
    operation_permissions = {"update": mcp.AUTHENTICATED}


class Customers(ReadOnly):
    fields = ["name"]


@pytest.fixture
def bills(server, connect, alice):
    for model, resource in ((Tag, Labelled), (Customer, Customers), (Invoice, Bills)):
        server.register(model, resource)
    server.ready()
    return connect(alice, server=server)


def test_relation_accepts_primary_key_or_uri(bills, invoice):
    """The related resource has another lookup field in its URI. Filters accept the same values."""
    tag = Tag.objects.create(label="good")
    customer = f"model://shop/customer/{invoice.customer_id}"
    for name in (tag.pk, str(tag.pk), "tag://good"):
        row = read(bills.text("update_invoice", invoice=invoice.pk, tags=[name]))
        assert row["tags"] == [tag.pk]
        for wanted in ({"tags": name}, {"tags__in": [name]}, {"customer": customer}):
            found = read(bills.text("search_invoice", **wanted))
            assert [row["number"] for row in found["results"]] == [invoice.number], wanted
    for unknown in (tag.pk + 1, "tag://bad", "good"):
        assert "tag" in bills.failure("update_invoice", invoice=invoice.pk, tags=[unknown])
    assert bills.failure("search_invoice", tags="tag://bad") == "There is no tag 'bad'."


def test_filter_by_the_uri_of_a_hidden_row_has_the_error_of_a_missing_row(
    bills, invoice, monkeypatch
):
    """Otherwise the response would reveal that a hidden row has this name."""
    hidden = Tag.objects.exclude(label="secret")
    monkeypatch.setattr(Labelled, "get_queryset", lambda self, request: hidden.all())
    invoice.tags.add(Tag.objects.create(label="secret"))
    assert bills.failure("search_invoice", tags="tag://secret") == "There is no tag 'secret'."
    assert bills.failure("search_invoice", tags__in=["tag://none"]) == "There is no tag 'none'."


def test_self_reference_can_be_set_and_cleared(write, invoice):
    client = write((Customer, ["name", "referred_by", "company"]), (Company, ["name"]))
    first = invoice.customer
    row = read(
        client.text("create_customer", name="New", referred_by=first.pk, company=first.company_id)
    )
    assert row["referred_by"] == first.pk
    row = read(client.text("update_customer", customer=row["_uri"], referred_by=None))
    assert row["referred_by"] is None


def test_limit_choices_to_is_enforced(write, invoice, monkeypatch):
    good, bad = Tag.objects.create(label="good"), Tag.objects.create(label="bad")
    for field, limit in (("tags", {"label": "good"}), ("customer", models.Q(name="Nobody"))):
        monkeypatch.setattr(Invoice._meta.get_field(field).remote_field, "limit_choices_to", limit)
    client = write((Invoice, ["number", "tags", "customer"]), (Tag, ["label"]),
                   (Customer, ["name"]), operations=["update"],
                   operation_permissions={"update": mcp.AUTHENTICATED})  # fmt: skip
    words = client.failure("update_invoice", invoice=invoice.pk, tags=[good.pk, bad.pk])
    assert words == "Invalid arguments. tags: A row cannot be chosen for this field."
    words = client.failure("update_invoice", invoice=invoice.pk, tags=[good.pk])
    assert words.startswith("customer: ") and not invoice.tags.exists()
    invoice.customer.name = "Nobody"
    invoice.customer.save()
    client.text("update_invoice", invoice=invoice.pk, tags=[good.pk, good.pk])
    assert invoice.tags.get() == good


class SomeTags(ReadOnly):
    fields = ["label"]

    def get_queryset(self, request):
        return super().get_queryset(request).exclude(label__startswith="hidden")


class PermittedTags(ReadOnly):
    fields = ["label"]

    def has_object_permission(self, request, obj, action):
        return not obj.label.startswith("hidden")


class ForbiddenTags(ReadOnly):
    fields = ["label"]
    permission = staticmethod(lambda request: False)


class Tagged(ReadOnly):
    fields = ["number", "tags", "tags__label"]
    filter_fields = ["tags", "tags__label"]


class Companies(ReadOnly):
    fields = ["name", "customers"]


def found(client, **arguments):
    return read(client.text("search_invoice", **arguments))["results"]


@pytest.mark.parametrize("tags", [SomeTags, PermittedTags, ForbiddenTags])
def test_related_rows_that_the_user_cannot_see_are_not_shown(server, connect, alice, invoice, tags):
    seen, hidden = (Tag.objects.create(label=label) for label in ("seen", "hidden"))
    invoice.tags.set([seen, hidden])
    for model, resource in ((Tag, tags), (Invoice, Tagged)):
        server.register(model, resource)

    @server.tool(permission=mcp.AUTHENTICATED)
    def pay(request: mcp.Request, invoice: Invoice) -> Invoice:
        """Pay."""
        return invoice

    client = connect(alice, server=server)
    uri = f"model://shop/invoice/{invoice.pk}"
    (content,) = client.request("resources/read", uri=uri)["contents"]
    keys, labels = ([], []) if tags is ForbiddenTags else ([seen.pk], ["seen"])
    for row in (
        *found(client),
        read(content["text"]),
        read(client.text("pay", invoice=invoice.pk)),
    ):
        assert (row["tags"], row["tags__label"]) == (keys, labels)
    for arguments in ({"tags": hidden.pk}, {"tags__in": [hidden.pk]}):
        assert found(client, **arguments) == []
    if tags is not PermittedTags:  # no query can check object permission
        assert found(client, tags__label="hidden") == []
    assert len(found(client, tags__in=[seen.pk, hidden.pk])) == len(keys)


def test_reverse_relation_shows_only_rows_that_the_user_can_see(server, connect, alice, invoice):
    class Own(Customers):
        def get_queryset(self, request):
            return super().get_queryset(request).exclude(notes="hunter2")

    Customer.objects.create(company=invoice.company, name="Dora", notes="hunter2")
    server.register(Customer, Own)
    server.register(Company, Companies)
    client = connect(alice, server=server)
    uri = f"model://shop/company/{invoice.company_id}"
    (content,) = client.request("resources/read", uri=uri)["contents"]
    assert read(content["text"])["customers"] == [invoice.customer_id]
