"""Full-text search and vector search: what databases offer beside ``LIKE`` to find rows.

PostgreSQL, MariaDB and MySQL have full-text search, and so does SQLite if the project made an FTS5
table. On other databases ``Search`` finds the words as parts of the texts, with ``LIKE``.

A query means the same on each database: every word or phrase must occur, and no character is an
operator. So no query is a syntax error, and clients cannot search other columns.

Results are ranked on PostgreSQL only. MariaDB, MySQL and SQLite rank a word by how rare it is in
the whole table. So the order of two rows would reveal how many rows contain a word, among them rows
that the user may not see.

Vector search finds the rows whose vectors are nearest to a vector, by pgvector on PostgreSQL. It is
exact and compares the vectors of all rows of the queryset. It does not use the approximate indexes
of pgvector (HNSW, IVFFlat). PostgreSQL reads the nearest rows from such an index first and applies
the conditions of the queryset to these rows only. If most of them are hidden from the user, the
result has too few rows, and their number tells the user how similar the hidden rows are.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from django.core.exceptions import FieldDoesNotExist
from django.db import connections, models
from django.db.models import F, Func, Q, Value
from django.db.models.functions import Cast
from django.db.models.lookups import GreaterThan
from django.utils.module_loading import import_string

from .columns import AnyField, column_type
from .keys import ColumnPath, ModelClass
from .keyset import Keyset, Term

# The next page starts after the rank of the last row, so ranks must be equal after a round trip. A
# rank is a float4 in PostgreSQL, and parameters are float8. So it is compared as an integer.
RANK_UNITS = 1e9
WORD = re.compile(r"\w+")
# The defaults of InnoDB: the lengths in characters of words in a FULLTEXT index, and the words that
# are not in it (INFORMATION_SCHEMA.INNODB_FT_DEFAULT_STOPWORD).
INNODB_WORD_LENGTHS = range(3, 85)
INNODB_STOPWORDS = frozenset((
    "a", "about", "an", "are", "as", "at", "be", "by", "com", "de", "en", "for", "from", "how", "i",
    "in", "is", "it", "la", "of", "on", "or", "that", "the", "this", "to", "und", "was", "what",
    "when", "where", "who", "will", "with", "www",
))  # fmt: skip

M = TypeVar("M", bound=models.Model)

SIMILAR_TO = "similar_to"  # the argument that names a row
DISTANCES = {
    "cosine": "pgvector.django.CosineDistance",
    "l2": "pgvector.django.L2Distance",
    "inner_product": "pgvector.django.MaxInnerProduct",
}


@dataclass(frozen=True)
class FullTextSearch:
    """How the search tool of a model resource uses the full-text search of the database.

    ``config`` is a text search configuration of PostgreSQL, by default that of the database.
    ``vector_field`` is a ``SearchVectorField`` of the model that contains the texts of
    ``search_fields``. ``sqlite_table`` is an FTS5 table of SQLite.
    """

    config: str = ""
    vector_field: str = ""
    sqlite_table: str = ""

    def is_ranked(self, vendor: str) -> bool:
        """Whether a database of this vendor ranks the rows of a search."""
        return vendor == "postgresql"

    def match(
        self, model: ModelClass, names: Sequence[str], words: Sequence[str], vendor: str
    ) -> FullTextMatch | None:
        """Return how the database finds ``words`` in the columns ``names``.

        Return None if it cannot.
        """
        if words and vendor == "postgresql":
            return self._postgres_match(names, words)
        if words and vendor == "mysql":
            return _mysql_match(names, words)
        if words and vendor == "sqlite" and self.sqlite_table:
            # The table may have more columns than clients may search.
            columns = " ".join(map(_quoted, _columns(model, names)))
            query = f"{{{columns}}} : ({' '.join(map(_quoted, words))})"
            return FullTextMatch(Q(Fts5Match(self.sqlite_table, query)))
        return None

    def _postgres_match(self, names: Sequence[str], words: Sequence[str]) -> FullTextMatch:
        # Imported here, because the module needs psycopg.
        from django.contrib.postgres.search import (
            SearchQuery,
            SearchRank,
            SearchVector,
            SearchVectorExact,
        )

        config = self.config or None
        vector: Any = F(self.vector_field) if self.vector_field else None
        vector = vector or SearchVector(*names, config=config)
        # Quotation marks make "or" and "-" ordinary text.
        text = " ".join(f'"{word.replace(chr(34), " ")}"' for word in words)
        query = SearchQuery(text, config=config, search_type="websearch")
        scaled = SearchRank(vector, query) * Value(RANK_UNITS, output_field=models.FloatField())
        rank = Cast(scaled, models.BigIntegerField())
        return FullTextMatch(Q(SearchVectorExact(vector, query)), rank)


@dataclass(frozen=True)
class FullTextMatch:
    """How a database finds the words of a query.

    ``rank`` is an expression, or None if results are not ranked. ``condition`` does not contain the
    ``remaining_words``, which ``Search`` finds with ``LIKE``.
    """

    condition: Q
    rank: Any = None
    remaining_words: Sequence[str] = ()


def _mysql_match(names: Sequence[str], words: Sequence[str]) -> FullTextMatch | None:
    """Return the match of the words that a FULLTEXT index contains. None if there are none."""
    indexed = [word for word in words if _is_indexed(word)]
    if not indexed:
        return None
    # Some characters between words are syntax errors, even in quotation marks.
    text = " ".join(f'+"{" ".join(WORD.findall(word))}"' for word in indexed)
    # `> 0` can use the index. As a condition of its own, Django would write the match as `= True`.
    match = GreaterThan(MatchAgainst(*map(F, names), Value(text)), 0)
    return FullTextMatch(Q(match), remaining_words=[word for word in words if word not in indexed])


def _is_indexed(word: str) -> bool:
    """Whether a FULLTEXT index contains a part of ``word``.

    ``MATCH`` finds no rows if it requires a word that is not in the index.
    """
    parts = WORD.findall(word.lower())
    return any(len(one) in INNODB_WORD_LENGTHS and one not in INNODB_STOPWORDS for one in parts)


def _columns(model: ModelClass, names: Sequence[str]) -> list[str]:
    return [str(model._meta.get_field(name).column) for name in names]  # type: ignore[union-attr]


def _quoted(text: str) -> str:
    """Return ``text`` as a string of FTS5, in which no character is an operator."""
    return '"' + text.replace('"', '""') + '"'


class MatchAgainst(Func):
    """``MATCH (columns) AGAINST (words)`` of MariaDB and MySQL. The last argument is the words."""

    output_field = models.FloatField()

    def as_sql(self, compiler: Any, connection: Any, **context: Any) -> tuple[str, Any]:  # type: ignore[override]
        *columns, (words, params) = map(compiler.compile, self.get_source_expressions())
        names = ", ".join(name for name, _ in columns)
        return f"MATCH ({names}) AGAINST ({words} IN BOOLEAN MODE)", params


class Fts5Match(Func):
    """The condition that an FTS5 table has a matching row with the key of the model's row."""

    output_field = models.BooleanField()

    def __init__(self, table: str, query: str) -> None:
        super().__init__(F("pk"), Value(query))
        self.table = table

    def as_sql(self, compiler: Any, connection: Any, **context: Any) -> tuple[str, Any]:  # type: ignore[override]
        (key, _), (query, params) = map(compiler.compile, self.get_source_expressions())
        table = connection.ops.quote_name(self.table)
        return f"{key} IN (SELECT rowid FROM {table} WHERE {table} MATCH {query})", params


@dataclass(frozen=True, slots=True)
class RankTerm(Term):
    """The rank as the first column of an order. ``path`` is required by ``Term`` and not used."""

    rank: Any

    @property
    def nullable(self) -> bool:
        return False

    @property
    def column(self) -> Any:
        return self.rank

    def plain(self, vendor: str) -> AnyField:
        return models.BigIntegerField()

    def __str__(self) -> str:
        return "rank"


class RankedKeyset(Keyset):
    """The rows with the highest rank first, and of equal ranks those with the highest key."""

    def __init__(self, model: ModelClass, rank: Any) -> None:
        super().__init__(model)
        self._rank = rank

    @cached_property
    def terms(self) -> list[Term]:
        keys = [ColumnPath("pk", (), each) for each in self.model._meta.pk_fields]
        return [RankTerm(keys[0], True, self._rank), *(Term(path, True) for path in keys)]


# System checks.


def column_problems(model: ModelClass, names: Sequence[str]) -> Iterator[str]:
    """Yield why the columns ``names`` cannot be searched together."""
    if not names:
        yield "full_text_search: search_fields is empty."
    for name in names:
        if name not in {each.name for each in model._meta.local_concrete_fields}:
            yield f"full_text_search: {name!r} of search_fields is in another table."


def vector_problems(
    model: ModelClass, names: Sequence[str], declared: FullTextSearch
) -> Iterator[str]:
    """Yield what is wrong with ``vector_field``.

    By searching, a client could find out the value of each column that is part of it.
    """
    name = declared.vector_field
    if not name:
        return
    try:
        found: Any = model._meta.get_field(name)
    except FieldDoesNotExist:
        yield f"full_text_search: {model.__name__} has no field {name!r}."
        return
    stored: Any = found.output_field if isinstance(found, models.GeneratedField) else found
    if stored.get_internal_type() != "SearchVectorField":
        yield f"full_text_search: {name!r} is not a SearchVectorField."
    elif stored is not found:
        parts: Iterator[Any] = found.expression.flatten()
        named = {each.name for each in parts if isinstance(each, F)}  # type: ignore[attr-defined]
        for other in sorted(named - {*names}):
            yield f"full_text_search: {name!r} contains {other!r}, which is not in search_fields."


def table_problems(model: ModelClass, declared: FullTextSearch) -> Iterator[str]:
    """Yield why the rows of ``sqlite_table`` cannot have the keys of the model's rows."""
    keys = [column_type(each) for each in model._meta.pk_fields]
    if declared.sqlite_table and [kind and kind.python for kind in keys] != [int]:
        yield "full_text_search: the rows of an FTS5 table have integer keys only."


def missing_in_database(
    model: ModelClass, names: Sequence[str], declared: FullTextSearch, alias: str
) -> tuple[str, str] | None:
    """Return what the database lacks for the search, and how to make it. None if nothing.

    Queries the database.
    """
    connection = connections[alias]
    table = model._meta.db_table
    columns = _columns(model, names)
    with connection.cursor() as cursor:
        if table not in connection.introspection.table_names(cursor):
            return None  # not migrated yet
        if connection.vendor == "mysql":
            cursor.execute(
                "SELECT INDEX_NAME, COLUMN_NAME FROM INFORMATION_SCHEMA.STATISTICS WHERE "
                "TABLE_SCHEMA = DATABASE() AND TABLE_NAME = %s AND INDEX_TYPE = 'FULLTEXT'",
                [table],
            )
            indexes: dict[str, set[str]] = {}
            for index, column in cursor.fetchall():
                indexes.setdefault(index, set()).add(column)
            if {*columns} not in indexes.values():
                statement = f"CREATE FULLTEXT INDEX ... ON {table} ({', '.join(columns)})"
                return f"no FULLTEXT index on exactly {', '.join(columns)}", statement
        elif connection.vendor == "sqlite" and declared.sqlite_table:
            cursor.execute("SELECT type, name, tbl_name, sql FROM sqlite_master")
            made = cursor.fetchall()
            named = declared.sqlite_table
            if not any(kind == "table" and name == named for kind, name, *_ in made):
                return f"no table {named!r}", f"CREATE VIRTUAL TABLE {named} USING fts5(...)"
            if not any(
                kind == "trigger" and on == table and named in (sql or "")
                for kind, _, on, sql in made
            ):
                # Django drops triggers when it changes a table of SQLite.
                what = f"no trigger on {table!r} that updates {named!r}"
                return what, "CREATE TRIGGER ..., and rebuild the table"
        elif connection.vendor == "postgresql" and declared.config:
            cursor.execute("SELECT 1 FROM pg_ts_config WHERE cfgname = %s", [declared.config])
            if not cursor.fetchone():
                what = f"no text search configuration {declared.config!r}"
                return what, "CREATE TEXT SEARCH CONFIGURATION, or use one that \\dF lists"
    return None


@dataclass(frozen=True)
class VectorSearch:
    """How clients find the rows of a model resource that are similar to a text or to another row.

    ``field`` is a pgvector ``VectorField`` of the model. ``embed`` takes a text of the client and
    returns its vector, made by the same embedding model as the vectors of the rows. Without it,
    clients can only find rows that are similar to another row. ``distance`` is "cosine", "l2" or
    "inner_product".
    """

    field: str
    embed: Callable[[str], Sequence[float]] | None = None
    distance: str = "cosine"

    def nearest(self, queryset: models.QuerySet[M], vector: Sequence[float]) -> models.QuerySet[M]:
        """Return the rows of ``queryset`` that have a vector, the nearest first."""
        distance = import_string(DISTANCES[self.distance])(
            self.field, [float(number) for number in vector]
        )
        # PostgreSQL uses an index only for the distance itself, and not for a sum.
        exact = distance + Value(0.0)
        return queryset.filter(**{f"{self.field}__isnull": False}).order_by(exact, "pk")


def takes_one_text(function: Any) -> bool:
    """Whether ``function`` can be called with one argument, and returns no coroutine."""
    try:
        inspect.signature(function).bind("")
    except (TypeError, ValueError):
        return False
    return not inspect.iscoroutinefunction(function)
