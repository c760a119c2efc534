"""Keys of rows as texts, their schemas, and field paths such as ``customer__name``."""

import uuid

import pytest
from django.core.exceptions import FieldError, ImproperlyConfigured
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from django_mcp.declarations.fields.keys import (
    did_you_mean_hint,
    field_names,
    follow,
    key_problems,
    key_schema,
    key_text,
    key_value,
    parse_key,
)
from tests.shop.models import (
    Badge,
    Company,
    Customer,
    Invoice,
    LedgerLine,
    LocalPlace,
    Note,
    Place,
    Sample,
    Warehouse,
    Wearer,
)

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
integers = st.integers(-(2**63), 2**63 - 1)
rows = st.one_of(
    integers.map(lambda key: Place(pk=key)),
    integers.map(lambda key: Warehouse(pk=key)),
    st.uuids().map(lambda key: Note(pk=key)),
    texts.map(lambda key: Badge(pk=key)),
    st.tuples(integers, integers).map(lambda key: LedgerLine(company_id=key[0], line=key[1])),
)


@given(row=rows)
def test_key_text_and_key_value_are_parsed_to_the_same_key(row):
    model, text = type(row), key_text(row)
    assert parse_key(model, text) == row.pk
    assert parse_key(model, key_value(row)) == row.pk
    assert Draft202012Validator(key_schema(model)).is_valid(key_value(row))


@pytest.mark.parametrize(
    ("model", "key"),
    [
        (Place, "01"),
        (Place, "+1"),
        (Place, " 1"),
        (Place, "1 "),
        (Place, "-0"),
        (Place, "1_0"),
        (Place, "١"),
        (Place, "1.0"),
        (Place, "1e3"),
        (Place, ""),
        (Place, "9" * 19),
        (Place, "9" * 5000),
        (Place, True),
        (Place, 1.0),
        (Place, None),
        (Place, [1]),
        (Place, {"pk": 1}),
        (Note, "x"),
        (Note, str(uuid.UUID(int=1)).replace("-", "")),
        (Note, f"{{{uuid.UUID(int=1)}}}"),
        (Note, f"urn:uuid:{uuid.UUID(int=1)}"),
        (Note, str(uuid.UUID(int=10)).upper()),
        (Badge, "x\0"),
        (Badge, "\ud800"),
        (Badge, "x" * 1001),
        (Badge, 3),
        (LedgerLine, "1"),
        (LedgerLine, "1,2,3"),
        (LedgerLine, "1,"),
        (LedgerLine, "1,2 "),
        (LedgerLine, "1,%32"),
        (LedgerLine, "1,%ff"),
        (LedgerLine, [1]),
        (LedgerLine, [1, "2", 3]),
        (LedgerLine, [1, [2]]),
        (LedgerLine, 1),
    ],
)
def test_invalid_key_is_refused(model, key):
    with pytest.raises(ValueError):
        parse_key(model, key)


def test_key_by_another_lookup_than_the_primary_key():
    invoice = Invoice(number="A,1 %")
    assert key_text(invoice, "number") == "A,1 %"
    assert parse_key(Invoice, "A,1 %", "number") == "A,1 %"
    assert key_schema(Invoice, "number") == {"type": "string"}


def test_key_schema_follows_the_type_of_the_key():
    assert key_schema(Warehouse) == key_schema(LocalPlace) == {"type": "integer"}
    assert key_schema(Note) == {"type": "string", "format": "uuid"}
    line = key_schema(LedgerLine)
    assert line["prefixItems"] == [{"type": "integer"}] * 2 and line["maxItems"] == 2


def test_field_that_cannot_be_a_key_is_a_problem():
    assert key_problems(Wearer) == key_problems(LedgerLine) == []
    for name in ("blob", "weight", "checked"):  # the last two have no canonical text
        assert name in key_problems(Sample, name)[0]
    assert "Did you mean" in key_problems(Sample, "nmae")[0]
    with pytest.raises(ImproperlyConfigured):
        key_schema(Sample, "blob")


# Paths of fields.


@pytest.mark.parametrize(
    ("model", "name", "lookup", "related_path", "nullable"),
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
def test_path_is_resolved_to_lookup_related_path_and_nullability(
    model, name, lookup, related_path, nullable
):
    path = follow(model, name)
    assert (path.lookup, path.related_path, path.nullable) == (lookup, related_path, nullable)


def test_path_reads_the_value_of_an_instance():
    customer = Customer(name="Zoe", company=Company(pk=7, name="Acme"))
    invoice = Invoice(customer=customer, number="A1")
    assert follow(Invoice, "customer__company__name").value_of(invoice) == "Acme"
    assert follow(Invoice, "customer__company").value_of(invoice) == 7
    assert follow(Customer, "referred_by__name").value_of(customer) is None
    assert follow(Sample, "place__name").value_of(Sample()) is None


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
def test_invalid_path_is_refused_with_a_hint(model, name, words):
    with pytest.raises(FieldError, match=words):
        follow(model, name)


def test_did_you_mean_hint():
    assert did_you_mean_hint("custmer", ["customer", "number"]) == " Did you mean 'customer'?"
    assert did_you_mean_hint("xyzzy", ["customer"]) == ""
    assert {"number", "tags", "customer"} <= set(field_names(Invoice))
    assert "referred_by" in field_names(Customer) and "customer" in field_names(Customer)
