"""
What the client can be asked, as the project's code wants to know it.

Rule: it reads what the client offers (``protocol.capabilities``) and decides
nothing itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..protocol.capabilities import lacking


@dataclass(frozen=True, slots=True)
class Can:
    """``request.can``: what this client can be asked."""

    offered: Mapping[str, Any]

    def lacks(self, required: Mapping[str, Any]) -> dict[str, Any]:
        """The part of ``required``, client capabilities, that this client does not offer."""
        return lacking(self.offered, required)

    def _has(self, name: str, *features: str) -> bool:
        return not self.lacks({name: {feature: {} for feature in features}})

    @property
    def elicit(self) -> bool:
        return self._has("elicitation", "form")

    @property
    def elicit_url(self) -> bool:
        return self._has("elicitation", "url")

    @property
    def sample(self) -> bool:
        return self._has("sampling")

    @property
    def sample_tools(self) -> bool:
        return self._has("sampling", "tools")

    @property
    def sample_context(self) -> bool:
        return self._has("sampling", "context")

    @property
    def roots(self) -> bool:
        return self._has("roots")

    def extension(self, name: str) -> Mapping[str, Any] | None:
        """The client's settings for an extension, or None when it does not have it."""
        found = (self.offered.get("extensions") or {}).get(name)
        return found if isinstance(found, Mapping) else None
