"""Arguments of the project's functions: their JSON Schema, their validation and binding to rows.

The first parameter of a function is the request. Every other parameter has a name and a type, and
``arguments_of`` makes the JSON Schema and the validator from them with pydantic. Validation is
strict: a value that does not fit the published schema is rejected and never converted, and so are
unknown arguments. Error messages are for language models, which call again with better arguments.

Validation never queries the database. For a parameter whose type is a model it returns a key, and
``Arguments.bind`` then fetches the rows through the querysets that the caller may see.

pydantic does not pass configuration on to nested models. So a copy of the core schema is changed at
every level (``arguments_validator``, ``answers_validator``): datetimes follow ``USE_TZ``, bytes are
base64, unknown keys are rejected. The project's own models stay as they are.

``Header`` mirrors an argument into an HTTP header, so that proxies can route by it (server/tools,
"x-mcp-header"). Proxies and their logs see such arguments.
"""

from __future__ import annotations

import base64
import binascii
import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone
from pydantic import BaseModel, ConfigDict, EncodedBytes, Field, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import (
    PydanticCustomError,
    PydanticSerializationError,
    SchemaValidator,
    to_jsonable_python,
)

from ..exceptions import InvalidArguments
from . import schemas
from .bindings import Find, KeyBinding, bind_annotation, holds
from .completions import Complete, completer_problem
from .content import json_problem
from .declaration import argument_descriptions

if TYPE_CHECKING:
    from django.core.checks import CheckMessage

    from .declaration import Declaration
    from .model_resources import ModelResource
    from .request import Request

SAFE_INTEGER = 2**53 - 1  # the largest integer that every JSON parser reads exactly
KEY_OR_URI = ["integer", "string"]  # the types of an argument that names a row
TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")  # RFC 9110, 5.6.2
SENSITIVE = re.compile(
    r"(password|passwd|passphrase|secret|token|(api|private)_?key|email|phone|ssn|iban)$", re.I
)


@dataclass(frozen=True)
class Header:
    """Mirror an argument into the HTTP header ``Mcp-Param-{name}`` (server/tools, x-mcp-header)."""

    name: str


def mirrored_properties(schema: Mapping[str, Any]) -> list[tuple[tuple[str, ...], dict[str, Any]]]:
    """Return the properties that are mirrored into headers, with their paths."""
    found = schemas.reachable(dict(schema))
    return [(path, prop) for path, prop in found if "x-mcp-header" in prop]


def value_at(path: tuple[str, ...], given: Any) -> Any:
    """Return the value at a path of nested arguments, or None."""
    for step in path:
        given = given.get(step) if isinstance(given, Mapping) else None
    return given


def header_problems(schema: Mapping[str, Any]) -> list[str]:
    """Return how a tool's input schema violates the rules of ``x-mcp-header``."""
    found = [(".".join(path), prop) for path, prop in mirrored_properties(schema)]
    problems = [wrong for place, prop in found if (wrong := _header_problem(place, prop))]
    names = [str(prop["x-mcp-header"]).lower() for _, prop in found]
    twice = {name for name in names if names.count(name) > 1}
    problems += [f"The header {name!r} is used twice." for name in sorted(twice)]
    everywhere = json.dumps(schema).count('"x-mcp-header":')
    if everywhere > len(found):
        problems.append("A header can mirror only a property, not an array item or alternative.")
    return problems


def _header_problem(place: str, prop: Mapping[str, Any]) -> str | None:
    """Return what is wrong with one mirrored property, or None. ``place`` is its path."""
    name = prop["x-mcp-header"]
    if not isinstance(name, str) or not TOKEN.match(name):
        return f"{place}: {name!r} is not a valid HTTP header name."
    if prop.get("type") not in ("string", "integer", "boolean"):
        return f"{place}: a mirrored argument must be a string, integer or boolean, and not null."
    if SENSITIVE.search(place):
        return f"{place}: the name looks like a secret. Proxies can read and log headers."
    return None


def add_header(prop: dict[str, Any], header: Header) -> None:
    """Add the header to the schema of a property, and limit the property for a header."""
    prop["x-mcp-header"] = header.name
    if prop.get("type") == KEY_OR_URI:
        prop["type"] = "string"  # a header has one type, and keys are accepted as strings
    if prop.get("type") == "integer":
        prop["minimum"] = max(prop.get("minimum", -SAFE_INTEGER), -SAFE_INTEGER)
        prop["maximum"] = min(prop.get("maximum", SAFE_INTEGER), SAFE_INTEGER)


POSITIONAL = inspect.Parameter.POSITIONAL_OR_KEYWORD


@dataclass(frozen=True)
class Parameter:
    """One parameter of the project's function, as declared."""

    name: str
    annotation: Any
    default: Any = inspect.Parameter.empty
    binding: KeyBinding | None = None
    header: Header | None = None
    complete: Complete | None = None

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature with evaluated annotations. Raise ``ImproperlyConfigured``."""
    try:
        return inspect.signature(function, eval_str=True)
    except Exception as error:  # an annotation is an expression, which may raise anything
        raise ImproperlyConfigured(f"The signature cannot be read: {error}.") from error


def takes_anything(function: Callable[..., Any]) -> bool:
    """Whether the function has ``**kwargs``."""
    parameters = signature_of(function).parameters.values()
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)


def parameters_of(
    function: Callable[..., Any], find: Find, *, handwritten: bool
) -> dict[str, Parameter]:
    """Return the parameters of the project's function, without ``request``, by name.

    Raise ``ImproperlyConfigured`` if the signature cannot be used. ``handwritten`` says that the
    schema is written by hand. Annotations are then optional.
    """
    listed = list(signature_of(function).parameters.values())
    if not listed or listed[0].kind not in (listed[0].POSITIONAL_ONLY, POSITIONAL):
        raise ImproperlyConfigured("The first argument must be the request.")
    if not _may_be_request(listed[0]):
        hint = f"Write request before {listed[0].name!r}."
        raise ImproperlyConfigured(f"The first argument must be the request. {hint}")
    named = [p for p in listed[1:] if not (handwritten and p.kind is p.VAR_KEYWORD)]
    return {p.name: _parameter(p, find, handwritten=handwritten) for p in named}


def _may_be_request(parameter: inspect.Parameter) -> bool:
    """Whether the first parameter may be the request.

    It is not if its name and annotation look like an argument, because the author forgot the
    request.
    """
    from .request import Request

    kind = parameter.annotation
    if parameter.name == "request" or kind in (parameter.empty, Any, object):
        return True
    if isinstance(kind, type):
        return getattr(kind, "_is_protocol", False) or issubclass(kind, Request)
    return not typing.get_args(kind) or holds(kind, Request)


def _parameter(parameter: inspect.Parameter, find: Find, *, handwritten: bool) -> Parameter:
    """Return one parameter. Raise ``ImproperlyConfigured`` if it cannot be an argument."""
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise ImproperlyConfigured(f"*{parameter.name} has no schema. Name every argument.")
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise ImproperlyConfigured(
            f"{parameter.name} is positional-only. Arguments are passed by name."
        )
    if parameter.annotation is parameter.empty and not handwritten:
        raise ImproperlyConfigured(f"{parameter.name} needs a type annotation.")
    if isinstance(parameter.default, FieldInfo):
        hint = "Write Annotated[type, Field(...)] = default."
        raise ImproperlyConfigured(f"The default of {parameter.name} is a Field. {hint}")
    annotation, binding = bind_annotation(parameter.annotation, find)
    return Parameter(
        parameter.name,
        annotation,
        parameter.default,
        binding,
        header=_metadata(parameter.annotation, Header),
        complete=_metadata(parameter.annotation, Complete),
    )


def _metadata(annotation: Any, kind: type) -> Any:
    """Return the metadata of this class in an annotation, or None.

    It may be inside ``X | None``.
    """
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        found = (_metadata(part, kind) for part in typing.get_args(annotation))
        return next((one for one in found if one is not None), None)
    if origin is not Annotated:
        return None
    own = next((m for m in annotation.__metadata__ if isinstance(m, kind)), None)
    return own or _metadata(annotation.__origin__, kind)


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


PREFIX = "argument_"  # of model fields: "schema" or "copy" would shadow methods of pydantic
# Limits of an error message: characters of a quoted value, errors, steps of a path.
MAX_ECHO, MAX_ERRORS, MAX_STEPS = 80, 8, 8
# contentEncoding of bytes, by a model's `val_json_bytes`.
ENCODINGS = {"base64": "base64", "hex": "base16"}
# pydantic builds all errors to return the first ones, which takes seconds for huge arguments.
MAX_FORMATTED_ERRORS = 1000


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


class ArgumentSchema(TerseSchema):
    """The JSON Schema of what ``arguments_validator`` accepts."""

    def bytes_schema(self, schema: Any) -> dict[str, Any]:
        # Leave out length limits: they count bytes, and in a schema they would count characters.
        text = {"type": "string"}
        own = (self._config.config_dict or {}).get("val_json_bytes", "base64")
        encoding = ENCODINGS.get(own)
        return text | ({"contentEncoding": encoding} if encoding else {})

    def function_after_schema(self, schema: Any) -> dict[str, Any]:
        # pydantic adds a non-standard "format" for types that decode their input.
        return (
            {"type": "string"} if decodes_itself(schema) else super().function_after_schema(schema)
        )

    def union_schema(self, schema: Any) -> dict[str, Any]:
        return super().union_schema(without_bytes_beside_text(schema))  # type: ignore[arg-type]

    def model_schema(self, schema: Any) -> dict[str, Any]:
        return self._closed(super().model_schema(schema), schema)

    def dataclass_schema(self, schema: Any) -> dict[str, Any]:
        return self._closed(super().dataclass_schema(schema), schema)

    def typed_dict_schema(self, schema: Any) -> dict[str, Any]:
        return self._closed(super().typed_dict_schema(schema), schema)

    def _closed(self, found: dict[str, Any], schema: Any) -> dict[str, Any]:
        return found if allows_unknown(schema) else found | {"additionalProperties": False}


@dataclass
class Arguments:
    """The arguments of a function after the request.

    ``schema`` is their JSON Schema, an object. With ``handwritten`` the project wrote it, and
    ``validator`` is None. ``anything`` says that the function accepts arguments that it does not
    name.
    """

    parameters: dict[str, Parameter] = field(default_factory=dict)
    schema: dict[str, Any] = field(default_factory=dict)
    validator: SchemaValidator | None = None
    handwritten: bool = False
    anything: bool = True

    # Reading.

    def read(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of JSON arguments. Raise ``InvalidArguments``."""
        self._check_headers(given)
        if self.handwritten:
            return self._read_by_schema(given)
        text = json.dumps(given)
        return self._validated(lambda validator: validator.validate_json(text, strict=True))

    def _check_headers(self, given: Mapping[str, Any]) -> None:
        """Raise for a mirrored integer that not every client reads exactly (server/tools)."""
        for path in self.headers:
            value = value_at(path, given)
            if isinstance(value, int) and abs(value) > SAFE_INTEGER:
                limits = f"must be an integer from -{SAFE_INTEGER} to {SAFE_INTEGER}"
                raise InvalidArguments(f"Invalid arguments. {'.'.join(path)}: {limits}.")

    def read_text(self, given: Mapping[str, str]) -> dict[str, Any]:
        """Return the values of arguments that arrive as strings: those of prompts and URIs."""
        named: dict[str, Any] = {PREFIX + name: value for name, value in given.items()}
        return self._validated(lambda validator: validator.validate_strings(named, by_name=True))

    def _validated(self, validate: Callable[[SchemaValidator], Any]) -> dict[str, Any]:
        """Return the values that the validator returns, without arguments that were not given."""
        assert self.validator is not None
        try:
            found = validate(self.validator)
        except ValidationError as error:
            raise InvalidArguments(self._explain(error)) from None
        given, values = found.model_fields_set, vars(found)
        return {name: values[field] for name, field in self._fields if field in given}

    @cached_property
    def _fields(self) -> list[tuple[str, str]]:
        """The parameters, and the name of each in the pydantic model."""
        return [(name, PREFIX + name) for name in self.parameters]

    def _read_by_schema(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments if they fit the hand-written schema."""
        problems = [f"{one}." for one in schemas.violations(self.schema, dict(given))]
        if not self.anything:
            unknown = [name for name in given if name not in self.parameters][:MAX_ERRORS]
            problems += [_unknown(name[:MAX_ECHO], self.parameters) for name in unknown]
        if problems:
            raise InvalidArguments("Invalid arguments. " + " ".join(problems))
        return dict(given)

    def _explain(self, error: ValidationError) -> str:
        if error.error_count() > MAX_FORMATTED_ERRORS:
            names = ", ".join(self.parameters)
            return f"Invalid arguments. There are too many errors. The arguments are: {names}."
        errors = error.errors(include_url=False)[:MAX_ERRORS]
        return "Invalid arguments. " + " ".join(_error_line(one, self.parameters) for one in errors)

    # Binding.

    @property
    def binds(self) -> bool:
        """Whether an argument is a key that is bound to a row."""
        return any(parameter.binding for parameter in self.parameters.values())

    @property
    def resources(self) -> list[ModelResource]:
        """The model resources whose rows the arguments name."""
        return [one.binding.resource for one in self.parameters.values() if one.binding]

    def bind(self, values: dict[str, Any], request: Request, *, write: bool) -> dict[str, Any]:
        """Return ``values`` with every key replaced by its row.

        Raise ``InvalidArguments`` with the same message for a missing row and for one that this
        user may not see.
        """
        bindings = {n: p.binding for n, p in self.parameters.items() if p.binding and n in values}
        fetched = {n: b.fetch(values[n], request, write=write) for n, b in bindings.items()}
        return values | fetched

    @cached_property
    def headers(self) -> dict[tuple[str, ...], str]:
        """Header names by the path of the argument, or of its property, that they mirror."""
        return {path: prop["x-mcp-header"] for path, prop in mirrored_properties(self.schema)}


def arguments_of(
    function: Callable[..., Any], find: Find, *, schema: Mapping[str, Any] | None = None
) -> Arguments:
    """Return the arguments of ``function``, without the request. Raise ``ImproperlyConfigured``.

    ``find`` returns the model resource that a model is bound through. ``schema`` is a hand-written
    schema and is published unchanged.
    """
    parameters = parameters_of(function, find, handwritten=schema is not None)
    if schema is not None:
        anything = takes_anything(function)
        return Arguments(parameters, dict(schema), handwritten=True, anything=anything)
    try:
        model = _model(parameters)
        shown = _schema(model, parameters, _descriptions(function))
        return Arguments(parameters, shown, arguments_validator(model.__pydantic_core_schema__))
    except Exception as error:  # types of the project may raise anything in their schema hooks
        reason = str(error).partition("\n")[0]
        raise ImproperlyConfigured(f"The arguments have no JSON Schema: {reason}") from error


def _descriptions(function: Callable[..., Any]) -> dict[str, str]:
    """Return descriptions of arguments, from the docstrings of the class and the function."""
    owner = type(function.__self__).__doc__ if inspect.ismethod(function) else None
    return argument_descriptions(owner) | argument_descriptions(inspect.getdoc(function))


def _model(parameters: Mapping[str, Parameter]) -> type[BaseModel]:
    """Return the pydantic model of the arguments.

    Raise ``ValueError`` for a default in a ``Field``.
    """
    fields: dict[str, Any] = {
        PREFIX + name: (parameter.annotation, _field(name, parameter))
        for name, parameter in parameters.items()
    }
    config = ConfigDict(extra="forbid", allow_inf_nan=False)
    model: type[BaseModel] = create_model("Arguments", __config__=config, **fields)
    for name, parameter in parameters.items():
        if model.model_fields[PREFIX + name].is_required() != parameter.required:
            raise ValueError(f"{name}: its default is in a Field. Write it in the signature.")
    return model


def _field(name: str, parameter: Parameter) -> Any:
    return Field(alias=name) if parameter.required else Field(default=None, alias=name)


def _schema(
    model: type[BaseModel], parameters: Mapping[str, Parameter], described: Mapping[str, str]
) -> dict[str, Any]:
    """Return the JSON Schema of the arguments, with descriptions, defaults and headers."""
    schema = model.model_json_schema(schema_generator=ArgumentSchema)
    schema.pop("title", None)
    for name, prop in schema.get("properties", {}).items():
        if name in described:
            _describe(prop, described[name], bound=parameters[name].binding is not None)
        _show_default(prop, parameters[name].default)
        if header := parameters[name].header:
            add_header(prop, header)
    if not schema.get("properties"):
        schema.pop("properties", None)
    return schema


def _describe(prop: dict[str, Any], words: str, *, bound: bool) -> None:
    """Set the description from the docstring, unless the annotation has one.

    The schema of a key has one in any case. The docstring then comes before it.
    """
    own = prop.get("description", "")
    prop["description"] = f"{words} {own}".strip() if bound else own or words


def _show_default(prop: dict[str, Any], default: Any) -> None:
    """Replace pydantic's default by the one of the function, if it can be written as JSON."""
    prop.pop("default", None)
    if default is None or default is inspect.Parameter.empty:
        return
    try:
        value = to_jsonable_python(default)
    except PydanticSerializationError:
        return
    if json_problem(value) is None:
        prop["default"] = value


def fit_problems(arguments: Arguments) -> list[str]:
    """Return where a hand-written schema and its function do not fit."""
    lists = [one for one in schemas.all_of("required", arguments.schema) if isinstance(one, list)]
    demanded = set(chain.from_iterable(lists))
    required = [one.name for one in arguments.parameters.values() if one.required]
    problems = [
        f"{n}: the function requires it, but the schema does not."
        for n in required
        if n not in demanded
    ]
    offered = [] if arguments.anything else arguments.schema.get("properties", {})
    return problems + [
        f"{n}: it is in the schema, but the function does not accept it."
        for n in offered
        if n not in arguments.parameters
    ]


def text_problems(thing: Declaration, arguments: Arguments) -> Iterator[CheckMessage]:
    """Yield what prevents arguments from arriving as strings, and mistakes in their completion."""
    properties, definitions = arguments.schema.get("properties", {}), arguments.schema.get("$defs")
    for name, parameter in arguments.parameters.items():
        one_key = parameter.binding is not None and not parameter.binding.many
        if not one_key and _is_structured(properties[name], definitions or {}):
            message = f"The argument {name} of a {thing._kind} cannot be read from a string."
            hint = "Use a plain type, a Literal, an enum or a registered model."
            yield thing._error(message, 18, hint)
        if parameter.complete and (wrong := completer_problem(parameter.complete)):
            hint = "Write Annotated[str, mcp.Complete(function)], or mcp.Complete with a list."
            yield thing._error(f"{name}: {wrong}", 17, hint)


def _is_structured(prop: Mapping[str, Any], definitions: Mapping[str, Any]) -> bool:
    """Whether a property is an array or object, which no string can express."""
    if "$ref" in prop:
        prop = definitions[prop["$ref"].rpartition("/")[2]]
    if "anyOf" in prop:
        branches = [one for one in prop["anyOf"] if one.get("type") != "null"]
        return all(_is_structured(one, definitions) for one in branches)
    return prop.get("type") in ("array", "object")


# Error messages.


def _error_line(error: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    """Return one of pydantic's errors as a sentence."""
    place = _place(error["loc"], known)
    if error["type"] == "extra_forbidden" and len(error["loc"]) == 1:
        return _unknown(place, known)
    if error["type"].startswith("missing"):
        return f"{place}: this argument is required."
    return f"{place}: {error['msg']}{_echo(error.get('input'))}."


def _place(steps: Sequence[Any], known: Mapping[str, Any]) -> str:
    names = [str(step)[:MAX_ECHO] for step in steps[:MAX_STEPS]] or ["arguments"]
    first = names[0] if names[0] in known else names[0].removeprefix(PREFIX)
    return ".".join([first, *names[1:]])


def _unknown(place: str, known: Mapping[str, Any]) -> str:
    return f"{place}: unknown argument. The arguments are: {', '.join(known) or 'none'}."


def _echo(value: Any) -> str:
    if isinstance(value, dict | list) or value is None:
        return ""
    text = repr(value)
    return f" (got {text if len(text) <= MAX_ECHO else text[:MAX_ECHO] + '…'})"
