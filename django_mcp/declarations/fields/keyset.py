"""Keyset pagination: the next page starts after the position of the last row of the page before.

A page reads at most ``limit + 1`` rows, without OFFSET or COUNT. So a later page takes no longer
than the first one. The order is total: it ends with unique columns. NULLs come last on every
database, for ascending and descending columns. ``Keyset.problems`` explains why an order cannot be
paged correctly, and ``Keyset`` refuses to page such an order.

How NULLs come last: databases sort NULLs differently, and an explicit NULLS LAST prevents the use
of an index. So the rows are read in consecutive *ranges*, with one query each. The first range has
the rows whose leading column is not NULL. The next range has the rows where it is NULL, and so on
for the following column. In a range the leading column needs no NULLS LAST, so a plain index has
its order. The condition for the rows after a position is one of these:

    (a, id) > (x, y)                          all columns ascend (or all descend), none can be NULL
    a <= x AND (a < x OR (a = x AND id > y))  otherwise

In the second form ``a <= x`` follows from the rest. It is there because a database can use it to
start at a position in an index, but cannot use an OR for that.

``Term`` is one column of an order. A position contains the values as the database stores them, and
not as the project's field converts them. Databases compare stored values, so converted ones could
skip or repeat rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from django.core.exceptions import FieldError, ImproperlyConfigured
from django.db import connections, models, router
from django.db.models import ExpressionWrapper, F, Func, Q, Value
from django.db.models.lookups import (
    Exact,
    GreaterThan,
    GreaterThanOrEqual,
    LessThan,
    LessThanOrEqual,
)
from django.db.models.query import ModelIterable

from .columns import (
    COLUMN_TYPES,
    AnyField,
    ColumnType,
    column_type,
    is_stable,
    stored_field,
    unstable_message,
)
from .keys import ColumnPath, ModelClass, follow

if TYPE_CHECKING:
    from django.db.models.expressions import OrderBy

# Databases that use an index for `(a, b) > (x, y)`. MySQL and MariaDB do not.
ROW_VENDORS = ("sqlite", "postgresql")


@dataclass(frozen=True, slots=True)
class Term:
    """One column of an order, and its direction."""

    path: ColumnPath
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
        """Return a plain Django field that holds exactly what the column holds."""
        kind = stored_field(self.path.field).get_internal_type()
        if kind == "DecimalField" and vendor == "sqlite":
            # SQLite stores decimals as floats. After an F() update a float may have more digits
            # than DecimalField returns, and the position would be wrong.
            return models.FloatField()
        return COLUMN_TYPES[kind].make()

    def encode(self, value: Any, vendor: str) -> Any:
        """Return the JSON of a value of the column that was read as the ``plain`` field."""
        return None if value is None else self._kind(vendor).encode(value)

    def read(self, value: Any, vendor: str) -> Any:
        """Return the value from what ``encode`` wrote. Raise ``ValueError`` for anything else."""
        if value is None and self.nullable:
            return None
        if vendor == "postgresql" and "\0" in str(value):
            raise ValueError("A position on PostgreSQL cannot contain a NUL character.")
        return self._kind(vendor).read(value)

    def _kind(self, vendor: str) -> ColumnType:
        return COLUMN_TYPES[self.plain(vendor).get_internal_type()]

    def value(self, value: Any, vendor: str) -> Value:
        return Value(value, output_field=self.plain(vendor))

    def order(self, nulls_last: bool) -> OrderBy:
        """Return the ``ORDER BY`` expression of the column."""
        last = True if nulls_last and self.nullable else None
        direction = self.column.desc if self.descending else self.column.asc
        return direction(nulls_last=last)

    def after(self, value: Value) -> Any:
        """Return the condition that the column's value comes after ``value`` in this order."""
        compare = LessThan if self.descending else GreaterThan
        return compare(self.column, value)

    def not_before(self, value: Value) -> Any:
        """Return the condition that the column's value is ``value`` or comes after it."""
        compare = LessThanOrEqual if self.descending else GreaterThanOrEqual
        return compare(self.column, value)

    def __str__(self) -> str:
        return f"{'-' * self.descending}{self.path.lookup}"


def range_order(terms: list[Term]) -> list[OrderBy]:
    """Return the order of rows whose first column is not NULL, in a form that an index supports."""
    first, *rest = terms
    return [first.order(nulls_last=False), *(term.order(nulls_last=True) for term in rest)]


def rows_after(terms: list[Term], values: list[Any], vendor: str) -> Any:
    """Return the condition for the rows of a range that come after the position ``values``."""
    same_direction = len({term.descending for term in terms}) == 1
    never_null = not any(term.nullable for term in terms[1:])
    # A comparison with NULL is NULL in SQL, so `(a, b) > (x, NULL)` would find no rows.
    if len(terms) > 1 and same_direction and never_null and vendor in ROW_VENDORS:
        return _row_after(terms, values, vendor)
    first, bound = terms[0], terms[0].value(values[0], vendor)
    if len(terms) == 1:
        return first.after(bound)
    ties = Q(Exact(first.column, bound)) & _after_condition(terms[1:], values[1:], vendor)
    # ``not_before`` follows from the rest, but lets the database start at a position in an index.
    return Q(first.not_before(bound)) & (Q(first.after(bound)) | ties)


def _row_after(terms: list[Term], values: list[Any], vendor: str) -> Any:
    bounds = [term.value(value, vendor) for term, value in zip(terms, values, strict=True)]
    compare = LessThan if terms[0].descending else GreaterThan
    return compare(_row(term.column for term in terms), _row(bounds))


def _row(expressions: Iterable[Any]) -> Func:
    """Return the columns or values as one SQL row: ``(a, b)``."""
    # The output field is never used. Django requires one for a function of mixed types.
    return Func(*expressions, template="(%(expressions)s)", output_field=models.BooleanField())


def _after_condition(terms: list[Term], values: list[Any], vendor: str) -> Q:
    """Return ``a > x OR a IS NULL OR (a = x AND ...)``. NULLs are last."""
    term, value = terms[0], values[0]
    if value is None:
        return term.is_null() & _after_condition(terms[1:], values[1:], vendor)
    bound = term.value(value, vendor)
    later = Q(term.after(bound)) | term.is_null() if term.nullable else Q(term.after(bound))
    if len(terms) == 1:
        return later
    return later | Q(Exact(term.column, bound)) & _after_condition(terms[1:], values[1:], vendor)


M = TypeVar("M", bound=models.Model)
Position = list[Any]

VENDORS = ("sqlite", "postgresql", "mysql")
# MySQL and MariaDB sort long texts by their first `max_sort_length` bytes only (default 1024, up
# to 4 bytes a character).
MYSQL_SORTED_LENGTH = 255  # characters
# SQLite stores decimals as floats, which keep 15 decimal digits.
SQLITE_DIGITS = 15
# Number of rows per query while `allows` filters them: at first, and at most.
FIRST_CHUNK, MAX_CHUNK = 100, 2_000


class Keyset:
    """An order of a model's rows, and the pages of a queryset in this order.

    ``ordering`` has Django's syntax: names with an optional ``-``, also over foreign keys
    (``customer__name``). The primary key is added unless the named columns are unique.
    """

    def __init__(self, model: ModelClass, ordering: Sequence[str] = ()) -> None:
        self.model = model
        self.ordering = ordering

    @cached_property
    def terms(self) -> list[Term]:
        """The columns of the order, with the primary key. Raises ``FieldError`` for other names."""
        terms: list[Term] = []
        for name in self.ordering:
            _add_term(terms, _term(self.model, name))
        return _until_unique(self.model, terms)

    @cached_property
    def fingerprint(self) -> str:
        """The first item of every position. It rejects positions of another order."""
        text = ",".join([self.model._meta.label, *map(str, self.terms)])
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    def problems(self) -> list[str]:
        """Return messages for the developer why this order cannot be paged; [] if it can."""
        if isinstance(self.ordering, str):
            return [f"The ordering {self.ordering!r} is a string. Write a list of names."]
        found = [problem for name in self.ordering for problem in _problems(self.model, name)]
        return found or self._column_problems()

    def _column_problems(self) -> list[str]:
        vendor = connections[router.db_for_read(self.model)].vendor
        if vendor not in VENDORS:
            return [f"Keyset pagination does not support the database {vendor}."]
        return [problem for term in self.terms if (problem := _sort_problem(term, vendor))]

    @cached_property
    def _checked(self) -> list[Term]:
        if problems := self.problems():
            raise ImproperlyConfigured(" ".join(problems))
        return self.terms

    def order(self, queryset: models.QuerySet[M]) -> models.QuerySet[M]:
        """Return ``queryset`` in this order, without paging."""
        return queryset.order_by(*(term.order(nulls_last=True) for term in self._checked))

    def page(
        self,
        queryset: models.QuerySet[M],
        after: Position | None,
        limit: int,
        allows: Callable[[M], bool] | None = None,
    ) -> tuple[list[M], Position | None]:
        """Return at most ``limit`` rows after ``after``, and the position of the next page.

        A position is a list of plain JSON values. As an argument None means the beginning, as a
        result that there are no more rows. Raise ``ValueError`` for a position that this order did
        not return. A queryset that may repeat rows must be ``distinct()``. Raise ``TypeError`` for
        one that is sliced, combined or yields no instances.

        ``allows`` is the object permission. A page is filled with rows that it allows, and rows are
        read until one more allowed row is found. A shorter page would tell the client how many rows
        of it are hidden.
        """
        if allows is None:
            pairs, following = self._rows_and_positions(queryset, after, limit)
        else:
            pairs, following = self._allowed_rows(queryset, after, limit, allows)
        return [row for row, _ in pairs], following

    def _allowed_rows(
        self, queryset: models.QuerySet[M], after: Position | None, limit: int, allows: Any
    ) -> tuple[list[tuple[M, Position]], Position | None]:
        """Return at most ``limit`` rows that ``allows`` accepts, and the position of the last one.

        Rows are read in chunks that double, so that many rejected rows take few queries.
        """
        found: list[tuple[M, Position]] = []
        chunk = FIRST_CHUNK
        while True:
            pairs, after = self._rows_and_positions(queryset, after, chunk)
            found += [(row, position) for row, position in pairs if allows(row)]
            if len(found) > limit:
                return found[:limit], found[limit - 1][1]
            if after is None:
                return found, None
            chunk = min(2 * chunk, MAX_CHUNK)

    def _rows_and_positions(
        self, queryset: models.QuerySet[M], after: Position | None, limit: int
    ) -> tuple[list[tuple[M, Position]], Position | None]:
        """Return at most ``limit`` rows with their positions.

        The second value is the position of the last row if more rows follow, or None.
        """
        _refuse_unpageable(queryset)
        vendor = connections[queryset.db].vendor
        values = None if after is None else self._read(after, vendor)
        rows: list[M] = []
        for part in self._ranges(self._annotated(queryset, vendor), values, vendor):
            rows += part[: limit + 1 - len(rows)]
            if len(rows) > limit:
                break
        pairs = [(row, self._position(row, vendor)) for row in rows]
        return pairs[:limit], pairs[limit - 1][1] if len(pairs) > limit else None

    def _read(self, position: Position, vendor: str) -> list[Any]:
        """Return the values of a position, with None for NULL."""
        terms = self._checked
        if type(position) is not list or len(position) != len(terms) + 1:
            raise ValueError("This is not a position in this order.")
        if position[0] != self.fingerprint:
            raise ValueError("This position belongs to another order.")
        pairs = zip(terms, position[1:], strict=True)
        return [term.read(value, vendor) for term, value in pairs]

    def _annotated(self, queryset: models.QuerySet[M], vendor: str) -> models.QuerySet[M]:
        """Return ``queryset`` with annotations for the columns of the position.

        The queryset may defer these columns, and a custom field may convert them.
        """
        columns = {
            f"_keyset_{number}": ExpressionWrapper(term.column, output_field=term.plain(vendor))
            for number, term in enumerate(self._checked)
        }
        annotated: models.QuerySet[M] = queryset.annotate(**columns)
        return annotated

    def _position(self, row: models.Model, vendor: str) -> Position:
        terms = enumerate(self._checked)
        columns = [term.encode(row.__dict__.pop(f"_keyset_{n}"), vendor) for n, term in terms]
        return [self.fingerprint, *columns]

    def _ranges(
        self, queryset: models.QuerySet[M], values: list[Any] | None, vendor: str
    ) -> Iterator[models.QuerySet[M]]:
        """Yield the queryset of each range. Together they have the rows after ``values``.

        Range number n has the rows whose first n columns are NULL and whose next one is not.
        """
        terms, start = self._checked, _range_of(values)
        for nulls in range(start, _leading_nullable(terms) + 1):
            rest = terms[nulls:]
            part = queryset.order_by(*range_order(rest))
            for term in terms[:nulls]:
                part = part.filter(term.is_null())
            if rest[0].nullable:
                part = part.filter(rest[0].is_null(False))
            # Only the first range has rows before the position. Later ones are read from the start.
            if values is not None and nulls == start:
                part = part.filter(rows_after(rest, values[nulls:], vendor))
            yield part


def _term(model: ModelClass, name: str) -> Term:
    return Term(follow(model, name.removeprefix("-")), name.startswith("-"))


def _add_term(terms: list[Term], term: Term) -> None:
    # A repeated column never changes the order.
    if all(term.path.lookup != other.path.lookup for other in terms):
        terms.append(term)


def _until_unique(model: ModelClass, terms: list[Term]) -> list[Term]:
    """Return the shortest beginning of ``terms`` that is unique.

    If none is, return ``terms`` with the primary key added.
    """
    for count in range(1, len(terms) + 1):
        if _is_unique(model, terms[:count]):
            return terms[:count]
    # In the direction of the last column, so that the shorter condition of ``rows_after`` is
    # possible, and an index can be read in one direction.
    descending = bool(terms) and terms[-1].descending
    for field in model._meta.pk_fields:
        _add_term(terms, Term(ColumnPath("pk", (), field), descending))
    return terms


def _is_unique(model: ModelClass, terms: list[Term]) -> bool:
    """Whether no two rows can have the same values in these columns."""
    # Only columns of the rows themselves: many rows may refer to one related row. And a unique
    # column may repeat NULL, so only columns that cannot be NULL make rows distinct.
    own = [term.path.field for term in terms if not (term.path.relations or term.nullable)]
    names = {field.name for field in own}
    if any(field.unique for field in own):
        return True
    return any(set(together) <= names for together in _unique_together(model))


def _unique_together(model: ModelClass) -> Iterator[Sequence[str]]:
    """Yield the sets of columns that the model declares to be unique together.

    Deferrable constraints do not count: rows may violate them inside a transaction.
    """
    meta = model._meta
    yield [field.name for field in meta.pk_fields]
    yield from meta.unique_together
    for constraint in meta.total_unique_constraints:
        if constraint.deferrable is None:
            yield constraint.fields


def _problems(model: ModelClass, name: Any) -> list[str]:
    """Return what is wrong with one name of an ordering."""
    if not isinstance(name, str):
        return [f"The ordering {name!r} is an expression. Name columns, with `-` for descending."]
    if name == "?":
        return ["A random order ('?') cannot be paged."]
    try:
        path = _term(model, name).path
    except FieldError as error:
        return [f"The ordering {name!r} cannot be paged: {error}"]
    return [*_type_problem(name, path), *_relation_problem(name, path)]


def _type_problem(name: str, path: ColumnPath) -> Iterator[str]:
    if column_type(path.field) is None:
        kind = stored_field(path.field).get_internal_type()
        yield f"The ordering {name!r} cannot be paged: a {kind} has no reliable order."
    elif not is_stable(path.field):
        yield f"The ordering {name!r} cannot be paged: {unstable_message(path.field.name)}"


def _relation_problem(name: str, path: ColumnPath) -> Iterator[str]:
    """Yield an error for a foreign key that Django would order by the related model's ordering."""
    field = path.field
    if isinstance(field, models.ForeignKey) and field.name == name.lstrip("-").split("__")[-1]:
        target = field.related_model
        if target._meta.ordering:
            yield (
                f"The ordering {name!r} is ambiguous, because {target.__name__} has its own "
                f"ordering. Name the key ({name}_id) or a column ({name}__...)."
            )


def _sort_problem(term: Term, vendor: str) -> str | None:
    """Return why the database sorts this column differently from how it compares its values."""
    field = stored_field(term.path.field)
    if vendor == "mysql" and field.get_internal_type() in ("TextField", "CharField", "SlugField"):
        longest = getattr(field, "max_length", None)
        if isinstance(field, models.TextField) or not longest or longest > MYSQL_SORTED_LENGTH:
            limit = MYSQL_SORTED_LENGTH
            return (
                f"{vendor} sorts by the beginning of {str(term)!r} only. Its max_length must be at "
                f"most {limit}."
            )
    digits = getattr(field, "max_digits", None) or 0
    if vendor == "sqlite" and digits > SQLITE_DIGITS:
        return f"SQLite stores {SQLITE_DIGITS} digits of {str(term)!r}, which has {digits}."
    return None


def _refuse_unpageable(queryset: models.QuerySet[Any]) -> None:
    query = queryset.query
    if query.is_sliced or query.combinator or query.distinct_fields:
        raise TypeError("A queryset that is sliced, combined or DISTINCT ON cannot be paged.")
    if not issubclass(queryset._iterable_class, ModelIterable):
        raise TypeError("Only a queryset of model instances can be paged.")


def _leading_nullable(terms: list[Term]) -> int:
    """Return the number of leading columns that can be NULL. The primary key never can."""
    return next(number for number, term in enumerate(terms) if not term.nullable)


def _range_of(values: list[Any] | None) -> int:
    """Return the number of the range that a position is in: how many leading columns are NULL."""
    if values is None:
        return 0
    return next(number for number, value in enumerate(values) if value is not None)
