"""What the tools say, from the seed of a call."""

from hashlib import sha256
from typing import Any


def word(seed: str, part: Any) -> str:
    """A word that nobody says but who knows the seed."""
    return sha256(f"{seed}:{part}".encode()).hexdigest()[:16]
