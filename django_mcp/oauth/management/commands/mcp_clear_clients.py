"""``manage.py mcp_clear_clients``: delete unused clients, and old bindings and activity."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from ...activity import forget_old, old
from ...registration_limits import expired, idle, reap, reap_idle, unused
from ...upstream_accounts import forget_bindings

ROWS_PER_BATCH = 500


class Command(BaseCommand):
    help = (
        "Forget the clients that made themselves known longer than UNUSED seconds ago and that "
        "nobody authorized since, and those that registered themselves, were authorized, and were "
        "not used for 90 days. Whoever has a token that is good, or is blocked stays. "
        "What clients did for people is forgotten after 90 days."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="Only tell how many.")

    def handle(self, *args: Any, **options: Any) -> None:
        before = expired()
        if options["dry_run"]:
            self.stdout.write(f"Would forget {unused(before).count() + idle().count()} clients.")
            self.stdout.write(f"Would forget {old().count()} records of what clients did.")
            return
        total = 0
        while count := reap(before, ROWS_PER_BATCH) + reap_idle(ROWS_PER_BATCH):
            total += count
        while forget_bindings():
            pass
        self.stdout.write(f"Forgot {total} clients.")
        self.stdout.write(f"Forgot {forget_old()} records of what clients did.")
