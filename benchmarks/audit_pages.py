"""
How long the admin's pages take with a million entries of the audit log and 100,000 sessions.

    python -m tools benchmark audit [--short] [--entries 1000000] [--sessions 100000] [--rounds 5]

A superuser requests each page from Django's test client, in this process, over SQLite files. The
figures are the slowest of the rounds: the time, and the processor time of this process, which
depends little on other programs. Also measured are the export of all entries, and how long inserts
wait while old entries are deleted. Exits with 1 if a page is not found or empty, and with 3 if a
page takes longer than a second of processor time.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

from tools.benchmark import UNMET

SECONDS = 1.0
DAYS = 90  # over which the entries are spread
# One statement, because a million objects take minutes. One in 40 entries is an error, and one in
# 1,000 a prompt. Each of 500 users has the same number of entries.
INSERT = """
    INSERT INTO django_mcp_auditentry (at, server, method, name, "user", username, client,
        client_name, session, transport, revision, arguments, outcome, error, duration, queries,
        rows_written, trace_id)
    WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < %(number)s)
    SELECT strftime('%%Y-%%m-%%d %%H:%%M:%%f000', %(first)s,
            (n * %(days)s * 86400.0 / %(number)s) || ' seconds'),
        'default', CASE WHEN n %% 1000 = 0 THEN 'prompts/get' ELSE 'tools/call' END,
        'tool_' || (n %% 40), n %% 500, 'user_' || (n %% 500), 'client_' || (n %% 20), 'Client',
        n / 20, 'http', '2025-11-25', '{"number":' || n || ',"note":"' || %(note)s || '"}',
        CASE WHEN n %% 40 = 0 THEN 'failed' WHEN n %% 97 = 0 THEN 'denied' ELSE 'ok' END,
        '', 0.05, 3, 1, printf('%%032x', n / 4)
    FROM numbers
"""
RETENTION_DAYS = 60  # so a third of the entries is deleted


def fill(entries: int, sessions: int) -> None:
    from django.contrib.auth import get_user_model
    from django.core.management import call_command
    from django.db import connection, connections
    from django.utils import timezone

    from benchmarks.rows import make_sessions

    for alias in connections:
        call_command("migrate", database=alias, run_syncdb=True, verbosity=0)
    first = timezone.now() - timedelta(days=DAYS)
    with connection.cursor() as cursor:
        values = {"number": entries, "days": DAYS, "first": f"{first:%Y-%m-%d %H:%M:%S}"}
        cursor.execute(INSERT, values | {"note": "x" * 200})
    make_sessions(sessions)
    get_user_model().objects.create_superuser("root", password="x")


def pages() -> Iterator[tuple[str, str]]:
    """Yield what is measured, and its address."""
    from django.db.models import Max
    from django.urls import reverse

    from django_mcp.models import AuditEntry, Session

    audit, sessions = (
        reverse(f"admin:django_mcp_{name}_changelist") for name in ("auditentry", "session")
    )
    entry = AuditEntry.objects.latest("pk")
    day = entry.at - timedelta(days=40)
    year, month, chosen = (
        {"at__year": day.year},
        {"at__year": day.year, "at__month": day.month},
        {"at__year": day.year, "at__month": day.month, "at__day": day.day},
    )
    lists: dict[str, dict[str, Any]] = {
        "list": {},
        "last page of the list": {"p": 100},
        "by time, the oldest first": {"o": "1"},
        "outcome failed": {"outcome": "failed"},
        "outcome denied": {"outcome": "denied"},
        "outcome without entries": {"outcome": "cancelled"},
        "method prompts/get": {"method": "prompts/get"},
        "method without entries": {"method": "resources/read"},
        "server": {"server": "default"},
        "server without entries": {"server": "other"},
        "outcome without entries, and a method": {"outcome": "cancelled", "method": "tools/call"},
        "outcome without entries, and a server": {"outcome": "cancelled", "server": "default"},
        "outcome and method": {"outcome": "failed", "method": "prompts/get"},
        "user": {"user": "7"},
        "client": {"client": "client_7"},
        "session": {"session": str(entry.session)},
        "trace": {"trace_id": entry.trace_id},
        "search for a user": {"q": "user_7"},
        "search for a tool": {"q": "tool_7"},
        "search for a trace id": {"q": entry.trace_id},
        "search without a match": {"q": "nothing"},
        "a year": year,
        "a month": month,
        "a year and a server": year | {"server": "default"},
        "a year and a method": year | {"method": "tools/call"},
        "a month and a user": month | {"user": "7"},
        "a day": chosen,
        "a day and an outcome": chosen | {"outcome": "failed"},
        "a year and a rare method": year | {"method": "resources/read"},
    }
    for name, query in lists.items():
        yield f"audit log: {name}", f"{audit}?{urlencode(query)}"
    yield "audit log: calls by day", reverse("admin:django_mcp_auditentry_by_day")
    yield "audit log: an entry", reverse("admin:django_mcp_auditentry_change", args=(entry.pk,))
    yield "sessions: list", sessions
    last = Session.objects.using("mcp").aggregate(pk=Max("pk"))["pk"]
    yield "sessions: a session", reverse("admin:django_mcp_session_change", args=(last,))
    yield "index of the admin", reverse("admin:index")


def seconds(
    function: Callable[[], object], clock: Callable[[], float] = time.perf_counter
) -> float:
    began = clock()
    function()
    return clock() - began


def measure(rounds: int) -> bool:
    """Request each page. Return whether all are fast enough."""
    from django.contrib.auth import get_user_model
    from django.test import Client

    client = Client()
    client.force_login(get_user_model().objects.get(username="root"))
    are_met = True
    print("\n| page | seconds, the slowest of the rounds | of the processor |\n|---|---|---|")
    for name, address in pages():

        def request(address: str = address) -> None:
            response = client.get(address)
            assert response.status_code == 200, (address, response.status_code)

        took = [(seconds(request), seconds(request, time.process_time)) for _ in range(rounds)]
        slowest, busiest = map(max, zip(*took, strict=True))
        are_met &= busiest <= SECONDS
        unmet = "" if busiest <= SECONDS else " UNMET"
        print(f"| {name} | {slowest:.2f} | {busiest:.2f}{unmet} |", flush=True)
    return are_met


def memory() -> int:
    """Return the most memory that this process has had, in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def export() -> None:
    """Export all entries, and print the time, and by how much the most memory has grown."""
    from django_mcp.management.audit_export import as_csv, pages
    from django_mcp.models import AuditEntry

    size, before = 0, memory()
    began = time.perf_counter()
    for text in as_csv(pages(AuditEntry.objects.all())):
        size += len(text)
    took, grown = time.perf_counter() - began, memory() - before
    print(f"\nExport of all entries: {took:.0f} s, {size / 2**20:.0f} MiB, "
          f"{grown / 2**10:.1f} MiB more memory")  # fmt: skip


def prune() -> None:
    """Delete old entries, and print how long inserts of another thread waited."""
    from django.conf import settings
    from django.db import connection
    from django.test import override_settings
    from django.utils import timezone

    from django_mcp.storage import audit_log

    entry = audit_log.NewEntry(
        timezone.now(), "default", "tools/call", "tool", None, "", "", "", None, "http",
        "2025-11-25", None, None, "ok", "", 0.1, 0, 0, "",
    )  # fmt: skip
    has_ended, waits = threading.Event(), list[float]()

    def insert() -> None:
        while not waits or not has_ended.wait(0.02):
            waits.append(seconds(lambda: audit_log.insert([entry])))
        connection.close()

    other = threading.Thread(target=insert)
    other.start()
    began = time.perf_counter()
    # The package reads changed settings again only after Django's signal ``setting_changed``.
    with override_settings(DJANGO_MCP=settings.DJANGO_MCP | {"AUDIT_DAYS": RETENTION_DAYS}):
        deleted = audit_log.delete_expired_entries()
    took = time.perf_counter() - began
    has_ended.set()
    other.join()
    assert deleted, "No entry was old enough to be deleted."
    print(f"Deleted {deleted} entries in {took:.0f} s; meanwhile {len(waits)} inserts took "
          f"at most {max(waits):.2f} s")  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--short", action="store_true", help="a tenth of the rows, two rounds")
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    share, rounds = (10, 2) if options.short else (1, options.rounds)
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        os.environ |= {
            "DJANGO_SETTINGS_MODULE": "benchmarks.settings", "BENCHMARK_ADMIN": "1",
            "BENCHMARK_FOLDER": folder,
        }  # fmt: skip
        import django

        django.setup()
        took = seconds(lambda: fill(options.entries // share, options.sessions // share))
        print(f"{options.entries // share:,} entries and {options.sessions // share:,} sessions "
              f"made in {took:.0f} s")  # fmt: skip
        are_met = measure(rounds)
        export()
        prune()
    return 0 if are_met else UNMET


if __name__ == "__main__":
    sys.exit(main())
