"""
Who holds what: users groups and permissions, groups permissions, and by the rows of which table.

Rule: a user is named by the key of the project's user model, whichever class a row is of, and a
group likewise. Django alone is imported here, when all models are there.
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
    """What users and groups are instances of; of groups nothing, where there are none."""
    return users(), groups() if apps.is_installed("django.contrib.auth") else ()


def parents() -> list[Any]:
    """Whose rows are a part of users', and are saved by themselves."""
    return [one._meta.concrete_model for one in users()._meta.get_parent_list()]


def users_of(row: Model, using: str) -> Collection[Any]:
    """The keys of the users that a row is, or that it is a part of."""
    of = next((one for one in (users(), *parents()) if isinstance(row, one)), None)
    if of is None:
        return []
    return keys(users(), of._meta.pk, [loaded(row, of._meta.pk)], using)


def loaded(row: Model, field: Any) -> Any:
    """None where it was not loaded: the row may be gone."""
    return None if field.attname in row.get_deferred_fields() else getattr(row, field.attname)


def keys(model: Any, field: Any, values: Collection[Any], using: str) -> Collection[Any]:
    """Of those whose ``field`` has these values: a query, where that is not their key."""
    if field == model._meta.pk:
        return values
    rows = model._base_manager.using(using).filter(**{f"{field.name}__in": values})
    return list(rows.values_list("pk", flat=True))


class Relation(NamedTuple):
    """By the rows of a table somebody holds something."""

    holders: Any  # users, or groups
    field: Any  # which of them a row names

    @property
    def through(self) -> Any:
        return self.field.model

    def keys(self, values: Collection[Any], using: str) -> Collection[Any]:
        return keys(self.holders, self.field.target_field, values, using)


def relation(through: type[Model]) -> Relation | None:
    return next((one for one in relations() if issubclass(through, one.through)), None)


def relations() -> Iterator[Relation]:
    if not apps.is_installed("django.contrib.auth"):
        return
    for model, name in (
        (users(), "groups"),
        (users(), "user_permissions"),
        (groups(), "permissions"),
    ):
        if field := getattr(getattr(model, name, None), "field", None):
            through = field.remote_field.through
            yield Relation(model, through._meta.get_field(field.m2m_field_name()))
