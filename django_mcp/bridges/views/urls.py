"""
The project's URLs by name: the arguments that one takes, and the address they make.

Rule: the URLconf is read when the registry is resolved, never before. A value becomes part of an
address only if that address leads back to the same name with the same value: no argument
reaches a view that was not named.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any
from urllib.parse import unquote

from django.urls import (
    NoReverseMatch,
    Resolver404,
    URLPattern,
    converters,
    get_resolver,
    get_script_prefix,
    resolve,
    reverse,
)
from django.urls.resolvers import LocalePrefixPattern, RegexPattern, URLResolver
from django.utils.regex_helper import normalize

from ...declare.declarations import prose
from ...exceptions import InvalidArguments

# What the converters of paths take, as JSON Schema.
SCHEMAS: dict[type, dict[str, Any]] = {
    converters.IntConverter: {"type": "integer", "minimum": 0},
    converters.StringConverter: {"type": "string", "pattern": "^[^/]+$"},
    converters.PathConverter: {"type": "string", "minLength": 1},
    converters.SlugConverter: {"type": "string", "pattern": "^[-a-zA-Z0-9_]+$"},
    converters.UUIDConverter: {"type": "string", "format": "uuid"},
}
UNFIT = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")  # for an address
# What Python's regular expressions have and those of JSON Schema have not.
PYTHONIC = re.compile(r"\(\?(?!:|=|!)|\\[AZ]")


class Group(converters.StringConverter):
    """A group of a ``re_path``: text, which the whole address tells whether it fits."""

    regex = ".*"


GROUP = Group()


@dataclass(frozen=True)
class Pattern:
    """One way from a name to a view."""

    route: str
    callback: Callable[..., Any]
    converters: Mapping[str, Any] = field(default_factory=dict)
    reversible: bool = True


@dataclass(frozen=True)
class Target:
    """A page of the project: its path below the mount point, and where that leads."""

    name: str
    path: str
    kwargs: Mapping[str, Any]
    query: str = ""


class Route:
    """All that one URL name leads to."""

    def __init__(self, name: str, patterns: Sequence[Pattern]) -> None:
        self.name, self.patterns = name, patterns
        self.callback = patterns[0].callback
        self.converters = {k: v for one in reversed(patterns) for k, v in one.converters.items()}

    @property
    def view_class(self) -> Any:
        """The class of a class-based view, or None."""
        return getattr(self.callback, "view_class", None)

    def option(self, name: str) -> Any:
        """An attribute of the class, or what ``as_view`` was given for it."""
        given = getattr(self.callback, "view_initkwargs", {})
        return given.get(name, getattr(self.view_class, name, None))

    def made(self) -> Any:
        """An instance of the class, that no request is for."""
        return self.view_class(**self.callback.view_initkwargs)  # type: ignore[attr-defined]

    @property
    def words(self) -> str | None:
        """What the view's own docstring says."""
        view = self.view_class or self.callback
        ours = not str(getattr(view, "__module__", "")).startswith("django.")
        return prose(view.__doc__) if ours else None

    def ways(self) -> Iterator[Route]:
        """A route for each set of arguments that the address can be made of."""
        found = {frozenset(pattern.converters): pattern for pattern in self.patterns}
        yield from (Route(self.name, [pattern]) for pattern in found.values())

    @property
    def path(self) -> str:
        """How the address is written in the URLconf, for people."""
        return "/" + self.patterns[0].route

    @property
    def reversible(self) -> bool:
        return all(pattern.reversible for pattern in self.patterns)

    @cached_property
    def properties(self) -> dict[str, Any]:
        return {name: _schema(converter) for name, converter in self.converters.items()}

    @property
    def required(self) -> list[str]:
        """What no pattern does without."""
        ways = [pattern.converters for pattern in self.patterns]
        return [name for name in self.converters if all(name in way for way in ways)]

    def target(self, given: Mapping[str, Any], query: str = "") -> Target:
        """The page that arguments name. Raises ``InvalidArguments``."""
        values = {name: self._value(name, value) for name, value in given.items()}
        try:
            path = path_info(reverse(self.name, kwargs=values))
        except NoReverseMatch:
            path = None
        found = None if path is None else target_at(path, query)
        if found is None or not self._is_at(found, values):
            told = ", ".join(f"{name}={value!r}"[:80] for name, value in given.items())
            raise InvalidArguments(f"There is no {self.path} with {told or 'nothing'}.")
        return found

    def _value(self, name: str, value: Any) -> Any:
        text, converter = str(value), self.converters[name]
        if UNFIT.search(text) or not re.fullmatch(converter.regex, text):
            raise InvalidArguments(f"{name}: {text[:80]!r} cannot be part of {self.path}.")
        try:
            return converter.to_python(text)
        except ValueError:
            raise InvalidArguments(f"{name}: there is no {text[:80]!r}.") from None

    def _is_at(self, found: Target, values: Mapping[str, Any]) -> bool:
        there = {name: found.kwargs[name] for name in values if name in found.kwargs}
        return found.name == self.name and self._written(there) == self._written(values)

    def _written(self, values: Mapping[str, Any]) -> dict[str, str]:
        return {name: self.converters[name].to_url(value) for name, value in values.items()}


def routes() -> dict[str, Route]:
    """Every name in the project's URLconf. Raises what importing that raises."""
    found: dict[str, list[Pattern]] = {}
    for name, pattern in _named(get_resolver(), (), "", [{}]):
        found.setdefault(name, []).append(pattern)
    return {name: Route(name, patterns) for name, patterns in found.items()}


def target_at(path: str, query: str = "") -> Target | None:
    """Where a path below the mount point leads, or None."""
    try:
        match = resolve(path)
    except Resolver404:
        return None
    return Target(match.view_name, path, match.kwargs, query)


def path_info(url: str) -> str | None:
    """The path of an address below the mount point, or None where it is not below it."""
    prefix = get_script_prefix()
    return "/" + unquote(url.removeprefix(prefix)) if url.startswith(prefix) else None


# Reading the URLconf.

Ways = list[dict[str, Any]]


def _named(
    resolver: Any, spaces: tuple[str, ...], route: str, before: Ways
) -> Iterator[tuple[str, Pattern]]:
    for entry in resolver.url_patterns:
        here, ways = route + _text(entry.pattern), _ways(entry.pattern)
        if isinstance(entry, URLResolver):
            inner = (*spaces, entry.namespace) if entry.namespace else spaces
            yield from _named(entry, inner, here, _joined(before, ways))
        elif isinstance(entry, URLPattern) and entry.name:
            for way in _joined(before, ways):
                reversible = UNNAMED not in way
                yield (
                    ":".join((*spaces, entry.name)),
                    Pattern(here, entry.callback, way, reversible),
                )


UNNAMED = "_"


def _joined(before: Ways, after: Ways) -> Ways:
    return [{**first, **then} for first, then in product(before, after)]


def _ways(pattern: Any) -> Ways:
    """The sets of arguments with which a pattern can be written."""
    if not isinstance(pattern, RegexPattern):
        return [dict(pattern.converters)]
    names = [parameters for _, parameters in normalize(pattern.regex.pattern)]
    ways = [{UNNAMED if re.match(r"_\d", name) else name: GROUP for name in one} for one in names]
    lost = set(pattern.regex.groupindex).difference(*ways)  # of an "or", say
    return [way | dict.fromkeys([UNNAMED] if lost else [], GROUP) for way in ways]


def _text(pattern: Any) -> str:
    if isinstance(pattern, LocalePrefixPattern):
        return "<language>/"
    return str(pattern).removeprefix("^").removesuffix("$")


def _schema(converter: Any) -> dict[str, Any]:
    if isinstance(converter, Group):
        return {"type": "string"}
    known = SCHEMAS.get(type(converter))
    if known is not None:
        return dict(known)
    plain = not PYTHONIC.search(converter.regex)
    return {"type": "string"} | ({"pattern": f"^(?:{converter.regex})$"} if plain else {})
