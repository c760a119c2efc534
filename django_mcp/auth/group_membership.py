"""
Relations of users, groups and permissions, and the tables through which they are stored.

A user is identified by the primary key of the project's user model, also if a row is of a parent
or child class. This module imports only Django. Call its functions when all models are loaded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from django.apps import apps
from django.contrib.auth import get_user_model
from django.db.models import Model


def users() -> Any:
    return get_user_model()._meta.concrete_model


def groups() -> Any:
    return apps.get_model("auth", "Group")


def kinds() -> tuple[Any, Any]:
    """Return the classes of users and of groups, for ``isinstance``.

    Without ``django.contrib.auth`` the second is an empty tuple.
    """
    return users(), groups() if apps.is_installed("django.contrib.auth") else ()


_GROUPS = "_django_mcp_groups"


def group_keys(user: Any) -> frozenset[str] | None:
    """Return the primary keys of a user's groups as text, or None if the user can have none.

    It queries the database once for each loaded user. Like Django's cache of permissions, the
    result is stored on the instance, and every check with a reloaded user queries again.
    """
    relation = getattr(user, "groups", None)
    if relation is None:
        return None
    found: frozenset[str] | None = vars(user).get(_GROUPS)
    if found is None:
        found = frozenset(str(pk) for pk in relation.values_list("pk", flat=True))
        vars(user)[_GROUPS] = found
    return found


def parents() -> list[Any]:
    """Return the parent models of the user model, whose rows can be saved separately."""
    return [one._meta.concrete_model for one in users()._meta.get_parent_list()]


def users_of(row: Model, using: str) -> Collection[Any]:
    """Return the primary keys of the users that a row of the user model or a parent belongs to."""
    model = users()
    if isinstance(row, model):
        return [loaded(row, model._meta.pk)]
    of = next((one for one in parents() if isinstance(row, one)), None)
    if of is None:
        return []
    return keys(model, of._meta.pk, [loaded(row, of._meta.pk)], using)


def loaded(row: Model, field: Any) -> Any:
    """Return the field's value, or None if it is deferred: loading it fails for a deleted row."""
    return None if field.attname in row.get_deferred_fields() else getattr(row, field.attname)


def keys(model: Any, field: Any, values: Collection[Any], using: str) -> Collection[Any]:
    """Return the primary keys of the rows of ``model`` whose ``field`` has one of these values.

    This queries the database unless ``field`` is the primary key.
    """
    if field == model._meta.pk:
        return values
    rows = model._base_manager.using(using).filter(**{f"{field.name}__in": values})
    return list(rows.values_list("pk", flat=True))


class MembershipRelation(NamedTuple):
    """A through table that gives users or groups something: groups or permissions."""

    holders: Any  # the model of users, or of groups
    field: Any  # the foreign key of the through table to it

    @property
    def through(self) -> Any:
        return self.field.model

    def keys(self, values: Collection[Any], using: str) -> Collection[Any]:
        return keys(self.holders, self.field.target_field, values, using)


def relation(through: type[Model]) -> MembershipRelation | None:
    return next((one for one in relations() if issubclass(through, one.through)), None)


def relations() -> Iterator[MembershipRelation]:
    if not apps.is_installed("django.contrib.auth"):
        return
    for model, name in (
        (users(), "groups"),
        (users(), "user_permissions"),
        (groups(), "permissions"),
    ):
        if field := getattr(getattr(model, name, None), "field", None):
            through = field.remote_field.through
            yield MembershipRelation(model, through._meta.get_field(field.m2m_field_name()))
