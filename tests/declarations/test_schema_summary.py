"""Summaries of JSON Schemas in plain words, for commands and the server page."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from django.utils.translation import override
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

import django_mcp as mcp
from django_mcp.declarations.schema_summary import (
    FORMATS,
    MAX_LINES,
    PropertyLine,
    key_description,
    kind,
    lines,
)
from tests.shop.models import Customer, Invoice

from .helpers import valid_catalog

TYPES: list[tuple[dict[str, Any], str]] = [
    ({"type": "string"}, "text"),
    ({"type": "string", "minLength": 1}, "text, not empty"),
    ({"type": "string", "minLength": 0, "maxLength": 5}, "text of at most 5 characters"),
    ({"type": "string", "minLength": 2, "maxLength": 5}, "text of 2 to 5 characters"),
    ({"type": "string", "minLength": 3}, "text of at least 3 characters"),
    ({"type": "string", "maxLength": 1}, "text of at most 1 character"),
    ({"type": "string", "format": "date"}, "date"),
    ({"type": "string", "format": "date-time"}, "date and time"),
    ({"type": "string", "format": "of the project's own"}, "text"),
    ({"type": "string", "contentEncoding": "base64"}, "text in base64"),
    ({"type": "string", "pattern": r"^-?[0-9]+(\.[0-9]+)?$"}, "number as text"),
    ({"type": "string", "pattern": r"^[0-9]{2}:[0-9]{2}$"}, "text"),
    ({"type": "string", "pattern": r"^\p{L}("}, "text"),
    ({"type": "integer"}, "whole number"),
    ({"type": "integer", "minimum": 1, "maximum": 50}, "whole number from 1 to 50"),
    ({"type": "number", "minimum": 0.5}, "number of at least 0.5"),
    ({"type": "number", "maximum": 2.0}, "number of at most 2"),
    ({"type": "number", "exclusiveMinimum": 0}, "number above 0"),
    (
        {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
        "number above 0 and below 1",
    ),
    ({"type": "number", "minimum": 0, "exclusiveMinimum": True}, "number above 0"),
    ({"type": "number", "maximum": 9, "exclusiveMaximum": True}, "number below 9"),
    ({"type": "boolean"}, "yes or no"),
    ({"type": "null"}, "nothing"),
    ({"type": ["null", "integer"]}, "whole number or nothing"),
    ({"type": "array"}, "list of anything"),
    ({"type": "array", "items": {"type": "string"}}, "list of texts"),
    (
        {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 9},
        "list of 1 to 9 whole numbers",
    ),
    ({"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 2},
     "list of 2 texts"),
    ({"type": "array", "items": {"enum": ["a", "b"]}}, "list of values, each one of a, b"),
    (
        {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}]},
        "list of 2: whole number, text",
    ),
    ({"type": "object"}, "object"),
    ({"properties": {}}, "object"),
    ({"type": "object", "additionalProperties": {"type": "number"}}, "object of numbers"),
    ({"type": "object", "additionalProperties": False}, "object"),
    ({"enum": ["kind", "firm"]}, "one of kind, firm"),
    ({"enum": ["a", " b", "", True, 1.0, None]}, 'one of a, " b", "", yes, 1 or nothing'),
    ({"enum": list(range(20))}, "one of 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 8 more"),
    ({"const": "S"}, "S"),
    ({"oneOf": [{"const": 1, "title": "One"}, {"const": 2}]}, "one of 1, 2"),
    ({"anyOf": [{"type": "number"}, {"type": "string"}]}, "number (also as text)"),
    ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "whole number or text"),
    (
        {"type": "string", "anyOf": [{"enum": ["a", "b"]}, {"description": "Older ones."}]},
        "one of a, b or text",
    ),
    ({"anyOf": [{"type": "null"}, {"oneOf": [{"type": "string"}, {"type": "boolean"}]}]},
     "text, yes or no or nothing"),
    ({"type": ["string", "number", "boolean", "object", "array", "null"]}, "anything"),
    ({"type": ["string", "number", "boolean", "object", "array"]}, "anything"),
    ({"type": [{"type": "string"}, "any"]}, "anything"),
    ({"not": {"type": "string"}}, "anything"),
    ({}, "anything"),
    ({"description": key_description("invoice", "invoice://{number}"), "type": "string"},
     "key or URI of an invoice"),
    ({"description": key_description("user", "model://a/user/{pk}"), "type": "integer"},
     "key or URI of a user"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "words"), TYPES, ids=lambda value: value if isinstance(value, str) else ""
)
def test_description_of_a_type(schema, words):
    assert kind(schema) == words


def lines_by_name(schema) -> dict[str, PropertyLine]:
    return {line.name: line for line in lines(schema)}


@dataclass
class Address:
    street: str
    number: int = 1


class Person(BaseModel):
    name: Annotated[str, Field(description="In full.")]
    home: Address | None = None
    others: list[Address] = []


def test_summary_of_a_tool_with_nested_types(server):
    @server.tool
    def order(
        request: mcp.Request,
        person: Person,
        price: Annotated[Decimal, Field(gt=0)],
        when: date | None = None,
        how: Literal["mail", "truck"] = "mail",
        gift: bool = False,
        note: str = "",
    ) -> str:
        """Order it.

        Args:
            when: The day of
                delivery.
        """
        return ""

    found = lines_by_name(valid_catalog(server).tools["order"]._arguments.schema)
    assert {name: line.type for name, line in found.items()} == {
        "person": "object",
        "person.name": "text",
        "person.home": "object or nothing",
        "person.home.street": "text",
        "person.home.number": "whole number",
        "person.others": "list of objects",
        "person.others[].street": "text",
        "person.others[].number": "whole number",
        "price": "number above 0 (also as text)",
        "when": "date or nothing",
        "how": "one of mail, truck",
        "gift": "yes or no",
        "note": "text",
    }
    assert {name for name, line in found.items() if line.required} == {
        "person", "person.name", "person.home.street", "person.others[].street", "price",
    }  # fmt: skip
    defaults = {name: line.default for name, line in found.items() if line.default}
    assert defaults == {
        "how": "mail", "gift": "no", "note": '""', "person.others": "[]",
        "person.home.number": "1", "person.others[].number": "1",
    }  # fmt: skip
    assert found["when"].description == "The day of delivery."
    assert found["person.name"].description == "In full."


def test_summary_of_model_arguments_mentions_their_uri(server):
    @mcp.register(Invoice, server=server)
    class Invoices(mcp.ModelResource):
        uri = "invoice://{number}"
        permission = "shop.view_invoice"
        fields = ["number"]

    @mcp.register(Customer, server=server)
    class Customers(mcp.ModelResource):
        permission = "shop.view_customer"
        fields = ["name"]

    @server.tool
    def send(
        request: mcp.Request,
        invoice: Invoice,
        customer: Customer | None = None,
        others: list[Invoice] = [],  # noqa: B006
    ) -> str:
        """Send.

        Args:
            invoice: What to send.
        """
        return ""

    invoice, customer, others = lines(valid_catalog(server).tools["send"]._arguments.schema)
    assert invoice.type == "key or URI of an invoice"
    assert invoice.description == "What to send. Such as invoice://{number}."
    assert customer.type == "key or URI of a customer or nothing"
    assert customer.description == ""  # the URI contains the key that rows show
    assert others.type == "list of keys or URIs, each of an invoice"
    assert others.description == "Such as invoice://{number}."


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"$ref": "#/$defs/A"}}},
        {
            "properties": {"a": {"$ref": "#/$defs/A"}},
            "$defs": {"A": {"type": "array", "items": {"$ref": "#/$defs/A"}}},
        },
        {"properties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}, "c": {"$ref": "#"}}},
        {
            "properties": {"a": {"$ref": "#/$defs/A"}},
            "$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}, {"allOf": [{"$ref": "#/$defs/A"}]}]}},
        },
    ],
)
def test_recursive_schema_has_a_limited_summary(schema):
    found = lines(schema)
    assert found[0].name == "a" and len(found) <= MAX_LINES


def test_keywords_beside_a_reference_are_used():
    schema = {
        "properties": {
            "a": {"$ref": "#/$defs/x~1y", "description": "Its own."},
            "b": {"$ref": "#/$defs/nowhere"},
            "c": {"allOf": [{"$ref": "#/$defs/x~1y"}, {"maxLength": 3}]},
            "d": True,
        },
        "required": ["a"],
        "$defs": {"x/y": {"type": "string", "description": "Theirs."}},
    }
    a, b, c, d = lines(schema)
    assert (a.type, a.description, a.required) == ("text", "Its own.", True)
    assert (b.type, d.type) == ("anything", "anything")
    assert (c.type, c.description) == ("text of at most 3 characters", "Theirs.")


def test_schema_without_properties_has_no_lines():
    assert lines({}) == [] and lines({"type": "object"}) == []


JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["type", "properties", "items", "anyOf", "oneOf", "allOf", "enum", "const", "$ref",
             "required", "default", "description", "prefixItems", "minItems", "pattern", "format"]
        ),
        inner | st.sampled_from(["#", "string", "array", "object", "null"]),
        max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(["a", "b"]), JSON, max_size=2))
def test_arbitrary_properties_raise_no_error(properties):
    for line in lines({"properties": properties}):
        assert line.type and line.name


# Words that these languages share with English.
SHARED = {"de": {"in"}, "fr": {"date", "dates", "base64"}}


@pytest.mark.parametrize("language", ["de", "fr"])
def test_types_are_translated(language):
    types = [schema for schema, _ in TYPES] + [
        {"type": "string", "format": name} for name in FORMATS
    ]
    types += [{"type": "array", "items": one} for one in types]
    types += [{"type": "object", "additionalProperties": one} for one in types]
    with override(language):
        assert kind({"type": "integer"}) == "whole number"  # errors and commands are in English
        for schema in types:
            own = {"properties": {"a": {"default": True, **schema}}}
            (english, *_), (translated, *_) = lines(own), lines(own, translated=True)
            assert translated.default != english.default
            words = [set(re.findall(r"[A-Za-z0-9]{2,}", one.type)) for one in (english, translated)]
            names = {"URI", "URL", "UUID", "URIs", "URLs", "UUIDs", "IPv4", "IPv6"}
            values = {"kind", "firm", "invoice", "user", "10", "11", "50"}
            assert words[0] & words[1] <= names | values | SHARED[language], translated.type
