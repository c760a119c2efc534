"""
JSON Schemas for peers that know only schemas of objects.

The rule: what ``wrap_value`` makes of a value always satisfies what ``as_object_schema`` makes
of its schema - although the one sees only the value and the other only the schema.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .shapes import JSON, within

ALL_KINDS = frozenset(("object", "array", "string", "number", "boolean", "null"))
OBJECT = frozenset(("object",))

# Where a schema has schemas in it.
_ONE = frozenset((
    "additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items",
    "not", "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
))  # fmt: skip
_LIST = frozenset(("allOf", "anyOf", "items", "oneOf", "prefixItems"))
_MAP = frozenset((
    "$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties",
))  # fmt: skip


def wrap_value(value: Any) -> JSON:
    """``value`` if it is an object, else an object with the value as its ``result``."""
    return value if isinstance(value, dict) else {"result": value}


def as_object_schema(schema: JSON) -> JSON:
    """A schema of type object for what ``wrap_value`` makes of the values of ``schema``."""
    if schema.get("type") == "object":
        return schema
    kinds = _kinds(schema, schema, ())
    if kinds and kinds <= OBJECT:
        return schema | {"type": "object"}
    dialect = {"$schema": schema["$schema"]} if "$schema" in schema else {}
    return dialect | (_either(schema) if "object" in kinds else _wrapped(schema))


def _wrapped(schema: JSON) -> JSON:
    result = _moved(schema, "/properties/result")
    return {"type": "object", "properties": {"result": result}, "required": ["result"]}


def _either(schema: JSON) -> JSON:
    """Objects come as they are, other values as a result."""
    value = {"$ref": "#/$defs/value"}
    wrapped = {"properties": {"result": value}, "required": ["result"]}
    definitions = {"value": _moved(schema, "/$defs/value")}
    return {"type": "object", "anyOf": [value, wrapped], "$defs": definitions}


def plain_properties(schema: JSON) -> JSON:
    """``schema`` with no property described by just true or false."""

    def plain(properties: JSON) -> JSON:
        return {name: _SPELT_OUT.get(value, value) if isinstance(value, bool) else value
                for name, value in properties.items()}  # fmt: skip

    return within(schema, "properties", plain)


_SPELT_OUT: dict[bool, JSON] = {True: {}, False: {"not": {}}}


def _moved(schema: JSON, to: str) -> JSON:
    """``schema`` for a place deeper down: its pointers to itself lead there."""
    schema = {key: value for key, value in schema.items() if key != "$schema"}
    return schema if "$id" in schema else _repointed(schema, to)


def _repointed(schema: Any, to: str) -> Any:
    # Beneath an $id, pointers start from there, and stay true.
    if not isinstance(schema, dict) or "$id" in schema:
        return schema
    return {key: _repointed_keyword(key, value, to) for key, value in schema.items()}


def _repointed_keyword(key: str, value: Any, to: str) -> Any:
    if key in ("$ref", "$dynamicRef"):
        local = isinstance(value, str) and (value == "#" or value.startswith("#/"))
        return f"#{to}{value[1:]}" if local else value
    if key in _LIST and isinstance(value, list):
        return [_repointed(item, to) for item in value]
    if key in _MAP and isinstance(value, dict):
        return {name: _repointed(item, to) for name, item in value.items()}
    return _repointed(value, to) if key in _ONE else value


# Which kinds of values a schema admits, as far as it says so plainly.


def _kinds(schema: Any, root: JSON, seen: tuple[str, ...]) -> frozenset[str]:
    if schema is False:
        return frozenset()
    if not isinstance(schema, dict):
        return ALL_KINDS
    return ALL_KINDS.intersection(*_limits(schema, root, seen))


def _limits(schema: JSON, root: JSON, seen: tuple[str, ...]) -> Iterator[frozenset[str]]:
    if "type" in schema:
        named = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        yield frozenset("number" if name == "integer" else name for name in named)
    if "const" in schema or "enum" in schema:
        yield frozenset(_kind(value) for value in schema.get("enum", [schema.get("const")]))
    if (ref := schema.get("$ref")) is not None:
        yield _kinds(_target(ref, root), root, (*seen, ref)) if ref not in seen else ALL_KINDS
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            yield frozenset().union(*(_kinds(item, root, seen) for item in schema[keyword]))
    for item in schema.get("allOf", ()):
        yield _kinds(item, root, seen)


def _kind(value: Any) -> str:
    names = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}
    return names.get(type(value), "number")


def _target(ref: Any, root: JSON) -> Any:
    """What a pointer within ``root`` leads to, or true, which says nothing."""
    if not isinstance(ref, str) or not (ref == "#" or ref.startswith("#/")):
        return True
    target: Any = root
    for step in ref[1:].split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        target = target.get(name, True) if isinstance(target, dict) else True
    return target
