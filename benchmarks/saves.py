"""
What a save costs with no subscriber, with one, and with 5,000, and a project that has none.

    python -m benchmarks.saves [--database postgres] [--short]

Rows are saved in turns, each in its own transaction: of a model that is not registered, in this
process and in one without the app; and of a registered model with no subscription, with 1 and with
5,000. A many-to-many relation between rows of the unregistered model is added and removed, in both
processes. So is a user saved, whose changes the app always watches: all fields, and only the time
of the last login. On SQLite, each process has files of its own.

Exits with 3 unless 5,000 subscriptions cost at most 1.1 times as much as one, none at most 1.1
times as much as a model that is not registered, and that model and a user at most 1.1 times as much
as without the app.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from multiprocessing import get_context
from typing import Any

import django

from tools.benchmark import UNMET

MOST, SUBSCRIBERS = 1.1, 5_000
WARM = 20  # saves that are not counted
CITY = "benchmarks.city"
RATIOS = (
    ("not registered", "without the app"),
    ("add and remove, not registered", "add and remove, without the app"),
    ("user", "user, without the app"),
    ("login", "login, without the app"),
    ("no subscriber", "not registered"),
    ("5,000 subscribers", "one subscriber"),
)


def main(arguments: list[str]) -> int:
    given = options(arguments)
    with tempfile.TemporaryDirectory() as folder:
        prepare(folder, given.database)
        with without_app(folder, given.database) as process:
            found = measured(given.rounds, given.saves, process)
    for name, medians in found.items():
        print(f"{name:>32}  {statistics.median(medians) * 1e6:8.0f} us")
    ratios = {f"{one} to {other}": median_ratio(found[one], found[other]) for one, other in RATIOS}
    for name, ratio in ratios.items():
        print(f"{ratio:6.2f} (at most {MOST})  {name}")
    return UNMET if max(ratios.values()) > MOST else 0


def median_ratio(some: list[float], others: list[float]) -> float:
    """Return the median of the ratios within each round."""
    return statistics.median(one / other for one, other in zip(some, others, strict=True))


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
    if "django_mcp" in settings.INSTALLED_APPS:
        add_changes()


def add_changes() -> None:
    """Add the change log, as `migrate` does in a project that has registered the model."""
    from django.db import connections

    from django_mcp.models import Change
    from django_mcp.storage import change_log

    if not change_log.has_table("default"):
        with connections["default"].schema_editor() as editor:
            editor.create_model(Change)


def without_app(folder: str, database: str) -> ProcessPoolExecutor:
    """Return a process that runs the same project without the app."""
    return ProcessPoolExecutor(
        1, get_context("spawn"), initializer=prepare_without_app, initargs=(folder, database)
    )


def prepare_without_app(folder: str, database: str) -> None:
    os.environ |= {"BENCHMARK_WITHOUT_APP": "1", "BENCHMARK_FOLDER": f"{folder}/without"}
    os.mkdir(f"{folder}/without")
    prepare(folder, database)


# Measuring.


def measured(rounds: int, saves: int, process: ProcessPoolExecutor) -> dict[str, list[float]]:
    """Return the seconds of each case: the median of each round, in which the cases take turns.

    It is the median of single saves, because now and then one waits for the disk.
    """
    server = registered()  # servers are held by weak references
    elsewhere = lambda work: process.submit(timed, work, saves).result()  # noqa: E731
    here = partial(timed, saves=saves)

    def followed(count: int) -> list[float]:
        subscribed(count)
        return here(save_city)

    def unfollowed(work: Callable[[], None]) -> list[float]:
        subscribed(0)
        return here(work)

    cases: dict[str, Callable[[], list[float]]] = {
        "without the app": lambda: elsewhere(save_town),
        "not registered": lambda: here(save_town),
        "add and remove, without the app": lambda: elsewhere(add_and_remove),
        "add and remove, not registered": lambda: here(add_and_remove),
        "user, without the app": lambda: elsewhere(save_user),
        "user": lambda: unfollowed(save_user),
        "login, without the app": lambda: elsewhere(save_login),
        "login": lambda: unfollowed(save_login),
        "no subscriber": lambda: followed(0),
        "one subscriber": lambda: followed(1),
        "5,000 subscribers": lambda: followed(SUBSCRIBERS),
    }
    took: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            took[name].append(statistics.median(case()))
    del server
    return took


def timed(work: Callable[[], None], saves: int) -> list[float]:
    """Return the seconds of each save."""
    for _ in range(WARM):  # the preparation is still being written to the disk
        work()
    found = []
    for _ in range(saves):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return found


# What is measured.


@cache
def rows() -> tuple[Any, Any, Any]:
    """Return a row of the registered model, and two of the other one."""
    from benchmarks.models import City, Town

    return (
        City.objects.create(name="Rome", population=1),
        Town.objects.create(name="Ostia", population=1),
        Town.objects.create(name="Tivoli", population=1),
    )


@cache
def user() -> Any:
    from django.contrib.auth import get_user_model

    return get_user_model().objects.create(username="alice")


def save_user() -> None:
    _save(user())


def save_login() -> None:
    """Save what Django saves when a user logs in."""
    from django.utils import timezone

    user().last_login = timezone.now()
    _save(user(), ["last_login"])


def save_city() -> None:
    _save(rows()[0])


def save_town() -> None:
    _save(rows()[1])


def _save(row: Any, update_fields: list[str] | None = None) -> None:
    from django.db import transaction

    with transaction.atomic():
        row.save(update_fields=update_fields)


def add_and_remove() -> None:
    from django.db import transaction

    _, town, other = rows()
    with transaction.atomic():
        town.near.add(other)
        town.near.remove(other)


def registered() -> Any:
    """Return a server on which the model of cities is registered."""
    import django_mcp as mcp
    from benchmarks.models import City
    from django_mcp.declarations.server import Server

    server = Server("saves")
    server.register(City, type("Cities", (mcp.ModelResource,), {"fields": ["name"]}))
    return server


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
            Subscription(
                session=session, digest=digest_of(uri), uri=uri, row_ref=f"{CITY} {number}"
            )
            for number, uri in enumerate(uris)
        ],
        batch_size=500,
    )
    change_log.store_interests(change_log.SESSIONS_HOLDER, [CITY])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
