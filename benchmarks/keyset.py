"""
What the pages of a long list cost: all pages of 100 rows over a million, in three orders.

    python -m benchmarks.keyset --rows 1000000 --database sqlite
    PGHOST=127.0.0.1 python -m benchmarks.keyset --database postgres

SQLite uses a temporary file, PostgreSQL a table that is dropped at the end. Exits with 3 unless the
queries of the last pages take at most 5 ms and twice as long as those of the first, the plan uses
an index and no sort, and memory stays within 10 MiB of that at the tenth page.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from typing import Any

import django
from django.conf import settings

from tools.benchmark import UNMET

PAGE, SAMPLE, BATCH = 100, 20, 10_000
MOST_RATIO, MOST_MS, MOST_MIB = 2.0, 5.0, 10.0
ORDERS = (["pk"], ["-issued"], ["-paid"])


def database(kind: str, folder: str) -> dict[str, Any]:
    if kind == "sqlite":
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": f"{folder}/rows.sqlite3"}
    keys = {"NAME": "PGDATABASE", "USER": "PGUSER", "PASSWORD": "PGPASSWORD", "HOST": "PGHOST"}
    named = {key: os.environ.get(variable, "") for key, variable in keys.items()}
    named["NAME"] = named["NAME"] or "test"
    named["USER"] = named["USER"] or "postgres"
    named["HOST"] = named["HOST"] or "127.0.0.1"
    return {"ENGINE": "django.db.backends.postgresql", **named}


def make_model() -> Any:
    from django.db import models

    class Row(models.Model):
        issued = models.IntegerField()
        paid = models.IntegerField(null=True)
        text = models.CharField(max_length=100)

        class Meta:
            app_label = "benchmark"
            db_table = f"benchmark_rows_{os.getpid()}"
            indexes = [
                models.Index(fields=["issued", "id"], name=f"bench_issued_{os.getpid()}"),
                models.Index(fields=["paid", "id"], name=f"bench_paid_{os.getpid()}"),
            ]

        def __str__(self) -> str:
            return f"{self.pk}"

    return Row


def fill(model: Any, rows: int) -> None:
    """Ten rows to a value of `issued`; a tenth of the rows without `paid`."""
    from django.db import connection, transaction

    for start in range(0, rows, BATCH):
        numbers = range(start, min(rows, start + BATCH))
        with transaction.atomic():
            model.objects.bulk_create(
                model(
                    issued=number * 7919 % (rows // 10 or 1),
                    paid=number * 104729 % rows if number % 10 else None,
                    text="x" * 80,
                )
                for number in numbers
            )
    with connection.cursor() as cursor:
        cursor.execute(f"ANALYZE {model._meta.db_table}")


def peak() -> float:
    """Return the peak memory of the process in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@dataclass
class Walk:
    """All pages in one order: rows, milliseconds, MiB above the tenth page, two late positions."""

    rows: int = 0
    times: list[float] = field(default_factory=list)
    memory: float = 0.0
    late: Any = None
    last: Any = None


def walk(keyset: Any, queryset: Any, late: int) -> Walk:
    """Read all pages in turn, and keep the position of the page with the number `late`."""
    walked, after, early = Walk(), None, 0.0
    while True:
        start = time.perf_counter()
        rows, following = keyset.page(queryset, after, PAGE)
        walked.times.append((time.perf_counter() - start) * 1000)
        walked.rows, walked.last, number = walked.rows + len(rows), after, len(walked.times)
        walked.late = after if number == late else walked.late
        early = peak() if number == 10 else early
        if following is None:
            walked.memory = peak() - early
            return walked
        after = following


def statements(keyset: Any, queryset: Any, after: Any) -> list[str]:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    with CaptureQueriesContext(connection) as queries:
        keyset.page(queryset, after, PAGE)
    return [query["sql"] for query in queries]


def ask(sql: str) -> list[Any]:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


def query_times(*pages: list[str]) -> list[float]:
    """Return the median milliseconds of the statements of each page, measured in turns."""
    taken: list[list[float]] = [[] for _ in pages]
    for _ in range(SAMPLE):
        for times, page in zip(taken, pages, strict=True):
            start = time.perf_counter()
            for sql in page:
                ask(sql)
            times.append((time.perf_counter() - start) * 1000)
    return [statistics.median(times) for times in taken]


def plan(page: list[str]) -> str:
    """Return the query plans of the statements of a page."""
    from django.db import connection

    explain = "EXPLAIN QUERY PLAN " if connection.vendor == "sqlite" else "EXPLAIN "
    return "\n".join(" ".join(map(str, row)) for sql in page for row in ask(explain + sql))


def is_index_search(text: str) -> bool:
    whole_sort = "Sort" in text.replace("Incremental Sort", "").replace("Sort Key", "")
    searched = "SEARCH" in text or "Index Cond" in text
    return searched and not whole_sort and "TEMP B-TREE" not in text and "Seq Scan" not in text


def measure(model: Any, ordering: list[str], rows: int) -> bool:
    from django_mcp.declarations.fields.keyset import Keyset

    keyset, queryset = Keyset(model, ordering), model.objects.all()
    walked = walk(keyset, queryset, late=rows // PAGE * 99 // 100)
    first, late, last = (
        statements(keyset, queryset, after) for after in (None, walked.late, walked.last)
    )
    first_ms, late_ms, last_ms = query_times(first, late, last)
    # The late page, because the last one is short enough for a database to sort it.
    explained = plan(late)
    indexed = is_index_search(explained)
    slowest = max(late_ms, last_ms)
    print(
        f"{ordering[0]:>8} {len(walked.times):>6} {first_ms:>9.2f} {late_ms:>9.2f} {last_ms:>9.2f}"
        f" {slowest / first_ms:>6.2f} {statistics.median(walked.times):>9.2f}"
        f" {walked.memory:>6.1f}  {'yes' if indexed else 'NO'}"
    )
    if not indexed:
        print(explained)
    within = slowest <= MOST_MS and slowest / first_ms <= MOST_RATIO and walked.memory <= MOST_MIB
    return within and indexed and walked.rows == rows


def run(rows: int) -> bool:
    from django.db import connection

    model = make_model()
    with connection.schema_editor() as editor:
        editor.create_model(model)
    try:
        fill(model, rows)
        head = ("order", "pages", "first ms", "99% ms", "last ms", "ratio", "page() ms", "+MiB")
        print("{:>8} {:>6} {:>9} {:>9} {:>9} {:>6} {:>9} {:>6}  index".format(*head))
        results = [measure(model, ordering, rows) for ordering in ORDERS]
        return all(results)
    finally:
        with connection.schema_editor() as editor:
            editor.delete_model(model)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--database", choices=["sqlite", "postgres"], default="sqlite")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        settings.configure(
            DATABASES={"default": database(options.database, folder)},
            DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
            USE_TZ=True,
        )
        django.setup()
        met = run(options.rows)
    print("met" if met else "UNMET: at most 2x, 5 ms, 10 MiB, an index and no sort")
    return 0 if met else UNMET


if __name__ == "__main__":
    sys.exit(main())
