"""Filters: the arguments of a search that compare one field with a value.

An argument is one lookup on one column and is named as Django names it, such as ``issued__gte``.
Values are validated before they reach the ORM, and clients cannot use any other lookup.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from django.core.exceptions import FieldError
from django.db import models
from django.db.models import Q

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
from .keys import ModelClass, key_schema, parse_key
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
