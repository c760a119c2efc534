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
    "changes": "changes of rows that subscribers were told of",
    "interests": "subscribed models",
    "visibility_snapshots": "what lists showed to users",
}


class Command(BaseCommand):
    help = (
        "Forget what is over: what ended streams said, sessions that were idle for "
        "SESSION_LIFETIME, and what they left. What is open or under way is left alone. The "
        "processes that serve do the same now and then; it never holds them up."
    )
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            counts = prune()
        except (OperationalError, ProgrammingError) as error:
            hint = "Has 'manage.py migrate' been run, with --database for DJANGO_MCP['DATABASE']?"
            raise CommandError(f"{error}\n{hint}") from error
        for kind, count in counts.items():
            self.stdout.write(f"{LABELS[kind]}: {count}")
