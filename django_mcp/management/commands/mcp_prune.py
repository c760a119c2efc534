"""``manage.py mcp_prune``: delete ended streams, idle sessions and finished calls."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db.utils import OperationalError, ProgrammingError

from ...storage.retention import prune

LABELS = {
    "events": "events of streams that ended",
    "sessions": "idle sessions",
    "calls": "finished calls",
    "steps": "results of request.once",
    "changes": "old changes of rows",
    "interests": "subscribed models",
    "visibility_snapshots": "stored lists of what users could see",
}


class Command(BaseCommand):
    help = (
        "Delete events of closed streams, sessions that were idle for SESSION_LIFETIME, and "
        "their rows. Open streams and running calls are kept. Worker processes do the same "
        "periodically, and can serve requests while this command runs."
    )
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            counts = prune()
        except (OperationalError, ProgrammingError) as error:
            hint = "Run 'manage.py migrate', with --database for DJANGO_MCP['DATABASE']."
            raise CommandError(f"{error}\n{hint}") from error
        for kind, count in counts.items():
            self.stdout.write(f"{LABELS[kind]}: {count}")
