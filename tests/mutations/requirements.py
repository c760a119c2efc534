"""Mutations of what the specification requires, by the rows of `tests/requirements/table`.

`requirements/<area>.toml` lists those of an area: `subject` (the row), `change` (what is removed,
in words), and `file`, `old` and `new`; several files or places are `[[mutation.edits]]`. `on` lists
the databases on which the defect shows, if not on all.

Every row that cites tests has a mutation, and at least one of its tests must notice it.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from .mutation import DATABASES, Edit, Mutation

FOLDER = Path(__file__).with_name("requirements")
EDIT_KEYS = ("file", "old", "new")


def mutation(entry: dict[str, Any]) -> Mutation:
    edits = entry.get("edits") or [{key: entry[key] for key in EDIT_KEYS}]
    on = tuple(entry.get("on", DATABASES))
    return Mutation(entry["subject"], entry["change"], tuple(Edit(**e) for e in edits), on=on)


MUTATIONS: list[Mutation] = [
    mutation(entry)
    for path in sorted(FOLDER.glob("*.toml"))
    for entry in tomllib.loads(path.read_text("utf-8"))["mutation"]
]
