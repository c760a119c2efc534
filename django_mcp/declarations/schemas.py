"""
JSON Schema: what a value breaks, and what is wrong with a schema.

Rule: a schema is validated in its own dialect, 2020-12 when it names none; a
``$ref`` is never fetched (basic, "$ref Resolution"); what is reported is words
that a model can act on. jsonschema is imported when the first schema is used.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any, cast

from .content import json_problem
from .schema_summary import ANYTHING, kind

MAX_DEPTH, MAX_SUBSCHEMAS, MAX_MESSAGES = 40, 2000, 5
MAX_MESSAGE_LENGTH = 300
_PLAIN = {"integer": int, "string": str, "boolean": bool}
# What only a value of the right kind can break.
OF_A_KIND = (
    "additionalProperties", "exclusiveMaximum", "exclusiveMinimum", "maxItems", "maxLength",
    "maximum", "minItems", "minLength", "minimum", "required",
)  # fmt: skip
MAX_ERRORS = 100  # what is wrong after that is not looked for: a client can send anything


@lru_cache(maxsize=1024)
def _compiled(text: str, formats: bool) -> Any:
    return _validator(json.loads(text), formats)


def _validator(schema: Any, formats: bool = True) -> Any:
    from jsonschema import Draft202012Validator, validators
    from referencing import Registry

    kind = validators.validator_for(schema, default=Draft202012Validator)
    nothing_fetched: Any = Registry()
    checker = kind.FORMAT_CHECKER if formats else None
    return kind(schema, registry=nothing_fetched, format_checker=checker)


def is_plain(schema: Mapping[str, Any], value: Any) -> bool:
    """Whether one look tells that ``value`` fits: it is one value, and only its type is asked."""
    return len(schema) == 1 and type(value) is _PLAIN.get(str(schema.get("type")))


def violations(schema: dict[str, Any], value: Any, *, formats: bool = True) -> list[str]:
    """What ``value`` breaks, each in a sentence that starts with the place; [] when it fits."""
    validator = _compiled(json.dumps(schema, sort_keys=True), formats)
    found = islice(validator.iter_errors(value), MAX_ERRORS)
    errors = sorted(found, key=lambda error: list(map(str, error.path)))
    return [_sentence(error) for error in errors[:MAX_MESSAGES]]


def _sentence(error: Any) -> str:
    error = _telling(error)
    place = ".".join(str(step)[:80] for step in list(error.absolute_path)[:8])
    message = _of_several(error) or error.message
    if len(message) > MAX_MESSAGE_LENGTH:  # what is wrong comes after what it is wrong with
        message = message.replace(repr(error.instance), "this value")[:MAX_MESSAGE_LENGTH]
    return f"{place}: {message}" if place else message


def _telling(error: Any) -> Any:
    """Of a value that fits none of several schemas, what is wrong with it for the one it means."""
    meant = (one for one in error.context if one.path or one.validator in OF_A_KIND)
    found = next(meant, None)
    return error if found is None else _telling(found)


def _of_several(error: Any) -> str:
    """What would fit, where none of several schemas did; empty where there are no words for it."""
    if error.validator not in ("anyOf", "oneOf") or not error.context:
        return ""
    wanted = kind(error.schema)
    return "" if ANYTHING.one in wanted else f"{error.instance!r} should be: {wanted}"


def problem(schema: Any) -> str | None:
    """What is wrong with a hand-written schema, or None."""
    if not isinstance(schema, Mapping):
        return "A schema is a JSON object."
    schema = dict(schema)
    if _is_oversized(schema):
        return f"The schema is larger than {MAX_SUBSCHEMAS} parts or deeper than {MAX_DEPTH}."
    if wrong := json_problem(schema):
        return wrong
    if unknown := _unknown_dialect(schema):
        return unknown
    if any(not ref.startswith("#") for ref in _references(schema)):
        return "A $ref stays within the schema: nothing is fetched."
    return _invalid(schema) or _dangling(schema)


def _is_oversized(schema: dict[str, Any]) -> bool:
    """Whether it has too many parts or levels; looks no further, and calls nothing."""
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
    from jsonschema import validators

    dialect, none = schema.get("$schema"), cast("Any", None)
    known = isinstance(dialect, str) and validators.validator_for(schema, default=none) is not None
    if known or "$schema" not in schema:
        return None
    return f"The dialect {dialect!r} is not supported; draft 3 to 2020-12 are."


def _invalid(schema: dict[str, Any]) -> str | None:
    from jsonschema.exceptions import SchemaError

    try:
        type(_validator(schema)).check_schema(schema)
    except SchemaError as error:
        return f"No valid JSON Schema: {_sentence(error)}"
    return None


def _dangling(schema: dict[str, Any]) -> str | None:
    """A reference to what is not there, which would fail every call."""
    from referencing import Registry, Resource
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    if any(all_of("$id", schema)):
        return None  # what is relative to which base, validation itself will say
    root: Any = Resource.from_contents(schema, default_specification=DRAFT202012)
    resolver = Registry().resolver_with_root(root)
    for ref in _references(schema):
        try:
            resolver.lookup(ref)
        except Unresolvable:
            return f"The reference {ref!r} leads to nothing in the schema."
    return None


def all_of(keyword: str, schema: Any) -> Iterator[Any]:
    """The values of ``keyword`` wherever it stands in ``schema``."""
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
    """Every property that is statically reachable: by ``properties`` alone, from the root."""
    for name, prop in schema.get("properties", {}).items():
        if isinstance(prop, dict):
            yield (name,), prop
            yield from (((name, *path), inner) for path, inner in reachable(prop))
