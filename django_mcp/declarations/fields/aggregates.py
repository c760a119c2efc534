"""Aggregates of a model's rows: counts, sums, averages, minima and maxima, in groups.

Clients can aggregate only the columns in ``aggregate_fields`` of the model resource, and group only
by those in ``group_fields``. One query computes all groups. It selects rows by primary key from the
resource's queryset, so it counts each row once even if joins of the queryset repeat the row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from functools import cached_property
from typing import Any

from django.core.exceptions import FieldError, ImproperlyConfigured
from django.db import connections, models
from django.db.models import Avg, Count, ExpressionWrapper, F, Func, Max, Min, Sum
from django.db.models.functions import Trunc
from django.utils import timezone

from .columns import (
    COLUMN_TYPES,
    JSON,
    ColumnType,
    column_type,
    is_stable,
    stored_field,
    unstable_message,
)
from .entries import Column, entry_of
from .field_types import field_type
from .keys import ModelClass
from .keyset import SQLITE_DIGITS
from .values import field_value

AGGREGATE_ARGUMENTS = ("measures", "group_by", "ordering", "limit")
DEFAULT_GROUPS, MAX_GROUPS = 100, 1_000
MAX_MEASURES, MAX_GROUP_FIELDS = 10, 5
COUNT = "count"
FUNCTIONS: Mapping[str, Any] = {"sum": Sum, "avg": Avg, "min": Min, "max": Max}
# The functions by Python type of the column's values. Other types, such as ``str``, have none.
FUNCTIONS_BY_TYPE: Mapping[type, tuple[str, ...]] = {
    **dict.fromkeys((int, float, Decimal, timedelta), ("sum", "avg", "min", "max")),
    **dict.fromkeys((date, datetime, time), ("min", "max")),
}
# The parts of a date to group by, and the length of each in ISO 8601: "2026" or "2026-01".
DATE_PART_LENGTHS = {"year": 4, "month": 7, "day": 10}
# Decimal places of an average in addition to those of the column. MariaDB calculates four.
EXTRA_PLACES_OF_AVERAGES = 4


@dataclass(frozen=True, slots=True)
class Measure:
    """A number that is computed for each group, such as ``total__sum``.

    ``expression`` takes the vendor of the database. ``encode`` makes the JSON of the result.
    """

    name: str
    expression: Callable[[str], Any]
    encode: Callable[[Any, str], Any]


@dataclass(frozen=True, slots=True)
class GroupField:
    """A name that rows are grouped by: a column, or a part of a date such as ``issued__month``."""

    name: str
    expression: Any
    encode: Callable[[Any], Any]
    in_time_zone: bool = False


@dataclass(frozen=True, slots=True)
class AggregateQuery:
    """Validated arguments: what to compute, how to group and order, and how many groups."""

    measures: list[Measure]
    groups: list[GroupField]
    ordering: str
    limit: int


class Aggregates:
    """What clients can aggregate of a model's rows.

    ``aggregate_fields`` are columns of numbers, dates, times or durations. ``group_fields`` are
    columns. Both may be in rows that foreign keys lead to.
    """

    def __init__(
        self, model: ModelClass, aggregate_fields: Sequence[str], group_fields: Sequence[str]
    ) -> None:
        self.model = model
        self.aggregate_fields = aggregate_fields
        self.group_fields = group_fields

    def field_problems(self) -> Iterator[str]:
        """Yield messages for the developer about names in ``aggregate_fields``."""
        for name in self.aggregate_fields:
            try:
                measures_of(self.model, name)
            except FieldError as error:
                yield f"aggregate_fields: {error}"

    def group_problems(self) -> Iterator[str]:
        """Yield messages for the developer about names in ``group_fields``."""
        for name in self.group_fields:
            if name == COUNT:
                yield f"group_fields: {name!r} is the name of the number of rows."
            try:
                groups_of(self.model, name)
            except FieldError as error:
                yield f"group_fields: {error}"

    @cached_property
    def measures(self) -> dict[str, Measure]:
        """The measures by name. Raises ``FieldError`` for a column that has none."""
        named = [one for name in self.aggregate_fields for one in measures_of(self.model, name)]
        return {one.name: one for one in [_count(), *named]}

    @cached_property
    def groups(self) -> dict[str, GroupField]:
        """What rows can be grouped by. Raises ``FieldError`` for a name that is not a column."""
        found = [one for name in self.group_fields for one in groups_of(self.model, name)]
        return {one.name: one for one in found}

    def schema(self) -> JSON:
        """Return the JSON Schemas of the arguments by name."""
        measures: JSON = {
            "type": "array",
            "items": {"enum": [*self.measures]},
            "minItems": 1,
            "maxItems": MAX_MEASURES,
            "default": [COUNT],
        }
        groups: JSON = {
            "type": "array",
            "items": {"enum": [*self.groups]},
            "maxItems": MAX_GROUP_FIELDS,
            "description": "Without it, all rows are one group.",
        }
        ordering: JSON = {
            "type": "string",
            "description": "A name in group_by or measures, with - for descending. "
            "By default group_by.",
        }
        limit: JSON = {"type": "integer", "minimum": 1, "maximum": MAX_GROUPS}
        limit |= {"default": DEFAULT_GROUPS, "description": "Number of groups."}
        grouped = {"group_by": groups, "ordering": ordering, "limit": limit} if self.groups else {}
        return {"measures": measures} | grouped

    def read(self, arguments: Mapping[str, Any]) -> AggregateQuery:
        """Return the validated ``arguments``. Raise ``ValueError``."""
        measures = _read_names(arguments, "measures", self.measures, MAX_MEASURES, [COUNT])
        groups = _read_names(arguments, "group_by", self.groups, MAX_GROUP_FIELDS, [])
        if not measures:
            raise ValueError("measures: must have at least one name.")
        known = [one.name for one in (*groups, *measures)]
        ordering = arguments.get("ordering", "")
        if "ordering" in arguments and (
            type(ordering) is not str or ordering.removeprefix("-") not in known
        ):
            raise ValueError(f"ordering: must be one of {', '.join(known)}, or - and one of them.")
        limit = arguments.get("limit", DEFAULT_GROUPS)
        if type(limit) is not int or not 1 <= limit <= MAX_GROUPS:
            raise ValueError(f"limit: must be an integer from 1 to {MAX_GROUPS}.")
        return AggregateQuery(measures, groups, ordering, limit)

    def compute(
        self, rows: models.QuerySet[Any], query: AggregateQuery
    ) -> tuple[list[dict[str, Any]], bool]:
        """Return at most ``query.limit`` groups of ``rows``, and whether there are more.

        Raise ``ImproperlyConfigured`` if the database cannot convert between time zones.
        """
        connection = connections[rows.db]
        _require_time_zones(connection, query.groups)
        # Select by primary key, because a join in the queryset may repeat a row. Use the base
        # manager, because a default manager might leave out rows that get_queryset() returns.
        chosen = self.model._base_manager.using(rows.db).filter(pk__in=rows.values("pk"))
        computed = {
            f"_measure_{number}": measure.expression(connection.vendor)
            for number, measure in enumerate(query.measures)
        }
        if query.groups:
            named = {f"_group_{number}": one.expression for number, one in enumerate(query.groups)}
            grouped = chosen.values(**named).annotate(**computed).order_by(*_group_order(query))
            found = list(grouped[: query.limit + 1])
        else:
            found = [chosen.aggregate(**computed)]
        shown = [_group_values(query, one, connection.vendor) for one in found[: query.limit]]
        return shown, len(found) > query.limit


def measures_of(model: ModelClass, name: str) -> list[Measure]:
    """Return the measures of one name in ``aggregate_fields``. Raise ``FieldError``."""
    column, kind = _column(model, name)
    functions = () if column.target else FUNCTIONS_BY_TYPE.get(kind.python, ())
    if not functions:
        raise FieldError(f"{name!r} is {kind.label}, which cannot be summed or compared.")
    return [_measure(column, kind, function) for function in functions]


def groups_of(model: ModelClass, name: str) -> list[GroupField]:
    """Return what rows can be grouped by for one name in ``group_fields``. Raise ``FieldError``."""
    column, kind = _column(model, name)
    lookup, field = column.path.lookup, column.path.field
    if kind.python not in (date, datetime):
        return [GroupField(name, F(lookup), lambda value: field_value(field, value))]
    # As a date, a NULL of a DateTimeField is NULL on MariaDB without time zone tables too.
    return [
        GroupField(
            f"{name}__{part}",
            Trunc(lookup, part, output_field=models.DateField()),
            _date_encoder(length),
            in_time_zone=kind.python is datetime,
        )
        for part, length in DATE_PART_LENGTHS.items()
    ]


def _column(model: ModelClass, name: str) -> tuple[Column, ColumnType]:
    """Return the column of a name, and its type. Raise ``FieldError`` if it has no aggregates."""
    entry = entry_of(model, name)
    if not isinstance(entry, Column):
        # A row may have several values of a to-many relation, and would count several times.
        raise FieldError(f"{name!r} is not a column of the row or of a row with a foreign key.")
    kind = column_type(entry.path.field)
    if kind is None or field_type(entry.path.field) is not None:
        kind_name = type(entry.path.field).__name__
        raise FieldError(f"{name!r} is a {kind_name}, which has no aggregates.")
    if not is_stable(entry.path.field):
        raise FieldError(unstable_message(name))
    return entry, kind


def _count() -> Measure:
    return Measure(COUNT, lambda vendor: Count("*"), lambda value, vendor: value)


def _measure(column: Column, kind: ColumnType, function: str) -> Measure:
    field, lookup = column.path.field, column.path.lookup
    name = f"{column.name}__{function}"
    if function in ("min", "max"):
        extreme = FUNCTIONS[function]
        return Measure(
            name, lambda vendor: extreme(lookup), lambda value, vendor: field_value(field, value)
        )
    if kind.python is Decimal:
        return _decimal_measure(name, field, lookup, function)
    # Convert to Django's field, because fields of packages may return objects, such as money.
    plain = ExpressionWrapper(F(lookup), output_field=kind.make())
    is_whole = kind.python is int and function == "sum"
    encode = kind.encode if is_whole or kind.python is timedelta else _finite_number
    return Measure(
        name,
        lambda vendor: FUNCTIONS[function](plain),
        lambda value, vendor: None if value is None else encode(value),
    )


def _decimal_measure(name: str, field: Any, lookup: str, function: str) -> Measure:
    """Return the sum or average of a decimal column. A sum is exact."""
    field = stored_field(field)
    digits, places = field.max_digits or 0, field.decimal_places or 0
    plain = ExpressionWrapper(F(lookup), output_field=COLUMN_TYPES["DecimalField"].make())

    def is_scaled(vendor: str) -> bool:
        return vendor == "sqlite" and function == "sum" and digits <= SQLITE_DIGITS

    def expression(vendor: str) -> Any:
        # SQLite stores decimals as floats, and a sum of floats is not exact. So it adds integers:
        # cents of an amount with two decimal places.
        return (
            Sum(_ScaledInteger(F(lookup), places))
            if is_scaled(vendor)
            else FUNCTIONS[function](plain)
        )

    def encode(value: Any, vendor: str) -> Any:
        if value is None:
            return None
        if is_scaled(vendor):
            return format(Decimal(value).scaleb(-places), "f")
        return _decimal_text(value, places + (EXTRA_PLACES_OF_AVERAGES if function == "avg" else 0))

    return Measure(name, expression, encode)


class _ScaledInteger(Func):
    """A decimal column of SQLite in units of its last decimal place, as an integer."""

    output_field = models.BigIntegerField()

    def __init__(self, column: Any, places: int) -> None:
        super().__init__(column, template=f"CAST(ROUND(%(expressions)s * {10**places}) AS INTEGER)")


def _decimal_text(value: Any, places: int) -> str:
    number = Decimal(value)
    with suppress(InvalidOperation):  # more digits than the decimal context has
        number = number.quantize(Decimal(1).scaleb(-places))
    return format(number, "f")


def _finite_number(value: Any) -> float | None:
    """Return a JSON number, which cannot be NaN or infinite."""
    return float(value) if math.isfinite(value) else None


def _date_encoder(length: int) -> Callable[[Any], Any]:
    return lambda value: None if value is None else value.isoformat()[:length]


def _read_names(
    arguments: Mapping[str, Any],
    argument: str,
    known: Mapping[str, Any],
    max_names: int,
    default: Any,
) -> list[Any]:
    """Return the values in ``known`` for a list of names. Raise ``ValueError``."""
    names = arguments.get(argument, default)
    if type(names) is not list or len(names) > max_names:
        raise ValueError(f"{argument}: must be a list of at most {max_names} names.")
    if any(type(name) is not str or name not in known for name in names):
        raise ValueError(f"{argument}: the names are: {', '.join(known) or 'none'}.")
    if len({*names}) < len(names):
        raise ValueError(f"{argument}: each name can be used once.")
    return [known[name] for name in names]


def _group_order(query: AggregateQuery) -> list[Any]:
    """Return the order of the groups: ``ordering``, and then the names in ``group_by``."""
    aliases = {one.name: f"_group_{number}" for number, one in enumerate(query.groups)}
    aliases |= {one.name: f"_measure_{number}" for number, one in enumerate(query.measures)}
    asked = [query.ordering] if query.ordering else []
    names = [*asked, *(one.name for one in query.groups)]
    unique = {name.removeprefix("-"): name for name in reversed(names)}
    columns = [(F(aliases[name]), unique[name].startswith("-")) for name in reversed(unique)]
    # Without nulls_last, PostgreSQL and the other databases sort NULL differently.
    return [
        column.desc(nulls_last=True) if down else column.asc(nulls_last=True)
        for column, down in columns
    ]


def _group_values(query: AggregateQuery, found: Mapping[str, Any], vendor: str) -> dict[str, Any]:
    """Return the JSON of one group."""
    groups = {
        one.name: one.encode(found[f"_group_{number}"]) for number, one in enumerate(query.groups)
    }
    measures = {
        one.name: one.encode(found[f"_measure_{number}"], vendor)
        for number, one in enumerate(query.measures)
    }
    return groups | measures


def _require_time_zones(connection: Any, groups: Sequence[GroupField]) -> None:
    """Raise ``ImproperlyConfigured`` if the database would return NULL instead of a local date.

    MariaDB and MySQL do so if their time zone tables are empty.
    """
    if connection.vendor != "mysql" or not any(one.in_time_zone for one in groups):
        return
    here = timezone.get_current_timezone_name()
    if here != connection.timezone_name and not connection.features.has_zoneinfo_database:
        raise ImproperlyConfigured(
            f"The database cannot convert to the time zone {here}: its time zone tables are empty. "
            "Load them with mysql_tzinfo_to_sql."
        )
