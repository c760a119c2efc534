"""JSON Schemas: violations by a value, and problems of the schema itself."""

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_mcp.declarations.schemas import (
    all_of,
    clearly_fits,
    is_plain,
    problem,
    reachable,
    violations,
)

CONDITIONAL = {
    "type": "object",
    "properties": {"how": {"enum": ["card", "bank"]}, "iban": {"$ref": "#iban"}},
    "required": ["how"],
    "if": {"properties": {"how": {"const": "bank"}}, "required": ["how"]},
    "then": {"required": ["iban"]},
    "$defs": {"iban": {"$anchor": "iban", "type": "string", "pattern": "^[A-Z]{2}"}},
}


# Values.


def test_valid_value_has_no_violations():
    assert violations(CONDITIONAL, {"how": "card"}) == []
    assert violations(CONDITIONAL, {"how": "bank", "iban": "DE1"}) == []


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({}, "'how' is a required property"),
        ({"how": "cash"}, "how: 'cash' is not one of ['card', 'bank']"),
        ({"how": "bank"}, "'iban' is a required property"),
        ({"how": "bank", "iban": "12"}, "iban: '12' does not match '^[A-Z]{2}'"),
        ([], "[] is not of type 'object'"),
    ],
)
def test_violation_names_the_path_and_the_value(value, words):
    assert violations(CONDITIONAL, value) == [words]


def test_violation_names_the_full_path():
    schema = {"properties": {"a": {"items": {"properties": {"b": {"type": "integer"}}}}}}
    assert violations(schema, {"a": [{"b": 1}, {"b": "x"}]}) == [
        "a.1.b: 'x' is not of type 'integer'"
    ]


def test_bool_is_not_an_integer():
    assert violations({"type": "integer"}, True)


def test_formats_are_checked_unless_disabled():
    schema = {"type": "string", "format": "date"}
    assert violations(schema, "2026-02-30") == ["'2026-02-30' is not a 'date'"]
    assert violations(schema, "2026-02-30", formats=False) == []


def test_length_and_number_of_violations_are_limited():
    schema = {"additionalProperties": {"type": "integer"}}
    long = violations(schema, {"k" * 1000: "v" * 1000})
    assert len(long) == 1 and len(long[0]) < 500
    many = violations(schema, {str(number): "x" for number in range(100)})
    assert len(many) == 5
    deep, value = {"type": "integer"}, "x"
    for _ in range(30):
        deep, value = {"properties": {"a" * 80: deep}}, {"a" * 80: value}
    assert len(violations(deep, value)[0]) < 1200


def test_schema_is_validated_in_its_dialect():
    written = {"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "integer"}]}
    assert violations(written, ["x"])
    assert violations({"prefixItems": [{"type": "integer"}]}, ["x"])


# Schemas.


@pytest.mark.parametrize(
    "schema",
    [
        {},
        CONDITIONAL,
        {"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"a": {}},
         "properties": {"a": {"$ref": "#/definitions/a"}}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"items": {"$ref": "#"}}}},
        {"$defs": {"node": {"$dynamicAnchor": "node"}}, "$dynamicRef": "#node"},
        {"properties": {"$ref": {"type": "string"}}},
        {"$id": "https://shop.example/s", "$defs": {"a": {"$id": "a", "$anchor": "b"}},
         "$ref": "#/$defs/a"},
    ],
)  # fmt: skip
def test_valid_schema_has_no_problem(schema):
    assert problem(schema) is None


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ([], "JSON object"),
        ("object", "JSON object"),
        (None, "JSON object"),
        ({"type": "text"}, "'text' is not valid"),
        ({"properties": []}, "properties: [] is not of type 'object'"),
        ({"required": "a"}, "required: "),
        ({"pattern": "("}, "JSON Schema is not valid"),
        ({"$schema": "https://json-schema.org/draft/2077-01/schema"}, "dialect"),
        ({"$schema": 5}, "dialect"),
        ({"$schema": ["x"]}, "dialect"),
        ({"enum": {1, 2}}, "cannot be written as JSON"),
        ({"maximum": float("inf")}, "cannot be written as JSON"),
        ({"$ref": "#/$defs/nowhere"}, "nothing at the reference '#/$defs/nowhere'"),
        ({"properties": {"a": {"$ref": "#nowhere"}}}, "nothing at the reference '#nowhere'"),
    ],
)
def test_invalid_schema_is_a_problem(schema, words):
    assert words in problem(schema)


@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef", "$recursiveRef"])
@pytest.mark.parametrize("place", ["https://evil.example/s.json", "file:///etc/passwd", "other"])
def test_reference_to_another_document_is_a_problem_and_not_fetched(keyword, place, monkeypatch):
    def connect(*args):
        raise AssertionError("a network connection was opened")

    monkeypatch.setattr(socket.socket, "connect", connect)
    assert "documents are never fetched" in problem({"properties": {"a": {keyword: place}}})


def test_validation_does_not_fetch_a_referenced_document(monkeypatch):
    def connect(*args):
        raise AssertionError("a network connection was opened")

    monkeypatch.setattr(socket.socket, "connect", connect)
    with pytest.raises(Exception, match="Unresolvable"):
        violations({"$ref": "https://evil.example/s.json"}, {})


def test_size_and_depth_of_a_schema_are_limited():
    assert "more than 2000 parts" in problem({"enum": list(range(2000))})
    deep = {}
    for _ in range(25):
        deep = {"properties": {"a": deep}}
    assert "more than 40 levels" in problem(deep)


def test_all_values_of_a_keyword_are_found():
    schema = {"required": ["a"], "items": [{"required": ["b"]}, {"not": {"required": ["c"]}}]}
    assert list(all_of("required", schema)) == [["a"], ["b"], ["c"]]


def test_statically_reachable_properties():
    schema = {
        "properties": {"a": {"properties": {"b": {}, "c": True}}, "d": {"items": {"x": {}}}},
        "anyOf": [{"properties": {"e": {}}}],
    }
    assert [path for path, _ in reachable(schema)] == [("a",), ("a", "b"), ("d",)]


@pytest.mark.parametrize(
    ("schema", "value", "plain"),
    [
        ({"type": "integer"}, 3, True),
        ({"type": "string"}, "x", True),
        ({"type": "boolean"}, True, True),
        ({"type": "integer"}, True, False),
        ({"type": "integer"}, 3.0, False),
        ({"type": ["integer", "null"]}, 3, False),
        ({"type": "integer", "maximum": 2}, 3, False),
        ({}, 3, False),
    ],
)
def test_is_plain_accepts_only_values_that_certainly_fit(schema, value, plain):
    assert is_plain(schema, value) is plain


NUMBER = {"anyOf": [{"type": "number"}, {"type": "string", "pattern": "^[0-9]+$"}]}
FILE = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
NOTHING = {"type": "null"}


@pytest.mark.parametrize(
    ("schema", "value", "words"),
    [
        (NUMBER, "x", "a: 'x' should be: number (also as text)"),
        ({"anyOf": [NUMBER, NOTHING]}, "x", "a: 'x' should be: number (also as text) or nothing"),
        ({"anyOf": [{"type": "string", "format": "date"}, NOTHING]}, "2026-13-01",
         "a: '2026-13-01' should be: date or nothing"),
        ({"oneOf": [{"const": "d"}, {"const": "s"}]}, "q", "a: 'q' should be: one of d, s"),
        ({"anyOf": [FILE, NOTHING]}, "x", "a: 'x' should be: object or nothing"),
        ({"anyOf": [FILE, NOTHING]}, {}, "a: 'name' is a required property"),
        ({"anyOf": [FILE, NOTHING]}, {"name": 1}, "a.name: 1 is not of type 'string'"),
        ({"anyOf": [{"type": "string", "maxLength": 2}, NOTHING]}, "abc", "a: 'abc' is too long"),
        ({"anyOf": [{"minimum": 3}, False]}, 2, "a: 2 is less than the minimum of 3"),
        ({"oneOf": [{"type": "string"}, {"minLength": 1}]}, "x", "a: 'x' is valid under each of"),
        ({"anyOf": [{"not": {}}]}, "x", "a: 'x' is not valid under any of the given schemas"),
    ],
)  # fmt: skip
def test_violation_of_alternatives_describes_the_closest_alternative(schema, value, words):
    (violation,) = violations({"type": "object", "properties": {"a": schema}}, {"a": value})
    assert violation.startswith(words)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.5, 1.0, "", "a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner),
    max_leaves=6,
)
kinds = st.sampled_from(["string", "integer", "number", "boolean", "object", "array", "null"])
plain_schemas = st.recursive(
    st.fixed_dictionaries({}, optional={"type": kinds | st.lists(kinds, min_size=1, unique=True)}),
    lambda inner: st.fixed_dictionaries(
        {"type": st.sampled_from(["object", "array", ["object", "array", "null"]])},
        optional={
            "properties": st.dictionaries(st.sampled_from("ab"), inner), "items": inner,
            "enum": st.just([1]), "required": st.just(["a"]),
        },
    ),
)  # fmt: skip


@given(plain_schemas, values)
def test_value_clearly_fits_only_if_jsonschema_finds_nothing_wrong(schema, value):
    if clearly_fits(schema, value):
        assert violations(schema, value) == []
    elif not any({*one} & {"enum", "required"} for one in parts(schema)):
        # jsonschema also takes 1.0 as an integer, and has to be asked for that.
        assert violations(schema, value) or "1.0" in repr(value)


def parts(schema):
    yield schema
    for inner in (*schema.get("properties", {}).values(), *filter(None, [schema.get("items")])):
        yield from parts(inner)
