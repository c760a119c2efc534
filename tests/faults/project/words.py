"""The texts that tools send, derived from the seed of a call."""

from hashlib import sha256
from typing import Any


def word(seed: str, part: Any) -> str:
    """Return a text that only a process with the seed can produce."""
    return sha256(f"{seed}:{part}".encode()).hexdigest()[:16]
