"""Searching a model: the arguments of a search as a JSON Schema, and the queryset that they select.

Clients can search, filter and order only by the names in the model resource's ``search_fields``,
``filter_fields`` and ``ordering``. Every argument is validated and limited before its value reaches
the ORM. A wrong argument raises ``ValueError`` with a message that a language model can act on.

A filter is one lookup on one column and is named as Django names it, such as ``issued__gte``.
Clients cannot use any other lookup.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property, reduce
from itertools import islice
from operator import and_, or_
from typing import Any, TypeVar

from django.core.exceptions import FieldError
from django.db import DEFAULT_DB_ALIAS, connections, models, router
from django.db.models import Q
from django.utils.text import smart_split, unescape_string_literal

from .columns import (
    COLUMN_TYPES,
    DECIMAL_ARGUMENT_PATTERN,
    JSON,
    AnyField,
    ColumnType,
    column_type,
    is_stable,
    require_type,
    unstable_message,
)
from .entries import Column, RelatedRows, entry_of
from .field_types import field_type
from .keys import ColumnPath, ModelClass, follow, key_schema, parse_key
from .keyset import MAX_CHUNK, Keyset
from .search_methods import FullTextMatch, FullTextSearch, RankedKeyset
from .values import ArrayType, RangeType, field_choices

_BOOLEAN = COLUMN_TYPES["BooleanField"]
MAX_FILTER_VALUES = 100
MAX_FILTER_LENGTH = 1000
# The limits are not in the schemas, to keep lists of tools short. Error messages name them.
_ARGUMENT_SCHEMAS: Mapping[str, JSON] = {
    COLUMN_TYPES["DecimalField"].label: {
        "type": ["string", "number"],
        "pattern": DECIMAL_ARGUMENT_PATTERN,
    },
    # Not the pattern of shown durations: more spellings are accepted than are written.
    COLUMN_TYPES["DurationField"].label: {"type": "string", "format": "duration"},
}


# Returns the rows of a model that the user may see, and a check of each that no query can make.
VisibleRows = Callable[[ModelClass], tuple[models.QuerySet[Any], Callable[[Any], bool] | None]]

M = TypeVar("M", bound=models.Model)

DEFAULT_LIMIT, MAX_LIMIT = 20, 100
MAX_QUERY_LENGTH, MAX_WORDS = 200, 10
COMMON_ARGUMENTS = ("query", "ordering", "limit", "cursor")  # of every search


def all_rows(model: ModelClass) -> tuple[models.QuerySet[Any], None]:
    return model._base_manager.all(), None


@dataclass(frozen=True, slots=True)
class Filter:
    """One argument of a search: its schema, how its value is read, and the condition on rows.

    ``make_condition`` makes the ``Q`` object from the value that ``read`` returned, and from the
    related rows that the user may see. ``target`` is the model whose keys the argument takes, or
    None.
    """

    name: str
    schema: Callable[[], JSON]
    read: Callable[[Any], Any]
    make_condition: Callable[[Any, VisibleRows], Q]
    target: ModelClass | None = None

    def condition(self, value: Any, visible: VisibleRows = all_rows) -> Q:
        """Return the condition for ``value``. Raise ``ValueError``, with the argument's name."""
        try:
            return self.make_condition(self.read(value), visible)
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from error


def filters_of(model: ModelClass, name: str) -> list[Filter]:
    """Return the filters of one name in ``filter_fields``. Raise ``FieldError`` if it has none."""
    entry = entry_of(model, name)
    if isinstance(entry, RelatedRows) and entry.path is not None:
        return list(_related_filters(model, entry))
    if isinstance(entry, RelatedRows) and entry.relation.many_to_many:
        return list(_many_to_many_filters(model, entry))
    if not isinstance(entry, Column):
        raise FieldError(f"{name!r} is not a column, so rows cannot be filtered by it.")
    kind, registered = column_type(entry.path.field), field_type(entry.path.field)
    if isinstance(registered, ArrayType | RangeType) and _is_plain(registered.base):
        return list(_collection_filters(entry, registered))
    if kind is None or registered is not None:
        kind_name = type(entry.path.field).__name__
        raise FieldError(f"{name!r} is a {kind_name}, which has no filters.")
    if not is_stable(entry.path.field):
        raise FieldError(unstable_message(name))
    return list(_key_filters(entry) if entry.target else _value_filters(entry, kind))


def _value_filters(entry: Column, kind: ColumnType) -> Iterator[Filter]:
    """Yield the filters of a column: equal, and either one of its choices or a range."""
    choices, one, read = _value_of(entry.path.field, kind)
    yield _filter(entry, "", one, read)
    if choices:
        yield _filter(entry, "in", _array_of(one), _list_reader(read))
    for end in () if choices else kind.ranges:
        yield _filter(entry, end, _argument_schema(kind), read)
    yield from _null_filter(entry)


def _value_of(field: AnyField, kind: ColumnType) -> tuple[list[Any], JSON, Callable[[Any], Any]]:
    """Return the choices of a column, and the schema and the reader of one value."""
    if choices := [value for value, _ in field_choices(field)]:
        return choices, {"enum": choices}, _choice_reader(choices)
    return [], _argument_schema(kind), _reader(kind)


def _is_plain(field: AnyField) -> bool:
    """Whether the values of ``field`` can be filter values: no arrays of arrays."""
    return column_type(field) is not None and field_type(field) is None and is_stable(field)


def _collection_filters(entry: Column, registered: ArrayType | RangeType) -> Iterator[Filter]:
    """Yield the filters of an array or a range: what it contains, and what it overlaps.

    An array contains all values of a list, and overlaps a list if they have a value in common.
    """
    base, kind = registered.base, column_type(registered.base)
    assert kind is not None
    _, one, read_one = _value_of(base, kind)

    def read(value: Any) -> Any:
        found = read_one(value)
        # PostgreSQL raises an error for a number that the column cannot hold, and cuts a text
        # that is longer than the column.
        base.run_validators(found)
        return found

    if isinstance(registered, ArrayType):
        several, read_several = _array_of(one), _list_reader(read)
        yield _filter(entry, "contains", several, read_several)
        yield _filter(entry, "overlap", several, read_several)
    else:
        yield _filter(entry, "contains", one, lambda value: _range_element(registered, read(value)))
        yield _filter(
            entry,
            "overlap",
            dict(registered.schema),
            lambda value: registered.from_json(require_type(value, dict)),
        )
    yield from _null_filter(entry)


def _range_element(registered: RangeType, value: Any) -> Any:
    """Return what the lookup ``contains`` of a range takes for one value."""
    # Django casts a number to the type of the range's ends, and writes wrong SQL for decimals.
    if isinstance(value, Decimal):
        return registered.field.range_type(value, value, "[]")
    return value


def _key_filters(entry: Column) -> Iterator[Filter]:
    """Yield the filters of a foreign key: the key of its row, or one of several keys."""
    target = entry.target
    assert target is not None
    one, read = key_schema(target), _key_reader(target)
    named = one | {"description": f"Key of the {target._meta.verbose_name}."}
    yield replace(_filter(entry, "", named, read), target=target)
    yield replace(_filter(entry, "in", _array_of(one), _list_reader(read)), target=target)
    yield from _null_filter(entry)


def _null_filter(entry: Column) -> Iterator[Filter]:
    if entry.path.nullable:
        yield _filter(entry, "isnull", _BOOLEAN.schema, _BOOLEAN.read)


def _filter(entry: Column, lookup: str, schema: JSON, read: Callable[[Any], Any]) -> Filter:
    """Return the filter for one lookup on a column."""

    def described() -> JSON:
        return _short_schema(schema) if lookup else schema | entry.title_and_description()

    condition = f"{entry.path.lookup}__{lookup or 'exact'}"
    name = f"{entry.name}__{lookup}" if lookup else entry.name
    return Filter(name, described, read, lambda value, visible: Q(**{condition: value}))


def _many_to_many_filters(model: ModelClass, entry: RelatedRows) -> Iterator[Filter]:
    """Yield the filters of a many-to-many relation: by the key of one related row, or of several.

    The condition is a subquery and not a join, so that a row with several matching related rows is
    found once.
    """
    one, read = key_schema(entry.model), _key_reader(entry.model)
    about = {"description": f"Key of the {entry.model._meta.verbose_name}."}
    query_name = entry.relation.name

    def make_condition(keys: Any, visible: VisibleRows) -> Q:
        rows, check = visible(entry.model)
        rows = rows.filter(pk__in=keys)
        found = rows.values("pk") if check is None else [row.pk for row in rows if check(row)]
        members = model._base_manager.filter(**{f"{query_name}__in": found})
        return Q(pk__in=members.values("pk"))

    yield Filter(
        entry.name, lambda: one | about, lambda key: [read(key)], make_condition, entry.model
    )
    many = _array_of(one)
    yield Filter(f"{entry.name}__in", lambda: many, _list_reader(read), make_condition, entry.model)


def _related_filters(model: ModelClass, entry: RelatedRows) -> Iterator[Filter]:
    """Yield the filters by a column of related rows. One matching related row is enough."""
    assert entry.path is not None
    for each in filters_of(entry.model, entry.path.name):
        prefix = entry.name.removesuffix(entry.path.name)
        yield replace(
            each, name=f"{prefix}{each.name}", make_condition=_related_condition(model, entry, each)
        )


def _related_condition(
    model: ModelClass, entry: RelatedRows, each: Filter
) -> Callable[[Any, VisibleRows], Q]:
    """Return a function that makes the condition on rows from one on related rows."""
    query_name = entry.relation.name

    def make_condition(value: Any, visible: VisibleRows) -> Q:
        # Object permission cannot be checked here: any number of rows may match.
        related = visible(entry.model)[0].filter(each.make_condition(value, visible))
        members = model._base_manager.filter(**{f"{query_name}__in": related.values("pk")})
        return Q(pk__in=members.values("pk"))

    return make_condition


def _array_of(schema: JSON) -> JSON:
    return {"type": "array", "items": schema}


def _short_schema(schema: JSON) -> JSON:
    """Return the schema of a further lookup of a field, without what the first one has said.

    Language models know Django's lookups, and every list of tools costs them tokens.
    """
    return {name: value for name, value in schema.items() if name != "pattern"}


def _argument_schema(kind: ColumnType) -> JSON:
    """Return the schema of values that a filter accepts."""
    return _ARGUMENT_SCHEMAS.get(kind.label, kind.schema)


def _reader(kind: ColumnType) -> Callable[[Any], Any]:
    """Return a function that reads and validates one value of a column type."""

    def read(value: Any) -> Any:
        if isinstance(value, str) and (len(value) > MAX_FILTER_LENGTH or "\0" in value):
            # PostgreSQL raises an error for NUL, which would be an internal error.
            raise ValueError(f"must have at most {MAX_FILTER_LENGTH} characters, without NUL.")
        found = kind.read(value)
        if isinstance(found, float) and not math.isfinite(found):
            raise ValueError(f"{value!r} is not {kind.label}.")
        return found

    return read


def _key_reader(model: ModelClass) -> Callable[[Any], Any]:
    return lambda value: parse_key(model, value)


def _choice_reader(choices: list[Any]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if not any(type(value) is type(choice) and value == choice for choice in choices):
            raise ValueError(f"must be one of {', '.join(map(str, choices))}.")
        return value

    return read


def _list_reader(read: Callable[[Any], Any]) -> Callable[[Any], list[Any]]:
    def read_all(values: Any) -> list[Any]:
        if type(values) is not list or not 1 <= len(values) <= MAX_FILTER_VALUES:
            raise ValueError(f"must be a list of 1 to {MAX_FILTER_VALUES} values.")
        return [read(value) for value in values]

    return read_all


class Search:
    """What clients can search a model by.

    ``search_fields`` are text columns. ``filter_fields`` are columns or many-to-many relations.
    ``ordering`` is the model resource's order. A client may order by each of its columns, in both
    directions. ``search_methods`` says how a database searches the texts itself.
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
