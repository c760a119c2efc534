"""
What one name of a whitelist stands for: a column, a composite key, a relation's keys, a property,
a method of the resource.

Each kind knows what to load, what to join, what to prefetch, its value and its schema, so that the
whitelist never asks which kind it has.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.core.exceptions import FieldError
from django.db import models
from django.db.models import Prefetch
from django.db.models.constants import LOOKUP_SEP
from django.db.models.fields.files import FieldFile
from django.utils.functional import cached_property
from pydantic import TypeAdapter, ValidationError

from ..arguments import TerseSchema
from ..bindings import holds
from .columns import JSON
from .field_types import FieldType, field_type, fits, is_managed, or_null, returned_schema
from .keys import (
    ModelClass,
    Path,
    follow,
    get_field,
    key_fields,
    key_problems,
    key_schema,
    key_value,
    names_of,
    near,
)
from .values import (
    ANYTHING,
    FileType,
    FileURI,
    describe,
    field_schema,
    field_value,
    file_value,
    plain_value,
)

MAX_RELATED_KEYS = 100
MISSING: Any = object()


@dataclass(frozen=True, slots=True)
class Entry:
    """A name that a client sees, and what it stands for."""

    name: str

    @property
    def target(self) -> ModelClass | None:
        """The model whose single key the value is."""
        return None

    @property
    def needs_row(self) -> bool:
        """Whether the value is made of the whole row, by code that may read any column."""
        return False

    def prefetches(self) -> Iterator[Prefetch[str] | str]:
        """What to prefetch, so that a page of rows costs as many queries as one row."""
        yield from ()

    def loads(self) -> Iterator[str]:
        """The columns that the value is read from."""
        yield from ()

    def joins(self) -> Iterator[str]:
        """The rows, by path, that the value is read from beside the row itself."""
        yield from ()

    def value(self, instance: models.Model, file_uri: FileURI | None, request: Any = None) -> Any:
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
        field, start = self.path.field, self.path.lookup.removesuffix(self.path.field.attname)
        descriptor = inspect.getattr_static(field.model, field.attname)
        if type(descriptor).__module__.startswith("django."):
            yield self.path.lookup
        else:
            # The attribute of a package's field may read other columns: money, its currency.
            yield from (f"{start}{each.attname}" for each in field.model._meta.concrete_fields)

    def joins(self) -> Iterator[str]:
        yield from filter(None, [self.path.joins])

    def value(self, instance: models.Model, file_uri: FileURI | None, request: Any = None) -> Any:
        field, value = self.path.field, self.path.of(instance)
        if isinstance(value, FieldFile) and isinstance(field_type(field), FileType):
            return file_value(value, self.name, file_uri)
        return field_value(field, value)

    def schema(self) -> JSON:
        return field_schema(self.path.field, self.path.nullable) | self.about()

    def about(self) -> JSON:
        """`title` and `description`."""
        way = self.path.relations
        if self.points_to is None:
            return describe(self.path.field, way)
        relation = self.path.field if self.path.field.is_relation else way[-1]
        return describe(relation, [each for each in way if each is not relation])


@dataclass(frozen=True, slots=True)
class CompositeKey(Entry):
    """The primary key of a model that has one of several columns."""

    model: ModelClass

    def value(self, instance: models.Model, file_uri: FileURI | None, request: Any = None) -> Any:
        return key_value(instance)

    def schema(self) -> JSON:
        return key_schema(self.model) | {"title": "Key"}


@dataclass(frozen=True, slots=True)
class Related(Entry):
    """The rows that a many-to-many or a reverse relation leads to: their keys, or one column."""

    relation: Any
    accessor: str
    path: Path | None = None  # from a related row to the column that is shown

    @property
    def model(self) -> ModelClass:
        return self.relation.related_model  # type: ignore[no-any-return]

    @property
    def single(self) -> bool:
        return bool(self.relation.one_to_one)

    @property
    def target(self) -> ModelClass | None:
        return self.model if self.single and self.path is None else None

    @property
    def stored_as(self) -> str:
        """The attribute in which the prefetched rows wait."""
        # Django would take "__" for a path to another attribute.
        return f"_{self.path.name if self.path else 'key'}_of_{self.accessor}".replace("__", ".")

    def loads(self) -> Iterator[str]:
        yield _related_by(self.relation).attname

    def prefetches(self) -> Iterator[Prefetch[str] | str]:
        """At most `MAX_RELATED_KEYS` rows for each row, in one query, with the shown columns."""
        rows = self._ordered(self.model._default_manager.all())
        rows = rows[:MAX_RELATED_KEYS] if self._is_sliceable else rows
        yield Prefetch(self.accessor, rows, to_attr=self.stored_as)

    @property
    def _is_sliceable(self) -> bool:
        """Whether the relation's manager can prefetch the first rows of each row.

        Django's can. Those of packages (modelcluster) add a filter, which a slice forbids.
        """
        descriptor = inspect.getattr_static(self.relation_model, self.accessor)
        return not self.single and type(descriptor).__module__.startswith("django.")

    @property
    def relation_model(self) -> ModelClass:
        """The model that has the accessor."""
        relation = self.relation
        return relation.model  # type: ignore[no-any-return]

    def _ordered(self, queryset: models.QuerySet[Any]) -> models.QuerySet[Any]:
        names = [field.attname for field in key_fields(self.model)]
        back = [] if self.relation.many_to_many else [self.relation.field.attname]
        plain = queryset.select_related(None).prefetch_related(None).defer(None)
        if self.path is not None:
            back.append(self.path.lookup)
            plain = plain.select_related(self.path.joins) if self.path.joins else plain
        return plain.order_by(*names).only(*names, *back)

    def value(self, instance: models.Model, file_uri: FileURI | None, request: Any = None) -> Any:
        found = self._found(instance)
        if self.single:
            return self._shown(found) if found is not None else None
        return [self._shown(row) for row in found]

    def _shown(self, row: models.Model) -> Any:
        if self.path is None:
            return key_value(row)
        return field_value(self.path.field, self.path.of(row))

    def _found(self, instance: models.Model) -> Any:
        if self.stored_as in instance.__dict__:
            found = instance.__dict__[self.stored_as]
            return found if self.single else found[:MAX_RELATED_KEYS]
        if self.single:
            return getattr(instance, self.accessor, None)
        return self._ordered(getattr(instance, self.accessor).all())[:MAX_RELATED_KEYS]

    def schema(self) -> JSON:
        if self.path is not None:
            about = describe(self.path.field)
            if self.single:
                return field_schema(self.path.field, nullable=True) | about
            one = field_schema(self.path.field, self.path.nullable)
            return {"type": "array", "items": one, "maxItems": MAX_RELATED_KEYS} | about
        key = key_schema(self.model)
        if self.single:
            return {"anyOf": [key, {"type": "null"}]}
        return {"type": "array", "items": key, "maxItems": MAX_RELATED_KEYS}


@dataclass(frozen=True, slots=True)
class Typed(Entry):
    """A field without a column, such as a package's manager of tags: what its type makes of it."""

    field: Any
    type: FieldType

    @property
    def needs_row(self) -> bool:
        return True

    def prefetches(self) -> Iterator[Prefetch[str] | str]:
        if self.field.is_relation:
            yield self.name

    def value(self, instance: models.Model, file_uri: FileURI | None, request: Any = None) -> Any:
        value = getattr(instance, self.name)
        return None if value is None else plain_value(self.type.to_json(value))

    def schema(self) -> JSON:
        nullable = getattr(self.field, "null", True) and not self.field.many_to_many
        schema = or_null(self.type.schema) if nullable else dict(self.type.schema)
        return schema | describe(self.field)


@dataclass(frozen=True, slots=True)
class Computed(Entry):
    """What a property gives, of the type that its return annotation tells, if it does."""

    function: Any
    returned: JSON | None = None

    @property
    def needs_row(self) -> bool:
        return True

    def value(self, instance: models.Model, file_uri: FileURI | None, request: Any = None) -> Any:
        found = plain_value(getattr(instance, self.name))
        if self.returned is not None and not fits(self.returned, found):
            owner = f"{type(instance).__name__}.{self.name}"
            raise TypeError(f"{owner} gave {found!r:.80}, where its annotation says another type.")
        return found

    def schema(self) -> JSON:
        return (self.returned or {"type": ANYTHING}) | about(self.function)


def about(function: Any) -> JSON:
    """The `description` of what a function gives."""
    description = inspect.cleandoc(function.__doc__ or "").partition("\n\n")[0]
    return {"description": " ".join(description.split())} if description else {}


@dataclass(frozen=True, slots=True)
class Method(Entry):
    """What a method of the resource gives: `def total_label(self, row, request) -> str`."""

    function: Any
    annotation: Any  # of what it returns
    type: Any  # a pydantic.TypeAdapter of that

    @property
    def needs_row(self) -> bool:
        return True

    def value(self, instance: models.Model, file_uri: FileURI | None, request: Any = None) -> Any:
        given = self.function(instance, request)
        try:
            found = self.type.validate_python(given)
        except ValidationError:
            owner = f"{type(self.function.__self__).__qualname__}.{self.name}"
            wanted = inspect.formatannotation(self.annotation)
            raise TypeError(
                f"{owner} gave {given!r:.80} ({type(given).__name__}), where its annotation says "
                f"{wanted}."
            ) from None
        return self.type.dump_python(found, mode="json", by_alias=True)

    def schema(self) -> JSON:
        schema: JSON = self.type.json_schema(mode="serialization", schema_generator=TerseSchema)
        return about(self.function) | schema


def _is_request(parameter: Any) -> bool:
    """Whether the name or the annotation of a parameter says that it is the request."""
    annotation = parameter.annotation
    written = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return bool(parameter.name == "request" or written.rpartition(".")[2] == "Request")


def method_of(name: str, function: Any) -> Method:
    """The entry of a resource's method; raises FieldError where it cannot be one."""
    try:
        inspect.signature(function).bind("row", "request")
    except TypeError as error:
        raise FieldError(f"{name!r} takes (self, row, request): {error}.") from None
    first, second = [*inspect.signature(function).parameters.values()][:2]
    if _is_request(first) or second.name == "row":
        swapped = f"write {second.name!r} before {first.name!r}"
        raise FieldError(f"{name!r} takes (self, row, request): {swapped}.")
    if inspect.iscoroutinefunction(function):
        raise FieldError(f"{name!r} is asynchronous: rows are written by plain code.")
    try:
        annotation = typing.get_type_hints(function, include_extras=True).get("return", MISSING)
        if annotation is MISSING:
            raise FieldError(f"{name!r} has no return annotation, of which its schema is made.")
        if holds(annotation, models.Model, models.QuerySet):
            raise FieldError(f"{name!r} returns rows: return plain values.")
        made = Method(name, function, annotation, TypeAdapter(annotation))
        if "$defs" in made.schema():
            raise FieldError(f"{name!r} returns types within types: return a plain dict for those.")
        return made
    except FieldError:
        raise
    except Exception as error:  # an annotation may be anything
        words = str(error).partition("\n")[0]
        raise FieldError(f"{name!r}: no schema can be made of its annotation: {words}") from None


def entry_of(model: ModelClass, name: str) -> Entry:
    """What `name` stands for; raises FieldError, with a hint, where it stands for nothing."""
    if LOOKUP_SEP in name:
        return _through_relation(model, name) or _column(model, name)
    if (function := _property(model, name)) is not None and not _is_field(model, name):
        return Computed(name, function, returned_schema(function))
    relation = _by_accessor(model).get(name) or _get(model, name)
    if isinstance(relation, models.CompositePrimaryKey):
        return CompositeKey(name, model)
    if is_managed(relation) and (found := field_type(relation)) is not None:
        return Typed(name, relation, found)
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
        raise FieldError(
            f"{model.__name__}.{name!r} is a relation whose keys cannot be shown: name a property "
            "or a method instead."
        )
    if problems := key_problems(relation.related_model):
        raise FieldError(" ".join(problems))
    accessor = relation.get_accessor_name() if relation.auto_created else relation.name
    return Related(name, relation, accessor)


def _through_relation(model: ModelClass, name: str) -> Related | None:
    """A column of the rows that a to-many relation, the first step of `name`, leads to."""
    first, _, rest = name.partition(LOOKUP_SEP)
    relation = _by_accessor(model).get(first) or _get(model, first)
    has_type = is_managed(relation) and field_type(relation) is not None
    if isinstance(relation, models.ForeignKey) or not relation.is_relation or has_type:
        return None
    related = _related(model, first, relation)
    return replace(related, name=name, path=_column(related.model, rest).path)


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
