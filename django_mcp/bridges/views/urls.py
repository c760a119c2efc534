"""
The project's URLs by name: the arguments of each URL, and the path that they make.

The URLconf is read when the catalog is resolved, not before. A path is made of one pattern, also if
other patterns have the same name. The path is resolved again and must lead to the same URL name
with the same values, so that no argument reaches a view that is not listed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from types import CellType, FunctionType
from typing import Any
from urllib.parse import unquote

from django.contrib.admindocs.utils import replace_named_groups
from django.urls import (
    NoReverseMatch,
    Resolver404,
    ResolverMatch,
    URLPattern,
    converters,
    get_resolver,
    get_script_prefix,
    resolve,
)
from django.urls.resolvers import LocalePrefixPattern, RegexPattern, URLResolver
from django.utils.regex_helper import normalize

from ...declarations.declaration import prose
from ...exceptions import InvalidArguments

# JSON Schemas of Django's path converters.
SCHEMAS: dict[type, dict[str, Any]] = {
    converters.IntConverter: {"type": "integer", "minimum": 0},
    converters.StringConverter: {"type": "string", "pattern": "^[^/]+$"},
    converters.PathConverter: {"type": "string", "minLength": 1},
    converters.SlugConverter: {"type": "string", "pattern": "^[-a-zA-Z0-9_]+$"},
    converters.UUIDConverter: {"type": "string", "format": "uuid"},
}
DECORATORS = "django.contrib.auth.decorators"
UNFIT = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")  # control characters and lone surrogates
# Syntax of Python's regular expressions that JSON Schema's do not have.
PYTHONIC = re.compile(r"\(\?(?!:|=|!)|\\[AZ]")


class Group(converters.StringConverter):
    """The converter for a group of a ``re_path``.

    It takes any text, because only the regular expression of the whole path can tell what fits.
    """

    regex = ".*"


GROUP = Group()


@dataclass(frozen=True)
class Pattern:
    """One URL pattern of a name. A name may have several, each with other arguments."""

    route: str
    callback: Callable[..., Any]
    converters: Mapping[str, Any] = field(default_factory=dict)
    reversible: bool = True
    # The ``URLResolver``s that lead to it, and its ``URLPattern``.
    entries: tuple[Any, ...] = ()

    def reverse(self, values: Mapping[str, Any]) -> str:
        """Return the path below the mount point. Raise ``NoReverseMatch``."""
        callback: Any = self.callback  # reverse() also takes names
        return "/" + unquote(self._resolver.reverse(callback, **values))

    @cached_property
    def _resolver(self) -> URLResolver:
        """A URLconf with this pattern only, and without namespaces."""
        *outer, found = self.entries
        for one in reversed(outer):
            found = URLResolver(one.pattern, [found], one.default_kwargs)
        return URLResolver(RegexPattern(r"^/"), [found])


@dataclass(frozen=True)
class Target:
    """A page of the project: URL name, path below the mount point, arguments and query string."""

    name: str
    path: str
    kwargs: Mapping[str, Any]
    query: str = ""


class Route:
    """All URL patterns of one URL name."""

    def __init__(self, name: str, patterns: Sequence[Pattern]) -> None:
        self.name, self.patterns = name, patterns
        self.callback = patterns[0].callback
        self.converters = {k: v for one in reversed(patterns) for k, v in one.converters.items()}

    @property
    def view_class(self) -> Any:
        """The class of a class-based view. None for a function view."""
        return getattr(self.callback, "view_class", None)

    def option(self, name: str) -> Any:
        """Return an argument of ``as_view()``, else the class attribute, else None."""
        given = getattr(self.callback, "view_initkwargs", {})
        return given.get(name, getattr(self.view_class, name, None))

    @property
    def decorated_with(self) -> list[str]:
        """The permissions of Django's ``permission_required``, as far as closures show them."""
        methods = (getattr(self.view_class, name, None) for name in ("dispatch", "get", "post"))
        return [*dict.fromkeys(_permissions_in([self.callback, *methods]))]

    def make_view(self) -> Any:
        """Return an instance of the view's class without a request."""
        return self.view_class(**self.callback.view_initkwargs)  # type: ignore[attr-defined]

    @property
    def docstring(self) -> str | None:
        """The docstring of a view, or None. Those of Django's own views are ignored."""
        view = self.view_class or self.callback
        ours = not str(getattr(view, "__module__", "")).startswith("django.")
        return prose(view.__doc__) if ours else None

    def variants(self) -> Iterator[Route]:
        """Yield a route for each set of arguments from which the path can be made."""
        found = {frozenset(pattern.converters): pattern for pattern in self.patterns}
        yield from (Route(self.name, [pattern]) for pattern in found.values())

    @property
    def path(self) -> str:
        """The path with its arguments, such as ``/trips/<int:pk>/``, for messages."""
        return "/" + replace_named_groups(self.patterns[0].route)

    @property
    def reversible(self) -> bool:
        return all(pattern.reversible for pattern in self.patterns)

    @cached_property
    def properties(self) -> dict[str, Any]:
        return {name: _schema(converter) for name, converter in self.converters.items()}

    @property
    def required(self) -> list[str]:
        """The arguments that every pattern has."""
        ways = [pattern.converters for pattern in self.patterns]
        return [name for name in self.converters if all(name in way for way in ways)]

    def target(self, given: Mapping[str, Any], query: str = "") -> Target:
        """Return the page for the given arguments. Raise ``InvalidArguments``."""
        values = {name: self._value(name, value) for name, value in given.items()}
        for pattern in reversed(self.patterns):  # Django's reverse() tries the last one first, too
            with suppress(NoReverseMatch):
                found = target_at(pattern.reverse(values), query)
                if found is not None and self._is_at(found, values):
                    return found
        arguments = ", ".join(f"{name}={value!r}"[:80] for name, value in given.items())
        raise InvalidArguments(f"There is no {self.path} with {arguments or 'nothing'}.")

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
        return found.name == self.name and self._to_url_texts(there) == self._to_url_texts(values)

    def _to_url_texts(self, values: Mapping[str, Any]) -> dict[str, str]:
        return {name: self.converters[name].to_url(value) for name, value in values.items()}


def _permissions_in(found: list[Any]) -> Iterator[str]:
    """Yield permissions found in closures of decorated functions, searched recursively."""
    seen: set[int] = set()
    while found:
        one = found.pop()
        if isinstance(one, list | tuple):
            found += one
        if not isinstance(one, FunctionType) or id(one) in seen:
            continue
        seen.add(id(one))
        cells = zip(one.__code__.co_freevars, one.__closure__ or (), strict=True)
        inner = {name: cell.cell_contents for name, cell in cells if _is_filled(cell)}
        if one.__module__ == DECORATORS and "perms" in inner:
            yield from inner["perms"]
        found += inner.values()


def _is_filled(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def routes() -> dict[str, Route]:
    """Return a route for every name in the URLconf. Errors of importing it are passed on."""
    found: dict[str, list[Pattern]] = {}
    for name, pattern in _patterns(get_resolver(), (), (), "", [{}]):
        if isinstance(name, str):
            found.setdefault(name, []).append(pattern)
    return {name: Route(name, patterns) for name, patterns in found.items()}


def routes_to(is_wanted: Callable[[Pattern], bool]) -> list[Route]:
    """Return a route for every URL whose pattern is wanted.

    A URL without a name is found too if it is in no namespace. Errors of importing the URLconf are
    passed on.
    """
    found: dict[Any, list[Pattern]] = {}
    for name, pattern in _patterns(get_resolver(), (), (), "", [{}]):
        if is_wanted(pattern):
            found.setdefault(name, []).append(pattern)
    return [
        Route(name if isinstance(name, str) else ResolverMatch(name, (), {}).view_name, patterns)
        for name, patterns in found.items()
    ]


def patterns_to(is_wanted: Callable[[Pattern], bool]) -> Iterator[tuple[str, Pattern]]:
    """Yield the patterns with a URL name that are wanted, in the order of the URLconf."""
    for name, pattern in _patterns(get_resolver(), (), (), "", [{}]):
        if isinstance(name, str) and is_wanted(pattern):
            yield name, pattern


def target_at(path: str, query: str = "") -> Target | None:
    """Return what a path below the mount point resolves to, or None."""
    try:
        match = resolve(path)
    except Resolver404:
        return None
    return Target(match.view_name, path, match.kwargs, query)


def path_info(url: str) -> str | None:
    """Return the path of a URL below the mount point. None if the URL is not below it."""
    prefix = get_script_prefix()
    return "/" + unquote(url.removeprefix(prefix)) if url.startswith(prefix) else None


# Reading the URLconf.

ArgumentSets = list[dict[str, Any]]  # converters by argument name


def _patterns(
    resolver: Any,
    outer: tuple[Any, ...],
    namespaces: tuple[str, ...],
    route: str,
    before: ArgumentSets,
) -> Iterator[tuple[Any, Pattern]]:
    """Yield each pattern with its URL name, or with its callback if it has no name.

    ``outer`` are the resolvers below the root that lead to ``resolver``, and itself.
    """
    for entry in resolver.url_patterns:
        full_route = route + _text(entry.pattern)
        argument_sets = _combine(before, _argument_sets(entry.pattern))
        entries = (*outer, entry)
        if isinstance(entry, URLResolver):
            inner = (*namespaces, entry.namespace) if entry.namespace else namespaces
            yield from _patterns(entry, entries, inner, full_route, argument_sets)
        elif isinstance(entry, URLPattern) and (entry.name or not namespaces):
            name = ":".join((*namespaces, entry.name)) if entry.name else entry.callback
            for arguments in argument_sets:
                is_named = UNNAMED not in arguments
                yield name, Pattern(full_route, entry.callback, arguments, is_named, entries)


UNNAMED = "_"  # stands for all groups that have no name


def _combine(before: ArgumentSets, after: ArgumentSets) -> ArgumentSets:
    return [{**first, **then} for first, then in product(before, after)]


def _argument_sets(pattern: Any) -> ArgumentSets:
    """Return the sets of arguments with which a pattern can be reversed."""
    if not isinstance(pattern, RegexPattern):
        return [dict(pattern.converters)]
    names = [parameters for _, parameters in normalize(pattern.regex.pattern)]
    found = [{UNNAMED if re.match(r"_\d", name) else name: GROUP for name in one} for one in names]
    # groups that normalize() drops, such as those of an alternative
    dropped = set(pattern.regex.groupindex).difference(*found)
    return [arguments | dict.fromkeys([UNNAMED] if dropped else [], GROUP) for arguments in found]


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
