"""``manage.py mcp_audit``: export the audit log as CSV or JSON lines."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TextIO

from django.conf import settings
from django.core.management.base import CommandError, CommandParser
from django.db.models import Q, QuerySet
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime

from ...calls.records import CallOutcome
from ...models import AuditEntry
from ...storage.audit_log import database
from ..arguments import DATABASE_ERRORS, database_error, find_server
from ..audit_export import FORMATS, Page, pages
from ..output import HelpfulCommand

PROGRESS_SECONDS = 5


def date_or_time(text: str) -> datetime:
    """Parse a date or a time. Without an offset it is in the time zone of the project."""
    try:
        day = parse_date(text)
        found = datetime(day.year, day.month, day.day) if day else parse_datetime(text)
    except ValueError:  # such as the 30th of February
        found = None
    if found is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a date or time. Write 2026-01-31 or 2026-01-31T08:00."
        )
    if not settings.USE_TZ:
        return timezone.make_naive(found) if timezone.is_aware(found) else found
    return found if timezone.is_aware(found) else timezone.make_aware(found)


class Command(HelpfulCommand):
    help = (
        "Export the audit log, the oldest entries first. Options select entries, and an entry must "
        "meet all of them. Secrets in arguments were masked before they were stored."
    )
    examples = (
        ("--since 2026-01-01 --until 2026-02-01 --output january.csv", "Export January as CSV"),
        ("--user alice --outcome denied --format jsonl", "Print what alice was denied"),
        ("--format jsonl | jq .name", "Pass all entries to another program"),
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--since", type=date_or_time, metavar="TIME",
            help="only entries from this time on: 2026-01-31, or 2026-01-31T08:00",
        )  # fmt: skip
        parser.add_argument(
            "--until", type=date_or_time, metavar="TIME", help="only entries before this time"
        )
        parser.add_argument(
            "--user",
            metavar="NAME",
            help="only entries of this user: a name or a primary key; entries match either",
        )
        parser.add_argument(
            "--client", metavar="ID",
            help="only entries of this client (client id of an OAuth client, or key of a token)",
        )  # fmt: skip
        parser.add_argument("--server", metavar="NAME", help="only entries of this server")
        parser.add_argument(
            "--tool", metavar="NAME",
            help="only entries of this tool, prompt or URI template",
        )  # fmt: skip
        parser.add_argument(
            "--outcome", choices=[str(one) for one in CallOutcome],
            help="only entries with this outcome",
        )  # fmt: skip
        parser.add_argument(
            "--format", choices=list(FORMATS), default="csv",
            help="format of the output (default: csv)",
        )  # fmt: skip
        parser.add_argument(
            "--output", metavar="FILE", help="write to this file, which must not exist (mode 0600)"
        )

    def handle(self, *args: Any, format: str, output: str | None, **options: Any) -> None:
        try:
            selected = self._selected(**options)
            with self._opened(output) as file:
                for text in FORMATS[format](self._counted(pages(selected))):
                    file.write(text)
        except BrokenPipeError:
            # The other program has read enough. Python would report the pipe again at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except DATABASE_ERRORS as error:
            raise database_error(error) from error

    def _selected(
        self, since: datetime | None, until: datetime | None, user: str | None, client: str | None,
        server: str | None, tool: str | None, outcome: str | None, **options_of_django: Any,
    ) -> QuerySet[AuditEntry]:  # fmt: skip
        found = AuditEntry._default_manager.using(database())
        if since is not None:
            found = found.filter(at__gte=since)
        if until is not None:
            found = found.filter(at__lt=until)
        if user is not None:
            found = found.filter(Q(username=user) | Q(user=user))
        if server is not None:
            found = found.filter(server=find_server(server).name)
        exact = {"client": client, "name": tool, "outcome": outcome}
        return found.filter(**{name: value for name, value in exact.items() if value is not None})

    @contextmanager
    def _opened(self, path: str | None) -> Iterator[TextIO]:
        """Open the file. An existing file is not overwritten."""
        if path is None:
            self.stdout.ending = ""
            yield self.stdout  # type: ignore[misc]
            return
        try:
            number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            raise CommandError(f"{path} cannot be written: {error.strerror}.") from error
        with open(number, "w", encoding="utf-8", newline="") as file:
            yield file

    def _counted(self, found: Iterator[Page]) -> Iterator[Page]:
        """Report on stderr how many entries were exported, every few seconds and at the end."""
        count, last_report = 0, time.monotonic()
        for page in found:
            yield page
            count += len(page)
            if time.monotonic() > last_report + PROGRESS_SECONDS:
                last_report = time.monotonic()
                self.note(f"{count} entries, until {page[-1]['at']:%Y-%m-%d %H:%M}")
        self.note(f"Exported: {count}.")
