"""JSON schemas are converted to object schemas for older revisions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from django_mcp.protocol.changes.schemas import as_object_schema, plain_properties, wrap_value


def wrapped(schema, **more):
    return {"type": "object", "properties": {"result": schema}, "required": ["result"], **more}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "object"}, {"type": "object"}),
        ({"type": ["object"]}, {"type": "object"}),
        ({"const": {}}, {"const": {}, "type": "object"}),
        (
            {"allOf": [{"type": ["object", "null"]}, {"not": {}, "type": ["object", "array"]}]},
            {
                "allOf": [{"type": ["object", "null"]}, {"not": {}, "type": ["object", "array"]}],
                "type": "object",
            },
        ),
        (
            {"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "object"}}},
            {"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "object"}}, "type": "object"},
        ),
        ({"type": "integer"}, wrapped({"type": "integer"})),
        ({"enum": ["a", 1.5, True, None]}, wrapped({"enum": ["a", 1.5, True, None]})),
        ({"oneOf": [{"type": "null"}, False]}, wrapped({"oneOf": [{"type": "null"}, False]})),
        ({"not": {}, "anyOf": [False]}, wrapped({"not": {}, "anyOf": [False]})),
        (
            {"$schema": "urn:d", "type": "array", "items": {"$ref": "#"}},
            wrapped(
                {"type": "array", "items": {"$ref": "#/properties/result"}}, **{"$schema": "urn:d"}
            ),
        ),
        (
            {"$id": "urn:i", "type": "array", "items": {"$ref": "#"}},
            wrapped({"$id": "urn:i", "type": "array", "items": {"$ref": "#"}}),
        ),
    ],
)
def test_schema_is_converted_to_an_object_schema(schema, expected):
    assert as_object_schema(schema) == expected


def test_references_are_adjusted_to_the_wrapped_schema():
    old = {"$ref": "#/$defs/a"}
    new = {"$ref": "#/properties/result/$defs/a"}
    kept = {"$id": "urn:i", "items": old}

    def schema(pointer):
        return {
            "type": "array",
            "items": pointer,
            "prefixItems": [pointer, True],
            "contains": {"properties": {"a": pointer, "$ref": pointer}},
            "$defs": {"a": {"const": old, "default": old}, "b": kept},
            "dependencies": {"a": ["b"]},
            "allOf": [{"$ref": "urn:x"}, {"$ref": "#anchor"}, {"$dynamicRef": pointer["$ref"]}],
        }

    assert as_object_schema(schema(old)) == wrapped(schema(new))


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "#/nowhere"},
        {"$ref": "#/type/deeper", "type": ["object", "null"]},
        {"$ref": "urn:elsewhere"},
        {"$ref": 1},
    ],
)
def test_unclear_reference_allows_wrapped_and_bare_values(schema):
    assert "anyOf" in as_object_schema(schema)


def test_boolean_property_schemas_become_objects():
    schema = {"type": "object", "properties": {"a": True, "b": False, "c": {"items": True}}}
    assert plain_properties(schema)["properties"] == {
        "a": {},
        "b": {"not": {}},
        "c": {"items": True},
    }
    assert plain_properties({"type": "object"}) == {"type": "object"}


types = st.sampled_from(["object", "array", "string", "integer", "number", "boolean", "null"])
schemas = st.recursive(
    st.one_of(
        st.just({}),
        st.just({"$ref": "#/$defs/tree"}),
        st.just({"$ref": "#/$defs/named"}),
        st.builds(lambda type_: {"type": type_}, types),
        st.builds(lambda kinds: {"type": kinds}, st.lists(types, min_size=1, unique=True)),
        st.sampled_from([{"const": {"a": 1}}, {"enum": [1, {}, None]}, {"const": "a"}]),
    ),
    lambda inner: st.one_of(
        st.builds(lambda a, b: {"anyOf": [a, b]}, inner, inner),
        st.builds(lambda a, b: {"allOf": [a, b]}, inner, inner),
        st.builds(lambda a: {"type": "array", "items": a}, inner),
        st.builds(lambda a: {"type": "object", "properties": {"a": a}}, inner),
    ),
    max_leaves=5,
)
DEFINITIONS = {
    "tree": {"type": "array", "items": {"$ref": "#/$defs/tree"}},
    "named": {"type": "object", "required": ["a"]},
}
values = st.recursive(
    st.sampled_from([None, True, 1, 1.5, "a"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner),
    max_leaves=4,
)


@given(schemas, values)
def test_wrapped_value_is_valid_in_the_wrapped_schema(schema, value):
    schema = {**schema, "$defs": DEFINITIONS}
    made = as_object_schema(schema)
    Draft202012Validator.check_schema(made)
    assert made["type"] == "object"
    if Draft202012Validator(schema).is_valid(value):
        Draft202012Validator(made).validate(wrap_value(value))


@given(schemas, values)
def test_invalid_value_is_invalid_when_wrapped(schema, value):
    schema = {**schema, "$defs": DEFINITIONS}
    if not isinstance(value, dict) and not Draft202012Validator(schema).is_valid(value):
        made = Draft202012Validator(as_object_schema(schema))
        bare = Draft202012Validator(schema)
        assert not made.is_valid(wrap_value(value)) or bare.is_valid(wrap_value(value))
