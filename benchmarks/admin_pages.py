"""
How long the admin's pages take with many rows, and by which plans SQLite finds them.

    python -m benchmarks.admin_pages --sessions 100000 --events 500000

It fills a SQLite file in a temporary folder, asks each page three times, and prints the median time
and the plan of the slowest query. Exits with 3 if a page takes longer than a second.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

import django
from django.conf import settings

from tools.benchmark import UNMET

MAX_SECONDS = 1.0
BATCH = 2_000
RUNNING_CALLS = 200  # the others are done
APP = "/admin/django_mcp/"
PAGES = (
    f"{APP}session/control-room/", f"{APP}session/", f"{APP}session/?active=yes",
    f"{APP}session/?server=nothing", f"{APP}session/?q=7", f"{APP}session/?p=40",
    f"{APP}session/1/change/", f"{APP}stream/", f"{APP}stream/?closed__exact=0",
    f"{APP}stream/1/messages/", f"{APP}event/", f"{APP}event/?final__exact=1", f"{APP}call/",
    f"{APP}call/?state=running", f"{APP}call/?method=prompts/get", f"{APP}switch/", f"{APP}token/",
)  # fmt: skip


def set_up(folder: str) -> None:
    contrib = [f"django.contrib.{name}" for name in
               ("admin", "auth", "contenttypes", "sessions", "messages")]  # fmt: skip
    processors = ["django.template.context_processors.request",
                  "django.contrib.auth.context_processors.auth",
                  "django.contrib.messages.context_processors.messages"]  # fmt: skip
    settings.configure(
        SECRET_KEY="measured, not served", ALLOWED_HOSTS=["*"], USE_TZ=True,
        INSTALLED_APPS=[*contrib, "django_mcp"], ROOT_URLCONF="tests.admin.urls",
        STATIC_URL="static/", DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3",
                               "NAME": f"{folder}/rows.sqlite3"}},
        TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates",
                    "APP_DIRS": True, "OPTIONS": {"context_processors": processors}}],
        MIDDLEWARE=["django.contrib.sessions.middleware.SessionMiddleware",
                    "django.contrib.auth.middleware.AuthenticationMiddleware",
                    "django.contrib.messages.middleware.MessageMiddleware"],
        PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
    )  # fmt: skip
    django.setup()


def insert(model: Any, rows: Iterable[Any]) -> None:
    some: list[Any] = []
    for row in rows:
        some.append(row)
        if len(some) == BATCH:
            model.objects.bulk_create(some)
            some = []
    model.objects.bulk_create(some)


def fill(sessions: int, events: int) -> None:
    """Insert sessions of 1,000 users, a stream and a call of each, and the events."""
    from django.contrib.auth.models import User
    from django.utils import timezone

    from django_mcp.models import Call, Event, Session, Stream

    now = timezone.now()
    insert(User, (User(username=f"user {number}") for number in range(1_000)))
    insert(Session, (
        Session(
            digest=f"{number:064}", server="default", owner=f"{number % 1000 + 1}::",
            user=str(number % 1000 + 1), revision="2025-11-25", streams=1, initialized=True,
            client_info={"name": "Client", "version": "1"},
            last_seen=now - timedelta(seconds=number / 10),
        )
        for number in range(sessions)
    ))  # fmt: skip
    insert(Stream, (
        Stream(session_id=number + 1, closed=number % 10 > 0, last=events // sessions, size=1_000)
        for number in range(sessions)
    ))  # fmt: skip
    insert(Call, (
        Call(
            session_id=number + 1, stream_id=number + 1, request_id="1", request_digest="d" * 64,
            method="tools/call", name="refund", user=str(number % 1000 + 1),
            state="running" if number < RUNNING_CALLS else "done",
        )
        for number in range(sessions)
    ))  # fmt: skip
    insert(Event, all_events(Event, sessions, events))


def all_events(model: Any, sessions: int, events: int) -> Iterator[Any]:
    text = '{"jsonrpc": "2.0", "method": "notifications/progress", "params": {}}'
    for number in range(events):
        seq, stream = divmod(number, sessions)
        yield model(stream_id=stream + 1, seq=seq + 1, data=text, size=len(text), final=seq == 4)


def measure(client: Any, page: str) -> tuple[float, int, str]:
    """Return the median time of a page, its number of queries, and its slowest query."""
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    times = []
    for _ in range(3):
        began = time.perf_counter()
        response = client.get(page)
        times.append(time.perf_counter() - began)
        if response.status_code != 200:
            sys.exit(f"{page}: {response.status_code}")
    with CaptureQueriesContext(connection) as ran:
        client.get(page)
    slowest = max(ran.captured_queries, key=lambda query: float(query["time"]))
    return statistics.median(times), len(ran), str(slowest["sql"])


def plan(sql: str) -> list[str]:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {sql}".replace("%", "%%"))
        return [str(row[-1]) for row in cursor.fetchall()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--events", type=int, default=500_000)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        set_up(folder)
        from django.contrib.auth.models import User
        from django.core.management import call_command
        from django.test import Client

        call_command("migrate", verbosity=0)
        fill(chosen.sessions, chosen.events)
        client = Client()
        client.force_login(User.objects.create_superuser("root", password="x"))
        slow = 0
        for page in PAGES:
            seconds, queries, sql = measure(client, page)
            slow += seconds > MAX_SECONDS
            print(f"{seconds * 1000:7.0f} ms  {queries:2} queries  {page}")
            print(f"            {'; '.join(plan(sql))[:160]}", flush=True)
    return UNMET if slow else 0


if __name__ == "__main__":
    sys.exit(main())
