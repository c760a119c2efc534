"""Parts of a generated module: lists, imports and comments, as a formatter writes them."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Sequence

WIDTH = 88  # line length, as formatters have it


def list_assignment(name: str, values: Sequence[str], sign: str = "=") -> str:
    """Return an assignment of a list, on one line or with one item per line."""
    literals = [json.dumps(value, ensure_ascii=False) for value in values]
    line = f"    {name} {sign} [{', '.join(literals)}]"
    if len(line) <= WIDTH:
        return line
    return "\n".join([f"    {name} {sign} [", *(f"        {one}," for one in literals), "    ]"])


def import_statement(module: str, found: Iterable[str]) -> str:
    """Return an import of sorted names from a module."""
    names = sorted(found, key=_in_order)
    line = f"from {module} import {', '.join(names)}"
    if len(line) <= WIDTH:
        return line
    return "\n".join([f"from {module} import (", *(f"    {name}," for name in names), ")"])


def _in_order(name: str) -> tuple[bool, bool, str]:
    """Return a sort key: constants, classes and functions, as formatters have them."""
    return not (name.isupper() and len(name) > 1), not name[0].isupper(), name.lower()


def as_comments(parts: Iterable[str], indent: int = 4) -> list[str]:
    """Return lines as comments, at the indent that they have as code."""
    lines = (line for part in parts for line in part.splitlines() or [""])
    return [" " * indent + f"# {line.removeprefix(' ' * indent)}".rstrip() for line in lines]


def comment(text: str, indent: int = 0) -> str:
    start = " " * indent + "# "
    return textwrap.fill(
        text, WIDTH, initial_indent=start, subsequent_indent=start, break_long_words=False
    )
