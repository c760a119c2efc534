"""URI templates (RFC 6570, all four levels): expand variables to a URI, and match a URI.

``Template.match`` reverses ``Template.expand`` for strings, in time linear in the length of the
URI. If a template is ambiguous, earlier variables match as much as they can. Matching accepts more
than expansion produces, because clients need not percent-encode every character.

Clients choose the URIs, so matching must not backtrack exponentially. ``match_program`` executes a
small program of ``Step`` objects and never visits a step twice at one place in the URI. Its time is
at most the product of the lengths of the program and the URI. (A regular expression with two
variables side by side would try every division of the text between them.) It tries steps in the
order of the program and returns the first match. Simple templates use a regular expression without
backtracking instead, which is faster.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any
from urllib.parse import quote, unquote_to_bytes

MAX_MATCHED_LENGTH = 8192
RESERVED = ":/?#[]@!$&'()*+,;="

_PARTS = re.compile(r"\{([^{}]*)\}|([^{}]+)|[{}]")
_VARIABLE = re.compile(
    r"(?P<name>(?:\w|%[0-9A-Fa-f]{2})(?:\.?(?:\w|%[0-9A-Fa-f]{2}))*)"
    r"(?:(?P<explode>\*)|:(?P<prefix>[1-9][0-9]{0,3}))?",
    re.ASCII,
)
_ILLEGAL = re.compile(r"[\x00-\x20\x7f\"<>\\^`|]|%(?![0-9A-Fa-f]{2})")
_OCTET = re.compile(r"%[0-9A-Fa-f]{2}")
_STRAY_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_OCTET_OR_CHARACTER = re.compile(r"%[0-9A-Fa-f]{2}|.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class MatchToken:
    """Match this token."""

    token: str


@dataclass(frozen=True, slots=True)
class MatchExcept:
    """Match any one token except these."""

    ends: frozenset[str]


@dataclass(frozen=True, slots=True)
class Split:
    """Continue at one of two steps, given as offsets from this one. Try ``first`` first."""

    first: int
    second: int


@dataclass(frozen=True, slots=True)
class CaptureMark:
    """The start or the end of the text that a name captures."""

    name: Any


Step = MatchToken | MatchExcept | Split | CaptureMark
Program = list[Step]


def tokens(text: str) -> list[str]:
    """Return the characters of ``text``; a percent-encoded octet is one token."""
    return [
        token.upper() if len(token) == 3 else token for token in _OCTET_OR_CHARACTER.findall(text)
    ]


# Functions that build programs from smaller programs.


def literal(text: str) -> Program:
    """Return a program that matches exactly ``text``."""
    return [MatchToken(token) for token in tokens(text)]


def capture(name: Hashable, ends: frozenset[str] | None) -> Program:
    """Return a program that captures as many tokens as possible, up to one of ``ends``.

    If ``ends`` is None, it captures the empty string.
    """
    body = [] if ends is None else zero_or_more([MatchExcept(ends)])
    return [CaptureMark(name), *body, CaptureMark(name)]


def optional(body: Program) -> Program:
    """Return a program that matches ``body`` or nothing."""
    return [Split(1, len(body) + 1), *body]


def zero_or_more(body: Program) -> Program:
    """Return a program that matches ``body`` any number of times.

    ``body`` must not match the empty string.
    """
    back = -(len(body) + 1)
    return [Split(1, len(body) + 2), *body, Split(back, back)]


def alternatives(first: Program, *others: Program) -> Program:
    """Return a program that matches one of several, and tries them in this order."""
    if not others:
        return first
    rest = alternatives(*others)
    over = len(rest) + 1
    return [Split(1, len(first) + 2), *first, Split(over, over), *rest]


# Running programs.

# The capture marks on the path to a state, as a linked list, last first: (rest, name, place).
CapturePath = tuple[Any, Any, int] | None


def match_program(program: Program, given: list[str]) -> list[tuple[Any, str]] | None:
    """Match all of ``given``. Return the captured text of each name in order, or None."""
    waiting: list[tuple[int, int, CapturePath]] = [(0, 0, None)]
    seen: set[tuple[int, int]] = set()
    while waiting:
        at, place, trail = waiting.pop()
        if (at, place) in seen:
            continue
        seen.add((at, place))
        if at < len(program):
            waiting.extend(_following_states(program[at], at, given, place, trail))
        elif place == len(given):
            return _captures(given, trail)
    return None


def _following_states(
    step: Step, at: int, given: list[str], place: int, trail: CapturePath
) -> list[tuple[int, int, CapturePath]]:
    """Return the states that follow a step; the caller tries the last one first."""
    if isinstance(step, Split):
        return [(at + step.second, place, trail), (at + step.first, place, trail)]
    if isinstance(step, CaptureMark):
        return [(at + 1, place, (trail, step.name, place))]
    if place < len(given) and _takes(step, given[place]):
        return [(at + 1, place + 1, trail)]
    return []


def _takes(step: MatchToken | MatchExcept, token: str) -> bool:
    return token == step.token if isinstance(step, MatchToken) else token not in step.ends


def _captures(given: list[str], trail: CapturePath) -> list[tuple[Any, str]]:
    found = []
    while trail is not None:
        opening, name, end = trail
        trail, _, start = opening
        found.append((name, "".join(given[start:end])))
    return found[::-1]


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
            part if isinstance(part, str) else _expand(part, variables) for part in self.parts
        )

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the decoded variables with which this template expands to ``uri``, or None.

        A variable without a value in the URI is not in the result. An empty value is "". The items
        of a list are one string, with the separator between them. A URI that is not valid UTF-8,
        contains a NUL or has more than ``MAX_MATCHED_LENGTH`` characters does not match.
        """
        if len(uri) > MAX_MATCHED_LENGTH or _STRAY_PERCENT.search(uri):
            return None
        try:
            captures = self._match_expressions(_ascii(uri))
            return None if captures is None else _merge_repeated(captures)
        except UnicodeError:
            return None

    def _match_expressions(self, uri: str) -> list[tuple[Variable, str]] | None:
        if self._pattern is None:
            return match_program(self._program, tokens(uri))
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


def _expand(expression: Expression, variables: Mapping[str, Any]) -> str:
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
        yield from _expand_mapping(operator, variable, value)
    elif isinstance(value, (list, tuple)):
        yield from _expand_list(operator, variable, value)
    elif value is not None:
        yield _item(operator, variable.name, _encode(operator, value, variable.prefix))


def _expand_mapping(
    operator: Operator, variable: Variable, value: Mapping[Any, Any]
) -> Iterator[str]:
    pairs = [
        (_encode(operator, key), _encode(operator, item))
        for key, item in value.items()
        if item is not None
    ]
    if variable.explode:
        named = replace(operator, named=True, if_empty=operator.if_empty if operator.named else "=")
        yield from (_item(named, key, item) for key, item in pairs)
    elif pairs:
        yield _item(operator, variable.name, ",".join(chain.from_iterable(pairs)))


def _expand_list(operator: Operator, variable: Variable, value: Iterable[Any]) -> Iterator[str]:
    items = [_encode(operator, item) for item in value if item is not None]
    if variable.explode:
        yield from (_item(operator, variable.name, item) for item in items)
    elif items:
        yield _item(operator, variable.name, ",".join(items))


def _item(operator: Operator, name: str, text: str) -> str:
    if not operator.named:
        return text
    return f"{name}={text}" if text else name + operator.if_empty


def _encode(operator: Operator, value: Any, prefix: int | None = None) -> str:
    # The operators "+" and "#" keep octets that are percent-encoded already (RFC 6570).
    characters = _OCTET_OR_CHARACTER.findall(str(value)) if operator.reserved else list(str(value))
    safe = RESERVED if operator.reserved else ""
    return "".join(
        character if len(character) == 3 else quote(character, safe=safe)
        for character in characters[:prefix]
    )


# From a URI to variables.


def _program(part: str | Expression) -> Program:
    if isinstance(part, str):
        return literal(part)
    operator, (first, *others) = part.operator, part.variables
    if operator.named:
        return _named(operator, part.variables)
    rest: Program = []
    for variable in reversed(others):
        rest = optional(literal(operator.separator) + _value(part, variable) + rest)
    whole = literal(operator.first) + _value(part, first) + rest
    return optional(whole) if operator.first else whole


def _pattern(parts: tuple[str | Expression, ...]) -> re.Pattern[str] | None:
    """Return an equivalent regular expression if each value ends at the next literal, else None.

    It is faster, and has only possessive quantifiers, so it cannot backtrack.
    """
    following = (*parts[1:], "")
    regexes = [_regex_of_part(part, after) for part, after in zip(parts, following, strict=False)]
    known = [one for one in regexes if one is not None]
    return re.compile("".join(known), re.DOTALL) if len(known) == len(regexes) else None


def _regex_of_part(part: str | Expression, after: str | Expression) -> str | None:
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
    """Return a program for named items in any order, also repeated: see ``_merge_repeated``."""
    ends = frozenset(operator.ends)
    item = alternatives(
        *(
            literal(variable.name)
            + alternatives(literal("=") + capture(variable, ends), capture(variable, None))
            for variable in variables
        )
    )
    more = zero_or_more(literal(operator.separator) + item)
    if operator.first == operator.separator:
        return more
    return optional(literal(operator.first) + item + more)


def _merge_repeated(captures: Iterable[tuple[Any, str]]) -> dict[str, str] | None:
    """Return the values by name, or None if a variable occurs twice with different values."""
    values: dict[str, str] = {}
    # Whole values first: prefixes are compared with them.
    for variable, text in sorted(captures, key=lambda each: each[0].prefix or 0):
        value = _decode(text)
        if variable.explode and variable.name in values:
            values[variable.name] += "," + value
        elif not _fits(values.setdefault(variable.name, value), value, variable.prefix):
            return None
    return values


def _fits(whole: str, value: str, prefix: int | None) -> bool:
    return whole == value if prefix is None else whole.startswith(value) and len(value) <= prefix


def _decode(text: str) -> str:
    value = unquote_to_bytes(text).decode()
    if "\0" in value:
        raise UnicodeError("percent-encoded NUL")  # as for invalid UTF-8, the URI does not match
    return value
