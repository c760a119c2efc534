"""Parser of the table of fields in the documentation."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/reference/fields.md"
COLUMNS = "| field | JSON | shown | searched | filtered | ordered | written |"
HEADING = re.compile(r"^#+ (.+)$")
ROW = re.compile(r"^\| `([^`]+)` \|")


def documented() -> dict[str, str]:
    """Return the rows of the table by package and field."""
    found: dict[str, str] = {}
    package, is_in_table = "", False
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if heading := HEADING.match(line):
            package = heading[1]
        is_in_table = line == COLUMNS or (is_in_table and line.startswith("|"))
        if is_in_table and (row := ROW.match(line)):
            found[f"{package}: {row[1]}"] = line
    return found
