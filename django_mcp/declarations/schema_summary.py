"""A JSON Schema as English text for people: one line for each argument, with its type.

The page of a server, management commands, snapshots and validation errors use it. The text is
correct for every schema, also for one that the project wrote by hand. Anything without a
description here is "anything" and never a guess. All functions depend on the schema only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

Schema = Mapping[str, Any]

MAX_LINES, MAX_LEVELS, MAX_LISTED_CHOICES = 200, 5, 12
KEY = re.compile(r"(?P<before>.*?)\s*Key or URI of the (?P<name>.+?)(\.|: (?P<uri>\S+))\Z", re.S)
VOWEL = re.compile(r"(?!eu|one|uni|use|usa)[aeiou]", re.I)

# The names of formats, in the singular and in the plural.
FORMATS = {
    "date": ("date", "dates"),
    "date-time": ("date and time", "dates with times"),
    "time": ("time of day", "times of day"),
    "duration": ("duration", "durations"),
    "email": ("email address", "email addresses"),
    "uri": ("URL", "URLs"),
    "uuid": ("UUID", "UUIDs"),
    "ipv4": ("IPv4 address", "IPv4 addresses"),
    "ipv6": ("IPv6 address", "IPv6 addresses"),
}


@dataclass(frozen=True)
class PropertyLine:
    """One property of a schema.

    "customer.name" is a property of customer, "stops[].city" a property of each stop. ``required``
    is relative to the object that has the property. ``default`` is "" if there is none.
    """

    name: str
    type: str
    required: bool
    description: str
    default: str


@dataclass(frozen=True)
class Phrase:
    """A description of a value, in the singular and in the plural."""

    one: str
    many: str


ANYTHING, NOTHING = Phrase("anything", "anything"), Phrase("nothing", "nothing")
OBJECT = Phrase("object", "objects")
VALUES = {"string", "number", "boolean", "object", "array"}  # all types except null
# Keywords that describe all alternatives together. They are not copied to each alternative.
ABOUT = ("anyOf", "oneOf", "title", "description", "default", "examples", "$ref", "$defs")


def key_description(name: str, uri: str = "") -> str:
    """Return the description of an argument that identifies a row.

    ``lines`` recognizes it. ``uri`` is the URI template if the key is not the primary key.
    """
    return f"Key or URI of the {name}: {uri}" if uri else f"Key or URI of the {name}."


def lines(schema: Schema) -> list[PropertyLine]:
    """Return the properties of ``schema``, an object, each followed by the ones inside it."""
    return list(islice(_Reader(schema).lines(schema), MAX_LINES))


def kind(schema: Schema) -> str:
    """Return the type of a value of ``schema``: "text", "number above 0", "list of dates"..."""
    return _Reader(schema).phrase(schema).one


def forms(part: Any, root: Schema) -> list[dict[str, Any]]:
    """Return the alternative schemas of ``part``, with references to ``root`` resolved."""
    return _Reader(root).branches(part)


class _Reader:
    """Reads parts of one schema and resolves references in it."""

    def __init__(self, root: Schema) -> None:
        self._root = root

    # Lines.

    def lines(self, schema: Any, prefix: str = "", level: int = 0) -> Iterator[PropertyLine]:
        found = self._resolved(schema)
        required = _listed(found.get("required"))
        for name, prop in _mapping(found.get("properties")).items():
            yield self._line(f"{prefix}{name}", prop, name in required)
            if level < MAX_LEVELS:
                for path, inner in self._within(prop):
                    yield from self.lines(inner, f"{prefix}{name}{path}.", level + 1)

    def _line(self, name: str, prop: Any, required: bool) -> PropertyLine:
        found = self._resolved(prop)
        default = _value(found["default"]) if found.get("default") is not None else ""
        return PropertyLine(
            name, self.phrase(prop).one, required, self._description(found), default
        )

    def _within(self, schema: Any, path: str = "") -> Iterator[tuple[str, Schema]]:
        """Yield the objects that a property is, or is a list of, with the path to them."""
        for found in self.branches(schema):
            if "properties" in found:
                yield path, found
            if isinstance(found.get("items"), Mapping) and len(path) < 2 * MAX_LEVELS:
                yield from self._within(found["items"], f"{path}[]")

    def _description(self, found: Schema) -> str:
        """Return the description of the schema, or of its first alternative or its items."""
        own = str(found.get("description") or "")
        items = self._resolved(found.get("items"))
        for part in [] if own else [*self.branches(found), *self.branches(items)]:
            own = own or str(part.get("description") or "")
        key = KEY.match(own)
        example = f" Such as {key['uri']}." if key and key["uri"] else ""
        words = f"{key['before']}{example}" if key else own
        return " ".join(words.split())

    # References.

    def _resolved(self, schema: Any, seen: tuple[str, ...] = ()) -> dict[str, Any]:
        """Return ``schema`` merged with the schemas that ``$ref`` and ``allOf`` add."""
        found = _mapping(schema)
        ref = found.get("$ref")
        if isinstance(ref, str) and ref not in seen:
            found = {**self._resolved(self._at(ref), (*seen, ref)), **found}
        for part in _listed(found.get("allOf")):
            found = {**self._resolved(part, seen), **found} if len(seen) < MAX_LEVELS else found
        return found

    def _at(self, ref: str) -> Any:
        """Return the schema at ``#/$defs/Name``. Other documents are never fetched."""
        found: Any = self._root
        for step in ref.lstrip("#").split("/")[1:]:
            found = _mapping(found).get(step.replace("~1", "/").replace("~0", "~"), {})
        return found

    def branches(self, schema: Any, level: int = 0) -> list[dict[str, Any]]:
        """Return the alternatives of a value. Null is the last one."""
        found = self._resolved(schema)
        listed = _listed(found.get("anyOf") or found.get("oneOf"))
        if not listed or _choices(found) or level > MAX_LEVELS:
            return [found]
        shared = {key: value for key, value in found.items() if key not in ABOUT}
        forms = [shared | self._resolved(one) for one in listed]
        branches = [one for form in forms for one in self.branches(form, level + 1)]
        return sorted(branches, key=lambda one: one.get("type") == "null")

    # Phrases.

    def phrase(self, schema: Any, level: int = 0) -> Phrase:
        if level > MAX_LEVELS:
            return ANYTHING
        return _either([self._alternative_phrase(found, level) for found in self.branches(schema)])

    def _alternative_phrase(self, found: Schema, level: int) -> Phrase:
        """Return the phrase for one alternative."""
        key = KEY.match(str(found.get("description") or ""))
        if key is not None and found.get("type") != "object":
            of = f"{'an' if VOWEL.match(key['name']) else 'a'} {key['name']}"
            return Phrase(f"key or URI of {of}", f"keys or URIs, each of {of}")
        if choices := _choices(found):
            return choices
        kinds = found.get("type", "object" if "properties" in found else "")
        kinds = list(map(str, kinds)) if isinstance(kinds, list) else [str(kinds)]
        kinds.sort(key=lambda kind: kind == "null")
        if VALUES.issubset(kinds):
            return ANYTHING
        return _either([self._typed(kind, found, level) for kind in kinds])

    def _typed(self, kind: str, found: Schema, level: int) -> Phrase:
        if kind == "array":
            return self._list(found, level)
        if kind == "object":
            return self._object(found, level)
        return KINDS[kind](found) if kind in KINDS else ANYTHING

    def _list(self, found: Schema, level: int) -> Phrase:
        if parts := _listed(found.get("prefixItems")):
            shown = ", ".join(self.phrase(part, level + 1).one for part in parts)
            return Phrase(f"list of {len(parts)}: {shown}", f"lists of {len(parts)}: {shown}")
        items = self.phrase(found.get("items", {}), level + 1)
        count = _range(found.get("minItems") or None, found.get("maxItems"))
        shown = f"{count} {items.many}".strip()
        return Phrase(f"list of {shown}", f"lists of {shown}")

    def _object(self, found: Schema, level: int) -> Phrase:
        values = found.get("additionalProperties")
        if "properties" in found or not isinstance(values, Mapping):
            return OBJECT
        many = self.phrase(values, level + 1).many
        return Phrase(f"object of {many}", f"objects of {many}")


# Values of one type.


def _text(found: Schema) -> Phrase:
    """Return the phrase for a string."""
    if called := FORMATS.get(str(found.get("format"))):
        return Phrase(*called)
    if _is_numeric(found.get("pattern")):
        return Phrase("number as text", "numbers as texts")
    if found.get("contentEncoding") == "base64":
        return Phrase("text in base64", "texts in base64")
    longest = found.get("maxLength")
    least = found.get("minLength") or None
    if longest is None and least == 1:
        return Phrase("text, not empty", "texts, none empty")
    count = _range(least, longest)
    limits = f" of {count} character{'' if count.endswith(' 1') else 's'}" if count else ""
    return Phrase(f"text{limits}", f"texts{limits}")


def _is_numeric(pattern: Any) -> bool:
    """Whether a pattern matches decimal numbers and no other text."""
    try:
        test = re.compile(pattern).search
    except (TypeError, re.error):
        return False
    return all(map(test, ("1.5", "20"))) and not any(map(test, ("x", "1-5", "1:5", "1.5x")))


def _number(one: str) -> Callable[[Schema], Phrase]:
    def phrase(found: Schema) -> Phrase:
        limits = _limits(found)
        return Phrase(f"{one}{limits}", f"{one}s{limits}")

    return phrase


def _limits(found: Schema) -> str:
    """Return the limits of a number, such as " from 1 to 5"."""
    low, high = found.get("minimum"), found.get("maximum")
    above, below = found.get("exclusiveMinimum"), found.get("exclusiveMaximum")
    if above is True:  # up to draft 4 it is a boolean that makes "minimum" exclusive
        above, low = low, None
    if below is True:
        below, high = high, None
    if low is not None and high is not None:
        return f" from {_value(low)} to {_value(high)}"
    ends = (("of at least", low), ("above", above), ("of at most", high), ("below", below))
    limits = [f"{word} {_value(end)}" for word, end in ends if _is_number(end)]
    return f" {' and '.join(limits)}" if limits else ""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


KINDS: Mapping[str, Callable[[Schema], Phrase]] = {
    "string": _text,
    "integer": _number("whole number"),
    "number": _number("number"),
    "boolean": lambda found: Phrase("yes or no", "yes or no"),
    "null": lambda found: NOTHING,
}


# Several at once.


def _either(phrases: Sequence[Phrase]) -> Phrase:
    """Return all of ``phrases`` joined by "or", without duplicates."""
    ones = list(dict.fromkeys(phrase.one for phrase in phrases))
    manys = list(dict.fromkeys(phrase.many for phrase in phrases))
    return Phrase(
        _joined_by_or(_numbers(ones, "number", "text")),
        _joined_by_or(_numbers(manys, "numbers", "texts")),
    )


def _numbers(words: list[str], number: str, text: str) -> list[str]:
    """Join "number" and "number as text" to one phrase.

    Decimals are accepted as a number and as text.
    """
    written = {text, f"{number} as {text}"}
    if not any(word.startswith(number) and word not in written for word in words):
        return words
    if not written.intersection(words):
        return words
    others = [word for word in words if word not in written]
    return [f"{word} (also as text)" if word.startswith(number) else word for word in others]


def _joined_by_or(words: Sequence[str]) -> str:
    *before, last = words or ["anything"]
    return f"{', '.join(before)} or {last}" if before else last


def _choices(found: Schema) -> Phrase | None:
    """Return the choices, or None if the schema lists none."""
    values = [found["const"]] if "const" in found else _listed(found.get("enum"))
    titled = _listed(found.get("oneOf") or found.get("anyOf"))
    if titled and not values and all("const" in _mapping(one) for one in titled):
        values = [one["const"] for one in titled]
    if not values:
        return None
    shown = [_value(value) for value in values[:MAX_LISTED_CHOICES] if value is not None]
    more = len(values) - MAX_LISTED_CHOICES
    listed = ", ".join(shown) + (f" and {more} more" if more > 0 else "")
    one = f"one of {listed}" if len(shown) > 1 else listed
    phrases = [Phrase(one, f"values, each {one}")] if shown else []
    return _either([*phrases, NOTHING] if None in values else phrases)


def _range(least: Any, most: Any) -> str:
    if least is not None and most is not None:
        return str(least) if least == most else f"{least} to {most}"
    if least is not None:
        return f"at least {least}"
    return f"at most {most}" if most is not None else ""


def _value(value: Any) -> str:
    """Return a value as a person would write it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    plain = isinstance(value, str) and value.strip() == value != ""
    return value if plain else json.dumps(value, ensure_ascii=False, default=str)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _mapping(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}
