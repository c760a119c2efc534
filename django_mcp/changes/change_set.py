"""
Change sets: what changed, as far as the clients of one server may be notified of it.

``change_set_for`` turns rows of the change log into a change set, without a query: a change names
its rows, and the URIs of their resources follow from the keys. Each URI, row or user is in it once.

A change of a group names only the group. ``replace_groups_by_members`` finds those of the given
users who are members, in queries of a limited size. If the query fails or there are too many
groups, all users count as members: an unnecessary permission check does no harm.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from ..auth import group_membership, kill_switches
from ..calls.callers import in_chunks, is_user_pk
from ..calls.visibility import AnyRow, address, resources, row_ref
from ..runtime import threads
from ..storage import change_log
from ..storage.change_log import ALL_USERS
from ..storage.jobs import run_or_disconnect

if TYPE_CHECKING:
    from ..declarations.model_resources import ModelResource
    from ..declarations.server import Server
    from ..storage.change_log import NumberedChange

Ordered = dict[str, None]  # a set that keeps its order


@dataclass
class ChangeSet:
    """A change set. Each field is an ordered set of one kind of change."""

    uris: Ordered = field(default_factory=dict)
    rows: Ordered = field(default_factory=dict)  # as text, also if their URI has changed
    models: Ordered = field(default_factory=dict)  # models of which any row may have changed
    # URIs that lists of resources show, with the label of their model.
    listed_uris: dict[str, str] = field(default_factory=dict)
    list_names: Ordered = field(default_factory=dict)  # lists that the project's code announced
    users: Ordered = field(default_factory=dict)  # users whose permissions changed, or ALL_USERS
    groups: Ordered = field(default_factory=dict)  # groups whose members' permissions changed
    credentials: Ordered = field(default_factory=dict)  # users whose calls may end
    doubted: Ordered = field(default_factory=dict)  # URIs whose visibility may have changed
    completed_elicitations: Ordered = field(default_factory=dict)  # ids of URL elicitations
    everything: Ordered = field(default_factory=dict)  # not empty if it is unknown what changed

    def __bool__(self) -> bool:
        return any(getattr(self, one.name) for one in fields(self))

    def add(self, other: ChangeSet) -> None:
        for one in fields(self):
            getattr(self, one.name).update(getattr(other, one.name))

    def affects_permissions_of(self, user: str | None) -> bool:
        """Whether the permissions of that user changed. It does not look at groups."""
        return user in self.users or ALL_USERS in self.users


def everything() -> ChangeSet:
    return ChangeSet(everything={"": None})


def change_set_for(server: Server, changes: Iterable[NumberedChange]) -> ChangeSet:
    """Return the change set of these changes for the clients of ``server``."""
    change_set, by_label = ChangeSet(), resources(server)
    for change in changes:
        if read := _READERS.get(change.kind):  # a newer process may record other kinds
            read(change_set, change.subject, by_label, server.name)
    return change_set


def _read_row(
    change_set: ChangeSet, subject: Any, by_label: dict[str, list[ModelResource]], _: str
) -> None:
    for label, keys in subject.items():
        change_set.rows[row_ref(label, keys["pk"])] = None
        for resource in by_label.get(label, ()):
            if (uri := address(resource, keys)) is not None:
                change_set.uris[uri] = None
                change_set.listed_uris.update({uri: label} if resource.listed else {})


def _read_rows(
    change_set: ChangeSet, subject: Any, by_label: dict[str, list[ModelResource]], _: str
) -> None:
    for label in subject:
        change_set.models[label] = None
        if any(one.listed for one in by_label.get(label, ())):
            change_set.listed_uris[AnyRow(label)] = label


def _read_announcement(field: str) -> Callable[[ChangeSet, Any, Any, str], None]:
    """Return a reader for changes that a project announced, for one server or for all."""

    def read(change_set: ChangeSet, subject: Any, _: Any, server: str) -> None:
        if subject["server"] in (None, server):
            getattr(change_set, field)[subject["what"]] = None

    return read


def _read_for_server(
    change_set: ChangeSet, subject: Any, by_label: dict[str, list[ModelResource]], server: str
) -> None:
    if subject["server"] == server:
        _READERS[subject["kind"]](change_set, subject["subject"], by_label, server)


def _read_permissions(field: str) -> Callable[[ChangeSet, Any, Any, str], None]:
    """Return a reader for changes of permissions, which concern every server."""

    def read(change_set: ChangeSet, subject: Any, *of: Any) -> None:
        if subject == ALL_USERS:
            kill_switches.mark_stale()  # the checks that follow must not use cached switches
        getattr(change_set, field)[subject] = None

    return read


_READERS: dict[str, Callable[[ChangeSet, Any, Any, str], None]] = {
    change_log.ROW: _read_row,
    change_log.ROWS: _read_rows,
    change_log.URI: _read_announcement("uris"),
    change_log.LIST: _read_announcement("list_names"),
    change_log.ELICITATION: _read_announcement("completed_elicitations"),
    change_log.USER: _read_permissions("users"),
    change_log.GROUP: _read_permissions("groups"),
    change_log.CREDENTIALS: _read_permissions("credentials"),
    change_log.OF_ONE: _read_for_server,
}


GROUPS_PER_QUERY = 500  # groups in one query
logger = logging.getLogger("django_mcp.storage")


async def replace_groups_by_members(changes: ChangeSet, users: Iterable[str | None]) -> ChangeSet:
    """Return ``changes`` with its groups replaced by those of ``users`` who are members."""
    if not changes.groups:
        return changes
    keys = sorted({user for user in users if user and is_user_pk(user)})
    if len(changes.groups) > GROUPS_PER_QUERY:
        return replace(changes, users=changes.users | {ALL_USERS: None}, groups={})
    try:
        found = await threads.lookups.run(run_or_disconnect, members, list(changes.groups), keys)
    except Exception as error:
        logger.warning(
            "Members of changed groups cannot be read, so all users are checked: %s", error
        )
        found = {ALL_USERS}
    return replace(changes, users=changes.users | dict.fromkeys(found), groups={})


def members(groups: Collection[str], users: list[str]) -> set[str]:
    """Return the keys of the users who are in one of the groups. Queries the database."""
    relation = getattr(group_membership.users(), "groups", None)
    if getattr(relation, "field", None) is None:
        return set()
    return {str(pk) for some in in_chunks(users) for pk in _members_among(groups, some)}


def _members_among(groups: Collection[str], users: list[str]) -> Iterable[Any]:
    found = group_membership.users()._base_manager.filter(pk__in=users, groups__in=groups)
    keys: Iterable[Any] = found.values_list("pk", flat=True).distinct()
    return keys
