"""
Who may do what, when that changes: written down, for every process to act on.

Rule: one record says it, however many it concerns: of users, of a group, of
everybody. It commits or rolls back with what was saved, where the users'
database has a table of changes, and is written after the commit elsewhere. What
a row was is asked only where its flags are written and somebody would be told.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from django.contrib.auth import get_user_model
from django.db import router
from django.db.models import Model

from .. import switches
from ..delivery.changes import GROUP, STANDING, USER
from . import holders, saves
from .holders import Relation, loaded

MOST = 100  # users, or groups, that are named; of more it is everybody
EVERYBODY = ""
FLAGS = ("is_active", "is_superuser", "is_staff")
_BEFORE = "_django_mcp_flags"


# What changed.


def changed(*users: Any, using: str | None = None) -> None:
    """These users may do something else now: each a row, or its key."""
    _say(USER, _keys(users, holders.users()), using)


def changed_for_groups(*groups: Any, using: str | None = None) -> None:
    """The members of these groups may do something else now."""
    if len(groups) > MOST:
        changed_for_everyone(using=using)
    else:
        _say(GROUP, _keys(groups, holders.groups()), using)


def changed_for_everyone(*, using: str | None = None) -> None:
    """Anybody may: what a server offers was switched, or who had what is not known any more."""
    _say(USER, [EVERYBODY], using)


def ended(*users: Any, using: str | None = None) -> None:
    """What goes on in the name of these users may have to end; of none named, of anybody."""
    _say(STANDING, _keys(users, holders.users()) or {EVERYBODY}, using)


def _keys(those: Iterable[Any], model: Any) -> set[str]:
    """What names them; of a row whose key was not loaded, everybody."""
    pk = model._meta.pk
    found = (loaded(one, pk) if isinstance(one, model) else one for one in those)
    return {EVERYBODY if one is None else str(one) for one in found}


def _say(kind: str, keys: Collection[str], using: str | None) -> None:
    named = sorted(keys) if len(keys) <= MOST else [EVERYBODY]
    if named:
        saves.say_with(using or _home(), *((kind, key) for key in named))


def _home() -> str:
    return str(router.db_for_write(get_user_model()))


# What Django says of users.


def noting(
    sender: type[Model], instance: Any, raw: bool, using: str,
    update_fields: Collection[str] | None = None, **kwargs: Any,
) -> None:  # fmt: skip
    """A user is about to be saved: one query, where its flags are, and somebody is connected."""
    vars(instance).pop(_BEFORE, None)
    flags = _written(instance, update_fields, raw) if _may_be_there(instance, raw) else ()
    if flags and saves.is_wanted(using):
        row = sender._base_manager.using(using).filter(pk=instance.pk).values(*flags).first()
        vars(instance)[_BEFORE] = row or {}


def saved(
    sender: type[Model], instance: Any, created: bool, raw: bool, using: str,
    update_fields: Collection[str] | None = None, **kwargs: Any,
) -> None:  # fmt: skip
    """A user was saved."""
    before = vars(instance).pop(_BEFORE, None)
    flags = () if created else _written(instance, update_fields, raw)
    other = {name for name in flags if before is None or before.get(name) != vars(instance)[name]}
    those = holders.users_of(instance, using) if other else ()
    if those and "is_active" in other and not instance.is_active:
        ended(*those, using=using)
    else:
        changed(*those, using=using)


def deleted(sender: type[Model], instance: Any, using: str, **kwargs: Any) -> None:
    """A user is no more."""
    ended(instance, using=using)


def _may_be_there(instance: Model, raw: bool) -> bool:
    """What ``loaddata`` writes is always new to Django."""
    return raw or not instance._state.adding


def _written(user: Any, update_fields: Collection[str] | None, raw: bool) -> list[str]:
    """Of a child ``loaddata`` writes only what its parents have not."""
    meta = user._meta.concrete_model._meta
    fields = meta.local_concrete_fields if raw else meta.concrete_fields
    known = {field.attname for field in fields} - user.get_deferred_fields()
    written = known if update_fields is None else known.intersection(update_fields)
    return [name for name in FLAGS if name in written]


# And of what they are granted.


def granted(sender: type[Model], instance: Any, created: bool, using: str, **kwargs: Any) -> None:
    """A group or a permission was saved: it may be called otherwise now."""
    if not created:
        _of_grant(instance, using)


def granting_ended(instance: Any, using: str, **kwargs: Any) -> None:
    """A group or a permission was deleted, and who had it is told by no signal."""
    changed_for_everyone(using=using)


def _of_grant(grant: Any, using: str) -> None:
    if isinstance(grant, holders.groups()):
        changed_for_groups(grant, using=using)
    else:
        changed_for_everyone(using=using)


def related(
    sender: type[Model], instance: Any, action: str, reverse: bool, pk_set: set[Any] | None,
    using: str, **kwargs: Any,
) -> None:  # fmt: skip
    """A relation was changed: of users to groups or permissions, or of groups to permissions."""
    is_known = action in saves.WRITTEN and pk_set != set()
    if is_known and (found := holders.relation(sender)):
        one = loaded(instance, found.field.target_field) if not reverse else None
        _told(found, (pk_set or {None}) if reverse else {one}, using)


def joining(sender: type[Model], instance: Any, raw: bool, using: str, **kwargs: Any) -> None:
    """A row of a project's own table is about to be saved: whose was it? One query, as above."""
    vars(instance).pop(_BEFORE, None)
    found = holders.relation(sender)
    if found and _may_be_there(instance, raw) and saves.is_wanted(using):
        rows = sender._base_manager.using(using).filter(pk=instance.pk)
        vars(instance)[_BEFORE] = rows.values_list(found.field.attname, flat=True).first()


def joined(sender: type[Model], instance: Any, using: str, **kwargs: Any) -> None:
    """It was saved, or deleted: whoever it names, or named, holds something else now."""
    if found := holders.relation(sender):
        one = loaded(instance, found.field)
        _told(found, {one, vars(instance).pop(_BEFORE, None) or one}, using)


def _told(relation: Relation, those: Collection[Any], using: str) -> None:
    """None is somebody, and nobody knows who."""
    if None in those or len(those) > MOST:
        changed_for_everyone(using=using)
    else:
        tell = changed if relation.holders is holders.users() else changed_for_groups
        tell(*relation.keys(those, using), using=using)


# And of tokens.


def token_saved(sender: type[Model], instance: Any, created: bool, using: str, **kw: Any) -> None:
    """A token that was revoked ends what goes on with it; what else is written ends nothing."""
    if not created and instance.revoked is not None:
        ended(instance.user_id, using=using)


def token_deleted(sender: type[Model], instance: Any, using: str, **kwargs: Any) -> None:
    ended(instance.user_id, using=using)


# And of what an administrator has switched off, or on again.


def switched(sender: type[Model], instance: Any, using: str, **kwargs: Any) -> None:
    switches.changed()
    changed_for_everyone(using=using)
