"""
The catalog that a client is offered, in a form that is kept beside the tests.

Rule: the same catalog is the same text, whatever the order in which it was declared; what differs
is a change of what clients can do, to be read in a review.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .differences import differences

JSON = dict[str, Any]
UPDATE = "MCP_UPDATE_SNAPSHOTS"  # in the environment: write what is there now
FORGOTTEN = frozenset(("_meta",))  # says nothing that a client can do


def canonical(found: Mapping[str, Iterable[JSON]]) -> JSON:
    """A catalog - ``tools``, ``resources``, ``templates``, ``prompts`` - in the order of names."""
    return {kind: sorted(map(_kept, items), key=_key) for kind, items in found.items()}


def _kept(item: JSON) -> JSON:
    return {key: item[key] for key in item if key not in FORGOTTEN}


def _key(item: JSON) -> tuple[str, ...]:
    return tuple(str(item.get(key, "")) for key in ("name", "uri", "uriTemplate"))


def text(catalog: JSON) -> str:
    """A catalog as it is written to a file."""
    return json.dumps(catalog, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def assert_matches(found: JSON, path: str | Path) -> None:
    """``AssertionError`` unless the file at ``path`` holds the catalog ``found``.

    The file is written if there is none, or if ``MCP_UPDATE_SNAPSHOTS`` is set. Where ``CI`` is
    set it has to be there: what writes down what it finds has tested nothing.
    """
    file, now = Path(path), text(found)
    missing = not file.exists()
    if os.environ.get(UPDATE) or (missing and not os.environ.get("CI")):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(now, encoding="utf-8")
    elif missing:
        raise AssertionError(f"There is no {file}: run the test once without CI, and commit it.")
    elif (before := file.read_text(encoding="utf-8")) != now:
        raise AssertionError(_changed(file, before, now))


def _changed(file: Path, before: str, now: str) -> str:
    """In sentences, and line by line."""
    said = differences(json.loads(before), json.loads(now))
    lines = difflib.unified_diff(before.splitlines(), now.splitlines(), str(file), "now", n=2)
    told = "\n".join([*(f"- {one}" for one in said), *lines])
    return f"The catalog has changed. If it should have, set {UPDATE}=1 once.\n{told}"
