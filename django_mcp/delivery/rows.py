"""
The way to the rows: which database, in which transaction.

Rule: a transaction begins with the statement that takes its lock, and locks are
taken in one order: session, call, streams by id. Where two meet all the same,
one of them begins again; ``SELECT ... FOR UPDATE`` is never relied on, for
SQLite ignores it.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from django.db import OperationalError, connections, models, transaction

from ..conf import settings
from . import patience

P = ParamSpec("P")
T = TypeVar("T")
M = TypeVar("M", bound=models.Model)

ATTEMPTS = 5
PAUSE = 0.05  # seconds, about, so that who was waiting goes first
# Serialization failure and deadlock, in PostgreSQL's words and in MariaDB's.
COLLISIONS = frozenset(("40001", "40P01", 1213, 1020))


def rows(model: type[M]) -> models.QuerySet[M]:
    """The rows of a model, where the log is kept."""
    return model._default_manager.using(settings.DATABASE)


def is_there(alias: str) -> bool:
    """Whether there is such a database: to connect to a file makes it, which is for ``migrate``."""
    connection: Any = connections[alias]
    is_file = connection.vendor == "sqlite" and not connection.is_in_memory_db()
    if not is_file or connection.connection is not None:
        return True
    name = str(connection.get_connection_params()["database"])
    return name.startswith("file:") or Path(name).exists()  # by a URI a file need not be made


def row_with(model: type[M], column: str, value: str) -> M | None:
    """The row that alone has ``value`` there, by a statement that is written once.

    For what every request looks up: writing it takes longer than executing it.
    """
    vendor = transaction.get_connection(settings.DATABASE).vendor
    statement = _looking_up(model, column, settings.DATABASE, vendor)
    return next(iter(rows(model).raw(statement, [value])), None)


@lru_cache(maxsize=32)
def _looking_up(model: type[M], column: str, alias: str, vendor: str) -> str:
    found = model._default_manager.using(alias).filter(**{column: "a value"})
    return str(found.query.get_compiler(alias).as_sql()[0])


def one_transaction(function: Callable[P, T]) -> Callable[P, T]:
    """Do all of ``function`` or nothing; again, if the database chose it to give way."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        if transaction.get_connection(settings.DATABASE).in_atomic_block:
            return _atomically(function, *args, **kwargs)
        for _ in range(ATTEMPTS - 1):
            try:
                return _alone(function, *args, **kwargs)
            except OperationalError as error:
                if not _collided(error):
                    raise
                time.sleep(random.uniform(0.5, 1.5) * PAUSE)
        return _alone(function, *args, **kwargs)

    return run


def _atomically(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    with transaction.atomic(using=settings.DATABASE):
        return function(*args, **kwargs)


def _alone(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    with transaction.atomic(using=settings.DATABASE):
        patience.limit_here(transaction.get_connection(settings.DATABASE))
        return function(*args, **kwargs)


def _collided(error: OperationalError) -> bool:
    return not COLLISIONS.isdisjoint(patience.codes(error))


def erase(found: models.QuerySet[Any]) -> int:
    """Delete rows without fetching them, and without telling any signal."""
    return int(found._raw_delete(settings.DATABASE) or 0)


def digest_of(text: str) -> str:
    """By which a text is looked up: the databases do not agree on which texts are equal."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
