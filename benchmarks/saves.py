"""
What a save costs with no subscriber, with one, and with 5,000.

    python -m benchmarks.saves [--database postgres] [--short]

Rows of one model are saved, each in its own transaction, in turns: with a model that is not
registered, with one that is registered and has no subscription, and with 1 and 5,000 subscriptions.
Exits with 3 unless 5,000 cost at most 1.1 times as much as one, and none at most 1.1 times as much
as a model that is not registered. On SQLite, project and session database are files of their own.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import django

from tools.benchmark import UNMET

MOST, SUBSCRIBERS = 1.1, 5_000
WARM = 20  # saves that are not counted
CITY = "benchmarks.city"


def main(arguments: list[str]) -> int:
    given = options(arguments)
    with tempfile.TemporaryDirectory() as folder:
        prepare(folder, given.database)
        found = measured(given.rounds, given.saves)
    for name, microseconds in found.items():
        print(f"{name:>30}  {microseconds:8.0f} us a save")
    for name, ratio in ratios(found).items():
        print(f"{name:>30}  {ratio:8.2f}  (at most {MOST})")
    return UNMET if max(ratios(found).values()) > MOST else 0


def ratios(found: dict[str, float]) -> dict[str, float]:
    """Return the ratios that have limits."""
    return {
        "5,000 to one": found["5,000 subscribers"] / found["one subscriber"],
        "no subscriber to not registered": found["no subscriber"] / found["not registered"],
    }


def options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.saves")
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--saves", type=int, default=200)
    parser.add_argument("--short", action="store_true")
    given = parser.parse_args(arguments)
    if given.short:
        given.rounds, given.saves = 5, 50
    return given


def prepare(folder: str, database: str) -> None:
    os.environ.setdefault("BENCHMARK_FOLDER", folder)
    os.environ.setdefault("BENCHMARK_DATABASE", database)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchmarks.settings")
    django.setup()
    from django.conf import settings
    from django.core.management import call_command

    for alias in settings.DATABASES:
        call_command("migrate", verbosity=0, database=alias, run_syncdb=True)
    add_changes()


def add_changes() -> None:
    """Add the change log, as `migrate` does in a project that has registered the model."""
    from django.db import connections

    from django_mcp.models import Change
    from django_mcp.storage import change_log

    if not change_log.has_table("default"):
        with connections["default"].schema_editor() as editor:
            editor.create_model(Change)


def measured(rounds: int, saves: int) -> dict[str, float]:
    """Return the microseconds of a save: the median of all rounds, in which the cases take turns.

    It is the median of single saves, because now and then one waits for the disk.
    """
    from benchmarks.models import City

    city, registered = City.objects.create(name="Rome", population=1), registering()
    measurements: dict[str, Callable[[], None]] = {
        "not registered": lambda: registered(False),
        "no subscriber": lambda: subscribed(0),
        "one subscriber": lambda: subscribed(1),
        "5,000 subscribers": lambda: subscribed(SUBSCRIBERS),
    }
    took: dict[str, list[float]] = {name: [] for name in measurements}
    for _ in range(rounds):
        registered(True)
        for name, arrange in reversed(measurements.items()):
            arrange()
            took[name].extend(timed(city, saves))
    return {name: statistics.median(found) * 1e6 for name, found in took.items()}


def registering() -> Callable[[bool], None]:
    """Return a function that registers the model on a server of its own, or takes it off."""
    import django_mcp as mcp
    from benchmarks.models import City
    from django_mcp.declarations import server as servers

    server = servers.Server("saves")
    server.register(City, type("Cities", (mcp.ModelResource,), {"fields": ["name"]}))
    records = list(server._records)

    def registered(is_so: bool) -> None:
        server._records[:] = records if is_so else []
        servers._change(records[0])

    return registered


def timed(city: Any, saves: int) -> list[float]:
    """Return the seconds of each save."""
    for _ in range(WARM):  # the preparation is still being written to the disk
        save(city)
    marks = [time.perf_counter()]
    for _ in range(saves):
        save(city)
        marks.append(time.perf_counter())
    return [end - start for start, end in itertools.pairwise(marks)]


def save(city: Any) -> None:
    from django.db import transaction

    with transaction.atomic():
        city.save()


def subscribed(count: int) -> None:
    """Leave this many subscriptions to the row, and no others."""
    from django_mcp.models import Interest, Session, Subscription
    from django_mcp.storage import change_log, sessions
    from django_mcp.storage.databases import digest_of, erase, rows

    for model in (Subscription, Session, Interest):
        erase(rows(model).all())
    change_log.watched.forget()
    if not count:
        return
    _, session = sessions.create(
        server="saves", owner="", user=None, revision="2025-11-25", client_info={}, capabilities={}
    )
    uris = [f"model://benchmarks/city/{number}" for number in range(count)]
    rows(Subscription).bulk_create(
        [
            Subscription(session=session, digest=digest_of(uri), uri=uri, place=f"{CITY} {number}")
            for number, uri in enumerate(uris)
        ],
        batch_size=500,
    )
    change_log.declare(change_log.SESSIONS_HOLDER, [CITY])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
