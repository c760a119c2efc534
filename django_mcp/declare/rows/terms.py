"""
One column of an order: its direction, its values in a position, what comes after a value.

Rule: a value is compared as the database holds it, never as the project's field shows it, so a
position means the same row whatever conversions a field makes. NULLs come last either way.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.models import F, Func, Q, Value
from django.db.models.lookups import (
    Exact,
    GreaterThan,
    GreaterThanOrEqual,
    LessThan,
    LessThanOrEqual,
)

from .columns import KINDS, AnyField, Kind, stored_field
from .paths import Path

if TYPE_CHECKING:
    from django.db.models.expressions import OrderBy

# MySQL and MariaDB do not use an index for a comparison of rows.
ROW_VENDORS = ("sqlite", "postgresql")


@dataclass(frozen=True, slots=True)
class Term:
    """One column of an order, and its direction."""

    path: Path
    descending: bool

    @property
    def nullable(self) -> bool:
        return self.path.nullable

    def is_null(self, null: bool = True) -> Q:
        return Q(**{f"{self.path.lookup}__isnull": null})

    @property
    def column(self) -> F:
        return F(self.path.lookup)

    def plain(self, vendor: str) -> AnyField:
        """A field without the project's conversions that holds exactly what the column does."""
        kind = stored_field(self.path.field).get_internal_type()
        if kind == "DecimalField" and vendor == "sqlite":
            # Decimals are numbers there, and an F() update may leave more digits than are shown.
            return models.FloatField()
        return KINDS[kind].make()

    def encode(self, value: Any, vendor: str) -> Any:
        """The plain JSON of a value of the column (as `plain` gives it)."""
        return None if value is None else self._kind(vendor).encode(value)

    def read(self, value: Any, vendor: str) -> Any:
        """The value that `encode` wrote; raises ValueError for what it cannot have written."""
        if value is None and self.nullable:
            return None
        if vendor == "postgresql" and "\0" in str(value):
            raise ValueError("A position on PostgreSQL holds no NUL character.")
        return self._kind(vendor).read(value)

    def _kind(self, vendor: str) -> Kind:
        return KINDS[self.plain(vendor).get_internal_type()]

    def value(self, value: Any, vendor: str) -> Value:
        return Value(value, output_field=self.plain(vendor))

    def order(self, nulls_last: bool) -> OrderBy:
        last = True if nulls_last and self.nullable else None
        direction = self.column.desc if self.descending else self.column.asc
        return direction(nulls_last=last)

    def after(self, value: Value) -> Any:
        compare = LessThan if self.descending else GreaterThan
        return compare(self.column, value)

    def not_before(self, value: Value) -> Any:
        compare = LessThanOrEqual if self.descending else GreaterThanOrEqual
        return compare(self.column, value)

    def __str__(self) -> str:
        return f"{'-' * self.descending}{self.path.lookup}"


def stretch_order(terms: list[Term]) -> list[OrderBy]:
    """The order of rows whose first column is not NULL: plain, so that an index has it."""
    first, *rest = terms
    return [first.order(nulls_last=False), *(term.order(nulls_last=True) for term in rest)]


def rows_after(terms: list[Term], values: list[Any], vendor: str) -> Any:
    """The condition for the rows of a stretch that come after `values`."""
    same = len({term.descending for term in terms}) == 1
    never_null = not any(term.nullable for term in terms[1:])
    if len(terms) > 1 and same and never_null and vendor in ROW_VENDORS:
        return _row_after(terms, values, vendor)
    first, bound = terms[0], terms[0].value(values[0], vendor)
    if len(terms) == 1:
        return first.after(bound)
    ties = Q(Exact(first.column, bound)) & _expanded(terms[1:], values[1:], vendor)
    return Q(first.not_before(bound)) & (Q(first.after(bound)) | ties)


def _row_after(terms: list[Term], values: list[Any], vendor: str) -> Any:
    bounds = [term.value(value, vendor) for term, value in zip(terms, values, strict=True)]
    compare = LessThan if terms[0].descending else GreaterThan
    return compare(_row(term.column for term in terms), _row(bounds))


def _row(expressions: Iterable[Any]) -> Func:
    return Func(*expressions, template="(%(expressions)s)", output_field=models.BooleanField())


def _expanded(terms: list[Term], values: list[Any], vendor: str) -> Q:
    """`a > x OR a IS NULL OR (a = x AND ...)`, NULLs being last."""
    term, value = terms[0], values[0]
    if value is None:
        return term.is_null() & _expanded(terms[1:], values[1:], vendor)
    bound = term.value(value, vendor)
    later = Q(term.after(bound)) | term.is_null() if term.nullable else Q(term.after(bound))
    if len(terms) == 1:
        return later
    return later | Q(Exact(term.column, bound)) & _expanded(terms[1:], values[1:], vendor)
