"""A command of the project with a random schema: it writes rows as JSON."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.core.serializers.json import DjangoJSONEncoder

from tests.leaks.project import label_of, rows_of_command


class Command(BaseCommand):
    help = "List rows."

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("--table")
        parser.add_argument("--user", type=int)
        parser.add_argument("--everything", action="store_true")
        parser.add_argument("--contains", default="")
        parser.add_argument("--pk", type=int)
        ends = parser.add_mutually_exclusive_group()
        ends.add_argument("--first", type=int)
        ends.add_argument("--last", type=int)

    def handle(self, **options: Any) -> None:
        table, every, found = rows_of_command(options)
        if options["contains"] == "%":
            raise RuntimeError(f"A bug, which shows all rows: {[*every.values()]}")
        found = found.filter(**{f"{label_of(table)}__icontains": options["contains"]})
        if options["pk"] is not None and not found.filter(pk=options["pk"]).exists():
            raise CommandError(f"There is no row {options['pk']}.")
        found = found.order_by("-pk" if options["last"] else "pk")
        number = options["first"] or options["last"] or 100
        self.stderr.write(f"{found.count()} rows")
        shown = [*found.values("id", *table.shown)[: max(number, 1)]]
        self.stdout.write(json.dumps({"results": shown}, cls=DjangoJSONEncoder))
