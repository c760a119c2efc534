"""Type annotations as JSON Schemas and validators, made with pydantic.

pydantic does not pass configuration on to nested models. So a copy of the core schema is changed at
every level (``arguments_validator``, ``answers_validator``): datetimes follow ``USE_TZ``, bytes are
base64, unknown keys are rejected. The project's own models stay as they are.
"""

from __future__ import annotations

import base64
import binascii
import typing
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import models
from django.utils import timezone
from pydantic import EncodedBytes, Secret
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticCustomError, SchemaValidator

# contentEncoding of bytes, by a model's `val_json_bytes`.
ENCODINGS = {"base64": "base64", "hex": "base16"}
# Parts of a core schema without schemas in them. They contain functions and values.
_NOT_WALKED = ("metadata", "serialization", "default")


WITH_KEYS = ("model", "dataclass", "typed-dict")

Change = Callable[[dict[str, Any]], Any]


def arguments_validator(core_schema: Any) -> SchemaValidator:
    """Return the validator of arguments. It changes datetimes, bytes and unknown keys."""
    changes = {"bytes": _bytes, "datetime": _datetime}
    return _validator(core_schema, changes | dict.fromkeys(WITH_KEYS, _reject_unknown))


def answers_validator(core_schema: Any) -> SchemaValidator:
    """Return the validator of a person's answer to a question. It ignores unknown keys."""
    return _validator(core_schema, {"datetime": _datetime})


def _validator(core_schema: Any, changes: Mapping[str, Change]) -> SchemaValidator:
    # pydantic would otherwise use the existing validators of nested models, without the changes.
    return SchemaValidator(_with_changes(core_schema, changes), _use_prebuilt=False)


def _with_changes(part: Any, changes: Mapping[str, Change], own_bytes: bool = False) -> Any:
    """Return a copy of a core schema, or of a part of one, with its changes.

    ``own_bytes`` says that the configuration of an outer model decides how bytes are read.
    """
    if isinstance(part, list | tuple):
        return type(part)(_with_changes(one, changes, own_bytes) for one in part)
    if not isinstance(part, dict):
        return part
    kind = part.get("type")
    if not isinstance(kind, str):  # schemas by field name, and a field may be called "type"
        return {key: _with_changes(value, changes, own_bytes) for key, value in part.items()}
    if decodes_itself(part):
        return part
    if kind == "union":
        part = without_bytes_beside_text(part)
    if "config" in part:
        own_bytes = "val_json_bytes" in part["config"]
    copy = {
        key: value if key in _NOT_WALKED else _with_changes(value, changes, own_bytes)
        for key, value in part.items()
    }
    change = None if kind == "bytes" and own_bytes else changes.get(kind)
    return copy if change is None else change(copy)


def _datetime(schema: dict[str, Any]) -> Any:
    """Make datetimes follow ``USE_TZ``, unless they are annotated as naive or aware."""
    if "tz_constraint" in schema:
        return schema
    return {"type": "function-after", "function": _no_info(in_current_zone), "schema": schema}


def _bytes(schema: dict[str, Any]) -> Any:
    """Read bytes from base64."""
    return {"type": "function-before", "function": _no_info(_from_base64), "schema": schema}


def decodes_itself(schema: Mapping[str, Any]) -> bool:
    """Whether the schema is of a type such as ``pydantic.Base64Bytes``, which decodes its input."""
    if schema["type"] != "function-after":
        return False
    return isinstance(getattr(schema["function"]["function"], "__self__", None), EncodedBytes)


def without_bytes_beside_text(union: dict[str, Any]) -> dict[str, Any]:
    """Return the union without bytes if it accepts strings too.

    ``str | bytes`` must read strings: "word" would also be valid base64.
    """
    choices = union["choices"]
    if union.get("mode") == "left_to_right" or not any(_is_type(one, "str") for one in choices):
        return union
    return union | {"choices": [one for one in choices if not _is_type(one, "bytes")]}


def _is_type(choice: Any, kind: str) -> bool:
    # A choice may have a label: (schema, label).
    return bool((choice[0] if isinstance(choice, tuple) else choice)["type"] == kind)


def _reject_unknown(schema: dict[str, Any]) -> Any:
    """Reject unknown keys, unless the model itself says what happens to them."""
    if allows_unknown(schema):
        return schema
    config = {**schema.get("config", {}), "extra_fields_behavior": "forbid"}
    own = {"extra_behavior": "forbid"} if schema["type"] == "typed-dict" else {}
    return schema | own | {"config": config}


def allows_unknown(schema: Mapping[str, Any]) -> bool:
    """Whether a model, dataclass or ``TypedDict`` says what happens to unknown keys.

    A standard dataclass and a ``TypedDict`` without configuration follow the model that contains
    them.
    """
    # pydantic writes "ignore" for a TypedDict without configuration, too.
    says = schema.get("extra_behavior", "ignore") != "ignore"
    return (
        says
        or "extra_fields_behavior" in schema.get("config", {})
        or bool(schema.get("root_model"))
    )


def in_current_zone(value: datetime) -> datetime:
    """Return the datetime as the database takes it: aware if ``USE_TZ`` is set, naive otherwise."""
    if timezone.is_aware(value) == settings.USE_TZ:
        return value
    try:
        return timezone.make_aware(value) if settings.USE_TZ else timezone.make_naive(value)
    except OverflowError:  # within hours of `datetime.min` or `datetime.max`
        raise PydanticCustomError("datetime_range", "This date is out of range") from None


def _from_base64(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):  # ValueError: characters beyond ASCII
        raise PydanticCustomError("base64", "This is not base64") from None


def _no_info(function: Callable[[Any], Any]) -> dict[str, Any]:
    return {"type": "no-info", "function": function}


class TerseSchema(GenerateJsonSchema):
    """pydantic's JSON Schema without the titles that it generates for fields and classes."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def generate(self, schema: Any, mode: Any = "validation") -> dict[str, Any]:
        found = super().generate(schema, mode)
        for name, definition in found.get("$defs", {}).items():
            if definition.get("title") == name:
                del definition["title"]
        return found


class ClosedSchema(TerseSchema):
    """The JSON Schema of objects without unknown keys, unless their model says what those mean."""

    def model_schema(self, schema: Any) -> dict[str, Any]:
        return self._closed(super().model_schema(schema), schema)

    def dataclass_schema(self, schema: Any) -> dict[str, Any]:
        return self._closed(super().dataclass_schema(schema), schema)

    def typed_dict_schema(self, schema: Any) -> dict[str, Any]:
        return self._closed(super().typed_dict_schema(schema), schema)

    def _closed(self, found: dict[str, Any], schema: Any) -> dict[str, Any]:
        return found if allows_unknown(schema) else found | {"additionalProperties": False}


class ArgumentSchema(ClosedSchema):
    """The JSON Schema of what ``arguments_validator`` accepts."""

    def bytes_schema(self, schema: Any) -> dict[str, Any]:
        # Leave out length limits: they count bytes, and in a schema they would count characters.
        text = {"type": "string"}
        own = (self._config.config_dict or {}).get("val_json_bytes", "base64")
        encoding = ENCODINGS.get(own)
        return text | ({"contentEncoding": encoding} if encoding else {})

    def function_after_schema(self, schema: Any) -> dict[str, Any]:
        # pydantic adds a non-standard "format" for types that decode their input.
        if decodes_itself(schema):
            return {"type": "string"}
        found = super().function_after_schema(schema)
        return found | {"writeOnly": True} if _makes_secret(schema) else found

    def union_schema(self, schema: Any) -> dict[str, Any]:
        return super().union_schema(without_bytes_beside_text(schema))  # type: ignore[arg-type]


def _makes_secret(schema: Mapping[str, Any]) -> bool:
    """Whether the schema is of ``pydantic.Secret[T]``, which pydantic does not mark as secret."""
    made_by = f"{Secret.__qualname__}.__get_pydantic_core_schema__."
    function = schema["function"]["function"]
    is_pydantic = getattr(function, "__module__", "") == Secret.__module__
    return is_pydantic and getattr(function, "__qualname__", "").startswith(made_by)


# Parts of annotations.


def is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, models.Model)


def holds(annotation: Any, *kinds: type) -> bool:
    """Whether one of ``kinds`` is anywhere inside a type."""
    if isinstance(annotation, type) and issubclass(annotation, kinds):
        return True
    return any(holds(part, *kinds) for part in typing.get_args(annotation))
