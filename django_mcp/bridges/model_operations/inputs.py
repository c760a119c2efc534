"""
The argument that writes one column of a row: its schema, its reading, what it does to the row.

Rule: a value is read as strictly as it is written, and the model's own validation comes after it;
nothing here looks up a row.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from django.db import models
from django.db.models import NOT_PROVIDED

from ...declare.form_values import FILE_SCHEMA, upload
from ...declare.parameters import Parameter
from ...declare.rows.columns import FINITE, JSON, kind_of
from ...declare.rows.values import ANYTHING, choices_of, describe, field_value
from .limits import limits

if TYPE_CHECKING:
    from ...declare.requests import Request

T = TypeVar("T")
# What is read more freely than it is written.
TYPED: dict[str, JSON] = {
    "DecimalField": {"type": ["string", "number"], "pattern": FINITE},
    "DurationField": {"type": "string"},
}
MOST_LEVELS = 30  # of JSON: MariaDB keeps no more than one besides
UNCHANGED: Any = object()


@dataclass(frozen=True)
class Input:
    """The argument that writes one field: a plain column, unless a subclass knows better."""

    name: str
    field: Any

    @property
    def required(self) -> bool:
        """Whether a new row needs it, as in a form of the model."""
        field = self.field
        given = (
            field.has_default() or getattr(field, "db_default", NOT_PROVIDED) is not NOT_PROVIDED
        )
        return not (field.blank or given)

    @property
    def nullable(self) -> bool:
        return bool(self.field.null and self.field.blank)

    @property
    def parameter(self) -> Parameter:
        return Parameter(self.name, Any, None)

    def schema(self) -> JSON:
        """The argument's JSON Schema."""
        schema = self._values()
        return (or_null(schema) if self.nullable else schema) | describe(self.field)

    def _values(self) -> JSON:
        kind, choices = kind_of(self.field), [value for value, _ in choices_of(self.field)]
        assert kind is not None
        schema = TYPED.get(self.field.get_internal_type(), kind.schema)
        if choices:
            blank = [""] if self.field.blank and kind.schema["type"] == "string" else []
            return {"type": kind.schema["type"], "enum": [*choices, *blank]}
        return schema | limits(self.field, schema["type"])

    def default(self) -> JSON:
        """What a new row has where the argument is left out, if that is the same for each."""
        value = self.field.default
        if value in (NOT_PROVIDED, None, "") or callable(value):
            return {}
        return {"default": field_value(self.field, value)}

    def read(self, given: Any) -> Any:
        """The value that JSON stands for. Raises ``ValueError`` or ``ValidationError``."""
        kind = kind_of(self.field)
        assert kind is not None
        _check_storable(given)
        return None if given is None else kind.read(given)

    def change(self, request: Request, row: models.Model, value: Any) -> Any:
        """What to write on ``row`` so that it has ``value``; ``UNCHANGED`` where it has."""
        return value if self._differs(row, value) else UNCHANGED

    def _differs(self, row: models.Model, value: Any) -> bool:
        return bool(getattr(row, self.field.attname) != value)

    def write(self, row: models.Model, value: Any) -> None:
        """Put the value on a row, before it is saved."""
        setattr(row, self.field.attname, value)

    def finish(self, row: Any, value: Any) -> None:
        """Write what can only be written once the row is saved."""

    def undo(self, row: models.Model) -> None:
        """Take back what no transaction would, when the row is not saved after all."""


class JsonInput(Input):
    """Any JSON."""

    def _values(self) -> JSON:
        return {"type": [kind for kind in ANYTHING if kind != "null"]}

    def read(self, given: Any) -> Any:
        _check_storable(given)
        return given

    def _differs(self, row: models.Model, value: Any) -> bool:
        return self._written(getattr(row, self.field.attname)) != self._written(value)

    def _written(self, value: Any) -> str:
        """As text: to Python, true is 1."""
        return json.dumps(value, cls=self.field.encoder, sort_keys=True)


class BinaryInput(Input):
    """Bytes, as base64."""

    def _values(self) -> JSON:
        return {"type": "string", "contentEncoding": "base64"}

    def read(self, given: Any) -> Any:
        return None if given is None else _decoded(_bytes, given)

    def _differs(self, row: models.Model, value: Any) -> bool:
        stored = getattr(row, self.field.attname)
        return bool((None if stored is None else bytes(stored)) != value)


class FileInput(Input):
    """A file: its name and, as base64, its bytes; null takes it away."""

    @property
    def nullable(self) -> bool:
        return bool(self.field.blank)

    def _values(self) -> JSON:
        return dict(FILE_SCHEMA)

    def read(self, given: Any) -> Any:
        """The file as a form would clean it: an image is an image."""
        return None if given is None else self.field.formfield().clean(_decoded(upload, given))

    def _differs(self, row: models.Model, value: Any) -> bool:
        return value is not None or bool(getattr(row, self.field.attname))

    def write(self, row: models.Model, value: Any) -> None:
        self.field.save_form_data(row, value or False)

    def undo(self, row: models.Model) -> None:
        file = getattr(row, self.field.attname)
        if file and file._committed:
            file.delete(save=False)


def or_null(schema: JSON) -> JSON:
    """``schema``, or null."""
    if "anyOf" in schema or "description" in schema:
        return {"anyOf": [*schema.get("anyOf", [schema]), {"type": "null"}]}
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    choices = {"enum": [*schema["enum"], None]} if "enum" in schema else {}
    return schema | {"type": [*kinds, "null"]} | choices


def _check_storable(given: Any, levels: int = MOST_LEVELS) -> None:
    """Raise ``ValueError`` for what some database does not keep: PostgreSQL no NUL character."""
    if isinstance(given, str) and "\0" in given:
        raise ValueError("A text holds no NUL character.")
    if isinstance(given, dict | list):
        if not levels:
            raise ValueError(f"It has more than {MOST_LEVELS} levels.")
        for part in [*given, *given.values()] if isinstance(given, dict) else given:
            _check_storable(part, levels - 1)


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _decoded(read: Callable[[Any], T], given: Any) -> T:
    try:
        return read(given)
    except binascii.Error:
        raise ValueError("This is no base64.") from None
