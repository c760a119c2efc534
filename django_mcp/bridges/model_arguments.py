"""
The arguments with which write tools set a model's fields: JSON Schema, parsing and assignment.

``inputs_of`` chooses the fields. A field gets an argument if the resource shows it, it is editable,
and it is a column, a file, a typed manager or a many-to-many relation of the model itself.

Each argument is an ``Input``. Values are parsed as strictly as they are serialized, and the model's
validation runs afterwards. ``limits`` puts the model's validators into the JSON Schema. Limits of
one database's column types are left out.

Foreign keys and many-to-many relations take keys or URIs, which are bound through the target's
model resource with the caller's permissions. A link to a row that the caller cannot see is neither
added nor removed.
"""

from __future__ import annotations

import binascii
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeVar

from django.core.exceptions import ImproperlyConfigured
from django.core.validators import (
    BaseValidator,
    MaxLengthValidator,
    MaxValueValidator,
    MinLengthValidator,
    MinValueValidator,
)
from django.db import models, router
from django.db.models import NOT_PROVIDED
from django.db.models.constants import LOOKUP_SEP

from ..declarations.arguments import KeyBinding, Parameter
from ..declarations.fields.columns import DECIMAL_ARGUMENT_PATTERN, JSON, as_number, column_type
from ..declarations.fields.entries import MAX_RELATED_KEYS, Column, Entry, Related, Typed
from ..declarations.fields.field_types import FieldType, field_type, is_managed, or_null
from ..declarations.fields.keys import get_field
from ..declarations.fields.values import (
    FileType,
    choices_of,
    describe,
    field_value,
    plain_value,
    read_value,
)
from ..declarations.form_values import FILE_SCHEMA, upload
from ..exceptions import InvalidArguments

if TYPE_CHECKING:
    from ..declarations.arguments import Find
    from ..declarations.model_resources import ModelResource
    from ..declarations.request import Request

NUMBERS = ("integer", "number")
# The JSON Schema keyword of each validator. Of several validators the tightest limit counts.
KEYWORDS: tuple[tuple[type[BaseValidator], str, Any], ...] = (
    (MinLengthValidator, "minLength", max),
    (MaxLengthValidator, "maxLength", min),
    (MinValueValidator, "minimum", max),
    (MaxValueValidator, "maximum", min),
)


def limits(field: Any, kinds: str | list[str]) -> JSON:
    """Return the JSON Schema keywords that limit a value of ``field``.

    ``kinds`` are the JSON types that the value may have.
    """
    numeric = not {*NUMBERS}.isdisjoint([kinds] if isinstance(kinds, str) else kinds)
    texts = field.empty_strings_allowed and not numeric
    found: JSON = {"minLength": 1} if texts and not field.blank else {}
    if field.get_internal_type().startswith("Positive"):
        found["minimum"] = 0
    for validator in _validators(field):
        for kind, keyword, tightest in KEYWORDS:
            limit = getattr(validator, "limit_value", None)
            if isinstance(validator, kind) and _fits(keyword, limit, numeric):
                found[keyword] = tightest(found.get(keyword, _json(limit)), _json(limit))
    return found


def _validators(field: Any) -> list[Any]:
    """Return the field's validators.

    ``IntegerField.validators`` would add the range of the column type in the current database.
    """
    if isinstance(field, models.IntegerField):
        return [*field.default_validators, *field._validators]  # type: ignore[attr-defined]
    return list(field.validators)


def _fits(keyword: str, limit: Any, numeric: bool) -> bool:
    """Whether the keyword suits the value: numeric limits for numbers, lengths for texts."""
    number = isinstance(limit, int | float | Decimal)
    return number and numeric == (not keyword.endswith("Length"))


def _json(limit: Any) -> Any:
    return as_number(limit) if isinstance(limit, Decimal) else limit


T = TypeVar("T")
# Fields for which more is accepted on input than is written on output.
TYPED: dict[str, JSON] = {
    "DecimalField": {"type": ["string", "number"], "pattern": DECIMAL_ARGUMENT_PATTERN},
    "DurationField": {"type": "string", "format": "duration"},
}
MAX_JSON_DEPTH = 30  # MariaDB stores at most one level of JSON more.
UNCHANGED: Any = object()


@dataclass(frozen=True)
class Input:
    """The argument for one field. This base class is for plain columns."""

    name: str
    field: Any

    @property
    def required(self) -> bool:
        """Whether a new row needs the argument, as in a ``ModelForm``.

        A field that may be blank is needed, too, if its column takes no null and there is no empty
        value, such as a number. A ``save`` or ``clean`` of the model may set it.
        """
        field = self.field
        if field.has_default() or getattr(field, "db_default", NOT_PROVIDED) is not NOT_PROVIDED:
            return False
        return not field.blank or not (field.null or field.empty_strings_allowed or _sets(field))

    @property
    def nullable(self) -> bool:
        return bool(self.field.null and self.field.blank)

    @property
    def parameter(self) -> Parameter:
        return Parameter(self.name, Any, None)

    def schema(self) -> JSON:
        """Return the JSON Schema of the argument."""
        schema = self._values()
        return (or_null(schema) if self.nullable else schema) | describe(self.field)

    def _values(self) -> JSON:
        kind, choices = column_type(self.field), [value for value, _ in choices_of(self.field)]
        assert kind is not None
        schema = TYPED.get(self.field.get_internal_type(), kind.schema)
        if choices:
            blank = [""] if self.field.blank and kind.schema["type"] == "string" else []
            return {"enum": [*choices, *blank]}
        return schema | limits(self.field, schema["type"])

    def default(self) -> JSON:
        """Return the schema's ``default`` if the field has a constant one, else an empty dict."""
        value = self.field.default
        if value in (NOT_PROVIDED, None, "") or callable(value):
            return {}
        return {"default": field_value(self.field, value)}

    def read(self, given: Any) -> Any:
        """Return the value for JSON. Raise ``ValueError`` or ``ValidationError``."""
        _check_storable(given)
        value = read_value(self.field, given)
        # Fields of packages may validate in to_python(), such as a time zone or a country.
        self.field.to_python(value)
        return value

    def change(self, request: Request, row: models.Model, value: Any) -> Any:
        """Return what to write on ``row``, or ``UNCHANGED`` if it already has the value."""
        return value if self._differs(row, value) else UNCHANGED

    def _differs(self, row: models.Model, value: Any) -> bool:
        stored = getattr(row, self.field.attname)
        return bool(field_value(self.field, stored) != field_value(self.field, value))

    def write(self, row: models.Model, value: Any) -> None:
        """Set the value on a row, before the row is saved."""
        setattr(row, self.field.attname, value)

    def finish(self, row: Any, value: Any) -> None:
        """Write what needs a saved row, such as many-to-many relations."""

    def undo(self, row: models.Model) -> None:
        """Undo what no rollback undoes, such as a stored file, if saving the row failed."""


def _sets(field: Any) -> bool:
    """Whether the model has code that may set the field when a row is saved."""
    model = field.model
    return model.save is not models.Model.save or model.clean is not models.Model.clean


class TypeInput(Input):
    """The argument for a field with a registered ``mcp.FieldType``."""

    @property
    def type(self) -> FieldType:
        found = field_type(self.field)
        assert found is not None
        return found

    def _values(self) -> JSON:
        schema, kinds = dict(self.type.schema), self.type.schema.get("type")
        if isinstance(kinds, list):  # ``schema`` adds null again for nullable fields
            schema["type"] = [kind for kind in kinds if kind != "null"]
        return schema

    def read(self, given: Any) -> Any:
        _check_storable(given)
        return read_value(self.field, given)

    def _differs(self, row: models.Model, value: Any) -> bool:
        stored = field_value(self.field, getattr(row, self.field.name))
        return self._as_json(stored) != self._as_json(field_value(self.field, value))

    def _as_json(self, value: Any) -> str:
        """Compare as JSON text: in Python, ``True == 1``."""
        return json.dumps(value, sort_keys=True)


class SetByManager:
    """A mixin for values that the manager of the field sets, with the row or after it is saved."""

    field: Any

    def write(self, row: models.Model, value: Any) -> None:
        if saves_with_row(self.field):
            getattr(row, self.field.name).set(value)

    def finish(self, row: Any, value: Any) -> None:
        if not saves_with_row(self.field):
            getattr(row, self.field.name).set(value)


class ManagerInput(SetByManager, TypeInput):
    """The argument for a manager with a ``FieldType``, such as tags. Set when the row is saved."""

    def _values(self) -> JSON:
        schema = super()._values()
        is_list = schema.get("type") == "array" and not self.field.blank
        return schema | ({"minItems": 1} if is_list else {})

    @property
    def nullable(self) -> bool:
        return False

    def _differs(self, row: models.Model, value: Any) -> bool:
        stored = self.type.to_json(getattr(row, self.field.name))
        return self._as_json(plain_value(stored)) != self._as_json(plain_value(value))


def saves_with_row(field: Any) -> bool:
    """Whether values set on the manager are saved by ``row.save()``, as in django-modelcluster."""
    return bool(getattr(field, "_need_commit_after_assignment", False))


class FileInput(Input):
    """The argument for a file: its name and its content in base64. Null removes the file."""

    @property
    def nullable(self) -> bool:
        return bool(self.field.blank)

    def _values(self) -> JSON:
        return dict(FILE_SCHEMA)

    def read(self, given: Any) -> Any:
        """Return the file as a form field cleans it, so that images are validated."""
        return None if given is None else self.field.formfield().clean(_decode(upload, given))

    def _differs(self, row: models.Model, value: Any) -> bool:
        return value is not None or bool(getattr(row, self.field.attname))

    def write(self, row: models.Model, value: Any) -> None:
        self.field.save_form_data(row, value or False)

    def undo(self, row: models.Model) -> None:
        file = getattr(row, self.field.attname)
        if file and file._committed:
            file.delete(save=False)


def _check_storable(given: Any, levels: int = MAX_JSON_DEPTH) -> None:
    """Raise ``ValueError`` for values that some database cannot store.

    PostgreSQL stores no NUL character. MariaDB limits how deep JSON may be nested.
    """
    if isinstance(given, str) and "\0" in given:
        raise ValueError("A text holds no NUL character.")
    if isinstance(given, dict | list):
        if not levels:
            raise ValueError(f"It has more than {MAX_JSON_DEPTH} levels.")
        for part in [*given, *given.values()] if isinstance(given, dict) else given:
            _check_storable(part, levels - 1)


def _decode(read: Callable[[Any], T], given: Any) -> T:
    try:
        return read(given)
    except binascii.Error:
        raise ValueError("This is no base64.") from None


@dataclass(frozen=True)
class RowInput(Input):
    """The argument for a foreign key: the key or URI of a row."""

    target: ModelResource

    @property
    def parameter(self) -> Parameter:
        return Parameter(self.name, Any, None, KeyBinding(self.target, relation=True))

    def schema(self) -> JSON:
        names = self.target._related_schema()
        about, key = describe(self.field), names.pop("description")
        description = {"description": " ".join(filter(None, [about.get("description"), key]))}
        return (or_null(names) if self.nullable else names) | about | description

    def default(self) -> JSON:
        return {}

    def read(self, given: Any) -> Any:
        return given  # already bound to a row by its ``KeyBinding``

    def _differs(self, row: models.Model, value: Any) -> bool:
        key = None if value is None else getattr(value, self.field.target_field.attname)
        return bool(getattr(row, self.field.attname) != key)

    def write(self, row: models.Model, value: Any) -> None:
        setattr(row, self.field.name, value)


@dataclass(frozen=True)
class RowsInput(SetByManager, RowInput):
    """The argument for a many-to-many relation: the keys or URIs of all its rows."""

    @property
    def required(self) -> bool:
        return not self.field.blank

    @property
    def parameter(self) -> Parameter:
        return Parameter(self.name, Any, None, KeyBinding(self.target, many=True, relation=True))

    def schema(self) -> JSON:
        least = {} if self.field.blank else {"minItems": 1}
        rows = {
            "type": "array",
            "items": self.target._related_schema(),
            "maxItems": MAX_RELATED_KEYS,
        }
        return rows | least | describe(self.field)

    def read(self, given: Any) -> Any:
        """Return the rows. Raise ``ValueError`` if one is outside ``limit_choices_to``.

        Forms check ``limit_choices_to``, but the model does not.
        """
        if given and (limit := self.field.get_limit_choices_to()):
            model, using = self.field.related_model, given[0]._state.db
            every: models.QuerySet[Any] = models.QuerySet(model, using=using)
            chosen = every.complex_filter(limit).filter(pk__in=[row.pk for row in given])
            if chosen.distinct().count() < len({row.pk for row in given}):
                raise ValueError("One of them cannot be chosen.")
        return given

    def change(self, request: Request, row: models.Model, value: Any) -> Any:
        linked = self._linked_keys(row)
        visible = self._visible_keys(request, linked)
        if visible == {one.pk for one in value}:
            return UNCHANGED
        linked_rows = self.target.model._base_manager.using(row._state.db)
        return [*value, *linked_rows.filter(pk__in=[pk for pk in linked if pk not in visible])]

    def _linked_keys(self, row: models.Model) -> list[Any]:
        related = getattr(row, self.field.name).using(row._state.db)
        found = list(related.order_by("pk").values_list("pk", flat=True)[: MAX_RELATED_KEYS + 1])
        if len(found) > MAX_RELATED_KEYS:
            raise InvalidArguments(f"{self.name}: there are too many to be replaced.")
        return found

    def _visible_keys(self, request: Request, keys: list[Any]) -> set[Any]:
        target = self.target
        if not keys or not target._is_allowed(request):
            return set()
        rows = target.get_queryset(request).using(router.db_for_write(target.model))
        return {row.pk for row in rows.filter(pk__in=keys) if target._permits(request, row, "view")}


def inputs_of(resource: ModelResource, find: Find, *, new: bool) -> list[Input]:
    """Return the arguments for a new or existing row of ``resource``.

    Raise ``ImproperlyConfigured`` for a relation to a model that is not registered.
    """
    found: dict[Any, Input] = {}
    for name, field in fields_of(resource):
        if new or not (field.primary_key or field in resource.model._meta.pk_fields):
            found.setdefault(field, _input(name, field, find))
    return list(found.values())


def fields_of(resource: ModelResource) -> Iterator[tuple[str, Any]]:
    """Yield the name and the field of all writable fields, once for each name."""
    own = {name for name, entry in resource._field_set.entries.items() if _is_own(entry)}
    fields = {name: get_field(resource.model, name) for name in resource.fields if name in own}
    excluded = {*_parts(resource.model), *(fields.get(name) for name in resource.readonly_fields)}
    for name, field in fields.items():
        if field not in excluded and is_writable(field):
            yield name, field


def _parts(model: type[models.Model]) -> Iterator[Any]:
    """Yield columns that are part of another relation.

    Writing such a column directly could link to any row, without a permission check on that row.
    """
    relations: list[Any] = [*model._meta.get_fields()]
    for relation in relations:
        if isinstance(relation, models.ForeignKey):
            continue  # a column itself
        if hasattr(relation, "ct_field"):  # a GenericForeignKey
            names = [relation.ct_field, relation.fk_field]
        elif isinstance(relation, models.ForeignObject) and relation.many_to_one:
            # A generic relation is one to many: its `from_fields` are of the other model.
            names = [*relation.from_fields]
        else:
            continue
        yield from (model._meta.get_field(name) for name in names)


def is_writable(field: Any) -> bool:
    """Whether people may set the field, as in the admin.

    Keys and columns that the database generates are not writable.
    """
    found = field_type(field)
    if found is not None and is_managed(field):
        return bool(field.editable and not found.is_read_only)
    if found is not None and found.is_read_only and not isinstance(found, FileType):
        return False
    if field.many_to_many:
        return bool(field.editable and field.remote_field.through._meta.auto_created)
    counted = isinstance(field, models.AutoField) or getattr(field, "generated", False)
    parent = field.remote_field is not None and getattr(field.remote_field, "parent_link", False)
    return bool(field.concrete and field.editable and not counted and not parent)


def _is_own(entry: Entry) -> bool:
    """Whether the entry stands for a field of the model itself, not of a related model."""
    if LOOKUP_SEP in entry.name:
        return False
    if isinstance(entry, Related):
        return bool(entry.relation.many_to_many and not entry.relation.auto_created)
    return isinstance(entry, Column | Typed)


def _input(name: str, field: Any, find: Find) -> Input:
    found = field_type(field)
    if found is not None and not isinstance(field, models.ForeignKey):
        if isinstance(found, FileType):
            return FileInput(name, field)
        return (ManagerInput if is_managed(field) else TypeInput)(name, field)
    if field.many_to_many or isinstance(field, models.ForeignKey):
        kind = RowsInput if field.many_to_many else RowInput
        return kind(name, field, _target(name, field, find))
    return Input(name, field)


def _target(name: str, field: Any, find: Find) -> ModelResource:
    try:
        return find(field.related_model, None)
    except ImproperlyConfigured as error:
        raise ImproperlyConfigured(f"{name!r} names rows, but {error}") from None
