"""
Rows among which a call finds its own: cities, sessions and subscriptions, as many as are asked for.

`BENCHMARK_ROWS`, `BENCHMARK_SESSIONS` and `BENCHMARK_SUBSCRIPTIONS` are the numbers. The sessions
belong to other users, and nobody uses them.
"""

from __future__ import annotations

import os
from itertools import islice

from django.conf import settings
from django.db import connection
from django.utils import timezone

from benchmarks.models import City
from django_mcp.models import Change, Session, Subscription
from django_mcp.storage import change_log
from django_mcp.storage.databases import digest_of, rows

CITIES = 1000
SUBSCRIPTIONS_OF_SESSION = 100
OWNERS = 1000
# One statement, because a million objects take a minute.
INSERT = """
    INSERT INTO {} (name, population)
    WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {})
    SELECT 'City ' || n, n * 1000 % 2000000000 FROM numbers
"""


def fill() -> None:
    """Make the rows that the environment asks for, if there are none."""
    if City.objects.exists():
        return
    with connection.cursor() as cursor:
        number = int(os.environ.get("BENCHMARK_ROWS", CITIES))
        cursor.execute(INSERT.format(City._meta.db_table, number))
    if number := int(os.environ.get("BENCHMARK_SESSIONS", 0)):
        make_sessions(number)
    if number := int(os.environ.get("BENCHMARK_SUBSCRIPTIONS", 0)):
        subscribe(number)


def make_sessions(number: int) -> list[Session]:
    now = timezone.now()
    made = (
        Session(
            digest=digest_of(f"session {n}"),
            server="default",
            owner=f"user {n % OWNERS}",
            user=f"{n % OWNERS}",
            revision="2025-11-25",
            initialized=True,
            created=now,
            last_seen=now,
        )
        for n in range(number)
    )
    return rows(Session).bulk_create(made, batch_size=5_000)


def subscribe(number: int) -> None:
    """Make subscriptions to that many rows, the first of which is that of the city 7."""
    if settings.DJANGO_MCP["DATABASE"] != "default" and not change_log.has_table("default"):
        with connection.schema_editor() as editor:
            editor.create_model(Change)
    keys = iter([7, *range(10_000, 10_000 + number - 1)])
    for session in make_sessions(-(-number // SUBSCRIPTIONS_OF_SESSION)):
        rows(Subscription).bulk_create(
            Subscription(
                session=session,
                digest=digest_of(uri := f"model://benchmarks/city/{key}"),
                uri=uri,
                row_ref=f"benchmarks.city {key}",
            )
            for key in islice(keys, SUBSCRIPTIONS_OF_SESSION)
        )
    change_log.store_interests(change_log.SESSIONS_HOLDER, ["benchmarks.city"])
