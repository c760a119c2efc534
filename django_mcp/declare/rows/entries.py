"""
What one name of a whitelist stands for: a column, a composite key, a relation's keys, a property.

Rule: each kind knows four things - what to load, what to join, its value, its schema - so that
the whitelist never asks which kind it has.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.core.exceptions import FieldError
from django.db import models
from django.db.models import Prefetch
from django.db.models.constants import LOOKUP_SEP
from django.utils.functional import cached_property
from django.utils.text import capfirst

from .columns import JSON
from .keys import key_fields, key_problems, key_schema, key_value
from .paths import ModelClass, Path, follow, get_field, names_of, near
from .values import ANYTHING, FileURI, describe, field_schema, field_value, file_value, plain_value

MOST_KEYS = 100


@dataclass(frozen=True, slots=True)
class Entry:
    """A name that a client sees, and what it stands for."""

    name: str

    @property
    def target(self) -> ModelClass | None:
        """The model whose single key the value is."""
        return None

    def loads(self) -> Iterator[str]:
        """The columns that the value is read from."""
        yield from ()

    def joins(self) -> Iterator[str]:
        """The rows, by path, that the value is read from beside the row itself."""
        yield from ()

    def value(self, instance: models.Model, file_uri: FileURI | None) -> Any:
        raise NotImplementedError

    def schema(self) -> JSON:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Column(Entry):
    """A field of the row, or of a row that foreign keys lead to; of a foreign key its key."""

    path: Path
    points_to: ModelClass | None = None

    @property
    def target(self) -> ModelClass | None:
        return self.points_to

    def loads(self) -> Iterator[str]:
        yield self.path.lookup

    def joins(self) -> Iterator[str]:
        yield from filter(None, [self.path.joins])

    def value(self, instance: models.Model, file_uri: FileURI | None) -> Any:
        field, value = self.path.field, self.path.of(instance)
        if isinstance(field, models.FileField):
            return file_value(value, self.name, file_uri)
        return field_value(field, value)

    def schema(self) -> JSON:
        return field_schema(self.path.field, self.path.nullable) | self.about()

    def about(self) -> JSON:
        """`title` and `description`."""
        way = self.path.relations
        if self.points_to is None:
            return describe(self.path.field, way)
        meta = self.points_to._meta
        relation = self.path.field if self.path.field.is_relation else way[-1]
        key = {"description": f"Key of one of the {meta.verbose_name_plural}."}
        return key | describe(relation, [each for each in way if each is not relation])


@dataclass(frozen=True, slots=True)
class CompositeKey(Entry):
    """The primary key of a model that has one of several columns."""

    model: ModelClass

    def value(self, instance: models.Model, file_uri: FileURI | None) -> Any:
        return key_value(instance)

    def schema(self) -> JSON:
        return key_schema(self.model) | {"title": "Key"}


@dataclass(frozen=True, slots=True)
class Related(Entry):
    """The keys of the rows that a many-to-many or a reverse relation leads to."""

    relation: Any
    accessor: str

    @property
    def model(self) -> ModelClass:
        return self.relation.related_model  # type: ignore[no-any-return]

    @property
    def single(self) -> bool:
        return bool(self.relation.one_to_one)

    @property
    def target(self) -> ModelClass | None:
        return self.model if self.single else None

    @property
    def stored_as(self) -> str:
        """The attribute in which the prefetched rows wait."""
        return f"_keys_of_{self.accessor}"

    def loads(self) -> Iterator[str]:
        yield _related_by(self.relation).attname

    def prefetch(self) -> Prefetch[str]:
        """At most `MOST_KEYS` rows for each row, in one query, with nothing but their keys."""
        rows = self._ordered(self.model._default_manager.all())
        return Prefetch(
            self.accessor, rows if self.single else rows[:MOST_KEYS], to_attr=self.stored_as
        )

    def _ordered(self, queryset: models.QuerySet[Any]) -> models.QuerySet[Any]:
        names = [field.attname for field in key_fields(self.model)]
        back = [] if self.relation.many_to_many else [self.relation.field.attname]
        plain = queryset.select_related(None).prefetch_related(None).defer(None)
        return plain.order_by(*names).only(*names, *back)

    def value(self, instance: models.Model, file_uri: FileURI | None) -> Any:
        found = self._found(instance)
        if self.single:
            return key_value(found) if found is not None else None
        return [key_value(row) for row in found]

    def _found(self, instance: models.Model) -> Any:
        if self.stored_as in instance.__dict__:
            return instance.__dict__[self.stored_as]
        if self.single:
            return getattr(instance, self.accessor, None)
        return self._ordered(getattr(instance, self.accessor).all())[:MOST_KEYS]

    def schema(self) -> JSON:
        meta, key = self.model._meta, key_schema(self.model)
        if self.single:
            return {"anyOf": [key, {"type": "null"}], "title": str(capfirst(meta.verbose_name))}
        title = getattr(self.relation, "verbose_name", meta.verbose_name_plural)
        description = f"Keys, at most {MOST_KEYS}."
        about = {"title": str(capfirst(title)), "description": description}
        return {"type": "array", "items": key, "maxItems": MOST_KEYS} | about


@dataclass(frozen=True, slots=True)
class Computed(Entry):
    """What a property gives."""

    function: Any

    def value(self, instance: models.Model, file_uri: FileURI | None) -> Any:
        return plain_value(getattr(instance, self.name))

    def schema(self) -> JSON:
        description = inspect.cleandoc(self.function.__doc__ or "").partition("\n\n")[0]
        about = {"description": " ".join(description.split())} if description else {}
        return {"type": ANYTHING, "title": str(capfirst(self.name.replace("_", " ")))} | about


def entry_of(model: ModelClass, name: str) -> Entry:
    """What `name` stands for; raises FieldError, with a hint, where it stands for nothing."""
    if LOOKUP_SEP in name:
        return _column(model, name)
    if (function := _property(model, name)) is not None and not _is_field(model, name):
        return Computed(name, function)
    relation = _by_accessor(model).get(name) or _get(model, name)
    if isinstance(relation, models.CompositePrimaryKey):
        return CompositeKey(name, model)
    if relation.is_relation and not isinstance(relation, models.ForeignKey):
        return _related(model, name, relation)
    return _column(model, name)


def _get(model: ModelClass, name: str) -> Any:
    try:
        return get_field(model, name)
    except FieldError:
        known = [*names_of(model), *_by_accessor(model), *_properties(model)]
        raise FieldError(
            f"{model.__name__} has no field, relation or property {name!r}.{near(name, known)}"
        ) from None


def _column(model: ModelClass, name: str) -> Column:
    path = follow(model, name)
    if not isinstance(path.field, models.ForeignKey):
        return Column(name, path)
    target: ModelClass = path.field.related_model
    if path.field.target_field.primary_key:
        return Column(name, path, target)
    # The foreign key holds something else (`to_field`); what is shown is the row's key.
    key = follow(target, "pk").field
    return Column(name, replace(path, relations=(*path.relations, path.field), field=key), target)


def _related(model: ModelClass, name: str, relation: Any) -> Related:
    if not (relation.many_to_many or relation.auto_created) or relation.hidden:
        raise FieldError(f"{model.__name__}.{name} is a relation whose keys cannot be shown.")
    if problems := key_problems(relation.related_model):
        raise FieldError(" ".join(problems))
    accessor = relation.get_accessor_name() if relation.auto_created else relation.name
    return Related(name, relation, accessor)


def _related_by(relation: Any) -> Any:
    """The row's own field by whose value the related rows are found."""
    if not relation.many_to_many:
        return relation.field.target_field
    if relation.auto_created:
        own = relation.field.m2m_reverse_field_name()
    else:
        own = relation.m2m_field_name()
    through = relation.through if relation.auto_created else relation.remote_field.through
    return through._meta.get_field(own).target_field


def _by_accessor(model: ModelClass) -> dict[str, Any]:
    """The reverse relations, by the attributes that Django gives the model for them."""
    return {str(each.get_accessor_name()): each for each in model._meta.related_objects}


def _is_field(model: ModelClass, name: str) -> bool:
    return name == "pk" or name in names_of(model)


def _property(model: ModelClass, name: str) -> Any:
    found = inspect.getattr_static(model, name, None)
    if isinstance(found, property):
        return found.fget
    kinds = (functools.cached_property, cached_property)
    return found.func if isinstance(found, kinds) else None


def _properties(model: ModelClass) -> Sequence[str]:
    return [name for name in dir(model) if not name.startswith("_") and _property(model, name)]
