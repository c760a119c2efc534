"""
Export the audit log as CSV or JSON lines, for the admin and for ``manage.py mcp_audit``.

Entries are read in pages by key, so an export needs little memory, holds no long transaction, and
contains nothing that was stored after it began.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

from django.db.models import Max, QuerySet

from ..models import AuditEntry

ENTRIES_PER_PAGE = 1_000
COLUMNS = tuple(field.attname for field in AuditEntry._meta.concrete_fields)
# The place before a text that a spreadsheet would run as a formula: at the start of a cell, or
# after a character that separates cells in the spreadsheet's language.
FORMULA = re.compile(r"(^|[;|\t])(?=\s*[=+\-@\t\r])")

Page = Sequence[dict[str, Any]]


def pages(entries: QuerySet[AuditEntry]) -> Iterator[Page]:
    """Yield the columns of entries as dicts, in the order of their keys."""
    last, found = 0, entries.order_by("pk").values(*COLUMNS)
    end = entries.order_by().aggregate(end=Max("pk"))["end"]
    while end is not None and (
        page := list(found.filter(pk__gt=last, pk__lte=end)[:ENTRIES_PER_PAGE])
    ):
        last = page[-1]["id"]
        yield page


def as_csv(pages: Iterator[Page]) -> Iterator[str]:
    """Yield the text of a CSV file, with a header. Arguments are JSON."""
    yield _csv_lines([COLUMNS])
    for page in pages:
        yield _csv_lines([[_cell(value) for value in entry.values()] for entry in page])


def as_json_lines(pages: Iterator[Page]) -> Iterator[str]:
    """Yield the text of a file with one JSON object for each entry."""
    for page in pages:
        yield "".join(f"{json.dumps(entry, default=_iso)}\n" for entry in page)


FORMATS: dict[str, Callable[[Iterator[Page]], Iterator[str]]] = {
    "csv": as_csv,
    "jsonl": as_json_lines,
}


def _csv_lines(rows: Sequence[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, datetime):
        return _iso(value)
    if isinstance(value, dict | list):
        value = json.dumps(value)
    return FORMULA.sub(r"\1'", value) if isinstance(value, str) else value


def _iso(value: datetime) -> str:
    return value.isoformat()
