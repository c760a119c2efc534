"""
Queries for rows by the values of a unique column, whose SQL is compiled once.

Every request looks up its token and its session. For Django, compiling such a query takes longer
than executing it. The number of values is rounded up to a power of two by repeating the last one,
so that few statements are compiled.

The parameters have names. With positional ones, Django's SQLite backend would search the whole SQL
for ``%s`` with a regular expression at each execution, which takes longer than the query.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from itertools import islice
from typing import Any, TypeVar
from uuid import UUID

from django.core.exceptions import EmptyResultSet
from django.db import connections, models

M = TypeVar("M", bound=models.Model)
MAX_VALUES = 64  # in one statement
# Stand for the values in the compiled parameters. Random, so that no parameter of the project's own
# filters is taken for one.
_random = secrets.token_hex(16)
PLACEHOLDERS = tuple(f"{_random} {number}" for number in range(MAX_VALUES))
# A row of these can be given to two callers.
IMMUTABLE = frozenset(
    (type(None), bool, int, float, str, bytes, date, datetime, time, timedelta, Decimal, UUID)
)


@dataclass(eq=False, frozen=True, slots=True)
class Statement:
    """A compiled SQL statement, and the columns that it returns."""

    query: Any
    sql: str
    params: Mapping[str, Any]
    columns: Sequence[Any]
    is_constant: bool

    def parameters(self, values: Sequence[str]) -> dict[str, Any]:
        by_placeholder = dict(zip(PLACEHOLDERS, values, strict=False))
        return {
            name: by_placeholder.get(param, param) if isinstance(param, str) else param
            for name, param in self.params.items()
        }

    def rows(self, alias: str, values: Sequence[str]) -> Iterator[Sequence[Any]]:
        """Execute it for as many values as it was compiled for. Return Python values."""
        connection = connections[alias]
        with connection.cursor() as cursor:
            cursor.execute(self.sql, self.parameters(values))
            found = cursor.fetchall()
        # Finding the converters takes as long as the query. They are kept on the connection,
        # because some are methods that refer to it.
        kept = vars(connection).setdefault("_django_mcp_converters", {})
        if (converting := kept.get(self)) is None:
            compiler = self.query.get_compiler(connection=connection)
            converting = compiler, compiler.get_converters(self.columns)
            if self.is_constant:
                kept[self] = converting
        compiler, converters = converting
        return iter(compiler.apply_converters(found, converters) if converters else found)


def fetch(
    alias: str,
    query: Callable[..., models.QuerySet[Any]],
    values: Sequence[str],
    *args: Hashable,
    is_constant: bool = True,
) -> list[Sequence[Any] | None]:
    """Return for each value the other columns of its row in the database ``alias``, or None.

    ``query`` is a function of a module. ``query(values, *args)`` returns a ``values_list`` of the
    rows with one of the values, which are in the first column. Pass ``is_constant=False`` if its
    SQL may differ for the same ``args``, such as with the time: then it is compiled each time. One
    statement runs for each ``MAX_VALUES`` values. If a value occurs again, mutable columns of its
    row are copied, because two callers may change what they get.
    """
    pending, vendor = list(dict.fromkeys(values)), connections[alias].vendor
    rows: dict[Any, Sequence[Any]] = {}
    while pending:
        some, pending = pending[:MAX_VALUES], pending[MAX_VALUES:]
        size = 1 << (len(some) - 1).bit_length()
        try:
            if is_constant:
                statement = _compiled_once(query, args, alias, vendor, size)
            else:
                statement = _compile(query, args, alias, size)
        except EmptyResultSet:  # a filter of the project that no row can meet
            break
        found = statement.rows(alias, some + some[-1:] * (size - len(some)))
        rows |= {row[0]: row[1:] for row in found}
    result, taken = [], set[str]()
    for value in values:
        row = rows.get(value)
        result.append(_copied(row) if row is not None and value in taken else row)
        taken.add(value)
    return result


def _copied(row: Sequence[Any]) -> Sequence[Any]:
    return [value if type(value) in IMMUTABLE else deepcopy(value) for value in row]


def _compile(
    query: Callable[..., Any],
    args: tuple[Hashable, ...],
    alias: str,
    size: int,
    *,
    is_constant: bool = False,
) -> Statement:
    found = query(PLACEHOLDERS[:size], *args).using(alias).query
    compiler = found.get_compiler(alias)
    sql, params = compiler.as_sql()
    named = {f"p{number}": param for number, param in enumerate(params)}
    # A percent sign is written twice, and stays so: the statement will be formatted once more.
    sql = sql.replace("%%", "%%%%") % tuple(f"%({name})s" for name in named)
    columns = [column for column, *_ in compiler.select]
    return Statement(found, sql, named, columns, is_constant)


@lru_cache(maxsize=64)
def _compiled_once(
    query: Callable[..., Any], args: tuple[Hashable, ...], alias: str, vendor: str, size: int
) -> Statement:
    return _compile(query, args, alias, size, is_constant=True)


def instance(model: type[M], alias: str, values: Iterator[Any]) -> M | None:
    """Take the next columns and make an instance of them; None if a join found no row.

    The columns are those of ``column_names``.
    """
    names = column_names(model)
    found = list(islice(values, len(names)))
    is_none = found[names.index(model._meta.pk.attname)] is None
    return None if is_none else model.from_db(alias, names, found)


@lru_cache(maxsize=32)
def column_names(model: type[models.Model]) -> tuple[str, ...]:
    """Return the names of a model's columns, for ``values_list``."""
    return tuple(field.attname for field in model._meta.concrete_fields)
