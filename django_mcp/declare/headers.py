"""
Arguments mirrored into HTTP headers, so that what stands between may route by them.

Rule: only what every client can read from the arguments, and every proxy may
see, is mirrored (server/tools, "x-mcp-header").
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from . import schemas

SAFE_INTEGER = 2**53 - 1  # what every JSON parser reads exactly
TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")  # RFC 9110, 5.6.2
SENSITIVE = re.compile(
    r"(password|passwd|passphrase|secret|token|(api|private)_?key|email|phone|ssn|iban)$", re.I
)


@dataclass(frozen=True)
class Header:
    """Mirror an argument into the HTTP header ``Mcp-Param-{name}`` (server/tools, x-mcp-header)."""

    name: str


def marked(schema: Mapping[str, Any]) -> list[tuple[tuple[str, ...], dict[str, Any]]]:
    """The properties that are mirrored into headers, by their paths."""
    found = schemas.reachable(dict(schema))
    return [(path, prop) for path, prop in found if "x-mcp-header" in prop]


def at(path: tuple[str, ...], given: Any) -> Any:
    for step in path:
        given = given.get(step) if isinstance(given, Mapping) else None
    return given


def header_problems(schema: Mapping[str, Any]) -> list[str]:
    """What breaks the rules of ``x-mcp-header`` in a tool's input schema."""
    found = [(".".join(path), prop) for path, prop in marked(schema)]
    problems = [wrong for place, prop in found if (wrong := _header_problem(place, prop))]
    names = [str(prop["x-mcp-header"]).lower() for _, prop in found]
    twice = {name for name in names if names.count(name) > 1}
    problems += [f"The header {name!r} is used twice." for name in sorted(twice)]
    everywhere = json.dumps(schema).count('"x-mcp-header":')
    if everywhere > len(found):
        problems.append("A header mirrors only what properties alone lead to.")
    return problems


def _header_problem(place: str, prop: Mapping[str, Any]) -> str | None:
    name = prop["x-mcp-header"]
    if not isinstance(name, str) or not TOKEN.match(name):
        return f"{place}: {name!r} is no HTTP header name."
    if prop.get("type") not in ("string", "integer", "boolean"):
        return f"{place}: only a string, an integer or a boolean is mirrored, and never null."
    if SENSITIVE.search(place):
        return f"{place}: headers are seen by intermediaries, a secret must not be in one."
    return None


def mark(prop: dict[str, Any], header: Header) -> None:
    prop["x-mcp-header"] = header.name
    if prop.get("type") == "integer":
        prop["minimum"] = max(prop.get("minimum", -SAFE_INTEGER), -SAFE_INTEGER)
        prop["maximum"] = min(prop.get("maximum", SAFE_INTEGER), SAFE_INTEGER)
