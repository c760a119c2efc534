"""The table of the documentation, as a test reads it."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/reference/fields.md"
COLUMNS = "| field | JSON | shown | searched | filtered | ordered | written |"
HEADING = re.compile(r"^#+ (.+)$")
ROW = re.compile(r"^\| `([^`]+)` \|")


def documented() -> dict[str, str]:
    """Each row of the page, by its package and field."""
    found, package = {}, ""
    for line in PAGE.read_text(encoding="utf-8").splitlines() if PAGE.exists() else ():
        if heading := HEADING.match(line):
            package = heading[1]
        elif row := ROW.match(line):
            found[f"{package}: {row[1]}"] = line
    return found
