"""Validation of values and of hand-written schemas, with JSON Schema and with pydantic.

*JSON Schema.* A schema is validated in its own dialect, or in 2020-12 if it names none. A ``$ref``
to another document is never fetched (basic, "$ref Resolution"). Error messages are for language
models. jsonschema is imported when the first schema is used, because the import is slow.

*pydantic* makes JSON Schemas and validators of type annotations. It does not pass configuration on
to nested models. So a copy of the core schema is changed at every level (``arguments_validator``,
``answers_validator``): datetimes follow ``USE_TZ``, bytes are base64, unknown keys are rejected.
The project's own models stay as they are.
"""

from __future__ import annotations

import base64
import binascii
import json
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from itertools import islice
from typing import Any, cast

from django.conf import settings
from django.db import models
from django.utils import timezone
from pydantic import EncodedBytes, Secret
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticCustomError, SchemaValidator

from .content import json_problem
from .schema_summary import kind

MAX_DEPTH, MAX_SUBSCHEMAS, MAX_MESSAGES = 40, 2000, 5
MAX_VIOLATION_LENGTH = 300  # characters
_PLAIN = {"integer": int, "string": str, "boolean": bool}
_TYPES = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,),
    "object": (dict,), "array": (list,), "null": (type(None),),
}  # fmt: skip
_KEYWORDS_OF_TYPES = {"type", "properties", "items", "title", "description"}
# Keywords that only a value of the right type can violate.
KEYWORDS_OF_ONE_TYPE = (
    "additionalProperties", "exclusiveMaximum", "exclusiveMinimum", "maxItems", "maxLength",
    "maximum", "minItems", "minLength", "minimum", "required",
)  # fmt: skip
MAX_ERRORS = 100  # validation stops then: a client can send arguments with a million errors

# contentEncoding of bytes, by a model's `val_json_bytes`.
ENCODINGS = {"base64": "base64", "hex": "base16"}
# Parts of a core schema without schemas in them. They contain functions and values.
_NOT_WALKED = ("metadata", "serialization", "default")


WITH_KEYS = ("model", "dataclass", "typed-dict")

Change = Callable[[dict[str, Any]], Any]


@lru_cache(maxsize=1024)
def _compiled(text: str, formats: bool) -> Any:
    return _validator(json.loads(text), formats)


def _validator(schema: Any, formats: bool = True) -> Any:
    """Return the validator of a schema, in the schema's dialect."""
    from jsonschema import Draft202012Validator, validators
    from referencing import Registry

    kind = validators.validator_for(schema, default=Draft202012Validator)
    # An empty registry resolves no reference to another document.
    nothing_fetched: Any = Registry()
    checker = kind.FORMAT_CHECKER if formats else None
    return kind(schema, registry=nothing_fetched, format_checker=checker)


def is_plain(schema: Mapping[str, Any], value: Any) -> bool:
    """Whether ``value`` fits a schema that only names a type. A fast path without jsonschema."""
    return len(schema) == 1 and type(value) is _PLAIN.get(str(schema.get("type")))


def clearly_fits(schema: Mapping[str, Any], value: Any) -> bool:
    """Whether ``value`` fits a schema of types, properties and items, decided without jsonschema.

    False if it does not fit, or if the schema has other keywords. ``value`` is decoded JSON.
    """
    if not schema.keys() <= _KEYWORDS_OF_TYPES:
        return False
    if (kinds := schema.get("type")) is not None:
        named = kinds if isinstance(kinds, list) else (kinds,)
        if not any(type(value) in _TYPES.get(kind, ()) for kind in named):
            return False
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        return all(
            clearly_fits(one, value[name]) for name, one in properties.items() if name in value
        )
    if isinstance(value, list) and "items" in schema:
        return all(clearly_fits(schema["items"], one) for one in value)
    return True


def violations(schema: dict[str, Any], value: Any, *, formats: bool = True) -> list[str]:
    """Return what is wrong with ``value``, one sentence for each error; [] if it fits.

    A sentence starts with the path of the wrong value.
    """
    validator = _compiled(json.dumps(schema, sort_keys=True), formats)
    found = islice(validator.iter_errors(value), MAX_ERRORS)
    errors = sorted(found, key=lambda error: list(map(str, error.path)))
    return [_sentence(error) for error in errors[:MAX_MESSAGES]]


def _sentence(error: Any) -> str:
    """Return an error of jsonschema as a sentence that starts with the path of the value."""
    error = _most_specific(error)
    path = ".".join(str(step)[:80] for step in list(error.absolute_path)[:8])
    message = _alternatives(error) or error.message
    if len(message) > MAX_VIOLATION_LENGTH:  # jsonschema writes the value before the error
        message = message.replace(repr(error.instance), "this value")[:MAX_VIOLATION_LENGTH]
    return f"{path}: {message}" if path else message


def _most_specific(error: Any) -> Any:
    """Return the most helpful error of a value that fits none of several schemas.

    It is the error for the schema that the value seems to be meant for.
    """
    meant = (one for one in error.context if one.path or one.validator in KEYWORDS_OF_ONE_TYPE)
    found = next(meant, None)
    return error if found is None else _most_specific(found)


def _alternatives(error: Any) -> str:
    """Return what would fit if none of several schemas did.

    Return "" if that has no short description.
    """
    if error.validator not in ("anyOf", "oneOf") or not error.context:
        return ""
    wanted = kind(error.schema)
    return "" if "anything" in wanted else f"{error.instance!r} should be: {wanted}"


def problem(schema: Any) -> str | None:
    """Return what is wrong with a hand-written schema, or None."""
    if not isinstance(schema, Mapping):
        return "A schema must be a JSON object."
    schema = dict(schema)
    if _is_oversized(schema):
        return f"The schema has more than {MAX_SUBSCHEMAS} parts or more than {MAX_DEPTH} levels."
    if wrong := json_problem(schema):
        return wrong
    if unknown := _unknown_dialect(schema):
        return unknown
    if any(not ref.startswith("#") for ref in _references(schema)):
        return "A $ref must start with '#': other documents are never fetched."
    return _invalid(schema) or _missing_reference(schema)


def _is_oversized(schema: dict[str, Any]) -> bool:
    """Whether the schema has too many parts or levels. It stops counting at the limit."""
    waiting: list[tuple[Any, int]] = [(schema, 1)]
    parts = 0
    while waiting and parts <= MAX_SUBSCHEMAS:
        value, depth = waiting.pop()
        parts += 1
        if isinstance(value, dict | list):
            if depth > MAX_DEPTH:
                return True
            children = value.values() if isinstance(value, dict) else value
            waiting.extend((child, depth + 1) for child in children)
    return parts > MAX_SUBSCHEMAS


def _unknown_dialect(schema: dict[str, Any]) -> str | None:
    """Return an error if ``$schema`` names a dialect that jsonschema does not know."""
    from jsonschema import validators

    dialect, none = schema.get("$schema"), cast("Any", None)
    known = isinstance(dialect, str) and validators.validator_for(schema, default=none) is not None
    if known or "$schema" not in schema:
        return None
    return f"The dialect {dialect!r} is not supported. Use draft 3 to 2020-12."


def _invalid(schema: dict[str, Any]) -> str | None:
    from jsonschema.exceptions import SchemaError

    try:
        type(_validator(schema)).check_schema(schema)
    except SchemaError as error:
        return f"The JSON Schema is not valid: {_sentence(error)}"
    return None


def _missing_reference(schema: dict[str, Any]) -> str | None:
    """Return an error for a reference that leads nowhere. It would fail every call."""
    from referencing import Registry, Resource
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    if any(all_of("$id", schema)):
        return None  # references are relative to "$id": validation itself resolves them
    root: Any = Resource.from_contents(schema, default_specification=DRAFT202012)
    resolver = Registry().resolver_with_root(root)
    for ref in _references(schema):
        try:
            resolver.lookup(ref)
        except Unresolvable:
            return f"The schema has nothing at the reference {ref!r}."
    return None


def object_schema(properties: dict[str, Any], required: Iterable[str] = ()) -> dict[str, Any]:
    """Return the schema of an object that has these properties and no others."""
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    names = [*required]
    return schema | ({"required": names} if names else {})


def all_of(keyword: str, schema: Any) -> Iterator[Any]:
    """Return the values of ``keyword`` anywhere in ``schema``."""
    return (part[keyword] for part in _walk(schema) if isinstance(part, dict) and keyword in part)


def _walk(value: Any) -> Iterator[Any]:
    yield value
    children = value.values() if isinstance(value, dict) else value
    if isinstance(value, dict | list):
        for child in children:
            yield from _walk(child)


def _references(schema: Any) -> Iterator[str]:
    for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
        yield from (ref for ref in all_of(keyword, schema) if isinstance(ref, str))


def reachable(schema: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Yield every property that ``properties`` alone lead to from the root, with its path."""
    for name, prop in schema.get("properties", {}).items():
        if isinstance(prop, dict):
            yield (name,), prop
            yield from (((name, *path), inner) for path, inner in reachable(prop))


def arguments_validator(core_schema: Any) -> SchemaValidator:
    """Return the validator of arguments. It changes datetimes, bytes and unknown keys."""
    changes = {"bytes": _bytes, "datetime": _datetime}
    return _core_validator(core_schema, changes | dict.fromkeys(WITH_KEYS, _reject_unknown))


def answers_validator(core_schema: Any) -> SchemaValidator:
    """Return the validator of a person's answer to a question. It ignores unknown keys."""
    return _core_validator(core_schema, {"datetime": _datetime})


def _core_validator(core_schema: Any, changes: Mapping[str, Change]) -> SchemaValidator:
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
