"""
The search of a model: its arguments as a JSON Schema, and a queryset that obeys them.

Rule: only what the declaration names can be searched, filtered or ordered by; every argument is
read strictly and bounded, and a wrong one is a ValueError whose words a model can act on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, reduce
from itertools import islice
from operator import and_, or_
from typing import Any, TypeVar

from django.core.exceptions import FieldError
from django.db import models
from django.db.models import Q
from django.utils.text import smart_split, unescape_string_literal

from .columns import JSON, is_stable, kind_of, unstable
from .filters import Filter, filters_of
from .keys import ModelClass, Path, follow, parse_key
from .keyset import MAX_CHUNK, Keyset

M = TypeVar("M", bound=models.Model)

DEFAULT_LIMIT, MAX_LIMIT = 20, 100
MAX_QUERY_LENGTH, MAX_WORDS = 200, 10
OWN = ("query", "ordering", "limit", "cursor")


class Search:
    """
    What a client may search a model by.

    `search_fields` are texts, `filter_fields` any columns or many-to-many relations, `ordering`
    the model resource's order, of which each column may be asked for in either direction.
    """

    def __init__(
        self,
        model: ModelClass,
        search_fields: Sequence[str] = (),
        filter_fields: Sequence[str] = (),
        ordering: Sequence[str] = (),
    ) -> None:
        self.model = model
        self.search_fields = search_fields
        self.filter_fields = filter_fields
        self.ordering = ordering

    def problems(self) -> list[str]:
        """What is wrong with the fields, in words for the developer (`Keyset` has the order's)."""
        found = [wrong for name in self.search_fields for wrong in _not_text(self.model, name)]
        return found + [wrong for name in self.filter_fields for wrong in self._problems_of(name)]

    def _problems_of(self, name: str) -> Iterator[str]:
        if name in OWN:
            yield f"filter_fields: {name!r} is an argument of every search."
        try:
            filters_of(self.model, name)
        except FieldError as error:
            yield f"filter_fields: {error}"

    @cached_property
    def filters(self) -> dict[str, Filter]:
        """The filters by the arguments' names; raises FieldError for what is no column."""
        found = [each for name in self.filter_fields for each in filters_of(self.model, name)]
        return {each.name: each for each in found}

    @cached_property
    def orderings(self) -> dict[str, Keyset]:
        """The orders that may be asked for: each column either way, then the declared order."""
        plain = [name.removeprefix("-") for name in self.ordering]
        names = [sign for name in plain for sign in (name, f"-{name}")]
        return {name: Keyset(self.model, [name, *self.ordering]) for name in names}

    @cached_property
    def default_order(self) -> Keyset:
        return Keyset(self.model, list(self.ordering))

    def schema(self) -> JSON:
        """The JSON Schema of a search's arguments, in the active language."""
        properties = {name: each.schema() for name, each in self.filters.items()}
        return {
            "type": "object",
            "properties": self._query_schema() | properties | self._page_schema(),
            "additionalProperties": False,
        }

    def _query_schema(self) -> JSON:
        if not self.search_fields:
            return {}
        words = f'Words or "phrases" to find in {", ".join(self.search_fields)}.'
        return {"query": {"type": "string", "description": words}}

    def _page_schema(self) -> JSON:
        limit = {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT}
        cursor = {"type": "string", "description": "next_cursor"}
        return self._ordering_schema() | {"limit": limit, "cursor": cursor}

    def _ordering_schema(self) -> JSON:
        if not self.ordering:
            return {}
        about = f"By default {', '.join(self.ordering)}."
        names = list(self.orderings)
        return {"ordering": {"enum": names, "description": about}}

    def apply(
        self, queryset: models.QuerySet[M], arguments: Mapping[str, Any]
    ) -> models.QuerySet[M]:
        """The rows of `queryset` that `arguments` ask for, unordered; raises ValueError."""
        for name, value in arguments.items():
            if name == "query" and self.search_fields:
                queryset = queryset.filter(self._matches(_words(value)))
            elif name in self.filters:
                queryset = queryset.filter(self.filters[name].condition(value))
            elif name not in OWN or name == "query":
                raise ValueError(f"There is no argument {name!r}. {self._known()}")
        return queryset

    def keyset(self, arguments: Mapping[str, Any]) -> Keyset:
        """The order that `arguments` ask for; raises ValueError."""
        name = arguments.get("ordering")
        if "ordering" not in arguments:
            return self.default_order
        if not isinstance(name, str) or name not in self.orderings:
            raise ValueError(f"ordering: one of {', '.join(self.orderings) or 'none'}.")
        return self.orderings[name]

    def limit(self, arguments: Mapping[str, Any]) -> int:
        """How many rows `arguments` ask for; raises ValueError."""
        limit = arguments.get("limit", DEFAULT_LIMIT)
        if type(limit) is not int or not 1 <= limit <= MAX_LIMIT:
            raise ValueError(f"limit: an integer from 1 to {MAX_LIMIT}.")
        return limit

    def completions(
        self,
        queryset: models.QuerySet[M],
        text: str,
        lookup: str = "pk",
        limit: int = 100,
        gate: Callable[[M], bool] | None = None,
    ) -> list[M]:
        """At most `limit` rows that `text` may mean, the likeliest first: key, beginning, words.

        Rows that do not pass `gate` take nobody's place, so more are read instead of them.
        """
        found: dict[Any, M] = {}
        for rows in self._meant(queryset, text, lookup):
            for row in rows[:limit] if gate is None else islice(_passing(rows, limit, gate), limit):
                found.setdefault(row.pk, row)
            if len(found) >= limit:
                break
        return list(found.values())[:limit]

    def _meant(
        self, queryset: models.QuerySet[M], text: str, lookup: str
    ) -> Iterator[models.QuerySet[M]]:
        queryset = self.default_order.order(queryset)
        if not text:
            yield queryset
        if not text or not _is_readable(text):
            return
        yield from _by_key(queryset, text, lookup)
        if _is_text(_column(self.model, lookup)):
            yield queryset.filter(**{f"{lookup}__istartswith": text}).order_by(lookup)
        if self.search_fields:
            yield queryset.filter(self._in_any("istartswith", text))
            yield queryset.filter(self._matches(_split(text)[:MAX_WORDS]))

    def _matches(self, words: Sequence[str]) -> Q:
        """Every word in any of the fields."""
        return reduce(and_, (self._in_any("icontains", word) for word in words), Q())

    def _in_any(self, lookup: str, text: str) -> Q:
        return reduce(or_, (Q(**{f"{name}__{lookup}": text}) for name in self.search_fields), Q())

    def _known(self) -> str:
        query = ["query"] if self.search_fields else []
        return f"There are: {', '.join([*query, *self.filters, *OWN[1:]])}."


def _words(text: Any) -> list[str]:
    """The words of a query; raises ValueError for one that is odd or too long."""
    if type(text) is not str or not _is_readable(text):
        raise ValueError(
            f"query: a string of at most {MAX_QUERY_LENGTH} characters, none of them NUL."
        )
    words = _split(text)
    if len(words) > MAX_WORDS:
        raise ValueError(f"query: at most {MAX_WORDS} words, this has {len(words)}.")
    return words


def _is_readable(text: str) -> bool:
    """Whether every database takes `text` (NUL and lone surrogates are refused by some)."""
    odd = any(char == "\0" or "\ud800" <= char <= "\udfff" for char in text[:MAX_QUERY_LENGTH])
    return len(text) <= MAX_QUERY_LENGTH and not odd


def _passing(rows: models.QuerySet[M], first_chunk: int, gate: Callable[[M], bool]) -> Iterator[M]:
    """The rows that pass, read in slices: not every database reads a long result row by row."""
    start, chunk = 0, first_chunk
    while read := list(rows[start : start + chunk]):
        yield from filter(gate, read)
        if len(read) < chunk:
            return
        start, chunk = start + chunk, min(2 * chunk, MAX_CHUNK)


def _split(text: str) -> list[str]:
    """The words of `text`, a quoted phrase being one."""
    return [word for word in map(_unquoted, smart_split(text)) if word]


def _unquoted(word: str) -> str:
    quoted = len(word) > 1 and word[0] == word[-1] and word[0] in "\"'"
    return unescape_string_literal(word) if quoted else word


def _by_key(queryset: models.QuerySet[M], text: str, lookup: str) -> Iterator[models.QuerySet[M]]:
    try:
        yield queryset.filter(**{lookup: parse_key(queryset.model, text, lookup)})
    except ValueError:
        return


def _column(model: ModelClass, name: str) -> Path | None:
    try:
        return follow(model, name)
    except FieldError:
        return None


def _is_text(path: Path | None) -> bool:
    if path is None or path.field.is_relation:
        return False
    kind = kind_of(path.field)
    return kind is not None and kind.word == "a string"


def _not_text(model: ModelClass, name: str) -> Iterator[str]:
    try:
        path = follow(model, name)
        if not _is_text(path):
            yield f"search_fields: {name!r} is not a text."
        elif not is_stable(path.field):
            yield f"search_fields: {unstable(name)}"
    except FieldError as error:
        yield f"search_fields: {error}"
