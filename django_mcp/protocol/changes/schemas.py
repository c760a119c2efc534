"""Helpers of the changes: copies of JSON values with edits, and JSON Schemas of objects.

All functions return a new value and do not modify their argument.

Older revisions allow only objects as structured content. ``wrap_value`` makes an object of any
value, and ``as_object_schema`` makes the schema for it. A wrapped value always fits the wrapped
schema, although one function sees only the value and the other only the schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ..jsonrpc import EncodedArray

JSON = dict[str, Any]
Edit = Callable[[JSON], JSON]


def without(mapping: JSON, *keys: str) -> JSON:
    """Return ``mapping`` without ``keys``."""
    return {key: value for key, value in mapping.items() if key not in keys}


def within(mapping: JSON, key: str, edit: Callable[[Any], Any]) -> JSON:
    """Return ``mapping`` with ``edit`` applied to the value at ``key``, if it has that key."""
    return mapping | {key: edit(mapping[key])} if key in mapping else mapping


def each(mapping: JSON, key: str, edit: Edit) -> JSON:
    """Return ``mapping`` with ``edit`` applied to every item of the list at ``key``, if any.

    An array that is encoded already is in the form of the client's revision.
    """
    if isinstance(mapping.get(key), EncodedArray):
        return mapping
    return within(mapping, key, lambda items: [edit(item) for item in items])


def meta_without(value: JSON, *keys: str) -> JSON:
    """Return ``value`` without ``keys`` in its ``_meta``, and without an empty ``_meta``."""
    if "_meta" not in value:
        return value
    meta = {key: item for key, item in value["_meta"].items() if key not in keys}
    return value | {"_meta": meta} if meta else without(value, "_meta")


def text(content: str, like: JSON) -> JSON:
    """Return a text block that replaces the block ``like``, with the same annotations."""
    block = {"type": "text", "text": content}
    return block | {"annotations": like["annotations"]} if "annotations" in like else block


ALL_KINDS = frozenset(("object", "array", "string", "number", "boolean", "null"))
OBJECT = frozenset(("object",))

# The keywords whose value is a schema, a list of schemas, or a mapping of schemas.
_ONE = frozenset((
    "additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items",
    "not", "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
))  # fmt: skip
_LIST = frozenset(("allOf", "anyOf", "items", "oneOf", "prefixItems"))
_MAP = frozenset((
    "$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties",
))  # fmt: skip


def wrap_value(value: Any) -> JSON:
    """Return ``value`` if it is an object, else an object with the value as its ``result``."""
    return value if isinstance(value, dict) else {"result": value}


def as_object_schema(schema: JSON) -> JSON:
    """Return a schema of type object for the values of ``schema`` after ``wrap_value``."""
    if schema.get("type") == "object":
        return schema
    kinds = _kinds(schema, schema, ())
    if kinds and kinds <= OBJECT:
        return schema | {"type": "object"}
    dialect = {"$schema": schema["$schema"]} if "$schema" in schema else {}
    return dialect | (_either(schema) if "object" in kinds else _wrapped(schema))


def _wrapped(schema: JSON) -> JSON:
    """Return a schema for an object whose ``result`` fits ``schema``."""
    result = _relocated(schema, "/properties/result")
    return {"type": "object", "properties": {"result": result}, "required": ["result"]}


def _either(schema: JSON) -> JSON:
    """Return a schema for objects as they are, and for other values as a ``result``."""
    value = {"$ref": "#/$defs/value"}
    wrapped = {"properties": {"result": value}, "required": ["result"]}
    definitions = {"value": _relocated(schema, "/$defs/value")}
    return {"type": "object", "anyOf": [value, wrapped], "$defs": definitions}


def plain_properties(schema: JSON) -> JSON:
    """Return ``schema`` with an object in place of each property schema that is true or false."""

    def plain(properties: JSON) -> JSON:
        return {name: _BOOLEAN_SCHEMAS.get(value, value) if isinstance(value, bool) else value
                for name, value in properties.items()}  # fmt: skip

    return within(schema, "properties", plain)


_BOOLEAN_SCHEMAS: dict[bool, JSON] = {True: {}, False: {"not": {}}}


def _relocated(schema: JSON, to: str) -> JSON:
    """Return ``schema`` for the place ``to`` in another schema, with local pointers adjusted."""
    schema = {key: value for key, value in schema.items() if key != "$schema"}
    return schema if "$id" in schema else _repointed(schema, to)


def _repointed(schema: Any, to: str) -> Any:
    """Return a part of a schema with its local pointers adjusted to the place ``to``."""
    # Below an $id, pointers are relative to that schema, so they stay valid.
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


# The JSON types that a schema allows. Only simple keywords are read, so the result is a superset.


def _kinds(schema: Any, root: JSON, seen: tuple[str, ...]) -> frozenset[str]:
    """Return the JSON types that the schema allows. May return too many, never too few."""
    if schema is False:
        return frozenset()
    if not isinstance(schema, dict):
        return ALL_KINDS
    return ALL_KINDS.intersection(*_limits(schema, root, seen))


def _limits(schema: JSON, root: JSON, seen: tuple[str, ...]) -> Iterator[frozenset[str]]:
    """Yield the JSON types that each keyword of the schema allows."""
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
    """Return the schema that a local pointer refers to; True, which allows anything, if unknown."""
    if not isinstance(ref, str) or not (ref == "#" or ref.startswith("#/")):
        return True
    target: Any = root
    for step in ref[1:].split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        target = target.get(name, True) if isinstance(target, dict) else True
    return target
