"""``manage.py mcp_clear_clients``: delete unused clients, and old bindings and activity."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from ...activity import delete_expired_activities, expired_activities
from ...registration_limits import (
    delete_idle,
    delete_unused,
    idle_clients,
    unused_clients,
    unused_cutoff,
)
from ...upstream_accounts import delete_old_bindings

ROWS_PER_BATCH = 500


class Command(BaseCommand):
    help = (
        "Delete OAuth clients that registered themselves and were not authorized within UNUSED "
        "seconds, and those that were not used for 90 days. Also delete records of client activity "
        "older than 90 days. Clients with a valid token and blocked clients are kept."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--dry-run", action="store_true", help="Only show how many would be deleted."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        before = unused_cutoff()
        if options["dry_run"]:
            clients = unused_clients(before).count() + idle_clients().count()
            self.stdout.write(f"Would delete {clients} clients.")
            self.stdout.write(f"Would delete {expired_activities().count()} records of activity.")
            return
        total = 0
        while count := delete_unused(before, ROWS_PER_BATCH) + delete_idle(ROWS_PER_BATCH):
            total += count
        while delete_old_bindings():
            pass
        self.stdout.write(f"Deleted {total} clients.")
        self.stdout.write(f"Deleted {delete_expired_activities()} records of activity.")
