"""
The keys of ``_meta``: which a project may use.

Rule: what is reserved in any revision is refused in all, so that what is
declared once means the same to every client (basic, "_meta").
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_LABEL = r"[A-Za-z]([A-Za-z0-9-]*[A-Za-z0-9])?"
META_KEY = re.compile(
    rf"(?P<prefix>{_LABEL}(\.{_LABEL})*/)?"
    r"([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?\Z"
)
RESERVED = ("modelcontextprotocol", "mcp")
# Of a request, or of its trace: declared once, their values would be wrong ever after.
RESERVED_KEYS = frozenset(("progressToken", "traceparent", "tracestate", "baggage"))


def meta_problem(key: Any) -> str | None:
    """What is wrong with a ``_meta`` key, or None."""
    match = META_KEY.match(key) if isinstance(key, str) else None
    if match is None:
        return f"{key!r} is no key of _meta."
    if key in RESERVED_KEYS:
        return f"{key!r} is reserved for the protocol."
    labels = (match["prefix"] or "").rstrip("/").split(".")
    # The second label; older revisions reserve any label that another follows.
    if any(label in RESERVED for label in (*labels[1:2], *labels[:-1])):
        return f"The prefix of {key!r} is reserved for the protocol."
    return None


def extension_problem(name: Any, settings: Any) -> str | None:
    """What is wrong with an extension that a server declares, or None.

    "Extension identifiers MUST follow the _meta key naming rules, with a
    mandatory prefix" (basic/versioning); reserved ones are official.
    """
    match = META_KEY.match(name) if isinstance(name, str) else None
    if match is None or not match["prefix"] or name.endswith("/"):
        return f"{name!r} is no identifier of an extension."
    if not isinstance(settings, Mapping):
        return f"The settings of {name!r} are no object."
    return json_problem(settings)


def json_problem(value: Any) -> str | None:
    """Why ``value`` cannot be sent, or None."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        return f"This is no JSON: {error}."
    return None
