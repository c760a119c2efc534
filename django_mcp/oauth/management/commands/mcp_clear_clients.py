"""``manage.py mcp_clear_clients``: forget clients that nobody ever authorized."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from ...unused import expired, reap, unused

AT_ONCE = 500


class Command(BaseCommand):
    help = (
        "Forget the clients that made themselves known longer than UNUSED seconds ago and that "
        "nobody authorized since. Whoever was authorized, has a token, or is blocked stays."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="Only tell how many.")

    def handle(self, *args: Any, **options: Any) -> None:
        before = expired()
        if options["dry_run"]:
            self.stdout.write(f"Would forget {unused(before).count()} clients.")
            return
        total = 0
        while count := reap(before, AT_ONCE):
            total += count
        self.stdout.write(f"Forgot {total} clients.")
