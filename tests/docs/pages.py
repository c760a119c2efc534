"""The pages of the documentation, and the code they show."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.M | re.S)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a page that are of ``language``."""
    return [code for kind, code in BLOCK.findall(page.read_text("utf-8")) if kind == language]


def links(page: Path) -> Iterator[str]:
    """Where the links of a page lead, those within the page aside."""
    without_code = BLOCK.sub("", page.read_text("utf-8"))
    return iter(LINK.findall(without_code))
