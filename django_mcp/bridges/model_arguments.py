"""
The arguments with which write tools set a model's fields: JSON Schema, parsing and assignment.

``field_arguments`` chooses the fields. A field gets an argument if the resource shows it, it is
editable, and it is a column, a file, a typed manager or a many-to-many relation of the model.

Each argument is a ``FieldArgument``. Values are parsed as strictly as they are serialized, and the
model's validation runs afterwards. ``limits`` puts the model's validators into the JSON Schema.
Limits of one database's column types are left out.

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
from django.db import models
from django.db.models import NOT_PROVIDED
from django.db.models.constants import LOOKUP_SEP

from ..declarations.arguments import KeyBinding, Parameter
from ..declarations.fields.columns import DECIMAL_ARGUMENT_PATTERN, JSON, as_number, column_type
from ..declarations.fields.entries import (
    MAX_RELATED_KEYS,
    Column,
    Entry,
    FieldTypeEntry,
    RelatedRows,
)
from ..declarations.fields.field_types import FieldType, field_type, is_managed, or_null
from ..declarations.fields.keys import get_field
from ..declarations.fields.values import (
    FileType,
    describe,
    field_choices,
    field_value,
    plain_value,
    read_value,
)
from ..declarations.form_values import FILE_SCHEMA, upload
from ..exceptions import InvalidArguments

if TYPE_CHECKING:
    from ..declarations.declaration import Find
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
T = TypeVar("T")
# Schemas that accept more than the output schema of the same field.
INPUT_SCHEMAS: dict[str, JSON] = {
    "DecimalField": {"type": ["string", "number"], "pattern": DECIMAL_ARGUMENT_PATTERN},
    "DurationField": {"type": "string", "format": "duration"},
}
MAX_JSON_DEPTH = 30  # MariaDB stores at most one level of JSON more.
UNCHANGED: Any = object()


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


@dataclass(frozen=True)
class FieldArgument:
    """The argument for one field. This base class is for plain columns."""

    name: str
    field: Any

    @property
    def required(self) -> bool:
        """Whether a new row needs the argument, as in a ``ModelForm``.

        A blank field is required too if its column is NOT NULL and has no empty value, such as an
        integer, unless the model overrides ``save`` or ``clean``, which may set it.
        """
        field = self.field
        if field.has_default() or getattr(field, "db_default", NOT_PROVIDED) is not NOT_PROVIDED:
            return False
        return not field.blank or not (
            field.null or field.empty_strings_allowed or _overrides_save_or_clean(field.model)
        )

    @property
    def nullable(self) -> bool:
        return bool(self.field.null and self.field.blank)

    @property
    def parameter(self) -> Parameter:
        return Parameter(self.name, Any, default=None)

    def schema(self) -> JSON:
        """Return the JSON Schema of the argument."""
        schema = self._values()
        return (or_null(schema) if self.nullable else schema) | describe(self.field)

    def _values(self) -> JSON:
        kind, choices = column_type(self.field), [value for value, _ in field_choices(self.field)]
        assert kind is not None
        schema = INPUT_SCHEMAS.get(self.field.get_internal_type(), kind.schema)
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

    def changed_value(self, request: Request, row: models.Model, value: Any) -> Any:
        """Return what to write on ``row``, or ``UNCHANGED`` if it already has the value."""
        return value if self._differs(row, value) else UNCHANGED

    def _differs(self, row: models.Model, value: Any) -> bool:
        stored = getattr(row, self.field.attname)
        return bool(field_value(self.field, stored) != field_value(self.field, value))

    def write(self, row: models.Model, value: Any) -> None:
        """Set the value on ``row`` before it is validated and saved."""
        setattr(row, self.field.attname, value)

    def finish(self, row: Any, value: Any) -> None:
        """Write what needs a saved row, such as many-to-many relations, in the same transaction."""

    def undo(self, row: models.Model) -> None:
        """Remove what a rollback does not remove, such as a stored file. Runs if the call fails."""


def _overrides_save_or_clean(model: type[models.Model]) -> bool:
    return model.save is not models.Model.save or model.clean is not models.Model.clean


class FieldTypeArgument(FieldArgument):
    """The argument for a field with a registered ``mcp.FieldType``."""

    @property
    def _field_type(self) -> FieldType:
        found = field_type(self.field)
        assert found is not None
        return found

    def _values(self) -> JSON:
        schema, kinds = dict(self._field_type.schema), self._field_type.schema.get("type")
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
        """Return JSON text for comparisons: Python's ``==`` considers ``True`` and ``1`` equal."""
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


class ManagerArgument(SetByManager, FieldTypeArgument):
    """The argument for a manager with a ``FieldType``, such as tags. Set when the row is saved."""

    def _values(self) -> JSON:
        schema = super()._values()
        is_list = schema.get("type") == "array" and not self.field.blank
        return schema | ({"minItems": 1} if is_list else {})

    @property
    def nullable(self) -> bool:
        return False

    def _differs(self, row: models.Model, value: Any) -> bool:
        stored = self._field_type.to_json(getattr(row, self.field.name))
        return self._as_json(plain_value(stored)) != self._as_json(plain_value(value))


def saves_with_row(field: Any) -> bool:
    """Whether values set on the manager are saved by ``row.save()``, as in django-modelcluster."""
    return bool(getattr(field, "_need_commit_after_assignment", False))


class FileArgument(FieldArgument):
    """The argument for a file: its name and its content in base64. Null removes the file."""

    @property
    def nullable(self) -> bool:
        return bool(self.field.blank)

    def _values(self) -> JSON:
        return dict(FILE_SCHEMA)

    def read(self, given: Any) -> Any:
        """Return the file as a form field cleans it, so that images are validated."""
        return (
            None if given is None else self.field.formfield().clean(_decode_base64(upload, given))
        )

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
        raise ValueError("The text contains a NUL character. Remove it.")
    if isinstance(given, dict | list):
        if not levels:
            raise ValueError(f"The JSON has more than {MAX_JSON_DEPTH} nested levels.")
        for part in [*given, *given.values()] if isinstance(given, dict) else given:
            _check_storable(part, levels - 1)


def _decode_base64(read: Callable[[Any], T], given: Any) -> T:
    try:
        return read(given)
    except binascii.Error:
        raise ValueError("The data are not valid base64.") from None


@dataclass(frozen=True)
class RowArgument(FieldArgument):
    """The argument for a foreign key: the key or URI of a row."""

    target: ModelResource

    @property
    def parameter(self) -> Parameter:
        binding = KeyBinding(self.target, relation=True)
        return Parameter(self.name, Any, default=None, binding=binding)

    def schema(self) -> JSON:
        schema = self.target._related_schema()
        about, key = describe(self.field), schema.pop("description")
        description = {"description": " ".join(filter(None, [about.get("description"), key]))}
        return (or_null(schema) if self.nullable else schema) | about | description

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
class RowsArgument(SetByManager, RowArgument):
    """The argument for a many-to-many relation: the keys or URIs of all its rows."""

    @property
    def required(self) -> bool:
        return not self.field.blank

    @property
    def parameter(self) -> Parameter:
        binding = KeyBinding(self.target, many=True, relation=True)
        return Parameter(self.name, Any, default=None, binding=binding)

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
            rows: models.QuerySet[Any] = models.QuerySet(model, using=using)
            allowed = rows.complex_filter(limit).filter(pk__in=[row.pk for row in given])
            if allowed.distinct().count() < len({row.pk for row in given}):
                raise ValueError("A row cannot be chosen for this field.")
        return given

    def changed_value(self, request: Request, row: models.Model, value: Any) -> Any:
        # The duration must not reveal hidden rows. So one query reads all linked rows: a separate
        # query for hidden ones would run only if there are some. The query for the visible rows
        # runs even without links, as it does for a row that has only hidden links.
        linked = self._linked_rows(row)
        keys = [one.pk for one in linked]
        visible = self.target._fetch(
            request, keys, write=True, lookup="pk", query_without_keys=True
        ).keys()
        if visible == {one.pk for one in value}:
            return UNCHANGED
        return [*value, *(one for one in linked if one.pk not in visible)]

    def _linked_rows(self, row: models.Model) -> list[Any]:
        related = getattr(row, self.field.name).using(row._state.db)
        found = list(related.order_by("pk")[: MAX_RELATED_KEYS + 1])
        if len(found) > MAX_RELATED_KEYS:
            raise InvalidArguments(f"{self.name}: there are too many to be replaced.")
        return found


def field_arguments(resource: ModelResource, find: Find, *, new: bool) -> list[FieldArgument]:
    """Return the arguments for a new or existing row of ``resource``.

    Raise ``ImproperlyConfigured`` for a relation to a model that is not registered.
    """
    found: dict[Any, FieldArgument] = {}
    for name, field in writable_fields(resource):
        if new or not (field.primary_key or field in resource.model._meta.pk_fields):
            found.setdefault(field, _field_argument(name, field, find))
    return list(found.values())


def writable_fields(resource: ModelResource) -> Iterator[tuple[str, Any]]:
    """Yield the name and the field of all writable fields, once for each name."""
    own = {name for name, entry in resource._field_set.entries.items() if _is_field_of_model(entry)}
    fields = {name: get_field(resource.model, name) for name in resource.fields if name in own}
    excluded = {
        *_composite_relation_columns(resource.model),
        *(fields.get(name) for name in resource.readonly_fields),
    }
    for name, field in fields.items():
        if field not in excluded and is_writable(field):
            yield name, field


def _composite_relation_columns(model: type[models.Model]) -> Iterator[Any]:
    """Yield columns that are part of a composite or generic relation.

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
    is_database_generated = isinstance(field, models.AutoField) or getattr(
        field, "generated", False
    )
    parent = field.remote_field is not None and getattr(field.remote_field, "parent_link", False)
    return bool(field.concrete and field.editable and not is_database_generated and not parent)


def _is_field_of_model(entry: Entry) -> bool:
    """Whether the entry is for a field of the model itself, not of a related model."""
    if LOOKUP_SEP in entry.name:
        return False
    if isinstance(entry, RelatedRows):
        return bool(entry.relation.many_to_many and not entry.relation.auto_created)
    return isinstance(entry, Column | FieldTypeEntry)


def _field_argument(name: str, field: Any, find: Find) -> FieldArgument:
    found = field_type(field)
    if found is not None and not isinstance(field, models.ForeignKey):
        if isinstance(found, FileType):
            return FileArgument(name, field)
        return (ManagerArgument if is_managed(field) else FieldTypeArgument)(name, field)
    if field.many_to_many or isinstance(field, models.ForeignKey):
        kind = RowsArgument if field.many_to_many else RowArgument
        return kind(name, field, _target(name, field, find))
    return FieldArgument(name, field)


def _target(name: str, field: Any, find: Find) -> ModelResource:
    try:
        found: ModelResource = find(field.related_model, None)
    except ImproperlyConfigured as error:
        raise ImproperlyConfigured(f"{name!r} names rows, but {error}") from None
    return found
