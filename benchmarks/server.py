"""
The project that is measured: `uvicorn benchmarks.server:application` serves it at `/mcp`.

It makes its tables and rows when it starts, under a lock, so that several workers may start at
once. With `BENCHMARK_COUNT` in the environment, `/queries` returns the number of executed SQL
statements. With `BENCHMARK_BURST_PAGES` it has the pages of `benchmarks.burst_pages`, and with
`BENCHMARK_STATE` that of `benchmarks.soak_page`. With `BENCHMARK_STEPS` it measures its steps.
"""

from __future__ import annotations

import fcntl
import os
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchmarks.settings")

from django.conf import settings  # noqa: E402
from django.core.asgi import get_asgi_application  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import connections  # noqa: E402
from django.db.backends.signals import connection_created  # noqa: E402

EXECUTED: list[None] = []  # appending is atomic, whatever the thread


def prepare() -> None:
    """Make tables and rows, once for all processes that start."""
    settings.FOLDER.mkdir(parents=True, exist_ok=True)
    with (settings.FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for alias in connections:
            call_command("migrate", database=alias, run_syncdb=True, verbosity=0)
        fill()
    connections.close_all()


def fill() -> None:
    from benchmarks import rows

    rows.fill()
    if os.environ.get("BENCHMARK_OAUTH"):
        from benchmarks import tokens

        tokens.fill()


def counting(application: Any) -> Any:
    """Add a page that returns how many statements this process has executed."""
    from benchmarks.peers.bare import respond

    connection_created.connect(watch, dispatch_uid="benchmark")

    async def counted(scope: Any, receive: Any, send: Any) -> None:
        if scope.get("path") == "/queries":
            await respond(b"%d" % len(EXECUTED), send)
        else:
            await application(scope, receive, send)

    return counted


def watch(connection: Any, **details: Any) -> None:
    if count not in connection.execute_wrappers:
        connection.execute_wrappers.append(count)


def count(execute: Any, *arguments: Any) -> Any:
    EXECUTED.append(None)
    return execute(*arguments)


django = get_asgi_application()
prepare()

from django_mcp.routing import mount  # noqa: E402

application = mount(django)
if os.environ.get("BENCHMARK_COUNT"):
    application = counting(application)
if os.environ.get("BENCHMARK_BURST_PAGES"):
    from benchmarks.burst_pages import with_burst_pages

    application = with_burst_pages(application)
if os.environ.get("BENCHMARK_STEPS"):
    from benchmarks.steps import with_steps

    application = with_steps(application)
if os.environ.get("BENCHMARK_STATE"):
    from benchmarks.soak_page import with_state_page

    application = with_state_page(application)
