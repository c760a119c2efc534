"""The arguments of the project's functions: their schema, their validation, their binding.

Rule: validation never touches the database. It yields plain values, and keys
where a model is asked for; one binding step then fetches what the keys name,
through the queryset its caller may see. Unknown arguments are refused, and
what is said of a wrong one is something a model can act on.

pydantic writes the schemas and validates, strictly: what does not fit the
published schema is not bent until it does.

Arguments mirrored into HTTP headers, so that what stands between may route by them.

Rule: only what every client can read from the arguments, and every proxy may
see, is mirrored (server/tools, "x-mcp-header").

The signature of the project's function, read as arguments.

Rule: the first parameter is the request, always; every other one has a name
and a type, and nothing of it is lost without a word.

pydantic's core schema of arguments and answers, changed to read values as a Django project expects.

pydantic hands no configuration on to nested models, so the schema itself is changed, at every
level. The models are the project's: a copy is changed, and their own use of them stays as it is.
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
from .bindings import Find, KeyBinding, bound, holds
from .completions import Complete, completer_problem
from .content import json_problem
from .declaration import argument_descriptions

if TYPE_CHECKING:
    from django.core.checks import CheckMessage

    from .declaration import Declaration
    from .model_resources import ModelResource
    from .request import Request

SAFE_INTEGER = 2**53 - 1  # what every JSON parser reads exactly
KEY_OR_URI = ["integer", "string"]  # the types of an argument that names a row
TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")  # RFC 9110, 5.6.2
SENSITIVE = re.compile(
    r"(password|passwd|passphrase|secret|token|(api|private)_?key|email|phone|ssn|iban)$", re.I
)


@dataclass(frozen=True)
class Header:
    """Mirror an argument into the HTTP header ``Mcp-Param-{name}`` (server/tools, x-mcp-header)."""

    name: str


def marked(schema: Mapping[str, Any]) -> list[tuple[tuple[str, ...], dict[str, Any]]]:
    """The properties that are mirrored into headers, by their paths."""
    found = schemas.reachable(dict(schema))
    return [(path, prop) for path, prop in found if "x-mcp-header" in prop]


def at(path: tuple[str, ...], given: Any) -> Any:
    for step in path:
        given = given.get(step) if isinstance(given, Mapping) else None
    return given


def header_problems(schema: Mapping[str, Any]) -> list[str]:
    """What breaks the rules of ``x-mcp-header`` in a tool's input schema."""
    found = [(".".join(path), prop) for path, prop in marked(schema)]
    problems = [wrong for place, prop in found if (wrong := _header_problem(place, prop))]
    names = [str(prop["x-mcp-header"]).lower() for _, prop in found]
    twice = {name for name in names if names.count(name) > 1}
    problems += [f"The header {name!r} is used twice." for name in sorted(twice)]
    everywhere = json.dumps(schema).count('"x-mcp-header":')
    if everywhere > len(found):
        problems.append("A header mirrors only what properties alone lead to.")
    return problems


def _header_problem(place: str, prop: Mapping[str, Any]) -> str | None:
    name = prop["x-mcp-header"]
    if not isinstance(name, str) or not TOKEN.match(name):
        return f"{place}: {name!r} is no HTTP header name."
    if prop.get("type") not in ("string", "integer", "boolean"):
        return f"{place}: only a string, an integer or a boolean is mirrored, and never null."
    if SENSITIVE.search(place):
        return f"{place}: headers are seen by intermediaries, a secret must not be in one."
    return None


def mark(prop: dict[str, Any], header: Header) -> None:
    prop["x-mcp-header"] = header.name
    if prop.get("type") == KEY_OR_URI:
        prop["type"] = "string"  # a header mirrors one type, and a key may be given as text
    if prop.get("type") == "integer":
        prop["minimum"] = max(prop.get("minimum", -SAFE_INTEGER), -SAFE_INTEGER)
        prop["maximum"] = min(prop.get("maximum", SAFE_INTEGER), SAFE_INTEGER)


POSITIONAL = inspect.Parameter.POSITIONAL_OR_KEYWORD


@dataclass(frozen=True)
class Parameter:
    """One argument of a function, as declared."""

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
    """The signature with its annotations evaluated. Raises ``ImproperlyConfigured``."""
    try:
        return inspect.signature(function, eval_str=True)
    except Exception as error:  # an annotation is any code
        raise ImproperlyConfigured(f"The signature cannot be read: {error}.") from error


def takes_anything(function: Callable[..., Any]) -> bool:
    """Whether it takes arguments that it does not name."""
    parameters = signature_of(function).parameters.values()
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)


def parameters_of(
    function: Callable[..., Any], find: Find, *, handwritten: bool
) -> dict[str, Parameter]:
    listed = list(signature_of(function).parameters.values())
    if not listed or listed[0].kind not in (listed[0].POSITIONAL_ONLY, POSITIONAL):
        raise ImproperlyConfigured("The first argument is the request.")
    if not _may_be_request(listed[0]):
        wrong = f"and {listed[0].name!r} is in its place: write request before it."
        raise ImproperlyConfigured(f"The first argument is the request, {wrong}")
    named = [p for p in listed[1:] if not (handwritten and p.kind is p.VAR_KEYWORD)]
    return {p.name: _parameter(p, find, handwritten=handwritten) for p in named}


def _may_be_request(parameter: inspect.Parameter) -> bool:
    """Not an argument of a function whose author forgot the request."""
    from .request import Request

    kind = parameter.annotation
    if parameter.name == "request" or kind in (parameter.empty, Any, object):
        return True
    if isinstance(kind, type):
        return getattr(kind, "_is_protocol", False) or issubclass(kind, Request)
    return not typing.get_args(kind) or holds(kind, Request)


def _parameter(parameter: inspect.Parameter, find: Find, *, handwritten: bool) -> Parameter:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise ImproperlyConfigured(f"*{parameter.name} has no schema: name every argument.")
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise ImproperlyConfigured(f"{parameter.name} is positional-only; arguments have names.")
    if parameter.annotation is parameter.empty and not handwritten:
        raise ImproperlyConfigured(f"{parameter.name} needs a type annotation.")
    if isinstance(parameter.default, FieldInfo):
        words = "write Annotated[type, Field(...)] = default."
        raise ImproperlyConfigured(f"{parameter.name} has a Field for its default: {words}")
    annotation, binding = bound(parameter.annotation, find)
    return Parameter(
        parameter.name,
        annotation,
        parameter.default,
        binding,
        header=_metadata(parameter.annotation, Header),
        complete=_metadata(parameter.annotation, Complete),
    )


def _metadata(annotation: Any, kind: type) -> Any:
    """What an annotation says of ``kind``, wherever in an ``X | None`` it stands."""
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        found = (_metadata(part, kind) for part in typing.get_args(annotation))
        return next((one for one in found if one is not None), None)
    if origin is not Annotated:
        return None
    own = next((m for m in annotation.__metadata__ if isinstance(m, kind)), None)
    return own or _metadata(annotation.__origin__, kind)


# Functions, what is not about reading, and values of the project's.
NOT_WALKED = ("metadata", "serialization", "default")


WITH_KEYS = ("model", "dataclass", "typed-dict")

Change = Callable[[dict[str, Any]], Any]


def arguments_validator(core_schema: Any) -> SchemaValidator:
    """A validator of arguments: datetimes, bytes, and what has keys, as below."""
    changes = {"bytes": _bytes, "datetime": _datetime}
    return _validator(core_schema, changes | dict.fromkeys(WITH_KEYS, _closed))


def answers_validator(core_schema: Any) -> SchemaValidator:
    """A validator of a person's answer. What else their client sends is ignored."""
    return _validator(core_schema, {"datetime": _datetime})


def _validator(core_schema: Any, changes: Mapping[str, Change]) -> SchemaValidator:
    # pydantic would use the validators that nested models already have, which know no changes.
    return SchemaValidator(_changed(core_schema, changes), _use_prebuilt=False)


def _changed(part: Any, changes: Mapping[str, Change], own_bytes: bool = False) -> Any:
    """A copy of a core schema, or of a part of one, with its changes.

    ``own_bytes`` says that the configuration of the part tells how to read bytes.
    """
    if isinstance(part, list | tuple):
        return type(part)(_changed(one, changes, own_bytes) for one in part)
    if not isinstance(part, dict):
        return part
    kind = part.get("type")
    if not isinstance(kind, str):  # schemas by the names of fields, which may be any words
        return {key: _changed(value, changes, own_bytes) for key, value in part.items()}
    if decodes_itself(part):
        return part
    if kind == "union":
        part = without_bytes_beside_text(part)
    if "config" in part:
        own_bytes = "val_json_bytes" in part["config"]
    copy = {
        key: value if key in NOT_WALKED else _changed(value, changes, own_bytes)
        for key, value in part.items()
    }
    change = None if kind == "bytes" and own_bytes else changes.get(kind)
    return copy if change is None else change(copy)


def _datetime(schema: dict[str, Any]) -> Any:
    """A datetime; one that is annotated as naive or aware stays so."""
    if "tz_constraint" in schema:
        return schema
    return {"type": "function-after", "function": _no_info(in_current_zone), "schema": schema}


def _bytes(schema: dict[str, Any]) -> Any:
    return {"type": "function-before", "function": _no_info(_from_base64), "schema": schema}


def decodes_itself(schema: Mapping[str, Any]) -> bool:
    """Whether it is of a type like ``pydantic.Base64Bytes``, which takes encoded bytes."""
    if schema["type"] != "function-after":
        return False
    return isinstance(getattr(schema["function"]["function"], "__self__", None), EncodedBytes)


def without_bytes_beside_text(union: dict[str, Any]) -> dict[str, Any]:
    """``str | bytes`` takes text: any word of four letters could be base64, too."""
    choices = union["choices"]
    if union.get("mode") == "left_to_right" or not any(_is(one, "str") for one in choices):
        return union
    return union | {"choices": [one for one in choices if not _is(one, "bytes")]}


def _is(choice: Any, kind: str) -> bool:
    # A choice may have a label: (schema, label).
    return bool((choice[0] if isinstance(choice, tuple) else choice)["type"] == kind)


def _closed(schema: dict[str, Any]) -> Any:
    """What has keys refuses unknown ones, unless it says itself what becomes of them."""
    if allows_unknown(schema):
        return schema
    config = {**schema.get("config", {}), "extra_fields_behavior": "forbid"}
    own = {"extra_behavior": "forbid"} if schema["type"] == "typed-dict" else {}
    return schema | own | {"config": config}


def allows_unknown(schema: Mapping[str, Any]) -> bool:
    """Whether a model, dataclass or ``TypedDict`` says something of keys that it does not know.

    A standard dataclass and a ``TypedDict`` without configuration have that of what they are in.
    """
    # "ignore" is also what pydantic writes for a TypedDict that says nothing.
    says = schema.get("extra_behavior", "ignore") != "ignore"
    return (
        says
        or "extra_fields_behavior" in schema.get("config", {})
        or bool(schema.get("root_model"))
    )


def in_current_zone(value: datetime) -> datetime:
    """As the project's database takes it: aware with ``USE_TZ``, otherwise naive."""
    if timezone.is_aware(value) == settings.USE_TZ:
        return value
    try:
        return timezone.make_aware(value) if settings.USE_TZ else timezone.make_naive(value)
    except OverflowError:  # the first and last hours that a datetime can tell
        raise PydanticCustomError("datetime_range", "This date is out of range") from None


def _from_base64(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):  # ValueError: characters beyond ASCII
        raise PydanticCustomError("base64", "This is no base64") from None


def _no_info(function: Callable[[Any], Any]) -> dict[str, Any]:
    return {"type": "no-info", "function": function}


PREFIX = "argument_"  # a field called "schema" or "copy" would shadow pydantic's own
MAX_ECHO, MAX_ERRORS, MAX_STEPS = 80, 8, 8
ENCODINGS = {"base64": "base64", "hex": "base16"}  # of bytes, by a model's val_json_bytes
MAX_FORMATTED_ERRORS = 1000  # that are written out, to tell the first of them


class TerseSchema(GenerateJsonSchema):
    """pydantic's schema without the titles it makes up, of fields and of classes."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def generate(self, schema: Any, mode: Any = "validation") -> dict[str, Any]:
        found = super().generate(schema, mode)
        for name, definition in found.get("$defs", {}).items():
            if definition.get("title") == name:
                del definition["title"]
        return found


class ArgumentSchema(TerseSchema):
    """The schema of what ``arguments_validator`` reads."""

    def bytes_schema(self, schema: Any) -> dict[str, Any]:
        # No limits: they count bytes, and a schema's would count the characters of the text.
        text = {"type": "string"}
        own = (self._config.config_dict or {}).get("val_json_bytes", "base64")
        encoding = ENCODINGS.get(own)
        return text | ({"contentEncoding": encoding} if encoding else {})

    def function_after_schema(self, schema: Any) -> dict[str, Any]:
        # pydantic adds the format of a type that decodes itself.
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
    """What a function takes after the request.

    ``schema`` is the JSON Schema of the arguments, an object.
    """

    parameters: dict[str, Parameter] = field(default_factory=dict)
    schema: dict[str, Any] = field(default_factory=dict)
    validator: SchemaValidator | None = None
    handwritten: bool = False
    anything: bool = True  # whether the function takes what the hand-written schema lets through

    # From the wire.

    def read(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The values of JSON arguments. Raises ``InvalidArguments``."""
        self._check_headers(given)
        if self.handwritten:
            return self._read_by_schema(given)
        text = json.dumps(given)
        return self._validated(lambda validator: validator.validate_json(text, strict=True))

    def _check_headers(self, given: Mapping[str, Any]) -> None:
        """An integer in a header is within what every client can represent (server/tools)."""
        for path in self.headers:
            value = at(path, given)
            if isinstance(value, int) and abs(value) > SAFE_INTEGER:
                limits = f"an integer from -{SAFE_INTEGER} to {SAFE_INTEGER}"
                raise InvalidArguments(f"Invalid arguments. {'.'.join(path)}: {limits}.")

    def read_text(self, given: Mapping[str, str]) -> dict[str, Any]:
        """The values of arguments that arrive as strings, of prompts and URIs."""
        named: dict[str, Any] = {PREFIX + name: value for name, value in given.items()}
        return self._validated(lambda validator: validator.validate_strings(named, by_name=True))

    def _validated(self, validate: Callable[[SchemaValidator], Any]) -> dict[str, Any]:
        assert self.validator is not None
        try:
            found = validate(self.validator)
        except ValidationError as error:
            raise InvalidArguments(self._explain(error)) from None
        given, values = found.model_fields_set, vars(found)
        return {name: values[field] for name, field in self._fields if field in given}

    @cached_property
    def _fields(self) -> list[tuple[str, str]]:
        """The parameters, and what each is called in the model."""
        return [(name, PREFIX + name) for name in self.parameters]

    def _read_by_schema(self, given: Mapping[str, Any]) -> dict[str, Any]:
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
            return f"Invalid arguments. Much is wrong in them; there are: {names}."
        errors = error.errors(include_url=False)[:MAX_ERRORS]
        return "Invalid arguments. " + " ".join(_line(one, self.parameters) for one in errors)

    # To the project.

    @property
    def binds(self) -> bool:
        return any(parameter.binding for parameter in self.parameters.values())

    @property
    def resources(self) -> list[ModelResource]:
        """Whose rows the arguments name."""
        return [one.binding.resource for one in self.parameters.values() if one.binding]

    def bind(self, values: dict[str, Any], request: Request, *, write: bool) -> dict[str, Any]:
        """``values`` with every key replaced by the object it names.

        Raises ``InvalidArguments`` for what is not there or not for this user,
        in the same words.
        """
        bindings = {n: p.binding for n, p in self.parameters.items() if p.binding and n in values}
        fetched = {n: b.fetch(values[n], request, write=write) for n, b in bindings.items()}
        return values | fetched

    @cached_property
    def headers(self) -> dict[tuple[str, ...], str]:
        """Header names by the path of the argument, or of the property of one, they mirror."""
        return {path: prop["x-mcp-header"] for path, prop in marked(self.schema)}


def arguments_of(
    function: Callable[..., Any], find: Find, *, schema: Mapping[str, Any] | None = None
) -> Arguments:
    """The arguments of ``function`` after its first, the request.

    ``find`` gives the resource through which a model is bound; ``schema`` is a
    hand-written schema, published as it is. Raises ``ImproperlyConfigured``.
    """
    parameters = parameters_of(function, find, handwritten=schema is not None)
    if schema is not None:
        anything = takes_anything(function)
        return Arguments(parameters, dict(schema), handwritten=True, anything=anything)
    try:
        model = _model(parameters)
        shown = _schema(model, parameters, _descriptions(function))
        return Arguments(parameters, shown, arguments_validator(model.__pydantic_core_schema__))
    except Exception as error:  # whatever a type does when pydantic asks for its schema
        words = str(error).partition("\n")[0]
        raise ImproperlyConfigured(f"No schema can be made of the arguments: {words}") from error


def _descriptions(function: Callable[..., Any]) -> dict[str, str]:
    """What is said of the arguments: by the class of a method, and by the function itself."""
    owner = type(function.__self__).__doc__ if inspect.ismethod(function) else None
    return argument_descriptions(owner) | argument_descriptions(inspect.getdoc(function))


def _model(parameters: Mapping[str, Parameter]) -> type[BaseModel]:
    fields: dict[str, Any] = {
        PREFIX + name: (parameter.annotation, _field(name, parameter))
        for name, parameter in parameters.items()
    }
    config = ConfigDict(extra="forbid", allow_inf_nan=False)
    model: type[BaseModel] = create_model("Arguments", __config__=config, **fields)
    for name, parameter in parameters.items():
        if model.model_fields[PREFIX + name].is_required() != parameter.required:
            raise ValueError(f"{name}: write its default as the function's, not in a Field.")
    return model


def _field(name: str, parameter: Parameter) -> Any:
    return Field(alias=name) if parameter.required else Field(default=None, alias=name)


def _schema(
    model: type[BaseModel], parameters: Mapping[str, Parameter], described: Mapping[str, str]
) -> dict[str, Any]:
    schema = model.model_json_schema(schema_generator=ArgumentSchema)
    schema.pop("title", None)
    for name, prop in schema.get("properties", {}).items():
        if name in described:
            _describe(prop, described[name], bound=parameters[name].binding is not None)
        _show_default(prop, parameters[name].default)
        if header := parameters[name].header:
            mark(prop, header)
    if not schema.get("properties"):
        schema.pop("properties", None)
    return schema


def _describe(prop: dict[str, Any], words: str, *, bound: bool) -> None:
    """The docstring's words, unless the annotation has its own; a key says what it is as well."""
    own = prop.get("description", "")
    prop["description"] = f"{words} {own}".strip() if bound else own or words


def _show_default(prop: dict[str, Any], default: Any) -> None:
    """Replace pydantic's stand-in by the function's own default, where JSON has it."""
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
    """Where a hand-written schema and the function it is written for do not meet."""
    lists = [one for one in schemas.all_of("required", arguments.schema) if isinstance(one, list)]
    demanded = set(chain.from_iterable(lists))
    required = [one.name for one in arguments.parameters.values() if one.required]
    problems = [
        f"{n}: the function needs it, the schema does not." for n in required if n not in demanded
    ]
    offered = [] if arguments.anything else arguments.schema.get("properties", {})
    return problems + [
        f"{n}: the function does not take it." for n in offered if n not in arguments.parameters
    ]


def text_problems(thing: Declaration, arguments: Arguments) -> Iterator[CheckMessage]:
    """What keeps arguments from arriving as strings, and from being completed."""
    properties, definitions = arguments.schema.get("properties", {}), arguments.schema.get("$defs")
    for name, parameter in arguments.parameters.items():
        one_key = parameter.binding is not None and not parameter.binding.many
        if not one_key and _is_structured(properties[name], definitions or {}):
            words = f"The argument {name} of a {thing._kind} arrives as a string."
            hint = "Use a plain type, a Literal, an enum or a registered model."
            yield thing._error(words, 18, hint)
        if parameter.complete and (wrong := completer_problem(parameter.complete)):
            hint = "Annotated[str, mcp.Complete(function)], or a list of values."
            yield thing._error(f"{name}: {wrong}", 17, hint)


def _is_structured(prop: Mapping[str, Any], definitions: Mapping[str, Any]) -> bool:
    if "$ref" in prop:
        prop = definitions[prop["$ref"].rpartition("/")[2]]
    if "anyOf" in prop:
        branches = [one for one in prop["anyOf"] if one.get("type") != "null"]
        return all(_is_structured(one, definitions) for one in branches)
    return prop.get("type") in ("array", "object")


# What is wrong with an argument, in words.


def _line(error: Mapping[str, Any], known: Mapping[str, Any]) -> str:
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
    return f"{place}: there is no such argument; there are: {', '.join(known) or 'none'}."


def _echo(value: Any) -> str:
    if isinstance(value, dict | list) or value is None:
        return ""
    text = repr(value)
    return f" (got {text if len(text) <= MAX_ECHO else text[:MAX_ECHO] + '…'})"
