"""
Which fields of a model may be written, and by which arguments.

Rule: what may be written is shown, is the model's own column or plain many-to-many relation, and
is editable; nothing else has an argument.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured
from django.db import models
from django.db.models.constants import LOOKUP_SEP

from ...declare.rows.entries import Column, Entry, Related
from ...declare.rows.paths import get_field
from .inputs import BinaryInput, FileInput, Input, JsonInput
from .relations import RowInput, RowsInput

if TYPE_CHECKING:
    from ...declare.bindings import Find
    from ...declare.model_resources import ModelResource

UNWRITABLE = ("FilePathField",)  # its values are paths of the server
KINDS: Mapping[str, type[Input]] = {
    "BinaryField": BinaryInput, "FileField": FileInput, "JSONField": JsonInput,
}  # fmt: skip


def inputs_of(resource: ModelResource, find: Find, *, new: bool) -> list[Input]:
    """What may be written of a row of ``resource``, ``new`` or not.

    Raises ``ImproperlyConfigured`` for a relation to a model that is not registered.
    """
    found: dict[Any, Input] = {}
    for name, field in fields_of(resource):
        if new or not (field.primary_key or field in resource.model._meta.pk_fields):
            found.setdefault(field, _input(name, field, find))
    return list(found.values())


def fields_of(resource: ModelResource) -> Iterator[tuple[str, Any]]:
    """The fields that may be written; one that has several names may come by each."""
    own = {name for name, entry in resource.field_set.entries.items() if _is_own(entry)}
    fields = {name: get_field(resource.model, name) for name in resource.fields if name in own}
    shut = {*_parts(resource.model), *(fields.get(name) for name in resource.readonly_fields)}
    for name, field in fields.items():
        if field not in shut and is_writable(field):
            yield name, field


def _parts(model: type[models.Model]) -> Iterator[Any]:
    """The columns that some other relation is made of: to write one is to point to any row."""
    for relation in model._meta.get_fields():
        if not isinstance(relation, models.ForeignKey):
            names = [getattr(relation, part, None) for part in ("ct_field", "fk_field")]
            names += getattr(relation, "from_fields", [])
            yield from (model._meta.get_field(name) for name in names if name)


def is_writable(field: Any) -> bool:
    """Whether people may set it: as in the admin, and no key that a database counts."""
    if field.many_to_many:
        return bool(field.editable and field.remote_field.through._meta.auto_created)
    counted = isinstance(field, models.AutoField) or getattr(field, "generated", False)
    parent = field.remote_field is not None and getattr(field.remote_field, "parent_link", False)
    known = field.get_internal_type() not in UNWRITABLE
    return bool(field.concrete and field.editable and known and not counted and not parent)


def _is_own(entry: Entry) -> bool:
    """Whether it stands for a field of the model itself."""
    if LOOKUP_SEP in entry.name:
        return False
    if isinstance(entry, Related):
        return bool(entry.relation.many_to_many and not entry.relation.auto_created)
    return isinstance(entry, Column)


def _input(name: str, field: Any, find: Find) -> Input:
    if field.many_to_many or isinstance(field, models.ForeignKey):
        kind = RowsInput if field.many_to_many else RowInput
        return kind(name, field, _target(name, field, find))
    return KINDS.get(field.get_internal_type(), Input)(name, field)


def _target(name: str, field: Any, find: Find) -> ModelResource:
    try:
        return find(field.related_model, None)
    except ImproperlyConfigured as error:
        raise ImproperlyConfigured(f"{name!r} names rows, but {error}") from None
