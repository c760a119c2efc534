"""
Small moves on JSON values that the changes share.

The rule: each returns a new value and leaves its argument as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

JSON = dict[str, Any]
Move = Callable[[JSON], JSON]


def without(mapping: JSON, *keys: str) -> JSON:
    """``mapping`` less ``keys``."""
    return {key: value for key, value in mapping.items() if key not in keys}


def within(mapping: JSON, key: str, move: Callable[[Any], Any]) -> JSON:
    """``mapping`` with ``move`` applied to what is at ``key``, if anything is."""
    return mapping | {key: move(mapping[key])} if key in mapping else mapping


def each(mapping: JSON, key: str, move: Move) -> JSON:
    """``mapping`` with ``move`` applied to every item of the list at ``key``."""
    return within(mapping, key, lambda items: [move(item) for item in items])


def meta_without(value: JSON, *keys: str) -> JSON:
    """``value`` less ``keys`` of its ``_meta``, and less a ``_meta`` left empty."""
    if "_meta" not in value:
        return value
    meta = without(value["_meta"], *keys)
    return value | {"_meta": meta} if meta else without(value, "_meta")


def text(words: str, like: JSON) -> JSON:
    """A text block that stands in for the block ``like``, for the same audience."""
    block = {"type": "text", "text": words}
    return block | {"annotations": like["annotations"]} if "annotations" in like else block
