"""
Filters: the arguments by which a search may ask for one field, and what each asks of a row.

Rule: an argument means one lookup on one column, named as Django names it (`issued__gte`); its
value is read strictly, so nothing a client sends becomes a lookup of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from django.core.exceptions import FieldError
from django.db.models import Q

from .columns import FINITE, JSON, KINDS, ColumnType, is_stable, kind_of, unstable
from .entries import Column, Related, entry_of
from .field_types import field_type
from .keys import ModelClass, key_schema, parse_key
from .values import choices_of

_TRUTH = KINDS["BooleanField"]
MAX_FILTER_VALUES = 100
MAX_FILTER_LENGTH = 1000
# Limits are not in the schemas: a value beyond one is refused with words that name it.
_AS_ARGUMENT: Mapping[str, JSON] = {
    KINDS["DecimalField"].word: {
        "type": ["string", "number"],
        "pattern": FINITE,
    },
    # Not the pattern of what is shown, which is stricter than what is read.
    KINDS["DurationField"].word: {"type": "string", "format": "duration"},
}


@dataclass(frozen=True, slots=True)
class Filter:
    """One argument: its schema, how its value is read, and the condition that it makes."""

    name: str
    schema: Callable[[], JSON]
    read: Callable[[Any], Any]
    asks: Callable[[Any], Q]
    target: ModelClass | None = None  # whose keys it takes

    def condition(self, value: Any) -> Q:
        """The condition for `value`; raises ValueError, with the argument's name."""
        try:
            return self.asks(self.read(value))
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from error


def filters_of(model: ModelClass, name: str) -> list[Filter]:
    """The filters of one field; raises FieldError where there can be none."""
    entry = entry_of(model, name)
    if isinstance(entry, Related) and entry.path is not None:
        return list(_filters_of_related(model, entry))
    if isinstance(entry, Related) and entry.relation.many_to_many:
        return list(_membership(model, entry))
    if not isinstance(entry, Column):
        raise FieldError(f"{name!r} is no column to filter by.")
    kind = kind_of(entry.path.field)
    if kind is None or field_type(entry.path.field) is not None:
        raise FieldError(f"{name!r} is a {type(entry.path.field).__name__}: no filter for that.")
    if not is_stable(entry.path.field):
        raise FieldError(unstable(name))
    return list(_key_filters(entry) if entry.target else _value_filters(entry, kind))


def _value_filters(entry: Column, kind: ColumnType) -> Iterator[Filter]:
    field = entry.path.field
    choices = [value for value, _ in choices_of(field)]
    one = {"enum": choices} if choices else _accepted(kind)
    read = _chosen(choices) if choices else _reader(kind)
    yield _filter(entry, "", one, read)
    if choices:
        yield _filter(entry, "in", _many(one), _each(read))
    for end in () if choices else kind.ranges:
        yield _filter(entry, end, _accepted(kind), read)
    yield from _null_filter(entry)


def _key_filters(entry: Column) -> Iterator[Filter]:
    target = entry.target
    assert target is not None
    one, read = key_schema(target), _key_reader(target)
    named = one | {"description": f"Key of the {target._meta.verbose_name}."}
    yield replace(_filter(entry, "", named, read), target=target)
    yield replace(_filter(entry, "in", _many(one), _each(read)), target=target)
    yield from _null_filter(entry)


def _null_filter(entry: Column) -> Iterator[Filter]:
    if entry.path.nullable:
        yield _filter(entry, "isnull", _TRUTH.schema, _TRUTH.read)


def _filter(entry: Column, lookup: str, schema: JSON, read: Callable[[Any], Any]) -> Filter:
    def described() -> JSON:
        return _brief(schema) if lookup else schema | entry.about()

    question = f"{entry.path.lookup}__{lookup or 'exact'}"
    name = f"{entry.name}__{lookup}" if lookup else entry.name
    return Filter(name, described, read, lambda value: Q(**{question: value}))


def _membership(model: ModelClass, entry: Related) -> Iterator[Filter]:
    """By the key of a related row, or of any of several; a row is found once."""
    one, read = key_schema(entry.model), _key_reader(entry.model)
    about = {"description": f"Key of the {entry.model._meta.verbose_name}."}
    query_name = entry.relation.name

    def asks(keys: Any) -> Q:
        members = model._base_manager.filter(**{f"{query_name}__in": keys})
        return Q(pk__in=members.values("pk"))

    yield Filter(entry.name, lambda: one | about, lambda key: [read(key)], asks, entry.model)
    many = _many(one)
    yield Filter(f"{entry.name}__in", lambda: many, _each(read), asks, entry.model)


def _filters_of_related(model: ModelClass, entry: Related) -> Iterator[Filter]:
    """By a column of related rows, of which any one will do; a row is found once."""
    assert entry.path is not None
    for each in filters_of(entry.model, entry.path.name):
        prefix = entry.name.removesuffix(entry.path.name)
        yield replace(each, name=f"{prefix}{each.name}", asks=_asks_related(model, entry, each))


def _asks_related(model: ModelClass, entry: Related, each: Filter) -> Callable[[Any], Q]:
    query_name = entry.relation.name

    def asks(value: Any) -> Q:
        related = entry.model._base_manager.filter(each.asks(value))
        members = model._base_manager.filter(**{f"{query_name}__in": related.values("pk")})
        return Q(pk__in=members.values("pk"))

    return asks


def _many(schema: JSON) -> JSON:
    return {"type": "array", "items": schema}


def _brief(schema: JSON) -> JSON:
    """The schema of another lookup of a field, whose own argument tells the rest.

    Models know what Django's lookups mean, and read each schema in every list of tools.
    """
    return {name: value for name, value in schema.items() if name != "pattern"}


def _accepted(kind: ColumnType) -> JSON:
    """The schema of what is read: as it is written, but bounded, and a decimal also as a number."""
    return _AS_ARGUMENT.get(kind.word, kind.schema)


def _reader(kind: ColumnType) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if isinstance(value, str) and (len(value) > MAX_FILTER_LENGTH or "\0" in value):
            raise ValueError(f"at most {MAX_FILTER_LENGTH} characters, none of them NUL.")
        found = kind.read(value)
        if isinstance(found, float) and not math.isfinite(found):
            raise ValueError(f"{value!r} is not {kind.word}.")
        return found

    return read


def _key_reader(model: ModelClass) -> Callable[[Any], Any]:
    return lambda value: parse_key(model, value)


def _chosen(choices: list[Any]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if not any(type(value) is type(choice) and value == choice for choice in choices):
            raise ValueError(f"one of {', '.join(map(str, choices))}.")
        return value

    return read


def _each(read: Callable[[Any], Any]) -> Callable[[Any], list[Any]]:
    def read_all(values: Any) -> list[Any]:
        if type(values) is not list or not 1 <= len(values) <= MAX_FILTER_VALUES:
            raise ValueError(f"a list of 1 to {MAX_FILTER_VALUES} values.")
        return [read(value) for value in values]

    return read_all
