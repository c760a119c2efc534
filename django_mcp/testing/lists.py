"""
Lists as a client gets them, to be looked into by name.

Rule: an item stays what came over the wire.
"""

from __future__ import annotations

from .wires import JSON


class Listed(list[JSON]):
    """Items of a list, as they came; a name or a URI is ``in`` it if an item has it."""

    def __contains__(self, one: object) -> bool:
        return one in self.names if isinstance(one, str) else super().__contains__(one)

    @property
    def names(self) -> list[str]:
        """The names of the items, and their URIs where they have one."""
        keys = ("name", "uri", "uriTemplate")
        return [item[key] for item in self for key in keys if key in item]

    def named(self, name: str) -> JSON:
        """The item of that name or URI. Raises ``LookupError`` with the names there are."""
        for item in self:
            if name in Listed([item]).names:
                return item
        raise LookupError(f"There is no {name!r}; there are: {', '.join(self.names)}.")
