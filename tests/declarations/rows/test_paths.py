"""What names mean on a model, and the words for those that mean nothing."""

import pytest
from django.core.exceptions import FieldError

from django_mcp.declarations.fields.keys import did_you_mean_hint, field_names, follow
from tests.shop.models import Company, Customer, Invoice, LedgerLine, Place, Sample, Warehouse


@pytest.mark.parametrize(
    ("model", "name", "lookup", "joins", "nullable"),
    [
        (Invoice, "number", "number", "", False),
        (Invoice, "pk", "id", "", False),
        (Invoice, "paid_at", "paid_at", "", True),
        (Invoice, "customer", "customer_id", "", False),
        (Invoice, "customer_id", "customer_id", "", False),
        (Invoice, "customer__name", "customer__name", "customer", False),
        (Invoice, "customer__company__pk", "customer__company__id", "customer__company", False),
        (Customer, "referred_by__name", "referred_by__name", "referred_by", True),
        (Invoice, "customer__referred_by", "customer__referred_by_id", "customer", True),
        (Warehouse, "name", "name", "", False),
        (Warehouse, "pk", "place_ptr_id", "", False),
        (LedgerLine, "company__name", "company__name", "company", False),
    ],
)
def test_paths(model, name, lookup, joins, nullable):
    path = follow(model, name)
    assert (path.lookup, path.joins, path.nullable) == (lookup, joins, nullable)


def test_the_value_of_a_path():
    customer = Customer(name="Zoe", company=Company(pk=7, name="Acme"))
    invoice = Invoice(customer=customer, number="A1")
    assert follow(Invoice, "customer__company__name").of(invoice) == "Acme"
    assert follow(Invoice, "customer__company").of(invoice) == 7
    assert follow(Customer, "referred_by__name").of(customer) is None
    assert follow(Sample, "place__name").of(Sample()) is None


@pytest.mark.parametrize(
    ("model", "name", "words"),
    [
        (Invoice, "nubmer", "Did you mean 'number'"),
        (Invoice, "xyzzy", "has no field 'xyzzy'."),
        (Invoice, "customer__", "has no field ''"),
        (Invoice, "tags", "without a column of its own"),
        (Invoice, "tags__label", "can only follow foreign keys"),
        (Company, "customers__name", "can only follow foreign keys"),
        (Place, "wearer__badge", "can only follow foreign keys"),
        (Invoice, "number__x", "is not a foreign key"),
        (LedgerLine, "pk", "several columns"),
    ],
)
def test_what_is_no_path(model, name, words):
    with pytest.raises(FieldError, match=words):
        follow(model, name)


def test_hints():
    assert did_you_mean_hint("custmer", ["customer", "number"]) == " Did you mean 'customer'?"
    assert did_you_mean_hint("xyzzy", ["customer"]) == ""
    assert {"number", "tags", "customer"} <= set(field_names(Invoice))
    assert "referred_by" in field_names(Customer) and "customer" in field_names(Customer)
