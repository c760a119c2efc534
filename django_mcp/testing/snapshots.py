"""
Compare a client's catalog with a snapshot file, and describe the differences in sentences.

The same catalog always gives the same text, whatever the order of declarations, so a changed file
means that clients can do something else than before. ``differences`` returns at least one sentence
if two catalogs differ. Changes of names, arguments, permissions and fields have sentences of their
own. The order of items is ignored.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..declarations.schema_summary import PropertyLine, lines

JSON = dict[str, Any]
Tell = Callable[[str, Any, Any], Iterator[str]]  # takes a member's name, its old and its new value
ONE = {
    "tools": "tool", "model_tools": "model tool", "resources": "resource", "templates": "template",
    "prompts": "prompt",
}  # fmt: skip
MAX_NAME_LENGTH = 60


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return the differences between two catalogs, one sentence each."""
    return [line for kind in ONE for line in _of_kind(kind, old.get(kind), new.get(kind))]


def _of_kind(kind: str, old: Any, new: Any) -> Iterator[str]:
    before, now = _by_key(old), _by_key(new)
    for key in sorted({*before, *now}):
        name = f"the {ONE[kind]} {key}"
        if key not in now:
            yield f"{name} is gone"
        elif key not in before:
            asks = now[key].get("permission")
            yield f"{name} is new{f', for {asks}' if asks else ''}"
        else:
            yield from (f"{name}{rest}" for rest in _changes(before[key], now[key]))


def _by_key(items: Any) -> dict[str, JSON]:
    """Return items by name, or by name and URI if several items have the name."""
    listed = [item for item in items or () if isinstance(item, Mapping)]
    names = [str(item.get("name", "")) for item in listed]
    return {
        name if names.count(name) == 1 else f"{name} at {_address(item)}": dict(item)
        for name, item in zip(names, listed, strict=True)
    }


def _address(item: Mapping[str, Any]) -> str:
    return str(item.get("uri") or item.get("uriTemplate") or "")


def _changes(old: JSON, new: JSON) -> Iterator[str]:
    other = {member for member in {*old, *new} if old.get(member) != new.get(member)}
    # inputSchema contains the arguments, with more detail
    covered = {"arguments"} if "inputSchema" in other else set()
    for member in sorted(other - covered):
        before, now = old.get(member), new.get(member)
        kind, describe = MEMBERS.get(member, (object, _plain))
        usual = all(isinstance(value, kind) for value in (before, now) if value is not None)
        yield from (describe if usual else _plain)(member, before, now)


# Members of a definition.


def _plain(member: str, old: Any, new: Any) -> Iterator[str]:
    if old is None:
        yield f" now has {member}: {_short(new)}"
    elif new is None:
        yield f" has no {member} any more"
    else:
        yield f": {member} was {_short(old)} and is {_short(new)}"


def _permission(member: str, old: Any, new: Any) -> Iterator[str]:
    yield f" asks for {new}, and asked for {old} before"


def _hints(member: str, old: Any, new: Any) -> Iterator[str]:
    for hint in sorted({*(old or {}), *(new or {})}):
        before, now = (old or {}).get(hint), (new or {}).get(hint)
        if before != now:
            yield from _plain(hint, before, now)


def _schema(gains: str, loses: str) -> Tell:
    """Return a function that yields the differences of two schemas.

    ``gains`` and ``loses`` are the verbs for added and removed properties.
    """

    def describe(member: str, old: Any, new: Any) -> Iterator[str]:
        found = [*_of_lines(_lines(old), _lines(new), gains, loses)]
        yield from found or [f": {member} is another in its details"]

    return describe


def _lines(schema: Any) -> dict[str, PropertyLine]:
    return {line.name: line for line in lines(schema or {})}


def _of_lines(
    old: dict[str, PropertyLine], new: dict[str, PropertyLine], gains: str, loses: str
) -> Iterator[str]:
    for name in sorted({*old, *new}):
        if name not in new:
            yield f" {loses} {name}"
        elif name not in old:
            needed = ", which is required" if new[name].required else ""
            yield f" {gains} {name} ({new[name].type}){needed}"
        else:
            yield from (f": {name} {rest}" for rest in _of_line(old[name], new[name]))


def _of_line(old: PropertyLine, new: PropertyLine) -> Iterator[str]:
    if old.type != new.type:
        yield f"was {old.type} and is {new.type}"
    if old.required != new.required:
        yield "is now required" if new.required else "is required no more"
    if old.default != new.default:
        yield f"is {new.default or 'nothing'} by default, and was {old.default or 'nothing'}"
    if old.description != new.description:
        yield f"is now described as {_short(new.description)}"


def _arguments(member: str, old: Any, new: Any) -> Iterator[str]:
    """Yield differences of a prompt's arguments, a list of objects with a name."""
    yield from _schema("now takes", "takes no more")(member, _as_schema(old), _as_schema(new))


def _as_schema(arguments: Any) -> JSON:
    found = [one for one in arguments or () if isinstance(one, dict)]
    listed = {str(one.get("name")): {"type": "string"} | one for one in found}
    return {"properties": listed, "required": [n for n in listed if listed[n].get("required")]}


# Members with sentences of their own, and the type that their values must have.
MEMBERS: dict[str, tuple[type, Tell]] = {
    "permission": (str, _permission),
    "annotations": (dict, _hints),
    "inputSchema": (dict, _schema("now takes", "takes no more")),
    "outputSchema": (dict, _schema("now returns", "returns no more")),
    "rowSchema": (dict, _schema("now shows", "shows no more")),
    "arguments": (list, _arguments),
}


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if len(text) <= MAX_NAME_LENGTH else f"{text[:MAX_NAME_LENGTH]}…"


UPDATE = "MCP_UPDATE_SNAPSHOTS"  # environment variable: overwrite the snapshot
FORGOTTEN = frozenset(("_meta",))  # irrelevant to what a client can do


def canonical(found: Mapping[str, Iterable[JSON]]) -> JSON:
    """Return a catalog with each list sorted by name."""
    return {kind: sorted(map(_without_volatile, items), key=_key) for kind, items in found.items()}


def _without_volatile(item: JSON) -> JSON:
    return {key: item[key] for key in item if key not in FORGOTTEN}


def _key(item: JSON) -> tuple[str, ...]:
    return tuple(str(item.get(key, "")) for key in ("name", "uri", "uriTemplate"))


def text(catalog: JSON) -> str:
    """Return a catalog as the text of a snapshot file."""
    return json.dumps(catalog, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def assert_matches(found: JSON, path: str | Path) -> None:
    """Raise ``AssertionError`` unless the file at ``path`` holds the catalog ``found``.

    The file is written if it does not exist, or if ``MCP_UPDATE_SNAPSHOTS`` is set. If ``CI`` is
    set, a missing file is an error, because a test that writes its own expectation tests nothing.
    """
    file, now = Path(path), text(found)
    missing = not file.exists()
    if os.environ.get(UPDATE) or (missing and not os.environ.get("CI")):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(now, encoding="utf-8")
    elif missing:
        raise AssertionError(f"There is no {file}: run the test once without CI, and commit it.")
    elif (before := file.read_text(encoding="utf-8")) != now:
        raise AssertionError(_differences(file, before, now))


def _differences(file: Path, before: str, now: str) -> str:
    """Return the differences as sentences and as a unified diff."""
    said = differences(json.loads(before), json.loads(now))
    lines = difflib.unified_diff(before.splitlines(), now.splitlines(), str(file), "now", n=2)
    report = "\n".join([*(f"- {one}" for one in said), *lines])
    return f"The catalog has changed. If it should have, set {UPDATE}=1 once.\n{report}"
