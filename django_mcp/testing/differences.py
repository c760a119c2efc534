"""
What has changed between two catalogs, in sentences for whoever reviews the change.

Rule: catalogs that differ have at least one sentence, and what clients notice first - names,
arguments, permissions, fields - is told as such. Nothing is told of the order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..declare.words import Line, lines

JSON = dict[str, Any]
Tell = Callable[[str, Any, Any], Iterator[str]]  # of a member's name, and what it was and is
ONE = {"tools": "tool", "resources": "resource", "templates": "template", "prompts": "prompt"}
LONGEST = 60


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What of the catalog ``old`` is otherwise in ``new``, each in a sentence; [] if nothing."""
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
    """By name; by address as well, where several have the name."""
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
    told = {"arguments"} if "inputSchema" in other else set()  # which says the same, and more
    for member in sorted(other - told):
        before, now = old.get(member), new.get(member)
        kind, tell = MEMBERS.get(member, (object, _plain))
        usual = all(isinstance(value, kind) for value in (before, now) if value is not None)
        yield from (tell if usual else _plain)(member, before, now)


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
    """The differences of a schema, whose properties something ``gains`` or ``loses``."""

    def told(member: str, old: Any, new: Any) -> Iterator[str]:
        found = [*_of_lines(_lines(old), _lines(new), gains, loses)]
        yield from found or [f": {member} is another in its details"]

    return told


def _lines(schema: Any) -> dict[str, Line]:
    return {line.name: line for line in lines(schema or {})}


def _of_lines(old: dict[str, Line], new: dict[str, Line], gains: str, loses: str) -> Iterator[str]:
    for name in sorted({*old, *new}):
        if name not in new:
            yield f" {loses} {name}"
        elif name not in old:
            needed = ", which is required" if new[name].required else ""
            yield f" {gains} {name} ({new[name].type}){needed}"
        else:
            yield from (f": {name} {rest}" for rest in _of_line(old[name], new[name]))


def _of_line(old: Line, new: Line) -> Iterator[str]:
    if old.type != new.type:
        yield f"was {old.type} and is {new.type}"
    if old.required != new.required:
        yield "is now required" if new.required else "is required no more"
    if old.default != new.default:
        yield f"is {new.default or 'nothing'} by default, and was {old.default or 'nothing'}"
    if old.description != new.description:
        yield f"is now described as {_short(new.description)}"


def _arguments(member: str, old: Any, new: Any) -> Iterator[str]:
    """Of a prompt: a list, each with a name."""
    yield from _schema("now takes", "takes no more")(member, _as_schema(old), _as_schema(new))


def _as_schema(arguments: Any) -> JSON:
    found = [one for one in arguments or () if isinstance(one, dict)]
    listed = {str(one.get("name")): {"type": "string"} | one for one in found}
    return {"properties": listed, "required": [n for n in listed if listed[n].get("required")]}


# Which members are told in a way of their own, and what they have to be for that.
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
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
