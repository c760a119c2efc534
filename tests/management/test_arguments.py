"""Arguments typed in a shell: conversion of texts by the JSON schema."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import django_mcp as mcp
from django_mcp.management.arguments import arguments

TEXT, INTEGER, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}
BOOLEAN, NULL = {"type": "boolean"}, {"type": "null"}
SCHEMA = {
    "type": "object",
    "properties": {
        "text": TEXT,
        "integer": INTEGER,
        "number": NUMBER,
        "boolean": BOOLEAN,
        "decimal": {"anyOf": [NUMBER, TEXT]},
        "maybe": {"anyOf": [INTEGER, NULL]},
        "maybe_text": {"anyOf": [TEXT, NULL]},
        "key": {"type": "integer", "description": "Key or URI of the city: a://{pk}"},
        "choice": {"enum": ["1", 2, True, "yes"]},
        "titled": {"oneOf": [{"const": "s", "title": "Small"}, {"const": 3}]},
        "texts": {"type": "array", "items": TEXT},
        "numbers": {"type": "array", "items": {"$ref": "#/$defs/number"}},
        "maybe_many": {"anyOf": [{"type": "array", "items": INTEGER}, NULL]},
        "object": {"type": "object"},
        "person": {"$ref": "#/$defs/person"},
        "a.b": TEXT,
    },
    "$defs": {
        "number": INTEGER,
        "person": {"type": "object", "properties": {"name": TEXT, "age": {"anyOf": [INTEGER]}}},
    },
}


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("text=a=b:c", "a=b:c"), ("text=", ""), ("text=5", "5"), ("text=null", "null"),
        ("text=true", "true"), ("text=[1]", "[1]"), ("text:=5", 5),
        ("integer=5", 5), ("integer=-5", -5), ("integer=5.0", "5.0"), ("integer=x", "x"),
        ("number=5", 5), ("number=0.1", 0.1), ("number=1e3", 1000.0), ("number=nan", "nan"),
        ("number=0.10000000000000000001", 0.1),
        ("decimal=12.50", 12.5), ("decimal=0.10000000000000000001", "0.10000000000000000001"),
        ("decimal=x", "x"),
        ("boolean=yes", True), ("boolean=False", False), ("boolean=1", "1"),
        ("maybe=null", None), ("maybe=", None), ("maybe=7", 7),
        ("maybe_text=null", None), ("maybe_text=", ""),
        ("key=7", 7), ("key=a://7", "a://7"),
        ("choice=1", "1"), ("choice=2", 2), ("choice=true", True), ("choice=yes", "yes"),
        ("titled=s", "s"), ("titled=3", 3),
        ("texts=a", ["a"]), ("texts=[\"a\", \"b\"]", ["a", "b"]), ("texts=a,b", ["a,b"]),
        ("texts:=[]", []), ("numbers=1", [1]), ("maybe_many=null", None), ("maybe_many=3", [3]),
        ("object={\"a\": 1}", {"a": 1}), ("object=x", "x"), ("person.name=Ann", {"name": "Ann"}),
        ("a.b=c", "c"), ("unknown=5", "5"), ("unknown:=[1]", [1]),
    ],
)  # fmt: skip
def test_text_is_converted_by_the_schema(given, found):
    name = given.partition("=")[0].rstrip(":")
    name = name if name == "a.b" else name.partition(".")[0]
    made = arguments([given], SCHEMA)
    assert made == {name: found} and type(made[name]) is type(found)


def test_repeated_and_dotted_keys_are_combined():
    texts = ["numbers=1", "person.name=Ann", "numbers=2", "person.age=7", "text=x"]
    person = {"name": "Ann", "age": 7}
    assert arguments(texts, SCHEMA) == {"numbers": [1, 2], "person": person, "text": "x"}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["text"], "'text' is not an argument"),
        (["=x"], "is not an argument"),
        (["text=a", "text=b"], "text is given 2 times"),
        (["text=a", "text:=1"], "text is given twice"),
        (["text:={"], "text: '{' is not JSON"),
        (["person:=5", "person.name=x"], "person is given as a value as well"),
    ],
)
def test_malformed_arguments_are_errors(given, words):
    with pytest.raises(ValueError, match=words.replace("{", "[{]")):
        arguments(given, SCHEMA)


@given(st.text(max_size=8))
def test_text_is_kept_if_the_schema_wants_text(text):
    assert arguments([f"text={text}"], SCHEMA) == {"text": text}


@given(st.none() | st.booleans() | st.integers() | st.lists(st.integers(), max_size=3))
def test_json_values_are_taken_literally(value):
    assert arguments([f"text:={json.dumps(value)}"], SCHEMA) == {"text": value}


def test_schema_of_pydantic_is_supported():
    schema = mcp.server.ready().tools["refund"]._arguments.schema
    found = arguments(["invoice=A-1", "reason=5", "amount=12.50"], schema)
    assert found == {"invoice": "A-1", "reason": "5", "amount": 12.5}
