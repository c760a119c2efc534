"""
Arguments as they are typed in a shell: ``key=value``, read as the types of a schema.

Rule: a text becomes what the schema asks for where it can be read so, and else stays a text,
of which the server says what is wrong. ``key:=json`` is taken as it is (as httpie has it).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from math import isfinite
from typing import Any

from ..declare.words import forms

PAIR = re.compile(r"(?P<name>[^=:]+)(?P<sign>:?=)(?P<text>.*)", re.S)
BOOLEANS = {
    "true": True, "yes": True, "y": True, "on": True,
    "false": False, "no": False, "n": False, "off": False,
}  # fmt: skip
INTEGER = re.compile(r"-?[0-9]+\Z")
NO = object()

Schema = Mapping[str, Any]


def arguments(given: Iterable[str], schema: Schema) -> dict[str, Any]:
    """The arguments in ``key=value`` texts. Raises ``ValueError`` in words."""
    texts: dict[str, list[str]] = {}
    found: dict[str, Any] = {}
    for one in given:
        pair = PAIR.fullmatch(one)
        if pair is None:
            raise ValueError(f"{one!r} is no argument: write key=value, or key:=json.")
        if pair["sign"] == "=":
            texts.setdefault(pair["name"], []).append(pair["text"])
        else:
            _put(found, pair["name"], _json(pair["name"], pair["text"]), schema)
    for name, values in texts.items():
        _put(found, name, typed(name, values, _part(name, schema), schema), schema)
    return found


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"{name}: {text[:80]!r} is no JSON: {error}.") from None


# Names.


def _steps(name: str, schema: Schema) -> list[str]:
    """The way to a value: "customer.name" is within customer, unless that is a name itself."""
    return [name] if name in _properties(schema, schema) else name.split(".")


def _properties(part: Any, root: Schema) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for form in forms(part, root):
        found |= form.get("properties") or {}
    return found


def _part(name: str, schema: Schema) -> Any:
    """The schema of the value of that name."""
    part: Any = schema
    for step in _steps(name, schema):
        part = _properties(part, schema).get(step, {})
    return part


def _put(found: dict[str, Any], name: str, value: Any, schema: Schema) -> None:
    *way, last = _steps(name, schema)
    for step in way:
        found = found.setdefault(step, {})
        if not isinstance(found, dict):
            raise ValueError(f"{name}: {step} is given as a value as well.")
    if last in found:
        raise ValueError(f"{name} is given twice.")
    found[last] = value


# Values.


def typed(name: str, texts: Sequence[str], part: Any, root: Schema) -> Any:
    """The value of an argument that was given so often. Raises ``ValueError`` in words."""
    possible = forms(part, root)
    lists = [form for form in possible if form.get("type") == "array"]
    whole = len(texts) == 1 and texts[0].startswith("[")
    if lists and not whole:
        kinds = forms(lists[0].get("items", {}), root)
        others = [form for form in possible if form not in lists]
        single = _read(texts[0], others) if others and len(texts) == 1 else NO
        return [value(text, kinds) for text in texts] if single is NO else single
    if len(texts) > 1:
        raise ValueError(f"{name} is given {len(texts)} times, and takes one value.")
    return value(texts[0], possible)


def value(text: str, possible: Sequence[Schema]) -> Any:
    """What a text means, of the schemas of which it may fit one."""
    read = _read(text, possible)
    return text if read is NO else read


def _read(text: str, possible: Sequence[Schema]) -> Any:
    for form in possible:
        for choice in _choices(form):
            if _written(choice) == text:
                return choice
    kinds = {kind for form in possible for kind in _kinds(form)}
    for kind, read in READERS.items():
        if kind in kinds and (found := read(text, kinds)) is not NO:
            return found
    return NO


def _choices(form: Schema) -> list[Any]:
    listed = form.get("enum") or ([form["const"]] if "const" in form else [])
    titled = form.get("oneOf") or form.get("anyOf") or []
    return [*listed, *(one["const"] for one in titled if "const" in one)]


def _written(choice: Any) -> str:
    return choice if isinstance(choice, str) else json.dumps(choice)


def _kinds(form: Schema) -> list[str]:
    kinds = form.get("type", [])
    return kinds if isinstance(kinds, list) else [kinds]


def _null(text: str, kinds: set[str]) -> Any:
    return None if text == "null" or (not text and "string" not in kinds) else NO


def _boolean(text: str, kinds: set[str]) -> Any:
    return BOOLEANS.get(text.lower(), NO)


def _integer(text: str, kinds: set[str]) -> Any:
    return int(text) if INTEGER.match(text) else NO


def _number(text: str, kinds: set[str]) -> Any:
    """A number, unless it is more exact as the text that it may be as well."""
    if INTEGER.match(text):
        return int(text)
    try:
        number = float(text)
        exact = Decimal(text) == Decimal(repr(number))
    except (ValueError, InvalidOperation):
        return NO
    return number if isfinite(number) and (exact or "string" not in kinds) else NO


def _structure(text: str, kinds: set[str]) -> Any:
    try:
        found = json.loads(text)
    except ValueError:
        return NO
    return found if isinstance(found, dict | list) else NO


READERS = {
    "null": _null, "boolean": _boolean, "integer": _integer, "number": _number,
    "object": _structure, "array": _structure,
}  # fmt: skip
