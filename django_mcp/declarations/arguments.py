"""Arguments of the project's functions: their JSON Schema, their validation and binding to rows.

The first parameter of a function is the request. The others are the arguments. ``arguments_of``
makes their JSON Schema and their validator with pydantic, from the names and types.

1. *Validation* (``Arguments.read``) is strict. It rejects unknown arguments and values that do not
   fit the published schema, and never converts a value. Its error messages are for language models,
   which call again with better arguments. It never queries the database. The value of a parameter
   whose type is a model is still a key.
2. *Binding* (``Arguments.bind``) replaces such keys by rows. A ``KeyBinding`` fetches the rows of
   one argument with ``get_queryset(request)`` and the object permission of a model resource. So an
   argument gives access to no row that the caller could not read. The error is the same for a
   missing and for a hidden row, so that a caller cannot find out which rows exist.

``Header`` mirrors an argument into an HTTP header, so that proxies can route by it (server/tools,
"x-mcp-header"). Proxies and their logs see such arguments.
"""

from __future__ import annotations

import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

from django.core.exceptions import ImproperlyConfigured
from django.db import models
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    create_model,
)
from pydantic.fields import FieldInfo
from pydantic_core import (
    PydanticSerializationError,
    SchemaValidator,
    to_jsonable_python,
)

from ..exceptions import InvalidArguments
from ..protocol.http_rules import Mirrored, check_parameters
from . import schemas
from .completions import Complete, Completer, completer_problem, get_completer, literal_values
from .content import json_problem
from .declaration import argument_descriptions, is_model_resource
from .redaction import Redaction
from .schemas import ArgumentSchema, arguments_validator, holds, is_model

if TYPE_CHECKING:
    from django.core.checks import CheckMessage

    from .declaration import Declaration
    from .model_rows import ModelRows
    from .request import Request

Find = Callable[[type[models.Model], Any], "ModelRows"]
MAX_KEYS_PER_ARGUMENT = 100
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
    problems = [wrong for path, prop in found if (wrong := _header_problem(path, prop))]
    names = [str(prop["x-mcp-header"]).lower() for _, prop in found]
    twice = {name for name in names if names.count(name) > 1}
    problems += [f"The header {name!r} is used twice." for name in sorted(twice)]
    everywhere = json.dumps(schema).count('"x-mcp-header":')
    if everywhere > len(found):
        problems.append("A header can mirror only a property, not an array item or alternative.")
    return problems


def _header_problem(path: str, prop: Mapping[str, Any]) -> str | None:
    """Return what is wrong with the mirrored property at ``path``, or None."""
    name = prop["x-mcp-header"]
    if not isinstance(name, str) or not TOKEN.match(name):
        return f"{path}: {name!r} is not a valid HTTP header name."
    if prop.get("type") not in ("string", "integer", "boolean"):
        return f"{path}: a mirrored argument must be a string, integer or boolean, and not null."
    if SENSITIVE.search(path):
        return f"{path}: the name looks like a secret. Proxies can read and log headers."
    return None


def add_header(prop: dict[str, Any], header: Header) -> None:
    """Add the header to the schema of a property, and limit the property for a header."""
    prop["x-mcp-header"] = header.name
    if prop.get("type") == KEY_OR_URI:
        prop["type"] = "string"  # a header has one type, and keys are accepted as strings
    if prop.get("type") == "integer":
        prop["minimum"] = max(prop.get("minimum", -SAFE_INTEGER), -SAFE_INTEGER)
        prop["maximum"] = min(prop.get("maximum", SAFE_INTEGER), SAFE_INTEGER)


# Arguments that are rows.


@dataclass(frozen=True)
class KeyBinding:
    """How the keys of one argument become rows.

    The keys are those of the resource's URIs. With ``relation`` they are primary keys instead, as
    rows show them, even if the URI identifies rows by another field.
    """

    resource: ModelRows
    many: bool = False
    relation: bool = False

    def fetch(self, value: Any, request: Request, *, write: bool) -> Any:
        """Return the row or rows of the keys in ``value``. Raise ``InvalidArguments``."""
        if value is None:
            return None
        given = value if self.many else [value]
        if len(given) > MAX_KEYS_PER_ARGUMENT:
            raise InvalidArguments(
                f"At most {MAX_KEYS_PER_ARGUMENT} keys are allowed, not {len(given)}."
            )
        keys = [self.key(one) for one in given]
        rows = self._fetch_rows(keys, request, write=write)
        return [rows[key] for key in keys] if self.many else rows[keys[0]]

    def _fetch_rows(
        self, keys: list[tuple[str, Any]], request: Request, *, write: bool
    ) -> dict[tuple[str, Any], models.Model]:
        """Fetch the rows by lookup and key, with one query for each lookup.

        Raise ``InvalidArguments`` if one is missing.
        """
        found = {}
        for lookup in dict.fromkeys(lookup for lookup, _ in keys):
            values = [value for its_lookup, value in keys if its_lookup == lookup]
            rows = self.resource._fetch(request, values, write=write, lookup=lookup)
            found.update({(lookup, value): row for value, row in rows.items()})
        for key in keys:
            if key not in found:
                raise row_not_found(self.resource, key[1])
        return found

    def key(self, value: Any) -> tuple[str, Any]:
        """Return the lookup and the key in ``value``, which is a key or a URI of the resource."""
        resource = self.resource
        try:
            if self.relation:
                return resource._related_lookup_and_key(value)
            return resource._lookup_and_key(value)
        except ValueError:
            raise row_not_found(resource, value) from None


def row_not_found(resource: ModelRows, key: Any, purpose: str = "") -> InvalidArguments:
    """Return the error for a row that does not exist, and for a row that the user may not see."""
    shown = key if isinstance(key, int) else repr(str(key)[:80])
    return InvalidArguments(f"There is no {resource._verbose_name} {shown}{purpose}.")


def bind_annotation(
    annotation: Any, find: Find, resource_class: Any = None
) -> tuple[Any, KeyBinding | None]:
    """Return ``annotation`` with keys instead of models, and how to bind them.

    The supported forms are ``M``, ``M | None``, ``list[M]`` and ``Annotated[M, Resource]``.
    """
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if is_model(annotation):
        resource = find(annotation, resource_class)
        schema = resource._key_schema()
        composite: Any = list[int | str]
        key = int | str | composite if "anyOf" in schema else int | str
        return Annotated[key, WithJsonSchema(schema)], KeyBinding(resource)
    if origin is Annotated:
        return _bind_annotated(annotation, find)
    if origin in (typing.Union, types.UnionType) and type(None) in inner and len(inner) == 2:
        one = next(arg for arg in inner if arg is not type(None))
        rewritten, binding = bind_annotation(one, find, resource_class)
        return (rewritten | None if binding else annotation), binding
    if origin is list and inner and _is_model_argument(inner[0]):
        rewritten, binding = bind_annotation(inner[0], find, resource_class)
        assert binding is not None
        return list[rewritten], KeyBinding(binding.resource, many=True)  # type: ignore[valid-type]
    if holds(annotation, models.Model):
        raise ImproperlyConfigured(
            f"{annotation} cannot be an argument. Write a model as M, M | None or list[M]."
        )
    return annotation, None


def _is_model_argument(annotation: Any) -> bool:
    """Whether it is a model, or ``Annotated`` with a model."""
    plain = typing.get_origin(annotation) is Annotated
    return is_model(annotation.__origin__ if plain else annotation)


def chosen_resource(metadata: tuple[Any, ...]) -> Any:
    """Return the resource that ``Annotated`` names for its model, or None."""
    # Compare the kind: model_resources imports this module, so the class cannot be imported here.
    classes = (one for one in metadata if isinstance(one, type))
    return next(filter(is_model_resource, classes), None)


def _bind_annotated(annotation: Any, find: Find) -> tuple[Any, KeyBinding | None]:
    """Bind ``Annotated[M, Resource, ...]``, and keep the other metadata."""
    metadata = annotation.__metadata__
    resource_class = chosen_resource(metadata)
    rewritten, binding = bind_annotation(annotation.__origin__, find, resource_class)
    rest = tuple(m for m in metadata if m is not resource_class)
    if binding is None or not rest:
        return (annotation if binding is None else rewritten), binding
    return Annotated[(rewritten, *rest)], binding


# Parameters of a function.

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

    @property
    def completer(self) -> Completer | None:
        """The completer of the argument, or None."""
        if self.complete is not None:
            return get_completer(self.complete)
        if self.binding is not None:
            return self.binding.resource._complete
        choices = literal_values(self.annotation)
        return get_completer(Complete(choices)) if choices else None


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

    False if its name and its annotation are those of an argument. Then the author has probably
    forgotten the request.
    """
    kind = parameter.annotation
    if parameter.name == "request" or kind in (parameter.empty, Any, object):
        return True
    from .request import Request

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


PREFIX = "argument_"  # of model fields: "schema" or "copy" would shadow methods of pydantic
# Limits of an error message: characters of a quoted value, errors, steps of a path.
MAX_ECHO, MAX_ERRORS, MAX_STEPS = 80, 8, 8
# pydantic builds all errors to return the first ones, which takes seconds for huge arguments.
MAX_FORMATTED_ERRORS = 1000


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

    @cached_property
    def redaction(self) -> Redaction:
        """Masks secrets in arguments, for the audit log and for approvals."""
        return Redaction(self.schema)

    # Reading.

    def read(self, given: Mapping[str, Any], mirrored: Mirrored | None = None) -> dict[str, Any]:
        """Return the values of JSON arguments. Raise ``InvalidArguments`` or ``HeaderMismatch``.

        ``mirrored`` are the headers of the HTTP request, which must equal the arguments.
        """
        if self.headers:
            self._check_headers(given, mirrored)
        if self.handwritten:
            return self._read_by_schema(given)
        assert self.validator is not None
        return self._validated(self.validator.validate_json, json.dumps(given), strict=True)

    def _check_headers(self, given: Mapping[str, Any], mirrored: Mirrored | None) -> None:
        """Raise for a header that differs from its argument.

        Raise also for a mirrored integer that not every client reads exactly (server/tools).
        """
        if mirrored is not None:
            check_parameters(mirrored, given, self.headers.items())
        for path in self.headers:
            value = value_at(path, given)
            if isinstance(value, int) and abs(value) > SAFE_INTEGER:
                limits = f"must be an integer from -{SAFE_INTEGER} to {SAFE_INTEGER}"
                raise InvalidArguments(f"Invalid arguments. {'.'.join(path)}: {limits}.")

    def read_text(self, given: Mapping[str, str]) -> dict[str, Any]:
        """Return the values of arguments that arrive as strings: those of prompts and URIs."""
        named: dict[str, Any] = {PREFIX + name: value for name, value in given.items()}
        assert self.validator is not None
        return self._validated(self.validator.validate_strings, named, by_name=True)

    def _validated(
        self, validate: Callable[..., Any], given: Any, **options: Any
    ) -> dict[str, Any]:
        """Return the values that the validator returns, without arguments that were not given."""
        try:
            found = validate(given, **options)
        except ValidationError as error:
            raise InvalidArguments(self._explain(error)) from None
        present, values = found.model_fields_set, vars(found)
        return {name: values[field] for name, field in self._fields if field in present}

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

    @cached_property
    def completers(self) -> dict[str, Completer]:
        """The completer of each argument that has one."""
        found = {name: parameter.completer for name, parameter in self.parameters.items()}
        return {name: completer for name, completer in found.items() if completer is not None}

    # Binding.

    @cached_property
    def bindings(self) -> dict[str, KeyBinding]:
        """How to bind each argument that is a key of a row."""
        return {name: one.binding for name, one in self.parameters.items() if one.binding}

    @property
    def binds(self) -> bool:
        """Whether ``bind`` may query the database."""
        return bool(self.bindings)

    @property
    def resources(self) -> list[ModelRows]:
        """The model resources whose rows the arguments name."""
        return [binding.resource for binding in self.bindings.values()]

    def bind(self, values: dict[str, Any], request: Request, *, write: bool) -> dict[str, Any]:
        """Return ``values`` with every key replaced by its row.

        Raise ``InvalidArguments`` with the same message for a missing row and for one that this
        user may not see.
        """
        given = [(name, binding) for name, binding in self.bindings.items() if name in values]
        return values | {
            name: binding.fetch(values[name], request, write=write) for name, binding in given
        }

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


def text_problems(declaration: Declaration, arguments: Arguments) -> Iterator[CheckMessage]:
    """Yield what prevents arguments from arriving as strings, and mistakes in their completion."""
    properties, definitions = arguments.schema.get("properties", {}), arguments.schema.get("$defs")
    for name, parameter in arguments.parameters.items():
        one_key = parameter.binding is not None and not parameter.binding.many
        if not one_key and _is_structured(properties[name], definitions or {}):
            message = f"The argument {name} of a {declaration._kind} cannot be read from a string."
            hint = "Use a plain type, a Literal, an enum or a registered model."
            yield declaration._error(message, 18, hint)
        if parameter.complete and (wrong := completer_problem(parameter.complete)):
            hint = "Write Annotated[str, mcp.Complete(function)], or mcp.Complete with a list."
            yield declaration._error(f"{name}: {wrong}", 17, hint)


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
    path = _path(error["loc"], known)
    if error["type"] == "extra_forbidden" and len(error["loc"]) == 1:
        return _unknown(path, known)
    if error["type"].startswith("missing"):
        return f"{path}: this argument is required."
    return f"{path}: {error['msg']}{_echo(error.get('input'))}."


def _path(steps: Sequence[Any], known: Mapping[str, Any]) -> str:
    names = [str(step)[:MAX_ECHO] for step in steps[:MAX_STEPS]] or ["arguments"]
    first = names[0] if names[0] in known else names[0].removeprefix(PREFIX)
    return ".".join([first, *names[1:]])


def _unknown(path: str, known: Mapping[str, Any]) -> str:
    return f"{path}: unknown argument. The arguments are: {', '.join(known) or 'none'}."


def _echo(value: Any) -> str:
    if isinstance(value, dict | list) or value is None:
        return ""
    text = repr(value)
    return f" (got {text if len(text) <= MAX_ECHO else text[:MAX_ECHO] + '…'})"
