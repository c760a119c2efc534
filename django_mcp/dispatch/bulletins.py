"""
What changed, as the clients of one server may hear of it: all at once, each thing once.

Rule: a change names rows, and who passes it on finds their addresses here,
without a query. Of many changes of one thing there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from .. import switches
from ..delivery import changes
from .places import AnyRow, address, place, resources

if TYPE_CHECKING:
    from ..declare.model_resources import ModelResource
    from ..declare.servers import Server
    from ..delivery.changes import Found

EVERYBODY = ""
Ordered = dict[str, None]  # a set that keeps its order


@dataclass
class Bulletin:
    """What changed."""

    uris: Ordered = field(default_factory=dict)
    places: Ordered = field(default_factory=dict)  # rows, whatever address they had before
    models: Ordered = field(default_factory=dict)  # any of whose rows may have changed
    # Addresses that lists of resources show, and of which model each is.
    listed: dict[str, str] = field(default_factory=dict)
    lists: Ordered = field(default_factory=dict)
    users: Ordered = field(default_factory=dict)  # who may use something else now; "": everybody
    groups: Ordered = field(default_factory=dict)  # whose members may
    standing: Ordered = field(default_factory=dict)  # who may have to end; "": anybody
    doubted: Ordered = field(default_factory=dict)  # addresses that may be seen no more, or again
    pages: Ordered = field(default_factory=dict)
    everything: Ordered = field(default_factory=dict)  # nobody knows what changed

    def __bool__(self) -> bool:
        return any(getattr(self, one.name) for one in fields(self))

    def add(self, other: Bulletin) -> None:
        for one in fields(self):
            getattr(self, one.name).update(getattr(other, one.name))

    def permits(self, user: str | None) -> bool:
        """Whether that user may use something else now; groups are ``members``' business."""
        return user in self.users or "" in self.users


def everything() -> Bulletin:
    return Bulletin(everything={"": None})


def bulletin(server: Server, found: Iterable[Found]) -> Bulletin:
    """What these changes are to the clients of a server."""
    made, by_label = Bulletin(), resources(server)
    for one in found:
        if reader := _READERS.get(one.kind):  # a newer process may know other kinds
            reader(made, one.subject, by_label, server.name)
    return made


def _row(made: Bulletin, subject: Any, by_label: dict[str, list[ModelResource]], _: str) -> None:
    for label, keys in subject.items():
        made.places[place(label, keys["pk"])] = None
        for resource in by_label.get(label, ()):
            if (uri := address(resource, keys)) is not None:
                made.uris[uri] = None
                made.listed.update({uri: label} if resource.listed else {})


def _rows(made: Bulletin, subject: Any, by_label: dict[str, list[ModelResource]], _: str) -> None:
    for label in subject:
        made.models[label] = None
        if any(one.listed for one in by_label.get(label, ())):
            made.listed[AnyRow(label)] = label


def _said(where: str) -> Callable[[Bulletin, Any, Any, str], None]:
    """What was said by hand, of one server or of all."""

    def read(made: Bulletin, subject: Any, _: Any, server: str) -> None:
        if subject["server"] in (None, server):
            getattr(made, where)[subject["what"]] = None

    return read


def _of_one(
    made: Bulletin, subject: Any, by_label: dict[str, list[ModelResource]], server: str
) -> None:
    if subject["server"] == server:
        _READERS[subject["kind"]](made, subject["subject"], by_label, server)


def _people(where: str) -> Callable[[Bulletin, Any, Any, str], None]:
    """Whose rights are others now, on every server."""

    def read(made: Bulletin, subject: Any, *of: Any) -> None:
        if subject == EVERYBODY:
            switches.changed()  # whoever is told asks at once
        getattr(made, where)[subject] = None

    return read


_READERS: dict[str, Callable[[Bulletin, Any, Any, str], None]] = {
    changes.ROW: _row,
    changes.ROWS: _rows,
    changes.URI: _said("uris"),
    changes.LIST: _said("lists"),
    changes.PAGE: _said("pages"),
    changes.USER: _people("users"),
    changes.GROUP: _people("groups"),
    changes.STANDING: _people("standing"),
    changes.OF_ONE: _of_one,
}
