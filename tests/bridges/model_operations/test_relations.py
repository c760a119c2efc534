"""What a row points to: bound through what its caller sees, and left alone where they do not."""

import pytest
from django.db import models

import django_mcp as mcp
from tests.shop.models import Badge, Company, Customer, Invoice, Place, Tag, Wearer

from ..billing import read, writer


@pytest.fixture
def write(server, connect, alice):
    return writer(server, connect, alice)


def test_a_foreign_key_to_another_column(write):
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


def test_a_row_may_point_to_one_of_its_own_kind_or_none(write, invoice):
    client = write((Customer, ["name", "referred_by", "company"]), (Company, ["name"]))
    first = invoice.customer
    row = read(
        client.text("create_customer", name="New", referred_by=first.pk, company=first.company_id)
    )
    assert row["referred_by"] == first.pk
    row = read(client.text("update_customer", customer=row["_uri"], referred_by=None))
    assert row["referred_by"] is None


def test_only_what_may_be_chosen_is(write, invoice, monkeypatch):
    good, bad = Tag.objects.create(label="good"), Tag.objects.create(label="bad")
    for field, limit in (("tags", {"label": "good"}), ("customer", models.Q(name="Nobody"))):
        monkeypatch.setattr(Invoice._meta.get_field(field).remote_field, "limit_choices_to", limit)
    client = write((Invoice, ["number", "tags", "customer"]), (Tag, ["label"]),
                   (Customer, ["name"]), operations=["update"],
                   operation_permissions={"update": mcp.AUTHENTICATED})  # fmt: skip
    words = client.failure("update_invoice", invoice=invoice.pk, tags=[good.pk, bad.pk])
    assert words == "Invalid arguments. tags: One of them cannot be chosen."
    words = client.failure("update_invoice", invoice=invoice.pk, tags=[good.pk])
    assert words.startswith("customer: ") and not invoice.tags.exists()
    invoice.customer.name = "Nobody"
    invoice.customer.save()
    client.text("update_invoice", invoice=invoice.pk, tags=[good.pk, good.pk])
    assert invoice.tags.get() == good
