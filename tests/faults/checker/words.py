"""The expected texts of a tool, computed from the seed of its call.

The code is written independently of the tools, so that one mistake does not hide another.
"""

from __future__ import annotations

import hashlib

LOST = "may or may not have taken effect"
ROLLED_BACK = "rolled back"
MASKED = "Something went wrong on the server"
AWAY = "The database is away."
INTERNAL = "Internal error"
CUT_OFF = "nobody knows how far it came"
BROKE = "broke before this had an outcome. It may"  # of a database, not of the process
NOT_BEGUN = "Nothing was done: try again later."
TRIMMED = "is no longer available"


def word(seed: str, part: int | str) -> str:
    """Return the expected text with this number or name for a seed."""
    return hashlib.sha256(f"{seed}:{part}".encode()).hexdigest()[:16]


def spoken(seed: str, count: int) -> list[str]:
    """Return the progress messages of a call, in order."""
    return [word(seed, number) for number in range(count)]
