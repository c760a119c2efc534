"""``manage.py mcp_prune``: delete expired rows."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from ...storage.retention import prune
from ..arguments import DATABASE_ERRORS, database_error

LABELS = {
    "events": "events of streams that ended",
    "sessions": "idle sessions",
    "calls": "finished calls",
    "steps": "results of request.once",
    "changes": "old changes of rows",
    "interests": "subscribed models",
    "visibility_snapshots": "stored lists of what users could see",
    "audit_entries": "entries of the audit log older than AUDIT_DAYS",
    "approvals": "old approvals",
}


class Command(BaseCommand):
    help = (
        "Delete expired rows: events of closed streams, sessions that were idle for "
        "SESSION_LIFETIME with their streams and calls, old changes of rows, and entries of the "
        "audit log and approvals older than AUDIT_DAYS. Open streams and running calls are kept. "
        "Worker processes do the same periodically, and can serve requests while this command runs."
    )
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            counts = prune(on_skipped=self._report_skipped)
        except DATABASE_ERRORS as error:
            hint = "Run 'manage.py migrate', with --database for DJANGO_MCP['DATABASE']."
            raise database_error(error, hint) from error
        for kind, count in counts.items():
            self.stdout.write(f"{LABELS[kind]}: {count}")

    def _report_skipped(self, alias: str) -> None:
        self.stderr.write(
            f"The database {alias!r} is locked or cannot be reached, so old changes of its rows "
            "were not deleted. Run this command again."
        )
