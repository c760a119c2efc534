"""Validation with JSON Schema: of values, and of hand-written schemas.

A schema is validated in its own dialect, or in 2020-12 if it names none. A ``$ref`` to another
document is never fetched (basic, "$ref Resolution"). Error messages are for language models.
jsonschema is imported when the first schema is used, because the import is slow.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any, cast

from .content import json_problem
from .schema_summary import kind

MAX_DEPTH, MAX_SUBSCHEMAS, MAX_MESSAGES = 40, 2000, 5
MAX_VIOLATION_LENGTH = 300  # characters
_PLAIN = {"integer": int, "string": str, "boolean": bool}
_TYPES = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,),
    "object": (dict,), "array": (list,), "null": (type(None),),
}  # fmt: skip
_KEYWORDS_OF_TYPES = {"type", "properties", "items", "title", "description"}
# Keywords that only a value of the right type can violate.
KEYWORDS_OF_ONE_TYPE = (
    "additionalProperties", "exclusiveMaximum", "exclusiveMinimum", "maxItems", "maxLength",
    "maximum", "minItems", "minLength", "minimum", "required",
)  # fmt: skip
MAX_ERRORS = 100  # validation stops then: a client can send arguments with a million errors


@lru_cache(maxsize=1024)
def _compiled(text: str, formats: bool) -> Any:
    return _validator(json.loads(text), formats)


def _validator(schema: Any, formats: bool = True) -> Any:
    """Return the validator of a schema, in the schema's dialect."""
    from jsonschema import Draft202012Validator, validators
    from referencing import Registry

    kind = validators.validator_for(schema, default=Draft202012Validator)
    # An empty registry resolves no reference to another document.
    nothing_fetched: Any = Registry()
    checker = kind.FORMAT_CHECKER if formats else None
    return kind(schema, registry=nothing_fetched, format_checker=checker)


def is_plain(schema: Mapping[str, Any], value: Any) -> bool:
    """Whether ``value`` fits a schema that only names a type. A fast path without jsonschema."""
    return len(schema) == 1 and type(value) is _PLAIN.get(str(schema.get("type")))


def clearly_fits(schema: Mapping[str, Any], value: Any) -> bool:
    """Whether ``value`` fits a schema of types, properties and items, decided without jsonschema.

    False if it does not fit, or if the schema has other keywords. ``value`` is decoded JSON.
    """
    if not schema.keys() <= _KEYWORDS_OF_TYPES:
        return False
    if (kinds := schema.get("type")) is not None:
        named = kinds if isinstance(kinds, list) else (kinds,)
        if not any(type(value) in _TYPES.get(kind, ()) for kind in named):
            return False
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        return all(
            clearly_fits(one, value[name]) for name, one in properties.items() if name in value
        )
    if isinstance(value, list) and "items" in schema:
        return all(clearly_fits(schema["items"], one) for one in value)
    return True


def violations(schema: dict[str, Any], value: Any, *, formats: bool = True) -> list[str]:
    """Return what is wrong with ``value``, one sentence for each error; [] if it fits.

    A sentence starts with the path of the wrong value.
    """
    validator = _compiled(json.dumps(schema, sort_keys=True), formats)
    found = islice(validator.iter_errors(value), MAX_ERRORS)
    errors = sorted(found, key=lambda error: list(map(str, error.path)))
    return [_sentence(error) for error in errors[:MAX_MESSAGES]]


def _sentence(error: Any) -> str:
    """Return an error of jsonschema as a sentence that starts with the path of the value."""
    error = _most_specific(error)
    path = ".".join(str(step)[:80] for step in list(error.absolute_path)[:8])
    message = _alternatives(error) or error.message
    if len(message) > MAX_VIOLATION_LENGTH:  # jsonschema writes the value before the error
        message = message.replace(repr(error.instance), "this value")[:MAX_VIOLATION_LENGTH]
    return f"{path}: {message}" if path else message


def _most_specific(error: Any) -> Any:
    """Return the most helpful error of a value that fits none of several schemas.

    It is the error for the schema that the value seems to be meant for.
    """
    meant = (one for one in error.context if one.path or one.validator in KEYWORDS_OF_ONE_TYPE)
    found = next(meant, None)
    return error if found is None else _most_specific(found)


def _alternatives(error: Any) -> str:
    """Return what would fit if none of several schemas did.

    Return "" if that has no short description.
    """
    if error.validator not in ("anyOf", "oneOf") or not error.context:
        return ""
    wanted = kind(error.schema)
    return "" if "anything" in wanted else f"{error.instance!r} should be: {wanted}"


def problem(schema: Any) -> str | None:
    """Return what is wrong with a hand-written schema, or None."""
    if not isinstance(schema, Mapping):
        return "A schema must be a JSON object."
    schema = dict(schema)
    if _is_oversized(schema):
        return f"The schema has more than {MAX_SUBSCHEMAS} parts or more than {MAX_DEPTH} levels."
    if wrong := json_problem(schema):
        return wrong
    if unknown := _unknown_dialect(schema):
        return unknown
    if any(not ref.startswith("#") for ref in _references(schema)):
        return "A $ref must start with '#': other documents are never fetched."
    return _invalid(schema) or _missing_reference(schema)


def _is_oversized(schema: dict[str, Any]) -> bool:
    """Whether the schema has too many parts or levels. It stops counting at the limit."""
    waiting: list[tuple[Any, int]] = [(schema, 1)]
    parts = 0
    while waiting and parts <= MAX_SUBSCHEMAS:
        value, depth = waiting.pop()
        parts += 1
        if isinstance(value, dict | list):
            if depth > MAX_DEPTH:
                return True
            children = value.values() if isinstance(value, dict) else value
            waiting.extend((child, depth + 1) for child in children)
    return parts > MAX_SUBSCHEMAS


def _unknown_dialect(schema: dict[str, Any]) -> str | None:
    """Return an error if ``$schema`` names a dialect that jsonschema does not know."""
    from jsonschema import validators

    dialect, none = schema.get("$schema"), cast("Any", None)
    known = isinstance(dialect, str) and validators.validator_for(schema, default=none) is not None
    if known or "$schema" not in schema:
        return None
    return f"The dialect {dialect!r} is not supported. Use draft 3 to 2020-12."


def _invalid(schema: dict[str, Any]) -> str | None:
    from jsonschema.exceptions import SchemaError

    try:
        type(_validator(schema)).check_schema(schema)
    except SchemaError as error:
        return f"The JSON Schema is not valid: {_sentence(error)}"
    return None


def _missing_reference(schema: dict[str, Any]) -> str | None:
    """Return an error for a reference that leads nowhere. It would fail every call."""
    from referencing import Registry, Resource
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    if any(all_of("$id", schema)):
        return None  # references are relative to "$id": validation itself resolves them
    root: Any = Resource.from_contents(schema, default_specification=DRAFT202012)
    resolver = Registry().resolver_with_root(root)
    for ref in _references(schema):
        try:
            resolver.lookup(ref)
        except Unresolvable:
            return f"The schema has nothing at the reference {ref!r}."
    return None


def object_schema(properties: dict[str, Any], required: Iterable[str] = ()) -> dict[str, Any]:
    """Return the schema of an object that has these properties and no others."""
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    names = [*required]
    return schema | ({"required": names} if names else {})


def all_of(keyword: str, schema: Any) -> Iterator[Any]:
    """Return the values of ``keyword`` anywhere in ``schema``."""
    return (part[keyword] for part in _walk(schema) if isinstance(part, dict) and keyword in part)


def _walk(value: Any) -> Iterator[Any]:
    yield value
    children = value.values() if isinstance(value, dict) else value
    if isinstance(value, dict | list):
        for child in children:
            yield from _walk(child)


def _references(schema: Any) -> Iterator[str]:
    for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
        yield from (ref for ref in all_of(keyword, schema) if isinstance(ref, str))


def reachable(schema: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Yield every property that ``properties`` alone lead to from the root, with its path."""
    for name, prop in schema.get("properties", {}).items():
        if isinstance(prop, dict):
            yield (name,), prop
            yield from (((name, *path), inner) for path, inner in reachable(prop))
