"""A JSON Schema as text for people: one line for each argument, with its type.

The page of a server and the inspector show it in the language of the visitor. Management commands
and validation errors use it in English. It is correct for every schema, also for one that the
project wrote by hand. Anything without a description here is "anything" and never a guess.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import Any

from django.utils.translation import gettext, ngettext, override, pgettext, pgettext_lazy

Schema = Mapping[str, Any]

MAX_LINES, MAX_LEVELS, MAX_LISTED_CHOICES = 200, 5, 12
KEY = re.compile(r"(?P<before>.*?)\s*Key or URI of the (?P<name>.+?)(\.|: (?P<uri>\S+))\Z", re.S)
VOWEL = re.compile(r"(?!eu|one|uni|use|usa)[aeiou]", re.I)

# The names of formats, in the singular and in the plural.
FORMATS = {
    "date": (pgettext_lazy("type", "date"), pgettext_lazy("type", "dates")),
    "date-time": (
        pgettext_lazy("type", "date and time"),
        pgettext_lazy("type", "dates with times"),
    ),
    "time": (pgettext_lazy("type", "time of day"), pgettext_lazy("type", "times of day")),
    "duration": (pgettext_lazy("type", "duration"), pgettext_lazy("type", "durations")),
    "email": (pgettext_lazy("type", "email address"), pgettext_lazy("type", "email addresses")),
    "uri": (pgettext_lazy("type", "URL"), pgettext_lazy("type", "URLs")),
    "uuid": (pgettext_lazy("type", "UUID"), pgettext_lazy("type", "UUIDs")),
    "ipv4": (pgettext_lazy("type", "IPv4 address"), pgettext_lazy("type", "IPv4 addresses")),
    "ipv6": (pgettext_lazy("type", "IPv6 address"), pgettext_lazy("type", "IPv6 addresses")),
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
    """A description of a value, in the singular and in the plural.

    ``is_number`` is true for numbers with a fraction, ``is_text`` for texts that may be such a
    number.
    """

    one: str
    many: str
    is_number: bool = False
    is_text: bool = False


def _anything() -> Phrase:
    return Phrase(pgettext("type", "anything"), pgettext("type", "anything"))


def _nothing() -> Phrase:
    return Phrase(pgettext("type", "nothing"), pgettext("type", "nothing"))


VALUES = {"string", "number", "boolean", "object", "array"}  # all types except null
# Keywords that describe all alternatives together. They are not copied to each alternative.
ABOUT = ("anyOf", "oneOf", "title", "description", "default", "examples", "$ref", "$defs")


def key_description(name: str, uri: str = "") -> str:
    """Return the description of an argument that identifies a row.

    ``lines`` recognizes it. ``uri`` is the URI template if the key is not the primary key.
    """
    return f"Key or URI of the {name}: {uri}" if uri else f"Key or URI of the {name}."


def lines(schema: Schema, *, translated: bool = False) -> list[PropertyLine]:
    """Return the properties of ``schema``, an object, each followed by the ones inside it.

    They are in English, or in the active language if ``translated`` is true.
    """
    with nullcontext() if translated else override(None):
        return list(islice(_Reader(schema).lines(schema), MAX_LINES))


def kind(schema: Schema) -> str:
    """Return the type of a value of ``schema``: "text", "number above 0", "list of dates"..."""
    with override(None):
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
        if key is None:
            return " ".join(own.split())
        example = gettext("Such as %s.") % key["uri"] if key["uri"] else ""
        words = f"{key['before']} {example}"
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
            return _anything()
        return _either([self._alternative_phrase(found, level) for found in self.branches(schema)])

    def _alternative_phrase(self, found: Schema, level: int) -> Phrase:
        """Return the phrase for one alternative."""
        key = KEY.match(str(found.get("description") or ""))
        if key is not None and found.get("type") != "object":
            one, many = (
                pgettext("type", "key or URI of a %s"),
                pgettext("type", "keys or URIs, each of a %s"),
            )
            if VOWEL.match(key["name"]):
                one = pgettext("type", "key or URI of an %s")
                many = pgettext("type", "keys or URIs, each of an %s")
            return Phrase(one % key["name"], many % key["name"])
        if choices := _choices(found):
            return choices
        kinds = found.get("type", "object" if "properties" in found else "")
        kinds = list(map(str, kinds)) if isinstance(kinds, list) else [str(kinds)]
        kinds.sort(key=lambda kind: kind == "null")
        if VALUES.issubset(kinds):
            return _anything()
        return _either([self._typed(kind, found, level) for kind in kinds])

    def _typed(self, kind: str, found: Schema, level: int) -> Phrase:
        if kind == "array":
            return self._list(found, level)
        if kind == "object":
            return self._object(found, level)
        return KINDS[kind](found) if kind in KINDS else _anything()

    def _list(self, found: Schema, level: int) -> Phrase:
        if parts := _listed(found.get("prefixItems")):
            shown = ", ".join(self.phrase(part, level + 1).one for part in parts)
            values = {"count": len(parts), "items": shown}
            return Phrase(
                pgettext("type", "list of %(count)d: %(items)s") % values,
                pgettext("type", "lists of %(count)d: %(items)s") % values,
            )
        items = self.phrase(found.get("items", {}), level + 1)
        count = _range(found.get("minItems") or None, found.get("maxItems"))
        shown = f"{count} {items.many}".strip()
        return Phrase(
            pgettext("type", "list of %s") % shown, pgettext("type", "lists of %s") % shown
        )

    def _object(self, found: Schema, level: int) -> Phrase:
        values = found.get("additionalProperties")
        if "properties" in found or not isinstance(values, Mapping):
            return Phrase(pgettext("type", "object"), pgettext("type", "objects"))
        many = self.phrase(values, level + 1).many
        return Phrase(
            pgettext("type", "object of %s") % many, pgettext("type", "objects of %s") % many
        )


# Values of one type.


def _text(found: Schema) -> Phrase:
    """Return the phrase for a string."""
    if called := FORMATS.get(str(found.get("format"))):
        return Phrase(str(called[0]), str(called[1]))
    if _is_numeric(found.get("pattern")):
        return Phrase(
            pgettext("type", "number as text"), pgettext("type", "numbers as texts"), is_text=True
        )
    if found.get("contentEncoding") == "base64":
        return Phrase(pgettext("type", "text in base64"), pgettext("type", "texts in base64"))
    longest = found.get("maxLength")
    least = found.get("minLength") or None
    if longest is None and least == 1:
        return Phrase(pgettext("type", "text, not empty"), pgettext("type", "texts, none empty"))
    if longest is None and least is None:
        return Phrase(pgettext("type", "text"), pgettext("type", "texts"), is_text=True)
    count, number = {"count": _range(least, longest)}, least if longest is None else longest
    number = number if isinstance(number, int) else 2
    return Phrase(
        ngettext("text of %(count)s character", "text of %(count)s characters", number) % count,
        ngettext("texts of %(count)s character", "texts of %(count)s characters", number) % count,
    )


def _is_numeric(pattern: Any) -> bool:
    """Whether a pattern matches decimal numbers and no other text."""
    try:
        test = re.compile(pattern).search
    except (TypeError, re.error):
        return False
    return all(map(test, ("1.5", "20"))) and not any(map(test, ("x", "1-5", "1:5", "1.5x")))


def _whole_number(found: Schema) -> Phrase:
    limits = _limits(found)
    one, many = pgettext("type", "whole number"), pgettext("type", "whole numbers")
    return Phrase(f"{one} {limits}".rstrip(), f"{many} {limits}".rstrip())


def _number(found: Schema) -> Phrase:
    limits = _limits(found)
    one, many = pgettext("type", "number"), pgettext("type", "numbers")
    return Phrase(f"{one} {limits}".rstrip(), f"{many} {limits}".rstrip(), is_number=True)


def _limits(found: Schema) -> str:
    """Return the limits of a number, such as "from 1 to 5", or ""."""
    low, high = found.get("minimum"), found.get("maximum")
    above, below = found.get("exclusiveMinimum"), found.get("exclusiveMaximum")
    if above is True:  # up to draft 4 it is a boolean that makes "minimum" exclusive
        above, low = low, None
    if below is True:
        below, high = high, None
    if low is not None and high is not None:
        values = {"low": _value(low), "high": _value(high)}
        return pgettext("limits of a number", "from %(low)s to %(high)s") % values
    ends = (
        (pgettext("limits of a number", "of at least %s"), low),
        (pgettext("limits of a number", "above %s"), above),
        (pgettext("limits of a number", "of at most %s"), high),
        (pgettext("limits of a number", "below %s"), below),
    )
    limits = [text % _value(end) for text, end in ends if _is_number(end)]
    if len(limits) < 2:
        return "".join(limits)
    values = {"low": limits[0], "high": limits[1]}
    return pgettext("limits of a number", "%(low)s and %(high)s") % values


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


KINDS: Mapping[str, Callable[[Schema], Phrase]] = {
    "string": _text,
    "integer": _whole_number,
    "number": _number,
    "boolean": lambda found: Phrase(pgettext("type", "yes or no"), pgettext("type", "yes or no")),
    "null": lambda found: _nothing(),
}


# Several at once.


def _either(phrases: Sequence[Phrase]) -> Phrase:
    """Return all of ``phrases`` joined by "or", without duplicates."""
    phrases = list(dict.fromkeys(_decimals(phrases))) or [_anything()]
    if len(phrases) == 1:
        return phrases[0]
    return Phrase(
        _joined_by_or([phrase.one for phrase in phrases]),
        _joined_by_or([phrase.many for phrase in phrases]),
    )


def _decimals(phrases: Sequence[Phrase]) -> Sequence[Phrase]:
    """Join "number" and "number as text" to one phrase.

    Decimals are accepted as a number and as text.
    """
    if not all(any(getattr(one, name) for one in phrases) for name in ("is_number", "is_text")):
        return phrases
    also = pgettext("type", "%s (also as text)")
    return [
        Phrase(also % one.one, also % one.many) if one.is_number else one
        for one in phrases
        if not one.is_text
    ]


def _joined_by_or(words: Sequence[str]) -> str:
    *before, last = dict.fromkeys(words)
    if not before:
        return last
    return pgettext("type", "%(types)s or %(type)s") % {"types": ", ".join(before), "type": last}


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
    listed = ", ".join(shown)
    if more > 0:
        parts = {"values": listed, "count": more}
        listed = pgettext("type", "%(values)s and %(count)d more") % parts
    one = pgettext("type", "one of %s") % listed if len(shown) > 1 else listed
    phrases = [Phrase(one, pgettext("type", "values, each %s") % one)] if shown else []
    return _either([*phrases, _nothing()] if None in values else phrases)


def _range(least: Any, most: Any) -> str:
    if least is not None and most is not None:
        if least == most:
            return str(least)
        return pgettext("number", "%(low)s to %(high)s") % {"low": least, "high": most}
    if least is not None:
        return str(pgettext("number", "at least %s") % least)
    return str(pgettext("number", "at most %s") % most) if most is not None else ""


def _value(value: Any) -> str:
    """Return a value as a person would write it."""
    if isinstance(value, bool):
        return pgettext("value", "yes") if value else pgettext("value", "no")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    plain = isinstance(value, str) and value.strip() == value != ""
    return value if plain else json.dumps(value, ensure_ascii=False, default=str)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _mapping(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}
