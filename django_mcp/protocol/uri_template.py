"""URI templates (RFC 6570, all four levels): expand variables to a URI, and match a URI.

``Template.match`` reverses ``Template.expand`` for strings, in time linear in the length of the
URI. If a template is ambiguous, earlier variables match as much as they can. Matching accepts more
than expansion produces, because clients need not percent-encode every character.

Clients choose the URIs, so matching must not backtrack exponentially. ``run`` executes a small
program of ``Step`` objects and never visits the same step at the same place twice. Its time is at
most the product of the lengths of the program and the URI. (A regular expression with two variables
side by side would try every division of the text between them.) It tries steps in the order of the
program and returns the first match. Simple templates use a regular expression without backtracking
instead, which is faster.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any
from urllib.parse import quote, unquote_to_bytes

_TOKEN = re.compile(r"%[0-9A-Fa-f]{2}|.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Spell:
    """Match this token."""

    token: str


@dataclass(frozen=True, slots=True)
class Skip:
    """Match any one token except these."""

    ends: frozenset[str]


@dataclass(frozen=True, slots=True)
class Fork:
    """Continue at one of two steps, relative to this one; try ``first`` first."""

    first: int
    second: int


@dataclass(frozen=True, slots=True)
class Mark:
    """The start or the end of the text that a name captures."""

    name: Any


Step = Spell | Skip | Fork | Mark
Program = list[Step]


def tokens(text: str) -> list[str]:
    """Return the characters of ``text``; a percent-encoded octet is one token."""
    return [token.upper() if len(token) == 3 else token for token in _TOKEN.findall(text)]


# Functions that build programs from smaller programs.


def spelt(text: str) -> Program:
    """Return a program that matches exactly ``text``."""
    return [Spell(token) for token in tokens(text)]


def capture(name: Hashable, ends: frozenset[str] | None) -> Program:
    """Return a program that captures as many tokens as possible, up to one of ``ends``.

    If ``ends`` is None, it captures the empty string.
    """
    body = [] if ends is None else many([Skip(ends)])
    return [Mark(name), *body, Mark(name)]


def maybe(body: Program) -> Program:
    """Return a program that matches ``body`` or nothing."""
    return [Fork(1, len(body) + 1), *body]


def many(body: Program) -> Program:
    """Return a program that matches ``body`` any number of times.

    ``body`` must not match the empty string.
    """
    back = -(len(body) + 1)
    return [Fork(1, len(body) + 2), *body, Fork(back, back)]


def either(first: Program, *others: Program) -> Program:
    """Return a program that matches one of several, and tries them in this order."""
    if not others:
        return first
    rest = either(*others)
    over = len(rest) + 1
    return [Fork(1, len(first) + 2), *first, Fork(over, over), *rest]


# Running programs.

# The marks on the path to a state, as a linked list, last first: (earlier marks, name, place).
Trail = tuple[Any, Any, int] | None


def run(program: Program, given: list[str]) -> list[tuple[Any, str]] | None:
    """Match all of ``given``. Return the captured text of each name in order, or None."""
    waiting: list[tuple[int, int, Trail]] = [(0, 0, None)]
    seen: set[tuple[int, int]] = set()
    while waiting:
        at, place, trail = waiting.pop()
        if (at, place) in seen:
            continue
        seen.add((at, place))
        if at < len(program):
            waiting.extend(_next(program[at], at, given, place, trail))
        elif place == len(given):
            return _captured(given, trail)
    return None


def _next(
    step: Step, at: int, given: list[str], place: int, trail: Trail
) -> list[tuple[int, int, Trail]]:
    """Return the states that follow a step; the caller tries the last one first."""
    if isinstance(step, Fork):
        return [(at + step.second, place, trail), (at + step.first, place, trail)]
    if isinstance(step, Mark):
        return [(at + 1, place, (trail, step.name, place))]
    if place < len(given) and _takes(step, given[place]):
        return [(at + 1, place + 1, trail)]
    return []


def _takes(step: Spell | Skip, token: str) -> bool:
    return token == step.token if isinstance(step, Spell) else token not in step.ends


def _captured(given: list[str], trail: Trail) -> list[tuple[Any, str]]:
    found = []
    while trail is not None:
        opening, name, end = trail
        trail, _, start = opening
        found.append((name, "".join(given[start:end])))
    return found[::-1]


MAX_LENGTH = 8192
RESERVED = ":/?#[]@!$&'()*+,;="

_PARTS = re.compile(r"\{([^{}]*)\}|([^{}]+)|[{}]")
_VARIABLE = re.compile(
    r"(?P<name>(?:\w|%[0-9A-Fa-f]{2})(?:\.?(?:\w|%[0-9A-Fa-f]{2}))*)"
    r"(?:(?P<explode>\*)|:(?P<prefix>[1-9][0-9]{0,3}))?",
    re.ASCII,
)
_ILLEGAL = re.compile(r"[\x00-\x20\x7f\"<>\\^`|]|%(?![0-9A-Fa-f]{2})")
_TRIPLET = re.compile(r"%[0-9A-Fa-f]{2}|.", re.DOTALL)
_OCTET = re.compile(r"%[0-9A-Fa-f]{2}")
_STRAY_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True, slots=True)
class Operator:
    """How an expression of one kind is written (RFC 6570, appendix A)."""

    first: str = ""
    separator: str = ","
    named: bool = False
    if_empty: str = ""
    reserved: bool = False
    ends: str = "/?#"  # characters that end a value when a URI is matched


OPERATORS = {
    "": Operator(),
    "+": Operator(reserved=True, ends=""),
    "#": Operator(first="#", reserved=True, ends=""),
    ".": Operator(first=".", separator="."),
    "/": Operator(first="/", separator="/"),
    ";": Operator(first=";", separator=";", named=True, ends=";/?#"),
    "?": Operator(first="?", separator="&", named=True, if_empty="=", ends="&#"),
    "&": Operator(first="&", separator="&", named=True, if_empty="=", ends="&#"),
}


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable in an expression; ``*`` sets ``explode``, and ``:`` with a length ``prefix``."""

    name: str
    explode: bool = False
    prefix: int | None = None


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression: an operator and the variables between two braces."""

    operator: Operator
    variables: tuple[Variable, ...]


class Template:
    """A URI template. Raise ``ValueError``, with the position, for invalid text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.parts: tuple[str | Expression, ...] = tuple(_parse(text))
        self._program = [step for part in self.parts for step in _program(part)]
        self._pattern = _pattern(self.parts)

    def __repr__(self) -> str:
        return f"Template({self.text!r})"

    @property
    def names(self) -> tuple[str, ...]:
        """The variables, each once, in the order in which they first occur."""
        expressions = [part for part in self.parts if isinstance(part, Expression)]
        return tuple(dict.fromkeys(v.name for part in expressions for v in part.variables))

    def expand(self, variables: Mapping[str, Any]) -> str:
        """Return the URI for ``variables``: strings, lists and mappings; None counts as absent."""
        return "".join(
            part if isinstance(part, str) else _expanded(part, variables) for part in self.parts
        )

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the decoded variables with which this template expands to ``uri``, or None.

        A variable that is absent in the URI is left out. The items of a list are one string, with
        the separator between them. A URI that is not valid UTF-8, contains a NUL or has more than
        ``MAX_LENGTH`` characters does not match.
        """
        if len(uri) > MAX_LENGTH or _STRAY_PERCENT.search(uri):
            return None
        try:
            found = self._found(_ascii(uri))
            return None if found is None else _agreed(found)
        except UnicodeError:
            return None

    def _found(self, uri: str) -> list[tuple[Variable, str]] | None:
        if self._pattern is None:
            return run(self._program, tokens(uri))
        matched = self._pattern.fullmatch(_upper(uri))
        if matched is None:
            return None
        expressions = (part for part in self.parts if isinstance(part, Expression))
        return [
            (e.variables[0], text) for e, text in zip(expressions, matched.groups(), strict=True)
        ]


def _ascii(text: str) -> str:
    return text if text.isascii() else quote(text, safe=RESERVED + '%"<>\\^`{|} ')


# From text to parts.


def _parse(text: str) -> Iterator[str | Expression]:
    for part in _PARTS.finditer(text):
        expression, literal = part.groups()
        if expression is not None:
            yield _expression(expression, part.start() + 1)
        elif literal is not None:
            yield _literal(literal, part.start())
        else:
            raise ValueError(f"Unbalanced {part[0]!r} at position {part.start()}")


def _literal(text: str, start: int) -> str:
    if illegal := _ILLEGAL.search(text):
        raise ValueError(f"Illegal {illegal[0]!r} at position {start + illegal.start()}")
    return quote(text, safe=RESERVED + "%")


def _expression(text: str, start: int) -> Expression:
    symbol = text[:1] if text[:1] in OPERATORS else ""
    names = text[len(symbol) :].split(",")
    starts = [start + len(symbol)]
    for name in names[:-1]:
        starts.append(starts[-1] + len(name) + 1)
    variables = map(_variable, names, starts)
    return Expression(OPERATORS[symbol], tuple(variables))


def _variable(text: str, start: int) -> Variable:
    found = _VARIABLE.fullmatch(text)
    if found is None:
        raise ValueError(f"No variable {text!r} at position {start}")
    prefix = int(found["prefix"]) if found["prefix"] else None
    return Variable(found["name"], bool(found["explode"]), prefix)


# From variables to a URI.


def _expanded(expression: Expression, variables: Mapping[str, Any]) -> str:
    operator = expression.operator
    items = [
        item
        for variable in expression.variables
        for item in _items(operator, variable, variables.get(variable.name))
    ]
    return operator.first + operator.separator.join(items) if items else ""


def _items(operator: Operator, variable: Variable, value: Any) -> Iterator[str]:
    """Yield the items of one variable; nothing if it is absent or an empty list."""
    if isinstance(value, Mapping):
        yield from _of_mapping(operator, variable, value)
    elif isinstance(value, (list, tuple)):
        yield from _of_list(operator, variable, value)
    elif value is not None:
        yield _item(operator, variable.name, _encoded(operator, value, variable.prefix))


def _of_mapping(operator: Operator, variable: Variable, value: Mapping[Any, Any]) -> Iterator[str]:
    pairs = [
        (_encoded(operator, key), _encoded(operator, item))
        for key, item in value.items()
        if item is not None
    ]
    if variable.explode:
        named = replace(operator, named=True, if_empty=operator.if_empty if operator.named else "=")
        yield from (_item(named, key, item) for key, item in pairs)
    elif pairs:
        yield _item(operator, variable.name, ",".join(chain.from_iterable(pairs)))


def _of_list(operator: Operator, variable: Variable, value: Iterable[Any]) -> Iterator[str]:
    items = [_encoded(operator, item) for item in value if item is not None]
    if variable.explode:
        yield from (_item(operator, variable.name, item) for item in items)
    elif items:
        yield _item(operator, variable.name, ",".join(items))


def _item(operator: Operator, name: str, text: str) -> str:
    if not operator.named:
        return text
    return f"{name}={text}" if text else name + operator.if_empty


def _encoded(operator: Operator, value: Any, prefix: int | None = None) -> str:
    # The operators "+" and "#" keep octets that are percent-encoded already (RFC 6570).
    characters = _TRIPLET.findall(str(value)) if operator.reserved else list(str(value))
    safe = RESERVED if operator.reserved else ""
    return "".join(
        character if len(character) == 3 else quote(character, safe=safe)
        for character in characters[:prefix]
    )


# From a URI to variables.


def _program(part: str | Expression) -> Program:
    if isinstance(part, str):
        return spelt(part)
    operator, (first, *others) = part.operator, part.variables
    if operator.named:
        return _named(operator, part.variables)
    rest: Program = []
    for variable in reversed(others):
        rest = maybe(spelt(operator.separator) + _value(part, variable) + rest)
    whole = spelt(operator.first) + _value(part, first) + rest
    return maybe(whole) if operator.first else whole


def _pattern(parts: tuple[str | Expression, ...]) -> re.Pattern[str] | None:
    """Return an equivalent regular expression, which is faster; None if a value may be ambiguous.

    It has only possessive quantifiers, so it cannot backtrack.
    """
    written = [_written(part, after) for part, after in zip(parts, (*parts[1:], ""), strict=False)]
    known = [one for one in written if one is not None]
    return re.compile("".join(known), re.DOTALL) if len(known) == len(written) else None


def _written(part: str | Expression, after: str | Expression) -> str | None:
    if isinstance(part, str):
        return re.escape(_upper(part))
    ends, (first, *others) = part.operator.ends, part.variables
    if others or first.explode or part.operator not in (OPERATORS[""], OPERATORS["+"]):
        return None
    if after and not (isinstance(after, str) and after[0] in ends):
        return None  # the value does not end at the next literal: several divisions are possible
    return f"([^{re.escape(ends)}]*+)" if ends else "(.*+)"


def _upper(text: str) -> str:
    """Return ``text`` with percent-encoded octets in upper case, so that equal octets match."""
    return _OCTET.sub(lambda octet: octet[0].upper(), text) if "%" in text else text


def _value(expression: Expression, variable: Variable) -> Program:
    """Return a program that captures a value, up to its end or the separator of the next value."""
    operator = expression.operator
    single = variable.explode or len(expression.variables) == 1
    ends = frozenset(operator.ends) | frozenset("" if single else operator.separator)
    return capture(variable, ends - frozenset(operator.separator if variable.explode else ""))


def _named(operator: Operator, variables: tuple[Variable, ...]) -> Program:
    """Return a program for named items in any order and number; ``_agreed`` checks repetitions."""
    ends = frozenset(operator.ends)
    item = either(*(
        spelt(variable.name) + either(spelt("=") + capture(variable, ends), capture(variable, None))
        for variable in variables
    ))  # fmt: skip
    more = many(spelt(operator.separator) + item)
    if operator.first == operator.separator:
        return more
    return maybe(spelt(operator.first) + item + more)


def _agreed(found: Iterable[tuple[Any, str]]) -> dict[str, str] | None:
    """Return the values by name, or None if two values of one name contradict each other."""
    values: dict[str, str] = {}
    for variable, text in sorted(found, key=lambda each: each[0].prefix or 0):
        value = _decoded(text)
        if variable.explode and variable.name in values:
            values[variable.name] += "," + value
        elif not _fits(values.setdefault(variable.name, value), value, variable.prefix):
            return None
    return values


def _fits(whole: str, value: str, prefix: int | None) -> bool:
    return whole == value if prefix is None else whole.startswith(value) and len(value) <= prefix


def _decoded(text: str) -> str:
    value = unquote_to_bytes(text).decode()
    if "\0" in value:
        raise UnicodeError("NUL is no text: databases refuse it")
    return value
