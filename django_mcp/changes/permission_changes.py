"""
Record changes of permissions, so that every process checks running calls and notifies clients.

One record names a user, a group or all users, however many it concerns. It commits or rolls back
with the saved row if the users' database has a table of changes. Otherwise it is recorded after the
commit. The previous flags of a user are queried only if they are written and a client follows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import Any

from django.contrib.auth import get_user_model
from django.db import router
from django.db.models import Model

from ..auth import group_membership, kill_switches
from ..auth.group_membership import MembershipRelation, loaded
from ..storage.change_log import ALL_USERS, CREDENTIALS, GROUP, USER
from . import capture

MAX_NAMED_PRINCIPALS = 100  # users or groups recorded by key. Of more, all users are recorded.
FLAGS = ("is_active", "is_superuser", "is_staff")
_BEFORE = "_django_mcp_flags"  # attribute of an instance: what the row had before the save


# Recording.


def record_user_changes(*users: Any, using: str | None = None) -> None:
    """Record that the permissions of these users changed. Each is a row or a primary key."""
    _record(USER, _keys(users, group_membership.users()), using)


def record_group_changes(*groups: Any, using: str | None = None) -> None:
    """Record that the permissions of the members of these groups changed."""
    if len(groups) > MAX_NAMED_PRINCIPALS:
        record_change_for_all_users(using=using)
    else:
        _record(GROUP, _keys(groups, group_membership.groups()), using)


def record_change_for_all_users(*, using: str | None = None) -> None:
    """Record that the permissions of all users may have changed.

    For kill switches, and if it is unknown which users are concerned.
    """
    _record(USER, [ALL_USERS], using)


def record_ended_credentials(*users: Any, using: str | None = None) -> None:
    """Record that open calls and connections of these users, or of all, must be checked.

    Their tokens may have been revoked, or the users deactivated or deleted.
    """
    _record(CREDENTIALS, _keys(users, group_membership.users()) or {ALL_USERS}, using)


def _keys(named: Iterable[Any], model: Any) -> set[str]:
    """Return the keys as text. A row whose key is not loaded becomes ``ALL_USERS``."""
    pk = model._meta.pk
    found = (loaded(one, pk) if isinstance(one, model) else one for one in named)
    return {ALL_USERS if one is None else str(one) for one in found}


def _record(kind: str, keys: Collection[str], using: str | None) -> None:
    named = sorted(keys) if len(keys) <= MAX_NAMED_PRINCIPALS else [ALL_USERS]
    if named:
        capture.record_permission_changes(using or _home(), *((kind, key) for key in named))


def _home() -> str:
    return str(router.db_for_write(get_user_model()))


# Signal receivers for users.


def remember_flags(
    sender: type[Model], instance: Any, raw: bool, using: str,
    update_fields: Collection[str] | None = None, **kwargs: Any,
) -> None:  # fmt: skip
    """Before a user is saved, store its present flags on the instance (``pre_save``).

    This is one query, run only if the flags are written and a client follows changes.
    """
    vars(instance).pop(_BEFORE, None)
    flags = _written(instance, update_fields, raw) if _may_exist(instance, raw) else ()
    if flags and capture.is_wanted(using):
        row = sender._base_manager.using(using).filter(pk=instance.pk).values(*flags).first()
        vars(instance)[_BEFORE] = row or {}


def user_saved(
    sender: type[Model], instance: Any, created: bool, raw: bool, using: str,
    update_fields: Collection[str] | None = None, **kwargs: Any,
) -> None:  # fmt: skip
    """Record a user whose flags changed (``post_save``)."""
    before = vars(instance).pop(_BEFORE, None)
    flags = () if created else _written(instance, update_fields, raw)
    changed = {name for name in flags if before is None or before.get(name) != vars(instance)[name]}
    if not changed or not (users := group_membership.users_of(instance, using)):
        return
    if "is_active" in changed and not instance.is_active:
        record_ended_credentials(*users, using=using)
    else:
        record_user_changes(*users, using=using)


def user_deleted(sender: type[Model], instance: Any, using: str, **kwargs: Any) -> None:
    """Record that a user was deleted."""
    record_ended_credentials(instance, using=using)


def _may_exist(instance: Model, raw: bool) -> bool:
    """Whether the row may exist already. For ``loaddata`` (``raw``), ``adding`` is always True."""
    return raw or not instance._state.adding


def _written(user: Any, update_fields: Collection[str] | None, raw: bool) -> list[str]:
    """Return the flags that a save writes. ``loaddata`` does not write fields of parent models."""
    return [
        name
        for name in _flags_of(user._meta.concrete_model, raw)
        if name in vars(user)  # else it is deferred
        and (update_fields is None or name in update_fields)
    ]


@lru_cache(maxsize=16)  # each save of a user needs it
def _flags_of(model: type[Model], is_raw: bool) -> list[str]:
    fields = model._meta.local_concrete_fields if is_raw else model._meta.concrete_fields
    names = {field.attname for field in fields}
    return [name for name in FLAGS if name in names]


# Signal receivers for groups, permissions and their relations.


def grant_saved(
    sender: type[Model], instance: Any, created: bool, using: str, **kwargs: Any
) -> None:
    """Record that a group or a permission was saved: its codename may have changed."""
    if not created:
        _record_grant(instance, using)


def grant_deleted(instance: Any, using: str, **kwargs: Any) -> None:
    """Record that a group or a permission was deleted. No signal tells which users had it."""
    record_change_for_all_users(using=using)


def _record_grant(grant: Any, using: str) -> None:
    if isinstance(grant, group_membership.groups()):
        record_group_changes(grant, using=using)
    else:
        record_change_for_all_users(using=using)


def relation_changed(
    sender: type[Model], instance: Any, action: str, reverse: bool, pk_set: set[Any] | None,
    using: str, **kwargs: Any,
) -> None:  # fmt: skip
    """Record a change of users' groups or permissions, or of groups' permissions."""
    is_relevant = action in capture.RELATION_ACTIONS and pk_set != set()
    if is_relevant and (relation := group_membership.relation(sender)):
        holder = loaded(instance, relation.field.target_field) if not reverse else None
        _record_members(relation, (pk_set or {None}) if reverse else {holder}, using)


def remember_member(
    sender: type[Model], instance: Any, raw: bool, using: str, **kwargs: Any
) -> None:
    """Before a row of a project's own through table is saved, store its present user or group.

    The row may be moved from one user to another. Then both are concerned.
    """
    vars(instance).pop(_BEFORE, None)
    relation = group_membership.relation(sender)
    if relation and _may_exist(instance, raw) and capture.is_wanted(using):
        rows = sender._base_manager.using(using).filter(pk=instance.pk)
        vars(instance)[_BEFORE] = rows.values_list(relation.field.attname, flat=True).first()


def membership_changed(sender: type[Model], instance: Any, using: str, **kwargs: Any) -> None:
    """Record a saved or deleted row of a through table, for its user or group now and before."""
    if relation := group_membership.relation(sender):
        holder = loaded(instance, relation.field)
        _record_members(relation, {holder, vars(instance).pop(_BEFORE, None) or holder}, using)


def _record_members(relation: MembershipRelation, keys: Collection[Any], using: str) -> None:
    """Record the users or groups with these keys. None among them means that one is unknown."""
    if None in keys or len(keys) > MAX_NAMED_PRINCIPALS:
        record_change_for_all_users(using=using)
    elif relation.holders is group_membership.users():
        record_user_changes(*relation.keys(keys, using), using=using)
    else:
        record_group_changes(*relation.keys(keys, using), using=using)


# Signal receivers for tokens.


def token_saved(sender: type[Model], instance: Any, created: bool, using: str, **kw: Any) -> None:
    """Record a revoked token, so that its calls and connections are ended. Ignore other saves."""
    if not created and instance.revoked is not None:
        record_ended_credentials(instance.user_id, using=using)


def token_deleted(sender: type[Model], instance: Any, using: str, **kwargs: Any) -> None:
    """Record a deleted token, so that its calls and connections are ended."""
    record_ended_credentials(instance.user_id, using=using)


# Signal receiver for kill switches.


def switch_changed(sender: type[Model], instance: Any, using: str, **kwargs: Any) -> None:
    """Record that an administrator switched a declaration off or on."""
    kill_switches.mark_stale()
    record_change_for_all_users(using=using)
