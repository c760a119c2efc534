"""
What a name like `customer__name` means on a model.

Rule: a path goes forward, over foreign keys only, to one column; so it has at
most one value per row. What does not is refused with words that say what is
wrong and which name was probably meant.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from django.core.exceptions import FieldDoesNotExist, FieldError
from django.db import models
from django.db.models.constants import LOOKUP_SEP

from .columns import AnyField

ModelClass = type[models.Model]


@dataclass(frozen=True, slots=True)
class Path:
    """A column, and the foreign keys that lead to it."""

    name: str
    relations: tuple[models.ForeignKey[Any, Any], ...]
    field: AnyField

    @property
    def joins(self) -> str:
        """The path of the row that has the column ("" for the model's own row)."""
        return LOOKUP_SEP.join(relation.name for relation in self.relations)

    @property
    def lookup(self) -> str:
        """The column for `F()` and `order_by`: for a foreign key the key, never its ordering."""
        return LOOKUP_SEP.join([*(each.name for each in self.relations), self.field.attname])

    @property
    def nullable(self) -> bool:
        return any(relation.null for relation in self.relations) or self.field.null

    def of(self, instance: models.Model) -> Any:
        """The column's value for `instance`, None where the way to it ends."""
        row: Any = instance
        for relation in self.relations:
            if (row := getattr(row, relation.name)) is None:
                return None
        return getattr(row, self.field.attname)


def names_of(model: ModelClass) -> list[str]:
    """The names of the model's fields and relations."""
    return [field.name for field in model._meta.get_fields() if not _is_hidden(field)]


def near(name: str, names: Iterable[str]) -> str:
    """A hint with the known names that resemble `name`, or nothing."""
    close = get_close_matches(name, list(names), n=3, cutoff=0.7)
    return f" Did you mean {' or '.join(map(repr, close))}?" if close else ""


def get_field(model: ModelClass, name: str) -> Any:
    """The field or relation of `model` named `name` (or `pk`); raises FieldError with a hint."""
    try:
        return model._meta.pk if name == "pk" else model._meta.get_field(name)
    except FieldDoesNotExist:
        hint = near(name, names_of(model))
        raise FieldError(f"{model.__name__} has no field {name!r}.{hint}") from None


def follow(model: ModelClass, name: str) -> Path:
    """The path that `name` stands for; raises FieldError where it is not one column."""
    *way, last = name.split(LOOKUP_SEP)
    relations: list[models.ForeignKey[Any, Any]] = []
    for step in way:
        relations.append(_foreign_key(model, step))
        model = relations[-1].related_model
    return Path(name, tuple(relations), _column(model, last))


def _foreign_key(model: ModelClass, name: str) -> models.ForeignKey[Any, Any]:
    field = get_field(model, name)
    if isinstance(field, models.ForeignKey):
        return field
    if field.is_relation:
        raise FieldError(
            f"A path cannot go through {model.__name__}.{name}: only through foreign keys, "
            "which lead to one row."
        )
    raise FieldError(f"A path cannot go on after {model.__name__}.{name}: it is no foreign key.")


def _column(model: ModelClass, name: str) -> AnyField:
    field = get_field(model, name)
    if isinstance(field, models.CompositePrimaryKey):
        raise FieldError(f"{model.__name__}.{name} is several columns: name them one by one.")
    if field.is_relation and not isinstance(field, models.ForeignKey):
        raise FieldError(f"{model.__name__}.{name} has many values, or none of its own.")
    assert isinstance(field, models.Field)
    return field


def _is_hidden(field: Any) -> bool:
    return bool(getattr(field, "hidden", False))
