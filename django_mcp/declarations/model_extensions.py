"""
What else a model resource brings along, beside what ``declarations`` makes of it itself.

Rule: this room knows the list, not its members; each gives declarations for a resource that asks
for them, and nothing is imported until one is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .declaration import Declaration
    from .model_resources import ModelResource

# Filled when the app is ready.
derivations: list[Callable[[ModelResource], Iterable[Declaration]]] = []
