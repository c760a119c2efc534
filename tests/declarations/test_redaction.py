"""What of a call's arguments may be stored. Each case is a secret at a place that hides it."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, Json, Secret, SecretStr, TypeAdapter

from django_mcp.declarations.redaction import MASK, MAX_LENGTH, MAX_NAME_LENGTH, Redaction
from django_mcp.declarations.schemas import ArgumentSchema

HIDDEN = "hunter2-hunter2"


class Plain(BaseModel):
    kind: Literal["plain"] = "plain"
    value: str = ""


class Sealed(BaseModel):
    kind: Literal["sealed"] = "sealed"
    value: SecretStr = SecretStr("")


class Tree(BaseModel):
    note: str = ""
    value: SecretStr | None = None
    children: list[Tree] = []


class OwnSecret(Secret[str]):
    pass


def stored(type_: Any, value: Any) -> Any:
    class Root(BaseModel):
        field: type_

    schema = Root.model_json_schema(schema_generator=ArgumentSchema)
    return Redaction(schema).of({"field": value})["field"]


@pytest.mark.parametrize(("type_", "value"), [
    (SecretStr, HIDDEN),
    (SecretStr | None, HIDDEN),
    (int | SecretStr, HIDDEN),
    (list[SecretStr], [HIDDEN]),
    (dict[str, SecretStr], {"a": HIDDEN}),
    (tuple[int, SecretStr], [1, HIDDEN]),
    (Plain | Sealed, {"kind": "sealed", "value": HIDDEN}),
    (Annotated[Plain | Sealed, Field(discriminator="kind")], {"kind": "sealed", "value": HIDDEN}),
    (list[Plain] | list[Sealed], [{"value": HIDDEN}]),
    (Tree, {"children": [{"children": [{"value": HIDDEN}]}]}),
    (Sealed, json.dumps({"value": HIDDEN})),  # an object as text
    (list[Sealed], json.dumps([{"value": HIDDEN}])),
    (list[Sealed], HIDDEN),
    (Sealed, [HIDDEN]),
    (dict[str, Any], {"a": HIDDEN}),
    (Any, {"a": HIDDEN}),
    (Any, [HIDDEN]),
    (str, [HIDDEN]),
    (str, {"a": HIDDEN}),
    (dict[str, str], {"api_key": HIDDEN}),
    (Plain, {"value": "a", "typo": HIDDEN}),
    (Json[Sealed], json.dumps({"value": HIDDEN})),
    (Json[list[SecretStr]], json.dumps([HIDDEN])),
    (dict[SecretStr, int], {HIDDEN: 1}),
    (Secret[str], HIDDEN),
    (list[Secret[str] | None], [HIDDEN]),
    (OwnSecret, HIDDEN),
])  # fmt: skip
def test_secret_is_masked(type_, value):
    assert HIDDEN not in json.dumps(stored(type_, value))


def test_secret_number_is_masked():
    assert stored(Secret[int], 5) == MASK


@pytest.mark.parametrize("keyword", ["contains", "unevaluatedItems"])
def test_secret_items_of_a_handwritten_schema_are_masked(keyword):
    schema = {"type": "array", keyword: {"type": "string", "writeOnly": True}}
    root = {"type": "object", "properties": {"a": schema | {"items": {"type": "string"}}}}
    assert Redaction(root).of({"a": [HIDDEN]}) == {"a": [MASK]}


def test_json_text_with_a_secret_is_masked_for_approvers_too():
    root = TypeAdapter(dict[str, Json[Sealed]]).json_schema()
    assert Redaction(root).whole({"a": json.dumps({"value": HIDDEN})}) == {"a": MASK}


@pytest.mark.parametrize("schema", [
    {"$ref": "#/definitions/Secret"},
    {"$ref": "#/definitions/Nothing"},
    {"$ref": "https://example.com/schema"},
    {"if": {"minLength": 1}, "then": {"writeOnly": True}},
    {"dependentSchemas": {"a": {"writeOnly": True}}},
    {"type": "string", "allOf": [{"anyOf": [{"format": "password"}]}]},
])  # fmt: skip
def test_secret_of_a_handwritten_schema_is_masked(schema):
    root = {
        "type": "object",
        "properties": {"a": schema, "b": {"type": "string"}},
        "patternProperties": {"^b": {"writeOnly": True}},
        "definitions": {"Secret": {"type": "string", "writeOnly": True}},
    }
    assert Redaction(root).of({"a": HIDDEN, "b": HIDDEN}) == {"a": MASK, "b": MASK}


@pytest.mark.parametrize(("type_", "value"), [
    (str, "text"),
    (str, 5),
    (Literal["a", "b"], "a"),
    (int | None, None),
    (bool, True),
    (list[str], ["a"]),
    (dict[str, int], {"a": 1}),
    (tuple[int, str], [1, "a"]),
    (Plain | int, {"value": "a"}),
    (Any, "text"),
])  # fmt: skip
def test_other_values_are_stored(type_, value):
    assert stored(type_, value) == value


def test_names_of_a_client_do_not_grow_the_rules():
    redaction = Redaction(TypeAdapter(dict[str, str]).json_schema())
    for number in range(100):
        redaction.of({f"name {number}": "a"})
    assert len(redaction._rule._rules) == 1


def test_deep_values_are_cut_off():
    value: dict[str, Any] = {"note": "deep"}
    for _ in range(20):
        value = {"children": [value]}
    assert "deep" not in json.dumps(stored(Tree, value))


def test_long_values_and_names_are_cut_off():
    found = stored(dict[str, str], {"n" * 1_000: "v" * 1_000, **{f"{n}": "" for n in range(100)}})
    assert len(found) == 50
    assert found["n" * MAX_NAME_LENGTH] == "v" * 500 + "... (1000 characters)"
    assert len(json.dumps(stored(list[str], ["v" * 1_000] * 1_000))) < 4 * MAX_LENGTH
