"""Entries: the names in a model resource's ``fields``, and how each one gets its value from a row.

A name is a column (``Column``), a composite primary key (``CompositeKey``), a to-many or reverse
relation (``RelatedRows``), a field without a column (``FieldTypeEntry``), a property of the model
(``PropertyEntry``) or a method of the model resource (``Method``). ``entry_of`` finds out which.
Each class says what it loads, joins and prefetches, and has the value and the JSON Schema.
``FieldSet`` uses all of them alike.
"""

from __future__ import annotations

import functools
import inspect
import operator
import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.core.exceptions import FieldError
from django.db import models
from django.db.models import Prefetch, Q
from django.db.models.constants import LOOKUP_SEP
from django.db.models.fields.files import FieldFile
from django.utils.functional import cached_property
from pydantic import TypeAdapter, ValidationError

from ..schemas import TerseSchema, holds
from .columns import JSON
from .field_types import FieldType, field_type, fits, is_managed, or_null, returned_schema
from .keys import (
    ColumnPath,
    ModelClass,
    did_you_mean_hint,
    field_names,
    follow,
    get_field,
    key_fields,
    key_problems,
    key_schema,
    key_value,
)
from .values import (
    ALL_JSON_TYPES,
    FileType,
    MakeURI,
    describe,
    field_schema,
    field_value,
    file_value,
    plain_value,
)

MAX_RELATED_KEYS = 100
_MISSING: Any = object()


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in ``fields``: a member of a row's JSON, and where its value comes from."""

    name: str

    @property
    def target(self) -> ModelClass | None:
        """The model whose primary key the value is, or None if it is not a single key."""
        return None

    @property
    def needs_all_columns(self) -> bool:
        """Whether the value is computed by code that may read any column of the row."""
        return False

    def prefetches(self, request: Any = None) -> Iterator[Prefetch[str] | str]:
        """Yield what to prefetch, so that a page of rows takes as many queries as one row."""
        yield from ()

    def column_names(self) -> Iterator[str]:
        """Yield the columns that the value is read from."""
        yield from ()

    def related_paths(self) -> Iterator[str]:
        """Yield the paths of related rows that the value is read from, for ``select_related``."""
        yield from ()

    def value(self, instance: models.Model, make_uri: MakeURI | None, request: Any = None) -> Any:
        """Return the JSON of the value. ``make_uri`` returns the URI of a file, by name."""
        raise NotImplementedError

    def schema(self) -> JSON:
        """Return the JSON Schema of the value, in the active language."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Column(Entry):
    """A column of the row or of a row that foreign keys lead to.

    The value of a foreign key is the primary key of its row.
    """

    path: ColumnPath
    points_to: ModelClass | None = None

    @property
    def target(self) -> ModelClass | None:
        return self.points_to

    def column_names(self) -> Iterator[str]:
        field, start = self.path.field, self.path.lookup.removesuffix(self.path.field.attname)
        descriptor = inspect.getattr_static(field.model, field.attname)
        if type(descriptor).__module__.startswith("django."):
            yield self.path.lookup
        else:
            # The attribute of a package's field may read other columns: an amount of money its
            # currency. Deferred columns would then cost one query for each row.
            yield from (f"{start}{each.attname}" for each in field.model._meta.concrete_fields)

    def related_paths(self) -> Iterator[str]:
        yield from filter(None, [self.path.related_path])

    def value(self, instance: models.Model, make_uri: MakeURI | None, request: Any = None) -> Any:
        field, value = self.path.field, self.path.value_of(instance)
        if isinstance(value, FieldFile) and isinstance(field_type(field), FileType):
            return file_value(value, self.name, make_uri)
        return field_value(field, value)

    def schema(self) -> JSON:
        return field_schema(self.path.field, self.path.nullable) | self.title_and_description()

    def title_and_description(self) -> JSON:
        relations = self.path.relations
        if self.points_to is None:
            return describe(self.path.field, relations)
        relation = self.path.field if self.path.field.is_relation else relations[-1]
        return describe(relation, [each for each in relations if each is not relation])


@dataclass(frozen=True, slots=True)
class CompositeKey(Entry):
    """A primary key that consists of several columns."""

    model: ModelClass

    def value(self, instance: models.Model, make_uri: MakeURI | None, request: Any = None) -> Any:
        return key_value(instance)

    def schema(self) -> JSON:
        return key_schema(self.model) | {"title": "Key"}


@dataclass(frozen=True, slots=True)
class RelatedRows(Entry):
    """The rows of a many-to-many or reverse relation: their primary keys, or one column of each.

    If the server has model resources of the related model, only the rows that these show to the
    user are shown here. Of a model without resources, all rows are shown.
    """

    relation: Any
    accessor: str
    path: ColumnPath | None = None  # from a related row to the column that is shown
    resources: tuple[Any, ...] = ()  # ``ModelRows`` of the related model

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
    def prefetch_attribute(self) -> str:
        """The name of the attribute that holds the prefetched rows of an instance."""
        # Django reads "__" in `to_attr` as a path to another attribute.
        return f"_{self.path.name if self.path else 'key'}_of_{self.accessor}".replace("__", ".")

    def column_names(self) -> Iterator[str]:
        yield _linking_field(self.relation).attname

    def prefetches(self, request: Any = None) -> Iterator[Prefetch[str] | str]:
        """Yield one query for all rows, with at most ``MAX_RELATED_KEYS`` related rows for each."""
        rows = self._visible_in_order(self.model._default_manager.all(), request)
        rows = rows[:MAX_RELATED_KEYS] if self._is_sliceable else rows
        yield Prefetch(self.accessor, rows, to_attr=self.prefetch_attribute)

    @property
    def _is_sliceable(self) -> bool:
        """Whether the relation's manager can prefetch only the first rows of each row.

        Django's managers can. Managers of packages such as modelcluster add a filter to the
        queryset, which Django forbids after a slice.
        """
        descriptor = inspect.getattr_static(self.relation_model, self.accessor)
        return not self.single and type(descriptor).__module__.startswith("django.")

    @property
    def relation_model(self) -> ModelClass:
        """The model that has the accessor."""
        relation = self.relation
        return relation.model  # type: ignore[no-any-return]

    def _visible_in_order(
        self, queryset: models.QuerySet[Any], request: Any
    ) -> models.QuerySet[Any]:
        """Return the visible rows in the order of their keys, with only the needed columns."""
        queryset = visible_rows(queryset, self.resources, request)
        names = [field.attname for field in key_fields(self.model)]
        columns = [] if self.relation.many_to_many else [self.relation.field.attname]
        plain = queryset.select_related(None).prefetch_related(None).defer(None)
        if self.path is not None:
            columns.append(self.path.lookup)
            plain = (
                plain.select_related(self.path.related_path) if self.path.related_path else plain
            )
        ordered = plain.order_by(*names)
        # Object permission may read any column.
        return (
            ordered
            if any_checks_object_permission(self.resources)
            else ordered.only(*names, *columns)
        )

    def value(self, instance: models.Model, make_uri: MakeURI | None, request: Any = None) -> Any:
        found = self._fetch_rows(instance, request)
        if self.single:
            is_shown = found is not None and is_permitted(found, self.resources, request)
            return self._shown(found) if is_shown else None
        return [self._shown(row) for row in found if is_permitted(row, self.resources, request)]

    def _shown(self, row: models.Model) -> Any:
        if self.path is None:
            return key_value(row)
        return field_value(self.path.field, self.path.value_of(row))

    def _fetch_rows(self, instance: models.Model, request: Any) -> Any:
        if self.prefetch_attribute in instance.__dict__:
            found = instance.__dict__[self.prefetch_attribute]
            return found if self.single else found[:MAX_RELATED_KEYS]
        if not self.single:
            return self._visible_in_order(getattr(instance, self.accessor).all(), request)[
                :MAX_RELATED_KEYS
            ]
        found = getattr(instance, self.accessor, None)
        if found is None or not self.resources:
            return found
        same = self.model._default_manager.using(found._state.db).filter(pk=found.pk)
        return self._visible_in_order(same, request).first()

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


def visible_rows(
    queryset: models.QuerySet[Any], resources: Sequence[Any], request: Any
) -> models.QuerySet[Any]:
    """Return the rows of ``queryset`` that ``get_queryset`` of one of ``resources`` returns.

    Without resources, return all rows.
    """
    if not resources:
        return queryset
    allowed = [resource for resource in resources if resource._is_allowed(request)]
    # A subquery: a join in the project's queryset may return a row several times.
    conditions = [Q(pk__in=each.get_queryset(request).values("pk")) for each in allowed]
    return queryset.filter(functools.reduce(operator.or_, conditions)) if allowed else (
        queryset.none()
    )  # fmt: skip


def any_checks_object_permission(resources: Sequence[Any]) -> bool:
    """Whether one of ``resources`` checks object permission, which a query cannot do."""
    return any(resource._overrides("has_object_permission") for resource in resources)


def is_permitted(row: models.Model, resources: Sequence[Any], request: Any) -> bool:
    """Whether the object permission of all ``resources`` allows the user to view ``row``."""
    return all(
        resource._permits(request, row, "view")
        for resource in resources
        if resource._overrides("has_object_permission")
    )


@dataclass(frozen=True, slots=True)
class FieldTypeEntry(Entry):
    """A field without a column, such as taggit's manager, whose field type writes the value."""

    field: Any
    type: FieldType

    @property
    def needs_all_columns(self) -> bool:
        return True

    def prefetches(self, request: Any = None) -> Iterator[Prefetch[str] | str]:
        if self.field.is_relation:
            yield self.name

    def value(self, instance: models.Model, make_uri: MakeURI | None, request: Any = None) -> Any:
        value = getattr(instance, self.name)
        return None if value is None else plain_value(self.type.to_json(value))

    def schema(self) -> JSON:
        nullable = getattr(self.field, "null", True) and not self.field.many_to_many
        schema = or_null(self.type.schema) if nullable else dict(self.type.schema)
        return schema | describe(self.field)


@dataclass(frozen=True, slots=True)
class PropertyEntry(Entry):
    """A property of the model. Its return annotation, if there is one, is the schema."""

    function: Any
    returned: JSON | None = None

    @property
    def needs_all_columns(self) -> bool:
        return True

    def value(self, instance: models.Model, make_uri: MakeURI | None, request: Any = None) -> Any:
        found = plain_value(getattr(instance, self.name))
        if self.returned is not None and not fits(self.returned, found):
            owner = f"{type(instance).__name__}.{self.name}"
            raise TypeError(f"{owner} returned {found!r:.80}, which does not fit its annotation.")
        return found

    def schema(self) -> JSON:
        return (self.returned or {"type": ALL_JSON_TYPES}) | docstring_description(self.function)


def docstring_description(function: Any) -> JSON:
    """Return the ``description`` of a property or method: the first paragraph of its docstring."""
    description = inspect.cleandoc(function.__doc__ or "").partition("\n\n")[0]
    return {"description": " ".join(description.split())} if description else {}


@dataclass(frozen=True, slots=True)
class Method(Entry):
    """A method of the model resource: ``def total_label(self, row, request) -> str``."""

    function: Any
    annotation: Any  # of what it returns
    type: Any  # a pydantic.TypeAdapter of that

    @property
    def needs_all_columns(self) -> bool:
        return True

    def value(self, instance: models.Model, make_uri: MakeURI | None, request: Any = None) -> Any:
        given = self.function(instance, request)
        try:
            found = self.type.validate_python(given)
        except ValidationError:
            owner = f"{type(self.function.__self__).__qualname__}.{self.name}"
            wanted = inspect.formatannotation(self.annotation)
            raise TypeError(
                f"{owner} returned {given!r:.80} ({type(given).__name__}). Its annotation is "
                f"{wanted}."
            ) from None
        return self.type.dump_python(found, mode="json", by_alias=True)

    def schema(self) -> JSON:
        schema: JSON = self.type.json_schema(mode="serialization", schema_generator=TerseSchema)
        return docstring_description(self.function) | schema


def _is_request(parameter: Any) -> bool:
    """Whether a parameter is the request, by its name or annotation."""
    annotation = parameter.annotation
    written = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return bool(parameter.name == "request" or written.rpartition(".")[2] == "Request")


def method_of(name: str, function: Any) -> Method:
    """Return the entry of a model resource's method. Raise ``FieldError`` if it cannot be shown."""
    try:
        inspect.signature(function).bind("row", "request")
    except TypeError as error:
        raise FieldError(f"{name!r} must accept (self, row, request): {error}.") from None
    first, second = [*inspect.signature(function).parameters.values()][:2]
    if _is_request(first) or second.name == "row":
        swapped = f"write {second.name!r} before {first.name!r}"
        raise FieldError(f"{name!r} must accept (self, row, request): {swapped}.")
    if inspect.iscoroutinefunction(function):
        raise FieldError(f"{name!r} is asynchronous. Make it a plain function.")
    try:
        annotation = typing.get_type_hints(function, include_extras=True).get("return", _MISSING)
        if annotation is _MISSING:
            raise FieldError(f"{name!r} has no return annotation. Its schema is made from it.")
        if holds(annotation, models.Model, models.QuerySet):
            raise FieldError(f"{name!r} returns model instances. Return plain values.")
        made = Method(name, function, annotation, TypeAdapter(annotation))
        if "$defs" in made.schema():
            raise FieldError(f"{name!r} returns nested types. Annotate inner ones as dict.")
        return made
    except FieldError:
        raise
    except Exception as error:  # an annotation may be any object
        reason = str(error).partition("\n")[0]
        raise FieldError(f"{name!r}: its annotation has no JSON Schema: {reason}") from None


def entry_of(model: ModelClass, name: str) -> Entry:
    """Return the entry of a name in ``fields``.

    Raise ``FieldError`` for an unknown name, with similar names as a hint.
    """
    if LOOKUP_SEP in name:
        return _through_relation(model, name) or _column(model, name)
    if (function := _property_function(model, name)) is not None and not _is_field(model, name):
        return PropertyEntry(name, function, returned_schema(function))
    relation = _by_accessor(model).get(name) or _get(model, name)
    if isinstance(relation, models.CompositePrimaryKey):
        return CompositeKey(name, model)
    if is_managed(relation) and (found := field_type(relation)) is not None:
        return FieldTypeEntry(name, relation, found)
    if relation.is_relation and not isinstance(relation, models.ForeignKey):
        return _related_entry(model, name, relation)
    return _column(model, name)


def _get(model: ModelClass, name: str) -> Any:
    """Return the field or relation. Raise ``FieldError``, with similar names as a hint."""
    try:
        return get_field(model, name)
    except FieldError:
        known = [*field_names(model), *_by_accessor(model), *_properties(model)]
        hint = did_you_mean_hint(name, known)
        raise FieldError(
            f"{model.__name__} has no field, relation or property {name!r}.{hint}"
        ) from None


def _column(model: ModelClass, name: str) -> Column:
    """Return the column of the field or path ``name``; for a foreign key its row's primary key."""
    path = follow(model, name)
    if not isinstance(path.field, models.ForeignKey):
        return Column(name, path)
    target: ModelClass = path.field.related_model
    if path.field.target_field.primary_key:
        return Column(name, path, target)
    # With `to_field` the column holds another value. Clients see the primary key of the row.
    key = follow(target, "pk").field
    return Column(name, replace(path, relations=(*path.relations, path.field), field=key), target)


def _related_entry(model: ModelClass, name: str, relation: Any) -> RelatedRows:
    """Return the entry of a to-many or reverse relation. Raise ``FieldError`` if it has no keys."""
    if not (relation.many_to_many or relation.auto_created) or relation.hidden:
        raise FieldError(
            f"{model.__name__}.{name!r} is a relation without keys to show. Name a property or "
            "a method instead."
        )
    if problems := key_problems(relation.related_model):
        raise FieldError(" ".join(problems))
    accessor = relation.get_accessor_name() if relation.auto_created else relation.name
    return RelatedRows(name, relation, accessor)


def _through_relation(model: ModelClass, name: str) -> RelatedRows | None:
    """Return the entry of a path whose first step is a to-many relation, or None if it is not."""
    first, _, rest = name.partition(LOOKUP_SEP)
    relation = _by_accessor(model).get(first) or _get(model, first)
    has_type = is_managed(relation) and field_type(relation) is not None
    if isinstance(relation, models.ForeignKey) or not relation.is_relation or has_type:
        return None
    related = _related_entry(model, first, relation)
    return replace(related, name=name, path=_column(related.model, rest).path)


def _linking_field(relation: Any) -> Any:
    """Return the row's own field by whose value the related rows are found."""
    if not relation.many_to_many:
        return relation.field.target_field
    if relation.auto_created:
        own = relation.field.m2m_reverse_field_name()
    else:
        own = relation.m2m_field_name()
    through = relation.through if relation.auto_created else relation.remote_field.through
    return through._meta.get_field(own).target_field


def _by_accessor(model: ModelClass) -> dict[str, Any]:
    """Return the reverse relations by the attribute that Django gives the model for them."""
    return {str(each.get_accessor_name()): each for each in model._meta.related_objects}


def _is_field(model: ModelClass, name: str) -> bool:
    return name == "pk" or name in field_names(model)


def _property_function(model: ModelClass, name: str) -> Any:
    """Return the function of a property or cached property of ``model``, or None."""
    found = inspect.getattr_static(model, name, None)
    if isinstance(found, property):
        return found.fget
    kinds = (functools.cached_property, cached_property)
    return found.func if isinstance(found, kinds) else None


def _properties(model: ModelClass) -> Sequence[str]:
    return [
        name for name in dir(model) if not name.startswith("_") and _property_function(model, name)
    ]
