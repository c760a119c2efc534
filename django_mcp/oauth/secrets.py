"""
The secrets that clients get when they register themselves, and how they are kept.

Rule: a digest, as of tokens. A slow hash is for what people choose and others guess; of a secret
that was made here nobody guesses anything, and whoever sends a wrong one would have us work.
"""

from __future__ import annotations

import hashlib

from django.utils.crypto import constant_time_compare

KEPT = "sha256:"  # which no hasher of Django writes


def kept(secret: str) -> str:
    """What is stored of a secret that was made at random."""
    return KEPT + hashlib.sha256(secret.encode()).hexdigest()


def is_kept(stored: str) -> bool:
    """Whether what is stored of a client's secret was made by ``kept``."""
    return stored.startswith(KEPT)


def is_same(provided: str, stored: str) -> bool:
    return constant_time_compare(kept(provided), stored)
