"""Keyset pagination: a page begins after the last row's place in the order, so no page costs more
than the first.

Rule: the order is total (it ends in something unique), the same on every database, and NULLs come
last whichever way a column goes. A page is at most `limit + 1` rows, without OFFSET or COUNT; what
cannot be right is refused by `problems()` and never paged.

NULL placement is where databases differ and where indexes are lost. So the rows are read as
consecutive *stretches*: first those whose leading column is not NULL, then those where it is. In a
stretch the leading column needs no NULLS FIRST or LAST, and any plain index gives its order:

    (a, id) > (x, y)                          directions agree and nothing can be NULL
    a <= x AND (a < x OR (a = x AND id > y))  otherwise

One column of an order: its direction, its values in a position, what comes after a value.

Rule: a value is compared as the database holds it, never as the project's field shows it, so a
position means the same row whatever conversions a field makes. NULLs come last either way.
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

from .columns import KINDS, AnyField, ColumnType, is_stable, kind_of, stored_field, unstable
from .keys import ModelClass, Path, follow

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

    def _kind(self, vendor: str) -> ColumnType:
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


M = TypeVar("M", bound=models.Model)
Position = list[Any]

VENDORS = ("sqlite", "postgresql", "mysql")
# MySQL and MariaDB sort long texts by their first `max_sort_length` bytes only.
MYSQL_INDEXED_LENGTH = 255
# SQLite keeps decimals as floating point numbers.
SQLITE_DIGITS = 15
# Where rows are allowed one by one: how many are read at once, at first and at most.
FIRST_CHUNK, MAX_CHUNK = 100, 2_000


class Keyset:
    """
    An order of a model's rows, and their pages.

    `ordering` is as Django's: names with an optional `-`, also over foreign keys
    (`customer__name`); the primary key is added unless what is there is unique.
    """

    def __init__(self, model: ModelClass, ordering: Sequence[str] = ()) -> None:
        self.model = model
        self.ordering = ordering

    @cached_property
    def terms(self) -> list[Term]:
        """The whole order, resolved; raises FieldError for a name that is no column."""
        terms: list[Term] = []
        for name in self.ordering:
            _add(terms, _term(self.model, name))
        return _until_unique(self.model, terms)

    @cached_property
    def fingerprint(self) -> str:
        """Begins every position, so that one of another order is known as such."""
        text = ",".join([self.model._meta.label, *map(str, self.terms)])
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    def problems(self) -> list[str]:
        """Why this order cannot be paged, in words for the developer; [] when it can."""
        if isinstance(self.ordering, str):
            return [f"The ordering {self.ordering!r} is a string: write a list of names."]
        found = [problem for name in self.ordering for problem in _problems(self.model, name)]
        return found or self._column_problems()

    def _column_problems(self) -> list[str]:
        vendor = connections[router.db_for_read(self.model)].vendor
        if vendor not in VENDORS:
            return [f"Keyset pagination is not known to be right on {vendor}."]
        return [problem for term in self.terms if (problem := _unordered(term, vendor))]

    @cached_property
    def _checked(self) -> list[Term]:
        if problems := self.problems():
            raise ImproperlyConfigured(" ".join(problems))
        return self.terms

    def order(self, queryset: models.QuerySet[M]) -> models.QuerySet[M]:
        """`queryset` in this order, unpaged."""
        return queryset.order_by(*(term.order(nulls_last=True) for term in self._checked))

    def page(
        self,
        queryset: models.QuerySet[M],
        after: Position | None,
        limit: int,
        allows: Callable[[M], bool] | None = None,
    ) -> tuple[list[M], Position | None]:
        """
        At most `limit` rows that come after the position `after`, and the next page's position.

        A position is a list of plain JSON values; None is the beginning, and the end. Raises
        ValueError for a position that this order did not give. A queryset that may repeat rows
        has to be `distinct()`; one that is sliced, combined or yields no instances is refused.

        With `allows` a page is filled with the rows that it allows, and only one more of them
        makes a next page. Rows are read until then, because a position after a number of refused
        rows would tell that there are so many.
        """
        if allows is None:
            pairs, following = self._pairs(queryset, after, limit)
        else:
            pairs, following = self._allowed(queryset, after, limit, allows)
        return [row for row, _ in pairs], following

    def _allowed(
        self, queryset: models.QuerySet[M], after: Position | None, limit: int, allows: Any
    ) -> tuple[list[tuple[M, Position]], Position | None]:
        found: list[tuple[M, Position]] = []
        chunk = FIRST_CHUNK
        while True:
            pairs, after = self._pairs(queryset, after, chunk)
            found += [(row, position) for row, position in pairs if allows(row)]
            if len(found) > limit:
                return found[:limit], found[limit - 1][1]
            if after is None:
                return found, None
            chunk = min(2 * chunk, MAX_CHUNK)

    def _pairs(
        self, queryset: models.QuerySet[M], after: Position | None, limit: int
    ) -> tuple[list[tuple[M, Position]], Position | None]:
        """At most `limit` rows with their positions, and the last one's if there are more."""
        _refuse_unpageable(queryset)
        vendor = connections[queryset.db].vendor
        values = None if after is None else self._read(after, vendor)
        rows: list[M] = []
        for stretch in self._stretches(self._marked(queryset, vendor), values, vendor):
            rows += stretch[: limit + 1 - len(rows)]
            if len(rows) > limit:
                break
        pairs = [(row, self._position(row, vendor)) for row in rows]
        return pairs[:limit], pairs[limit - 1][1] if len(pairs) > limit else None

    def _read(self, position: Position, vendor: str) -> list[Any]:
        """The values of a position, None for NULL."""
        terms = self._checked
        if type(position) is not list or len(position) != len(terms) + 1:
            raise ValueError("This position has not the shape of a position in this order.")
        if position[0] != self.fingerprint:
            raise ValueError("This position belongs to another order.")
        pairs = zip(terms, position[1:], strict=True)
        return [term.read(value, vendor) for term, value in pairs]

    def _marked(self, queryset: models.QuerySet[M], vendor: str) -> models.QuerySet[M]:
        """With what each row's position is made of, whatever columns it defers."""
        marks = {
            f"_keyset_{number}": ExpressionWrapper(term.column, output_field=term.plain(vendor))
            for number, term in enumerate(self._checked)
        }
        marked: models.QuerySet[M] = queryset.annotate(**marks)
        return marked

    def _position(self, row: models.Model, vendor: str) -> Position:
        terms = enumerate(self._checked)
        marks = [term.encode(row.__dict__.pop(f"_keyset_{n}"), vendor) for n, term in terms]
        return [self.fingerprint, *marks]

    def _stretches(
        self, queryset: models.QuerySet[M], values: list[Any] | None, vendor: str
    ) -> Iterator[models.QuerySet[M]]:
        """The querysets whose rows, one queryset after the other, are those after `values`."""
        terms, start = self._checked, _nulls_before(self._checked, values)
        for nulls in range(start, _leading_nullable(terms) + 1):
            here, rest = queryset.order_by(*stretch_order(terms[nulls:])), terms[nulls:]
            for term in terms[:nulls]:
                here = here.filter(term.is_null())
            if rest[0].nullable:
                here = here.filter(rest[0].is_null(False))
            if values is not None and nulls == start:
                here = here.filter(rows_after(rest, values[nulls:], vendor))
            yield here


def _term(model: ModelClass, name: str) -> Term:
    return Term(follow(model, name.removeprefix("-")), name.startswith("-"))


def _add(terms: list[Term], term: Term) -> None:
    # A column that comes again decides nothing.
    if all(term.path.lookup != other.path.lookup for other in terms):
        terms.append(term)


def _until_unique(model: ModelClass, terms: list[Term]) -> list[Term]:
    """The shortest beginning of `terms` that is unique, else `terms` with the key added."""
    for count in range(1, len(terms) + 1):
        if _is_unique(model, terms[:count]):
            return terms[:count]
    descending = bool(terms) and terms[-1].descending
    for field in model._meta.pk_fields:
        _add(terms, Term(Path("pk", (), field), descending))
    return terms


def _is_unique(model: ModelClass, terms: list[Term]) -> bool:
    own = {term.path.field.name for term in terms if not term.path.relations}
    sure = {term.path.field.name for term in terms if not term.nullable} & own
    if any(term.path.field.unique for term in terms if term.path.field.name in sure):
        return True
    return any(set(names) <= sure for names in _unique_together(model))


def _unique_together(model: ModelClass) -> Iterator[Sequence[str]]:
    meta = model._meta
    yield [field.name for field in meta.pk_fields]
    yield from meta.unique_together
    for constraint in meta.total_unique_constraints:
        if constraint.deferrable is None:
            yield constraint.fields


def _problems(model: ModelClass, name: Any) -> list[str]:
    """What is wrong with one name of an ordering."""
    if not isinstance(name, str):
        return [f"The ordering {name!r} is an expression: name columns, `-` for descending."]
    if name == "?":
        return ["A random order ('?') has no pages."]
    try:
        path = _term(model, name).path
    except FieldError as error:
        return [f"The ordering {name!r} cannot be paged: {error}"]
    return [*_type_problem(name, path), *_relation_problem(name, path)]


def _type_problem(name: str, path: Path) -> Iterator[str]:
    if kind_of(path.field) is None:
        kind = stored_field(path.field).get_internal_type()
        yield f"The ordering {name!r} cannot be paged: a {kind} has no order to rely on."
    elif not is_stable(path.field):
        yield f"The ordering {name!r} cannot be paged: {unstable(path.field.name)}"


def _relation_problem(name: str, path: Path) -> Iterator[str]:
    field = path.field
    if isinstance(field, models.ForeignKey) and field.name == name.lstrip("-").split("__")[-1]:
        target = field.related_model
        if target._meta.ordering:
            yield (
                f"The ordering {name!r} is ambiguous: {target.__name__} has an ordering of its "
                f"own. Name the key ({name}_id) or a column ({name}__...)."
            )


def _unordered(term: Term, vendor: str) -> str | None:
    """Why the database does not keep this column in the order that it compares by."""
    field = stored_field(term.path.field)
    if vendor == "mysql" and field.get_internal_type() in ("TextField", "CharField", "SlugField"):
        longest = getattr(field, "max_length", None)
        if isinstance(field, models.TextField) or not longest or longest > MYSQL_INDEXED_LENGTH:
            most = MYSQL_INDEXED_LENGTH
            return f"{vendor} sorts by the beginning of {str(term)!r} only: at most {most}."
    digits = getattr(field, "max_digits", None) or 0
    if vendor == "sqlite" and digits > SQLITE_DIGITS:
        return f"SQLite keeps {SQLITE_DIGITS} digits of {str(term)!r}, which has {digits}."
    return None


def _refuse_unpageable(queryset: models.QuerySet[Any]) -> None:
    query = queryset.query
    if query.is_sliced or query.combinator or query.distinct_fields:
        raise TypeError("A queryset that is sliced, combined or DISTINCT ON cannot be paged.")
    if not issubclass(queryset._iterable_class, ModelIterable):
        raise TypeError("Only a queryset of model instances can be paged.")


def _leading_nullable(terms: list[Term]) -> int:
    """How many columns can be NULL before the first that cannot (the key at the latest)."""
    return next(number for number, term in enumerate(terms) if not term.nullable)


def _nulls_before(terms: list[Term], values: list[Any] | None) -> int:
    """The stretch a position is in: how many of its leading columns are NULL."""
    if values is None:
        return 0
    return next(number for number, value in enumerate(values) if value is not None)
