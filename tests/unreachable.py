"""Connection errors as Django raises them, without a server that must be stopped."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django.db import OperationalError, connection
from django.db.backends.sqlite3.base import DatabaseWrapper

from django_mcp.runtime.outages import ConnectionTester


def unreachable(alias: str = "default") -> OperationalError:
    """Return the error that Django raises if a database cannot be opened."""
    found = _raised_in_thread(lambda: _opened("/no/such/directory/db.sqlite3", alias))
    assert isinstance(found, OperationalError)
    return found


def raised(error: Exception) -> Exception:
    """Return Django's error for an error of the driver on a working connection."""
    driver_error: Exception = getattr(sqlite3, type(error).__name__)(*error.args)
    vars(driver_error).update(vars(error.__cause__ or error))

    def fail() -> None:
        wrapper: Any = DatabaseWrapper(connection.settings_dict, "default")
        # Opened without Django, which runs statements then: most tests may not use a database.
        opened = contextlib.closing(sqlite3.connect(":memory:"))
        with opened as wrapper.connection, ConnectionTester(wrapper):
            raise driver_error

    return _raised_in_thread(fail)


def _opened(name: str, alias: str) -> Any:
    given = connection.settings_dict | {"NAME": name, "OPTIONS": {}}
    wrapper: Any = DatabaseWrapper(given, alias)
    with wrapper.wrap_database_errors:  # ``ensure_connection`` is forbidden in most tests
        wrapper.connect()
    return wrapper


def _raised_in_thread(function: Callable[[], object]) -> Exception:
    """Run it in a thread, because Django opens no connection in a thread with an event loop."""
    with ThreadPoolExecutor(1) as threads:
        found = threads.submit(function).exception()
    assert isinstance(found, Exception)
    return found
