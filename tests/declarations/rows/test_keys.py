"""A row has one spelling: texts and keys lead to each other, and nothing else is a key."""

import uuid

import pytest
from django.core.exceptions import ImproperlyConfigured
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from django_mcp.declarations.fields.keys import (
    key_problems,
    key_schema,
    key_text,
    key_value,
    parse_key,
)
from tests.shop.models import (
    Badge,
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
def test_a_text_leads_back_to_the_key(row):
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
def test_what_is_no_key(model, key):
    with pytest.raises(ValueError):
        parse_key(model, key)


def test_a_lookup_other_than_the_primary_key():
    invoice = Invoice(number="A,1 %")
    assert key_text(invoice, "number") == "A,1 %"
    assert parse_key(Invoice, "A,1 %", "number") == "A,1 %"
    assert key_schema(Invoice, "number") == {"type": "string"}


def test_shapes_of_schemas():
    assert key_schema(Warehouse) == key_schema(LocalPlace) == {"type": "integer"}
    assert key_schema(Note) == {"type": "string", "format": "uuid"}
    line = key_schema(LedgerLine)
    assert line["prefixItems"] == [{"type": "integer"}] * 2 and line["maxItems"] == 2


def test_what_cannot_be_a_key():
    assert key_problems(Wearer) == key_problems(LedgerLine) == []
    assert "blob" in key_problems(Sample, "blob")[0]
    assert "Did you mean" in key_problems(Sample, "nmae")[0]
    with pytest.raises(ImproperlyConfigured):
        key_schema(Sample, "blob")
