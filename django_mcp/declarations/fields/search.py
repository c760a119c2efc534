"""Searching a model: the arguments of a search as a JSON Schema, and the queryset that they select.

Clients can search, filter and order only by the names in the model resource's ``search_fields``,
``filter_fields`` and ``ordering``. Every argument is validated and limited. A wrong argument raises
``ValueError`` with a message that a language model can act on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, reduce
from itertools import islice
from operator import and_, or_
from typing import Any, TypeVar

from django.core.exceptions import FieldError
from django.db import DEFAULT_DB_ALIAS, connections, models, router
from django.db.models import Q
from django.utils.text import smart_split, unescape_string_literal

from .columns import JSON, column_type, is_stable, unstable_message
from .filters import Filter, VisibleRows, all_rows, filters_of
from .full_text import FullTextMatch, FullTextSearch, RankedKeyset
from .keys import ColumnPath, ModelClass, follow, parse_key
from .keyset import MAX_CHUNK, Keyset

M = TypeVar("M", bound=models.Model)

DEFAULT_LIMIT, MAX_LIMIT = 20, 100
MAX_QUERY_LENGTH, MAX_WORDS = 200, 10
COMMON_ARGUMENTS = ("query", "ordering", "limit", "cursor")  # of every search


class Search:
    """What clients can search a model by.

    ``search_fields`` are text columns. ``filter_fields`` are columns or many-to-many relations.
    ``ordering`` is the model resource's order. A client may order by each of its columns, in both
    directions. ``full_text`` says how a database searches the texts itself.
    """

    def __init__(
        self,
        model: ModelClass,
        search_fields: Sequence[str] = (),
        filter_fields: Sequence[str] = (),
        ordering: Sequence[str] = (),
        full_text: FullTextSearch | None = None,
    ) -> None:
        self.model = model
        self.search_fields = search_fields
        self.filter_fields = filter_fields
        self.ordering = ordering
        self.full_text = full_text

    def problems(self) -> list[str]:
        """Return messages for the developer about wrong names. ``Keyset`` checks the ordering."""
        found = [
            wrong
            for name in self.search_fields
            for wrong in _search_field_problems(self.model, name)
        ]
        return found + [wrong for name in self.filter_fields for wrong in self._problems_of(name)]

    def _problems_of(self, name: str) -> Iterator[str]:
        """Yield what is wrong with a name in ``filter_fields``."""
        if name in COMMON_ARGUMENTS:
            yield f"filter_fields: {name!r} is already an argument of every search."
        try:
            filters_of(self.model, name)
        except FieldError as error:
            yield f"filter_fields: {error}"

    @cached_property
    def filters(self) -> dict[str, Filter]:
        """The filters by argument name. Raises ``FieldError`` for a name that is not a column."""
        found = [each for name in self.filter_fields for each in filters_of(self.model, name)]
        return {each.name: each for each in found}

    @cached_property
    def orderings(self) -> dict[str, Keyset]:
        """The orders that clients may ask for: each column in both directions, then as declared."""
        plain = [name.removeprefix("-") for name in self.ordering]
        names = [sign for name in plain for sign in (name, f"-{name}")]
        return {name: Keyset(self.model, [name, *self.ordering]) for name in names}

    @cached_property
    def default_order(self) -> Keyset:
        return Keyset(self.model, list(self.ordering))

    def schema(self) -> JSON:
        """Return the JSON Schema of a search's arguments, in the active language."""
        return {
            "type": "object",
            "properties": self.filter_schemas() | self._page_schema(),
            "additionalProperties": False,
        }

    def filter_schemas(self) -> JSON:
        """Return the JSON Schemas of the arguments that select rows, by name."""
        return self._query_schema() | {name: each.schema() for name, each in self.filters.items()}

    def _query_schema(self) -> JSON:
        if not self.search_fields:
            return {}
        description = f'Words or "phrases" to find in {", ".join(self.search_fields)}.'
        if self.full_text:
            vendor = connections[router.db_for_read(self.model)].vendor
            description += " The best matches first." * self.full_text.is_ranked(vendor)
        return {"query": {"type": "string", "description": description}}

    def _page_schema(self) -> JSON:
        limit = {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT}
        cursor = {"type": "string", "description": "next_cursor"}
        return self._ordering_schema() | {"limit": limit, "cursor": cursor}

    def _ordering_schema(self) -> JSON:
        if not self.ordering:
            return {}
        description = f"By default {', '.join(self.ordering)}."
        return {"ordering": {"enum": list(self.orderings), "description": description}}

    def apply(
        self,
        queryset: models.QuerySet[M],
        arguments: Mapping[str, Any],
        visible: VisibleRows = all_rows,
    ) -> models.QuerySet[M]:
        """Return the rows of ``queryset`` that match ``arguments``, unordered.

        ``visible`` returns the related rows by which a filter may find rows. Raise ``ValueError``.
        """
        for name, value in arguments.items():
            if name == "query" and self.search_fields:
                queryset = queryset.filter(self._condition(_words(value), queryset.db))
            elif name in self.filters:
                queryset = queryset.filter(self.filters[name].condition(value, visible))
            elif name not in COMMON_ARGUMENTS or name == "query":
                raise ValueError(f"Unknown argument {name!r}. {self._known_arguments()}")
        return queryset

    def keyset(self, arguments: Mapping[str, Any], alias: str = DEFAULT_DB_ALIAS) -> Keyset:
        """Return the order that ``arguments`` ask for, in a database. Raise ``ValueError``.

        By default the rows that match a query best are first, if the database has their rank.
        """
        name = arguments.get("ordering")
        if "ordering" not in arguments:
            if self.full_text and "query" in arguments:
                match = self._full_text_match(_words(arguments["query"]), alias)
                if match and match.rank is not None:
                    return RankedKeyset(self.model, match.rank)
            return self.default_order
        if not isinstance(name, str) or name not in self.orderings:
            raise ValueError(f"ordering: must be one of {', '.join(self.orderings) or 'none'}.")
        return self.orderings[name]

    def limit(self, arguments: Mapping[str, Any]) -> int:
        """Return the number of rows that ``arguments`` ask for. Raise ``ValueError``."""
        limit = arguments.get("limit", DEFAULT_LIMIT)
        if type(limit) is not int or not 1 <= limit <= MAX_LIMIT:
            raise ValueError(f"limit: must be an integer from 1 to {MAX_LIMIT}.")
        return limit

    def completions(
        self,
        queryset: models.QuerySet[M],
        text: str,
        lookup: str = "pk",
        limit: int = 100,
        is_permitted: Callable[[M], bool] | None = None,
    ) -> list[M]:
        """Return at most ``limit`` rows that ``text`` may mean, the most likely first.

        First comes the row with this key, then rows that start with the text, then rows that
        contain its words. Rows that ``is_permitted`` rejects do not count towards ``limit``.
        """
        found: dict[Any, M] = {}
        for rows in self._likely_rows(queryset, text, lookup):
            for row in first_rows(rows, limit, is_permitted):
                found.setdefault(row.pk, row)
            if len(found) >= limit:
                break
        return list(found.values())[:limit]

    def _likely_rows(
        self, queryset: models.QuerySet[M], text: str, lookup: str
    ) -> Iterator[models.QuerySet[M]]:
        """Yield querysets of the rows that ``text`` may mean, the most likely first."""
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

    def _condition(self, words: Sequence[str], alias: str) -> Q:
        """Return the condition that each word is in at least one of the fields, in a database."""
        match = self._full_text_match(words, alias)
        return (
            match.condition & self._matches(match.remaining_words)
            if match
            else self._matches(words)
        )

    def _full_text_match(self, words: Sequence[str], alias: str) -> FullTextMatch | None:
        if self.full_text is None:
            return None
        vendor = connections[alias].vendor
        return self.full_text.match(self.model, self.search_fields, words, vendor)

    def _matches(self, words: Sequence[str]) -> Q:
        """Return the condition that each word is in at least one of the fields."""
        return reduce(and_, (self._in_any("icontains", word) for word in words), Q())

    def _in_any(self, lookup: str, text: str) -> Q:
        return reduce(or_, (Q(**{f"{name}__{lookup}": text}) for name in self.search_fields), Q())

    def _known_arguments(self) -> str:
        query = ["query"] if self.search_fields else []
        return f"The arguments are: {', '.join([*query, *self.filters, *COMMON_ARGUMENTS[1:]])}."


def _words(text: Any) -> list[str]:
    """Return the words of a query.

    Raise ``ValueError`` if it is too long or has invalid characters.
    """
    if type(text) is not str or not _is_readable(text):
        raise ValueError(
            f"query: must be a string of at most {MAX_QUERY_LENGTH} characters, without NUL."
        )
    words = _split(text)
    if len(words) > MAX_WORDS:
        # Each word is a condition on each field, and a scan of the table.
        raise ValueError(f"query: must have at most {MAX_WORDS} words, not {len(words)}.")
    return words


def _is_readable(text: str) -> bool:
    """Whether every database accepts ``text``. Some reject NUL and lone surrogates."""
    odd = any(char == "\0" or "\ud800" <= char <= "\udfff" for char in text[:MAX_QUERY_LENGTH])
    return len(text) <= MAX_QUERY_LENGTH and not odd


def first_rows(
    rows: models.QuerySet[M], limit: int, is_permitted: Callable[[M], bool] | None
) -> Iterable[M]:
    """Return the first ``limit`` rows that ``is_permitted`` accepts. None accepts every row."""
    if is_permitted is None:
        return rows[:limit]
    return islice(_accepted_rows(rows, limit, is_permitted), limit)


def _accepted_rows(
    rows: models.QuerySet[M], first_chunk: int, is_permitted: Callable[[M], bool]
) -> Iterator[M]:
    """Yield the rows that ``is_permitted`` accepts, read in slices.

    Not every database driver supports reading a long result row by row.
    """
    start, chunk = 0, first_chunk
    while read := list(rows[start : start + chunk]):
        yield from filter(is_permitted, read)
        if len(read) < chunk:
            return
        start, chunk = start + chunk, min(2 * chunk, MAX_CHUNK)


def _split(text: str) -> list[str]:
    """Return the words of ``text``. A quoted phrase is one word."""
    return [word for word in map(_unquoted, smart_split(text)) if word]


def _unquoted(word: str) -> str:
    quoted = len(word) > 1 and word[0] == word[-1] and word[0] in "\"'"
    return unescape_string_literal(word) if quoted else word


def _by_key(queryset: models.QuerySet[M], text: str, lookup: str) -> Iterator[models.QuerySet[M]]:
    try:
        yield queryset.filter(**{lookup: parse_key(queryset.model, text, lookup)})
    except ValueError:
        return


def _column(model: ModelClass, name: str) -> ColumnPath | None:
    try:
        return follow(model, name)
    except FieldError:
        return None


def _is_text(path: ColumnPath | None) -> bool:
    if path is None or path.field.is_relation:
        return False
    kind = column_type(path.field)
    return kind is not None and kind.label == "a string"


def _search_field_problems(model: ModelClass, name: str) -> Iterator[str]:
    """Yield why a name in ``search_fields`` cannot be searched."""
    try:
        path = follow(model, name)
        if not _is_text(path):
            yield f"search_fields: {name!r} is not a text column."
        elif not is_stable(path.field):
            yield f"search_fields: {unstable_message(name)}"
    except FieldError as error:
        yield f"search_fields: {error}"
