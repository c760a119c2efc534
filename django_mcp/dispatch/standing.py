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

from django.apps import apps
from django.contrib.auth import get_user_model
from django.db import router
from django.db.models import Model

from .. import switches
from ..delivery.changes import GROUP, STANDING, USER
from . import saves

MOST = 100  # users, or groups, that are named; of more it is everybody
EVERYBODY = ""
FLAGS = ("is_active", "is_superuser", "is_staff")
_BEFORE = "_django_mcp_flags"


# What changed.


def changed(*users: Any, using: str | None = None) -> None:
    """These users may do something else now: each a row, or its key."""
    _say(USER, _keys(users, _users()), using)


def changed_for_groups(*groups: Any, using: str | None = None) -> None:
    """The members of these groups may do something else now."""
    if len(groups) > MOST:
        changed_for_everyone(using=using)
    else:
        _say(GROUP, _keys(groups, _groups()), using)


def changed_for_everyone(*, using: str | None = None) -> None:
    """Anybody may: what a server offers was switched, or who had what is not known any more."""
    _say(USER, [EVERYBODY], using)


def ended(*users: Any, using: str | None = None) -> None:
    """What goes on in the name of these users may have to end; of none named, of anybody."""
    _say(STANDING, _keys(users, _users()) or {EVERYBODY}, using)


def _keys(those: Iterable[Any], model: type[Model]) -> set[str]:
    """What names them: of a child that has a key of its own, that of its parent."""
    name = model._meta.pk.attname
    return {str(getattr(one, name) if isinstance(one, model) else one) for one in those}


def _say(kind: str, keys: Collection[str], using: str | None) -> None:
    named = sorted(keys) if len(keys) <= MOST else [EVERYBODY]
    if named:
        saves.say_with(using or _home(), *((kind, key) for key in named))


def _home() -> str:
    return str(router.db_for_write(get_user_model()))


# Who is a user, and what a group.


def kinds() -> tuple[Any, Any]:
    """What users and groups are instances of; of groups nothing, where there are none."""
    return _users(), _groups() if apps.is_installed("django.contrib.auth") else ()


def _users() -> Any:
    return get_user_model()._meta.concrete_model


def _groups() -> Any:
    return apps.get_model("auth", "Group")


# What Django says of users.


def noting(
    sender: type[Model], instance: Any, raw: bool, using: str,
    update_fields: Collection[str] | None = None, **kwargs: Any,
) -> None:  # fmt: skip
    """A user is about to be saved: one query, where its flags are, and somebody is connected."""
    vars(instance).pop(_BEFORE, None)
    flags = () if raw or instance._state.adding else _written(instance, update_fields)
    if flags and saves.is_wanted(using):
        row = sender._base_manager.using(using).filter(pk=instance.pk).values(*flags).first()
        vars(instance)[_BEFORE] = row or {}


def saved(
    sender: type[Model], instance: Any, created: bool, raw: bool, using: str,
    update_fields: Collection[str] | None = None, **kwargs: Any,
) -> None:  # fmt: skip
    """A user was saved."""
    before = vars(instance).pop(_BEFORE, None)
    flags = () if raw or created else _written(instance, update_fields)
    other = {name for name in flags if before is None or before.get(name) != vars(instance)[name]}
    if "is_active" in other and not instance.is_active:
        ended(instance, using=using)
    elif other:
        changed(instance, using=using)


def deleted(sender: type[Model], instance: Any, using: str, **kwargs: Any) -> None:
    """A user is no more."""
    ended(instance, using=using)


def _written(user: Any, update_fields: Collection[str] | None) -> list[str]:
    fields = {field.attname for field in user._meta.concrete_fields} - user.get_deferred_fields()
    written = fields if update_fields is None else fields.intersection(update_fields)
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
    if isinstance(grant, _groups()):
        changed_for_groups(grant, using=using)
    else:
        changed_for_everyone(using=using)


def related(
    sender: type[Model], instance: Any, action: str, model: type[Model], pk_set: set[Any] | None,
    using: str, **kwargs: Any,
) -> None:  # fmt: skip
    """A relation was changed: of users to groups or permissions, or of groups to permissions."""
    is_known = action in saves.WRITTEN and pk_set != set()
    if not is_known or not apps.is_installed("django.contrib.auth"):
        return
    user, group = get_user_model(), apps.get_model("auth", "Group")
    if sender in (_through(user, "user_permissions"), _through(user, "groups")):
        _told(changed, [instance] if isinstance(instance, user) else pk_set, using)
    elif sender is _through(group, "permissions"):
        _told(changed_for_groups, [instance] if isinstance(instance, group) else pk_set, using)


def _told(tell: Any, those: Iterable[Any] | None, using: str) -> None:
    """Who was at the other end of what was cleared nobody knows."""
    if those is None:
        changed_for_everyone(using=using)
    else:
        tell(*those, using=using)


def _through(model: type[Model], name: str) -> Any:
    return getattr(getattr(model, name, None), "through", None)


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
